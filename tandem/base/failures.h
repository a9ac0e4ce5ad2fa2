// SPDX-License-Identifier: Apache-2.0
// What the system refuses, as the library's errors: memory that a container of the standard library
// asked for. Threads: failures_internal.h.
#pragma once

#include <string>

#include "tandem/base/export.h"

namespace tandem {

/// Inside a catch block: throw again what was caught, std::bad_alloc and std::length_error as an
/// Error of kind Memory and std::system_error as one of kind Io, with `doing` ("training") in
/// front.
[[noreturn]] TD_API void rethrow_as_error(const std::string& doing);

}  // namespace tandem
