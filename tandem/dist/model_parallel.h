// SPDX-License-Identifier: Apache-2.0
// A net whose layers are spread over the ranks of a job, by tensor and pipeline parallel with known
// plans, and replicated over the rest: what the Trainer does for `parallel: {tp: 2, pp: 2}`.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "tandem/dist/device_mesh.h"
#include "tandem/dist/tensor_parallel.h"

namespace tandem::distributed {

struct ModelParallelSizes {
  int64_t tp = 1;  ///< ranks that have slices of the same layers
  int64_t pp = 1;  ///< stages, each with a part of the blocks
};

/// The net itself computes: a rank of a pipeline runs its forward, of which blocks of other ranks
/// are left out. A rank has and updates the slices of its blocks, and what lies outside of all
/// blocks, which every rank has and updates alike; parameters of other stages' blocks keep their
/// shapes and are zeros without memory of their own until unshard().
class TD_API ModelParallel {
 public:
  /// Rank 0's values go to all. The net must outlive this. Throws Value where tp * pp does not
  /// divide the ranks of `world`, Unsupported for a net without a known plan or known blocks. All
  /// ranks call it.
  ModelParallel(nn::Module& net, ModelParallelSizes sizes, std::shared_ptr<Engine> world);
  ~ModelParallel();
  ModelParallel(const ModelParallel&) = delete;
  ModelParallel& operator=(const ModelParallel&) = delete;

  /// The ranks that hold the same layers and have other samples.
  const std::shared_ptr<Engine>& data_group() const { return mesh_["dp"]; }
  /// Parameters whose gradients other stages have: DataParallelOptions::ignored over data_group().
  const std::vector<std::string>& elsewhere() const { return elsewhere_; }
  bool staged() const { return sizes_.pp > 1; }
  /// Of the ranks with the same samples one sees the net's result and may count them: the first of
  /// the last stage.
  bool counts() const;

  /// An optimizer over the net's parameters updates slices from here on, with the state that it
  /// has; back again. Throws Unsupported where its updates are not elementwise.
  void shard_optimizer(optim::Optimizer& optimizer);
  void unshard_optimizer(optim::Optimizer& optimizer);

  /// A forward and backward pass of `rows` samples in microbatches through the stages; `loss` gives
  /// the mean loss of rows [begin, end), and calls the net once. Gives the mean loss, on all ranks.
  /// Rows that do not divide into that many microbatches are cut into fewer. Throws Unsupported
  /// where the blocks are no chain.
  Tensor step(int64_t rows, int64_t microbatches,
              const std::function<Tensor(int64_t begin, int64_t end)>& loss);
  /// Add up the stages' gradients of what lies outside of the blocks, once for each update.
  void reduce_gradients();

  /// The norm of the gradients of the whole net, and clipping by it.
  Tensor get_total_norm(double norm_type = 2.0) const;
  Tensor clip_grad_norm_(double max_norm) const;

  // ---- whole states, those of one rank; all ranks call these
  /// Whole values in the net, which is then that of one rank; back again.
  void unshard();
  void reshard();
  bool unsharded() const { return whole_; }
  StateDict optim_state_dict(const optim::Optimizer& optimizer) const;
  /// What of it belongs to this rank.
  StateDict parts_of_optim_state(const optim::Optimizer& optimizer, const StateDict& whole) const;

 private:
  struct Stages;
  void cut(nn::Module& net);
  void check_outside(nn::Module& net, const std::vector<std::string>& blocks) const;
  void drop_elsewhere();
  std::map<std::string, int64_t> owners() const;
  void set_hooks(bool on);

  nn::Module& net_;
  ModelParallelSizes sizes_;
  DeviceMesh mesh_;
  std::shared_ptr<Engine> model_;  ///< the ranks with the same samples
  TensorParallel slices_;
  std::unique_ptr<Stages> stages_;
  std::vector<std::string> elsewhere_;
  bool whole_ = false;
};

}  // namespace tandem::distributed
