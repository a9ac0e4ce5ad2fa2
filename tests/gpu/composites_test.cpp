// SPDX-License-Identifier: Apache-2.0
// Functions composed of ops that make tensors from nothing (masks, edges, positions, windows) make
// them where their input is, not on the default device.
#include <functional>

#include "tandem/tandem.h"
#include "tests/gpu/tensors_helper.h"

namespace tandem::gpu {
namespace {

class Composites : public OverDevices {};
TD_OVER_DEVICES(Composites);

struct Composite {
  const char* name;
  Shape shape;
  std::function<Tensor(const Tensor&)> f;
};

std::vector<Composite> composites() {
  const auto ids = [](const Tensor& x, int64_t n) { return floor(x * double(n)).to(int64); };
  return {
      {"alpha_dropout", {5, 6}, [](const Tensor& x) { return alpha_dropout(x, 0.4, true); }},
      {"feature_alpha_dropout",
       {5, 6},
       [](const Tensor& x) { return feature_alpha_dropout(x, 0.4, true); }},
      {"dropout2d", {2, 6, 3, 3}, [](const Tensor& x) { return dropout2d(x, 0.4); }},
      {"affine_grid",
       {2, 2, 3},
       [](const Tensor& x) {
         return affine_grid(x, {2, 1, 4, 5});
       }},
      {"embedding_bag", {3, 4}, [&](const Tensor& x) { return embedding_bag(ids(x, 3), x); }},
      {"embedding_bag of offsets",
       {8},
       [&](const Tensor& x) {
         const Tensor starts = cumsum(x.slice(0, 0, 3) * 0.0 + 2.0, 0).to(int64) - 2;
         return embedding_bag(ids(x, 8), x.reshape({8, 1}), {.offsets = starts, .mode = "max"});
       }},
      {"quantile", {7, 3}, [](const Tensor& x) { return quantile(x, 0.3, 0); }},
      {"median", {7}, [](const Tensor& x) { return median(x); }},
      {"mode", {7, 3}, [](const Tensor& x) { return mode(floor(x * 3.0), 0).values; }},
      {"histc", {30}, [](const Tensor& x) { return histc(x, 5, 0, 1); }},
      {"gradient", {6, 5}, [](const Tensor& x) { return gradient(x)[1]; }},
      {"index_reduce",
       {4, 4},
       [&](const Tensor& x) { return index_reduce(x, 0, ids(x[0], 4), x, "prod", false); }},
      {"segment_mean", {6}, [&](const Tensor& x) { return segment_mean(x, ids(x, 4), 4); }},
      {"stft", {32}, [](const Tensor& x) { return stft(x, 8); }},
      {"irfft", {8}, [](const Tensor& x) { return fft::irfft(fft::rfft(x)); }},
      {"max_unpool2d",
       {1, 2, 4, 4},
       [](const Tensor& x) {
         const OutputAndIndices y = max_pool2d_with_indices(x, {2});
         return max_unpool2d(y.output, y.indices, {2});
       }},
      {"multilabel_margin_loss",
       {3, 4},
       [&](const Tensor& x) { return multilabel_margin_loss(x, ids(x, 5) - 1); }},
      {"cholesky_inverse",
       {3, 3},
       [](const Tensor& x) { return linalg::cholesky_inverse(tril(x) + 1.0); }},
      {"matrix_power", {3, 3}, [](const Tensor& x) { return linalg::matrix_power(x, 0); }},
      {"as_strided",
       {12},
       [](const Tensor& x) {
         return as_strided(x, {3, 2}, {2, 1}, 1);
       }},
      {"vander", {4}, [](const Tensor& x) { return vander(x, 3); }},
  };
}

TEST_P(Composites, MakeTensorsWhereTheirInputIs) {
  manual_seed(3);
  for (const Composite& c : composites()) {
    SCOPED_TRACE(c.name);
    const Tensor x = rand(c.shape);
    manual_seed(4);
    const Tensor want = c.f(x);
    manual_seed(4);
    const Tensor got = c.f(x.to(device_));
    EXPECT_EQ(got.device(), device_);
    EXPECT_TRUE(allclose(got.to(cpu), want, 1e-4, 1e-5, true));
  }
}

}  // namespace
}  // namespace tandem::gpu
