// SPDX-License-Identifier: Apache-2.0
// Work that one kernel starts in a value's memory and a later kernel waits for, while the program
// computes on: calls of several ranks. Nobody may free or write that memory before the work has
// ended, whatever happens in between.
#pragma once

#include <cstddef>
#include <memory>

#include "tandem/base/export.h"

namespace tandem {

class TD_API StartedWork {
 public:
  virtual ~StartedWork() = default;
  /// Returns when the value is there; throws the work's error.
  virtual void wait() = 0;
  /// Ends it without its result.
  virtual void cancel() noexcept = 0;
};

/// The calling thread has started `work` in the memory that begins there.
TD_API void keep_started(const void* memory, std::unique_ptr<StartedWork> work);
/// Wait for what was started there; nothing where it has ended.
TD_API void finish_started(const void* memory);

/// Around the kernel calls of a program, inside the life of its memory: what they have started has
/// ended when it ends.
class TD_API StartedScope {
 public:
  StartedScope();
  /// Cancels what is left.
  ~StartedScope();
  StartedScope(const StartedScope&) = delete;
  StartedScope& operator=(const StartedScope&) = delete;
  /// Waits for what is left: memory may now be handed on.
  void end();

 private:
  size_t before_;
};

}  // namespace tandem
