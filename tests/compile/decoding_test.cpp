// SPDX-License-Identifier: Apache-2.0
// Steps of decoders: they write their caches, and a text has the same bits in every batch.
#include "tests/compile/helpers.h"

#include "tandem/ops/matmul/packed.h"

namespace tandem::test {
namespace {

// A decoder writes its cache; the weights beside it stay and are packed.
TEST(Decoding, ModulesThatWriteStateReadPackedWeights) {
  manual_seed(8);
  NoGradGuard no_grad;
  struct Cached : nn::Module {
    nn::Linear fc{64, 96};
    Buffer cache{zeros({4, 64})}, steps{zeros({}, DType::i64)};
    Cached() { TD_REGISTER(fc, cache, steps); }
    Tensor forward(Tensor x) {
      cache.assign_(cache * 0.5 + x);
      steps.assign_(steps + 1);
      return fc(cache);
    }
  } net, eager;
  eager.load_state_dict(net.state_dict());
  const Tensor x = randn({4, 64});
  for (const bool same : {true, false})
    for (const bool training : {false, true}) {
      net.train(training);
      eager.train(training);
      auto step = compile([&](Tensor v) { return net(v); }, {.same_bits = same});
      for (int k = 0; k < 3; ++k) {
        EXPECT_LE(distance(step(x), eager(x)), same ? 0 : 2e-5) << same << training;
        EXPECT_TRUE(same_bits(net.cache, eager.cache)) << same << training;
      }
      EXPECT_EQ(count_ops(step.executable(), op::packed_matmul), training ? 0 : 1);
      net.fc.weight.assign_(net.fc.weight * 2);
      eager.fc.weight.assign_(eager.fc.weight * 2);
      EXPECT_LE(distance(step(x), eager(x)), same ? 0 : 2e-5) << "the weight was written";
    }
  EXPECT_EQ(Tensor(net.steps).item<int64_t>(), 16);
}

// What is added to one row is not a bias, where a sum would start: a row among others has a
// residual.
TEST(Decoding, ARowHasTheBitsThatItHasAmongOthers) {
  manual_seed(9);
  NoGradGuard no_grad;
  struct Block : nn::Module {
    nn::RMSNorm norm{64};
    nn::Linear gate{64, 704, {.bias = false}}, up{64, 704, {.bias = false}},
        down{704, 64, {.bias = false}};
    Block() { TD_REGISTER(norm, gate, up, down); }
    Tensor forward(Tensor x) {
      const Tensor h = norm(x);
      return x + down(silu(gate(h)) * up(h));
    }
  } net;
  net.eval();
  auto f = compile([&](Tensor x) { return net(x); }, {.same_bits = false});
  const Tensor all = randn({16, 1, 64}), alone = f(all.slice(0, 0, 1));
  EXPECT_EQ(count_ops(f.executable(), op::packed_matmul), 3);
  for (const int64_t n : {2, 4, 8, 16})
    EXPECT_TRUE(same_bits(f(all.slice(0, 0, n)).slice(0, 0, 1), alone)) << n << " rows";
}

}  // namespace
}  // namespace tandem::test
