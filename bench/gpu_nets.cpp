// SPDX-License-Identifier: Apache-2.0
// Training steps of nets that bench/gpu_peer.py has too: the same sizes, optimizer and precision.
#include <fmt/core.h>

#include <chrono>
#include <functional>

#include "bench/gpu_bench.h"
#include "tandem/backend/gpu/engine_internal.h"
#include "tandem/backend/gpu/fake/fake_driver.h"
#include "tandem/backend/gpu/kernel_times.h"
#include "tandem/models/text/gpt.h"
#include "tandem/models/vision/resnet.h"
#include "tandem/tandem.h"

namespace tandem::bench {
namespace {

/// BERT-base's encoder with a classifier on the first token, as in fine-tuning.
struct Encoder : nn::Module {
  nn::Embedding tokens, places;
  nn::LayerNorm norm;
  nn::TransformerEncoder layers;
  nn::Linear head;
  Encoder(int64_t width, int64_t heads, int64_t depth)
      : tokens(30522, width),
        places(512, width),
        norm({width}),
        layers(nn::TransformerEncoderLayer(width, heads,
                                           {.dim_feedforward = 4 * width,
                                            .dropout = 0,
                                            .activation = "gelu",
                                            .batch_first = true}),
               depth),
        head(width, 2) {
    TD_REGISTER(tokens, places, norm, layers, head);
  }
  Tensor forward(const Tensor& ids) {
    Tensor x = tokens(ids) + places.weight.value().narrow(0, 0, ids.size(1));
    return head(layers(norm(x)).select(1, 0));
  }
};

/// A net with its data: the loss of a step, and what it counts.
struct Task {
  std::shared_ptr<nn::Module> net;
  std::function<Tensor(const Tensor&)> forward;
  Tensor x, y;
  double items = 0;  ///< of a step
  const char* unit = "";
};

Task make_task(const GpuNet& what, Device d) {
  Task t;
  const bool small = what.small;
  if (what.name == "gpt2") {
    const int64_t batch = what.batch ? what.batch : (small ? 2 : 16), length = small ? 16 : 1024;
    const int64_t words = small ? 64 : 50304;
    auto net = std::make_shared<models::GPT>(models::GPTOptions{.vocabulary = words,
                                                                .context = length,
                                                                .layers = small ? 2 : 12,
                                                                .heads = small ? 2 : 12,
                                                                .width = small ? 32 : 768,
                                                                .bias = true});
    t.net = net;
    t.forward = [net](const Tensor& x) { return (*net)(x).flatten(0, 1); };
    t.x = randint(0, words, {batch, length}).to(d);
    t.y = randint(0, words, {batch * length}).to(d);
    t.items = static_cast<double>(batch * length);
    t.unit = "tokens";
  } else if (what.name == "bert") {
    const int64_t batch = what.batch ? what.batch : (small ? 2 : 64), length = small ? 16 : 128;
    auto net = small ? std::make_shared<Encoder>(32, 2, 2) : std::make_shared<Encoder>(768, 12, 12);
    t.net = net;
    t.forward = [net](const Tensor& x) { return (*net)(x); };
    t.x = randint(0, 30522, {batch, length}).to(d);
    t.y = randint(0, 2, {batch}).to(d);
    t.items = static_cast<double>(batch);
    t.unit = "sequences";
  } else if (what.name == "resnet50") {
    const int64_t batch = what.batch ? what.batch : (small ? 2 : 128), side = small ? 32 : 224;
    auto net = std::make_shared<models::ResNet>(models::resnet50());
    t.net = net;
    t.forward = [net](const Tensor& x) { return (*net)(x); };
    t.x = randn({batch, 3, side, side}).to(d);
    t.y = randint(0, 1000, {batch}).to(d);
    t.items = static_cast<double>(batch);
    t.unit = "images";
  } else {
    TD_FAIL(Value, "--net {}: expected gpt2, bert or resnet50", what.name);
  }
  t.net->to(d);
  return t;
}

}  // namespace

int gpu_net(const GpuNet& what) {
  using Clock = std::chrono::steady_clock;
  manual_seed(1);
  if (what.host) {
    gpu::set_fake_options({.delays = false, .checks_waits = false, .runs_kernels = false});
  }
  const Device d = device_named(what.device);
  Task t = make_task(what, d);
  optim::AdamW opt(t.net->parameters(), {.lr = 1e-4});
  const auto body = [&](const Tensor& x, const Tensor& y) {
    Tensor loss;
    {
      const AutocastGuard cast(bfloat16, what.autocast);
      loss = cross_entropy(t.forward(x), y);
    }
    opt.zero_grad();
    loss.backward();
    opt.step();
    return loss;
  };
  auto fast = compile(body);
  const auto step = [&] { return what.compiled ? fast(t.x, t.y) : body(t.x, t.y); };
  const auto begin_all = Clock::now();
  const float first = step().item<float>();
  const double compile_seconds = std::chrono::duration<double>(Clock::now() - begin_all).count();
  for (int i = 0; i < 4; ++i) (void)step();
  synchronize(d);
  reset_step_graph_counts();
  double best = 1e30;
  Tensor loss;
  for (int run = 0; run < 3; ++run) {
    const auto begin = Clock::now();
    for (long i = 0; i < what.steps; ++i) loss = step();
    const double queued = std::chrono::duration<double>(Clock::now() - begin).count();
    synchronize(d);
    const double s = std::chrono::duration<double>(Clock::now() - begin).count();
    best = std::min(best, s / static_cast<double>(what.steps));
    if (run == 2) {
      fmt::print("{} {} {}: {:.1f} {}/s, {:.2f} ms a step ({:.2f} ms for the host to queue it)\n",
                 what.name, what.compiled ? "compiled" : "eager", what.autocast ? "bf16" : "f32",
                 t.items / best, t.unit, best * 1e3,
                 queued * 1e3 / static_cast<double>(what.steps));
    }
  }
  const gpu::PoolStats stats = gpu::engine_of(d).pool().stats();
  fmt::print("first step {:.1f} s, loss {:.4f} -> {:.4f}, {:.2f} GB at most, {} on the host\n",
             compile_seconds, first, loss.item<float>(),
             static_cast<double>(stats.max_allocated) * 1e-9, host_runs().calls);
  const StepGraphCounts graphs = step_graph_counts();
  fmt::print("{} of {} steps replayed, {:.0f} launches each{}{}\n", graphs.replays, 3 * what.steps,
             graphs.replays
                 ? static_cast<double>(graphs.launches) / static_cast<double>(graphs.replays)
                 : 0.0,
             graphs.last_problem.empty() ? "" : "; ", graphs.last_problem);
  if (!what.kernels) return 0;
  gpu::record_kernel_times(d, true);
  for (int i = 0; i < 3; ++i) (void)step();
  fmt::print("{}", gpu::kernel_times_text(gpu::take_kernel_times(d), 25));
  gpu::record_kernel_times(d, false);
  return 0;
}

}  // namespace tandem::bench
