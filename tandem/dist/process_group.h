// SPDX-License-Identifier: Apache-2.0
// The group of all processes of a job, by PyTorch's names.
#pragma once

#include <memory>

#include "tandem/dist/make_engine.h"
#include "tandem/tensor/tensor.h"

namespace tandem::distributed {

/// Join the job that the environment names (find_place()); a process without one is a group of one.
/// Nothing happens where it has joined. At its end the process leaves by itself. Errors as of
/// find_place() and make_engine().
TD_API void init_process_group(const EngineOptions& options = engine_options());
/// Leave it: calls under way are made first. DataParallel objects must be gone.
TD_API void destroy_process_group();
TD_API bool is_initialized();
/// The group; joins the job where that was not done.
TD_API const std::shared_ptr<Engine>& world();
/// This rank, and how many there are; 0 of 1 before init_process_group().
TD_API int get_rank();
TD_API int get_world_size();

// ---- calls with tensors of the host, which give new values; `group`: the world. All ranks call
// them, in the same order, with equal shapes and dtypes. They have derivatives (of the sum of the
// ranks' losses), and work in compile(). The first one joins the job; in a group of one rank
// nothing is called.
/// The sum (or minimum, maximum) over the ranks.
TD_API Tensor all_reduce(const Tensor& x, ReduceOp op = ReduceOp::sum,
                         const std::shared_ptr<Engine>& group = nullptr,
                         SourceLocation loc = SourceLocation::here());
/// All ranks' values, stacked along a new first dimension.
TD_API Tensor all_gather(const Tensor& x, const std::shared_ptr<Engine>& group = nullptr,
                         SourceLocation loc = SourceLocation::here());
/// x [ranks, ...] reduced over the ranks: each gets the row of its number. Throws Shape.
TD_API Tensor reduce_scatter(const Tensor& x, ReduceOp op = ReduceOp::sum,
                             const std::shared_ptr<Engine>& group = nullptr,
                             SourceLocation loc = SourceLocation::here());
/// x [ranks, ...]: row r goes to rank r, and row r of the result comes from it. Throws Shape.
TD_API Tensor all_to_all(const Tensor& x, const std::shared_ptr<Engine>& group = nullptr,
                         SourceLocation loc = SourceLocation::here());
/// Rank `root`'s value. Throws Index.
TD_API Tensor broadcast(const Tensor& x, int root = 0,
                        const std::shared_ptr<Engine>& group = nullptr,
                        SourceLocation loc = SourceLocation::here());
/// Wait for all ranks.
TD_API void barrier();

}  // namespace tandem::distributed
