// SPDX-License-Identifier: Apache-2.0
// Tensor parallel (Shoeybi et al. 2019, Korthikanti et al. 2022): the ranks of a group each hold a
// slice of a layer's weight and compute with it a part of the layer's result. A plan says for each
// layer how, by PyTorch's names (torch.distributed.tensor.parallel).
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "tandem/dist/process_group.h"
#include "tandem/nn/module.h"
#include "tandem/optim/optimizer.h"

namespace tandem::distributed {

/// What of a value a rank of the group has.
enum class Layout : uint8_t {
  replicated,  ///< all of it; every rank computes the same from it
  shared,      ///< all of it; each rank computes a part from it, so gradients are added
  sharded,     ///< a slice of the last dimension
  sequence,    ///< a slice of the dimension of time
  partial,     ///< something of its shape; the value is the sum over the ranks
};
TD_API const char* to_string(Layout layout);

/// From one layout to another, with derivatives for a loss that is the same on all ranks.
/// `sequence_dim` is the dimension of time. Throws Unsupported where there is no such way, Shape
/// for a dimension that does not divide by the ranks.
TD_API Tensor redistribute(Tensor x, Layout from, Layout to, const std::shared_ptr<Engine>& group,
                           int64_t sequence_dim = 1, SourceLocation loc = SourceLocation::here());

/// A Linear's rows, which give slices of its result (an Embedding's columns). Weight [out, in],
/// bias [out].
struct ColwiseParallel {
  Layout input = Layout::replicated;  ///< or sequence
  Layout output = Layout::sharded;    ///< or replicated
  int64_t parts = 1;  ///< the result is so many equal parts, each sharded: 3 for packed q, k, v
  int64_t sequence_dim = 1;
};
/// A Linear's columns, which take slices of its input; the bias is added to the sum. Of an
/// Embedding the rows: each rank knows a part of the vocabulary.
struct RowwiseParallel {
  Layout input = Layout::sharded;      ///< or replicated; of an Embedding always replicated
  Layout output = Layout::replicated;  ///< or sequence
  int64_t sequence_dim = 1;
};
/// The heads of an nn::MultiheadAttention, with its projections of both sides.
struct AttentionParallel {};
/// A layer that treats every step by itself (norms, dropout) on slices of time, or every head on
/// heads of this rank: its parameters' gradients are added over the ranks.
struct SequenceParallel {
  Layout input = Layout::sequence;   ///< or replicated
  Layout output = Layout::sequence;  ///< or replicated, shared
  int64_t sequence_dim = 1;
};
/// The experts of an nn::MoE, of which each rank holds a part. The ranks have tokens of their own,
/// as in data parallel training: DataParallel over the same group takes the other parameters
/// (DataParallelOptions::ignored).
struct ExpertParallel {};
/// Nothing but the layout of what a layer is given, or gives.
struct PrepareModuleInput {
  Layout input = Layout::replicated, desired = Layout::shared;
  int64_t sequence_dim = 1;
};
struct PrepareModuleOutput {
  Layout output = Layout::replicated, desired = Layout::shared;
  int64_t sequence_dim = 1;
};
using ParallelStyle =
    std::variant<ColwiseParallel, RowwiseParallel, AttentionParallel, SequenceParallel,
                 ExpertParallel, PrepareModuleInput, PrepareModuleOutput>;
/// Patterns for names of modules ("h.*.c_fc"; nn::name_matches()), each with its style.
using ParallelPlan = std::vector<std::pair<std::string, ParallelStyle>>;

/// A net after parallelize_module(). Copies share it; the net must outlive them.
class TD_API TensorParallel {
 public:
  /// A parameter of which this rank holds a slice.
  struct Slice {
    std::string name;
    Param param;
    int64_t dim = 0;
    std::vector<int64_t> blocks;  ///< sizes along dim of what is sharded by itself; their sum is
                                  ///< the whole parameter's
  };

  // ---- whole states, those of a net that is not parallel; all ranks call these
  StateDict state_dict() const;
  /// Throws as Module::load_state_dict().
  nn::LoadReport load_state_dict(const StateDict& whole, bool strict = true) const;
  StateDict optim_state_dict(const optim::Optimizer& optimizer) const;
  void load_optim_state_dict(optim::Optimizer& optimizer, const StateDict& whole) const;
  /// What of it belongs to this rank.
  StateDict parts_of_optim_state(const optim::Optimizer& optimizer, const StateDict& whole) const;

  /// The norm of all gradients of the whole net, and clipping by it; all ranks call these.
  Tensor get_total_norm(double norm_type = 2.0, SourceLocation loc = SourceLocation::here()) const;
  Tensor clip_grad_norm_(double max_norm, double norm_type = 2.0,
                         SourceLocation loc = SourceLocation::here()) const;

  /// Whole values in the net, whose layers then compute what one rank's do, without a call; back
  /// again, where what is in the net by then is sliced and gradients of slices are gone. All ranks
  /// call these. Throws Unsupported for a net with ExpertParallel layers.
  void unshard();
  void reshard();

  nn::Module& module() const { return *net_; }
  const std::vector<Slice>& slices() const { return slices_; }

 private:
  friend TensorParallel spread_module(nn::Module&, const ParallelPlan&,
                                      const std::shared_ptr<Engine>&, Engine&,
                                      const std::function<void(Cell&, const Tensor&)>&);
  const Slice* slice_of(const std::string& name) const;
  bool is_slice(const Slice& s, const Tensor& value) const;
  Tensor whole_of(const Slice& s, const Tensor& own) const;
  Tensor own_of(const Slice& s, const Tensor& whole) const;

  nn::Module* net_ = nullptr;
  std::shared_ptr<Engine> group_;
  std::vector<Slice> slices_;
  std::shared_ptr<const void> roles_;
  struct Aside;
  std::shared_ptr<Aside> aside_;  ///< what layers do around their forward, while the net is whole
};

/// Give every rank of `group` its slices of the layers that the plan names, with rank 0's values;
/// other parameters become rank 0's. Make optimizers and DataParallel (over another group)
/// afterwards; optimizers that look at whole parameters (LAMB, Muon ...) refuse slices. All ranks
/// call it.
///
/// Throws Value for a pattern that matches no module or a module that two match, Shape for sizes
/// that do not divide by the ranks, Unsupported for layers that a style does not know.
TD_API TensorParallel parallelize_module(nn::Module& net, const ParallelPlan& plan,
                                         std::shared_ptr<Engine> group = world());

struct ParallelCrossEntropyOptions {
  int64_t vocabulary = 0;       ///< classes over all ranks; 0: all ranks have equally many
  int64_t ignore_index = -100;  ///< targets that do not count
};
/// The mean cross-entropy of logits of which each rank holds a slice of the classes: x [..., c /
/// ranks], as an Embedding sharded by rows gives them, and target [...] of integers, the same on
/// all ranks. No rank has a row of all classes. Throws Shape, and as cross_entropy().
TD_API Tensor parallel_cross_entropy(const Tensor& x, const Tensor& target,
                                     const std::shared_ptr<Engine>& group = nullptr,
                                     ParallelCrossEntropyOptions options = {},
                                     SourceLocation loc = SourceLocation::here());

}  // namespace tandem::distributed
