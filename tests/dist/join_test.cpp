// SPDX-License-Identifier: Apache-2.0
// Ranks with unequal numbers of batches: who has no more takes part in the others' steps, and all
// end with the same parameters, moments and buffers.
#include "tandem/dist/join.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "tandem/compile/compile.h"
#include "tandem/nn/nn.h"
#include "tandem/ops/ops.h"
#include "tandem/optim/optim.h"
#include "tests/dist/ranks_helper.h"
#include "tests/support/errors.h"
#include "tests/support/init.h"

namespace tandem::distributed {
namespace {

struct NormNet : nn::Module {
  nn::Linear first{6, 8, {.bias = false}};  // of a bias before a norm the gradient is rounding
  nn::Linear last{8, 3};
  nn::BatchNorm1d norm{8};
  NormNet() { TD_REGISTER(first, norm, last); }
  Tensor forward(Tensor x) { return last(relu(norm(first(x)))); }
};

constexpr int kRows = 4;
Tensor batch_of(int rank, int64_t step) {
  return sin(arange(kRows * 6).to(float32) * (0.3 + 0.1 * rank) + static_cast<double>(step))
      .reshape({kRows, 6});
}
Tensor loss_of(const Tensor& y) { return (y * y).mean(); }

struct JoinCase {
  std::vector<int64_t> batches;  ///< of each rank
  bool of_all = true;            ///< divide_by_initial_world_size
  int64_t accumulate = 1;
  bool compiled = false;  ///< all but the calls
  Sharding sharding = Sharding::none;
};
void PrintTo(const JoinCase& c, std::ostream* out) {
  for (const int64_t n : c.batches) *out << n << " ";
  *out << (c.of_all ? "of all" : "of those left") << " x" << c.accumulate
       << (c.compiled ? " compiled" : "") << " sharding " << static_cast<int>(c.sharding);
}

struct Ended {
  std::vector<Tensor> weights, moments, buffers;
  int64_t without = 0;
};
Ended ended(NormNet& net, const StateDict& moments) {
  Ended e;
  for (const Param& p : net.parameters()) e.weights.push_back(p.value().clone());
  for (const auto& [name, v] : moments) e.moments.push_back(v.clone());
  for (const Buffer& b : net.buffers()) e.buffers.push_back(b.value().clone());
  return e;
}

Ended of_rank(const JoinCase& c, const std::shared_ptr<Engine>& e) {
  manual_seed(3);
  NormNet net;
  DataParallel model(net, {.sharding = c.sharding}, e);
  optim::AdamW opt(model.parameters(), {.lr = 0.01});
  Join join(model, [&] { opt.step(); }, {.divide_by_initial_world_size = c.of_all});
  auto pass_of_net = compile([&](Tensor x) {
    const auto hold = model.no_sync();
    const Tensor l = loss_of(net(x));
    l.backward();
    return l.detach();
  });
  for (int64_t i = 0; i < c.batches[static_cast<size_t>(e->rank())]; ++i) {
    const bool last = (i + 1) % c.accumulate == 0;
    if (i % c.accumulate == 0) opt.zero_grad();
    const auto pass = [&] {
      const Tensor x = batch_of(e->rank(), i);
      if (!c.compiled) return loss_of(model(x)).backward();
      model.sync_buffers();
      pass_of_net(x);
      model.reduce_gradients();
    };
    if (last) {
      pass();
    } else {
      const auto hold = model.no_sync();
      pass();
    }
    if (last) opt.step();
  }
  join.finish();
  Ended out = ended(net, model.optim_state_dict(opt));
  out.without = join.steps_without_batch();
  return out;
}

// The same by one process: means of the gradients of those that have a batch.
Ended of_one(const JoinCase& c) {
  manual_seed(3);
  NormNet net;
  optim::AdamW opt(net.parameters(), {.lr = 0.01});
  const int64_t most = *std::max_element(c.batches.begin(), c.batches.end());
  for (int64_t i = 0; i < most; ++i) {
    if (i % c.accumulate == 0) opt.zero_grad();
    std::vector<Tensor> before, kept;
    for (const Buffer& b : net.buffers()) before.push_back(b.value().clone());
    Tensor sum;
    int64_t active = 0;
    for (size_t r = 0; r < c.batches.size(); ++r) {
      if (i >= c.batches[r]) continue;
      for (size_t k = 0; k < before.size(); ++k) net.buffers()[k].assign_(before[k]);
      const Tensor l = loss_of(net(batch_of(static_cast<int>(r), i)));
      sum = sum.defined() ? sum + l : l;
      // The first rank that has a batch keeps the statistics.
      if (active++ == 0)
        for (const Buffer& b : net.buffers()) kept.push_back(b.value().clone());
    }
    for (size_t k = 0; k < kept.size(); ++k) net.buffers()[k].assign_(kept[k]);
    const auto n = static_cast<double>(c.of_all ? static_cast<int64_t>(c.batches.size()) : active);
    (sum / n).backward();
    if ((i + 1) % c.accumulate == 0) opt.step();
  }
  return ended(net, opt.state_dict());
}

void expect_near(const std::vector<Tensor>& a, const std::vector<Tensor>& b, double tolerance,
                 const char* what) {
  ASSERT_EQ(a.size(), b.size());
  for (size_t i = 0; i < a.size(); ++i)
    EXPECT_TRUE(allclose(a[i].to(float64), b[i].to(float64), tolerance, tolerance))
        << what << " " << i << ": " << fmt::format("{}", a[i]) << " and "
        << fmt::format("{}", b[i]);
}

class Joins : public ::testing::TestWithParam<JoinCase> {};
TEST_P(Joins, EndLikeOneRank) {
  const JoinCase& c = GetParam();
  const auto n = c.batches.size();
  std::vector<Ended> all(n);
  run_ranks(static_cast<int>(n), [&](const std::shared_ptr<Engine>& e) {
    all[static_cast<size_t>(e->rank())] = of_rank(c, e);
  });
  const Ended want = of_one(c);
  const int64_t most = *std::max_element(c.batches.begin(), c.batches.end());
  for (size_t r = 0; r < n; ++r) {
    SCOPED_TRACE(r);
    EXPECT_EQ(all[r].without, most - c.batches[r]);
    expect_near(all[r].weights, all[0].weights, 0, "weights");
    expect_near(all[r].moments, all[0].moments, 0, "moments");
    expect_near(all[r].buffers, all[0].buffers, 0, "buffers");
  }
  expect_near(all[0].weights, want.weights, 1e-5, "weights of one rank");
  expect_near(all[0].moments, want.moments, 1e-5, "moments of one rank");
  expect_near(all[0].buffers, want.buffers, 1e-5, "buffers of one rank");
}
INSTANTIATE_TEST_SUITE_P(Numbers, Joins,
                         ::testing::Values(JoinCase{{3, 3}}, JoinCase{{5, 2}}, JoinCase{{1, 4, 6}},
                                           JoinCase{{0, 2, 3}}, JoinCase{{4, 1, 2}, false},
                                           JoinCase{{6, 2, 4}, true, 2}, JoinCase{{4}},
                                           JoinCase{{1, 4, 6}, true, 1, true},
                                           JoinCase{{2, 5}, false, 1, true},
                                           JoinCase{{1, 4, 6}, true, 1, false, Sharding::zero1},
                                           JoinCase{{0, 2, 3}, true, 1, false, Sharding::zero2},
                                           JoinCase{{4, 1, 2}, false, 1, false, Sharding::zero1},
                                           JoinCase{{6, 2, 4}, true, 2, false, Sharding::zero1},
                                           JoinCase{{6, 2, 4}, true, 2, false, Sharding::zero2},
                                           JoinCase{{2, 5}, false, 1, true, Sharding::zero1},
                                           JoinCase{{4}, true, 1, false, Sharding::zero1}));

TEST(Join, EndsAllWhereAsked) {
  const std::vector<std::string> errors = errors_of_ranks(3, [](const std::shared_ptr<Engine>& e) {
    NormNet net;
    DataParallel model(net, {}, e);
    optim::SGD opt(net.parameters(), {.lr = 0.01});
    Join join(model, [&] { opt.step(); }, {.throw_on_early_termination = true});
    for (int64_t i = 0; i < (e->rank() == 1 ? 2 : 3); ++i) {
      opt.zero_grad();
      loss_of(model(batch_of(e->rank(), i))).backward();
      opt.step();
    }
    join.finish();
  });
  for (const std::string& text : errors)
    EXPECT_TRUE(has(text, "rank 1 has no more batches, and 2 of 3 ranks have")) << text;
}

TEST(Join, WhatIsRefused) {
  run_ranks(2, [](const std::shared_ptr<Engine>& e) {
    NormNet net;
    const auto nothing = [] {};
    {
      DataParallel sharded(net, {.sharding = Sharding::zero3}, e);
      EXPECT_TRUE(has(thrown([&] { Join join(sharded, nothing); }, ErrorKind::Unsupported),
                      "Join with Sharding::zero3"));
      sharded.restore();
    }
    {
      DataParallel synced(net, {.sync_batchnorm = true}, e);
      EXPECT_TRUE(has(thrown([&] { Join join(synced, nothing); }, ErrorKind::Unsupported),
                      "Join with sync_batchnorm"));
    }
    DataParallel model(net, {}, e);
    EXPECT_TRUE(has(thrown([&] { Join join(model, {}); }, ErrorKind::Value), "such as opt.step()"));
    Join join(model, nothing);
    EXPECT_TRUE(
        has(thrown([&] { Join twice(model, nothing); }, ErrorKind::Unsupported), "a second Join"));
    auto step = compile([&](Tensor x) { return model(x).sum(); });
    EXPECT_TRUE(has(thrown([&] { step(batch_of(0, 0)); }, ErrorKind::Unsupported),
                    "a step of a Join in compile()"));
  });
}

// A rank that throws does not wait for the others in its Join.
TEST(Join, AnErrorPassesThrough) {
  const std::vector<std::string> errors = errors_of_ranks(2, [](const std::shared_ptr<Engine>& e) {
    NormNet net;
    DataParallel model(net, {}, e);
    optim::SGD opt(net.parameters(), {.lr = 0.01});
    Join join(model, [&] { opt.step(); });
    TD_CHECK(e->rank() == 1, Value, "the data ends here");
  });
  EXPECT_TRUE(has(errors[0], "the data ends here")) << errors[0];
  EXPECT_TRUE(has(errors[1], "has left the group") || has(errors[1], "rank 0 (host")) << errors[1];
}

}  // namespace
}  // namespace tandem::distributed
