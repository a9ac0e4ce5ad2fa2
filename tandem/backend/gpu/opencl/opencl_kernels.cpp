// SPDX-License-Identifier: Apache-2.0
// Kernels and graphs of an OpenCL device.
#include <fmt/format.h>

#include <utility>

#include "tandem/backend/gpu/opencl/opencl_context_internal.h"

namespace tandem::gpu {

std::string OpenclContext::build_log(cl::Program program) const {
  size_t bytes = 0;
  api_.clGetProgramBuildInfo(program, device_, cl::kBuildLog, 0, nullptr, &bytes);
  std::string log(bytes, '\0');
  if (bytes) {
    api_.clGetProgramBuildInfo(program, device_, cl::kBuildLog, bytes, log.data(), nullptr);
  }
  while (!log.empty() && (log.back() == '\0' || log.back() == '\n')) log.pop_back();
  return log;
}

Status OpenclContext::build_program(const std::string& text, cl::Program& program) {
  cl::Int error = cl::kSuccess;
  const char* lines = text.c_str();
  const size_t length = text.size();
  program = api_.clCreateProgramWithSource(context_, 1, &lines, &length, &error);
  TD_GPU_TRY(opencl_status(error, "clCreateProgramWithSource"));
  error = api_.clBuildProgram(program, 1, &device_, options_.c_str(), nullptr, nullptr);
  if (error == cl::kSuccess) return {};
  Status status(Code::build, fmt::format("{}: {}", opencl_status(error, "clBuildProgram").text(),
                                         build_log(program)));
  api_.clReleaseProgram(program);
  program = nullptr;
  return status;
}

void OpenclContext::drop(const Table::Module& module) {
  for (const auto& [name, kernel] : module.kernels) api_.clReleaseKernel(kernel->handle);
  if (module.owner) api_.clReleaseProgram(module.owner);
}

Status OpenclContext::build(std::span<const KernelSource> kernels, ModuleRef& module) {
  auto made = std::make_unique<Table::Module>();
  TD_GPU_TRY(build_program(opencl_text(kernels), made->owner));
  for (const KernelSource& k : kernels) {
    cl::Int error = cl::kSuccess;
    const std::string name = "td_" + k.name;
    cl::Kernel kernel = api_.clCreateKernel(made->owner, name.c_str(), &error);
    if (error != cl::kSuccess) {
      drop(*made);
      return opencl_status(error, "clCreateKernel");
    }
    made->kernels[k.name] = std::make_shared<Table::Kernel>(Table::Kernel{k, kernel});
  }
  std::lock_guard hold(lock_);
  module = modules_.add(std::move(made));
  return {};
}

Status OpenclContext::unload(ModuleRef module) {
  std::lock_guard hold(lock_);
  std::unique_ptr<Table::Module> gone;
  TD_GPU_TRY(modules_.remove(module, gone));
  drop(*gone);
  return {};
}

Status OpenclContext::find(ModuleRef module, const std::string& name, KernelRef& kernel) {
  std::lock_guard hold(lock_);
  return modules_.find(module, name, kernel);
}

Status OpenclContext::set_arguments(const Table::Kernel& kernel, const Arguments& arguments) {
  cl::Uint slot = 0;
  auto set = [&](size_t bytes, const void* value) {
    return opencl_status(api_.clSetKernelArg(kernel.handle, slot++, bytes, value),
                         "clSetKernelArg");
  };
  for (int i = 0; i < arguments.count(); ++i) {
    if (!arguments.is_address(i)) {
      TD_GPU_TRY(set(arguments.bytes(i), arguments.data(i)));
      continue;
    }
    Addresses::Place place;
    TD_GPU_TRY(addresses_.find(arguments.address_of(i), arguments.bytes(i), "launch", place));
    const uint64_t offset = place.offset;
    TD_GPU_TRY(set(sizeof place.buffer, &place.buffer));
    TD_GPU_TRY(set(sizeof offset, &offset));
  }
  return {};
}

Status OpenclContext::launch(KernelRef kernel, Extent blocks, Extent threads,
                             const Arguments& arguments, StreamRef stream) {
  std::lock_guard hold(lock_);
  if (!kernel) return {Code::bad_argument, "launch: no such kernel"};
  const Table::Kernel* k = Table::of(kernel);
  TD_GPU_TRY(check_launch(k->source, arguments, blocks, threads, info_));
  auto run = [=, this](StreamRef s) -> Status {
    TD_GPU_TRY(set_arguments(*k, arguments));
    const size_t block[] = {threads.x, threads.y, threads.z};
    const size_t all[] = {size_t{blocks.x} * threads.x, size_t{blocks.y} * threads.y,
                          size_t{blocks.z} * threads.z};
    Status status = opencl_status(api_.clEnqueueNDRangeKernel(streams_[s], k->handle, 3, nullptr,
                                                              all, block, 0, nullptr, nullptr),
                                  "clEnqueueNDRangeKernel");
    if (status.ok()) return status;
    return {status.code(), fmt::format("kernel {}: {}", k->source.name, status.text())};
  };
  if (capture_.takes(stream)) return submit(stream, "launch", run);
  TD_GPU_TRY(check_stream(stream, "launch"));
  return run(stream);
}

// ---- graphs

Status OpenclContext::begin_capture(StreamRef stream) {
  std::lock_guard hold(lock_);
  TD_GPU_TRY(check_stream(stream, "begin_capture"));
  return capture_.begin(stream);
}

Status OpenclContext::end_capture(StreamRef stream, GraphRef& graph) {
  std::lock_guard hold(lock_);
  auto steps = std::make_unique<GraphSteps>();
  TD_GPU_TRY(capture_.end(stream, *steps));
  graph = reinterpret_cast<GraphRef>(steps.get());
  graphs_[graph] = std::move(steps);
  return {};
}

// The order of recording keeps what each step comes after, and one queue keeps that order.
Status OpenclContext::replay(GraphRef graph, StreamRef stream) {
  std::lock_guard hold(lock_);
  TD_GPU_TRY(check_stream(stream, "replay"));
  const auto it = graphs_.find(graph);
  if (it == graphs_.end()) return {Code::bad_argument, "replay: no such graph"};
  if (capture_.takes(stream)) {
    return {Code::bad_argument, "replay: a graph within a graph is not supported"};
  }
  for (const GraphStep& step : *it->second) TD_GPU_TRY(step.run(stream));
  return {};
}

Status OpenclContext::destroy_graph(GraphRef graph) {
  std::lock_guard hold(lock_);
  if (graphs_.erase(graph)) return {};
  return {Code::bad_argument, "destroy_graph: no such graph"};
}

}  // namespace tandem::gpu
