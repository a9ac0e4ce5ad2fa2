// SPDX-License-Identifier: Apache-2.0
// From one source to the text of each driver. An OpenCL buffer is not an address, so there each
// address parameter becomes a buffer and an offset, which are added in the kernel's first lines.
#include "tandem/backend/gpu/kernel_source.h"

#include <fmt/format.h>

#include <set>
#include <string_view>

#include "tandem/backend/gpu/preludes_internal.h"
#include "tandem/codegen/emit_c.h"

namespace tandem::gpu {
namespace {

constexpr size_t kSharedAlignment = 16;
constexpr size_t kStaticShared = 48 << 10;  // bytes that CUDA lets a kernel declare

// "const td_f32* x", or "td_f32 x" for a number, with `space` before an address.
std::string declared(const Parameter& p, const char* space) {
  if (p.kind == Parameter::value) return fmt::format("td_{} {}", short_name(p.type), p.name);
  return fmt::format("{}{}td_{}* {}", space, p.kind == Parameter::in ? "const " : "",
                     short_name(p.type), p.name);
}

std::string list_of(const KernelSource& k, const char* space) {
  std::string s;
  for (const Parameter& p : k.parameters) s += (s.empty() ? "" : ", ") + declared(p, space);
  return s;
}

std::string shared_lines(const KernelSource& k, const char* space) {
  std::string s;
  for (const SharedArray& a : k.shared) {
    s += fmt::format("  {} td_{} {}[{}];\n", space, short_name(a.type), a.name, a.count);
  }
  return s;
}

size_t aligned(size_t bytes) {
  return (bytes + kSharedAlignment - 1) / kSharedAlignment * kSharedAlignment;
}

// The shared arrays as parts of the bytes at `base`.
std::string shared_parts(const KernelSource& k, const char* base) {
  std::string s;
  size_t offset = 0;
  for (const SharedArray& a : k.shared) {
    const char* type = short_name(a.type);
    s += fmt::format("  td_{}* {} = (td_{}*)({} + {});\n", type, a.name, type, base, offset);
    offset += aligned(size_of(a.type) * static_cast<size_t>(a.count));
  }
  return s;
}

std::string cuda_shared_lines(const KernelSource& k) {
  if (launch_shared_bytes(k) == 0) return shared_lines(k, "__shared__ __align__(16)");
  return "  extern __shared__ __align__(16) char td_shared_bytes[];\n" +
         shared_parts(k, "td_shared_bytes");
}

// The math prelude where a kernel wants it, and the functions of all kernels, each once.
std::string shared_functions(std::span<const KernelSource> kernels) {
  std::string s;
  std::set<std::string_view> seen;
  for (const KernelSource& k : kernels) {
    if ((k.prelude || !k.functions.empty()) && seen.insert("the prelude").second) {
      s.insert(0, codegen::emit_preamble());
    }
    for (const std::string_view f : k.functions) {
      if (seen.insert(f).second) s += f;
    }
  }
  return s;
}

}  // namespace

bool has_barrier(const KernelSource& kernel) {
  return kernel.warps || kernel.body.find("td_barrier") != std::string::npos;
}

size_t shared_bytes(const KernelSource& kernel) {
  size_t bytes = 0;
  for (const SharedArray& a : kernel.shared) {
    bytes += aligned(size_of(a.type) * static_cast<size_t>(a.count));
  }
  return bytes;
}

size_t launch_shared_bytes(const KernelSource& kernel) {
  const size_t bytes = shared_bytes(kernel);
  return bytes > kStaticShared ? bytes : 0;
}

std::string cuda_text(std::span<const KernelSource> kernels) {
  std::string s(kCTypes);
  s += kCudaPrelude;
  s += kReports;
  for (const KernelSource& k : kernels) {
    if (!k.warps) continue;
    s += kCudaWarps;
    break;
  }
  s += shared_functions(kernels);
  for (const KernelSource& k : kernels) {
    s += "extern \"C\" __global__ void ";
    if (k.threads) s += fmt::format("__launch_bounds__({}) ", k.threads);
    s += fmt::format("td_{}({}) {{\n{}{}\n}}\n", k.name, list_of(k, ""), cuda_shared_lines(k),
                     k.body);
  }
  return s;
}

std::string opencl_text(std::span<const KernelSource> kernels) {
  std::string s(kOpenclPrelude);
  s += kReports;
  s += shared_functions(kernels);
  for (const KernelSource& k : kernels) {
    std::string list, lines;
    for (const Parameter& p : k.parameters) {
      if (!list.empty()) list += ", ";
      if (p.kind == Parameter::value) {
        list += declared(p, "");
        continue;
      }
      const char* constant = p.kind == Parameter::in ? "const " : "";
      list +=
          fmt::format("__global {}char* td_base_{}, ulong td_offset_{}", constant, p.name, p.name);
      lines += fmt::format("  {} = (__global {}td_{}*)(td_base_{} + td_offset_{});\n",
                           declared(p, "__global "), constant, short_name(p.type), p.name, p.name);
    }
    s += "__kernel ";
    if (k.threads) s += fmt::format("__attribute__((reqd_work_group_size({}, 1, 1))) ", k.threads);
    s += fmt::format("void td_{}({}) {{\n{}{}{}\n}}\n", k.name, list, lines,
                     shared_lines(k, "__local"), k.body);
  }
  return s;
}

std::string host_text(const KernelSource& kernel) {
  std::string call, lines = shared_parts(kernel, "td_self->shared");
  if (kernel.warps)
    lines += "  struct td_copies td_pending;\n  td_pending.count = td_pending.groups = 0;\n";
  int slot = 1;
  for (const Parameter& p : kernel.parameters) {
    Parameter unnamed = p;
    unnamed.name.clear();
    call += fmt::format(", *({}*)td_slots[{}]", declared(unnamed, ""), slot++);
  }
  const std::string list = list_of(kernel, "");
  std::string functions;
  for (const std::string_view f : kernel.functions) functions += f;
  return fmt::format(
      "{}{}{}{}{}static void td_{}(struct td_grid* td_self{}{}) {{\n{}{}\n}}\n"
      "TDM_ENTRY int TDM_NAME(void* const* td_slots, long td_n) {{\n"
      "  td_{}((struct td_grid*)td_slots[0]{});\n  return 0;\n}}\n",
      kCTypes, kHostPrelude, kReports, kernel.warps ? kHostWarps : "", functions, kernel.name,
      list.empty() ? "" : ", ", list, lines, kernel.body, kernel.name, call);
}

}  // namespace tandem::gpu
