// SPDX-License-Identifier: Apache-2.0
// TD_UNROLL(n) before a loop of n turns or less: all of them are written out, so that arrays of
// vectors which the loop walks through stay in registers. Not installed.
#pragma once

// Sanitizers check each access: there unrolling only takes the compiler's time.
#ifdef TANDEM_SANITIZED
#define TD_UNROLL(n)
#else
#define TD_PRAGMA_TEXT(text) _Pragma(#text)
#define TD_UNROLL(n) TD_PRAGMA_TEXT(GCC unroll n)
#endif
