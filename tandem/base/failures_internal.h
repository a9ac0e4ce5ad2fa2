// SPDX-License-Identifier: Apache-2.0
// Threads that the system may refuse.
#pragma once

#include <functional>
#include <thread>

#include "tandem/base/export.h"

namespace tandem {

/// A thread that runs `body`, which must not throw. Throws Memory when the system refuses one:
/// "cannot start a thread for loading data: ...". Its signals are blocked: they are for the
/// program's own threads.
TD_API std::thread start_thread(const char* purpose, std::function<void()> body);

}  // namespace tandem
