// SPDX-License-Identifier: Apache-2.0
// round(x / n) for a number n, as quantize_linear writes it, multiplies by 1 / n: a division takes
// the time of ten multiplications. A ratio that lies half-way between two integers may be rounded
// to the other one.
#include <cmath>

#include "tandem/compile/passes/passes.h"
#include "tandem/compile/passes/rewriter.h"
#include "tandem/ops/pointwise/pointwise.h"
#include "tandem/ops/view/create.h"

namespace tandem::compiler {
namespace {

void multiply(Rewrite& r) {
  const ValueId x = r.value("x");
  const double by = 1 / static_cast<double>(static_cast<float>(r.number("n")));
  if (r.spec(x).dtype != DType::f32 || !(r.spec(x) == r.spec(r.root().out[0])) ||
      !std::isfinite(by) || static_cast<float>(by) == 0)
    return;
  const ValueId factor = r.program().add_constant(full(Shape(), by, DType::f32));
  const ValueId ratio = r.emit().emit(op::mul, nullptr, nullptr, {x, factor});
  r.become(op::round, nullptr, std::initializer_list<ValueId>{ratio});
}

}  // namespace

void round_ratios(Program& p) {
  if (!p.inference) return;
  static const std::vector<Rule> kRules = {
      {row(op::round, {row(op::div, {any("x"), number("n")}).once()}), multiply},
  };
  Rewriter(p).run(kRules);
}

}  // namespace tandem::compiler
