// SPDX-License-Identifier: Apache-2.0
// Executable: a lowered program ready to run: a flat list of kernel calls on (base, offset)
// addresses. A call binds arguments and cells and runs the list; it allocates only what outlives
// it. Concurrent calls have their own arenas; calls that write the same cells queue.
#pragma once

#include <mutex>

#include "tandem/compile/lowering/lower.h"
#include "tandem/graph/infer.h"
#include "tandem/graph/rng.h"

namespace tandem {

class TD_API Executable : public RefCounted {
 public:
  /// Lower `p`, which the passes have left.
  explicit Executable(compiler::Program p);
  ~Executable() override;

  /// Run it. `inputs` and `captures` have the specs that it was made for. Throws what an op reports
  /// (with op, layer and line); cells that were to be written after that keep their values.
  /// With `again` random ops draw what they drew when the generator stood there.
  std::vector<Tensor> run(std::span<const Tensor> inputs, std::span<const Tensor> captures,
                          const GeneratorState* again = nullptr);
  /// Have the cells of a trace still the shapes and dtypes that they had in it?
  static bool cells_fit(const Graph& g);
  /// The value of a cell and the number of writes that led to it.
  static std::pair<Tensor, uint64_t> look(const Cell& c);

  /// Bytes that one call holds at most, cells and arguments not counted: the arena and what leaves,
  /// in the allocator's blocks (from 1 MB on whole huge pages).
  size_t peak_bytes() const { return held_bytes_; }
  size_t arena_bytes() const { return lowered_.arena_bytes; }
  /// Most bytes of the arena alive in one step: no plan can be smaller.
  size_t lower_bound() const { return lowered_.lower_bound; }
  size_t num_steps() const { return lowered_.steps.size(); }
  /// One line per step: name, operands' places, and the layer.
  std::string to_string() const;
  /// What is alive at the peak, largest first.
  std::string peak_table() const;
  const compiler::Program& program() const { return program_; }
  const compiler::Lowered& lowered() const { return lowered_; }
  /// A step as its row sees it: attributes, shapes and dtypes. Of a loop: the row of no op.
  InferCall infer_call(const compiler::Step& s) const;
  /// Steps from k on that run as one: loops together, or a matmul and the loop on its blocks.
  size_t steps_at(size_t k) const;

 private:
  struct Frame;
  struct DryArena;
  struct Bound;
  struct Recorded;
  struct Replays;
  struct Source;
  struct Way;
  std::unique_ptr<Frame> acquire();
  void release(std::unique_ptr<Frame> f);
  void bind(Bound& b, std::span<const Tensor> inputs, std::span<const Tensor> captures);
  void bring(Bound& b) const;
  const Tensor& bound(const Bound& b, compiler::Base base, size_t k) const;
  const std::vector<char*>& addresses(Frame& f, const Bound& b) const;
  void point(Frame& f, const std::vector<char*>& at) const;
  void run_steps(Frame& f, const Way& way) const;
  void run_step(Frame& f, size_t k, const Way& way, ErrorWord& error) const;
  uint32_t ticket_of(const compiler::Step& s, const Way& way) const;
  void run_loop_there(const ScalarProgram& p, Array* arrays, int n_in, int n_out) const;
  void run_with_loop(Frame& f, size_t k, const KernelCall& call) const;
  void profile_step(Frame& f, size_t k, const Way& way, ErrorWord& error) const;
  void run_together(Frame& f, size_t first, size_t n) const;
  bool has_epilogue(size_t k) const;  ///< is the step after k done inside k?
  std::vector<Tensor> collect(Bound& b);
  // ---- replay.cpp
  bool can_be_recorded() const;
  bool replay(Frame& f, const Bound& b, RngKey entry) const;
  bool may_move(const Bound& b, const Source& s) const;
  bool settle(Frame& f, const Bound& b, const std::vector<char*>& now) const;
  bool record(Frame& f, const std::vector<char*>& now) const;
  void lay_out(Frame& f, const std::vector<char*>& now) const;
  void copy_sources(Frame& f, const Bound& b, RngKey entry) const;
  void copy_results(Frame& f, const std::vector<char*>& now) const;
  // ---- step_cost.cpp
  struct StepCost {
    double flops = 0, bytes = 0;
  };
  static const OpDef& loop_row();  ///< that a fused loop is shown as
  StepCost cost_of(const compiler::Step& s) const;
  double operations() const;
  void charge() const;

  compiler::Program program_;
  compiler::Lowered lowered_;
  std::vector<size_t> first_array_;  ///< of each step
  size_t n_arrays_ = 0, leaving_bytes_ = 0, held_bytes_ = 0;
  std::vector<size_t> write_order_;  ///< written cells, by address: the order of their locks
  mutable std::once_flag operations_once_;
  mutable double operations_ = 0;
  std::mutex lock_;
  std::vector<std::unique_ptr<Frame>> idle_;
  Ref<RefCounted> dry_arena_;
};

}  // namespace tandem
