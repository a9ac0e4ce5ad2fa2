// SPDX-License-Identifier: Apache-2.0
// Control::eager: while a function runs, its ops are recorded and not run; reading a value runs
// what was recorded as one segment. Segments are found again by their content: ops, attributes,
// shapes, how they hang together and which values are wanted. Cells and gradients are written when
// the function has ended, so an exception leaves them as they were.
#pragma once

#include <atomic>
#include <mutex>
#include <unordered_map>
#include <unordered_set>

#include "tandem/compile/run/executable.h"
#include "tandem/graph/cells/waiting_updates.h"
#include "tandem/graph/rng.h"
#include "tandem/graph/trace.h"

namespace tandem::compiler {

/// Segments of one compiled function.
class SegmentCache {
 public:
  explicit SegmentCache(size_t most) : most_(most) {}
  /// The Executable of the segment `key`; nullptr when it is seen for the first time: it may never
  /// come again, and compiling costs more than running it once.
  Ref<Executable> find(const std::string& key, FunctionRef<Program()> program);
  /// Should the next call run op by op? So do calls whose segments are never seen again, for a
  /// while, and those of functions for which that is faster (small ops, many reads).
  bool run_op_by_op();
  /// A row with an effect was recorded, such as a call of several ranks: no call runs op by op from
  /// now on. Those that have begun to must not meet others that have not, and clocks differ.
  void saw_effect() { effects_ = true; }
  /// What a call took; `warm`: no segment of it was run for the first time or compiled.
  void took(double seconds, bool op_by_op, bool warm);
  /// Segments that were compiled or run for the first time.
  int64_t cold() const { return cold_; }
  int64_t compiled() const { return compiled_; }
  int64_t run() const { return run_; }
  Ref<Executable> last() const;
  void clear();

 private:
  struct Entry {
    Ref<Executable> executable;
    uint64_t used = 0;
  };
  mutable std::mutex lock_;
  size_t most_;
  std::unordered_map<std::string, Entry> entries_;
  Ref<Executable> last_;
  uint64_t clock_ = 0;
  int misses_ = 0, rest_ = 0, trial_ = 0;
  bool op_by_op_wins_ = false;
  double spent_[2] = {0, 0};  ///< in the trial: in segments, op by op
  std::atomic<int64_t> compiled_{0}, run_{0}, cold_{0};
  std::atomic<bool> effects_{false};
};

/// One call in segments: the running trace of this thread while it lives.
class SegmentedRun : public LazyRecorder, private WaitingUpdates {
 public:
  explicit SegmentedRun(SegmentCache& cache);
  ~SegmentedRun() override;
  SegmentedRun(const SegmentedRun&) = delete;
  SegmentedRun& operator=(const SegmentedRun&) = delete;

  /// Run what is left and write cells and gradients.
  void commit();
  /// Run what is left; what commit() would write. Of a run in segments.
  const Graph& outcome();
  int reads() const { return reads_; }
  SourceLocation first_read() const { return first_read_; }
  int segments() const { return segments_; }
  bool op_by_op() const { return op_by_op_; }
  double seconds_inside() const { return seconds_; }

  void record(Call& k, Tensor* out) override;
  Tensor alias(const Tensor& t) override;
  bool owns(const detail::TensorImpl& t) const override { return ids_.count(&t) > 0; }
  bool materialize(detail::TensorImpl& t, SourceLocation loc) override;

 private:
  struct Pending {
    SmallVec<Ref<detail::TensorImpl>, 1> impls;  ///< all tensors that show the value
    Spec spec;
    int input = kNone;
  };
  void add(CellUpdate&& u, SourceLocation loc) override;
  void need(const Cell& cell) override;
  bool pass_through(Call& k, Tensor* out);
  ValueId id_of(const Tensor& t);
  ValueId add_value(const Spec& spec, int input);
  void draw(Call& k, Instr& i);
  void flush();
  Program program(const std::vector<ValueId>& live) const;
  std::vector<Tensor> interpret(const std::vector<ValueId>& live) const;
  template <class T>
  void put(const T& v) {
    key_.append(reinterpret_cast<const char*>(&v), sizeof v);
  }

  SegmentCache& cache_;
  Trace trace_;
  uint32_t old_slow_;
  bool op_by_op_;
  WaitingUpdates* outer_waiting_;
  std::vector<CellUpdate> updates_;
  std::unordered_set<const Cell*> updated_;
  SourceLocation update_where_;
  PerValue<Pending> values_;
  PerInstr<Instr> instrs_;
  std::vector<Tensor> inputs_;
  std::unordered_map<const detail::TensorImpl*, ValueId> ids_;
  std::string key_;
  GeneratorState rng_entry_;
  uint32_t draws_ = 0;
  int reads_ = 0, segments_ = 0;
  double seconds_ = 0;
  SourceLocation first_read_;
};

}  // namespace tandem::compiler
