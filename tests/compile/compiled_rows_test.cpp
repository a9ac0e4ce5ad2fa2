// SPDX-License-Identifier: Apache-2.0
// Every row of the op driver, compiled: forward and gradient equal eager's.
#include "tandem/compile/compile.h"
#include "tests/ops/row_driver.h"
#include "tests/support/init.h"

namespace tandem::rows {
namespace {

class CompiledRow : public ::testing::TestWithParam<Row> {};
std::string row_name(const ::testing::TestParamInfo<Row>& info) {
  return info.param.op + "_" + std::to_string(info.index);
}
INSTANTIATE_TEST_SUITE_P(Rows, CompiledRow, ::testing::ValuesIn(all_rows()), row_name);

void expect_equal(const Row& row, const std::vector<Tensor>& got, const std::vector<Tensor>& want,
                  const char* what) {
  ASSERT_EQ(got.size(), want.size());
  for (size_t i = 0; i < got.size(); ++i)
    if (!same_bits(got[i], want[i])) {
      EXPECT_EQ(got[i].dtype(), want[i].dtype());
      // Sums in another order: after cancellation the result is small compared with the terms.
      EXPECT_TRUE(close(got[i], want[i], row.tolerance, 1)) << what << " " << i;
    }
}

TEST_P(CompiledRow, ForwardIsEager) {
  const Row& row = GetParam();
  for (int64_t n : {5, 1, 0}) {
    if ((n == 0 && row.off & kNo0) || (n == 1 && row.off & kNo1)) continue;
    const std::vector<Arg> args = make_args(row, n, float32);
    auto f =
        compile([&](std::vector<Tensor> x) { return call_row(row, with_tensors(args, x), n); });
    std::vector<Tensor> want = call_row(row, args, n);
    for (int i = 0; i < 2; ++i) {
      manual_seed(kSeed);
      expect_equal(row, f(tensors_of(args)), want, "output");
    }
  }
}

TEST_P(CompiledRow, GradientIsEager) {
  const Row& row = GetParam();
  const std::vector<Arg> args = make_args(row, 4, float32);
  if (row.off & kNoGrad || find_op(row.op)->has(kNotDifferentiable) || !any_floating(args)) return;
  std::vector<Tensor> x = tensors_of(args);
  std::vector<int> variables;
  for (size_t i = 0; i < x.size(); ++i) {
    const bool constant = (row.off & kLastConstant && i + 1 == x.size()) ||
                          (row.off & kFirstConstant && i == 0 && !args[0].is_scalar);
    if (is_floating(x[i].dtype()) && !constant) variables.push_back(static_cast<int>(i));
  }
  if (variables.empty() || !total_of(call_row(row, args, 4)).defined()) return;
  const auto gradient = [&](const std::vector<Tensor>& in) {
    const auto total = [&](std::span<const Tensor> v) {
      return Tensors{total_of(call_row(row, with_tensors(args, v), 4))};
    };
    return detail::value_and_grads(total, in, variables, SourceLocation::here()).grads;
  };
  auto f = compile(gradient);
  std::vector<Tensor> want = gradient(x);
  manual_seed(kSeed);
  expect_equal(row, f(x), want, "gradient");
}

}  // namespace
}  // namespace tandem::rows
