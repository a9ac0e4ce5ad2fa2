// SPDX-License-Identifier: Apache-2.0
// What the system refuses, as the library's errors: memory that a container of the standard library
// asked for, and threads.
#pragma once

#include <functional>
#include <string>
#include <thread>

#include "tandem/base/export.h"

namespace tandem {

/// Inside a catch block: throw again what was caught, std::bad_alloc and std::length_error as an
/// Error of kind Memory and std::system_error as one of kind Io, with `doing` ("training") in
/// front.
[[noreturn]] TD_API void rethrow_as_error(const std::string& doing);

/// A thread that runs `body`, which must not throw. Throws Memory when the system refuses one:
/// "cannot start a thread for loading data: ...". Its signals are blocked: they are for the
/// program's own threads.
TD_API std::thread start_thread(const char* purpose, std::function<void()> body);

}  // namespace tandem
