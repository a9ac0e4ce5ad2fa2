// SPDX-License-Identifier: Apache-2.0
// `tandem bench MODEL`: latency of a compiled forward pass, and what loading and memory cost.
#include <fmt/core.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <chrono>
#include <ctime>
#include <iostream>
#include <limits>
#include <nlohmann/json.hpp>

#include "cli/commands_internal.h"
#include "cli/model_internal.h"
#include "tandem/base/files/file.h"
#include "tandem/io/json.h"
#include "tandem/plan/hardware/machine.h"
#include "tandem/recipe/compiled_forward.h"

namespace tandem::cli {
namespace {

void bench_machine(bool json, bool check, int threads, const std::string& file, int& code) {
  init();
  if (threads > 0) set_num_threads(threads);
  const auto say = [](const std::string& what) {
    fmt::print(stderr, "\r\x1b[K{}", what);
    return !interrupted();
  };
  std::string path = file.empty() ? plan::machine_profile_path() : file;
  plan::MachineProfile m;
  if (check && file_exists(path)) {
    m = plan::read_machine_profile(file);
    TD_CHECK(m.threads == num_threads(), Value,
             "{} was measured with {} threads, {} are there now\nGive --threads {}, or measure "
             "again.",
             path, m.threads, num_threads(), m.threads);
  } else {
    m = plan::measure_machine(say);
    if (interrupted()) {
      code = 130;
      return;
    }
    path = plan::write_machine_profile(m, file);
  }
  fmt::print(stderr, "\r\x1b[K");
  if (json)
    fmt::print("{}\n", plan::to_json(m).dump(1));
  else
    fmt::print(
        "{}, {} threads{}\nmatmuls       {} in f32, {} in bf16\nbandwidth     {}, in the caches "
        "{}\n"
        "one small op  {}\ndisk          {}\ndecoding      {} an image and core\nloop-back     "
        "{}\n"
        "kernels       {} points\nkept in {}\n",
        m.cpu, m.threads, m.threads == 1 ? " (processor time)" : "",
        plan::show(m.f32_flops, "FLOP/s"), plan::show(m.bf16_flops, "FLOP/s"),
        plan::show(m.bandwidth, "B/s"), plan::show(m.cache_bandwidth, "B/s"),
        plan::show(m.launch_seconds, "s"), plan::show(m.disk_rate, "B/s"),
        plan::show(m.decode_seconds, "s"), plan::show(m.link_rate, "B/s"), m.points.size(), path);
  code = 0;
  if (!check) return;
  std::vector<double> errors;
  for (const plan::TimeCheck& c : plan::check_times(m, say)) {
    errors.push_back(std::abs(c.planned / c.measured - 1));
    fmt::print("\r\x1b[K{:<28} planned {:>9}  measured {:>9}  {:+.1f} %\n", c.name,
               plan::show(c.planned, "s"), plan::show(c.measured, "s"),
               100 * (c.planned / c.measured - 1));
  }
  if (errors.empty()) return;
  std::sort(errors.begin(), errors.end());
  const double p90 =
      errors[static_cast<size_t>(0.9 * static_cast<double>(errors.size() - 1) + 0.5)];
  constexpr double kMost = 0.15;
  fmt::print("{} configurations: median error {:.1f} %, p90 {:.1f} %{}\n", errors.size(),
             100 * errors[errors.size() / 2], 100 * p90,
             p90 > kMost ? fmt::format(", which is above {:.0f} %", 100 * kMost) : "");
  if (p90 > kMost) code = 3;
}

using Clock = std::chrono::steady_clock;
double ms_since(Clock::time_point t) {
  return std::chrono::duration<double, std::milli>(Clock::now() - t).count();
}

struct BenchOptions {
  recipe::ModelSource model;
  std::string shapes;
  int threads = 0, runs = 0;
  double seconds = 2;
  bool json = false, profile = false, machine = false, check = false, bf16 = false;
  bool eager = false, turns = false, program = false;
  std::string file, input, device = "cpu";
};

double quantile(const std::vector<double>& sorted, double q) {
  return sorted[static_cast<size_t>(q * static_cast<double>(sorted.size() - 1) + 0.5)];
}

// Milliseconds of runs, shortest first; none where it was interrupted before the first one.
template <class F>
std::vector<double> times_of(const BenchOptions& o, const F& run) {
  std::vector<double> times;
  const auto begin = Clock::now();
  while (!interrupted() && (o.runs > 0 ? times.size() < static_cast<size_t>(o.runs)
                                       : times.empty() || ms_since(begin) < 1000 * o.seconds)) {
    const auto t = Clock::now();
    run();
    times.push_back(ms_since(t));
  }
  std::sort(times.begin(), times.end());
  return times;
}

// For programs that take turns: a measurement for each line of standard input. The least CPU time
// (of all threads) is what other programs on the machine disturb least.
template <class F>
int bench_in_turns(const BenchOptions& o, const F& run) {
  for (std::string line; !interrupted() && std::getline(std::cin, line);) {
    std::clock_t cpu = std::numeric_limits<std::clock_t>::max();
    const std::vector<double> times = times_of(o, [&] {
      const std::clock_t before = std::clock();
      run();
      cpu = std::min(cpu, std::clock() - before);
    });
    if (times.empty()) return 130;
    const nlohmann::ordered_json j = {
        {"median_ms", quantile(times, 0.5)},
        {"min_ms", times.front()},
        {"min_cpu_ms", 1000 * static_cast<double>(cpu) / CLOCKS_PER_SEC},
        {"runs", times.size()}};
    fmt::print("{}\n", j.dump());
    std::fflush(stdout);
  }
  return 0;
}

int bench_model(const BenchOptions& o) {
  TD_CHECK(!o.model.model.empty(), Value,
           "there is no model to time\nGive a name (tandem bench resnet50), or --machine.");
  const auto start = Clock::now();
  init();
  if (o.threads > 0) set_num_threads(o.threads);
  const double idle_mb = peak_memory_mb();
  recipe::ModelSource source = o.model;
  const Device device = source.device = device_named(o.device);
  recipe::LoadedModel model = recipe::load_model(source);
  const double load_ms = ms_since(start);
  recipe::set_shapes(model, o.shapes);
  const std::vector<int64_t> shape = model.inputs[0].shape;
  NoGradGuard no_grad;
  const AutocastGuard autocast(DType::bf16, o.bf16);
  std::vector<Tensor> x =
      o.input.empty() ? recipe::random_inputs(model) : recipe::file_inputs(o.input, model);
  for (Tensor& t : x) t = t.to(device);
  recipe::CompiledForward compiled(model);
  const auto forward = [&](const std::vector<Tensor>& in) {
    const std::vector<Tensor> y = o.eager ? model.run(in) : compiled(in);
    if (!is_host(device)) synchronize(device);
  };
  forward(x);
  const double first_ms = ms_since(start) - load_ms;
  const Ref<Executable> program = o.eager ? Ref<Executable>() : compiled.executable();
  if (o.program && program) fmt::print(stderr, "{}", program->to_string());
  wait_for_jit();
  for (int i = 0; i < 3; ++i) forward(x);
  if (o.turns) return bench_in_turns(o, [&] { forward(x); });
  const std::vector<double> times = times_of(o, [&] { forward(x); });
  if (times.empty()) return 130;
  const double median = quantile(times, 0.5);
  const size_t plan_bytes = program ? program->peak_bytes() : 0;
  if (const std::string note = o.eager ? "" : compiled.note(); !note.empty())
    fmt::print(stderr, "{}\n", note);
  const nlohmann::ordered_json j = {
      {"model", o.model.model},
      {"shape", shape},
      {"threads", num_threads()},
      {"device", to_string(device)},
      {"runs", times.size()},
      {"median_ms", median},
      {"p90_ms", quantile(times, 0.9)},
      {"p99_ms", quantile(times, 0.99)},
      {"min_ms", times.front()},
      {"samples_per_second", static_cast<double>(shape.empty() ? 1 : shape[0]) * 1000 / median},
      {"load_ms", load_ms},
      {"first_run_ms", first_ms},
      {"way", o.eager ? "eager" : compiled.way()},
      {"plan_bytes", plan_bytes},
      {"idle_memory_mb", idle_mb},
      {"peak_memory_mb", peak_memory_mb()}};
  if (o.json)
    fmt::print("{}\n", j.dump(2));
  else
    fmt::print(
        "{} {}, {}, {} runs: median {:.2f} ms, p90 {:.2f}, p99 {:.2f}\n"
        "load {:.0f} ms, first run {:.0f} ms, plan {:.1f} MB, peak of the process {:.0f} MB\n",
        o.model.model, recipe::shape_text(Shape(shape)),
        is_host(device) ? fmt::format("{} threads", num_threads()) : to_string(device),
        times.size(), median, quantile(times, 0.9), quantile(times, 0.99), load_ms, first_ms,
        static_cast<double>(plan_bytes) / 1e6, peak_memory_mb());
  if (o.profile) {
    ProfilerGuard profiler;
    forward(x);
    fmt::print(stderr, "{}", profiler.profile().table());
  }
  return 0;
}

}  // namespace

void add_bench(CLI::App& app, int& code) {
  CLI::App* verb =
      app.add_subcommand("bench",
                         "Time a model's forward pass\n\n"
                         "  tandem bench resnet50\n"
                         "  tandem bench --machine\n"
                         "  tandem bench mobilenet_v2 --shapes x:8x3x224x224 --threads "
                         "2 --json");
  auto o = std::make_shared<BenchOptions>();
  verb->add_option("model", o->model.model, "A model's name, or an ONNX file");
  verb->add_flag("--machine", o->machine, "Measure this machine, for `tandem plan --gpu this`");
  verb->add_flag("--check", o->check, "With --machine: 40 steps planned and measured");
  verb->add_option("--file", o->file, "File of the machine's profile");
  verb->add_option("--shapes", o->shapes, "Inputs, as x:1x3x224x224; default: one sample");
  verb->add_option("--threads", o->threads, "Threads; 0: all cores");
  add_device_option(*verb, o->device);
  verb->add_flag("--bf16", o->bf16, "Matmuls and convolutions in bf16, as under AutocastGuard");
  verb->add_option("--seconds", o->seconds, "Time to measure for");
  verb->add_option("--runs", o->runs, "Runs to measure, instead of a time");
  verb->add_option("--input", o->input,
                   "Inputs: .npz with arrays by name, or .npy; default: random");
  verb->add_flag("--eager", o->eager, "Op by op, without compile()");
  verb->add_flag("--turns", o->turns,
                 "Load, then measure once for each line of standard input, a line of JSON each");
  verb->add_flag("--json", o->json, "The result as JSON");
  verb->add_flag("--profile", o->profile, "Where the time of one run goes, by op");
  verb->add_flag("--program", o->program, "The compiled program, instruction by instruction");
  add_model_options(*verb, o->model);
  verb->callback([&code, o] {
    if (o->machine) return bench_machine(o->json, o->check, o->threads, o->file, code);
    code = bench_model(*o);
  });
}

}  // namespace tandem::cli
