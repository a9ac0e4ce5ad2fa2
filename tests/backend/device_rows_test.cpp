// SPDX-License-Identifier: Apache-2.0
// Every row of the op driver on a device whose memory the host may not touch: outputs, gradients
// and compiled gradients have the bits of the CPU, wherever the op runs.
#include "tandem/compile/compile.h"
#include "tandem/graph/backend.h"
#include "tests/backend/guarded_backend_helper.h"
#include "tests/ops/row_driver.h"

namespace tandem::rows {
namespace {

using guarded::g_device;

class DeviceRow : public ::testing::TestWithParam<Row> {};
std::string row_name(const ::testing::TestParamInfo<Row>& info) {
  return info.param.op + "_" + std::to_string(info.index);
}
INSTANTIATE_TEST_SUITE_P(Rows, DeviceRow, ::testing::ValuesIn(all_rows()), row_name);

std::vector<Tensor> moved(std::vector<Tensor> all, Device to) {
  for (Tensor& t : all)
    if (t.defined()) t = t.to(to);
  return all;
}

// Calls f with `in` on the CPU and on the device, where it makes its own tensors too: the same
// bits, and the device's results lie there.
template <class F>
void expect_same(F&& f, const std::vector<Tensor>& in, const char* what) {
  // What is moved is dense afterwards, and strides decide which kernel runs: so on both sides.
  const std::vector<Tensor> on_device = moved(in, g_device), on_host = moved(on_device, cpu);
  manual_seed(kSeed);
  const std::vector<Tensor> want = f(on_host);
  std::vector<Tensor> got;
  {
    const DeviceGuard there(g_device);
    manual_seed(kSeed);
    got = f(on_device);
  }
  ASSERT_EQ(got.size(), want.size()) << what;
  for (size_t i = 0; i < got.size(); ++i) {
    ASSERT_EQ(got[i].defined(), want[i].defined()) << what << " " << i;
    if (!got[i].defined()) continue;
    EXPECT_EQ(got[i].device(), g_device) << what << " " << i;
    EXPECT_TRUE(same_bits(got[i].cpu(), want[i]))
        << what << " " << i << ": " << to_string(got[i]) << "\nwanted " << to_string(want[i]);
  }
}

TEST_P(DeviceRow, OutputsHaveTheBitsOfTheCpu) {
  const Row& row = GetParam();
  for (int64_t n : {5, 0}) {
    if (n == 0 && row.off & kNo0) continue;
    const std::vector<Arg> args = make_args(row, n, float32);
    const auto call = [&](const std::vector<Tensor>& x) {
      return call_row(row, with_tensors(args, x), n, true);
    };
    if (std::string(row.op) == "to_device") continue;  // its attribute says where
    expect_same(call, tensors_of(args), "output");
    std::vector<Tensor> odd = tensors_of(args);
    for (Tensor& t : odd) t = odd_strides(t, 0);
    if (n > 0) expect_same(call, odd, "output of odd strides");
  }
}

TEST_P(DeviceRow, GradientsHaveTheBitsOfTheCpu) {
  const Row& row = GetParam();
  const std::vector<Arg> args = make_args(row, 3, float32);
  if (row.off & kNoGrad || find_op(row.op)->has(kNotDifferentiable) || !any_floating(args)) return;
  const std::vector<Tensor> x = tensors_of(args);
  std::vector<int> variables;
  for (size_t i = 0; i < x.size(); ++i) {
    const bool constant = (row.off & kLastConstant && i + 1 == x.size()) ||
                          (row.off & kFirstConstant && i == 0 && !args[0].is_scalar);
    if (is_floating(x[i].dtype()) && !constant) variables.push_back(static_cast<int>(i));
  }
  if (variables.empty() || !total_of(call_row(row, args, 3)).defined()) return;
  const auto gradient = [&](const std::vector<Tensor>& in) {
    const auto total = [&](std::span<const Tensor> v) {
      return std::vector<Tensor>{total_of(call_row(row, with_tensors(args, v), 3))};
    };
    return detail::value_and_grads(total, in, variables, SourceLocation::here()).grads;
  };
  expect_same(gradient, x, "gradient");
  // The trace is of the device that the call is made on.
  const auto compiled = [&](const std::vector<Tensor>& in) {
    auto f = compile(gradient);
    return std::vector<Tensor>(f(in));
  };
  std::vector<Tensor> want, got;
  {
    const DeviceGuard there(g_device);
    manual_seed(kSeed);
    want = gradient(moved(x, g_device));
    manual_seed(kSeed);
    got = compiled(moved(x, g_device));
  }
  ASSERT_EQ(got.size(), want.size());
  for (size_t i = 0; i < got.size(); ++i) {
    EXPECT_EQ(got[i].device(), g_device);
    const Tensor a = got[i].cpu(), b = want[i].cpu();
    // As on the CPU, sums may be in another order.
    if (!same_bits(a, b)) {
      EXPECT_TRUE(close(a, b, row.tolerance, 1)) << "compiled gradient " << i;
    }
  }
}

}  // namespace
}  // namespace tandem::rows
