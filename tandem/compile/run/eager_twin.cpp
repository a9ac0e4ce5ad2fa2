// SPDX-License-Identifier: Apache-2.0
#include "tandem/compile/run/eager_twin.h"

#include <fmt/format.h>

#include <cmath>

#include "tandem/compile/run/segments.h"

namespace tandem::detail {
namespace {

// Of the norm: what another order of sums may change, and what a 16-bit result may besides.
double tolerance(DType d) { return is_short_float(d) ? 3e-2 : 1e-3; }

// |got - want| / |want|, where NaN equals NaN and an infinity itself; 0 if there is nothing.
double distance(const Tensor& got, const Tensor& want) {
  const std::vector<double> x = got.detach().cpu().to_vector<double>(),
                            y = want.detach().cpu().to_vector<double>();
  double off = 0, norm = 0;
  for (size_t i = 0; i < x.size(); ++i) {
    if (x[i] == y[i] || (std::isnan(x[i]) && std::isnan(y[i]))) {
      if (std::isfinite(y[i])) norm += y[i] * y[i];
      continue;
    }
    if (!std::isfinite(x[i]) || !std::isfinite(y[i])) return INFINITY;
    off += (x[i] - y[i]) * (x[i] - y[i]);
    norm += y[i] * y[i];
  }
  return off == 0 ? 0 : std::sqrt(off / std::max(norm, 1e-12));
}

struct Difference {
  std::string what;
  void see(const std::string& name, const Tensor& got, const Tensor& want) {
    if (!what.empty()) return;
    if (got.defined() != want.defined()) {
      what = fmt::format("{} is {} and op by op {}", name, got.defined() ? "there" : "undefined",
                         want.defined() ? "there" : "undefined");
    } else if (!got.defined()) {
      return;
    } else if (got.dtype() != want.dtype() || !(got.shape() == want.shape())) {
      what = fmt::format("{} is {} and op by op {}", name, spec_of(got).to_string(),
                         spec_of(want).to_string());
    } else if (const double d = distance(got, want); d > tolerance(got.dtype())) {
      what = fmt::format("{} differs from op by op by {:.2g} of its norm", name, d);
    }
  }
};

}  // namespace

EagerTwin::EagerTwin(const CallParts& args, CompiledCore::Body body) {
  const GeneratorState entry = generator_state();
  struct Restore {
    GeneratorState state;
    ~Restore() { set_generator_state(state); }
  } restore{entry};
  compiler::SegmentCache nothing_compiled(1);
  compiler::SegmentedRun run(nothing_compiled);
  std::string key;
  results_ = body(args.tensors, key);
  const Graph& g = run.outcome();
  for (const Graph::CellUse& u : g.cells)
    if (u.exit.defined() && !u.brought) cells_.emplace_back(u.cell, u.exit);
  for (const Graph::GradUse& u : g.grads)
    if (u.stored) grads_.emplace_back(u.slot, u.exit);
}

void EagerTwin::compare(std::span<const Tensor> results, const std::string& name,
                        SourceLocation loc) const {
  const NoGradGuard no_grad;
  Difference d;
  for (size_t i = 0; i < results_.size() && i < results.size(); ++i)
    d.see(fmt::format("result {}", i), results[i], results_[i]);
  for (const auto& [cell, value] : cells_)
    d.see(fmt::format("'{}'", cell->name.empty() ? "a Param or Buffer" : cell->name), cell->read(),
          value);
  for (size_t i = 0; i < grads_.size(); ++i) {
    GradSlot& slot = *grads_[i].first;
    const std::lock_guard hold(slot.lock);
    if (!slot.consumed) d.see(fmt::format("gradient {}", i), slot.grad, grads_[i].second);
  }
  if (d.what.empty()) return;
  throw with_place(
      Error(ErrorKind::Value,
            fmt::format("the compiled {} is not what its C++ does: {}\nA number or branch that it "
                        "takes from outside is frozen; pass it as an argument or hold it in a "
                        "Buffer.",
                        name, d.what)),
      "compile", loc);
}

}  // namespace tandem::detail
