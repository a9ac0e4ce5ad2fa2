// SPDX-License-Identifier: Apache-2.0
// Data parallel training steps of GPT's and ResNet-18's shape; bench/compare_dist starts it with
// `tandem launch`, beside PyTorch's. bench_dist_train CASE[:compiled][:zero1|:zero2|:fsdp] STEPS
// prints a line of JSON: samples a second of all ranks, the seconds of each step, the first losses.
#include <fmt/ranges.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>

#include "bench/models.h"
#include "bench/numbers.h"
#include "bench/rank_main.h"
#include "tandem/base/clock.h"

namespace tandem::bench {
namespace {

constexpr int kWarm = 5;  ///< steps whose losses are printed and whose time is not

struct Way {
  bool compiled = false;
  double unit_mb = 0;  ///< of sharded parameters: a block of the net, as the peer's
  distributed::Sharding sharding = distributed::Sharding::none;
};

template <class Net>
nlohmann::json train(Tensor x, Tensor y, int64_t samples, int steps, Way way) {
  Net net;
  set_formula_weights(net);
  // PyTorch's default: batch norms see their own rank's samples, buffers are rank 0's.
  distributed::DataParallel model(net, {.bucket_cap_mb = way.unit_mb, .sharding = way.sharding});
  // Small: where a gradient is nearly zero, the rounding of two libraries decides the sign of a
  // step.
  optim::AdamW opt(model.parameters(), {.lr = 1e-5});
  const auto body = [&](const Tensor& x, const Tensor& y) {
    opt.zero_grad();
    const Tensor logits = model(x);
    const Tensor loss = cross_entropy(logits.reshape({-1, logits.size(-1)}), y);
    loss.backward();
    opt.step();
    return loss;
  };
  auto fast = compile(body);
  const auto step = [&] { return way.compiled ? fast(x, y) : body(x, y); };
  std::vector<double> losses, seconds;
  const int ranks = distributed::get_world_size();
  for (int i = 0; i < kWarm; ++i)
    losses.push_back(distributed::all_reduce(step().detach()).template item<float>() / ranks);
  for (int i = 0; i < steps; ++i) {
    const auto begin = Clock::now();
    (void)step().template item<float>();
    seconds.push_back(seconds_since(begin));
  }
  std::vector<double> sorted = seconds;
  std::sort(sorted.begin(), sorted.end());
  const double median = sorted[sorted.size() / 2];
  return {{"ranks", ranks},
          {"threads", num_threads()},
          {"engine", distributed::world()->name()},
          {"losses", losses},
          {"ms", 1e3 * median},
          {"samples_per_s", static_cast<double>(samples * ranks) / median}};
}

// This rank's part of a batch of `each` samples a rank.
Tensor own(const Tensor& whole, int64_t each) {
  return whole.narrow(0, distributed::get_rank() * each, each).clone();
}

nlohmann::json run(std::string name, int steps) {
  using distributed::Sharding;
  const auto ends_with = [&](const char* word) {
    if (!name.ends_with(word)) return false;
    name.resize(name.size() - std::strlen(word));
    return true;
  };
  Way way;
  way.sharding = ends_with(":zero1")   ? Sharding::zero1
                 : ends_with(":zero2") ? Sharding::zero2
                 : ends_with(":fsdp")  ? Sharding::zero3
                                       : Sharding::none;
  way.compiled = ends_with(":compiled");
  const int64_t ranks = distributed::get_world_size();
  const bool sharded = way.sharding != Sharding::none;
  if (sharded) way.unit_mb = name == "gpt" ? 0.85 : 20;
  if (name == "gpt")
    return train<Gpt>(own(integers(2000, {12 * ranks, 64}, 65), 12),
                      own(integers(2001, {12 * ranks * 64}, 65), 12 * 64), 12, steps, way);
  if (name == "resnet18")
    return train<ResNet18>(own(uniform(2000, {8 * ranks, 3, 128, 128}, 1.0f), 8),
                           own(integers(2001, {8 * ranks}, 1000), 8), 8, steps, way);
  return nullptr;
}

}  // namespace
}  // namespace tandem::bench

int main(int argc, char** argv) {
  const int steps = argc > 2 ? std::max(1, std::atoi(argv[2])) : 20;
  return tandem::bench::rank_main(
      "bench_dist_train", "gpt|resnet18[:compiled][:zero1|:zero2|:fsdp] [STEPS]",
      [&] { return argc > 1 ? tandem::bench::run(argv[1], steps) : nlohmann::json(); });
}
