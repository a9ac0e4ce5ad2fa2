// SPDX-License-Identifier: Apache-2.0
// Outputs fed back as inputs: a cache that grows, a recurrent net against its run over the whole
// sequence, what is rejected, and that a failed step changes nothing.
#include "tandem/onnx/stepper.h"

#include <gtest/gtest.h>

#include "tandem/init.h"
#include "tests/io/io_helper.h"
#include "tests/onnx/helper.h"

namespace tandem::onnx {
namespace {

class Stepper : public testing::Test {
 protected:
  void SetUp() override { init(); }
};

/// A port with sizes: numbers, or names of open dimensions.
std::string shaped(const std::string& name, const std::vector<std::string>& dims, int type = 1) {
  ProtoWriter shape, tensor, t, p;
  for (const std::string& d : dims) {
    ProtoWriter one;
    if (std::isdigit(static_cast<unsigned char>(d[0])))
      one.add_int(1, std::stoi(d));
    else
      one.add_bytes(2, d);
    shape.add_message(1, one);
  }
  tensor.add_int(1, type);
  tensor.add_message(2, shape);
  t.add_message(1, tensor);
  p.add_bytes(1, name);
  p.add_message(2, t);
  return p.str();
}

// present = concat(past, x) along dimension 1; y = its sum.
OnnxModel cache_model() {
  GraphText g;
  g.nodes = {node("Concat", {"past", "x"}, {"present"}, {int_attribute("axis", 1)}),
             node("ReduceSum", {"present", "axes"}, {"y"})};
  const int64_t axis = 1;
  g.initializers = {raw_tensor("axes", {1}, 7, {reinterpret_cast<const char*>(&axis), 8})};
  g.inputs = {shaped("x", {"batch", "n", "2"}), shaped("past", {"batch", "length", "2"})};
  g.outputs = {shaped("present", {"batch", "more", "2"}), shaped("y", {"batch", "1", "2"})};
  return OnnxModel::parse(model(g));
}

TEST_F(Stepper, ACacheGrows) {
  OnnxStepper s(cache_model(),
                {.states = {{"past", "present"}}, .dims = {{"batch", 1}, {"length", 0}}});
  ASSERT_EQ(s.inputs().size(), 1u);
  ASSERT_EQ(s.outputs().size(), 1u);
  EXPECT_EQ(s.inputs()[0].name, "x");
  EXPECT_EQ(s.outputs()[0].name, "y");
  EXPECT_EQ(s.state("past").shape(), Shape(1, 0, 2));
  OnnxStepper other(cache_model(),
                    {.states = {{"past", "present"}}, .first = {{"past", ones({1, 1, 2})}}});
  for (int round = 0; round < 2; ++round) {
    for (int k = 1; k <= 3; ++k) {
      const std::vector<Tensor> y = s({full({1, 2, 2}, k)});
      ASSERT_EQ(y.size(), 1u);
      EXPECT_EQ(y[0].to_vector<float>(), std::vector<float>(2, static_cast<float>(k * (k + 1))));
      EXPECT_EQ(s.state("past").shape(), Shape(1, 2 * k, 2));
    }
    s.reset();
    EXPECT_EQ(s.state("past").shape(), Shape(1, 0, 2));
  }
  EXPECT_EQ(other({full({1, 1, 2}, 5)})[0].to_vector<float>(), (std::vector<float>{6, 6}));
  const Tensor kept = other.state("past");
  other({full({1, 1, 2}, 7)});
  other.set_state("past", kept);
  EXPECT_EQ(other({full({1, 1, 2}, 1)})[0].to_vector<float>(), (std::vector<float>{7, 7}));
}

// An LSTM of one step with its states as inputs and outputs, `length` steps long.
OnnxModel lstm_model(int64_t length) {
  GraphText g;
  const int64_t hidden = 3, wide = 2;
  std::vector<float> w, r, b;
  for (int i = 0; i < 4 * hidden * wide; ++i) w.push_back(0.1F * static_cast<float>(i % 7 - 3));
  for (int i = 0; i < 4 * hidden * hidden; ++i) r.push_back(0.07F * static_cast<float>(i % 9 - 4));
  for (int i = 0; i < 8 * hidden; ++i) b.push_back(0.05F * static_cast<float>(i % 5 - 2));
  g.nodes = {node("LSTM", {"x", "w", "r", "b", "", "h", "c"}, {"y", "h_next", "c_next"},
                  {int_attribute("hidden_size", hidden)})};
  g.initializers = {floats("w", {1, 4 * hidden, wide}, w), floats("r", {1, 4 * hidden, hidden}, r),
                    floats("b", {1, 8 * hidden}, b)};
  g.inputs = {shaped("h", {"1", "batch", "3"}), shaped("x", {std::to_string(length), "batch", "2"}),
              shaped("c", {"1", "batch", "3"})};
  g.outputs = {shaped("c_next", {"1", "batch", "3"}), port("y"),
               shaped("h_next", {"1", "batch", "3"})};
  return OnnxModel::parse(model(g));
}

TEST_F(Stepper, StepsOfALstmAreItsSequence) {
  const int64_t n = 5;
  const Tensor x = sin(arange(0, n * 2 * 2, 1, DType::f32)).reshape({n, 2, 2});
  const Tensor zero = zeros({1, 2, 3});
  const std::vector<Tensor> want = lstm_model(n)({zero, x, zero});  // c, y, h
  for (const bool compiled : {false, true}) {
    OnnxStepper s(lstm_model(1), {.states = {{"h", "h_next"}, {"c", "c_next"}},
                                  .dims = {{"batch", 2}},
                                  .compiled = compiled});
    for (int round = 0; round < 2; ++round) {
      for (int64_t t = 0; t < n; ++t) {
        const Tensor y = s({x.narrow(0, t, 1)}).at(0);
        EXPECT_TRUE(allclose(y, want[1].narrow(0, t, 1), 1e-6, 1e-6)) << compiled << " " << t;
      }
      EXPECT_TRUE(allclose(s.state("h"), want[2], 1e-6, 1e-6)) << compiled;
      EXPECT_TRUE(allclose(s.state("c"), want[0], 1e-6, 1e-6)) << compiled;
      s.reset();
    }
  }
}

// s' = s + x, and y is the same tensor as s': what is kept is not a copy of it.
TEST_F(Stepper, KeepsWhatCameOutWithoutACopy) {
  GraphText g;
  g.nodes = {node("Add", {"s", "x"}, {"t"})};
  g.inputs = {port("s"), port("x")};
  g.outputs = {port("t"), port("t")};
  OnnxStepper one(OnnxModel::parse(model(g)),
                  {.states = {{"s", "t"}}, .first = {{"s", zeros({4})}}});
  const Tensor y = one({ones({4})}).at(0);
  EXPECT_EQ(one.state("s").data<float>(), y.data<float>());
}

TEST_F(Stepper, AFailedStepChangesNothing) {
  GraphText g;
  g.nodes = {node("Add", {"s", "x"}, {"s_next"}), node("Mul", {"t", "x"}, {"t_next"})};
  g.inputs = {shaped("s", {"2"}), shaped("t", {"n"}), port("x")};
  g.outputs = {shaped("s_next", {"m"}), shaped("t_next", {"n"})};
  OnnxStepper s(OnnxModel::parse(model(g)),
                {.states = {{"s", "s_next"}, {"t", "t_next"}}, .first = {{"t", ones({2})}}});
  s({full({2}, 3)});
  EXPECT_EQ(error_of([&] {
              s({ones({2, 2})});
            }),
            "Shape: OnnxStepper: state 's' is [2], got [2, 2].");
  EXPECT_NE(error_of([&] { s({ones({3})}); }), "no error");
  EXPECT_EQ(s.state("s").to_vector<float>(), (std::vector<float>{3, 3}));
  EXPECT_EQ(s.state("t").to_vector<float>(), (std::vector<float>{3, 3}));
}

// An input with an initializer: a run takes its value unless another is named.
TEST_F(Stepper, InitializersAreFirstValues) {
  GraphText g;
  g.nodes = {node("Add", {"s", "x"}, {"t"})};
  g.initializers = {floats("s", {2}, {10, 20})};
  g.inputs = {port("x"), port("s")};
  g.outputs = {port("t")};
  const OnnxModel m = OnnxModel::parse(model(g));
  ASSERT_EQ(m.inputs().size(), 1u);
  const Tensor one = ones({2});
  EXPECT_EQ(m({one})[0].to_vector<float>(), (std::vector<float>{11, 21}));
  EXPECT_EQ(m({one}, {{"s", one}})[0].to_vector<float>(), (std::vector<float>{2, 2}));
  EXPECT_EQ(error_of([&] { m({one}, {{"q", one}}); }), "Value: the model has no input 'q'.");
  OnnxStepper s(m, {.states = {{"s", "t"}}});
  ASSERT_EQ(s.inputs().size(), 1u);
  s({one});
  s({one});
  EXPECT_EQ(s.state("s").to_vector<float>(), (std::vector<float>{12, 22}));
  EXPECT_EQ(m({one})[0].to_vector<float>(), (std::vector<float>{11, 21}));
}

TEST_F(Stepper, SaysWhatIsWrong) {
  const std::vector<OnnxState> kPair = {{"past", "present"}};
  const struct {
    OnnxStepperOptions options;
    std::string want;
  } kCases[] = {
      {{},
       "Value: OnnxStepper: the model does not name its states. Name them in "
       "OnnxStepperOptions::states."},
      {{.states = {{"pasd", "present"}}},
       "Value: OnnxStepper: the model has no input 'pasd'. Did you mean 'past'?"},
      {{.states = {{"past", "presents"}}},
       "Value: OnnxStepper: the model has no output 'presents'. Did you mean 'present'?"},
      {{.states = {{"past", "present"}, {"past", "y"}}, .first = {{"past", zeros({1, 1, 2})}}},
       "Value: OnnxStepper: 'past' <- 'y' names one of them twice."},
      {{.states = kPair, .dims = {{"batch", 1}}},
       "Value: OnnxStepper: 'past' is [batch, length, 2], and dimension 1 ('length') has no "
       "size. Name it in OnnxStepperOptions::dims or pass the first value."},
      {{.states = kPair, .dims = {{"batch", 1}, {"length", -1}}},
       "Value: OnnxStepper: dimension 'length' has the size -1."},
      {{.states = kPair, .first = {{"past", zeros({1, 1, 3})}}},
       "Shape: OnnxStepper: state 'past' is [batch, length, 2], got [1, 1, 3]."},
      {{.states = kPair, .first = {{"past", zeros({1, 1, 2}, int64)}}},
       "DType: OnnxStepper: state 'past' expects float32, got int64."},
      {{.states = kPair, .first = {{"x", zeros({1, 1, 2})}}, .dims = {{"batch", 1}, {"length", 0}}},
       "Value: OnnxStepper: 'x' is not a state."},
  };
  for (const auto& c : kCases)
    EXPECT_EQ(error_of([&] { OnnxStepper(cache_model(), c.options); }), c.want);
  OnnxStepper s(cache_model(), {.states = kPair, .dims = {{"batch", 1}, {"length", 0}}});
  EXPECT_EQ(error_of([&] { s({}); }), "Value: OnnxStepper: a step takes 1 inputs, got 0.");
  EXPECT_EQ(error_of([&] { s.state("x"); }), "Value: OnnxStepper: 'x' is not a state.");
}

}  // namespace
}  // namespace tandem::onnx
