// SPDX-License-Identifier: Apache-2.0
#include "tandem/base/failures.h"
#include "tandem/base/failures_internal.h"

#include <pthread.h>
#include <signal.h>

#include <new>
#include <stdexcept>
#include <system_error>

#include "tandem/base/error.h"

namespace tandem {

void rethrow_as_error(const std::string& doing) {
  try {
    throw;
  } catch (const Error&) {
    throw;
  } catch (const std::bad_alloc&) {
    TD_FAIL(Memory,
            "{}: the system gave no memory for a list of the program's own\nUse smaller sizes, or "
            "raise the limit of memory (ulimit -v, or the container's).",
            doing);
  } catch (const std::length_error& e) {
    TD_FAIL(Memory, "{}: a list was to be longer than any can be ({})\nCheck the sizes.", doing,
            e.what());
  } catch (const std::system_error& e) {
    TD_FAIL(Io, "{}: {}", doing, e.what());
  }
}

std::thread start_thread(const char* purpose, std::function<void()> body) {
  sigset_t all, before;
  sigfillset(&all);
  pthread_sigmask(SIG_BLOCK, &all, &before);
  struct Restore {
    const sigset_t& before;
    ~Restore() { pthread_sigmask(SIG_SETMASK, &before, nullptr); }
  } restore{before};
  try {
    return std::thread(std::move(body));
  } catch (const std::system_error& e) {
    TD_FAIL(Memory,
            "cannot start a thread for {}: {}\nRaise the limit of processes (ulimit -u) or the "
            "container's (pids), or ask for fewer workers.",
            purpose, e.code().message());
  }
}

}  // namespace tandem
