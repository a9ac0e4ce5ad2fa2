// SPDX-License-Identifier: Apache-2.0
// The distillation loss by its formula, its gradient, and the step that adds it in training alone.
#include "tandem/train/distill.h"

#include <gtest/gtest.h>

#include <cmath>

#include "tandem/tandem.h"
#include "tests/support/errors.h"
#include "tests/support/init.h"

namespace tandem::train {
namespace {

// The sum over classes of p log(p / q), by hand.
double divergence(const std::vector<double>& s, const std::vector<double>& t, double temperature) {
  const auto softmax_of = [&](const std::vector<double>& v) {
    std::vector<double> p;
    double sum = 0;
    for (const double x : v) sum += std::exp(x / temperature);
    for (const double x : v) p.push_back(std::exp(x / temperature) / sum);
    return p;
  };
  const std::vector<double> p = softmax_of(t), q = softmax_of(s);
  double d = 0;
  for (size_t i = 0; i < p.size(); ++i) d += p[i] * std::log(p[i] / q[i]);
  return d * temperature * temperature;
}

TEST(Distill, TheLossByItsFormula) {
  const std::vector<double> s1{1, 2, -1}, t1{0.5, 3, 0}, s2{0, 0, 0}, t2{2, -2, 1};
  const Tensor student = stack({tensor(s1), tensor(s2)}, 0),
               teacher = stack({tensor(t1), tensor(t2)}, 0);
  for (const double temperature : {1.0, 2.0, 5.0}) {
    const double want = (divergence(s1, t1, temperature) + divergence(s2, t2, temperature)) / 2;
    EXPECT_NEAR(distillation_loss(student, teacher, temperature).item<double>(), want, 1e-12);
    // The same with positions after the classes.
    const Tensor wide =
        distillation_loss(student.t().unsqueeze(0), teacher.t().unsqueeze(0), temperature);
    EXPECT_NEAR(wide.item<double>(), want, 1e-12);
  }
  EXPECT_NEAR(distillation_loss(student, student).item<double>(), 0, 1e-15);
  // d/ds = T (softmax(s / T) - softmax(t / T)) / n
  Tensor s = student.clone().requires_grad_();
  distillation_loss(s, teacher, 3).backward();
  const Tensor want = (softmax(student / 3.0, 1) - softmax(teacher / 3.0, 1)) * 1.5;
  EXPECT_LT(amax(abs(s.grad() - want)).item<double>(), 1e-12);
  const std::string apart = error_of([&] { distillation_loss(student, teacher.t()); });
  EXPECT_TRUE(has(apart, "the net gives [2, 3], its teacher [3, 2]")) << apart;
}

TEST(Distill, TheStepAddsItInTrainingAlone) {
  manual_seed(1);
  nn::Linear net(4, 3), teacher(4, 3);
  const StepFunction own = [&](const Batch& b) {
    const Tensor y = net(b[0]);
    return StepOutput{cross_entropy(y, b[1]), y, b[1]};
  };
  const StepFunction step = distilled(own, net, [&](const Batch& b) { return teacher(b[0]); },
                                      {.alpha = 0.3, .temperature = 4});
  const Batch batch{randn({5, 4}), randint(0, 3, {5})};
  const double alone = own(batch).loss.item<double>(),
               term = distillation_loss(net(batch[0]), teacher(batch[0]), 4).item<double>();
  EXPECT_NEAR(step(batch).loss.item<double>(), 0.3 * term + 0.7 * alone, 1e-6);
  step(batch).loss.backward();
  EXPECT_TRUE(net.weight.grad().defined());
  EXPECT_FALSE(teacher.weight.grad().defined());
  net.eval();
  EXPECT_EQ(step(batch).loss.item<double>(), alone);
  const StepFunction blind = distilled(
      [](const Batch& b) {
        return StepOutput{b[0].mean(), {}, {}};
      },
      net.train(), [&](const Batch& b) { return teacher(b[0]); });
  const std::string none = error_of([&] { blind(batch); });
  EXPECT_TRUE(has(none, "no logits to compare")) << none;
}

}  // namespace
}  // namespace tandem::train
