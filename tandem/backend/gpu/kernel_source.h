// SPDX-License-Identifier: Apache-2.0
// KernelSource: a kernel as text, written once for all drivers. Its parameters and shared arrays
// are data, its body is a small dialect of C; a driver's prelude and the functions below turn it
// into CUDA, OpenCL C or C for the host. docs/gpu.md describes the dialect.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "tandem/base/export.h"
#include "tandem/tensor/dtype.h"

namespace tandem::gpu {

struct Parameter {
  enum Kind : uint8_t {
    in,     ///< an address of elements that are only read
    out,    ///< an address of elements that are written, and may be read
    value,  ///< one element
  };
  Kind kind = value;
  DType type = DType::f32;  ///< in the body td_f32, td_i64 and so on
  std::string name;
};

/// An array that the threads of one block share. Its content is undefined when the block starts.
struct SharedArray {
  DType type = DType::f32;
  std::string name;
  int count = 0;
};

struct KernelSource {
  std::string name;  ///< drivers call the function td_<name>, so "mad" is not a built-in's name
  std::vector<Parameter> parameters;
  std::vector<SharedArray> shared;
  std::string body;      ///< what stands between the braces
  int threads = 0;       ///< threads of a block that the body relies on, along x; 0: any number
  bool prelude = false;  ///< it calls tdm_ and tdo_ functions (codegen::emit_preamble())
  bool warps = false;    ///< it uses words of warps: only where DeviceInfo::warp_matmul
  /// What stands before it, each text once in a module: functions, marked TDM_FN, and types.
  std::vector<std::string_view> functions;
};

/// The text of a whole module.
TD_API std::string cuda_text(std::span<const KernelSource> kernels);
TD_API std::string opencl_text(std::span<const KernelSource> kernels);
/// For the emulated grid (fake/grid_internal.h): a function TDM_NAME of the type
/// codegen::TileCode, whose first slot is the thread and whose others are the arguments' places.
TD_API std::string host_text(const KernelSource& kernel);

/// Does a thread of it wait for the others of its block, or of its warp?
TD_API bool has_barrier(const KernelSource& kernel);
/// Where the shared arrays lie, one after the other, and how many bytes they take.
TD_API size_t shared_bytes(const KernelSource& kernel);
/// The part of them that CUDA gives a kernel at its launch: all of them, above 48 KiB.
size_t launch_shared_bytes(const KernelSource& kernel);

/// Threads of a warp, neighbours in their block along x.
inline constexpr int kWarp = 32;

}  // namespace tandem::gpu
