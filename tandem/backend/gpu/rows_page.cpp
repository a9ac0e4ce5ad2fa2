// SPDX-License-Identifier: Apache-2.0
#include "tandem/backend/gpu/rows_page.h"

#include <fmt/format.h>

#include "tandem/tensor/device_memory.h"

namespace tandem::gpu {
namespace {

// All three drivers have the same kernels; the fake one is always there.
Device any_device() { return device_named("fake"); }

const char* name_of_family(Family f) {
  static constexpr const char* kNames[] = {"pointwise", "reduce", "scan",   "view",   "contraction",
                                           "composite", "index",  "create", "control"};
  return kNames[static_cast<size_t>(f)];
}

bool has_family_kernel(Family f) {
  return f == Family::pointwise || f == Family::reduce || f == Family::scan;
}

struct Lines {
  int native = 0;
  std::string host;
};

}  // namespace

RowSupport support_of(const OpDef& op) {
  if (op.family == Family::control || op.has(kSetsDevice)) return RowSupport::none;
  if (op.family == Family::view) return RowSupport::view;
  if (has_family_kernel(op.family) || has_own_kernel(op, any_device())) return RowSupport::kernel;
  return op.body_fn ? RowSupport::body : RowSupport::host;
}

std::string rows_page() {
  constexpr int kFamilies = static_cast<int>(Family::control);
  Lines of[kFamilies];
  int native = 0, all = 0;
  for (const OpDef* op : all_ops()) {
    const RowSupport s = support_of(*op);
    if (s == RowSupport::none) continue;
    Lines& l = of[static_cast<int>(op->family)];
    ++all;
    if (s == RowSupport::host) {
      l.host += fmt::format("{}`{}`", l.host.empty() ? "" : " ", op->name);
    } else {
      ++l.native;
      ++native;
    }
  }
  std::string s = fmt::format("{} of {} rows run on the device ({:.0f} %).\n\n", native, all,
                              100.0 * native / all);
  s += "| family | native | the host runs, between copies |\n|---|---|---|\n";
  for (int f = 0; f < kFamilies; ++f) {
    s += fmt::format("| {} | {} | {} |\n", name_of_family(static_cast<Family>(f)), of[f].native,
                     of[f].host.empty() ? "none" : of[f].host);
  }
  return s;
}

}  // namespace tandem::gpu
