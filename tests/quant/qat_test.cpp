// SPDX-License-Identifier: Apache-2.0
// Training with rounding: the same bits eagerly and compiled, ranges that move and freeze when they
// should, and a conversion whose integers are those that training rounded to.
#include "tandem/quant/qat.h"

#include <gtest/gtest.h>

#include <cmath>

#include "tandem/compile/compile.h"
#include "tandem/nn/fine_tune.h"
#include "tandem/nn/wrapper.h"
#include "tandem/quant/calibrate.h"
#include "tandem/tandem.h"
#include "tests/support/errors.h"
#include "tests/support/init.h"

namespace tandem::quant {
namespace {

struct QatNet : nn::Module {
  nn::Conv2d a{2, 6, 3, nn::ConvOptions{.padding = 1, .bias = false}};
  nn::BatchNorm2d norm{6};
  nn::Conv2d b{6, 4, 3};
  nn::Linear head{16, 3};
  QatNet() { TD_REGISTER(a, norm, b, head); }
  Tensor forward(const Tensor& x) {
    const Tensor y = max_pool2d(relu(norm(a(x))), 2);
    return head(relu(b(y)).flatten(1));
  }
};

QatNet made(const QatOptions& options = {}) {
  manual_seed(11);
  QatNet net;
  EXPECT_EQ(prepare_qat(net, options), (std::vector<std::string>{"a", "b", "head"}));
  return net;
}
Tensor batch(int64_t i) { return randn({8, 2, 8, 8}) * (1.0 + static_cast<double>(i) * 0.1); }
// Some updates from the first on, eagerly or compiled.
void train(QatNet& net, int64_t first, int64_t last, bool planned = false) {
  net.train();
  optim::SGD sgd(net.parameters(), {.lr = 0.05, .momentum = 0.9});
  const auto step = [&](const Tensor& x, const Tensor& t) {
    sgd.zero_grad();
    const Tensor loss = cross_entropy(net.forward(x), t);
    loss.backward();
    sgd.step();
    return loss.detach();
  };
  auto fast = compile(step);
  for (int64_t i = first; i < last; ++i) {
    set_qat_step(net, i);
    manual_seed(static_cast<uint64_t>(100 + i));
    const Tensor x = batch(i), t = randint(0, 3, {8});
    planned ? fast(x, t) : step(x, t);
  }
}
std::vector<double> numbers(const Tensor& t) { return t.to_vector<double>(); }
Tensor range(const QatNet& net, const char* which) {
  return *net.state_dict().find(std::string("b.input_fake_quant.") + which);
}

TEST(Qat, CompiledStepsHaveTheBitsOfEagerOnes) {
  const QatOptions options{
      .per_channel = false, .start = 2, .freeze_observers = 5, .freeze_batch_norms = 6};
  QatNet eager = made(options), planned = made(options);
  train(eager, 0, 8);
  train(planned, 0, 8, true);
  const StateDict want = eager.state_dict(), got = planned.state_dict();
  ASSERT_EQ(want.size(), got.size());
  for (const auto& [name, t] : want) EXPECT_EQ(numbers(t), numbers(*got.find(name))) << name;
  EXPECT_GT(range(eager, "max_val").item<float>(), 0);
}

// The average begins with the first batch; 0 always lies in the range.
TEST(Qat, RangesAreObservedFromStartToFreeze) {
  for (const Observer how : {Observer::moving_average, Observer::min_max}) {
    QatNet net =
        made({.observer = how, .averaging_constant = 0.25, .start = 1, .freeze_observers = 3});
    net.train();
    double want = 0;
    for (int64_t i = 0; i < 5; ++i) {
      set_qat_step(net, i);
      const Tensor x = full({8, 2, 8, 8}, static_cast<double>(i + 1));
      net.forward(x);
      const StateDict now = net.state_dict();
      if (i == 1) want = 2;
      if (i == 2) want = how == Observer::min_max ? 3 : 2 + 0.25 * (3 - 2);
      EXPECT_FLOAT_EQ(now.find("a.input_fake_quant.max_val")->item<float>(),
                      static_cast<float>(want));
      EXPECT_EQ(now.find("a.input_fake_quant.min_val")->item<float>(), 0);
    }
    set_qat_step(net, 2);
    net.forward(full({8, 2, 8, 8}, static_cast<double>(NAN)));
    EXPECT_FLOAT_EQ(net.state_dict().find("a.input_fake_quant.max_val")->item<float>(),
                    static_cast<float>(how == Observer::min_max ? 3 : 2.25));
  }
}

TEST(Qat, EvaluationRoundsOnceARangeIsThere) {
  QatNet net = made({.start = 3});
  const Tensor x = batch(0);
  QatNet plain = clone(net);
  for (const auto& [path, m] : plain.named_modules())
    for (const auto& w : nn::wrappers(*m)) nn::unwrap(*m, *w);
  train(net, 0, 3);  // it has not started yet
  net.eval();
  plain.load_state_dict(net.state_dict(), false);
  plain.eval();
  EXPECT_EQ(numbers(net.forward(x)), numbers(plain.forward(x)));
  train(net, 3, 5);
  net.eval();
  const std::vector<double> rounded = numbers(net.forward(x));
  plain.load_state_dict(net.state_dict(), false);
  plain.eval();
  EXPECT_NE(rounded, numbers(plain.forward(x)));
  QatNet other = made({.start = 3});
  other.load_state_dict(net.state_dict());
  other.eval();
  EXPECT_EQ(rounded, numbers(other.forward(x)));
  EXPECT_EQ(plain.state_dict().find("b.input_fake_quant.min_val"), nullptr);
}

TEST(Qat, ACloneObservesByItself) {
  QatNet net = made();
  train(net, 0, 2);
  QatNet copy = clone(net);
  const std::vector<double> before = numbers(range(net, "max_val"));
  train(copy, 2, 4);
  EXPECT_EQ(numbers(range(net, "max_val")), before);
  EXPECT_NE(numbers(range(copy, "max_val")), before);
}

TEST(Qat, BatchNormsFreeze) {
  QatNet net = made({.freeze_batch_norms = 2});
  train(net, 0, 2);
  const std::vector<double> before = numbers(net.norm.running_mean);
  const Tensor x = batch(7);
  train(net, 2, 4);
  EXPECT_EQ(numbers(net.norm.running_mean), before);
  net.train();
  const NoGradGuard no_grad;
  const std::vector<double> training = numbers(net.norm(x.repeat({1, 3, 1, 1})));
  net.eval();
  EXPECT_EQ(training, numbers(net.norm(x.repeat({1, 3, 1, 1}))));
}

TEST(Qat, ConversionHasTheCodesOfTraining) {
  for (const QatOptions& options :
       {QatOptions{}, QatOptions{.bits = 4}, QatOptions{.bits = 3, .per_channel = false},
        QatOptions{.keep_float = {}}}) {
    QatNet net = made(options);
    train(net, 0, 6);
    net.eval();
    const Forward f = [&](std::span<const Tensor> x) {
      return std::vector<Tensor>{net.forward(x[0])};
    };
    Network network(f, std::vector<Spec>{Spec(DType::f32, Shape(Dim::symbol("batch"), 2, 8, 8))});
    EXPECT_EQ(network.learned().size(), 3u);
    const Batches none = [](const std::function<void(std::span<const Tensor>)>&) {};
    for (const DType codes : {DType::u8, DType::i8}) {
      const Calibrated c(network, none, {.activations = codes});
      const Quantized q = c.quantised();
      const int64_t most = (int64_t{1} << (options.bits - 1)) - 1;
      for (size_t i = 0; i < 3; ++i) {
        const LayerCodes& layer = q.codes(i);
        EXPECT_EQ(amax(abs(layer.weight.to(DType::f32))).item<float>(), most);
        const Layer& l = network.layers()[i];
        const Tensor w = weight_of(layer, l);
        EXPECT_GT(sqnr({&l.weight, 1}, {&w, 1}), 100) << l.name;
      }
      const NoGradGuard no_grad;
      const Tensor x = batch(0), want = net.forward(x), got = q({&x, 1})[0];
      EXPECT_GT(sqnr({&want, 1}, {&got, 1}), 35);
    }
    const std::string changed = error_of([&] { equalise(network); });
    EXPECT_TRUE(has(changed, "Leave equalisation out")) << changed;
  }
}

// Steps that are trained: they move, eagerly and compiled with the same bits, and the codes are
// those of the learned steps.
TEST(Qat, StepsAreLearned) {
  const QatOptions options{.bits = 3, .learn_steps = true, .freeze_observers = 2};
  QatNet eager = made(options), planned = made(options), fixed = made({.bits = 3});
  train(eager, 0, 12);
  train(planned, 0, 12, true);
  const StateDict learned = eager.state_dict(), same = planned.state_dict();
  for (const char* name : {"a.input_fake_quant.log_step", "b.input_fake_quant.log_step",
                           "a.weight_fake_quant.log_step", "head.weight_fake_quant.log_step"}) {
    ASSERT_TRUE(learned.find(name)) << name;
    EXPECT_GT(amax(abs(*learned.find(name))).item<float>(), 0) << name;
    EXPECT_EQ(numbers(*learned.find(name)), numbers(*same.find(name))) << name;
  }
  EXPECT_EQ(learned.find("a.weight_fake_quant.log_step")->numel(), 6);
  EXPECT_FALSE(fixed.state_dict().find("a.weight_fake_quant.log_step"));
  eager.eval();
  const Forward f = [&](std::span<const Tensor> x) {
    return std::vector<Tensor>{eager.forward(x[0])};
  };
  Network network(f, std::vector<Spec>{Spec(DType::f32, Shape(Dim::symbol("batch"), 2, 8, 8))});
  EXPECT_EQ(network.learned().size(), 3u);
  const Batches none = [](const std::function<void(std::span<const Tensor>)>&) {};
  const Calibrated c(network, none, {});
  const Quantized q = c.quantised();
  const NoGradGuard no_grad;
  const Tensor x = batch(0), want = eager.forward(x), got = q({&x, 1})[0];
  EXPECT_GT(sqnr({&want, 1}, {&got, 1}), 35);
  for (size_t i = 0; i < 3; ++i) {  // weights are what training rounded them to
    const Layer& l = network.layers()[i];
    const Tensor w = weight_of(q.codes(i), l);
    EXPECT_GT(sqnr({&l.weight, 1}, {&w, 1}), 100) << l.name;
  }
}

// A decoder's layers: the outputs of a transposed convolution lie in dimension 1 of its weight.
struct QatDecoder : nn::Module {
  nn::ConvTranspose2d a{2, 6, 3, nn::ConvTransposeOptions{.stride = {2}, .bias = false}};
  nn::BatchNorm2d norm{6};
  nn::ConvTranspose2d split{6, 4, 3, nn::ConvTransposeOptions{.groups = 2}};
  nn::ConvTranspose2d b{4, 3, 2, nn::ConvTransposeOptions{.stride = {2}}};
  QatDecoder() { TD_REGISTER(a, norm, split, b); }
  Tensor forward(const Tensor& x) { return b(relu(split(relu(norm(a(x))))), IntList{39, 39}); }
};

TEST(Qat, TransposedConvolutionsAreRounded) {
  for (const bool learn : {false, true}) {
    manual_seed(13);
    QatDecoder net;
    EXPECT_EQ(prepare_qat(net, {.learn_steps = learn}), (std::vector<std::string>{"a", "b"}));
    optim::Adam adam(net.parameters(), {.lr = 0.01});
    for (int64_t i = 0; i < 6; ++i) {
      adam.zero_grad();
      mean(square(net.forward(batch(i)) - 1.0)).backward();
      adam.step();
    }
    if (learn) {
      const StateDict state = net.state_dict();
      EXPECT_EQ(state.find("a.weight_fake_quant.log_step")->numel(), 6);
      EXPECT_GT(amax(abs(*state.find("b.weight_fake_quant.log_step"))).item<float>(), 0);
    }
    net.eval();
    const Forward f = [&](std::span<const Tensor> x) {
      return std::vector<Tensor>{net.forward(x[0])};
    };
    Network network(f, std::vector<Spec>{Spec(DType::f32, Shape(Dim::symbol("batch"), 2, 8, 8))});
    EXPECT_EQ(network.learned().size(), 2u);
    const Calibrated c(network, [](const auto&) {}, {});
    const Quantized q = c.quantised();
    for (size_t i = 0; i < network.layers().size(); ++i) {
      const Layer& l = network.layers()[i];
      EXPECT_EQ(l.axis, 1);
      const Tensor w = weight_of(q.codes(i), l);
      EXPECT_GT(sqnr({&l.weight, 1}, {&w, 1}), 100) << l.name;
    }
    const NoGradGuard no_grad;
    const Tensor x = batch(0), want = net.forward(x), got = q({&x, 1})[0];
    EXPECT_GT(sqnr({&want, 1}, {&got, 1}), 35);
  }
}

// A sum of two values, one of which no layer reads: its range is not observed in training.
struct QatBlock : nn::Module {
  nn::Conv2d a{2, 4, 3, nn::ConvOptions{.padding = 1}}, b{4, 4, 3, nn::ConvOptions{.padding = 1}};
  nn::BatchNorm2d norm{4};
  nn::Linear head{4, 3};
  QatBlock() { TD_REGISTER(a, b, norm, head); }
  Tensor forward(const Tensor& x) {
    const Tensor y = relu(a(x));
    return head(relu(norm(b(y)) + y).mean({2, 3}));
  }
};

TEST(Qat, SumsAreCalibratedAndTheRestIsLearned) {
  manual_seed(12);
  QatBlock net;
  prepare_qat(net);
  for (int64_t i = 0; i < 4; ++i) net.forward(batch(i));
  net.eval();
  const Tensor x = batch(1);
  const Forward f = [&](std::span<const Tensor> in) {
    return std::vector<Tensor>{net.forward(in[0])};
  };
  Network network(f, std::vector<Spec>{spec_of(x)});
  EXPECT_EQ(network.learned().size(), 3u);
  const std::string none = error_of([&] { Calibrated(network, [](const auto&) {}, {}); });
  EXPECT_TRUE(has(none, "there is no data to calibrate with")) << none;
  const Calibrated c(network, [&](const auto& see) { see({&x, 1}); }, {});
  const Quantized q = c.quantised();
  const StateDict state = net.state_dict();
  const float range = state.find("b.input_fake_quant.max_val")->item<float>() -
                      state.find("b.input_fake_quant.min_val")->item<float>();
  const auto site = static_cast<size_t>(q.plan().site_at(*network.layers()[1].node, 0));
  EXPECT_FLOAT_EQ(q.steps()[site].scale, range / 255);
  const NoGradGuard no_grad;
  const Tensor want = net.forward(x), got = q({&x, 1})[0];
  EXPECT_GT(sqnr({&want, 1}, {&got, 1}), 30);
}

// The same sum where the results of the norm and of the activation are rounded in training: then
// there is nothing left to calibrate, and the integers are those of training.
struct QatSum : QatBlock {
  nn::ReLU act;
  QatSum() { TD_REGISTER(act); }
  Tensor forward(const Tensor& x) {
    const Tensor y = relu(a(x));
    return head(act(norm(b(y)) + y).mean({2, 3}));
  }
};

TEST(Qat, OperandsOfSumsAreLearnedToo) {
  manual_seed(12);
  QatSum net;
  prepare_qat(net, {.round_outputs = {"norm", "act"}});
  for (int64_t i = 0; i < 6; ++i) {
    set_qat_step(net, i);
    net.forward(batch(i));
  }
  net.eval();
  const Tensor x = batch(1);
  const Forward f = [&](std::span<const Tensor> in) {
    return std::vector<Tensor>{net.forward(in[0])};
  };
  Network network(f, std::vector<Spec>{spec_of(x)});
  EXPECT_EQ(network.learned().size(), 5u);
  const Quantized q = Calibrated(network, [](const auto&) {}, {}).quantised();
  const StateDict state = net.state_dict();
  const auto number = [&](const char* name) { return state.find(name)->item<float>(); };
  const float span =
      number("norm.output_fake_quant.max_val") - number("norm.output_fake_quant.min_val");
  const Node& norm = *network.layers()[1].norm;
  int found = 0;
  for (size_t i = 0; i < q.plan().sites().size(); ++i)
    if (q.plan().sites()[i].value == ValueId{norm.index, 0}) {
      EXPECT_FLOAT_EQ(q.steps()[i].scale, span / 255);
      ++found;
    }
  EXPECT_EQ(found, 1);
  const NoGradGuard no_grad;
  const Tensor want = net.forward(x), got = q({&x, 1})[0];
  EXPECT_GT(sqnr({&want, 1}, {&got, 1}), 45);
  EXPECT_EQ(fix_rounding(net), 3u);
  EXPECT_EQ(numbers(net.forward(x)), numbers(want));
}

TEST(Qat, FixedRoundingIsTheSameNet) {
  QatNet net = made({.bits = 5, .keep_float = {}});
  EXPECT_EQ(fix_rounding(net), 0u);  // it has seen nothing
  train(net, 0, 3);
  net.eval();
  const Tensor x = batch(2);
  const NoGradGuard no_grad;
  const std::vector<double> want = numbers(net.forward(x)), weight = numbers(net.b.weight);
  EXPECT_EQ(fix_rounding(net), 3u);
  EXPECT_EQ(numbers(net.forward(x)), want);
  EXPECT_NE(numbers(net.b.weight), weight);
  EXPECT_EQ(fix_rounding(net), 0u);
}

TEST(Qat, LayersThatAreKeptStayInFloatingPoint) {
  manual_seed(11);
  QatNet net;
  EXPECT_EQ(prepare_qat(net, {.keep_float = {"b"}}), (std::vector<std::string>{"a", "head"}));
  train(net, 0, 3);
  net.eval();
  const Forward f = [&](std::span<const Tensor> x) {
    return std::vector<Tensor>{net.forward(x[0])};
  };
  const Tensor x = batch(0);
  Network network(f, std::vector<Spec>{spec_of(x)});
  const Quantized q = Calibrated(network, [](const auto&) {}, {}).quantised();
  EXPECT_TRUE(q.plan().is_quantised(0) && !q.plan().is_quantised(1) && q.plan().is_quantised(2));
}

TEST(Qat, SaysWhatItWants) {
  const auto refused = [](const char* text, auto f) {
    const std::string got = error_of(f);
    EXPECT_TRUE(has(got, text)) << got;
  };
  QatNet net;
  refused("bits", [&] { prepare_qat(net, {.bits = 9}); });
  refused("Freeze them later", [&] { prepare_qat(net, {.start = 4, .freeze_observers = 4}); });
  refused("'c*' matches no Linear or convolution",
          [&] { prepare_qat(net, {.keep_float = {"c*"}}); });
  refused("'c*' matches no module", [&] { prepare_qat(net, {.round_outputs = {"c*"}}); });
  EXPECT_FALSE(is_prepared(net));
  prepare_qat(net);
  EXPECT_TRUE(is_prepared(net));
  refused("prepared already", [&] { prepare_qat(net); });
  nn::ReLU none;
  refused("there is nothing to quantise", [&] { prepare_qat(none); });
  QatNet tuned;
  nn::apply_lora(tuned);
  refused("'head' has a LoRA update", [&] { prepare_qat(tuned); });
}

}  // namespace
}  // namespace tandem::quant
