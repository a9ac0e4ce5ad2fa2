// SPDX-License-Identifier: Apache-2.0
// Plans for nets whose layers have well-known names: how their layers are sliced over ranks, and
// which of them are the blocks between which a pipeline may be cut.
#pragma once

#include <string>
#include <vector>

#include "tandem/dist/tensor_parallel.h"

namespace tandem::distributed {

/// A plan for parallelize_module() by the names of layers: blocks of models::GPT,
/// nn::TransformerEncoderLayer and nn::TransformerDecoderLayer, those of BERT's files and of
/// Llama's and its relatives' (Mistral, Mixtral, Qwen2, Qwen3, Gemma). What is between blocks
/// (embeddings, norms, the output layer) stays whole on every rank, so the net gives what it gave,
/// and any loss will do. Attention is sliced where its block says how many heads it has, which must
/// divide by `ranks`: throws Value where they do not, Unsupported for a net without such layers.
TD_API ParallelPlan known_plan(nn::Module& net, int64_t ranks);

/// The paths of the net's blocks in order ("h.0", "h.1" ...): the list of layers of one type, each
/// of which takes one tensor, that has the most parameters. Throws Unsupported where there is none.
TD_API std::vector<std::string> known_blocks(nn::Module& net);

}  // namespace tandem::distributed
