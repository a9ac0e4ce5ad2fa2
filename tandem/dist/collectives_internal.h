// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <memory>
#include <string>
#include <vector>

#include "tandem/dist/engine.h"
#include "tandem/tensor/tensor.h"

namespace tandem::distributed::detail {

/// How many passes have been reduced, in eager and by programs, whose calls have it by its number.
struct PassCount {
  std::atomic<int64_t> made{0};
  /// One more: the step of which messages of this rank speak from here on.
  void next(Engine& engine) { engine.set_step(++made); }
};

/// Of a call that is a row: CallOptions' label, order and divisor (of the host's values), and
/// what it counts as the first call of a pass.
struct RowCall {
  std::string label = "";
  bool ordered = false;
  double divisor = 1;
  std::shared_ptr<PassCount> opens = nullptr;
};

/// all_reduce() with those; x itself where the group is one rank or none.
Tensor all_reduce_labelled(const Tensor& x, ReduceOp op, const std::shared_ptr<Engine>& group,
                           const RowCall& how, SourceLocation loc = SourceLocation::here());

/// The sum of the ranks' x in two calls, for programs: what is recorded between them runs while the
/// ranks exchange x.
Tensor start_all_reduce(const Tensor& x, const std::shared_ptr<Engine>& group, const RowCall& how,
                        SourceLocation loc = SourceLocation::here());
Tensor wait_all_reduce(const Tensor& started, const std::shared_ptr<Engine>& group,
                       SourceLocation loc = SourceLocation::here());

/// Values of which each rank has parts, and sums of which each rank wants one, both flat arrays of
/// `ranks * part` elements and in two calls, for programs. A gather's parts lie at places of this
/// rank's `part` elements, in order, zeros between them; it starts ahead of its place.
struct FlatParts {
  std::vector<Tensor> parts;  ///< flat; at least one, maybe of no elements
  std::vector<int64_t> places;
  int64_t part = 0;
};
Tensor gather_flat(const FlatParts& own, const std::shared_ptr<Engine>& group,
                   const std::string& label);
/// Both values are given to the wait, which ends the life of `whole`.
Tensor start_scatter_sum(const Tensor& whole, const std::shared_ptr<Engine>& group,
                         const RowCall& how);
Tensor wait_scatter_sum(const Tensor& started, const Tensor& whole,
                        const std::shared_ptr<Engine>& group);

/// all_to_all() whose gradient is multiplied by `scale`.
Tensor all_to_all_scaled(const Tensor& x, double scale, const std::shared_ptr<Engine>& group,
                         SourceLocation loc = SourceLocation::here());

/// Between values that all ranks have and parts of them, where all ranks compute one loss: copy
/// gives x, and adds the ranks' gradients; reduce adds the ranks' x, and copies the gradient;
/// gather stacks the ranks' x, of whose gradient each takes its row; scatter is the reverse.
enum class Crossing : uint8_t { copy, reduce, gather, scatter };
Tensor cross(Crossing how, const Tensor& x, const std::shared_ptr<Engine>& group,
             SourceLocation loc = SourceLocation::here());

/// The norm, in f64, of what all ranks have, from the norm of what this one has.
Tensor norm_over_ranks(Tensor own, double norm_type, const std::shared_ptr<Engine>& group);

}  // namespace tandem::distributed::detail
