// SPDX-License-Identifier: Apache-2.0
// Fine-tuning: which names a pattern matches, what freezing excludes, how deep parameters are, and
// LoRA on the layers of a whole net: the same numbers initially, only the updates trained, separate
// updates in clones, and the merged net equal to the unmerged one.
#include <gtest/gtest.h>

#include "tandem/nn/fine_tune.h"
#include "tandem/tandem.h"
#include "tests/io/io_helper.h"
#include "tests/support/values.h"

namespace tandem::nn {
namespace {

struct Block : Module {
  explicit Block(int64_t n) : fc1(n, 2 * n), fc2(2 * n, n) { TD_REGISTER(fc1, fc2); }
  Tensor forward(Tensor x) { return x + fc2(relu(fc1(x))); }
  Linear fc1, fc2;
};
struct Encoder : Module {
  Encoder() : blocks{Block(8), Block(8), Block(8)} { TD_REGISTER(blocks); }
  Tensor forward(Tensor x) {
    for (Block& b : blocks) x = b(x);
    return x;
  }
  std::vector<Block> blocks;
};
struct EncoderNet : Module {
  EncoderNet() : token(randn({8})), embed(4, 8), encoder(), head(8, 3) {
    TD_REGISTER(token, embed, encoder, head);
  }
  Tensor forward(Tensor x) { return head(encoder(embed(x) + token)); }
  Param token;
  Linear embed;
  Encoder encoder;
  Linear head;
};

TEST(FineTune, Patterns) {
  EXPECT_TRUE(name_matches("layer4", "layer4.0.weight"));
  EXPECT_TRUE(name_matches("layer*", "layer4.0.weight"));
  EXPECT_TRUE(name_matches("*.bias", "layer4.0.bias"));
  EXPECT_TRUE(name_matches("layer?.0", "layer4.0.bias"));
  EXPECT_FALSE(name_matches("layer", "layer4.0.bias"));
  EXPECT_FALSE(name_matches("layer4.0.bias", "layer4.0"));
  EXPECT_FALSE(name_matches("*.bias", "layer4.0.bias_ih"));
}

TEST(FineTune, FreezesByName) {
  EncoderNet net;
  EXPECT_EQ(freeze(net, {"encoder.blocks.0", "embed.*", "embed.weight"}), 6u);
  for (const auto& [name, p] : net.named_parameters())
    EXPECT_EQ(p.requires_grad(),
              !name.starts_with("embed") && !name.starts_with("encoder.blocks.0"))
        << name;
  EXPECT_EQ(error_of([&] { freeze(net, {"encodr"}); }),
            "Value: 'encodr' matches no parameter or module of the model, did you mean 'encoder'?");
}

TEST(FineTune, DepthsFollowTheNet) {
  // The encoder holds most parameters: its blocks count. Parameters of the net itself belong to the
  // next block.
  EncoderNet net;
  const std::vector<int64_t> depths = parameter_depths(net);
  const auto named = net.named_parameters();
  ASSERT_EQ(depths.size(), named.size());
  for (size_t i = 0; i < named.size(); ++i) {
    const std::string& name = named[i].first;
    const int64_t want = name == "token" || name.starts_with("embed") ? 0
                         : name.starts_with("head")                   ? 4
                                                    : 1 + (name[15] - '0');  // encoder.blocks.N
    EXPECT_EQ(depths[i], want) << name;
  }
  Sequential flat(Linear(2, 2), ReLU(), Sequential(Linear(2, 2), Linear(2, 2)));
  EXPECT_EQ(parameter_depths(flat), (std::vector<int64_t>{0, 0, 1, 1, 2, 2}));
  EXPECT_EQ(parameter_depths(Linear(2, 2)), (std::vector<int64_t>{0, 0}));
  Sequential uneven(Linear(9, 9), Linear(9, 1));  // most lies in one layer
  EXPECT_EQ(parameter_depths(uneven), (std::vector<int64_t>{0, 0, 1, 1}));
}

TEST(FineTune, LoraTrainsItsUpdatesOnly) {
  manual_seed(3);
  EncoderNet net;
  const Tensor x = randn({5, 4});
  const std::vector<float> before = values(net(x));
  const StateDict base = clone(net).state_dict();
  EXPECT_EQ(apply_lora(net, {.r = 2, .alpha = 4, .on = {"*fc?"}, .train = {"head.bias"}}),
            (std::vector<std::string>{"encoder.blocks.0.fc1", "encoder.blocks.0.fc2",
                                      "encoder.blocks.1.fc1", "encoder.blocks.1.fc2",
                                      "encoder.blocks.2.fc1", "encoder.blocks.2.fc2"}));
  EXPECT_EQ(values(net(x)), before) << "B starts at zero";
  EXPECT_EQ(net.state_dict().at("encoder.blocks.1.fc1.lora_A.weight").shape(), Shape(2, 8));
  EXPECT_EQ(net.state_dict().at("encoder.blocks.1.fc1.lora_B.weight").shape(), Shape(16, 2));

  std::vector<Param> trained;
  for (const Param& p : net.parameters())
    if (p.requires_grad()) trained.push_back(p);
  EXPECT_EQ(trained.size(), 13u);
  optim::SGD opt(trained, {.lr = 0.1});
  auto step = compile([&](Tensor in) {
    opt.zero_grad();
    const Tensor loss = net(in).square().mean();
    loss.backward();
    opt.step();
    return loss;
  });
  const float first = step(x).item<float>();
  for (int i = 0; i < 20; ++i) step(x);
  EXPECT_LT(step(x).item<float>(), 0.9F * first);
  for (const auto& [name, t] : base) {
    if (name == "head.bias")
      EXPECT_NE(values(net.state_dict().at(name)), values(t));
    else
      EXPECT_EQ(values(net.state_dict().at(name)), values(t)) << name;
  }

  // A clone has its own updates.
  const std::vector<float> tuned = values(net(x));
  EncoderNet copy = clone(net);
  copy.encoder.blocks[0].fc1.weight.assign_(0.0);
  for (const auto& [name, p] : copy.named_parameters())
    if (name.ends_with("lora_B.weight")) Param(p).assign_(1.0);
  EXPECT_NE(values(copy(x)), tuned);
  EXPECT_EQ(values(net(x)), tuned);
  EncoderNet again;
  apply_lora(again, {.r = 2, .alpha = 4, .on = {"*fc?"}});
  again.load_state_dict(net.state_dict());
  EXPECT_EQ(values(again(x)), tuned);

  EXPECT_EQ(merge_lora(net), 6u);
  const std::vector<float> merged = values(net(x));
  for (size_t i = 0; i < merged.size(); ++i) EXPECT_NEAR(merged[i], tuned[i], 1e-5);
  std::vector<std::string> names, plain;
  for (const auto& [name, t] : net.state_dict()) names.push_back(name);
  for (const auto& [name, t] : base) plain.push_back(name);
  EXPECT_EQ(names, plain);
  EXPECT_EQ(merge_lora(net), 0u);
  EXPECT_EQ(values(again(x)), tuned) << "merging one net left another alone";
}

TEST(FineTune, LoraMistakes) {
  EncoderNet net;
  EXPECT_EQ(error_of([&] { apply_lora(net, {.on = {"haed"}}); }),
            "Value: 'haed' matches no Linear layer of the model, did you mean 'head'?");
  EXPECT_EQ(error_of([&] { apply_lora(net, {.r = 0}); }),
            "Value: LoRA expects a rank r > 0, got 0.");
  for (const Param& p : net.parameters()) EXPECT_TRUE(p.requires_grad()) << "nothing has changed";
  apply_lora(net);
  EXPECT_EQ(error_of([&] { apply_lora(net); }),
            "Value: 'embed' already has a LoRA update. Call merge_lora() first.");
  Sequential conv(Conv2d(1, 1, 3));
  EXPECT_TRUE(
      error_of([&] { apply_lora(conv); }).starts_with("Value: LoRA: the model has no Linear"));
}

}  // namespace
}  // namespace tandem::nn
