// SPDX-License-Identifier: Apache-2.0
// Nets whose layers are spread over ranks against one rank that holds all of them: tensor and
// sequence parallel, vocabularies in parts, experts, meshes; states, norms, and what is refused.
#include "tandem/dist/tensor_parallel.h"

#include <gtest/gtest.h>

#include <functional>
#include <mutex>

#include "tandem/compile/compile.h"
#include "tandem/dist/data_parallel.h"
#include "tandem/dist/device_mesh.h"
#include "tandem/graph/rng.h"
#include "tandem/models/text/gpt.h"
#include "tandem/nn/moe.h"
#include "tandem/nn/nn.h"
#include "tandem/ops/ops.h"
#include "tandem/optim/optim.h"
#include "tests/dist/ranks_helper.h"
#include "tests/support/bits.h"
#include "tests/support/errors.h"
#include "tests/support/init.h"

namespace tandem::distributed {
namespace {

using Group = std::shared_ptr<Engine>;
constexpr int kSteps = 20;

struct ParallelRun {
  StateDict state, moments;
  std::vector<double> losses;
  double norm = 0;
};

/// A net, how it is spread, its batches and the loss of one.
struct SpreadGpt {
  static constexpr int64_t kVocabulary = 31;  // does not divide
  using Net = models::GPT;
  static Net make() {
    return Net({.vocabulary = kVocabulary,
                .context = 8,
                .layers = 2,
                .heads = 4,
                .width = 16,
                .bias = true});
  }
  static ParallelPlan plan() {
    return {{"wte", RowwiseParallel{}},          {"h.*.c_attn", ColwiseParallel{.parts = 3}},
            {"h.*.c_proj", RowwiseParallel{}},   {"h.*.c_fc", ColwiseParallel{}},
            {"h.*.mlp_proj", RowwiseParallel{}}, {"ln_f", PrepareModuleOutput{}}};
  }
  static std::pair<Tensor, Tensor> batch() {
    const Tensor ids = randint(0, kVocabulary, {4, 8});
    return {ids, (ids * 3 + 1) % kVocabulary};
  }
  static Tensor loss(Net& net, const Tensor& x, const Tensor& y, const Group& g) {
    return parallel_cross_entropy(net(x), y, g, {.vocabulary = kVocabulary});
  }
};
/// The same with slices of time between the layers that are spread.
struct SequenceGpt : SpreadGpt {
  static ParallelPlan plan() {
    return {{"wte", RowwiseParallel{.output = Layout::sequence}},
            {"wpe", PrepareModuleOutput{.desired = Layout::sequence, .sequence_dim = 0}},
            {"h.*.ln_?", SequenceParallel{}},
            {"h.*.c_attn", ColwiseParallel{.input = Layout::sequence, .parts = 3}},
            {"h.*.c_proj", RowwiseParallel{.output = Layout::sequence}},
            {"h.*.c_fc", ColwiseParallel{.input = Layout::sequence}},
            {"h.*.mlp_proj", RowwiseParallel{.output = Layout::sequence}},
            {"ln_f", SequenceParallel{.output = Layout::shared}}};
  }
};
/// Attention with its own projections, an embedding by columns, a result that is gathered.
struct SpreadEncoder {
  struct Net : nn::Module {
    nn::Embedding embed{23, 16, {.padding_idx = 2}};
    nn::TransformerEncoderLayer layer{
        16, 4, {.dim_feedforward = 24, .dropout = 0, .activation = "gelu", .batch_first = true}};
    nn::MultiheadAttention pool{16, 4, {.add_bias_kv = true, .kdim = 16, .num_kv_heads = 4}};
    nn::Linear head{16, 12};
    Net() { TD_REGISTER(embed, layer, pool, head); }
    Tensor forward(Tensor x) {
      const Tensor y = layer(embed(x));
      return head(pool(y, y, y)).mean({1});
    }
  };
  static Net make() { return {}; }
  static ParallelPlan plan() {
    return {{"embed", RowwiseParallel{}},
            {"layer.self_attn", AttentionParallel{}},
            {"layer.linear1", ColwiseParallel{}},
            {"layer.linear2", RowwiseParallel{}},
            {"pool", AttentionParallel{}},
            {"head", ColwiseParallel{.output = Layout::replicated}}};
  }
  static std::pair<Tensor, Tensor> batch() {
    const Tensor ids = randint(0, 23, {6, 5});
    return {ids, select(ids, 1, 0) % 12};
  }
  static Tensor loss(Net& net, const Tensor& x, const Tensor& y, const Group&) {
    return cross_entropy(net(x), y);
  }
};

template <class Case>
ParallelRun train_spread(int ranks, double clip = 0, bool compiled = false) {
  ParallelRun result;
  std::mutex lock;
  run_ranks(ranks, [&](const Group& e) {
    manual_seed(e->rank() == 0 ? 5 : 6);  // rank 0's values count
    auto net = Case::make();
    const TensorParallel model = parallelize_module(net, Case::plan(), e);
    optim::AdamW opt(net.parameters(), {.lr = 3e-3, .eps = 1e-4});
    ParallelRun own;
    const std::function<Tensor(Tensor, Tensor)> eager = [&](const Tensor& x, const Tensor& y) {
      opt.zero_grad();
      const Tensor loss = Case::loss(net, x, y, e);
      loss.backward();
      if (clip > 0) model.clip_grad_norm_(clip);
      opt.step();
      return loss;
    };
    const auto step = compiled ? std::function<Tensor(Tensor, Tensor)>(compile(eager)) : eager;
    for (int i = 0; i < kSteps; ++i) {
      std::pair<Tensor, Tensor> batch;
      {
        const GeneratorGuard random({77, static_cast<uint64_t>(i) * 8});
        batch = Case::batch();
      }
      own.losses.push_back(step(batch.first, batch.second).template item<float>());
    }
    if (!compiled) own.norm = model.get_total_norm().template item<float>();
    own.state = model.state_dict();
    own.moments = model.optim_state_dict(opt);
    if (e->rank() > 0) return;
    const std::lock_guard hold(lock);
    result = own;
  });
  return result;
}

void expect_close(const ParallelRun& a, const ParallelRun& b, const std::string& what) {
  ASSERT_EQ(a.losses.size(), b.losses.size());
  for (size_t i = 0; i < b.losses.size(); ++i) {
    EXPECT_NEAR(a.losses[i], b.losses[i], 1e-5) << what << ", step " << i;
  }
  for (const auto& [name, value] : b.state) {
    ASSERT_EQ(a.state.at(name).shape(), value.shape()) << name << ", " << what;
    EXPECT_TRUE(allclose(a.state.at(name), value, 0, 1e-5)) << name << ", " << what;
  }
  for (const auto& [name, value] : b.moments) {
    ASSERT_EQ(a.moments.at(name).shape(), value.shape()) << name << ", " << what;
    EXPECT_TRUE(allclose(a.moments.at(name), value, 0, 1e-5)) << name << ", " << what;
  }
  EXPECT_NEAR(a.norm, b.norm, 1e-4) << what;
}

template <class Case>
void check_spread() {
  const ParallelRun one = train_spread<Case>(1);
  for (const int ranks : {2, 4})
    expect_close(train_spread<Case>(ranks), one, fmt::format("{} ranks", ranks));
}
TEST(TensorParallel, GptIsThatOfOneRank) {
  check_spread<SpreadGpt>();
  const ParallelRun one = train_spread<SpreadGpt>(1);
  EXPECT_LT(one.losses[18] + one.losses[19], one.losses[0] + one.losses[1]);  // it learns
}
TEST(TensorParallel, SlicesOfTimeAreThoseOfOneRank) { check_spread<SequenceGpt>(); }
TEST(TensorParallel, EncoderIsThatOfOneRank) { check_spread<SpreadEncoder>(); }

TEST(TensorParallel, ClippingIsByTheNormOfTheWholeNet) {
  const ParallelRun one = train_spread<SpreadGpt>(1, 0.05), free = train_spread<SpreadGpt>(1);
  EXPECT_FALSE(allclose(one.state.at("wte.weight"), free.state.at("wte.weight"), 0, 1e-4));
  expect_close(train_spread<SpreadGpt>(2, 0.05), one, "2 ranks");
}

TEST(TensorParallel, CompiledStepsHaveTheSameBits) {
  const auto check = [](auto which) {
    using Case = decltype(which);
    const ParallelRun eager = train_spread<Case>(2), compiled = train_spread<Case>(2, 0, true);
    EXPECT_EQ(compiled.losses, eager.losses);
    for (const auto& [name, value] : eager.state)
      EXPECT_TRUE(same_bits(compiled.state.at(name), value)) << name;
  };
  check(SpreadGpt{});
  check(SequenceGpt{});
}

// What is saved by some ranks resumes on any other number of them.
TEST(TensorParallel, StatesResumeOnAnotherNumberOfRanks) {
  const ParallelRun two = train_spread<SpreadGpt>(2);
  for (const int ranks : {1, 4})
    run_ranks(ranks, [&](const Group& e) {
      manual_seed(9);
      auto net = SpreadGpt::make();
      const TensorParallel model = parallelize_module(net, SpreadGpt::plan(), e);
      optim::AdamW opt(net.parameters(), {.lr = 3e-3});
      EXPECT_TRUE(model.load_state_dict(two.state).ok());
      model.load_optim_state_dict(opt, two.moments);
      const StateDict state = model.state_dict(), moments = model.optim_state_dict(opt);
      for (const auto& [name, value] : two.state)
        EXPECT_TRUE(same_bits(state.at(name), value)) << name;
      for (const auto& [name, value] : two.moments)
        EXPECT_TRUE(same_bits(moments.at(name), value)) << name;
      StateDict wrong = two.state;
      wrong["h.0.c_fc.weight"] = zeros({60, 16});
      if (e->size() > 1) {
        EXPECT_TRUE(has(thrown([&] { model.load_state_dict(wrong); }, ErrorKind::Shape),
                        "expected 64 elements along dimension 0"));
      }
    });
}

TEST(TensorParallel, ARankHoldsItsSlicesAlone) {
  run_ranks(4, [](const Group& e) {
    manual_seed(5);
    auto net = SpreadGpt::make();
    const Tensor whole = net.h[1].c_attn.weight.value().clone();
    parallelize_module(net, SpreadGpt::plan(), e);
    EXPECT_EQ(net.h[0].c_fc.weight.shape(), Shape({16, 16}));
    EXPECT_EQ(net.h[0].c_proj.weight.shape(), Shape({16, 4}));
    EXPECT_EQ(net.h[0].c_proj.bias.shape(), Shape({16}));
    EXPECT_EQ(net.wte.weight.size(0), e->rank() < 3 ? 8 : 7);
    // Of each of q, k and v this rank's head.
    for (int64_t part = 0; part < 3; ++part)
      EXPECT_TRUE(same_bits(narrow(net.h[1].c_attn.weight, 0, part * 4, 4),
                            narrow(whole, 0, part * 16 + e->rank() * 4, 4)));
  });
}

// The slices' layers remember, whether the result is kept or not.
TEST(TensorParallel, OptimizersOfWholeParametersAreRefused) {
  run_ranks(2, [](const Group& e) {
    auto net = SpreadGpt::make();
    optim::LAMB before(net.parameters());
    parallelize_module(net, SpreadGpt::plan(), e);
    EXPECT_TRUE(has(thrown([&] { optim::LAMB opt(net.parameters()); }, ErrorKind::Unsupported),
                    "LAMB on parts of parameters"));
    const optim::AdamW fine(net.parameters());
  });
}

TEST(TensorParallel, TiedParametersAreWholeUnderAllNames) {
  struct Tied : nn::Module {
    nn::Embedding embed{8, 4};
    nn::Linear head{4, 8, {.bias = false}};
    Tied() {
      TD_REGISTER(embed, head);
      head.weight = embed.weight;
    }
    Tensor forward(Tensor x) { return head(embed(x)); }
  };
  run_ranks(2, [](const Group& e) {
    manual_seed(5);
    Tied net;
    const ParallelPlan plan = {{"embed", RowwiseParallel{}}, {"head", ColwiseParallel{}}};
    const TensorParallel model = parallelize_module(net, plan, e);
    const StateDict state = model.state_dict();
    for (const char* name : {"embed.weight", "head.weight"})
      EXPECT_EQ(state.at(name).shape(), Shape({8, 4})) << name;
    EXPECT_TRUE(model.load_state_dict(state).ok());
    EXPECT_TRUE(has(thrown([&] { (void)clone(net); }, ErrorKind::Unsupported), "cannot be cloned"));
    EXPECT_TRUE(has(thrown([&] { parallelize_module(net, plan, e); }, ErrorKind::Unsupported),
                    "is spread over ranks already"));
  });
}

TEST(TensorParallel, LossOverPartsIsThatOfAllClasses) {
  for (const int64_t classes : {12, 13})
    run_ranks(3, [&](const Group& e) {
      manual_seed(3);
      const Tensor x = randn({4, 5, classes}) * 4;
      Tensor y = randint(0, classes, {4, 5});
      y = where(arange(20).reshape({4, 5}) % 6 == 1, -100, y);
      Tensor whole = x.clone().requires_grad_();
      const Tensor expected = cross_entropy(whole.flatten(0, 1), y.flatten());
      expected.backward();
      const int64_t begin = e->rank() * (classes / 3) + std::min<int64_t>(e->rank(), classes % 3);
      const int64_t own = classes / 3 + (e->rank() < classes % 3 ? 1 : 0);
      Tensor part = narrow(x, 2, begin, own).clone().requires_grad_();
      const Tensor loss = parallel_cross_entropy(part, y, e, {.vocabulary = classes});
      loss.backward();
      EXPECT_TRUE(allclose(loss, expected, 0, 1e-6));
      EXPECT_TRUE(allclose(part.grad(), narrow(whole.grad(), 2, begin, own), 0, 1e-6));
      EXPECT_TRUE(has(
          thrown(
              [&] { parallel_cross_entropy(narrow(part, 2, 0, 2), y, e, {.vocabulary = classes}); },
              ErrorKind::Shape),
          "Set ParallelCrossEntropyOptions::vocabulary"));
    });
}

// ids and labels that no rank has are found, not taken for somebody else's.
TEST(TensorParallel, WordsOutsideTheVocabularyAreErrors) {
  for (const int64_t wrong : {-1, 31, 400}) {
    const std::vector<std::string> errors = errors_of_ranks(2, [&](const Group& e) {
      auto net = SpreadGpt::make();
      parallelize_module(net, SpreadGpt::plan(), e);
      (void)net(full({1, 3}, wrong, DType::i64)).sum().template item<float>();
    });
    for (const std::string& text : errors) EXPECT_TRUE(has(text, "out of range")) << text;
    const std::vector<std::string> labels = errors_of_ranks(2, [&](const Group& e) {
      (void)parallel_cross_entropy(zeros({2, 4}), full({2}, wrong, DType::i64), e)
          .template item<float>();
    });
    for (const std::string& text : labels) EXPECT_TRUE(has(text, "out of range")) << text;
  }
}

TEST(TensorParallel, WrongPlansAreRefused) {
  run_ranks(2, [](const Group& e) {
    const auto refused = [&](const ParallelPlan& plan, const std::string& text) {
      auto net = SpreadGpt::make();
      const std::string said = thrown([&] { parallelize_module(net, plan, e); });
      EXPECT_TRUE(has(said, text)) << said;
      EXPECT_EQ(net.h[0].c_fc.weight.shape(), Shape({64, 16}));  // nothing has changed
    };
    refused({{"h.*.c_fcc", ColwiseParallel{}}}, "did you mean 'h.0.c_fc'?");
    refused({{"h.*.c_fc", ColwiseParallel{}}, {"h.1.c_fc", ColwiseParallel{}}}, "named twice");
    refused({{"h.0.ln_1", ColwiseParallel{}}}, "'h.0.ln_1' is a LayerNorm");
    refused({{"h.0.c_fc", AttentionParallel{}}}, "AttentionParallel knows nn::MultiheadAttention");
    refused({{"h.0.c_fc", ExpertParallel{}}}, "ExpertParallel knows nn::MoE");
    refused({{"h.0.c_fc", ColwiseParallel{.parts = 5}}}, "do not make 5 parts");
    refused({{"h.0.c_fc", ColwiseParallel{.input = Layout::partial}}}, "the layout partial");
    refused({{"h.0.c_fc", ColwiseParallel{.output = Layout::replicated, .parts = 2}}},
            "cannot be gathered");
  });
  run_ranks(3, [](const Group& e) {
    auto net = SpreadGpt::make();
    EXPECT_TRUE(has(thrown(
                        [&] {
                          parallelize_module(net, {{"h.0.c_fc", ColwiseParallel{}}}, e);
                        },
                        ErrorKind::Shape),
                    "does not divide into 3 ranks along dimension 0: 64 elements"));
    auto encoder = SpreadEncoder::make();
    EXPECT_TRUE(has(thrown(
                        [&] {
                          parallelize_module(encoder, {{"pool", AttentionParallel{}}}, e);
                        },
                        ErrorKind::Shape),
                    "4 heads"));
  });
}

// ---- experts

struct ExpertNet : nn::Module {
  nn::Linear in{6, 8};
  nn::MoE moe{8, {.experts = 4, .top_k = 2, .hidden = 12, .gated = true, .activation = "silu"}};
  nn::Linear out{8, 3};
  ExpertNet() { TD_REGISTER(in, moe, out); }
  Tensor forward(Tensor x) {
    x = in(x);
    return out(x + moe(x));
  }
};

ParallelRun train_experts(int ranks) {
  ParallelRun result;
  std::mutex lock;
  run_ranks(ranks, [&](const Group& e) {
    manual_seed(5);
    ExpertNet net;
    const TensorParallel spread = parallelize_module(net, {{"moe", ExpertParallel{}}}, e);
    DataParallel model(net, {.ignored = {"moe.*_proj"}}, e);
    optim::AdamW opt(net.parameters(), {.lr = 3e-3, .eps = 1e-4});
    ParallelRun own;
    for (int i = 0; i < kSteps; ++i) {
      const GeneratorGuard random({77, static_cast<uint64_t>(i) * 8});
      const Tensor x = randn({16, 6}), y = randint(0, 3, {16});
      const int64_t rows = 16 / e->size();
      opt.zero_grad();
      const Tensor loss = cross_entropy(model(narrow(x, 0, e->rank() * rows, rows)),
                                        narrow(y, 0, e->rank() * rows, rows));
      loss.backward();
      own.norm = spread.get_total_norm().item<float>();
      opt.step();
      own.losses.push_back(all_reduce(loss.detach(), ReduceOp::sum, e).item<float>() /
                           static_cast<double>(e->size()));
    }
    own.state = spread.state_dict();
    own.moments = spread.optim_state_dict(opt);
    EXPECT_EQ(net.moe.up_proj.size(0), 4 / e->size());
    const std::lock_guard hold(lock);
    if (e->rank() == 0) result = own;
  });
  return result;
}
TEST(ExpertParallel, IsThatOfOneRank) {
  const ParallelRun one = train_experts(1);
  for (const int ranks : {2, 4})
    expect_close(train_experts(ranks), one, fmt::format("{} ranks", ranks));
}

// ---- meshes

TEST(DeviceMesh, GroupsDifferInOneDimension) {
  run_ranks(8, [](const Group& e) {
    const DeviceMesh mesh = init_device_mesh({2, 2, 2}, {"pp", "dp", "tp"}, e);
    EXPECT_EQ(mesh.get_local_rank("pp"), e->rank() / 4);
    EXPECT_EQ(mesh.get_local_rank("dp"), e->rank() / 2 % 2);
    EXPECT_EQ(mesh.get_local_rank("tp"), e->rank() % 2);
    int64_t steps = 4;
    for (const char* name : {"pp", "dp", "tp"}) {
      EXPECT_EQ(mesh[name]->size(), 2);
      EXPECT_EQ(mesh[name]->rank(), mesh.get_local_rank(name));
      int64_t sum = e->rank();
      mesh[name]->all_reduce({&sum, 1, DType::i64}).wait();
      EXPECT_EQ(sum, 2 * (e->rank() - mesh.get_local_rank(name) * steps) + steps) << name;
      steps /= 2;
    }
    EXPECT_TRUE(has(thrown([&] { (void)mesh["ep"]; }, ErrorKind::Value), "It has: pp, dp, tp."));
  });
}
TEST(DeviceMesh, WrongSizesAreRefused) {
  run_ranks(2, [](const Group& e) {
    const auto refused = [&](std::vector<int64_t> shape, std::vector<std::string> names,
                             const std::string& text) {
      EXPECT_TRUE(has(thrown([&] { init_device_mesh(shape, names, e); }, ErrorKind::Value), text));
    };
    refused({1}, {"dp"}, "has 1 ranks, the job has 2");
    refused({2, 2}, {"dp", "tp"}, "more than the 2 ranks");
    refused({2}, {"dp", "tp"}, "1 sizes and 2 names");
    refused({2, 1}, {"dp", "dp"}, "used twice");
    refused({2, 0}, {"dp", "tp"}, "a size of 0");
  });
}

}  // namespace
}  // namespace tandem::distributed
