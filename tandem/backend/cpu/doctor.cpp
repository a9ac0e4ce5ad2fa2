// SPDX-License-Identifier: Apache-2.0
#include "tandem/backend/cpu/doctor.h"

#include <fmt/format.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <string_view>

#include "tandem/backend/cpu/gemm/gemm_internal.h"
#include "tandem/backend/cpu/jit/jit_internal.h"
#include "tandem/backend/cpu/registry_internal.h"
#include "tandem/base/error.h"
#include "tandem/base/parallel.h"
#include "tandem/base/processor_name.h"
#include "tandem/codegen/jit_control.h"
#include "tandem/codegen/tile_kernels.h"
#include "tandem/graph/run/kernel_tuning.h"
#include "tandem/tensor/allocator.h"

namespace tandem {
namespace {

std::string first_line(const char* path) {
  std::ifstream f(path);
  std::string s;
  std::getline(f, s);
  return s;
}

std::string features() {
  const CpuFeatures& f = cpu_features();
  std::string s;
  auto add = [&](bool on, const char* name) {
    if (on) s += s.empty() ? name : std::string(", ") + name;
  };
  add(f.avx2, "AVX2 with FMA");
  add(f.avx512, "AVX-512");
  add(f.bf16, "bf16");
  add(f.f16, "f16");
  add(f.amx, "AMX");
  if (s.empty()) s = "none that kernels use";
  return cpu_limit() == CpuLimit::native ? s : s + ", as TANDEM_ISA says";
}

std::string library() {
#ifdef TANDEM_HAVE_ONEDNN
  try {
    return detail::onednn_version();
  } catch (const Error& e) {
    return e.message();
  }
#else
  return "off: not found when this was built (scripts/setup fetches it)";
#endif
}

// Coverage of the rows on this device.
std::string coverage() {
  int total = 0, expression = 0, kernel = 0, view = 0, body = 0, reference = 0;
  for (const OpDef* op : all_ops()) {
    ++total;
    if (op->runtime->kernels[static_cast<int>(DeviceKind::cpu)])
      ++kernel;
    else if (op->family == Family::view)
      ++view;
    else if (op->family == Family::pointwise || op->family == Family::reduce ||
             op->family == Family::scan)
      ++expression;
    else if (op->body_fn)
      ++body;
    else if (op->reference_fn)
      ++reference;
  }
  return fmt::format(
      "{} rows: {} tile programs, {} own or library kernels, {} views, {} composed of other rows, "
      "{} "
      "plain loops",
      total, expression, kernel, view, body, reference);
}

// Asking does not start the compiler: it only looks up which one would be used.
std::string compiled_loops() {
  const JitStats s = jit_stats();
  std::string path = s.compiler;
  for (const char* name : {"cc", "gcc", "clang"}) {
    const char* wanted = std::getenv("TANDEM_CC");
    if (path.empty()) path = detail::find_program(wanted && *wanted ? wanted : name);
  }
  if (const char* v = std::getenv("TANDEM_JIT"); v && std::string_view(v) == "0") {
    return "off: TANDEM_JIT=0";
  }
  if (path.empty())
    return "off: no C compiler (cc, gcc, clang or TANDEM_CC); loops are interpreted";
  std::string text = fmt::format("{} by {}", s.on ? "on" : "off", path);
  if (s.requested) {
    text += fmt::format(
        ": {} requested, {} compiled, {} from disk, {} in use, {} failed, {} dropped for other "
        "bits",
        s.requested, s.compiled, s.cached, s.accepted, s.failed, s.differed);
  }
  if (!s.cache.empty()) text += ", kept in " + s.cache;
  if (!s.problem.empty()) text += "; " + s.problem;
  return text;
}

std::string tuning() {
  switch (kernel_tuning()) {
    case KernelTuning::off:
      return "off: kernels are chosen by rule (TANDEM_TUNE=1 or full measures them)";
    case KernelTuning::equal_bits:
      return "kernels of equal bits, while compiling";
    default:
      return "all kernels";
  }
}

std::string gibibytes(double bytes) { return fmt::format("{:.1f} GiB", bytes / (1 << 30)); }

}  // namespace

std::string doctor() {
  std::string s;
  auto line = [&](const char* name, const std::string& value) {
    s += fmt::format("{:<13}{}\n", std::string(name) + ":", value);
  };
  line("version", TANDEM_VERSION);
  line("processor", processor_name());
  line("vectors", features());
  line("kernels",
       fmt::format("tiles {}, matrices {}", codegen::tiles().name, detail::gemm_tables().name));
  line("tuning", tuning());
  line("oneDNN", library());
  line("fused loops", compiled_loops());
  line("threads", fmt::format("{} of {} processors", num_threads(), sysconf(_SC_NPROCESSORS_ONLN)));
  const double page = static_cast<double>(sysconf(_SC_PAGESIZE));
  line("memory", gibibytes(page * static_cast<double>(sysconf(_SC_PHYS_PAGES))));
  AllocatorStats a = allocator_stats();
  line("allocator", fmt::format("{} in use, {} cached, peak {}", gibibytes(double(a.in_use)),
                                gibibytes(double(a.cached)), gibibytes(double(a.peak))));
  std::string huge = first_line("/sys/kernel/mm/transparent_hugepage/enabled");
  line("huge pages", huge.empty() ? "not offered by this system" : huge);
  line("ops", coverage());
  return s;
}

}  // namespace tandem
