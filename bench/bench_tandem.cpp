// SPDX-License-Identifier: Apache-2.0
// Tandem's side of bench/compare: `bench_tandem CASE [seconds]` prints one JSON line. Weights, data
// and labels come from the formula in the head of peers_torch.py, so losses can be compared.
#include <fmt/core.h>
#include <sys/resource.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <fstream>
#include <functional>
#include <nlohmann/json.hpp>
#include <optional>

#include "bench/models.h"
#include "bench/numbers.h"
#include "bench/resident.h"
#include "tandem/base/parallel.h"
#include "tandem/ops/machine_limits.h"
#include "tandem/tensor/allocator.h"

namespace tandem::bench {
namespace {

using Clock = std::chrono::steady_clock;

double seconds_of(const std::function<void()>& f) {
  Clock::time_point t = Clock::now();
  f();
  return std::chrono::duration<double>(Clock::now() - t).count();
}

double cpu_seconds() {
  timespec t{};
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
  return static_cast<double>(t.tv_sec) + 1e-9 * static_cast<double>(t.tv_nsec);
}

// Median times of f in seconds over about `budget` seconds: on the clock, and of all threads
// together, which says more on a busy machine.
struct Times {
  double wall = 0, cpu = 0, faults = 0;  ///< medians of a call; page faults on average
};
double page_faults() {
  rusage use{};
  getrusage(RUSAGE_SELF, &use);
  return static_cast<double>(use.ru_minflt);
}
Times median_time(const std::function<void()>& f, double budget) {
  for (int i = 0; i < 3; ++i) f();
  std::vector<double> wall, cpu;
  double total = 0;
  const double faults = page_faults();
  while (total < budget || wall.size() < 5) {
    double before = cpu_seconds();
    wall.push_back(seconds_of(f));
    cpu.push_back(cpu_seconds() - before);
    total += wall.back();
  }
  const double each = (page_faults() - faults) / static_cast<double>(wall.size());
  std::sort(wall.begin(), wall.end());
  std::sort(cpu.begin(), cpu.end());
  return {wall[wall.size() / 2], cpu[cpu.size() / 2], each};
}

// "VmHWM:" counts from here on.
bool reset_resident_peak() {
  std::ofstream file("/proc/self/clear_refs");
  file << "5" << std::flush;
  return file.good();
}
int g_losses = 3;          // steps whose losses are reported
int64_t g_idle_bytes = 0;  // resident after init(), before any model

// Memory that a call of `e` takes, measured with an Executable that has not run yet.
void measure_memory(nlohmann::json& j, const Executable& e, const std::vector<Tensor>& inputs) {
  Ref<Executable> fresh = make_ref<Executable>(compiler::Program(e.program()));
  trim_allocator();
  const int64_t held = allocator_stats().in_use, resident = resident_bytes("VmRSS:");
  reset_allocator_peak();
  const bool reset = reset_resident_peak();
  NoGradGuard no_grad;
  fresh->run(inputs, {});
  j["measured_bytes"] = allocator_stats().peak - held;
  if (reset) j["resident_bytes"] = resident_bytes("VmHWM:") - resident;
}

nlohmann::json report(const std::string& name, bool compiled = false) {
  rusage use{};
  getrusage(RUSAGE_SELF, &use);
  return {{"case", name},
          {"variant", compiled ? "compiled" : "eager"},
          {"threads", num_threads()},
          {"rss_mb", use.ru_maxrss / 1024},
          {"idle_mb", g_idle_bytes / 1048576},
          {"version", TANDEM_VERSION}};
}

// What comparing a trace with a new one adds to a call: of a fresh compiled function, which does so
// at its calls 2, 4 and 8, the least over its other calls. Seconds.
template <class F>
double look_seconds(F& fresh, const Tensor& x, const Tensor& y) {
  double with = INFINITY, without = INFINITY;
  for (int call = 1; call <= 8; ++call) {
    const int64_t looks = fresh.stats().looks;
    const double t = seconds_of([&] { fresh(x, y).template item<float>(); });
    double& least = fresh.stats().looks > looks ? with : without;
    if (call > 1) least = std::min(least, t);
  }
  return with - without;
}

template <class Net>
nlohmann::json training(const std::string& name, Tensor x, Tensor y, double budget, bool compiled) {
  // "conv_bf16": the forward pass under autocast, weights and optimizer in f32.
  const bool low = name.size() > 5 && name.compare(name.size() - 5, 5, "_bf16") == 0;
  Net net;
  set_formula_weights(net);
  optim::AdamW opt(net.parameters(), {.lr = 1e-3});
  double last = 0;
  auto body = [&](Tensor x, Tensor y) {
    opt.zero_grad();
    Tensor loss;
    {
      std::optional<AutocastGuard> autocast;
      if (low) autocast.emplace(DType::bf16);
      Tensor logits = net.forward(x);
      loss = cross_entropy(logits.reshape({-1, logits.size(-1)}), y);
    }
    loss.backward();
    opt.step();
    return loss;
  };
  auto fast = compile(body);
  auto step = [&] { last = (compiled ? fast(x, y) : body(x, y)).template item<float>(); };
  std::vector<double> losses;
  double first = 0;
  for (int i = 0; i < g_losses; ++i) {
    double t = seconds_of(step);
    if (i == 0) first = t;
    losses.push_back(last);
  }
  const Times times = median_time(step, budget);
  const double ms = 1e3 * times.wall;
  if (std::getenv("TANDEM_PROFILE")) {
    ProfilerGuard profiler;
    const int steps = std::clamp(static_cast<int>(budget / times.wall / 4), 10, 1000);
    for (int i = 0; i < steps; ++i) step();
    const MachineLimits limits = machine_limits();
    fmt::print(stderr, "limits: {:.0f} GFLOP/s, {:.1f} GB/s\n{}\n{}", limits.gflops, limits.gbs,
               profiler.profile().table(Profile::By::op, limits),
               profiler.profile().table(Profile::By::layer, limits));
  }
  nlohmann::json j = report(name, compiled);
  if (compiled) {
    j["peak_bytes"] = fast.executable()->peak_bytes();
    j["lower_bound"] = fast.executable()->lower_bound();
    j["steps"] = fast.executable()->num_steps();
    measure_memory(j, *fast.executable(), {x, y});
    if (std::getenv("TANDEM_DUMP")) {
      fmt::print(stderr, "{}\n{}\n{}\n", fast.executable()->program().to_string(),
                 fast.executable()->to_string(), fast.executable()->peak_table());
    }
  }
  j["ms"] = ms;
  j["cpu_ms"] = 1e3 * times.cpu;
  j["faults_a_step"] = std::round(times.faults * 10) / 10;
  j["rounds"] = {ms};
  j["losses"] = losses;
  j["first_s"] = first;
  if (compiled) {
    auto fresh = compile(body);
    j["look_ms"] = 1e3 * look_seconds(fresh, x, y);
  }
  return j;
}

nlohmann::json tiny(const std::string& name, bool grad, double budget) {
  constexpr int kOps = 1000;
  Tensor x = uniform(2000, {8}, 1.0f), y = uniform(2001, {8}, 1.0f);
  std::function<void()> f;
  if (grad) {
    x.requires_grad_();
    f = [&] {
      Tensor z = x;
      for (int i = 0; i < kOps; ++i) z = z + y;
      z.sum().backward();
      x.zero_grad();
    };
  } else {
    f = [&] {
      Tensor z = x;
      for (int i = 0; i < kOps; ++i) z = z + y;
    };
  }
  double us = 1e6 * median_time(f, budget).wall / kOps;
  nlohmann::json j = report(name);
  j["us_per_op"] = us;
  j["rounds"] = {us};
  return j;
}

nlohmann::json run(std::string name, double budget) {
  // "mlp" runs op by op, "mlp:compiled" as one graph.
  const size_t colon = name.find(':');
  const bool compiled = colon != std::string::npos && name.substr(colon + 1) == "compiled";
  if (compiled) name = name.substr(0, colon);
  if (name == "add8_nograd") return tiny(name, false, budget);
  if (name == "add8_fwd_bwd") return tiny(name, true, budget);
  auto x = [](const Shape& s) { return uniform(2000, s, 1.0f); };
  auto y = [](const Shape& s, uint32_t n) { return integers(2001, s, n); };
  if (name == "mlp") return training<Mlp>(name, x({64, 784}), y({64}, 10), budget, compiled);
  if (name == "conv" || name == "conv_bf16")
    return training<Conv>(name, x({64, 1, 28, 28}), y({64}, 10), budget, compiled);
  if (name == "bert" || name == "bert_bf16")
    return training<Bert>(name, integers(2000, {8, 128}, 30522), y({8}, 2), budget, compiled);
  if (name == "gpt" || name == "gpt_bf16")
    return training<Gpt>(name, integers(2000, {12, 64}, 65), y({12 * 64}, 65), budget, compiled);
  if (name == "lstm") return training<Lstm>(name, x({32, 50, 64}), y({32}, 10), budget, compiled);
  if (name == "resnet18" || name == "resnet18_bf16")
    return training<ResNet18>(name, x({8, 3, 128, 128}), y({8}, 1000), budget, compiled);
  return nullptr;
}

}  // namespace
}  // namespace tandem::bench

int main(int argc, char** argv) {
  const char* kCases =
      "add8_nograd add8_fwd_bwd mlp conv gpt lstm resnet18 bert conv_bf16 gpt_bf16 resnet18_bf16 "
      "bert_bf16";
  if (argc < 2 || std::strcmp(argv[1], "--list") == 0) {
    fmt::print("{}\n", kCases);
    return argc < 2 ? 2 : 0;
  }
  try {
    tandem::init();
    tandem::bench::g_idle_bytes = tandem::bench::resident_bytes("VmRSS:");
    double budget = argc > 2 ? std::atof(argv[2]) : 1.0;
    if (argc > 3) tandem::bench::g_losses = std::max(std::atoi(argv[3]), 1);
    nlohmann::json j = tandem::bench::run(argv[1], budget);
    if (j.is_null()) {
      fmt::print(stderr, "bench_tandem: no case '{}'; there are: {}\n", argv[1], kCases);
      return 2;
    }
    fmt::print("{}\n", j.dump());
  } catch (const std::exception& e) {
    fmt::print(stderr, "bench_tandem: {}\n", e.what());
    return 1;
  }
  return 0;
}
