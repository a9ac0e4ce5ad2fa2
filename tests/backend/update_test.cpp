// SPDX-License-Identifier: Apache-2.0
// The loops of Adam and AdamW against the rows' expressions: the same bits, at every thread count,
// in place or not, and for arrays that the loop does not support.
#include <cmath>

#include "against_reference_helper.h"
#include "tandem/ops/nn/update.h"

namespace tandem::cpu_test {
namespace {

Tensors step(const OpDef& row, const Tensors& state, bool reference) {
  std::vector<Array> in, out;
  for (const Tensor& t : state) in.push_back(array_of(t));
  Tensors to;
  for (int i : {0, 2, 3}) {
    to.push_back(zeros(state[static_cast<size_t>(i)].shape(), state[0].dtype()));
    out.push_back(array_of(to.back()));
  }
  // lr, beta1, beta2, eps, weight_decay, 1 - beta1^t, 1 - beta2^t of step 7
  for (double v : {3e-3, 0.9, 0.999, 1e-8, 0.05, 1 - std::pow(0.9, 7), 1 - std::pow(0.999, 7)}) {
    Array a;
    a.is_scalar = true;
    a.scalar = Scalar(v);
    a.dtype = a.scalar.dtype();
    in.push_back(a);
  }
  ErrorWord error;
  KernelCall call{row, nullptr, in.data(), static_cast<int>(in.size()), out.data(), 3, &error};
  if (reference) {
    row.reference_fn(call);
    return to;
  }
  const Kernel* kernel = find_kernel(call, DeviceKind::cpu);
  EXPECT_NE(kernel, nullptr);
  if (kernel) kernel->run(call);
  return to;
}

TEST(Update, AdamLoopsHaveTheBitsOfTheirExpressions) {
  init();
  manual_seed(3);
  for (const OpDef* row : {&op::adam_update, &op::adamw_update})
    for (int64_t n : {1, 15, 16, 17, 1000, 50001}) {
      // Half of the gradients are zero.
      Tensors state{randn({n}), relu(randn({n})) * 0.1, randn({n}) * 0.1, rand({n}) * 0.01};
      const Tensors want = step(*row, state, true);
      for (int threads : {1, 2, 3, 8}) {
        Threads scope(threads);
        const Tensors got = step(*row, state, false);
        for (size_t i = 0; i < got.size(); ++i)
          expect_same_bits(got[i], want[i], std::string(row->name) + " " + std::to_string(n));
      }
    }
}

TEST(Update, AdamOfOtherDtypesAndStridesRunsTheExpression) {
  init();
  Tensors wide{randn({40}, float64), randn({40}, float64), zeros({40}, float64),
               zeros({40}, float64)};
  Tensors strided{randn({8, 6}).t(), randn({8, 6}).t(), zeros({8, 6}).t(), zeros({8, 6}).t()};
  for (const Tensors& state : {wide, strided}) {
    const Tensors want = step(op::adamw_update, state, true);
    const Tensors got = step(op::adamw_update, state, false);
    for (size_t i = 0; i < got.size(); ++i) expect_same_bits(got[i], want[i], "adamw");
  }
}

}  // namespace
}  // namespace tandem::cpu_test
