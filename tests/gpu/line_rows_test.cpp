// SPDX-License-Identifier: Apache-2.0
// Softmax and norms over lines of lengths around those that a warp, a block and their registers
// hold, with their derivatives, against the CPU.
#include <algorithm>
#include <functional>

#include "tandem/graph/backend.h"
#include "tandem/tandem.h"
#include "tests/gpu/tensors_helper.h"
#include "tests/support/bits.h"

namespace tandem::gpu {
namespace {

class LineRows : public OverDevices {
 protected:
  void SetUp() override {
    OverDevices::SetUp();
    if (IsSkipped()) return;
    manual_seed(12);
    reset_host_runs();
  }
  void TearDown() override {
    if (IsSkipped()) return;
    const HostRuns runs = host_runs();
    EXPECT_EQ(runs.calls, 0) << (runs.calls ? runs.by_op[0].first : "") << " ran on the host";
  }
};
TD_OVER_DEVICES(LineRows);

struct Gradients {
  Tensor y;
  std::vector<Tensor> of;
};
using Layer = std::function<Tensor(const std::vector<Tensor>&)>;

// y = f(in) and the gradients of sum(y * gy), where the inputs are.
Gradients gradients_of(const Layer& f, const std::vector<Tensor>& in, const Tensor& gy) {
  std::vector<Tensor> leaves;
  for (const Tensor& t : in) leaves.push_back(t.clone().requires_grad_());
  Gradients g{f(leaves), {}};
  g.y.backward(gy);
  for (const Tensor& t : leaves) g.of.push_back(t.grad());
  return g;
}

void expect_near(const Tensor& got, const Tensor& want, double tolerance, const char* what) {
  const Tensor a = got.cpu().to(float32), b = want.to(float32);
  EXPECT_TRUE(allclose(a, b, tolerance, tolerance))
      << what << ": off by " << (a - b).abs().amax().item<float>();
}

void check_layer(tandem::Device device, const Layer& f, const std::vector<Tensor>& in,
                 double tolerance) {
  const Tensor gy = randn(f(in).shape()).to(in[0].dtype());
  const Gradients want = gradients_of(f, in, gy);
  std::vector<Tensor> there;
  for (const Tensor& t : in) there.push_back(t.to(device));
  const Gradients got = gradients_of(f, there, gy.to(device));
  const Gradients again = gradients_of(f, there, gy.to(device));
  expect_near(got.y, want.y, tolerance, "y");
  EXPECT_TRUE(same_bits(got.y, again.y));
  for (size_t k = 0; k < in.size(); ++k) {
    // Sums over rows grow with them.
    const double scale =
        k == 0 ? 1 : std::max(1.0f, want.of[k].to(float32).abs().amax().item<float>());
    expect_near(got.of[k] / scale, want.of[k] / scale, tolerance, k == 0 ? "gx" : "gw or gb");
    EXPECT_TRUE(same_bits(got.of[k], again.of[k])) << "other bits in the second run";
  }
}

struct Lines {
  int64_t rows, length;
};
constexpr Lines kLines[] = {{5, 1},   {7, 3},    {70, 8},   {33, 31},  {40, 64},
                            {9, 100}, {30, 768}, {3, 1500}, {2, 3000}, {2, 20000}};
// f32 at all lengths, and bf16 at those that differ in groups.
bool takes(const char* device, const Lines& n, DType t) {
  if (few_kernels(device)) return n.length == 768 || (t == float32 && n.length == 3);
  return t == float32 || n.length % 8 == 0;
}

TEST_P(LineRows, Softmax) {
  for (const Lines& n : kLines) {
    for (const DType t : {float32, bfloat16}) {
      if (!takes(GetParam(), n, t)) continue;
      SCOPED_TRACE(std::to_string(n.length) + std::string(" ") + to_string(t));
      const double tolerance = t == bfloat16 ? 2e-2 : 2e-5;
      const Tensor x = (randn({n.rows, n.length}) * 3.0).to(t);
      check_layer(
          device_, [](const auto& in) { return softmax(in[0], 1); }, {x}, tolerance);
      check_layer(
          device_, [](const auto& in) { return log_softmax(in[0], 1); }, {x}, tolerance);
    }
  }
}

// Along a dimension whose elements do not lie side by side.
TEST_P(LineRows, SoftmaxAcross) {
  for (const Shape& shape :
       {Shape{3, 5, 40}, Shape{2, 33, 64}, Shape{2, 300, 33}, Shape{1, 3000, 7}}) {
    SCOPED_TRACE(to_string(shape));
    const Tensor x = randn(shape) * 3.0;
    check_layer(
        device_, [](const auto& in) { return softmax(in[0], 1); }, {x}, 2e-5);
    check_layer(
        device_, [](const auto& in) { return log_softmax(in[0], 0); }, {x}, 2e-5);
    check_layer(
        device_, [](const auto& in) { return softmax(in[0].transpose(0, 2), 1); }, {x}, 2e-5);
  }
}

TEST_P(LineRows, Norms) {
  for (const Lines& n : kLines) {
    if (n.length == 1 || n.length == 20000) continue;  // no statistics; the row's body
    for (const DType t : {float32, bfloat16}) {
      if (!takes(GetParam(), n, t)) continue;
      SCOPED_TRACE(std::to_string(n.length) + std::string(" ") + to_string(t));
      const double tolerance = t == bfloat16 ? 4e-2 : 1e-4;
      const Tensor x = randn({n.rows, n.length}).to(t), w = rand({n.length}).to(t) + 0.5;
      const Tensor b = randn({n.length}).to(t);
      const Shape shape{n.length};
      check_layer(
          device_, [&](const auto& in) { return layer_norm(in[0], shape, in[1], in[2]); },
          {x, w, b}, tolerance);
      check_layer(
          device_, [&](const auto& in) { return layer_norm(in[0], shape); }, {x}, tolerance);
      check_layer(
          device_, [&](const auto& in) { return rms_norm(in[0], shape, in[1]); }, {x, w},
          tolerance);
    }
  }
}

// Statistics over two dimensions, a line that starts between two groups, a weight of another type.
TEST_P(LineRows, NormsOfViews) {
  const Tensor x = randn({6, 4, 48}), w = rand({4, 48}) + 0.5, b = randn({4, 48});
  check_layer(
      device_,
      [](const auto& in) {
        return layer_norm(in[0], {4, 48}, in[1], in[2]);
      },
      {x, w, b}, 1e-4);
  const auto behind_one = [](const auto& in) {
    return layer_norm(in[0].flatten().slice(0, 1, 1 + 23 * 48, 1).reshape({23, 48}), {48},
                      in[1].slice(0, 0, 1, 1).reshape({48}));
  };
  check_layer(device_, behind_one, {x, w}, 1e-4);
  check_layer(
      device_,
      [](const auto& in) {
        return layer_norm(in[0].to(bfloat16).transpose(0, 1), {48},
                          in[1].slice(0, 0, 1, 1).reshape({48}));
      },
      {x, w}, 3e-2);
}

// ---- statistics of channels

Tensor channels_last(const Tensor& x) {
  return x.dim() == 4 ? x.permute({0, 2, 3, 1}).contiguous().permute({0, 3, 1, 2}) : x;
}

TEST_P(LineRows, BatchNorms) {
  const auto f = [](const auto& in) { return batch_norm_stats(in[0], in[1], in[2]).y; };
  size_t at = 0;
  for (const Shape& shape :
       {Shape{6, 5}, Shape{300, 64}, Shape{3, 5, 7, 7}, Shape{2, 64, 8, 8}, Shape{2, 8, 90, 80},
        Shape{7, 24, 9, 9}, Shape{4000, 3}, Shape{5, 3, 11}, Shape{2, 1, 6, 4}}) {
    if (left_out(at++)) continue;
    for (const DType t : {float32, bfloat16}) {
      if (t == bfloat16 && shape[1].value() % 8 != 0) continue;
      SCOPED_TRACE(to_string(shape) + std::string(" ") + to_string(t));
      const int64_t c = shape[1].value();
      const double tolerance = t == bfloat16 ? 4e-2 : 2e-4;
      const Tensor x = randn(shape).to(t), w = rand({c}) + 0.5, b = randn({c});
      check_layer(device_, f, {x, w, b}, tolerance);
      if (x.dim() != 4) continue;
      const auto last = [&](const auto& in) {
        return f(std::vector{channels_last(in[0]), in[1], in[2]});
      };
      check_layer(device_, last, {x, w, b}, tolerance);
    }
  }
}

// Sums over no lines are written, whatever their memory held.
TEST_P(LineRows, OfNoLinesHaveGradients) {
  const Layer layer = [](const std::vector<Tensor>& in) {
    return layer_norm(in[0], {6}, in[1], in[2]);
  };
  const Layer rms = [](const std::vector<Tensor>& in) {
    return rms_norm(in[0], {6}, in[1]) + in[2];
  };
  for (const Layer& f : {layer, rms}) {
    const std::vector<Tensor> in = {zeros({0, 6}).to(device_), ones({6}).to(device_),
                                    ones({6}).to(device_)};
    std::vector<Tensor> held;
    for (int i = 0; i < 16; ++i) held.push_back(full({6}, NAN).to(device_));
    held.clear();
    const Gradients got = gradients_of(f, in, zeros({0, 6}).to(device_));
    for (size_t i = 1; i < in.size(); ++i)
      EXPECT_EQ(got.of[i].to_vector<float>(), std::vector<float>(6, 0.0f)) << i;
  }
}

// The layout of x stays, and statistics keep their accuracy beside a large mean.
TEST_P(LineRows, BatchStatistics) {
  const Tensor x = channels_last(randn({4, 16, 20, 20}) + 3000.0), there = x.to(device_);
  const BatchNormStats got = batch_norm_stats(there), want = batch_norm_stats(x);
  EXPECT_TRUE(std::ranges::equal(got.y.strides(), want.y.strides()));
  EXPECT_TRUE(allclose(got.mean.cpu(), want.mean, 1e-6, 1e-3));
  const Tensor exact = x.to(float64).var({0, 2, 3}, 0);
  EXPECT_TRUE(allclose(got.var.cpu().to(float64), exact, 1e-4, 1e-5));
  expect_near(got.y, want.y, 2e-3, "y");
  const Tensor plain = x.contiguous();
  EXPECT_TRUE(
      allclose(batch_norm_stats(plain.to(device_)).var.cpu().to(float64), exact, 1e-4, 1e-5));
  // A thread's first element far from all others.
  const Tensor odd = cat({full({1, 16, 1, 1}, 1e6).expand({1, 16, 20, 20}), x}, 0);
  const Tensor var = odd.to(float64).var({0, 2, 3}, 0);
  EXPECT_TRUE(allclose(batch_norm_stats(odd.to(device_)).var.cpu().to(float64), var, 1e-4, 1e-5));
}

}  // namespace
}  // namespace tandem::gpu
