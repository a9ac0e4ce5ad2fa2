// SPDX-License-Identifier: Apache-2.0
// checkpoint: keep only the inputs and recompute in the backward pass. The second run sees the cell
// values and random draws of the first and writes nothing.
#include "tandem/grad/engine_internal.h"
#include "tandem/grad/transforms.h"
#include "tandem/graph/rng.h"
#include "tandem/graph/trace.h"
#include "tandem/ops/control.h"

namespace tandem {
namespace {

using CellLog = std::vector<std::pair<Ref<RefCounted>, Tensor>>;

// Restores the context of the first run: cell values, generator, no assignments.
class Replay {
 public:
  Replay(const CellLog& cells, GeneratorState rng)
      : slow_(context().slow), rng_(generator_state()) {
    for (const auto& [cell, value] : cells)
      map_.emplace_back(static_cast<const Cell*>(cell.get()), value);
    Context& c = context();
    old_ = std::exchange(c.redirect, &map_);
    c.slow |= kRedirect | kRecompute;
    set_generator_state(rng);
  }
  ~Replay() {
    Context& c = context();
    c.redirect = old_;
    c.slow = (c.slow & ~uint32_t{kRedirect | kRecompute}) | (slow_ & (kRedirect | kRecompute));
    set_generator_state(rng_);
  }
  Replay(const Replay&) = delete;
  Replay& operator=(const Replay&) = delete;

 private:
  std::vector<std::pair<const Cell*, Tensor>> map_;
  std::vector<std::pair<const Cell*, Tensor>>* old_ = nullptr;
  uint32_t slow_;
  GeneratorState rng_;
};

class CellLogGuard {
 public:
  explicit CellLogGuard(CellLog& log) : old_(std::exchange(context().cell_log, &log)) {}
  ~CellLogGuard() { context().cell_log = old_; }
  CellLogGuard(const CellLogGuard&) = delete;
  CellLogGuard& operator=(const CellLogGuard&) = delete;

 private:
  CellLog* old_;
};

using ListFn = std::function<Tensors(std::span<const Tensor>)>;

struct Recompute : VjpClosure {
  ListFn f;
  CellLog cells;
  GeneratorState rng;
  size_t n_args = 0;

  // x: the arguments, then the cells that the first run read (so that they get gradients).
  Tensors backward(std::span<const Tensor> x, std::span<const Tensor>,
                   std::span<const Tensor> g) override {
    bool again = is_grad_enabled();
    Tensors variables;
    for (const Tensor& t : x) variables.push_back(variable(t, again));
    CellLog now;
    for (size_t i = 0; i < cells.size(); ++i)
      now.emplace_back(cells[i].first, variables[n_args + i]);
    Tensors value;
    {
      Replay replay(now, rng);
      EnableGradGuard on;
      value = f(std::span<const Tensor>(variables).first(n_args));
    }
    Tensors roots, grads;
    for (size_t i = 0; i < value.size(); ++i)
      if (g[i].defined() && value[i].requires_grad()) {
        roots.push_back(value[i]);
        grads.push_back(g[i]);
      }
    Tensors wanted;
    std::vector<size_t> at;
    for (size_t i = 0; i < variables.size(); ++i)
      if (variables[i].requires_grad()) {
        wanted.push_back(variables[i]);
        at.push_back(i);
      }
    Tensors out(x.size());
    if (roots.empty()) return out;
    Tensors got = run_backward({roots, grads, wanted, false, again, again, SourceLocation{}});
    for (size_t i = 0; i < at.size(); ++i) out[at[i]] = got[i];
    return out;
  }

  static Tensor variable(const Tensor& t, bool again) {
    if (!is_floating(t.dtype())) return t;
    if (again && t.requires_grad()) return identity(t);
    return detached_alias(t).requires_grad_();
  }
};

}  // namespace

namespace detail {

Tensors checkpoint_call(std::function<Tensors(std::span<const Tensor>)> f,
                        std::span<const Tensor> x, SourceLocation loc) {
  if (is_tracing() || !is_grad_enabled())
    return f(x);  // a compiled step plans its own recomputation
  Ref<Recompute> r = make_ref<Recompute>();
  r->rng = generator_state();
  r->n_args = x.size();
  CellLog log;
  Tensors y;
  {
    NoGradGuard no_grad;
    CellLogGuard record(log);
    y = f(x);
  }
  Tensors inputs(x.begin(), x.end());
  for (auto& [cell, value] : log) {
    bool known = false;
    for (const auto& seen : r->cells) known |= seen.first == cell;
    if (known) continue;  // the first value read counts
    r->cells.emplace_back(cell, Tensor());
    inputs.push_back(value);
  }
  r->f = std::move(f);
  return with_vjp(inputs, y, r, loc);
}

}  // namespace detail
}  // namespace tandem
