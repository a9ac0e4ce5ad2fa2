// SPDX-License-Identifier: Apache-2.0
// fmt's small header without its assertions: those call into libfmt, which a program that uses
// Tandem need not link.
#pragma once

#ifndef FMT_ASSERT
#define FMT_ASSERT(condition, message) ((void)0)
#endif
#include <fmt/core.h>
