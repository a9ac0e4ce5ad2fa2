// SPDX-License-Identifier: Apache-2.0
// Memory of one GPU by cause: the dry run's highest moment, after sharding and recomputing. Which
// moment that is depends on them: with all gradients on one GPU it is often the optimizer's step,
// with sharded ones the end of the forward pass.
#include <fmt/format.h>

#include <algorithm>

#include "tandem/plan/plan_internal.h"

namespace tandem::plan {
namespace {

// The activations of a moment with every block computed again in the backward pass: what goes from
// block to block stays, and what else `kept` says; beside it either what lies outside of the blocks
// (logits and their loss) or one whole block is alive.
Quantity recomputed(const Workload& w, const Peak& p, Kept kept) {
  const auto key = [](const char* k) { return std::string("memory.activations") + k; };
  Quantity all = given(key(".whole"), "without computing again", p.held.of(Cause::activations), "B",
                       "alive at the highest moment of the step");
  if (w.blocks <= 1 || w.boundary_bytes <= 0 || p.in_blocks <= 0)
    return quotient(key(""), "activations", "B",
                    "with every block computed again: one whole block and the n boundaries",
                    std::move(all),
                    given(key(".times"), "times less", std::max(2.0, w.blocks) / 2, "",
                          "of n blocks: about n / 2"));
  Quantity blocks = given("memory.blocks", "blocks", w.blocks, "", "of the model");
  Quantity boundary = product(key(".boundaries"), "between blocks", "B", "",
                              {given(key(".boundary"), "one boundary", w.boundary_bytes, "B",
                                     "what goes from block to block"),
                               blocks});
  Quantity one =
      quotient(key(".block"), "one whole block", "B", "",
               given(key(".inside"), "in all blocks", p.in_blocks, "B", "dry run"), again(blocks));
  Quantity outside = given(key(".outside"), "outside of blocks",
                           std::max(0.0, all.value - p.in_blocks), "B", "logits and their loss");
  std::vector<Quantity> parts;
  parts.push_back(std::move(boundary));
  if (kept != Kept::boundaries)
    parts.push_back(given(key(".products"), "results that are kept",
                          (kept == Kept::products ? w.products : w.half_products).bytes, "B",
                          kept == Kept::products
                              ? "of attention and all products in blocks, dry run"
                              : "of attention and every second product of a block, dry run"));
  parts.push_back(
      most(key(".beside"), "beside them", "B", "", {std::move(outside), std::move(one)}));
  Quantity again_in_blocks =
      sum(key(".kept"), "with every block computed again", "B", "", std::move(parts));
  return least(key(""), "activations", "B", "", {std::move(all), std::move(again_in_blocks)});
}

// Weights as fully sharded products read them: the block that runs, the next, and what lies outside
// of blocks. PyTorch's arrive in memory of a stream of its own, which stays as large as the largest
// group is, and are copied out of it.
Quantity gathered(const Workload& w, double weights) {
  Quantity block = quotient(
      "memory.gathered.block", "one block", "B", "",
      given("memory.block_weights", "all blocks", w.blocks > 1 ? w.block_weights : weights, "B",
            "dry run"),
      given("memory.gathered.count", "blocks", std::max(1.0, w.blocks), "", "of the model"));
  Quantity outside = given("memory.gathered.outside", "outside of blocks",
                           w.blocks > 1 ? std::max(0.0, weights - w.block_weights) : 0, "B",
                           "embeddings and head");
  std::vector<Quantity> arriving;
  if (w.options.framework == Framework::pytorch)
    arriving.push_back(most("memory.gathered.arriving", "where they arrive", "B",
                            "a stream's own memory, of the largest group (FSDP2)",
                            {again(block), again(outside)}));
  std::vector<Quantity> parts;
  parts.push_back(product("memory.gathered.blocks", "blocks", "B", "",
                          {std::move(block), given("memory.gathered.ahead", "at once", 2, "",
                                                   "the one that runs and the next")}));
  parts.push_back(std::move(outside));
  for (Quantity& q : arriving) parts.push_back(std::move(q));
  return sum("memory.gathered", "gathered weights", "B", "", std::move(parts));
}

// What the allocator holds beyond the tensors that are alive, as a share of those that come and go.
Quantity fragmentation_of(const Workload& w, Quantity moving) {
  const double bytes = moving.value;
  double low = 0.03, share = 0.05, high = 0.10;
  std::string why = "3 to 10 % in caching allocators";
  if (w.options.framework == Framework::tandem && w.options.compiled) {
    low = share = 0;
    high = 0.01;
    why = "planned to the byte: none";
  } else if (const double alive = w.peak.of(Cause::activations) + w.peak.of(Cause::gradients);
             w.reserved > 0 && alive > 0) {
    share = std::max(0.0, w.reserved - w.peak.total()) / alive;
    low = 0.5 * share;
    high = std::max(high, 2 * share);
    why = "PyTorch's allocator, played through two steps without sharding and recomputing";
  }
  Quantity fragments =
      product("memory.fragmentation", "fragmentation", "B", "",
              {std::move(moving), given("memory.fragmentation.share", "share", share, "", why)});
  fragments.low = bytes * low;
  fragments.high = bytes * high;
  return fragments;
}

}  // namespace

Quantity memory_of(const Workload& w, const PlanRequest& r, int n) {
  const bool mixed = w.options.precision == Precision::mixed_bf16;
  // The dry run of mixed precision held bf16 everywhere; what is kept is f32.
  const double wider = mixed ? 2 : 1;
  const auto shards = [&](int stage) { return r.sharding >= stage && n > 1 ? double(n) : 1.0; };
  const bool again_in_blocks = r.recompute && w.options.training;
  // Between the batches of a step all gradients stay, and so do the buckets of an all-reduce, which
  // are as large; from stage 2 on a bucket goes once its part is where it belongs.
  const bool between = r.accumulate > 1, buckets = n > 1 && r.sharding < 2;
  // PyTorch's FSDP has them in memory of the stream that scatters, which nothing else may take.
  const bool streamed = n > 1 && r.sharding >= 2 && w.options.framework == Framework::pytorch;
  const bool kept = w.options.training && (between || buckets || streamed || r.keep_gradients);
  const auto gradients_at = [&](const Peak& p) {
    return kept ? w.gradient_bytes : p.held.of(Cause::gradients);
  };
  // The moment that is highest now.
  Peak peak{w.peak, 0};
  double highest = -1;
  for (const Peak& p : w.peaks.empty() ? std::vector<Peak>{{w.peak, 0}} : w.peaks) {
    const double activations =
        again_in_blocks ? recomputed(w, p, r.kept).value : p.held.of(Cause::activations);
    const double total =
        activations + p.held.of(Cause::workspace) + gradients_at(p) * wider / shards(2);
    if (total <= highest) continue;
    highest = total;
    peak = p;
  }
  peak.held.bytes[static_cast<size_t>(Cause::gradients)] = gradients_at(peak);
  std::vector<Quantity> parts;
  const auto held = [&](Cause c, const std::string& key, const std::string& label,
                        const std::string& why) {
    if (!mixed || c == Cause::input) return given(key, label, peak.held.of(c), "B", why);
    return product(key, label, "B", "kept in f32",
                   {given(key + ".bf16", "in bf16", peak.held.of(c), "B", why),
                    given("memory.wider", "times as wide", wider, "", "f32 for bf16")});
  };
  const auto part = [&](Cause c, const std::string& key, const std::string& why, int stage) {
    if (shards(stage) == 1) {
      parts.push_back(held(c, key, to_string(c), why));
      return;
    }
    parts.push_back(
        quotient(key, to_string(c), "B", fmt::format("ZeRO stage {} over the GPUs", stage),
                 held(c, key + ".whole", std::string("all ") + to_string(c), why), gpus_of(n)));
  };
  part(Cause::weights, "memory.weights", "parameters and buffers in the dry run", 3);
  part(Cause::gradients, "memory.gradients",
       !kept      ? "those alive at the highest moment of the step"
       : between  ? "all of them stay until the last batch of a step is through"
       : buckets  ? "all of them: the buckets of the all-reduce stay"
       : streamed ? "all of them: their memory is that of the stream that scatters (FSDP2)"
                  : "all of them: they are zeroed and not set free, as asked",
       2);
  const std::string state = "what the optimizer made in the dry run";
  if (r.eight_bit_state) {
    Quantity whole = held(Cause::optimizer, "memory.optimizer.whole", "in full width", state);
    if (shards(1) > 1)
      whole = quotient("memory.optimizer.shard", "of one GPU", "B", "ZeRO stage 1 over the GPUs",
                       std::move(whole), gpus_of(n));
    parts.push_back(
        product("memory.optimizer", "optimizer state", "B", "",
                {std::move(whole), given("memory.optimizer.eight", "8 of 32 bits", 0.2525, "",
                                         "one byte and a share of a block's scale each")}));
  } else {
    part(Cause::optimizer, "memory.optimizer", state, 1);
  }
  // Weights as the products read them: the whole bf16 copy, or two gathered blocks of it and what
  // lies outside of blocks.
  const double weights = peak.held.of(Cause::weights);
  if (shards(3) > 1) {
    parts.push_back(gathered(w, weights));
  } else if (mixed) {
    parts.push_back(
        given("memory.copy", "bf16 copy of the weights", weights, "B", "what the products read"));
  }
  if (again_in_blocks && is_amp(w.options.precision) && w.options.framework == Framework::pytorch &&
      w.block_weights > 0)
    parts.push_back(
        product("memory.copy", "16-bit copies of the weights", "B", "",
                {given("memory.block_weights", "all blocks", w.block_weights, "B", "dry run"),
                 given("memory.copy.share", "16 of 32 bits", 0.5, "",
                       "autocast keeps what it cast until its region ends")}));
  if (again_in_blocks)
    parts.push_back(recomputed(w, peak, r.kept));
  else
    parts.push_back(given(
        "memory.activations", "activations", peak.held.of(Cause::activations), "B",
        w.options.compiled ? "the planned arena less gradients: values and what is on its way"
                           : "values kept for the backward pass and temporaries, at the peak"));
  part(Cause::input, "memory.input", "the batch itself", 99);
  std::vector<Quantity> moving;
  for (const Quantity& q : parts)
    if (q.key == "memory.activations" || q.key == "memory.gradients") moving.push_back(again(q));
  Quantity workspace = given("memory.workspace", "workspace", 64e6, "B",
                             "of products and convolutions: 32 to 128 MB on GPUs");
  workspace.low = 32e6;
  workspace.high = 128e6;
  parts.push_back(std::move(workspace));
  Quantity context = given("memory.context", "context", n > 1 ? 0.95e9 : 0.45e9, "B",
                           n > 1 ? "the program's context 0.3 to 0.6 GB, collectives 0.2 to 1 GB"
                                 : "the program's context with its kernels: 0.3 to 0.6 GB");
  context.low = n > 1 ? 0.5e9 : 0.3e9;
  context.high = n > 1 ? 1.6e9 : 0.6e9;
  parts.push_back(std::move(context));
  parts.push_back(
      fragmentation_of(w, sum("memory.moving", "what comes and goes", "B", "", std::move(moving))));
  return sum("memory", "memory of one GPU", "B", "", std::move(parts));
}

}  // namespace tandem::plan
