// SPDX-License-Identifier: Apache-2.0
// Kernels and graphs of the fake device.
#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "tandem/backend/gpu/fake/fake_context_internal.h"
#include "tandem/base/hash/hash.h"
#include "tandem/codegen/jit.h"

namespace tandem::gpu {
namespace {

// The name that a text has in a shared object.
std::string symbol_of(const std::string& text) {
  return fmt::format("td_grid_{:016x}_{}", hash_string(text), text.size());
}

// Steps in an order at random that keeps what each comes after.
std::string run_steps(const GraphSteps& steps, uint64_t seed) {
  Random random(seed);
  std::vector<size_t> left(steps.size());
  for (size_t i = 0; i < left.size(); ++i) left[i] = i;
  std::vector<char> done(steps.size());
  while (!left.empty()) {
    random.shuffle(left);
    const auto able = std::find_if(left.begin(), left.end(), [&](size_t i) {
      return std::all_of(steps[i].after.begin(), steps[i].after.end(),
                         [&](int a) { return done[static_cast<size_t>(a)]; });
    });
    const Status status = steps[*able].run(nullptr);
    if (!status.ok()) return status.text();
    done[*able] = 1;
    left.erase(able);
  }
  return "";
}

}  // namespace

Status FakeDevice::build(std::span<const KernelSource> kernels, ModuleRef& module) {
  {
    std::lock_guard hold(lock_);
    TD_GPU_TRY(enter(Operation::build));
  }
  auto made = std::make_unique<Table::Module>();
  for (const KernelSource& k : kernels) {
    codegen::JitSource source;
    source.text = host_text(k);
    source.name = symbol_of(source.text);
    const std::string problem = codegen::compile_now(source);
    if (!problem.empty()) {
      return {Code::build, fmt::format("kernel {} does not compile: {}", k.name, problem)};
    }
    made->kernels[k.name] = std::make_shared<Table::Kernel>(Table::Kernel{k, source.code});
  }
  std::lock_guard hold(lock_);
  module = modules_.add(std::move(made));
  return {};
}

Status FakeDevice::unload(ModuleRef module) {
  std::lock_guard hold(lock_);
  std::unique_ptr<Table::Module> gone;
  return modules_.remove(module, gone);
}

Status FakeDevice::find(ModuleRef module, const std::string& name, KernelRef& kernel) {
  std::lock_guard hold(lock_);
  TD_GPU_TRY(alive());
  return modules_.find(module, name, kernel);
}

Status FakeDevice::launch(KernelRef kernel, Extent blocks, Extent threads,
                          const Arguments& arguments, StreamRef stream) {
  std::lock_guard hold(lock_);
  TD_GPU_TRY(enter(Operation::launch));
  const std::shared_ptr<const Table::Kernel> k = modules_.keep(kernel);
  if (!k) return {Code::bad_argument, "launch: no such kernel"};
  TD_GPU_TRY(check_launch(k->source, arguments, blocks, threads, info_));
  if (!options_.runs_kernels) return {};
  const std::string name = "kernel " + k->source.name;
  std::vector<Access> accesses;
  for (int i = 0; i < arguments.count(); ++i) {
    if (!arguments.is_address(i) || arguments.bytes(i) == 0) continue;
    const Parameter& p = k->source.parameters[static_cast<size_t>(i)];
    const Address at = arguments.address_of(i);
    TD_GPU_TRY(memory_.check_range(at, arguments.bytes(i), name + ", parameter " + p.name));
    accesses.push_back({at, at + arguments.bytes(i), p.kind == Parameter::out});
  }
  const uint64_t seed = ++seed_ * 0x9e3779b97f4a7c15u;
  return submit(stream, "launch", name, std::move(accesses), [=, this]() -> std::string {
    Arguments copy = arguments;
    const KernelSource& s = k->source;
    GridLaunch grid{k->handle, has_barrier(s), s.warps, shared_bytes(s), blocks, threads, {}};
    grid.slots.assign(static_cast<size_t>(copy.count()) + 1, nullptr);
    for (int i = 0; i < copy.count(); ++i) {
      grid.slots[static_cast<size_t>(i) + 1] = const_cast<void*>(copy.data(i));
    }
    std::string problem = run_grid(grid, seed);
    if (problem.empty()) problem = memory_.check_guards();
    return problem.empty() ? "" : name + ": " + problem;
  });
}

// ---- graphs

Status FakeDevice::begin_capture(StreamRef stream) {
  std::lock_guard hold(lock_);
  TD_GPU_TRY(enter(Operation::capture));
  int number = 0;
  TD_GPU_TRY(stream_number(stream, "begin_capture", number));
  TD_GPU_TRY(capture_.begin(stream));
  captured_.clear();
  return {};
}

// Within a graph every step is a stream of its own, which waits for the steps that it comes after.
Status FakeDevice::check_order(const GraphSteps& steps) const {
  if (!options_.checks_waits) return {};
  HappensBefore checker;
  for (size_t i = 0; i < steps.size(); ++i) {
    const int step = checker.add_stream(fmt::format("step {} of the graph", i));
    for (const int a : steps[i].after) checker.wait(step, checker.record(a));
    std::string report = checker.operation(step, steps[i].name, captured_[i]);
    if (!report.empty()) return {Code::missing_wait, std::move(report)};
  }
  return {};
}

Status FakeDevice::end_capture(StreamRef stream, GraphRef& graph) {
  std::lock_guard hold(lock_);
  auto made = std::make_shared<Graph>();
  TD_GPU_TRY(capture_.end(stream, made->steps));
  TD_GPU_TRY(enter(Operation::capture));
  TD_GPU_TRY(check_order(made->steps));
  for (const std::vector<Access>& of_step : captured_) {
    made->accesses.insert(made->accesses.end(), of_step.begin(), of_step.end());
  }
  graph = reinterpret_cast<GraphRef>(++made_);
  graphs_[graph] = std::move(made);
  return {};
}

Status FakeDevice::replay(GraphRef graph, StreamRef stream) {
  std::lock_guard hold(lock_);
  TD_GPU_TRY(enter(Operation::replay));
  const auto it = graphs_.find(graph);
  if (it == graphs_.end()) return {Code::bad_argument, "replay: no such graph"};
  const std::shared_ptr<const Graph> g = it->second;
  const uint64_t seed = ++seed_;
  return submit(stream, "replay", fmt::format("a graph of {} steps", g->steps.size()), g->accesses,
                [g, seed] { return run_steps(g->steps, seed); });
}

Status FakeDevice::destroy_graph(GraphRef graph) {
  std::lock_guard hold(lock_);
  if (graphs_.erase(graph)) return {};
  return {Code::bad_argument, "destroy_graph: no such graph"};
}

}  // namespace tandem::gpu
