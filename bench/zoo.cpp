// SPDX-License-Identifier: Apache-2.0
// Tandem's side of bench/zoo. `bench_zoo --list` prints the names of all nets; `bench_zoo NET MODE
// BATCH SIZE eager|compiled` with MODE train, train_bf16 or infer makes that net, prints a JSON
// line about its first call, then answers each line of standard input, which is seconds, with the
// median milliseconds of a call over that time. The line "profile" prints ops and layers to
// standard error; with TANDEM_DUMP the compiled program follows at the end. The first answer has
// the loss in evaluation mode, by which both sides show that they do the same work. beyond_mb is
// the memory at its peak without files, what init() holds, parameters and, in training, their
// gradients and two moments.
#include <fmt/core.h>

#include <algorithm>
#include <functional>
#include <iostream>
#include <nlohmann/json.hpp>
#include <optional>

#include "bench/numbers.h"
#include "bench/resident.h"
#include "bench/zoo_nets.h"
#include "tandem/base/clock.h"
#include "tandem/models/registry.h"
#include "tandem/ops/machine_limits.h"

namespace tandem::bench {
namespace {

// Large tensors repeat their first numbers, a prime number of them: Philox takes its time in
// Python.
constexpr size_t kPeriod = 65521;
Tensor numbers(uint64_t seed, const Shape& shape, float bound = 1) {
  return uniform(seed, shape, bound, kPeriod);
}

// Weights that keep the size of activations, so that the loss says whether two nets are the same.
void set_weights(nn::Module& net) {
  uint64_t seed = 1000;
  for (auto& [name, p] : net.named_parameters()) {
    ++seed;
    if (p.dim() == 1) {
      p.assign_(name.ends_with("weight") ? 1.0 : 0.0);
      continue;
    }
    const auto fan = static_cast<double>(p.numel()) / static_cast<double>(p.size(0));
    p.assign_(numbers(seed, p.shape(), static_cast<float>(1.5 / std::sqrt(fan))));
  }
}

struct Work {
  std::string net, mode;
  int64_t batch = 8, size = 128;
  bool compiled = true;
};

struct Data {
  Tensor x, y;
};
Data images(const Work& w, int64_t channels, int64_t size, uint32_t classes) {
  return {numbers(1, {w.batch, channels, size, size}), integers(2, {w.batch}, classes)};
}

// Calls f(net, data) with the net of that name; false where there is none.
template <class F>
bool with_net(const Work& w, F&& f) {
  const int64_t n = w.batch;
  const Tensor labels = integers(2, {n}, 10);
  const auto take = [&](auto net, const Data& d) {
    f(net, d);
    return true;
  };
  if (w.net == "gpt") return take(Gpt(), {integers(1, {n, 64}, 65), integers(2, {n * 64}, 65)});
  if (w.net == "bert") return take(Bert(), {integers(1, {n, 128}, 30522), integers(2, {n}, 2)});
  if (w.net == "lstm_bi") return take(Recurrent<nn::LSTM>(), {numbers(1, {n, 50, 64}), labels});
  if (w.net == "gru_bi") return take(Recurrent<nn::GRU>(), {numbers(1, {n, 50, 64}), labels});
  if (w.net == "tables")
    return take(Tables(), {integers(1, {n * 16, 26}, 1000), integers(2, {n * 16}, 2)});
  if (w.net == "volume") return take(Volume(), {numbers(1, {n, 1, 16, 32, 32}), labels});
  if (w.net == "auto_encoder")
    return take(AutoEncoder(), {numbers(1, {n * 16, 784}), integers(2, {n * 16}, 10)});
  if (w.net == "graph")
    return take(GraphNet(integers(3, {100000}, 10000), integers(4, {100000}, 10000)),
                {numbers(1, {10000, 64}), integers(2, {10000}, 10)});
  for (const models::ModelInfo& m : models::list())
    if (m.name == w.net) {
      const bool small = m.name == "lenet";
      models::ModelOptions o;
      if (!small && !m.any_size) o.image_size = w.size;
      Data d = images(w, m.input[0], small ? m.input[1] : w.size, 1000);
      if (small) d.y = labels;
      if (m.name == "unet") d.y = integers(2, {n, w.size, w.size}, 2);
      return take(models::make(w.net, o), d);
    }
  return false;
}
const std::vector<std::string> kOwn = {"gpt",    "bert",   "lstm_bi",      "gru_bi",
                                       "tables", "volume", "auto_encoder", "graph"};

template <class Net>
Tensor loss_of(Net& net, const Tensor& x, const Tensor& y) {
  const Tensor logits = net(x);
  return cross_entropy(logits.dim() == 3 ? logits.reshape({-1, logits.size(-1)}) : logits, y);
}

double median_ms(const std::function<void()>& call, double seconds) {
  std::vector<double> all;
  const Clock::time_point begin = Clock::now();
  while (all.size() < 3 || seconds_since(begin) < seconds) {
    const Clock::time_point start = Clock::now();
    call();
    all.push_back(1e3 * seconds_since(start));
  }
  std::sort(all.begin(), all.end());
  return all[all.size() / 2];
}

void say(const nlohmann::json& j) { std::cout << j.dump() << std::endl; }

constexpr double kMb = 1 << 20;
double g_idle_mb = 0;  ///< without files, after init()

void serve(const std::function<void()>& call, nlohmann::json first, double state_mb) {
  const Clock::time_point begin = Clock::now();
  call();
  first["first_ms"] = 1e3 * seconds_since(begin);
  call();
  say(first);
  for (std::string line; std::getline(std::cin, line) && line != "end";) {
    if (line == "profile") {
      ProfilerGuard profiler;
      for (int i = 0; i < 10; ++i) call();
      for (const Profile::By by : {Profile::By::op, Profile::By::layer})
        fmt::print(stderr, "{}\n", profiler.profile().table(by, machine_limits()));
      say({{"profiled", true}});
      continue;
    }
    const double ms = median_ms(call, std::atof(line.c_str()));
    const double peak = static_cast<double>(resident_bytes("VmHWM:")) / kMb;
    const double files = static_cast<double>(resident_bytes("RssFile:")) / kMb;
    say({{"ms", ms},
         {"peak_mb", std::lround(peak)},
         {"beyond_mb", peak - files - g_idle_mb - state_mb}});
  }
}

template <class F>
void dump(F& fast, const Work& w) {
  if (w.compiled && std::getenv("TANDEM_DUMP"))
    fmt::print(stderr, "{}\n{}\n", fast.executable()->program().to_string(),
               fast.executable()->to_string());
}

template <class Net>
void run(Net& net, const Data& d, const Work& w) {
  set_weights(net);
  double parameters_mb = 0;
  for (const auto& [name, p] : net.named_parameters())
    parameters_mb += static_cast<double>(p.numel()) * sizeof(float) / kMb;
  nlohmann::json first = {{"version", TANDEM_VERSION}};
  net.eval();
  {
    NoGradGuard no_grad;
    first["loss"] = loss_of(net, d.x, d.y).template item<float>();
  }
  if (w.mode == "infer") {
    NoGradGuard no_grad;
    const auto body = [&](Tensor x) { return net(x); };
    auto fast = compile(body, {.same_bits = false});  // as predict and serve do
    serve([&] { w.compiled ? fast(d.x) : body(d.x); }, first, parameters_mb);
    return dump(fast, w);
  }
  net.train();
  optim::AdamW opt(net.parameters(), {.lr = 1e-4});
  const auto body = [&](Tensor x, Tensor y) {
    opt.zero_grad();
    Tensor loss;
    {
      std::optional<AutocastGuard> autocast;
      if (w.mode == "train_bf16") autocast.emplace(DType::bf16);
      loss = loss_of(net, x, y);
    }
    loss.backward();
    opt.step();
    return loss;
  };
  auto fast = compile(body);
  serve([&] { (w.compiled ? fast(d.x, d.y) : body(d.x, d.y)).template item<float>(); }, first,
        4 * parameters_mb);
  dump(fast, w);
}

}  // namespace
}  // namespace tandem::bench

int main(int argc, char** argv) {
  using namespace tandem::bench;
  if (argc == 2 && std::string(argv[1]) == "--list") {
    for (const tandem::models::ModelInfo& m : tandem::models::list()) fmt::print("{}\n", m.name);
    for (const std::string& name : kOwn) fmt::print("{}\n", name);
    return 0;
  }
  if (argc != 6) {
    fmt::print(stderr, "usage: bench_zoo NET train|train_bf16|infer BATCH SIZE eager|compiled\n");
    return 2;
  }
  try {
    tandem::init();
    g_idle_mb = static_cast<double>(resident_bytes("RssAnon:")) / kMb;
    const Work w{argv[1], argv[2], std::atoll(argv[3]), std::atoll(argv[4]),
                 std::string(argv[5]) == "compiled"};
    if (!with_net(w, [&](auto& net, const Data& d) { run(net, d, w); })) {
      fmt::print(stderr, "bench_zoo: no net '{}'; bench_zoo --list prints all\n", w.net);
      return 2;
    }
  } catch (const std::exception& e) {
    fmt::print(stderr, "bench_zoo: {}\n", e.what());
    return 1;
  }
  return 0;
}
