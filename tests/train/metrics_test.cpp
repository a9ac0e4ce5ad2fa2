// SPDX-License-Identifier: Apache-2.0
// Metrics against values worked out by hand or by scikit-learn 1.5, in one batch, in several,
// merged and from a saved state; event files read back frame by frame.
#include "tandem/train/metrics.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <set>

#include "tandem/base/hash/crc32c.h"
#include "tandem/io/protobuf.h"
#include "tandem/runs/event_file.h"
#include "tandem/tandem.h"
#include "tests/io/io_helper.h"
#include "tests/support/init.h"

namespace tandem::train {
namespace {

// Outputs whose largest column is the class given; 3 classes.
Tensor logits(const std::vector<int64_t>& classes) {
  return one_hot(tensor(classes), 3).to(float32);
}

// wanted 0 0 0 1 1 2, given 0 0 1 1 2 2: by class precision 1, 1/2, 1/2; recall 2/3, 1/2, 1;
// f1 4/5, 1/2, 2/3.
const std::vector<int64_t> kWant{0, 0, 0, 1, 1, 2}, kGot{0, 0, 1, 1, 2, 2};

struct MetricCase {
  const char* name;
  Tensor output, target;
  double want;
};
std::vector<MetricCase> metric_cases() {
  Tensor x = logits(kGot), y = tensor(kWant);
  Tensor ranked = tensor({{0.1, 0.5, 0.4}, {0.3, 0.3, 0.4}, {0.9, 0.05, 0.05}});
  Tensor scores = tensor({0.1, 0.4, 0.35, 0.8, 0.4}), labels = tensor({0, 0, 1, 1, 1});
  Tensor a = tensor({2.5, 0.0, 2.0, 8.0}), b = tensor({3.0, -0.5, 2.0, 7.0});
  return {
      {"accuracy", x, y, 4.0 / 6},
      {"precision", x, y, 2.0 / 3},
      {"recall", x, y, (2.0 / 3 + 0.5 + 1) / 3},
      {"f1", x, y, (0.8 + 0.5 + 2.0 / 3) / 3},
      {"f1_micro", x, y, 4.0 / 6},
      {"precision_weighted", x, y, (3 * 1.0 + 2 * 0.5 + 0.5) / 6},
      {"recall_weighted", x, y, 4.0 / 6},
      {"accuracy", tensor({-1.0, 2.0, 0.5}), tensor({0, 1, 0}), 2.0 / 3},
      {"precision_binary", tensor({-1.0, 2.0, 0.5, -3.0}), tensor({0, 1, 0, 1}), 0.5},
      {"recall_binary", tensor({-1.0, 2.0, 0.5, 1.0}), tensor({0, 1, 0, 1}), 1.0},
      {"f1_binary", tensor({-1.0, 2.0, 0.5, 1.0}), tensor({0, 1, 0, 1}), 0.8},
      {"accuracy", tensor({{1.0, 2.0}, {3.0, 0.0}}), tensor({1, 1}), 0.5},
      {"top1_accuracy", ranked, tensor({2, 1, 0}), 1.0 / 3},
      {"top2_accuracy", ranked, tensor({2, 1, 0}), 2.0 / 3},
      {"top5_accuracy", ranked, tensor({2, 1, 0}), 1.0},
      {"auc", scores, labels, 4.5 / 6},
      {"auc", stack({scores * -0.5, scores * 0.5}, 1), labels, 4.5 / 6},
      {"mae", a, b, 0.5},
      {"mse", a, b, 0.375},
      {"rmse", a, b, std::sqrt(0.375)},
      {"r2", a, b, 1 - 1.5 / 29.1875},
  };
}

TEST(Metrics, KnownValuesInOneBatchInTwoMergedAndReloaded) {
  for (const MetricCase& c : metric_cases()) {
    auto whole = make_metric(c.name), parts = make_metric(c.name), left = make_metric(c.name),
         right = make_metric(c.name);
    EXPECT_EQ(whole->name(), c.name);
    EXPECT_TRUE(std::isnan(whole->compute())) << c.name;
    whole->update(c.output, c.target);
    EXPECT_NEAR(whole->compute(), c.want, 1e-12) << c.name;
    const int64_t n = c.target.size(0), cut = n / 2;
    auto half = [&](Metric& m, int64_t at, int64_t size) {
      m.update(narrow(c.output, 0, at, size), narrow(c.target, 0, at, size));
    };
    half(*left, 0, cut);
    half(*right, cut, n - cut);
    parts->load_state(left->state());
    half(*parts, cut, n - cut);
    left->merge(*right);
    EXPECT_EQ(parts->compute(), whole->compute()) << c.name;
    EXPECT_EQ(left->compute(), whole->compute()) << c.name;
    whole->reset();
    EXPECT_TRUE(std::isnan(whole->compute()));
  }
  ConfusionMatrix m;
  m.update(logits(kGot), tensor(kWant));
  EXPECT_EQ(m.matrix().to_vector<int64_t>(), (std::vector<int64_t>{2, 1, 0, 0, 1, 1, 0, 0, 1}));
  ConfusionMatrix ignoring(ConfusionMatrix::Kind::accuracy, Average::macro, 0);
  ignoring.update(logits(kGot), tensor(kWant));
  EXPECT_EQ(ignoring.compute(), 2.0 / 3);
}

TEST(Metrics, RefuseWhatDoesNotFit) {
  EXPECT_EQ(
      error_of([] { make_metric("acuracy"); }).rfind("Value: there is no metric 'acuracy'", 0), 0u);
  EXPECT_EQ(error_of([] {
              make_metric("accuracy")->update(logits(kGot), tensor({1, 2}));
            }),
            "Shape: accuracy: 6 outputs and 2 targets.");
  EXPECT_EQ(error_of([] { make_metric("accuracy")->update(logits({0}), tensor({7})); }),
            "Index: accuracy: target 7 of 3 classes.");
  EXPECT_EQ(error_of([] {
              const auto f1 = make_metric("f1_binary");
              f1->update(logits(kGot), tensor(kWant));
              f1->compute();
            }),
            "Value: f1_binary is of two classes, there are 3. Use f1, f1_micro or f1_weighted.");
  EXPECT_EQ(error_of([] { make_metric("auc")->update(tensor({0.5}), tensor({3})); }),
            "Index: auc: target 3 of 2 classes.");
}

// ---- event files

uint32_t masked(std::string_view bytes) {
  const uint32_t c = crc32c(bytes);
  return (c >> 15 | c << 17) + 0xA282EAD8u;
}
// The data of all whole frames.
std::vector<std::string> frames(const std::string& file) {
  std::vector<std::string> out;
  size_t at = 0;
  while (at + 16 <= file.size()) {
    uint64_t size;
    uint32_t head, tail;
    std::memcpy(&size, file.data() + at, 8);
    std::memcpy(&head, file.data() + at + 8, 4);
    EXPECT_EQ(head, masked(file.substr(at, 8)));
    if (at + 16 + size > file.size()) break;
    out.push_back(file.substr(at + 12, size));
    std::memcpy(&tail, file.data() + at + 12 + size, 4);
    EXPECT_EQ(tail, masked(out.back()));
    at += 16 + size;
  }
  return out;
}

TEST(EventFile, FramesAndMessages) {
  TempFolder f;
  runs::EventFile events(f / "log");
  events.scalar("train/loss", 0.5, 7);
  events.histogram("weights", tensor(std::vector<double>{-1.0, 0.0, 0.0, 2.0, INFINITY, NAN}), 8);
  events.image("digit", data::Digits().get(0).x, 9);
  events.text("config", "lr: **0.1**", 10);
  const std::string file = read_file(events.path());
  const std::vector<std::string> all = frames(file);
  ASSERT_EQ(all.size(), 5u);
  EXPECT_NE(all[0].find("brain.Event:2"), std::string::npos);
  // step 7, summary of one value: tag and simple_value 0.5
  const std::string scalar("\x10\x07\x2a\x13\x0a\x11\x0a\x0atrain/loss\x15\x00\x00\x00\x3f", 23);
  EXPECT_EQ(all[1].substr(9), scalar);
  EXPECT_NE(all[3].find("\x89PNG"), std::string::npos);
  EXPECT_NE(all[4].find("config/text_summary"), std::string::npos);
  for (size_t cut = 0; cut < file.size(); cut += 13)  // whole up to the cut
    EXPECT_LE(frames(file.substr(0, cut)).size(), 5u);
  EXPECT_EQ(frames(file.substr(0, file.size() - 1)).size(), 4u);
}

TEST(PrCounts, ByHand) {
  runs::PrCounts c(3);  // thresholds 0, 0.5, 1
  c.add(0.2, false);
  c.add(0.6, true);
  c.add(0.7, false, 2);
  c.add(7, true);  // moved to 1
  c.add(NAN, true);
  EXPECT_EQ(c.table(),
            (std::vector<float>{2, 2, 1, 3, 2, 0, 0, 1, 3, 0, 0, 1, 0.4F, 0.5F, 1, 1, 1, 0.5F}));
  EXPECT_THROW(runs::PrCounts(1), Error);
  TempFolder f;
  runs::EventFile events(f / "log");
  EXPECT_THROW(events.pr_curve("c", zeros({3}), zeros({2}), 0), Error);
}

// Field `want` of a message, each time it is there.
std::vector<std::string> fields(std::string_view message, uint32_t want) {
  std::vector<std::string> out;
  io::ProtoDocument document(message, "a message");
  io::ProtoReader r = document.reader();
  while (r.next())
    if (r.field() == want && r.type() == io::ProtoType::bytes) out.push_back(r.text());
  return out;
}

TEST(GraphDef, HasLayersAsPathsAndEveryInput) {
  struct Net : nn::Module {
    nn::Linear fc{3, 4};
    nn::BatchNorm1d norm{4};
    Net() { TD_REGISTER(fc, norm); }
    Tensor forward(Tensor x) { return relu(norm(fc(x))) + relu(x.sum()) * 2; }
  } net;
  const Ref<Graph> graph =
      trace([&](std::span<const Tensor> x) { return std::vector<Tensor>{net.forward(x[0])}; },
            std::vector<Spec>{Spec(float32, {5, 3})}, Captures::refuse);
  std::set<std::string> names;
  for (const std::string& node : fields(runs::graph_def(*graph, &net), 1)) {
    const std::string name = fields(node, 1).at(0);
    EXPECT_TRUE(names.insert(name).second) << name;
    for (const std::string& input : fields(node, 3))  // in order: what is read is there
      EXPECT_TRUE(names.count(input.substr(0, input.find(':')))) << name << " reads " << input;
  }
  for (const char* name :
       {"input", "fc/weight", "fc/bias", "norm/running_mean", "relu", "relu_1", "output"})
    EXPECT_TRUE(names.count(name)) << name;
  // Without the model parameters are states.
  EXPECT_NE(runs::graph_def(*graph).find("state_1"), std::string::npos);
}

}  // namespace
}  // namespace tandem::train
