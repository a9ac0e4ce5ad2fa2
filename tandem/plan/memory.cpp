// SPDX-License-Identifier: Apache-2.0
// Memory of one GPU by cause: the dry run's highest moment, after sharding and recomputing. Which
// moment that is depends on them: with all gradients on one GPU it is often the optimizer's step,
// with sharded ones the end of the forward pass.
#include <fmt/format.h>

#include <algorithm>

#include "tandem/plan/plan.h"

namespace tandem::plan {
namespace {

// The activations of a moment with every block computed again in the backward pass: what goes from
// block to block stays; beside it either what lies outside of the blocks (logits and their loss) or
// one whole block is alive.
double recomputed(const Workload& w, const Peak& p) {
  const double all = p.held.of(Cause::activations);
  if (w.blocks <= 1 || w.boundary_bytes <= 0 || p.in_blocks <= 0)
    return all / (std::max(2.0, w.blocks) / 2);
  const double outside = std::max(0.0, all - p.in_blocks);
  return std::min(all, w.blocks * w.boundary_bytes + std::max(outside, p.in_blocks / w.blocks));
}

}  // namespace

Quantity memory_of(const Workload& w, const PlanRequest& r, int n) {
  const bool mixed = w.options.precision == Precision::mixed_bf16;
  // The dry run of mixed precision held bf16 everywhere; what is kept is f32.
  const double kept = mixed ? 2 : 1;
  const auto shards = [&](int stage) { return r.sharding >= stage && n > 1 ? double(n) : 1.0; };
  const bool training = w.options.training;
  // The moment that is highest now.
  Peak peak{w.peak, 0};
  double most = -1, activations = 0;
  for (const Peak& p : w.peaks.empty() ? std::vector<Peak>{{w.peak, 0}} : w.peaks) {
    const double act = r.recompute && training ? recomputed(w, p) : p.held.of(Cause::activations);
    const double total =
        act + p.held.of(Cause::workspace) + p.held.of(Cause::gradients) * kept / shards(2);
    if (total <= most) continue;
    most = total;
    peak = p;
    activations = act;
  }
  std::vector<Quantity> parts;
  const auto part = [&](Cause c, const std::string& key, const std::string& why, int stage) {
    Quantity q =
        given(key + ".whole", std::string("all ") + to_string(c),
              peak.held.of(c) * (c == Cause::input ? 1 : kept), "B",
              mixed && c != Cause::input ? why + "; twice its bf16 bytes: kept in f32" : why);
    if (shards(stage) == 1) {
      q.key = key;
      q.label = to_string(c);
      parts.push_back(std::move(q));
      return;
    }
    parts.push_back(quotient(key, to_string(c), "B", "", std::move(q),
                             given("memory.shards", "shards", n, "",
                                   fmt::format("ZeRO stage {} over the GPUs", stage))));
  };
  part(Cause::weights, "memory.weights", "parameters and buffers in the dry run", 3);
  part(Cause::gradients, "memory.gradients", "those alive at the highest moment of the step", 2);
  if (r.eight_bit_state)
    parts.push_back(product("memory.optimizer", "optimizer state", "B", "",
                            {given("memory.optimizer.whole", "in full width",
                                   peak.held.of(Cause::optimizer) * kept / shards(1), "B",
                                   "what the optimizer made in the dry run"),
                             given("memory.optimizer.eight", "8 of 32 bits", 0.2525, "",
                                   "one byte and a share of a block's scale each")}));
  else
    part(Cause::optimizer, "memory.optimizer", "what the optimizer made in the dry run", 1);
  // Weights as the products read them: the whole bf16 copy, or two gathered blocks of it and what
  // lies outside of blocks.
  const double weights = peak.held.of(Cause::weights);
  if (shards(3) > 1) {
    const double blocks = std::max(1.0, w.blocks);
    parts.push_back(sum(
        "memory.gathered", "gathered weights", "B", "",
        {product(
             "memory.gathered.blocks", "blocks", "B", "",
             {quotient("memory.gathered.block", "one block", "B", "",
                       given("memory.block_weights", "all blocks",
                             w.blocks > 1 ? w.block_weights : weights, "B", "dry run"),
                       given("memory.blocks", "blocks", blocks, "", "of the model")),
              given("memory.gathered.ahead", "at once", 2, "", "the one that runs and the next")}),
         given("memory.gathered.outside", "outside of blocks",
               w.blocks > 1 ? std::max(0.0, weights - w.block_weights) : 0, "B",
               "embeddings and head")}));
  } else if (mixed) {
    parts.push_back(
        given("memory.copy", "bf16 copy of the weights", weights, "B", "what the products read"));
  }
  if (r.recompute && training)
    parts.push_back(quotient(
        "memory.activations", "activations", "B",
        "with every block computed again: what goes from block to block stays, beside it the "
        "loss's values or one whole block",
        given("memory.activations.whole", "without it", peak.held.of(Cause::activations), "B",
              "alive at the highest moment of the step"),
        given("memory.activations.saved", "times less",
              activations > 0 ? peak.held.of(Cause::activations) / activations : 1, "",
              w.boundary_bytes > 0 ? fmt::format("{} between blocks, {} blocks",
                                                 show(w.boundary_bytes, "B"), w.blocks)
                                   : "n blocks: one whole and n boundaries of about a n-th each")));
  else {
    Quantity q = given("memory.activations", "activations", peak.held.of(Cause::activations), "B",
                       w.options.compiled
                           ? "the planned arena: values and gradients on their way"
                           : "values kept for the backward pass and temporaries, at the peak");
    parts.push_back(std::move(q));
  }
  part(Cause::input, "memory.input", "the batch itself", 99);
  double moving = 0;
  for (const Quantity& q : parts)
    if (q.key == "memory.activations" || q.key == "memory.gradients") moving += q.value;
  Quantity workspace = given("memory.workspace", "workspace", 64e6, "B",
                             "of products and convolutions: 32 to 128 MB on GPUs");
  workspace.low = 32e6;
  workspace.high = 128e6;
  parts.push_back(std::move(workspace));
  Quantity context = given("memory.context", "context", n > 1 ? 0.95e9 : 0.45e9, "B",
                           n > 1 ? "driver and kernels 0.3 to 0.6 GB, collectives 0.2 to 1 GB"
                                 : "driver and kernels: 0.3 to 0.6 GB");
  context.low = n > 1 ? 0.5e9 : 0.3e9;
  context.high = n > 1 ? 1.6e9 : 0.6e9;
  parts.push_back(std::move(context));
  const double share = w.options.compiled ? 0 : 0.05;
  Quantity fragments =
      product("memory.fragmentation", "fragmentation", "B", "",
              {given("memory.moving", "what comes and goes", moving, "B", "activations, gradients"),
               given("memory.fragmentation.share", "share", share, "",
                     w.options.compiled ? "planned to the byte: none"
                                        : "3 to 10 % in caching allocators")});
  fragments.low = w.options.compiled ? 0 : moving * 0.03;
  fragments.high = moving * (w.options.compiled ? 0.01 : 0.10);
  parts.push_back(std::move(fragments));
  return sum("memory", "memory of one GPU", "B", "", std::move(parts));
}

}  // namespace tandem::plan
