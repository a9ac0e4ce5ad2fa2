// SPDX-License-Identifier: Apache-2.0
// Plain numbers that a callable object refers to: a lambda that captures by reference holds the
// address of each variable. Those on the stack of the calling thread are watched; a trace is
// compared with a new one when they change. Nothing else behind a reference is read: memory of
// callers' frames is always there, any other may be gone.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace tandem::compiler {

class StackWatch {
 public:
  /// What `callable` refers to, as it is now.
  explicit StackWatch(std::span<const std::byte> callable = {});

  enum class Change : uint8_t {
    none,
    at_once,  ///< since the call before this one
    perhaps_before,
  };
  /// Have the values changed, before call number `call`? Those that used to change without effect
  /// answer ever more rarely.
  Change changed(int64_t call);
  /// The values as they are now belong to the trace.
  void refresh();
  /// The same, after a change that had no effect on it.
  void had_no_effect(int64_t call);

 private:
  struct Word {
    uintptr_t at;
    uint64_t value = 0;
    int64_t wait = 0, quiet_until = 0;
    bool missed = false;  ///< changed while it was not asked
  };
  std::vector<Word> words_;
};

}  // namespace tandem::compiler
