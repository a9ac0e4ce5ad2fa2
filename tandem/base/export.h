// SPDX-License-Identifier: Apache-2.0
// TD_API marks what the shared library exports; everything else is hidden. Every public class and
// every public function that is not a template carries it.
#pragma once

#define TD_API __attribute__((visibility("default")))
#define TD_LIKELY(x) __builtin_expect(!!(x), 1)
#define TD_UNLIKELY(x) __builtin_expect(!!(x), 0)
#define TD_NOINLINE __attribute__((noinline))
#define TD_COLD __attribute__((cold, noinline))
