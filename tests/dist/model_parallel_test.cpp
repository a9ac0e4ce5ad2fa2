// SPDX-License-Identifier: Apache-2.0
// Nets with known plans, spread by tensor, pipeline and data parallel at once, against one rank
// that holds all of them; whole states, and what is refused.
#include "tandem/dist/model_parallel.h"

#include <gtest/gtest.h>

#include <mutex>

#include "tandem/dist/data_parallel.h"
#include "tandem/dist/known_plans.h"
#include "tandem/graph/cells/deferred.h"
#include "tandem/graph/rng.h"
#include "tandem/models/pretrained.h"
#include "tandem/models/text/gpt.h"
#include "tandem/nn/nn.h"
#include "tandem/ops/ops.h"
#include "tandem/optim/optim.h"
#include "tandem/tensor/allocator.h"
#include "tests/dist/ranks_helper.h"
#include "tests/support/bits.h"
#include "tests/support/errors.h"
#include "tests/support/init.h"

namespace tandem::distributed {
namespace {

using Group = std::shared_ptr<Engine>;

/// Ids to the next ids.
struct SmallGpt {
  static models::GPT make() {
    return models::GPT(
        {.vocabulary = 31, .context = 8, .layers = 3, .heads = 4, .width = 16, .bias = true});
  }
  static Tensor loss(models::GPT& net, const Tensor& x) {
    return cross_entropy(net(x).flatten(0, 1), ((x * 3 + 1) % 31).flatten());
  }
};
/// Layers of nn::Transformer between an embedding and a head of their own.
struct SmallEncoder {
  struct Net : nn::Module {
    nn::Embedding embed{31, 16};
    std::vector<nn::TransformerEncoderLayer> layers;
    nn::Linear head{16, 31};
    Net() {
      for (int i = 0; i < 2; ++i)
        layers.emplace_back(
            16, 4,
            nn::TransformerLayerOptions{.dim_feedforward = 24, .dropout = 0, .batch_first = true});
      TD_REGISTER(embed, layers, head);
    }
    Tensor forward(const Tensor& ids) {
      Tensor x = embed(ids);
      for (auto& l : layers) x = l(x);
      return head(x);
    }
  };
  static Net make() { return {}; }
  static Tensor loss_of(const Tensor& y, const Tensor& x) {
    return cross_entropy(y.flatten(0, 1), x.flatten());
  }
  static Tensor loss(Net& net, const Tensor& x) { return loss_of(net(x), x); }
};
/// A decoder that looks at the embedding.
struct SmallDecoder {
  struct Net : nn::Module {
    nn::Embedding embed{31, 16};
    nn::TransformerDecoderLayer layer{
        16, 4,
        nn::TransformerLayerOptions{.dim_feedforward = 24, .dropout = 0, .batch_first = true}};
    nn::Linear head{16, 31};
    Net() { TD_REGISTER(embed, layer, head); }
    Tensor forward(const Tensor& ids) {
      const Tensor x = embed(ids);
      return head(layer(x, x));
    }
  };
  static Net make() { return {}; }
  static Tensor loss(Net& net, const Tensor& x) { return SmallEncoder::loss_of(net(x), x); }
};

using AnyPretrained = std::unique_ptr<models::PretrainedModel>;
AnyPretrained pretrained(const std::string& config) {
  return models::from_config(models::ModelConfig::from_json(config));
}
/// Llama or a relative of it; groups of two heads share keys and values.
struct SmallLlama {
  std::string family = "llama", classes = "Llama", own;
  AnyPretrained make() const {
    return pretrained(fmt::format(R"({{"model_type": "{}", "architectures": ["{}ForCausalLM"],
        "vocab_size": 31, "hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 4,
        "num_key_value_heads": 2, "head_dim": 4, "intermediate_size": 24,
        "max_position_embeddings": 16{}}})",
                                  family, classes, own));
  }
  static Tensor loss(models::PretrainedModel& net, const Tensor& x) {
    return cross_entropy(net.forward({.input_ids = x}).flatten(0, 1), ((x * 3 + 1) % 31).flatten());
  }
};
struct SmallBert {
  static AnyPretrained make() {
    return pretrained(R"({"model_type": "bert", "architectures": ["BertForMaskedLM"],
        "vocab_size": 31, "hidden_size": 24, "num_hidden_layers": 2, "num_attention_heads": 6,
        "intermediate_size": 36, "max_position_embeddings": 16})");
  }
  static Tensor loss(models::PretrainedModel& net, const Tensor& x) {
    return SmallLlama::loss(net, x);
  }
};

// What a case makes as the module that is spread, and as what its loss takes.
template <class Net>
Net& net_of(Net& made) {
  return made;
}
models::PretrainedModel& net_of(AnyPretrained& made) { return *made; }
nn::Module& module_of(nn::Module& made) { return made; }
nn::Module& module_of(AnyPretrained& made) { return made->module(); }

struct SpreadRun {
  std::vector<double> losses;
  StateDict state, moments;
  double norm = 0;
};

// 20 steps of one net on pp x dp x tp ranks, clipped: losses, and the whole states of the end.
template <class Case>
SpreadRun train_on(int pp, int dp, int tp, const Case& c) {
  SpreadRun result;
  std::mutex lock;
  run_ranks(pp * dp * tp, [&](const Group& e) {
    manual_seed(e->rank() == 0 ? 5 : 6);  // rank 0's values count
    auto made = c.make();
    nn::Module& net = module_of(made);
    optim::AdamW opt(net.parameters(), {.lr = 3e-3, .eps = 1e-4});
    ModelParallel spread(net, {.tp = tp, .pp = pp}, e);
    spread.shard_optimizer(opt);
    const Group& data = spread.data_group();
    DataParallel model(net, {.ignored = spread.elsewhere()}, data);
    SpreadRun own;
    for (int i = 0; i < 20; ++i) {
      Tensor batch;
      {
        const GeneratorGuard random({77, static_cast<uint64_t>(i) * 8});
        batch = randint(0, 31, {8, 8});
      }
      const int64_t rows = 8 / dp, first = data->rank() * rows;
      opt.zero_grad();
      Tensor loss;
      const auto of = [&](int64_t begin, int64_t end) {
        return Case::loss(net_of(made), batch[Slice(first + begin, first + end)]);
      };
      {
        const auto hold = model.no_sync();
        if (spread.staged()) {
          loss = spread.step(rows, 3, of);  // 2 where 3 does not divide
        } else {
          loss = of(0, rows);
          loss.backward();
        }
      }
      spread.reduce_gradients();
      model.reduce_gradients();
      own.norm = spread.clip_grad_norm_(0.5).template item<float>();
      opt.step();
      const Tensor sum = all_reduce(loss.detach().to(DType::f64).reshape({}), ReduceOp::sum, data);
      own.losses.push_back(sum.template item<double>() / dp);
    }
    own.moments = spread.optim_state_dict(opt);
    spread.unshard();
    own.state = net.state_dict();
    if (e->rank() > 0) return;
    const std::lock_guard hold(lock);
    result = own;
  });
  return result;
}

template <class Case>
void expect_one_ranks(const std::vector<std::array<int, 3>>& sizes, const Case& c = {}) {
  const SpreadRun one = train_on(1, 1, 1, c);
  ASSERT_EQ(one.losses.size(), 20u);
  EXPECT_LT(one.losses.back(), one.losses.front());
  for (const auto& [pp, dp, tp] : sizes) {
    SCOPED_TRACE(fmt::format("pp {} dp {} tp {}", pp, dp, tp));
    const SpreadRun spread = train_on(pp, dp, tp, c);
    ASSERT_EQ(spread.losses.size(), 20u);
    for (size_t i = 0; i < 20; ++i) EXPECT_NEAR(spread.losses[i], one.losses[i], 1e-5) << i;
    EXPECT_NEAR(spread.norm, one.norm, 1e-4);
    for (const auto& [name, value] : one.state)
      EXPECT_TRUE(allclose(spread.state.at(name), value, 0, 1e-5)) << name;
    for (const auto& [name, value] : one.moments) {
      ASSERT_EQ(spread.moments.at(name).shape(), value.shape()) << name;
      EXPECT_TRUE(allclose(spread.moments.at(name), value, 0, 1e-5)) << name;
    }
  }
}

TEST(ModelParallel, GptIsThatOfOneRank) {
  expect_one_ranks<SmallGpt>({{1, 1, 2}, {2, 1, 1}, {3, 1, 1}, {2, 1, 2}, {1, 2, 2}, {2, 2, 2}});
}
TEST(ModelParallel, EncoderLayersAreThoseOfOneRank) {
  expect_one_ranks<SmallEncoder>({{1, 1, 4}, {2, 1, 2}});
}

TEST(ModelParallel, DecoderLayersAreThoseOfOneRank) {
  expect_one_ranks<SmallDecoder>({{1, 1, 2}, {1, 1, 4}});
}

TEST(ModelParallel, LlamaIsThatOfOneRank) { expect_one_ranks<SmallLlama>({{1, 1, 2}, {1, 2, 2}}); }
TEST(ModelParallel, RelativesOfLlamaAreThoseOfOneRank) {
  const SmallLlama relatives[] = {
      {"mistral", "Mistral", R"(, "sliding_window": 3)"},
      {"mixtral", "Mixtral", R"(, "num_local_experts": 4)"},  // experts stay whole
      {"qwen2", "Qwen2", ""},                                 // biases
      {"qwen3", "Qwen3", ""},                                 // norms of heads
      {"gemma", "Gemma", ""},                                 // an embedding that is the output
      {"gemma2", "Gemma2", R"(, "sliding_window": 3)"},       // scores that are bounded
      {"gemma3_text", "Gemma3", R"(, "sliding_window": 3)"},
  };
  for (const SmallLlama& relative : relatives) {
    SCOPED_TRACE(relative.family);
    expect_one_ranks({{1, 1, 2}}, relative);
  }
}

TEST(ModelParallel, BertIsThatOfOneRank) { expect_one_ranks<SmallBert>({{1, 1, 2}, {1, 1, 3}}); }

TEST(ModelParallel, HeadsThatDoNotDivideAreRefused) {
  run_ranks(4, [](const Group& e) {
    const auto refusal = [&](nn::Module& net) {
      return thrown([&] { const ModelParallel spread(net, {.tp = 4}, e); }, ErrorKind::Value);
    };
    const AnyPretrained llama = SmallLlama{}.make(), bert = SmallBert::make();
    std::string text = refusal(llama->module());
    EXPECT_TRUE(has(text, "'model.layers.0' has 4 heads of attention and 2 of keys")) << text;
    EXPECT_TRUE(has(text, "Set tp to a divisor of 2.")) << text;
    text = refusal(bert->module());
    EXPECT_TRUE(has(text, "has 6 heads of attention and 6 of keys")) << text;
    EXPECT_TRUE(has(text, "Set tp to a divisor of 6.")) << text;
    auto gpt = models::GPT({.vocabulary = 31, .context = 8, .layers = 1, .heads = 2, .width = 16});
    text = refusal(gpt);
    EXPECT_TRUE(has(text, "'h.0' has 2 heads of attention")) << text;
  });
}

// Swin's blocks have BERT's names and a bias for each head, which is not sliced.
TEST(ModelParallel, AttentionThatDoesNotSayItsHeadsStaysWhole) {
  const AnyPretrained swin =
      pretrained(R"({"model_type": "swin", "image_size": 16, "patch_size": 4, "embed_dim": 8,
          "depths": [1], "num_heads": [2], "window_size": 2})");
  const ParallelPlan plan = known_plan(swin->module(), 2);
  EXPECT_FALSE(plan.empty());
  for (const auto& [path, style] : plan) EXPECT_FALSE(has(path, "attention")) << path;
}

// GPT's embedding is its output layer, too: both stages have a part of its gradient.
TEST(ModelParallel, GradientsOutsideOfBlocksKeepTheDigitsOfF64) {
  run_ranks(2, [](const Group& e) {
    manual_seed(5);
    auto net = SmallGpt::make();
    net.to(DType::f64);
    auto whole = nn::clone(net);
    const Tensor ids = randint(0, 31, {2, 8});
    SmallGpt::loss(whole, ids).backward();
    ModelParallel spread(net, {.pp = 2}, e);
    spread.step(2, 1, [&](int64_t, int64_t) { return SmallGpt::loss(net, ids); });
    spread.reduce_gradients();
    ASSERT_EQ(net.wte.weight.grad().dtype(), DType::f64);
    EXPECT_TRUE(allclose(net.wte.weight.grad(), whole.wte.weight.grad(), 0, 1e-14));
    EXPECT_TRUE(allclose(net.wpe.weight.grad(), whole.wpe.weight.grad(), 0, 1e-14));
  });
}

// A block that somebody holds already: the blocks before it are as they were.
TEST(ModelParallel, ARefusedPipelineLeavesNoHooks) {
  run_ranks(2, [](const Group& e) {
    manual_seed(5);
    auto net = SmallGpt::make();
    const Tensor ids = randint(0, 31, {2, 8});
    const Tensor before = net(ids).detach();
    net.h[1].state().around = [](nn::Module& m, Tensor x,
                                 nn::detail::ModuleState::Forward forward) {
      return forward(&m, std::move(x));
    };
    EXPECT_TRUE(
        has(thrown([&] { const ModelParallel spread(net, {.pp = 2}, e); }, ErrorKind::Unsupported),
            "has code around it already"));
    EXPECT_FALSE(net.h[0].state().around);
    EXPECT_TRUE(net.h[1].state().around);
    EXPECT_TRUE(allclose(net(ids), before, 0, 0));
  });
}

struct Chain : nn::Module {
  std::vector<nn::Linear> layers;
  Chain() {
    for (int i = 0; i < 4; ++i) layers.emplace_back(1024, 1024);
    TD_REGISTER(layers);
  }
  Tensor forward(Tensor x) {
    for (nn::Linear& l : layers) x = l(x);
    return x;
  }
};
constexpr double kNet = 4 * 4.0 * 1024 * 1024;  ///< bytes of a Chain

// Ranks share this process: together they hold one net, and one of each of Adam's moments.
TEST(ModelParallel, AStageHoldsItsOwnBlocksAlone) {
  run_ranks(2, [&](const Group& e) {
    const auto in_use = [&] {
      e->barrier().wait();
      const auto bytes = static_cast<double>(allocator_stats().in_use);
      e->barrier().wait();
      return bytes;
    };
    const double before = in_use();
    const auto nets = [&] { return (in_use() - before) / kNet; };
    Chain net;
    optim::AdamW opt(net.parameters());
    EXPECT_NEAR(nets(), 2 * 3, 0.1);
    ModelParallel spread(net, {.pp = 2}, e);
    spread.shard_optimizer(opt);
    EXPECT_NEAR(nets(), 3, 0.1);
    spread.step(2, 1, [&](int64_t, int64_t) { return net(ones({2, 1024})).mean(); });
    EXPECT_NEAR(nets(), 4, 0.1) << "with gradients";
    opt.step();
    opt.zero_grad();
    EXPECT_NEAR(nets(), 3, 0.1) << "after a step";
    EXPECT_EQ(net.layers[0].weight.shape(), Shape({1024, 1024}));
    spread.unshard();
    EXPECT_NEAR(nets(), 4, 0.1) << "whole";
    spread.reshard();
    EXPECT_NEAR(nets(), 3, 0.1) << "again";
  });
}

// Built as shapes and recipes, a stage makes what it keeps alone; the values are rank 0's.
TEST(ModelParallel, ADeferredNetIsMadeInParts) {
  run_ranks(2, [&](const Group& e) {
    const auto in_use = [&](bool most = false) {
      e->barrier().wait();
      const auto bytes =
          static_cast<double>(most ? allocator_stats().peak : allocator_stats().in_use);
      e->barrier().wait();
      if (e->rank() == 0) reset_allocator_peak();
      e->barrier().wait();
      return bytes;
    };
    const double before = in_use();
    manual_seed(static_cast<uint64_t>(5 + e->rank()));
    Chain net = deferred_init([] { return Chain(); });
    optim::AdamW opt = deferred_init([&] { return optim::AdamW(net.parameters()); });
    EXPECT_NEAR((in_use() - before) / kNet, 0, 0.05);
    ModelParallel spread(net, {.pp = 2}, e);
    spread.shard_optimizer(opt);
    EXPECT_LT((in_use(true) - before) / kNet, 1 + 2 * 0.25 + 0.1) << "and a layer on each rank";
    EXPECT_NEAR((in_use() - before) / kNet, 1, 0.1);
    spread.step(2, 1, [&](int64_t, int64_t) { return net(ones({2, 1024})).mean(); });
    opt.step();
    opt.zero_grad();
    EXPECT_NEAR((in_use() - before) / kNet, 3, 0.1);
  });
  for (const ModelParallelSizes& sizes : {ModelParallelSizes{2, 1}, {1, 2}, {2, 2}})
    run_ranks(4, [&](const Group& e) {
      const auto make = [] {
        return models::GPT({.vocabulary = 31, .context = 8, .layers = 3, .heads = 4, .width = 64});
      };
      manual_seed(static_cast<uint64_t>(5 + e->rank()));
      models::GPT net = deferred_init(make);
      ModelParallel spread(net, sizes, e);
      spread.unshard();
      const GeneratorGuard of_rank_0({5, 0});
      for (const auto& [name, v] : make().state_dict())
        EXPECT_TRUE(same_bits(*net.state_dict().find(name), v)) << name;
    });
}

// A block's weight that something outside of it computes with belongs to two stages.
TEST(ModelParallel, ParametersOfBlocksThatAreUsedElsewhereAreRefused) {
  run_ranks(2, [](const Group& e) {
    auto net = SmallGpt::make();
    net.ln_f.weight = net.h[0].ln_1.weight;
    EXPECT_TRUE(
        has(thrown([&] { const ModelParallel spread(net, {.pp = 2}, e); }, ErrorKind::Unsupported),
            "'ln_f' shares a parameter with a block of the pipeline"));
  });
}

// Whole, changed by somebody, and in slices again.
TEST(ModelParallel, ANetIsWholeForAWhile) {
  run_ranks(4, [](const Group& e) {
    manual_seed(5);
    auto net = SmallGpt::make();
    const Tensor ids = randint(0, 31, {2, 8});
    const Tensor before = net(ids).detach();
    ModelParallel spread(net, {.tp = 2, .pp = 2}, e);
    EXPECT_EQ(net.h[0].c_fc.weight.shape(), Shape({32, 16}));
    spread.unshard();
    EXPECT_EQ(net.h[0].c_fc.weight.shape(), Shape({64, 16}));
    const NoGradGuard no_grad;
    EXPECT_TRUE(allclose(net(ids), before, 0, 0));
    net.h[0].c_fc.weight.assign_(net.h[0].c_fc.weight.value() * 2.0);
    spread.reshard();
    EXPECT_EQ(net.h[0].c_fc.weight.shape(), Shape({32, 16}));
    spread.unshard();
    EXPECT_FALSE(allclose(net(ids), before, 0, 1e-6));
  });
}

TEST(ModelParallel, WhatHasNoPlanIsRefusedByName) {
  run_ranks(2, [](const Group& e) {
    nn::Sequential mlp(nn::Linear(4, 4), nn::ReLU(), nn::Linear(4, 4));
    const auto with = [&](nn::Module& net, ModelParallelSizes sizes) {
      return [&net, sizes, e] { const ModelParallel spread(net, sizes, e); };
    };
    EXPECT_TRUE(has(thrown(with(mlp, {.tp = 2}), ErrorKind::Unsupported),
                    "no plan is known that spreads the layers of a Sequential"));
    const AnyPretrained packed = SmallLlama{"phi3", "Phi3", ""}.make();
    EXPECT_TRUE(
        has(thrown(with(packed->module(), {.tp = 2}), ErrorKind::Unsupported), "no plan is known"));
    EXPECT_TRUE(
        has(thrown(with(mlp, {.pp = 2}), ErrorKind::Unsupported), "no list of equal layers"));
    auto gpt = SmallGpt::make();
    EXPECT_TRUE(has(thrown(with(gpt, {.tp = 4}), ErrorKind::Value), "tandem launch -n 4"));
    const int64_t much = int64_t{1} << 32;  // squared it is 0
    EXPECT_TRUE(has(thrown(with(gpt, {.tp = much, .pp = much}), ErrorKind::Value),
                    "Set sizes from 1 to 2."));
    auto few = models::GPT({.vocabulary = 31, .context = 8, .layers = 1, .heads = 4, .width = 16});
    EXPECT_TRUE(
        has(thrown(with(few, {.pp = 2}), ErrorKind::Unsupported), "no list of equal layers"));
  });
}

// A net that looks at its blocks' results, or leaves one out, is no chain.
TEST(ModelParallel, NetsThatAreNoChainAreRefused) {
  struct Skips : nn::Module {
    std::vector<nn::Linear> layers;
    bool leaves_out;
    explicit Skips(bool leaves_out) : leaves_out(leaves_out) {
      for (int i = 0; i < 4; ++i) layers.emplace_back(4, 4);
      TD_REGISTER(layers);
    }
    Tensor forward(Tensor x) {
      const Tensor in = x;
      for (size_t i = 0; i < (leaves_out ? 3 : 4); ++i)
        x = layers[i](i == 2 && !leaves_out ? x + in : x);
      return x;
    }
  };
  for (const bool leaves_out : {true, false}) {
    const std::vector<std::string> errors = errors_of_ranks(2, [&](const Group& e) {
      Skips net(leaves_out);
      ModelParallel spread(net, {.pp = 2}, e);
      spread.step(2, 1, [&](int64_t, int64_t) { return net(ones({2, 4})).mean(); });
    });
    EXPECT_TRUE(has(errors[1], leaves_out ? "each of its blocks once, 3 of 4 were"
                                          : "something else between its blocks 1 and 2"))
        << errors[1];
  }
}

}  // namespace
}  // namespace tandem::distributed
