// SPDX-License-Identifier: Apache-2.0
// Compiled steps that are recorded and replayed: the bits of launches one by one, whatever changes
// between calls, and errors while recording and replaying.
#include <functional>
#include <thread>

#include "tandem/backend/gpu/cuda/library_internal.h"
#include "tandem/backend/gpu/engine_internal.h"
#include "tandem/backend/gpu/fake/fake_driver.h"
#include "tandem/graph/backend.h"
#include "tandem/tandem.h"
#include "tests/gpu/tensors_helper.h"
#include "tests/gpu/vendor_mocks_helper.h"
#include "tests/support/bits.h"
#include "tests/support/errors.h"

namespace tandem::gpu {
namespace {

struct Drops : nn::Module {
  nn::Embedding words{11, 12};
  nn::Linear in{12, 16}, out{16, 5};
  nn::LayerNorm norm{16};
  Drops() { TD_REGISTER(words, in, out, norm); }
  Tensor forward(const Tensor& ids) {
    return out(dropout(norm(gelu(in(words(ids).mean({1})))), 0.3));
  }
};

/// A net with an optimizer and its compiled step.
struct GraphTraining {
  explicit GraphTraining(tandem::Device where)
      : device(where), net(on(where)), opt(net.parameters(), {.lr = 1e-2}) {}
  static Drops on(tandem::Device device) {
    manual_seed(7);
    Drops net;
    net.to(device);
    return net;
  }
  Tensor step(const Tensor& ids, const Tensor& labels) {
    const Tensor loss = cross_entropy(net(ids), labels);
    opt.zero_grad();
    loss.backward();
    opt.step();
    return loss;
  }
  std::vector<Tensor> state() const {
    std::vector<Tensor> all;
    for (const auto& [name, value] : net.state_dict()) all.push_back(value.cpu());
    for (const auto& [name, value] : opt.state_dict()) all.push_back(value.cpu());
    return all;
  }
  /// A batch that no other call has, where the allocator has room.
  Tensor ids(int i, int64_t rows) const {
    const GeneratorGuard own({static_cast<uint64_t>(100 + i), 0});
    return randint(0, 11, {rows, 3}).to(device);
  }
  Tensor labels(int i, int64_t rows) const {
    const GeneratorGuard own({static_cast<uint64_t>(900 + i), 0});
    return randint(0, 5, {rows}).to(device);
  }

  tandem::Device device;
  Drops net;
  optim::Adam opt;
  std::function<Tensor(const Tensor&, const Tensor&)> fast =
      compile([this](const Tensor& x, const Tensor& y) { return step(x, y); });
};

class AllowGraphs {
 public:
  explicit AllowGraphs(bool on) : before_(allow_step_graphs(on)) {}
  ~AllowGraphs() { allow_step_graphs(before_); }
  AllowGraphs(const AllowGraphs&) = delete;
  AllowGraphs& operator=(const AllowGraphs&) = delete;

 private:
  bool before_;
};

/// What a run leaves: the losses, then net and optimizer.
using StepRun = std::function<std::vector<Tensor>(tandem::Device)>;

std::vector<Tensor> with_graphs(bool on, tandem::Device device, const StepRun& run) {
  const AllowGraphs there(on);
  reset_step_graph_counts();
  manual_seed(19);
  return run(device);
}

class StepGraphs : public OverDevices {
 protected:
  bool records() const { return engine_of(device_).info().graphs; }
  /// Gives the counts of the run with graphs.
  StepGraphCounts expect_same_bits(const StepRun& run) {
    const std::vector<Tensor> want = with_graphs(false, device_, run);
    EXPECT_EQ(step_graph_counts().recorded, 0);
    const std::vector<Tensor> got = with_graphs(true, device_, run);
    EXPECT_EQ(want.size(), got.size());
    for (size_t i = 0; i < std::min(want.size(), got.size()); ++i)
      EXPECT_TRUE(same_bits(want[i], got[i])) << "value " << i;
    const StepGraphCounts counts = step_graph_counts();
    if (!records()) {
      EXPECT_EQ(counts.recorded, 0);
    }
    return counts;
  }
};
TD_OVER_DEVICES(StepGraphs);

// Batches come in new memory, the loss of the last step is still held.
TEST_P(StepGraphs, TrainingWithDropoutAndAChangingRate) {
  const StepGraphCounts counts = expect_same_bits([](tandem::Device device) {
    GraphTraining t(device);
    std::vector<Tensor> all, kept;
    for (int i = 0; i < 20; ++i) {
      t.opt.set_option("lr", 1e-2 / (1 + i));
      kept.push_back(t.ids(i, 6));
      kept.push_back(t.labels(i, 6));
      all.push_back(t.fast(kept[kept.size() - 2], kept.back()));
    }
    for (const Tensor& v : t.state()) all.push_back(v);
    return all;
  });
  if (!records()) return;
  EXPECT_GE(counts.replays, 15) << counts.last_problem;
  EXPECT_LE(counts.recorded, 3);
  EXPECT_EQ(counts.given_up, 0);
  EXPECT_GE(counts.launches, 15 * counts.replays);
}

TEST_P(StepGraphs, AShapeThatChangesInBetween) {
  const StepGraphCounts counts = expect_same_bits([](tandem::Device device) {
    GraphTraining t(device);
    std::vector<Tensor> all;
    for (int i = 0; i < 20; ++i) {
      const int64_t rows = i % 5 == 4 || i > 14 ? 4 : 6;
      all.push_back(t.fast(t.ids(i, rows), t.labels(i, rows)));
    }
    for (const Tensor& v : t.state()) all.push_back(v);
    return all;
  });
  if (!records()) return;
  EXPECT_GE(counts.replays, 14) << counts.last_problem;
}

// A weight is replaced, one is held by somebody else, and an optimizer's state is loaded.
TEST_P(StepGraphs, CellsThatAreReplaced) {
  const StepGraphCounts counts = expect_same_bits([](tandem::Device device) {
    GraphTraining t(device);
    std::vector<Tensor> all;
    Tensor held;
    const StateDict start = t.net.state_dict();
    for (int i = 0; i < 24; ++i) {
      if (i == 6) t.net.in.weight.cell()->replace(t.net.in.weight.value() * 0.5);
      if (i == 10) held = t.net.out.weight.value();
      if (i == 12) held = Tensor();
      if (i == 16) t.net.load_state_dict(start);
      all.push_back(t.fast(t.ids(i, 6), t.labels(i, 6)));
    }
    for (const Tensor& v : t.state()) all.push_back(v);
    return all;
  });
  if (!records()) return;
  EXPECT_GE(counts.replays, 12) << counts.last_problem;
}

// Inputs of the host come in by every call, and so do numbers.
TEST_P(StepGraphs, NumbersAndInputsOfTheHost) {
  const StepGraphCounts counts = expect_same_bits([](tandem::Device device) {
    const Buffer w(randn({8, 8}).to(device));
    auto f = compile([&](const Tensor& x, const Tensor& factor, const Tensor& host) {
      const Tensor h = tanh(matmul(x, w.value()) * factor) + host.to(device);
      return softmax(matmul(h, w.value()), 1) * rand({8});
    });
    std::vector<Tensor> all;
    for (int i = 0; i < 12; ++i) {
      const DeviceGuard there(device);
      all.push_back(f(randn({4, 8}), 0.1 * i, full({8}, i, DType::f32).cpu()));
    }
    return all;
  });
  if (!records()) return;
  EXPECT_GE(counts.replays, 8) << counts.last_problem;
}

// Tables of taps are on the device before the call that is recorded.
TEST_P(StepGraphs, Resizing) {
  const StepGraphCounts counts = expect_same_bits([](tandem::Device device) {
    auto f = compile([](const Tensor& t) {
      return relu(interpolate(sin(t), {.size = {5, 7}, .mode = "bilinear"}).sum({1})) * 2.0 +
             t.mean();
    });
    std::vector<Tensor> all;
    for (int i = 0; i < 8; ++i) all.push_back(f(randn({2, 3, 8, 8}).to(device)));
    return all;
  });
  if (!records()) return;
  EXPECT_GE(counts.replays, 5) << counts.last_problem;
}

// Its weight is another one in each call.
TEST_P(StepGraphs, AProgramThatIsNeverCalledTwiceAlike) {
  const StepGraphCounts counts = expect_same_bits([](tandem::Device device) {
    std::vector<Param> w;
    for (int k = 0; k < 2; ++k) w.emplace_back(randn({16, 16}).to(device));
    Param now(randn({16, 16}).to(device));
    auto f = compile([&](const Tensor& x) {
      return sin(matmul(cos(matmul(x, now.value())).sum({1}, true) * x, now.value()));
    });
    const NoGradGuard no_grad;
    const Tensor x = randn({16, 16}).to(device);
    std::vector<Tensor> all;
    for (int i = 0; i < 20; ++i) {
      now.cell()->replace(w[static_cast<size_t>(i % 2)].value());
      all.push_back(f(x));
    }
    return all;
  });
  EXPECT_EQ(counts.replays, 0);
}

TEST_P(StepGraphs, AnIndexOutOfRangeNamesItsOp) {
  if (!records()) GTEST_SKIP() << "no graphs";
  const AllowGraphs on(true);
  GraphTraining t(device_);
  const Tensor good = t.ids(0, 6), labels = t.labels(0, 6);
  for (int i = 0; i < 6; ++i) (void)t.fast(good, labels);
  reset_step_graph_counts();
  const std::string text = thrown([&] { (void)t.fast(good + 100, labels).item<float>(); });
  EXPECT_EQ(step_graph_counts().replays, 1) << step_graph_counts().last_problem;
  EXPECT_TRUE(has(text, "is out of range")) << text;
  EXPECT_TRUE(has(text, "embedding")) << text;
  EXPECT_TRUE(has(text, "words")) << text << ": the layer";
  EXPECT_TRUE(has(text, "step_graphs_test.cpp")) << text;
  EXPECT_GT(t.fast(good, labels).item<float>(), 0) << "the device still works";
}

// Each thread has programs of its own; the device's stream is one.
TEST_P(StepGraphs, OfSeveralThreads) {
  std::vector<std::vector<Tensor>> got(3);
  const auto work = [&](size_t k) {
    const GeneratorGuard own({5, 0});
    GraphTraining t(device_);
    for (int i = 0; i < 10; ++i) got[k].push_back(t.fast(t.ids(i, 6), t.labels(i, 6)).cpu());
  };
  work(0);
  std::thread a([&] { work(1); }), b([&] { work(2); });
  a.join();
  b.join();
  for (size_t k = 1; k < got.size(); ++k)
    for (size_t i = 0; i < got[0].size(); ++i)
      EXPECT_TRUE(same_bits(got[k][i], got[0][i])) << "thread " << k << " step " << i;
}

// ---- numbers of the host that programs write

// The optimizer's step count lies on the host; nobody waits for it before it is read.
TEST_P(StepGraphs, CountsOfTheHostAreReadWhenTheyAreAskedFor) {
  GraphTraining t(device_);
  for (int i = 0; i < 5; ++i) (void)t.fast(t.ids(i, 6), t.labels(i, 6));
  EXPECT_EQ(t.opt.step_count().item<double>(), 5);
  EXPECT_EQ(t.opt.step_count().device(), tandem::cpu);
  (void)t.step(t.ids(5, 6), t.labels(5, 6));  // eager in between
  EXPECT_EQ(t.opt.step_count().item<double>(), 6);
  for (int i = 6; i < 9; ++i) (void)t.fast(t.ids(i, 6), t.labels(i, 6));
  const StateDict state = t.opt.state_dict();
  EXPECT_EQ(state.at("in.weight.step").item<double>(), 9);
  (void)t.fast(t.ids(9, 6), t.labels(9, 6));
  t.opt.load_state_dict(state);
  EXPECT_EQ(t.opt.step_count().item<double>(), 9);
}

TEST_P(StepGraphs, AProgramDoesNotWaitForTheDevice) {
  if (!records()) GTEST_SKIP() << "no graphs";
  Buffer count(zeros({3}, DType::f64));
  const Buffer w(randn({4, 4}).to(device_));
  auto f = compile([&](const Tensor& x) {
    count.assign_(count.value() + 1.0);
    return matmul(sin(matmul(x, w.value())), w.value()).sum();
  });
  const Tensor x = randn({4, 4}).to(device_);
  for (int i = 0; i < 3; ++i) (void)f(x);
  EXPECT_EQ(count.value().to_vector<double>(), (std::vector<double>{3, 3, 3}));
  if (auto* fake = dynamic_cast<FakeContext*>(&engine_of(device_).context())) {
    // Any wait of the host would fail.
    fake->fail_after(Operation::synchronize, 0, Code::driver);
    for (int i = 0; i < 4; ++i) (void)f(x);
    EXPECT_TRUE(has(thrown([&] { (void)count.value(); }), "injected error"));
  } else {
    for (int i = 0; i < 4; ++i) (void)f(x);
  }
  EXPECT_EQ(count.value().to_vector<double>(), (std::vector<double>{7, 7, 7}));
  const Tensor held = count.value();
  (void)f(x);
  EXPECT_EQ(held.to_vector<double>()[0], 7) << "a value does not change";
  count.assign_(count.value() * 2.0);
  (void)f(x);
  EXPECT_EQ(count.value().to_vector<double>()[0], 17);
}

// ---- errors

class StepGraphErrors : public testing::Test {
 protected:
  void SetUp() override {
    init();
    device_ = device_named("fake:0");
    manual_seed(19);
  }
  static FakeContext& context() {
    return dynamic_cast<FakeContext&>(engine_of(device_named("fake:0")).context());
  }
  /// Losses of steps [from, to).
  std::vector<Tensor> steps(GraphTraining& t, int from, int to) {
    std::vector<Tensor> all;
    for (int i = from; i < to; ++i) all.push_back(t.fast(t.ids(i, 6), t.labels(i, 6)));
    return all;
  }
  std::vector<Tensor> want() {
    return with_graphs(false, device_, [&](tandem::Device device) {
      GraphTraining t(device);
      std::vector<Tensor> all = steps(t, 0, 10);
      for (const Tensor& v : t.state()) all.push_back(v);
      return all;
    });
  }
  void expect_same(const std::vector<Tensor>& a, const std::vector<Tensor>& b) {
    ASSERT_EQ(a.size(), b.size());
    for (size_t i = 0; i < a.size(); ++i) EXPECT_TRUE(same_bits(a[i], b[i])) << "value " << i;
  }
  tandem::Device device_;
};

TEST_F(StepGraphErrors, WhileRecordingTheStepsAreLaunched) {
  const std::vector<Tensor> expected = want();
  synchronize(device_);
  const int64_t objects = context().live_objects(),
                bytes = engine_of(device_).pool().stats().allocated;
  for (const auto& failing : {std::pair{Operation::launch, 3}, std::pair{Operation::capture, 0},
                              std::pair{Operation::capture, 1}}) {
    const std::vector<Tensor> got = with_graphs(true, device_, [&](tandem::Device device) {
      GraphTraining t(device);
      std::vector<Tensor> all = steps(t, 0, 2);
      synchronize(device);
      const StepGraphCounts before = step_graph_counts();
      context().fail_after(failing.first, failing.second, Code::launch);
      for (const Tensor& loss : steps(t, 2, 3)) all.push_back(loss);
      EXPECT_EQ(before.recorded + step_graph_counts().recorded, 0);
      EXPECT_TRUE(has(step_graph_counts().last_problem, "injected"))
          << step_graph_counts().last_problem;
      for (const Tensor& loss : steps(t, 3, 10)) all.push_back(loss);
      EXPECT_GE(step_graph_counts().replays, 6);
      for (const Tensor& v : t.state()) all.push_back(v);
      return all;
    });
    expect_same(got, expected);
  }
  synchronize(device_);
  // The stream that captures is made once; the error word and pieces for copies, too.
  EXPECT_LE(context().live_objects(), objects + 1);
  EXPECT_EQ(engine_of(device_).pool().stats().allocated, bytes);
}

TEST_F(StepGraphErrors, OfAReplayAreThrown) {
  const std::vector<Tensor> expected = want();
  const std::vector<Tensor> got = with_graphs(true, device_, [&](tandem::Device device) {
    GraphTraining t(device);
    std::vector<Tensor> all = steps(t, 0, 5);
    EXPECT_EQ(step_graph_counts().replays, 3);
    const int64_t objects = context().live_objects();
    const GeneratorState entry = generator_state();
    context().fail_after(Operation::replay, 0, Code::launch);
    const std::string text = thrown([&] { (void)steps(t, 5, 6); }, ErrorKind::Device);
    EXPECT_TRUE(has(text, "fake:0: injected error")) << text;
    EXPECT_EQ(context().live_objects(), objects - 1) << "the graph is given back";
    set_generator_state(entry);  // nothing of the step has run
    for (const Tensor& loss : steps(t, 5, 10)) all.push_back(loss);
    EXPECT_GE(step_graph_counts().replays, 5);
    for (const Tensor& v : t.state()) all.push_back(v);
    return all;
  });
  expect_same(got, expected);
}

// The mock of cuBLASLt computes on the host, so it waits for the stream that is recorded.
TEST_F(StepGraphErrors, WhatCannotBeRecordedIsLaunched) {
  const AllowGraphs on(true);
  reset_step_graph_counts();
  context().offer(VendorMocks::get().matmuls.get(), nullptr);
  const Tensor x = randn({24, 24}), there = x.to(device_);
  auto f = compile([](const Tensor& t) { return softmax(matmul(sin(matmul(t, t)), t), 1) * 2.0; });
  for (int i = 0; i < 14; ++i) {
    EXPECT_TRUE(allclose(f(there).cpu(), f(x), 1e-5, 1e-5));
  }
  synchronize(device_);
  context().offer(nullptr, nullptr);
  const StepGraphCounts counts = step_graph_counts();
  EXPECT_EQ(counts.recorded, 0);
  EXPECT_EQ(counts.given_up, 1);
  EXPECT_TRUE(has(counts.last_problem, "while it is captured")) << counts.last_problem;
}

TEST_F(StepGraphErrors, WhileKernelsAreTimedTheyAreLaunched) {
  const AllowGraphs on(true);
  GraphTraining t(device_);
  (void)steps(t, 0, 5);
  reset_step_graph_counts();
  record_kernel_times(device_, true);
  (void)steps(t, 5, 7);
  EXPECT_GT(take_kernel_times(device_).size(), 5u);
  record_kernel_times(device_, false);
  EXPECT_EQ(step_graph_counts().replays, 0);
  (void)steps(t, 7, 8);
  EXPECT_EQ(step_graph_counts().replays, 1);
}

}  // namespace
}  // namespace tandem::gpu
