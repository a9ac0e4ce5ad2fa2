// SPDX-License-Identifier: Apache-2.0
// Compiled programs on devices: casts of autocast go into the kernels that convert, and the bits
// stay those of the same code run op by op.
#include "tandem/compile/passes/passes.h"
#include "tandem/graph/backend.h"
#include "tandem/tandem.h"
#include "tests/gpu/tensors_helper.h"
#include "tests/support/bits.h"

namespace tandem::gpu {
namespace {

// Norms, a softmax and a loss between matmuls.
struct Normed : nn::Module {
  nn::Linear in{12, 16}, gate{16, 16}, out{16, 5};
  nn::LayerNorm centred{16};
  nn::RMSNorm scaled{16};
  Normed() { TD_REGISTER(in, gate, out, centred, scaled); }
  Tensor forward(const Tensor& x) { return out(centred(softmax(gate(scaled(gelu(in(x)))), 1))); }
};

struct Training {
  Normed net;
  optim::SGD opt;
  explicit Training(tandem::Device device) : net(on(device)), opt(net.parameters(), {.lr = 0.1}) {}
  static Normed on(tandem::Device device) {
    manual_seed(5);
    Normed n;
    n.to(device);
    return n;
  }
  Tensor step(const Tensor& x, const Tensor& labels) {
    Tensor loss;
    {
      const AutocastGuard cast(bfloat16);
      loss = cross_entropy(net(x), labels);
    }
    opt.zero_grad();
    loss.backward();
    opt.step();
    return loss;
  }
};

class Compiled : public OverDevices {
 protected:
  void SetUp() override {
    OverDevices::SetUp();
    if (IsSkipped()) return;
    manual_seed(4);
    x_ = randn({7, 12}).to(device_);
    labels_ = randint(0, 5, {7}).to(device_);
  }
  Tensor x_, labels_;
};
TD_OVER_DEVICES(Compiled);

TEST_P(Compiled, CastsGoIntoKernelsThatConvert) {
  Training t(device_);
  const Spec specs[] = {spec_of(x_), spec_of(labels_)};
  const Ref<Graph> g = trace(
      [&](std::span<const Tensor> in) -> std::vector<Tensor> { return {t.step(in[0], in[1])}; },
      specs, Captures::refuse);
  compiler::Program p = compiler::make_program(*g, {}, false);
  compiler::run_passes(p);
  int converted = 0;
  for (const compiler::Instr& i : p.instrs) converted += i.converted;
  EXPECT_GE(converted, 5) << p.to_string();
}

TEST_P(Compiled, AutocastHasTheBitsOfEager) {
  Training eager(device_), compiled(device_);
  auto fast = compile([&](const Tensor& x, const Tensor& y) { return compiled.step(x, y); });
  for (int i = 0; i < 4; ++i) {
    const Tensor want = eager.step(x_, labels_), got = fast(x_, labels_);
    EXPECT_TRUE(same_bits(want, got)) << "loss of step " << i;
  }
  const StateDict want = eager.net.state_dict(), got = compiled.net.state_dict();
  for (const auto& [name, value] : want) EXPECT_TRUE(same_bits(value, got.at(name))) << name;
}

}  // namespace
}  // namespace tandem::gpu
