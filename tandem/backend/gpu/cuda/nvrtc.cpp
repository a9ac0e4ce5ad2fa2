// SPDX-License-Identifier: Apache-2.0
#include "tandem/backend/gpu/cuda/nvrtc.h"

#include <fmt/format.h>

#include "tandem/backend/gpu/cuda/abi_internal.h"
#include "tandem/backend/gpu/library_internal.h"

namespace tandem::gpu {
namespace {

struct NvrtcLibrary {
  cuda::NvrtcApi api;
  LibraryReport report;
};

NvrtcLibrary open_nvrtc() {
  NvrtcLibrary l;
  const bool on = open_functions(
      "NVRTC", {"libnvrtc.so.13", "libnvrtc.so.12"},
      [&](const Library& library, std::string& missing) {
#define TD_NVRTC_RESOLVE(name, parameters) resolve_symbol(library, #name, &l.api.name, missing);
        TD_NVRTC_FUNCTIONS(TD_NVRTC_RESOLVE)
#undef TD_NVRTC_RESOLVE
        resolve_symbol(library, "nvrtcGetErrorString", &l.api.nvrtcGetErrorString, missing);
      },
      l.report);
  if (!on) return l;
  int major = 0, minor = 0;
  if (l.api.nvrtcVersion(&major, &minor) == cuda::kSuccess) {
    l.report.version = fmt::format("{}.{}", major, minor);
  }
  return l;
}

const NvrtcLibrary& nvrtc() {
  static const NvrtcLibrary* const library = new NvrtcLibrary(open_nvrtc());
  return *library;
}

// A program that is destroyed whatever happens.
class NvrtcText {
 public:
  explicit NvrtcText(const cuda::NvrtcApi& api) : api_(api) {}
  ~NvrtcText() {
    if (program) api_.nvrtcDestroyProgram(&program);
  }
  NvrtcText(const NvrtcText&) = delete;
  NvrtcText& operator=(const NvrtcText&) = delete;

  Status status(cuda::Result result, const char* call) const {
    if (result == cuda::kSuccess) return {};
    const Code code = result == cuda::kNvrtcCompilation ? Code::build : Code::driver;
    return {code, fmt::format("{}: {}", call, api_.nvrtcGetErrorString(result))};
  }
  std::string log() const {
    size_t bytes = 0;
    if (api_.nvrtcGetProgramLogSize(program, &bytes) != cuda::kSuccess || bytes <= 1) return "";
    std::string text(bytes, '\0');
    api_.nvrtcGetProgramLog(program, text.data());
    text.resize(bytes - 1);  // without the end
    return text;
  }

  cuda::NvrtcProgram program = nullptr;

 private:
  const cuda::NvrtcApi& api_;
};

}  // namespace

const LibraryReport& nvrtc_report() { return nvrtc().report; }

Status compile_cuda(std::span<const KernelSource> kernels, int arch, std::string& code,
                    std::string& log) {
  const NvrtcLibrary& l = nvrtc();
  if (!l.report.problem.empty()) {
    return {Code::unavailable, "CUDA's compiler NVRTC is off: " + l.report.problem};
  }
  const std::string text = cuda_text(kernels);
  NvrtcText made(l.api);
  TD_GPU_TRY(made.status(
      l.api.nvrtcCreateProgram(&made.program, text.c_str(), "kernels.cu", 0, nullptr, nullptr),
      "nvrtcCreateProgram"));
  const std::string target = fmt::format("--gpu-architecture=sm_{}", arch);
  const char* const options[] = {target.c_str(), "--std=c++17", "--fmad=false",
                                 "--ptxas-options=-v"};
  const Status built =
      made.status(l.api.nvrtcCompileProgram(made.program, 4, options), "nvrtcCompileProgram");
  log = made.log();
  if (!built.ok()) return {built.code(), fmt::format("{}: {}", built.text(), log)};
  size_t bytes = 0;
  TD_GPU_TRY(made.status(l.api.nvrtcGetCUBINSize(made.program, &bytes), "nvrtcGetCUBINSize"));
  code.assign(bytes, '\0');
  return made.status(l.api.nvrtcGetCUBIN(made.program, code.data()), "nvrtcGetCUBIN");
}

}  // namespace tandem::gpu
