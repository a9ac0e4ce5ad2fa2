// SPDX-License-Identifier: Apache-2.0
// Memory of one GPU by category: the dry run's highest moment, after sharding and recomputing.
// Which moment that is depends on them: with all gradients on one GPU it is often the optimizer's
// step, with sharded ones the end of the forward pass.
#include <fmt/format.h>

#include <algorithm>

#include "tandem/plan/plan_internal.h"

namespace tandem::plan {
namespace {

// The activations of a moment with every block recomputed in the backward pass: what goes from
// block to block stays, and what else `kept` says; beside it either what lies outside of the blocks
// (logits and their loss) or one whole block is alive.
Quantity recomputed(const Workload& w, const Peak& p, Kept kept) {
  const auto key = [](const char* k) { return std::string("memory.activations") + k; };
  Quantity all = given(key(".whole"), "without recomputing", p.held.of(MemoryCategory::activations),
                       "B", "alive at the highest moment of the step");
  if (w.blocks <= 1 || w.boundary_bytes <= 0 || p.in_blocks <= 0)
    return quotient(key(""), "activations", "B",
                    "with every block recomputed: one whole block and the n boundaries",
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
    parts.push_back(given(key(".matmuls"), "results that are kept",
                          (kept == Kept::matmuls ? w.matmuls : w.half_matmuls).bytes, "B",
                          kept == Kept::matmuls
                              ? "of attention and all matmuls in blocks, dry run"
                              : "of attention and every second matmul of a block, dry run"));
  parts.push_back(
      most(key(".beside"), "beside them", "B", "", {std::move(outside), std::move(one)}));
  Quantity again_in_blocks =
      sum(key(".kept"), "with every block recomputed", "B", "", std::move(parts));
  return least(key(""), "activations", "B", "", {std::move(all), std::move(again_in_blocks)});
}

// Weights as fully sharded matmuls read them: the block that runs, the next, and what lies outside
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
// PyTorch's gives back what is free before it asks for more than the `room` that is left.
Quantity fragmentation_of(const Workload& w, Quantity moving, double room) {
  const double bytes = moving.value;
  double low = 0.03, share = 0.05, high = 0.10;
  std::string why = "3 to 10 % in caching allocators";
  if (w.options.framework == Framework::tandem && w.options.compiled) {
    low = share = 0;
    high = 0.01;
    why = "planned to the byte: none";
  } else if (const double alive = w.memory.peak.of(MemoryCategory::activations) +
                                  w.memory.peak.of(MemoryCategory::gradients);
             w.reserved > 0 && alive > 0) {
    share = std::max(0.0, w.reserved - w.memory.peak.total()) / alive;
    low = 0.5 * share;
    high = std::max(high, 2 * share);
    why = "PyTorch's allocator, simulated over two steps without sharding and recomputing";
    if (const double least =
            std::clamp((w.reserved_least - w.memory.peak.total()) / alive, 0.0, share);
        bytes * share > room) {
      share = std::max(least, room / bytes * (1 - 1e-9));
      low = std::min(low, share);
      why += "; on a full card it gives back free segments";
    }
  }
  Quantity fragments =
      product("memory.fragmentation", "fragmentation", "B", "",
              {std::move(moving), given("memory.fragmentation.share", "share", share, "", why)});
  fragments.low = bytes * low;
  fragments.high = bytes * high;
  return fragments;
}

// The memory of one GPU, put together part by part.
class GpuMemory {
 public:
  GpuMemory(const Workload& w, const PlanRequest& r, int n)
      : w_(w),
        r_(r),
        n_(n),
        mixed_(w.options.precision == Precision::mixed_bf16),
        recomputes_(r.recompute && w.options.training),
        between_(r.accumulate > 1),
        buckets_(replicas(r, n) > 1 && r.sharding < 2),
        streamed_(replicas(r, n) > 1 && r.sharding >= 2 &&
                  w.options.framework == Framework::pytorch),
        kept_(w.options.training && (between_ || buckets_ || streamed_ || r.keep_gradients)),
        peak_(highest()) {
    peak_.held.bytes[static_cast<size_t>(MemoryCategory::gradients)] = gradients_at(peak_);
  }

  Quantity total(double capacity) const {
    std::vector<Quantity> parts;
    parts.push_back(part(MemoryCategory::weights, "memory.weights",
                         "parameters and buffers in the dry run", 3));
    parts.push_back(part(MemoryCategory::gradients, "memory.gradients", why_of_gradients(), 2));
    parts.push_back(optimizer_state());
    add_copies(parts);
    parts.push_back(activations());
    parts.push_back(part(MemoryCategory::input, "memory.input", "the batch itself", 99));
    std::vector<Quantity> moving;
    for (const Quantity& q : parts)
      if (q.key == "memory.activations" || q.key == "memory.gradients") moving.push_back(again(q));
    parts.push_back(workspace());
    parts.push_back(context());
    for (const Quantity& q : parts) capacity -= q.value;
    parts.push_back(fragmentation_of(
        w_, sum("memory.moving", "what comes and goes", "B", "", std::move(moving)), capacity));
    return sum("memory", "memory of one GPU", "B", "", std::move(parts));
  }

 private:
  // GPUs that share what this stage of ZeRO shards.
  double shards(int stage) const { return r_.sharding >= stage ? double(replicas(r_, n_)) : 1.0; }
  bool spread() const { return r_.parallel.parts() > 1; }
  // What one GPU has of something that the GPUs of a net share.
  Quantity own(Quantity q) const {
    if (!spread()) return q;
    const std::string key = q.key, label = q.label;
    q.key += ".net";
    q.label += " of the net";
    return shared_by_parts(r_, key, label, "B", std::move(q));
  }
  // Microbatches whose activations a GPU of a pipeline holds: as many as there are stages, or all;
  // with several stages a GPU some more (Narayanan et al. 2021, 2.2).
  Quantity in_flight(Quantity q) const {
    if (!spread()) return q;
    const Parallel& p = r_.parallel;
    double held = std::min(p.pipeline, r_.accumulate);
    if (p.interleave > 1) held *= 1 + (p.pipeline - 1.0) / (double(p.pipeline) * p.interleave);
    q = own(std::move(q));
    const std::string key = q.key, label = q.label;
    q.key += ".microbatch";
    q.label += " of one microbatch";
    return product(key, label, "B", "",
                   {std::move(q), given(key + ".held", "microbatches at once", held, "",
                                        "that a GPU of the pipeline holds")});
  }
  double gradients_at(const Peak& p) const {
    return kept_ ? w_.gradient_bytes : p.held.of(MemoryCategory::gradients);
  }

  // The moment that is highest now.
  Peak highest() const {
    // The dry run of mixed precision held bf16 everywhere; what is kept is f32.
    const double wider = mixed_ ? 2 : 1;
    Peak peak{w_.memory.peak, 0};
    double most = -1;
    for (const Peak& p :
         w_.memory.peaks.empty() ? std::vector<Peak>{{w_.memory.peak, 0}} : w_.memory.peaks) {
      const double activations =
          recomputes_ ? recomputed(w_, p, r_.kept).value : p.held.of(MemoryCategory::activations);
      const double total =
          activations + p.held.of(MemoryCategory::workspace) + gradients_at(p) * wider / shards(2);
      if (total <= most) continue;
      most = total;
      peak = p;
    }
    return peak;
  }

  Quantity held(MemoryCategory c, const std::string& key, const std::string& label,
                const std::string& why) const {
    if (!mixed_ || c == MemoryCategory::input) return given(key, label, peak_.held.of(c), "B", why);
    return product(key, label, "B", "kept in f32",
                   {given(key + ".bf16", "in bf16", peak_.held.of(c), "B", why),
                    given("memory.wider", "times as wide", 2, "", "f32 for bf16")});
  }

  // A category's bytes, sharded from that stage of ZeRO on.
  Quantity part(MemoryCategory c, const std::string& key, const std::string& why, int stage) const {
    if (shards(stage) == 1) return own(held(c, key, to_string(c), why));
    return own(quotient(key, to_string(c), "B", fmt::format("ZeRO stage {} over the GPUs", stage),
                        held(c, key + ".whole", std::string("all ") + to_string(c), why),
                        replicas_of(r_, n_)));
  }

  std::string why_of_gradients() const {
    return !kept_      ? "those alive at the highest moment of the step"
           : between_  ? "all of them stay until the last batch of a step is through"
           : buckets_  ? "all of them: the buckets of the all-reduce stay"
           : streamed_ ? "all of them: their memory is that of the stream that scatters (FSDP2)"
                       : "all of them: they are zeroed and not set free, as asked";
  }

  Quantity optimizer_state() const {
    const std::string state = "what the optimizer made in the dry run";
    if (!r_.eight_bit_state) return part(MemoryCategory::optimizer, "memory.optimizer", state, 1);
    Quantity whole =
        held(MemoryCategory::optimizer, "memory.optimizer.whole", "in full width", state);
    if (shards(1) > 1)
      whole = quotient("memory.optimizer.shard", "of one GPU", "B", "ZeRO stage 1 over the GPUs",
                       std::move(whole), replicas_of(r_, n_));
    return own(
        product("memory.optimizer", "optimizer state", "B", "",
                {std::move(whole), given("memory.optimizer.eight", "8 of 32 bits", 0.2525, "",
                                         "one byte and a share of a block's scale each")}));
  }

  // Weights as the matmuls read them: the whole bf16 copy, or two gathered blocks of it and what
  // lies outside of blocks; and what autocast caches.
  void add_copies(std::vector<Quantity>& parts) const {
    const double weights = peak_.held.of(MemoryCategory::weights);
    if (shards(3) > 1) {
      parts.push_back(own(gathered(w_, weights)));
    } else if (mixed_) {
      parts.push_back(own(
          given("memory.copy", "bf16 copy of the weights", weights, "B", "what the matmuls read")));
    }
    if (recomputes_ && is_amp(w_.options.precision) && w_.options.framework == Framework::pytorch &&
        w_.block_weights > 0)
      parts.push_back(own(
          product("memory.copy", "16-bit copies of the weights", "B", "",
                  {given("memory.block_weights", "all blocks", w_.block_weights, "B", "dry run"),
                   given("memory.copy.share", "16 of 32 bits", 0.5, "",
                         "autocast keeps what it cast until its region ends")})));
  }

  Quantity activations() const {
    if (recomputes_) return in_flight(recomputed(w_, peak_, r_.kept));
    return in_flight(given(
        "memory.activations", "activations", peak_.held.of(MemoryCategory::activations), "B",
        w_.options.compiled ? "the planned arena less gradients: values and what is on its way"
                            : "values kept for the backward pass and temporaries, at the peak"));
  }

  static Quantity workspace() {
    Quantity q = given("memory.workspace", "workspace", 64e6, "B",
                       "of matmuls and convolutions: 32 to 128 MB on GPUs");
    q.low = 32e6;
    q.high = 128e6;
    return q;
  }

  Quantity context() const {
    Quantity q = given("memory.context", "context", n_ > 1 ? 0.95e9 : 0.45e9, "B",
                       n_ > 1 ? "the program's context 0.3 to 0.6 GB, collectives 0.2 to 1 GB"
                              : "the program's context with its kernels: 0.3 to 0.6 GB");
    q.low = n_ > 1 ? 0.5e9 : 0.3e9;
    q.high = n_ > 1 ? 1.6e9 : 0.6e9;
    return q;
  }

  const Workload& w_;
  const PlanRequest& r_;
  int n_;
  bool mixed_, recomputes_;
  // Between the batches of a step all gradients stay, and so do the buckets of an all-reduce, which
  // are as large; from stage 2 on a bucket goes once its part is where it belongs. PyTorch's FSDP
  // has them in memory of the stream that scatters, which nothing else may take.
  bool between_, buckets_, streamed_;
  bool kept_;  // gradients are, for any of these reasons or because it was asked for
  Peak peak_;
};

}  // namespace

Quantity memory_of(const Workload& w, const PlanRequest& r, int n, double capacity) {
  return GpuMemory(w, r, n).total(capacity);
}

}  // namespace tandem::plan
