// SPDX-License-Identifier: Apache-2.0
// The group of all processes of a job, by PyTorch's names.
#pragma once

#include <memory>

#include "tandem/dist/tcp_engine.h"
#include "tandem/tensor/tensor.h"

namespace tandem::distributed {

/// Join the job that the environment names (find_place()); a process without one is a group of one.
/// Nothing happens where it has joined. At its end the process leaves by itself. Errors as of
/// find_place() and tcp_engine().
TD_API void init_process_group(const EngineOptions& options = engine_options());
/// Leave it: calls under way are made first. DataParallel objects must be gone.
TD_API void destroy_process_group();
TD_API bool is_initialized();
/// The group; joins the job where that was not done.
TD_API const std::shared_ptr<Engine>& world();
/// This rank, and how many there are; 0 of 1 before init_process_group().
TD_API int get_rank();
TD_API int get_world_size();

// ---- calls with tensors of the host, which give new values. All ranks call them; the shapes and
// dtypes must be equal.
/// The sum (or minimum, maximum) over the ranks.
TD_API Tensor all_reduce(const Tensor& x, ReduceOp op = ReduceOp::sum);
/// All ranks' values, stacked along a new first dimension.
TD_API Tensor all_gather(const Tensor& x);
/// Rank `root`'s value.
TD_API Tensor broadcast(const Tensor& x, int root = 0);
/// Wait for all ranks.
TD_API void barrier();

}  // namespace tandem::distributed
