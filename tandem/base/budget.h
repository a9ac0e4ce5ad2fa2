// SPDX-License-Identifier: Apache-2.0
// What a file may cost. A few bytes can ask for a lot: a compressed zero, a loop, a shape, a list
// that names itself. Every reader of foreign files and every run of a model from a file opens a
// Budget; the allocator, the dispatcher and the readers charge what they are about to take to it.
// Without an open one nothing is charged.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "tandem/base/export.h"

namespace tandem {

/// The most that reading one file, or one call of a model from a file, may cost. Each limit grows
/// with the bytes that are given (the file, and a model's inputs), so it stops what a file
/// multiplies and not a large file. 0: the default of the process.
struct BudgetLimits {
  int64_t bytes = 0;       ///< memory held at once besides the file; and 256 for each byte given
  int64_t nodes = 0;       ///< values read, or nodes run; and 64 for each byte given
  int64_t traced = 0;      ///< nodes in one trace, loops unrolled; and 1 for each 16 bytes given
  int64_t operations = 0;  ///< arithmetic on elements; and a million for each byte given
  double seconds = 0;      ///< of the calling thread's processor; and 1 for each 64 KiB given

  template <class V>
  void fields(V& v) {
    v("bytes", bytes, {.doc = "memory held at once besides the file", .at_least = 0});
    v("nodes", nodes, {.doc = "values read, or nodes run", .at_least = 0});
    v("traced", traced, {.doc = "nodes in one trace, loops unrolled", .at_least = 0});
    v("operations", operations, {.doc = "arithmetic on elements", .at_least = 0});
    v("seconds", seconds, {.doc = "of the calling thread's processor", .at_least = 0});
  }
};

/// The limits that a 0 stands for: 256 MiB, 2^20 nodes, 2^17 in a trace, 10^10 operations, 5 s.
TD_API BudgetLimits default_limits();
/// Change them for the whole process; a 0 restores a limit's first value.
TD_API void set_default_limits(const BudgetLimits& limits);
/// Limits from a text "bytes=8e9,seconds=60". Throws Value for an unknown name or a bad number.
TD_API BudgetLimits parse_limits(std::string_view text);

/// The budget of one file while it lives, on the thread that made it. What is charged inside counts
/// for every budget that is open around it, too. All checks throw Format, naming the file, the
/// limit, what came and how to raise it.
class TD_API Budget {
 public:
  /// `what` is the file's name, for messages; `given` its size in bytes.
  Budget(std::string_view what, uint64_t given, const BudgetLimits& limits = {});
  ~Budget();
  Budget(const Budget&) = delete;
  Budget& operator=(const Budget&) = delete;

  /// Whether one is open on this thread.
  static bool is_open();
  /// More bytes that belong to the file: another file that it names. For all open budgets.
  static void add_given(uint64_t bytes);
  /// Bytes given so far.
  uint64_t given() const { return given_; }

  // ---- charges to the open budgets; nothing happens where there is none
  /// `bytes` of memory are about to be taken.
  static void take(uint64_t bytes);
  /// That much was returned.
  static void give_back(uint64_t bytes) noexcept;
  /// Bytes that may still be taken.
  static uint64_t bytes_left() noexcept;
  /// Values were read, nodes were run.
  static void count(uint64_t nodes = 1);
  /// Nodes were added to a trace.
  static void count_traced(uint64_t nodes = 1);
  /// Elements are about to be computed, one after the other.
  static void work(double operations);
  /// Has it taken too long?
  static void check_time();
  /// The same for callbacks from C, where nothing may be thrown.
  static bool is_late() noexcept;

 private:
  enum Limit : uint8_t { kBytes, kNodes, kTraced, kOperations, kSeconds, kLimits };
  bool late() noexcept;
  void grow(uint64_t bytes);
  [[noreturn]] TD_COLD void fail(Limit l, double came) const;

  std::string what_;
  uint64_t given_ = 0;
  double most_[kLimits];
  Budget* outer_;
  int64_t bytes_ = 0;
  uint64_t nodes_ = 0, traced_ = 0;
  double operations_ = 0, start_ = 0, processor_start_ = -1;
};

/// Memory that is held while this lives.
class BudgetHold {
 public:
  explicit BudgetHold(uint64_t bytes) : bytes_(bytes) { Budget::take(bytes); }
  ~BudgetHold() { Budget::give_back(bytes_); }
  BudgetHold(const BudgetHold&) = delete;
  BudgetHold& operator=(const BudgetHold&) = delete;

 private:
  uint64_t bytes_;
};

}  // namespace tandem
