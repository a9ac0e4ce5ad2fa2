// SPDX-License-Identifier: Apache-2.0
// N ranks with batch B against one rank with N * B: near in the fast mode, the same bits with
// virtual shards; buckets, accumulation, parameters that some or all ranks do not use, values that
// somebody holds, and what is refused.
#include <gtest/gtest.h>

#include <map>
#include <mutex>

#include "tandem/compile/compile.h"
#include "tandem/dist/data_parallel.h"
#include "tandem/graph/rng.h"
#include "tandem/nn/nn.h"
#include "tandem/ops/ops.h"
#include "tandem/optim/optim.h"
#include "tests/dist/ranks_helper.h"
#include "tests/support/bits.h"
#include "tests/support/errors.h"
#include "tests/support/init.h"

namespace tandem::distributed {
namespace {

struct Mlp : nn::Module {
  nn::Linear first{12, 20}, second{20, 5};
  Mlp() { TD_REGISTER(first, second); }
  Tensor forward(Tensor x) { return second(relu(first(x.flatten(1)))); }
};
struct ConvNet : nn::Module {
  nn::Conv2d conv{1, 4, {3, 3}};
  nn::BatchNorm2d norm{4};
  nn::Dropout drop{0.2};
  nn::Linear out{4 * 4, 5};
  ConvNet() { TD_REGISTER(conv, norm, drop, out); }
  Tensor forward(Tensor x) { return out(drop(max_pool2d(relu(norm(conv(x))), {2, 2}).flatten(1))); }
};
/// Without what depends on the batch's other samples or on random numbers: the fast mode computes
/// the same function.
struct PlainConvNet : nn::Module {
  nn::Conv2d conv{1, 4, {3, 3}};
  nn::Linear out{4 * 4, 5};
  PlainConvNet() { TD_REGISTER(conv, out); }
  Tensor forward(Tensor x) { return out(max_pool2d(relu(conv(x)), {2, 2}).flatten(1)); }
};

constexpr int64_t kBatch = 16;

// Batch `step` of all ranks together: [16, ...] and its labels.
std::pair<Tensor, Tensor> batch_of(int64_t step, Shape sample) {
  const GeneratorGuard random({77, static_cast<uint64_t>(step) * 8});
  std::vector<Dim> shape{kBatch};
  for (int d = 0; d < sample.rank(); ++d) shape.push_back(sample[d]);
  return {randn(Shape(shape)), randint(0, 5, {kBatch})};
}
Tensor part_of(const Tensor& x, const Engine& e) {
  const int64_t rows = x.size(0) / e.size();
  return narrow(x, 0, e.rank() * rows, rows);
}

struct Trained {
  StateDict state;
  std::vector<double> losses;
};

// Some steps, with Adam in the exact mode and with SGD, which sees the scale of a gradient, in the
// fast one; the state must be equal on all ranks, that of rank 0 is given.
template <class Net>
Trained train_on(int ranks, Shape sample, int64_t shards) {
  Trained result;
  std::mutex lock;
  std::map<int, StateDict> all;
  run_ranks(ranks, [&](const std::shared_ptr<Engine>& e) {
    manual_seed(static_cast<uint64_t>(e->rank()) + 1);  // ranks differ before they agree
    if (e->rank() == 0) manual_seed(5);
    Net net;
    DataParallel model(net, {.first_bucket_mb = 0.0002, .shards = shards}, e);
    manual_seed(9);
    std::unique_ptr<optim::Optimizer> opt;
    if (shards > 0)
      opt = std::make_unique<optim::Adam>(net.parameters(), optim::AdamOptions{.lr = 1e-2});
    else
      opt = std::make_unique<optim::SGD>(net.parameters(),
                                         optim::SGDOptions{.lr = 0.1, .momentum = 0.9});
    for (int64_t step = 0; step < 5; ++step) {
      const auto [x, y] = batch_of(step, sample);
      const Tensor own = part_of(x, *e), labels = part_of(y, *e);
      opt->zero_grad();
      double loss = 0;
      if (shards > 0) {
        const Tensor mean = model.sharded_backward(own.size(0), [&](int64_t b, int64_t end) {
          return cross_entropy(model(narrow(own, 0, b, end - b)), narrow(labels, 0, b, end - b));
        });
        loss = mean.item<double>();
      } else {
        Tensor l = cross_entropy(model(own), labels);
        l.backward();
        double sum = l.item<float>();
        e->all_reduce({&sum, 1, DType::f64}).wait();
        loss = sum / e->size();
      }
      opt->step();
      if (e->rank() == 0) result.losses.push_back(loss);
    }
    std::lock_guard hold(lock);
    all[e->rank()] = net.state_dict();
  });
  for (const auto& [rank, state] : all)
    for (const auto& [name, value] : state)
      EXPECT_TRUE(same_bits(value, all[0].at(name))) << name << " of rank " << rank;
  result.state = all[0];
  return result;
}

template <class Net>
void check_near(Shape sample) {
  const Trained one = train_on<Net>(1, sample, 0);
  for (const int ranks : {2, 4}) {
    const Trained many = train_on<Net>(ranks, sample, 0);
    for (size_t i = 0; i < one.losses.size(); ++i)
      EXPECT_NEAR(many.losses[i], one.losses[i], 1e-6) << ranks;
    for (const auto& [name, value] : one.state)
      EXPECT_TRUE(allclose(many.state.at(name), value, 0, 1e-6)) << name << ", " << ranks;
  }
}
TEST(DataParallel, ManyRanksAreNearOne) {
  check_near<Mlp>({12});
  check_near<PlainConvNet>({1, 6, 6});
}

template <class Net>
void check_bits(Shape sample) {
  const Trained one = train_on<Net>(1, sample, 4);
  EXPECT_LT(one.losses.back(), one.losses.front() + 1);
  for (const int ranks : {2, 4}) {
    const Trained many = train_on<Net>(ranks, sample, 4);
    EXPECT_EQ(many.losses, one.losses) << ranks;
    for (const auto& [name, value] : one.state)
      EXPECT_TRUE(same_bits(many.state.at(name), value)) << name << ", " << ranks;
  }
}
TEST(DataParallel, VirtualShardsGiveTheSameBits) {
  check_bits<Mlp>({12});
  check_bits<ConvNet>({1, 6, 6});
}

// One backward pass: the mean of the gradients to 1e-6, in views of flat buckets.
TEST(DataParallel, GradientsAreMeansInBuckets) {
  std::vector<Tensor> want;
  {
    const GeneratorGuard random({5, 0});
    Mlp net;
    const auto [x, y] = batch_of(0, {12});
    cross_entropy(net(x), y).backward();
    for (const Param& p : net.parameters()) want.push_back(p.grad());
  }
  run_ranks(4, [&](const std::shared_ptr<Engine>& e) {
    manual_seed(5);
    Mlp net;
    DataParallel model(net, {}, e);
    const auto batch = batch_of(0, {12});
    const Tensor x = part_of(batch.first, *e), y = part_of(batch.second, *e);
    const auto step = [&] { cross_entropy(model(x), y).backward(); };
    step();
    const std::vector<Param> params = net.parameters();
    for (size_t i = 0; i < params.size(); ++i) {
      EXPECT_TRUE(allclose(params[i].grad(), want[i], 0, 1e-6)) << params[i].name();
      EXPECT_EQ(params[i].grad().impl()->storage, params[0].grad().impl()->storage);
    }
    // A gradient that somebody holds keeps its value.
    const Tensor held = params[0].grad(), copy = held.clone();
    net.zero_grad();
    (model(x) * 3).sum().backward();
    EXPECT_TRUE(equal(held, copy));
    EXPECT_FALSE(equal(params[0].grad(), copy));
    // Without zero_grad the next pass adds to the mean.
    net.zero_grad();
    step();
    step();
    for (size_t i = 0; i < params.size(); ++i)
      EXPECT_TRUE(allclose(params[i].grad(), want[i] * 2, 0, 2e-6)) << params[i].name();
    EXPECT_EQ(model.steps(), 4);
  });
}

TEST(DataParallel, NoSyncAddsUpFirst) {
  run_ranks(2, [](const std::shared_ptr<Engine>& e) {
    manual_seed(5);
    Mlp net;
    DataParallel model(net, {}, e);
    const auto [x, y] = batch_of(0, {12});
    const Tensor own = part_of(x, *e), labels = part_of(y, *e);
    cross_entropy(model(own), labels).backward();
    std::vector<Tensor> whole;
    for (const Param& p : net.parameters()) whole.push_back(p.grad().clone());
    net.zero_grad();
    const int64_t before = e->calls();
    {
      const auto hold = model.no_sync();
      (cross_entropy(model(narrow(own, 0, 0, 4)), narrow(labels, 0, 0, 4)) / 2).backward();
      EXPECT_EQ(e->calls(), before);
    }
    (cross_entropy(model(narrow(own, 0, 4, 4)), narrow(labels, 0, 4, 4)) / 2).backward();
    size_t i = 0;
    for (const Param& p : net.parameters())
      EXPECT_TRUE(allclose(p.grad(), whole[i++], 0, 1e-6)) << p.name();
    // All of them under no_sync(), as a compiled function computes them, then reduced.
    net.zero_grad();
    auto grads = compile([&](Tensor a, Tensor b) {
      const Tensor l = cross_entropy(net(a), b);
      l.backward();
      return l;
    });
    {
      const auto hold = model.no_sync();
      grads(own, labels);
    }
    model.reduce_gradients();
    i = 0;
    for (const Param& p : net.parameters())
      EXPECT_TRUE(allclose(p.grad(), whole[i++], 0, 1e-6)) << p.name();
    // The same function without no_sync() is traced again, and reduces.
    net.zero_grad();
    grads(own, labels);
    i = 0;
    for (const Param& p : net.parameters())
      EXPECT_TRUE(allclose(p.grad(), whole[i++], 0, 1e-6)) << p.name();
    // Accumulation inside the program: it reduces once, at the end.
    net.zero_grad();
    const int64_t at = e->calls();
    auto both = compile([&](Tensor a, Tensor b) {
      {
        const auto hold = model.no_sync();
        (cross_entropy(net(narrow(a, 0, 0, 4)), narrow(b, 0, 0, 4)) / 2).backward();
      }
      (cross_entropy(net(narrow(a, 0, 4, 4)), narrow(b, 0, 4, 4)) / 2).backward();
    });
    for (int round = 0; round < 2; ++round) {
      net.zero_grad();
      both(own, labels);
      i = 0;
      for (const Param& p : net.parameters())
        EXPECT_TRUE(allclose(p.grad(), whole[i++], 0, 1e-6)) << p.name();
    }
    EXPECT_EQ(e->calls(), at + 2);  // one bucket
  });
}

// The step of a net with dropout, batch statistics and momentum as one program: what eager gives,
// to the bit, on 2 ranks.
TEST(DataParallel, CompiledStepsAreEagerOnes) {
  std::vector<Tensor> states[2];
  for (const bool compiled : {false, true})
    run_ranks(2, [&](const std::shared_ptr<Engine>& e) {
      manual_seed(5);
      ConvNet net;
      DataParallel model(net, {.first_bucket_mb = 0.0002, .sync_batchnorm = true}, e);
      optim::SGD opt(net.parameters(), {.lr = 0.1, .momentum = 0.9});
      const auto step = [&](Tensor x, Tensor y) {
        opt.zero_grad();
        const Tensor l = cross_entropy(model(x), y);
        l.backward();
        opt.step();
        return l;
      };
      auto program = compile(step);
      for (int64_t k = 0; k < 4; ++k) {
        const auto [x, y] = batch_of(k, {1, 6, 6});
        const Tensor own = part_of(x, *e), labels = part_of(y, *e);
        if (compiled)
          program(own, labels);
        else
          step(own, labels);
      }
      if (e->rank() == 0)
        for (const auto& [name, value] : net.state_dict())
          states[compiled].push_back(value.clone());
    });
  ASSERT_FALSE(states[0].empty());
  for (size_t i = 0; i < states[0].size(); ++i)
    EXPECT_TRUE(same_bits(states[0][i], states[1][i])) << i;
}

/// Batch statistics at the front and behind a ReLU.
struct Normed : nn::Module {
  nn::BatchNorm1d first{12};
  nn::Linear hidden{12, 20};
  nn::BatchNorm1d second{20, {.momentum = {}}};
  nn::Linear out{20, 5};
  Normed() { TD_REGISTER(first, hidden, second, out); }
  Tensor forward(Tensor x) { return out(second(relu(hidden(first(x))))); }
};
// Ranks with 10, 5 and 1 rows against one rank with 16: losses, gradients and running statistics.
TEST(DataParallel, SyncBatchNormIsTheWholeBatchs) {
  StateDict want;
  std::vector<Tensor> grads;
  const auto batch = batch_of(3, {12});
  const Tensor &x = batch.first, &y = batch.second;
  const auto loss = [](nn::Module&, Normed& net, const Tensor& a, const Tensor& b) {
    return cross_entropy(net(a), b, {.reduction = Reduction::sum}) / 16.0;
  };
  {
    const GeneratorGuard random({5, 0});
    Normed net;
    loss(net, net, x, y).backward();
    for (const Param& p : net.parameters()) grads.push_back(p.grad());
    want = net.state_dict();
  }
  run_ranks(3, [&](const std::shared_ptr<Engine>& e) {
    manual_seed(5);
    Normed net;
    DataParallel model(net, {.sync_batchnorm = true}, e);
    constexpr int64_t kFrom[] = {0, 10, 15, 16};
    const int64_t from = kFrom[e->rank()], rows = kFrom[e->rank() + 1] - from;
    (loss(net, net, narrow(x, 0, from, rows), narrow(y, 0, from, rows)) * 3).backward();
    size_t i = 0;
    for (const Param& p : net.parameters())
      EXPECT_TRUE(allclose(p.grad(), grads[i++], 1e-5, 1e-6)) << p.name();
    for (const auto& [name, value] : net.state_dict())
      EXPECT_TRUE(allclose(value, want.at(name), 1e-5, 1e-6)) << name;
  });
  run_ranks(2, [](const std::shared_ptr<Engine>& e) {
    Normed net;
    EXPECT_TRUE(has(thrown([&] { DataParallel(net, {.shards = 2, .sync_batchnorm = true}, e); }),
                    "expects either shards or sync_batchnorm"));
  });
}

// Calls as functions with derivatives: those of the sum of the ranks' losses.
TEST(Collectives, Derivatives) {
  run_ranks(3, [](const std::shared_ptr<Engine>& e) {
    const double r = e->rank();
    const auto grad_of = [&](const std::function<Tensor(Tensor)>& f, const Tensor& x) {
      Tensor leaf = x.detach().requires_grad_();
      f(leaf).sum().backward();
      return leaf.grad();
    };
    const Tensor x = full({4}, r + 1);
    EXPECT_TRUE(equal(all_reduce(x, ReduceOp::sum, e), full({4}, 6)));
    EXPECT_TRUE(equal(all_reduce(x, ReduceOp::max, e), full({4}, 3)));
    EXPECT_TRUE(equal(all_gather(x, e), tensor({1.0f, 2.0f, 3.0f}).unsqueeze(1).expand({3, 4})));
    EXPECT_TRUE(equal(broadcast(x, 1, e), full({4}, 2)));
    const Tensor rows = arange(12).reshape({4, 3}).t().to(DType::f32);  // not dense
    EXPECT_TRUE(equal(reduce_scatter(rows, ReduceOp::sum, e), rows.select(0, e->rank()) * 3));
    // Losses weigh ranks by 1, 2 and 3.
    const auto weigh = [&](const Tensor& y) { return y * (r + 1); };
    EXPECT_TRUE(equal(grad_of([&](Tensor a) { return weigh(all_reduce(a, ReduceOp::sum, e)); }, x),
                      full({4}, 6)));
    EXPECT_TRUE(equal(grad_of([&](Tensor a) { return weigh(all_gather(a, e)); }, x), full({4}, 6)));
    EXPECT_TRUE(
        equal(grad_of([&](Tensor a) { return weigh(reduce_scatter(a, ReduceOp::sum, e)); }, rows),
              tensor({1.0f, 2.0f, 3.0f}).unsqueeze(1).expand({3, 4})));
    EXPECT_TRUE(equal(grad_of([&](Tensor a) { return weigh(broadcast(a, 1, e)); }, x),
                      full({4}, e->rank() == 1 ? 6 : 0)));
    EXPECT_TRUE(
        has(thrown([&] { grad_of([&](Tensor a) { return all_reduce(a, ReduceOp::min, e); }, x); }),
            "all_reduce min has no derivative"));
    auto program = compile([&](Tensor a) { return all_reduce(a * 2, ReduceOp::sum, e) + 1; });
    for (int k = 0; k < 3; ++k) EXPECT_TRUE(equal(program(x), full({4}, 13)));
  });
}

/// Two branches of which a rank takes one, and one that nobody takes.
struct Branches : nn::Module {
  nn::Linear trunk{4, 4}, left{4, 1}, right{4, 1}, never{4, 1};
  Branches() { TD_REGISTER(trunk, left, right, never); }
  Tensor forward(Tensor x) { return trunk(x); }
};
TEST(DataParallel, UnusedParameters) {
  run_ranks(2, [](const std::shared_ptr<Engine>& e) {
    manual_seed(5);
    Branches net;
    DataParallel model(net, {}, e);
    for (int step = 0; step < 3; ++step) {
      net.zero_grad();
      const Tensor h = model(ones({2, 4}) * (step + 1));
      const bool left = (e->rank() + step) % 2 == 0;
      (left ? net.left : net.right)(h).sum().backward();
      // The one rank's gradient over two ranks.
      const Tensor mean = h.detach().sum({0}) / 2;
      EXPECT_TRUE(allclose(net.left.weight.grad().flatten(), mean)) << step;
      EXPECT_TRUE(allclose(net.right.weight.grad().flatten(), mean)) << step;
      EXPECT_FALSE(net.never.weight.grad().defined());
    }
  });
}

TEST(DataParallel, BuffersComeFromRankZero) {
  run_ranks(2, [](const std::shared_ptr<Engine>& e) {
    manual_seed(5);
    ConvNet net;
    DataParallel model(net, {}, e);
    model(randn({4, 1, 6, 6}) + e->rank());
    // Both see data of their own; rank 0's statistics are those of the next step.
    const Tensor own = net.norm.running_mean.value().clone();
    model.sync_buffers();
    Tensor low = net.norm.running_mean.value().clone(), high = low.clone();
    e->all_reduce({low.mutable_data<float>(), 4, DType::f32}, ReduceOp::min).wait();
    e->all_reduce({high.mutable_data<float>(), 4, DType::f32}, ReduceOp::max).wait();
    EXPECT_TRUE(equal(low, high));
    EXPECT_EQ(equal(own, low), e->rank() == 0);
  });
}

// The program of one rank is the program: no collective call, the bits of the net by itself.
TEST(DataParallel, OneRankMakesNoCall) {
  const std::shared_ptr<Engine> one = single_engine();
  const GeneratorGuard random({5, 0});
  ConvNet net;
  ConvNet same = clone(net);
  DataParallel model(net, {}, one);
  const Tensor x = batch_of(0, {1, 6, 6}).first, y = batch_of(0, {1, 6, 6}).second;
  const GeneratorState rng = generator_state();
  cross_entropy(model(x), y).backward();
  set_generator_state(rng);
  cross_entropy(same(x), y).backward();
  for (size_t i = 0; i < net.parameters().size(); ++i)
    EXPECT_TRUE(same_bits(net.parameters()[i].grad(), same.parameters()[i].grad()));
  model.sharded_backward(
      16, [&](int64_t b, int64_t end) { return model(narrow(x, 0, b, end - b)).mean(); });
  EXPECT_EQ(one->calls(), 0);
}

TEST(DataParallel, WhatIsRefused) {
  const GeneratorGuard random({5, 0});
  Mlp net;
  DataParallel model(net, {.shards = 3}, single_engine());
  const auto mean = [&](int64_t, int64_t) { return model(ones({2, 12})).mean(); };
  EXPECT_TRUE(has(thrown([&] { model.sharded_backward(4, mean); }, ErrorKind::Value),
                  "expects powers of two of ranks and shards"));
  DataParallel four(net, {.shards = 4}, single_engine());
  EXPECT_TRUE(has(thrown([&] { four.sharded_backward(6, mean); }, ErrorKind::Value),
                  "6 rows on this rank do not make 4 equal shards"));
  EXPECT_TRUE(has(thrown([&] { DataParallel m(net, {.bucket_cap_mb = -1}, single_engine()); },
                         ErrorKind::Value),
                  "buckets of more than 0 MB"));
  net.requires_grad_(false);
  EXPECT_TRUE(has(thrown([&] { DataParallel m(net, {}, single_engine()); }, ErrorKind::Value),
                  "expects a net with parameters that require gradients"));
  run_ranks(2, [](const std::shared_ptr<Engine>& e) {
    Mlp both;
    DataParallel m(both, {}, e);
    EXPECT_TRUE(has(thrown([&] { DataParallel again(both, {}, e); }), "watched already"));
    EXPECT_TRUE(has(thrown([&] {
                      m(ones({2, 12})).sum().backward({}, false, true);
                    }),
                    "reduced gradients have no graph"));
  });
}

}  // namespace
}  // namespace tandem::distributed
