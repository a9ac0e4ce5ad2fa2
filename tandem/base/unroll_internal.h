// SPDX-License-Identifier: Apache-2.0
// TD_UNROLL(n) before a loop of at most n iterations unrolls it completely, so that arrays of
// vectors which the loop indexes stay in registers. Not installed.
#pragma once

// Sanitizers check every access: unrolling would only cost compile time.
#ifdef TANDEM_SANITIZED
#define TD_UNROLL(n)
#else
#define TD_PRAGMA_TEXT(text) _Pragma(#text)
#define TD_UNROLL(n) TD_PRAGMA_TEXT(GCC unroll n)
#endif
