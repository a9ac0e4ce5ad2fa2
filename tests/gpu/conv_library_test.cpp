// SPDX-License-Identifier: Apache-2.0
// Convolutions that go to cuDNN (mock/libcudnn.cpp): sizes, strides, padding, groups and gradients
// as rows describe them, what is copied, what own kernels run, and how errors arrive.
#include <sstream>

#include "tandem/graph/run/channels_last.h"
#include "tests/gpu/vendor_mocks_helper.h"

namespace tandem::gpu {
namespace {

class ConvsOnAMock : public OnVendorMocks {
 protected:
  ConvsOnAMock() : OnVendorMocks("mock_dnn") {}
};

struct Case {
  const char* name;
  Shape x, w;
  IntList stride, padding, padding_end, dilation;
  int64_t groups = 1;
};
const std::vector<Case>& cases() {
  static const std::vector<Case> all{
      {"plain", {2, 3, 9, 7}, {5, 3, 3, 2}, {1, 1}, {0, 0}, {0, 0}, {1, 1}},
      {"stride", {2, 3, 10, 9}, {5, 3, 3, 3}, {2, 3}, {1, 2}, {1, 2}, {1, 1}},
      {"dilation", {1, 4, 11, 13}, {6, 4, 3, 2}, {1, 2}, {2, 1}, {2, 1}, {2, 3}},
      {"one side", {2, 3, 6, 7}, {4, 3, 2, 4}, {1, 1}, {0, 1}, {1, 2}, {1, 1}},
      {"groups", {2, 6, 7, 5}, {9, 2, 3, 3}, {1, 1}, {1, 1}, {1, 1}, {1, 1}, 3},
      {"depthwise", {2, 6, 7, 5}, {12, 1, 3, 3}, {2, 1}, {1, 1}, {1, 1}, {1, 1}, 6},
      {"1 x 1", {3, 5, 4, 6}, {7, 5, 1, 1}, {1, 1}, {0, 0}, {0, 0}, {1, 1}},
      {"one channel", {3, 1, 8, 6}, {7, 1, 3, 3}, {1, 1}, {1, 1}, {1, 1}, {1, 1}},
      {"line", {2, 4, 17}, {6, 4, 5}, {2}, {2}, {3}, {1}},
      {"volume", {2, 3, 5, 6, 7}, {4, 3, 3, 2, 3}, {1, 2, 1}, {1, 0, 1}, {1, 1, 1}, {1, 1, 2}},
  };
  return all;
}
ConvAttrs attrs_of(const Case& c) {
  ConvAttrs a;
  a.stride = c.stride;
  a.padding = c.padding;
  a.padding_end = c.padding_end;
  a.dilation = c.dilation;
  a.groups = c.groups;
  return a;
}
Tensor images(const Case& c, DType t) { return randn(c.x).to(t); }
Tensor filters(const Case& c, DType t) { return randn(c.w).to(t); }

double tolerance(DType t) { return t == DType::f32 ? 1e-4 : t == DType::f16 ? 4e-3 : 3e-2; }

bool is_last(const Tensor& t) { return detail::is_channels_last(array_of(t)); }

TEST_F(ConvsOnAMock, GiveWhatTheCpuGives) {
  for (const Case& c : cases()) {
    for (const DType t : {DType::f32, DType::bf16, DType::f16}) {
      for (const bool with_bias : {false, true}) {
        SCOPED_TRACE(std::string(c.name) + " " + to_string(t));
        const Tensor x = images(c, t), w = filters(c, t);
        const Tensor b = with_bias ? randn({c.w[0]}).to(t) : Tensor();
        const Tensor want = conv(x, w, b, attrs_of(c));
        const Tensor got = conv(there(x), there(w), with_bias ? there(b) : b, attrs_of(c));
        EXPECT_EQ(new_runs(), 1);
        EXPECT_TRUE(allclose(got.cpu().to(float32), want.to(float32), tolerance(t), tolerance(t)));
        EXPECT_EQ(has(last(), " bias"), with_bias);
        EXPECT_EQ(VendorMocks::current(), reinterpret_cast<cuda::Context>(&VendorMocks::get()));
      }
    }
  }
}

TEST_F(ConvsOnAMock, GradientsToo) {
  for (const Case& c : cases()) {
    for (const DType t : {DType::f32, DType::bf16, DType::f16}) {
      SCOPED_TRACE(std::string(c.name) + " " + to_string(t));
      const Tensor x = images(c, t), w = filters(c, t);
      const Tensor g = randn(conv(x, w, {}, attrs_of(c)).shape()).to(t);
      ConvAttrs a = attrs_of(c);
      for (int d = 2; d < c.x.rank(); ++d) a.size.push_back(c.x[d]);
      const Tensor gx = conv_backward_input(there(g), there(w), a);
      EXPECT_EQ(new_runs(), 1);
      EXPECT_TRUE(allclose(gx.cpu().to(float32), conv_backward_input(g, w, a).to(float32),
                           tolerance(t), tolerance(t)));
      a.size = {};
      for (int d = 2; d < c.w.rank(); ++d) a.size.push_back(c.w[d]);
      const Tensor gw = conv_backward_weight(there(x), there(g), a);
      EXPECT_EQ(new_runs(), 1);
      EXPECT_TRUE(allclose(gw.cpu().to(float32), conv_backward_weight(x, g, a).to(float32),
                           5 * tolerance(t), 5 * tolerance(t)));
    }
  }
}

TEST_F(ConvsOnAMock, TransposedConvolutionsToo) {
  const Tensor x = randn({2, 6, 5, 4}), w = randn({6, 2, 3, 3}), b = randn({4});
  const Tensor want = conv_transpose2d(x, w, b, {2, 3}, {1, 0}, {1, 2}, 2);
  const Tensor got = conv_transpose2d(there(x), there(w), there(b), {2, 3}, {1, 0}, {1, 2}, 2);
  EXPECT_EQ(new_runs(), 1);
  EXPECT_TRUE(allclose(got.cpu(), want, 1e-4, 1e-4));
}

// 16-bit types and tf32 are channels-last from the first convolution on, exact f32 is row-major.
TEST_F(ConvsOnAMock, ChooseAnOrder) {
  const Tensor x = there(randn({2, 3, 10, 8})), w = there(randn({4, 3, 3, 3})),
               v = there(randn({4, 4, 3, 3}));
  const auto twice = [&](DType t) {
    return conv2d(relu(conv2d(x.to(t), w.to(t))), v.to(t), {}, {1}, {1});
  };
  EXPECT_FALSE(is_last(twice(float32)));
  EXPECT_EQ(new_runs(), 2);
  EXPECT_TRUE(has(last(), "x 2:192 4:48 8:6 6:1 w 4:36 4:9 3:3 3:1 y 2:192 4:48 8:6 6:1"))
      << last();
  for (const DType t : {bfloat16, float16}) {
    EXPECT_TRUE(is_last(twice(t)));
    EXPECT_EQ(new_runs(), 2);
    EXPECT_TRUE(has(last(), "x 2:192 4:1 8:24 6:4 w 4:36 4:9 3:3 3:1 y 2:192 4:1 8:24 6:4"))
        << last();
  }
  set_float32_matmul_precision(MatmulPrecision::tf32);
  EXPECT_TRUE(is_last(twice(float32)));
  EXPECT_EQ(new_runs(), 2);
  const Tensor g = there(randn({2, 4, 8, 6}));
  const Tensor image = x.to(bfloat16).requires_grad_(), filter = w.to(bfloat16).requires_grad_();
  conv2d(image, filter).backward(g.to(bfloat16));
  EXPECT_TRUE(is_last(image.grad()));
  EXPECT_TRUE(filter.grad().is_contiguous());
  EXPECT_EQ(new_runs(), 3);
}

// Which of two orders an array of one channel, or a filter of one pixel, has, the type says.
TEST_F(ConvsOnAMock, CallAmbiguousOrdersWhatTheUnitsWant) {
  const Tensor x = there(randn({2, 1, 5, 4}).to(bfloat16)),
               w = there(randn({6, 1, 3, 3}).to(bfloat16)),
               v = there(randn({3, 6, 1, 1}).to(bfloat16));
  const Tensor y = conv2d(x, w, {}, {1}, {1});
  synchronize(device());
  EXPECT_TRUE(has(last(), "x 2:20 1:1 5:4 4:1 w 6:9 1:1 3:3 3:1 ")) << last();
  conv2d(y, v);
  synchronize(device());
  EXPECT_TRUE(has(last(), "w 3:6 6:1 1:6 1:6 ")) << last();
}

TEST_F(ConvsOnAMock, CopyWhatIsNotDense) {
  const Tensor x = randn({2, 7, 9, 8}), w = randn({5, 3, 3, 3});
  for (const DType t : {float32, bfloat16}) {
    const Tensor part = x.to(t).slice(1, 2, 5, 1), image = there(x.to(t)).slice(1, 2, 5, 1);
    const Tensor want = conv2d(part, w.to(t)), got = conv2d(image, there(w.to(t)));
    EXPECT_EQ(new_runs(), 1);
    EXPECT_TRUE(allclose(got.cpu().to(float32), want.to(float32), tolerance(t), tolerance(t)));
    EXPECT_TRUE(has(last(), t == float32 ? "x 2:216 3:72 9:8 8:1" : "x 2:216 3:1 9:24 8:3"))
        << last();
  }
  // The gradient of a sum is one number with strides of 0.
  const Tensor leaf = x.slice(1, 0, 3, 1).clone().requires_grad_(),
               same = there(leaf.detach()).requires_grad_();
  conv2d(leaf, w).sum().backward();
  conv2d(same, there(w)).sum().backward();
  EXPECT_EQ(new_runs(), 2);
  EXPECT_TRUE(allclose(same.grad().cpu(), leaf.grad(), 1e-4, 1e-4));
}

TEST_F(ConvsOnAMock, OwnKernelsRunTheRest) {
  const auto near = [](const Tensor& got, const Tensor& want) {
    return allclose(got.cpu(), want, 1e-4, 1e-4);
  };
  const Tensor x = randn({3, 3, 5, 5}), w = randn({2, 3, 3, 3});
  // Addresses that are not aligned.
  const Tensor tail = there(x).slice(0, 1, 3, 1);
  EXPECT_TRUE(near(conv2d(tail, there(w)), conv2d(x.slice(0, 1, 3, 1), w)));
  // What the library refuses, and what has no elements or is no float.
  EXPECT_TRUE(near(conv2d(there(x.to(float64)), there(w.to(float64))),
                   conv2d(x.to(float64), w.to(float64))));
  EXPECT_EQ(conv2d(there(zeros({0, 3, 5, 5})), there(w)).shape(), Shape(0, 2, 3, 3));
  const Tensor i = arange(25).reshape({1, 1, 5, 5}).to(int32), k = ones({1, 1, 2, 2}).to(int32);
  EXPECT_TRUE(conv2d(there(i), there(k)).cpu().equal(conv2d(i, k)));
  EXPECT_EQ(new_runs(), 0);
  EXPECT_TRUE(near(conv2d(there(x), there(w)), conv2d(x, w)));
  EXPECT_EQ(new_runs(), 1);
}

// Exact f32 is not given to engines that round its factors; tf32 is.
TEST_F(ConvsOnAMock, FollowThePrecision) {
  const Tensor x = randn({2, 3, 6, 6}), w = randn({2, 3, 3, 3}), want = conv2d(x, w);
  EXPECT_TRUE(allclose(conv2d(there(x), there(w)).cpu(), want, 1e-5, 1e-5));
  EXPECT_TRUE(has(last(), "engine 9 ")) << last();
  set_float32_matmul_precision(MatmulPrecision::tf32);
  const Tensor rounded = conv2d(there(x), there(w)).cpu();
  EXPECT_TRUE(has(last(), "engine 8 ")) << last();
  EXPECT_FALSE(allclose(rounded, want, 1e-5, 1e-5));
  EXPECT_TRUE(allclose(rounded, want, 1e-2, 1e-2));
}

struct Residual : nn::Module {
  nn::Conv2d stem{3, 8, 3, {.padding = {1}, .bias = false}},
      block{8, 8, 3, {.padding = {1}, .bias = false}}, wide{16, 8, 1},
      down{8, 4, 3, {.stride = {2}}};
  nn::BatchNorm2d norm1{8}, norm2{8};
  Residual() { TD_REGISTER(stem, block, wide, down, norm1, norm2); }
  Tensor forward(const Tensor& x) {
    const Tensor h = max_pool2d(relu(norm1(stem(x))), 2);
    const Tensor r = relu(h + norm2(block(h)));
    const Tensor joined = cat({avg_pool2d(r, 1), h}, 1);
    return down(pad(gelu(wide(joined)), {1, 1, 1, 1})).mean({2, 3});
  }
};

// What lies between convolutions in 16 bits is channels-last, forward and backward, eager and
// compiled: only the image at the start is given to the library as rows.
TEST_F(ConvsOnAMock, NetsStayChannelsLast) {
  for (const bool compiled : {false, true}) {
    manual_seed(3);
    Residual net;
    net.to(device());
    const auto step = [&](const Tensor& x, const Tensor& g) {
      const AutocastGuard cast(bfloat16, true);
      const Tensor y = net.forward(x);
      net.zero_grad();
      (y * g).sum().backward();
      return y;
    };
    auto fast = compile(step);
    const Tensor x = there(randn({2, 3, 18, 14})), g = there(randn({2, 4}));
    synchronize(device());
    function<const char*()>("_log")();
    compiled ? fast(x, g) : step(x, g);
    EXPECT_EQ(new_runs(), 11);  // four forward, three gradients of inputs, four of weights
    std::istringstream log(function<const char*()>("_log")());
    int rows = 0;
    for (std::string line; std::getline(log, line);) {
      const bool image = has(line, " x 2:756 3:252 18:14 14:1 ");
      rows += image;
      // The stride of channels: those of the filter between x and y may be any.
      const std::string from = line.substr(line.find(" x ") + 3),
                        to = line.substr(line.find(" y ") + 3);
      const auto innermost = [](const std::string& array) {
        const size_t channels = array.find(' ') + 1, colon = array.find(':', channels);
        return array.substr(colon + 1, 2) == "1 ";
      };
      EXPECT_TRUE(image || innermost(from)) << line << (compiled ? " compiled" : "");
      EXPECT_TRUE(innermost(to)) << line << (compiled ? " compiled" : "");
    }
    EXPECT_EQ(rows, 2) << "the image, forward and for the gradient of the first filter";
  }
}

TEST_F(ConvsOnAMock, CompiledProgramsAskItToo) {
  const Tensor w = randn({4, 3, 3, 3}), v = randn({2, 4, 3, 3});
  const auto net = [](const Tensor& x, const Tensor& a, const Tensor& b) {
    return conv2d(relu(conv2d(x, a, {}, {1}, {1})), b, {}, {2});
  };
  auto fast = compile(net);
  const Tensor x = randn({2, 3, 8, 9});
  for (const DType t : {float32, bfloat16}) {
    const Tensor want = net(x.to(t), w.to(t), v.to(t));
    const Tensor got = fast(there(x.to(t)), there(w.to(t)), there(v.to(t)));
    EXPECT_EQ(new_runs(), 2);
    EXPECT_TRUE(allclose(got.cpu().to(float32), want.to(float32), tolerance(t), tolerance(t)));
  }
}

TEST_F(ConvsOnAMock, ErrorsArriveAndNothingIsLost) {
  VendorMocks& mocks = VendorMocks::get();
  EXPECT_EQ(mocks.dnn.report.version, "9.12.34");
  const Tensor x = there(randn({1, 2, 4, 3})), w = there(randn({3, 2, 2, 2}));
  fail("cudnnBackendExecute", 5000);
  const std::string text = thrown([&] { conv2d(x, w); });
  EXPECT_TRUE(has(text, "fake:0: cudnnBackendExecute: CUDNN_STATUS_5000 (asked for)")) << text;
  EXPECT_TRUE(allclose(conv2d(x, w).cpu(), conv2d(x.cpu(), w.cpu()), 1e-5, 1e-5));
  std::unique_ptr<ConvLibrary> own;
  const int before = live();
  fail("cudnnCreate", 1001);
  EXPECT_FAILS(open_cudnn(mocks.dnn, mocks.api, nullptr, own), driver,
               "cudnnCreate: CUDNN_STATUS_1001");
  EXPECT_EQ(live(), before);
  ASSERT_OK(open_cudnn(mocks.dnn, mocks.api, nullptr, own));
  ConvProblem p;
  p.x = {{1, 2, 4, 4}, {32, 16, 4, 1}};
  p.w = {{3, 2, 2, 2}, {8, 4, 2, 1}};
  p.y = {{1, 3, 3, 3}, {27, 9, 3, 1}};
  for (int i = 0; i < 2; ++i) p.by[i] = p.dilation[i] = 1;
  std::unique_ptr<ConvPlan> plan;
  for (const char* name :
       {"cudnnBackendCreateDescriptor", "cudnnBackendSetAttribute", "cudnnBackendFinalize"}) {
    fail(name, 4000);
    EXPECT_FAILS(own->plan(p, plan), driver, name);
    EXPECT_EQ(live(), before + 1) << name;  // the handle
  }
  ASSERT_OK(own->plan(p, plan));
  EXPECT_EQ(plan->algorithm, "engine 9");
  own.reset();
  EXPECT_GT(live(), before);
  plan.reset();  // the last that needs the handle
  EXPECT_EQ(live(), before);
}

}  // namespace
}  // namespace tandem::gpu
