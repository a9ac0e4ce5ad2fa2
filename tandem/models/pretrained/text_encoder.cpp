// SPDX-License-Identifier: Apache-2.0
// Encoders of text with a norm after each sum: BERT, RoBERTa and its multilingual kin, DistilBERT
// (Devlin et al. 2018, Liu et al. 2019, Sanh et al. 2019). They differ in their names, in how
// positions are counted and in their heads.
#include "tandem/models/pretrained/family_internal.h"
#include "tandem/models/pretrained/layers_internal.h"
#include "tandem/ops/ops.h"

namespace tandem::models {
namespace {

using namespace detail;

// A head: out(norm(act(dense(x)))), of which each part may be missing.
struct HeadSpec {
  Head kind = Head::none;
  std::string dense, norm, out, bias;  // `bias` beside an `out` that is the embedding's matrix
  Activation act = nullptr;
  int64_t size = 0;
  bool first = false;  // of the first token alone
};

struct TextSpec {
  std::string prefix;
  std::string word = "embeddings.word_embeddings", position = "embeddings.position_embeddings",
              type = "embeddings.token_type_embeddings", norm_name = "embeddings.LayerNorm",
              layers = "encoder.layer", pooler = "pooler.dense";
  int64_t vocab = 0, width = 0, depth = 0, positions = 0, types = 0, pad = 0;
  bool counts_tokens = false;  // positions count tokens from pad + 1 on; padding stays at pad
  bool tied = true;
  BlockSpec block;
  HeadSpec head;
};

void check(const ModelConfig& c, const TextSpec& s, const char* width, const char* heads) {
  if (s.width % s.block.self.heads != 0)
    c.fail(fmt::format("'{}' is not a multiple of '{}'", width, heads));
  if (s.pad >= s.vocab) c.fail("'pad_token_id' is not in the vocabulary");
}

// ---- BERT and RoBERTa

HeadSpec bert_head(const ModelConfig& c, Head kind, bool roberta, const TextSpec& s,
                   Activation act) {
  HeadSpec h{.kind = kind};
  const Activation tanh_act = activation(c, "tanh");
  const std::string pooler = s.prefix + s.pooler;
  switch (kind) {
    case Head::masked:
      if (roberta)
        return {kind,
                "lm_head.dense",
                "lm_head.layer_norm",
                "lm_head.decoder",
                "lm_head.bias",
                activation(c, "gelu"),
                s.vocab};
      return {kind,
              "cls.predictions.transform.dense",
              "cls.predictions.transform.LayerNorm",
              "cls.predictions.decoder",
              "cls.predictions.bias",
              act,
              s.vocab};
    case Head::sequence:
      if (roberta)
        return {kind,     "classifier.dense", "",  "classifier.out_proj", "",
                tanh_act, c.num_labels(),     true};
      return {kind, pooler, "", "classifier", "", tanh_act, c.num_labels(), true};
    case Head::choice:
      return {kind, pooler, "", "classifier", "", tanh_act, 1, true};
    case Head::token:
      return {kind, "", "", "classifier", "", nullptr, c.num_labels()};
    case Head::question:
      return {kind, "", "", "qa_outputs", "", nullptr, 2};
    default:
      return h;
  }
}

TextSpec bert_spec(const ModelConfig& c, bool roberta, const char* prefix, Head head) {
  TextSpec s{.prefix = prefix};
  s.vocab = c.integer("vocab_size", roberta ? 50265 : 30522);
  s.width = c.integer("hidden_size", 768, 1, 1 << 16);
  s.depth = c.integer("num_hidden_layers", 12, 0, 1024);
  s.positions = c.integer("max_position_embeddings", 512);
  s.types = c.integer("type_vocab_size", 2);
  s.pad = c.integer("pad_token_id", roberta ? 1 : 0, 0);
  s.counts_tokens = roberta;
  s.tied = c.flag("tie_word_embeddings", true);
  c.only("position_embedding_type", "absolute");
  c.only("is_decoder", false);
  c.only("add_cross_attention", false);
  const Activation act = activation(c, c.text("hidden_act", "gelu"));
  s.block.self = {.width = s.width, .heads = c.integer("num_attention_heads", 12, 1, 1 << 12)};
  s.block.self.q = "attention.self.query";
  s.block.self.k = "attention.self.key";
  s.block.self.v = "attention.self.value";
  s.block.self.o = "attention.output.dense";
  s.block.mlp = {
      .width = s.width, .inner = c.integer("intermediate_size", 3072, 1, 1 << 20), .act = act};
  s.block.mlp.up = "intermediate.dense";
  s.block.mlp.down = "output.dense";
  s.block.norm.eps = c.number("layer_norm_eps", 1e-12);
  s.block.norm1 = "attention.output.LayerNorm";
  s.block.norm2 = "output.LayerNorm";
  s.head = bert_head(c, head, roberta, s, act);
  check(c, s, "hidden_size", "num_attention_heads");
  return s;
}

// ---- DistilBERT

HeadSpec distilbert_head(const ModelConfig& c, Head kind, const TextSpec& s, Activation act) {
  const Activation relu_act = activation(c, "relu");
  switch (kind) {
    case Head::masked:
      return {kind,
              "vocab_transform",
              "vocab_layer_norm",
              "vocab_projector",
              "vocab_projector.bias",
              act,
              s.vocab};
    case Head::sequence:
      return {kind, "pre_classifier", "", "classifier", "", relu_act, c.num_labels(), true};
    case Head::choice:
      return {kind, "pre_classifier", "", "classifier", "", relu_act, 1, true};
    case Head::token:
      return {kind, "", "", "classifier", "", nullptr, c.num_labels()};
    case Head::question:
      return {kind, "", "", "qa_outputs", "", nullptr, 2};
    default:
      return {};
  }
}

TextSpec distilbert_spec(const ModelConfig& c, Head head) {
  TextSpec s{.prefix = "distilbert.", .layers = "transformer.layer"};
  s.vocab = c.integer("vocab_size", 30522);
  s.width = c.integer("dim", 768, 1, 1 << 16);
  s.depth = c.integer("n_layers", 6, 0, 1024);
  s.positions = c.integer("max_position_embeddings", 512);
  s.tied = c.flag("tie_word_embeddings", true);
  c.flag("sinusoidal_pos_embds", false);  // the files hold them as a matrix
  const Activation act = activation(c, c.text("activation", "gelu"));
  s.block.self = {.width = s.width, .heads = c.integer("n_heads", 12, 1, 1 << 12)};
  s.block.self.q = "attention.q_lin";
  s.block.self.k = "attention.k_lin";
  s.block.self.v = "attention.v_lin";
  s.block.self.o = "attention.out_lin";
  s.block.mlp = {.width = s.width, .inner = c.integer("hidden_dim", 3072, 1, 1 << 20), .act = act};
  s.block.mlp.up = "ffn.lin1";
  s.block.mlp.down = "ffn.lin2";
  s.block.norm.eps = 1e-12;
  s.block.norm1 = "sa_layer_norm";
  s.block.norm2 = "output_layer_norm";
  s.head = distilbert_head(c, head, s, act);
  check(c, s, "dim", "n_heads");
  return s;
}

// ---- the nets

class HeadNet : public nn::Module {
 public:
  HeadNet(const HeadSpec& h, int64_t width, const NormSpec& norm_spec, bool tied) : spec(h) {
    if (!h.dense.empty()) dense.emplace(width, width);
    if (!h.norm.empty()) norm.emplace(width, norm_spec);
    // A matrix that is not the embedding's comes with a bias of its own; the files hold both.
    const bool separate = !h.bias.empty(), named_alike = h.bias == h.out + ".bias";
    if (!separate || !tied) out.emplace(width, h.size, nn::LinearOptions{.bias = !named_alike});
    if (separate) bias = Param(zeros({h.size}));
    register_as(this, {h.dense, h.norm, h.out, h.bias.empty() ? "bias" : h.bias}, dense, norm, out,
                bias);
  }
  Tensor forward(Tensor x, const Param& embedding) {
    if (spec.first) x = x.select(1, 0);
    if (dense) x = spec.act((*dense)(x));
    if (norm) x = (*norm)(x);
    if (out && out->bias.defined()) return (*out)(x);
    return linear(x, out ? out->weight : embedding, bias);
  }
  HeadSpec spec;
  std::optional<nn::Linear> dense;
  std::optional<Norm> norm;
  std::optional<nn::Linear> out;
  Param bias;
};

class TextNet : public nn::Module {
 public:
  TextNet(const TextSpec& s, bool with_pooler)
      : word(s.vocab, s.width), position(s.positions, s.width), norm(s.width, s.block.norm) {
    BlockSpec block = s.block;
    block.order = BlockSpec::Order::after;
    for (int64_t i = 0; i < s.depth; ++i) layers.emplace_back(block);
    if (s.types > 0) type.emplace(s.types, s.width);
    if (with_pooler) pooler.emplace(s.width, s.width);
    if (s.head.kind != Head::none) head.emplace(s.head, s.width, s.block.norm, s.tied);
    register_as(this,
                {s.prefix + s.word, s.prefix + s.position, s.prefix + s.type,
                 s.prefix + s.norm_name, s.prefix + s.layers, s.prefix + s.pooler, ""},
                word, position, type, norm, layers, pooler, head);
  }
  nn::Embedding word, position;
  std::optional<nn::Embedding> type;
  Norm norm;
  std::vector<Block> layers;
  std::optional<nn::Linear> pooler;
  std::optional<HeadNet> head;
};

class TextEncoder : public PretrainedModel {
 public:
  TextEncoder(const ModelConfig& c, const TextSpec& s, bool pooler)
      : PretrainedModel(c), spec_(s), net_(s, pooler) {}
  nn::Module& module() override { return net_; }
  int64_t max_positions() const override {
    return spec_.positions - (spec_.counts_tokens ? spec_.pad + 1 : 0);
  }

  std::vector<ModelPort> inputs() const override {
    std::vector<ModelPort> ports = text_ports(is(Head::choice) ? 3 : 2);
    if (net_.type) ports.push_back({"token_type_ids", DType::i64, ports[0].shape, true});
    return ports;
  }
  std::vector<std::string> output_names() const override {
    if (is(Head::question)) return {"start_logits", "end_logits"};
    if (!is(Head::none)) return {"logits"};
    if (!net_.pooler) return {"last_hidden_state"};
    return {"last_hidden_state", "pooler_output"};
  }
  std::vector<Tensor> run(const ModelInputs& in) override {
    want(in.input_ids, "input_ids", is(Head::choice) ? 3 : 2);
    const Shape shape = in.input_ids.shape();
    const auto rows = [&](const Tensor& t) {
      return is(Head::choice) && t.defined() ? t.reshape({-1, t.shape(2)}) : t;
    };
    Tensor x = encode(rows(in.input_ids), rows(in.attention_mask), rows(in.token_type_ids));
    if (!net_.head) {
      if (!net_.pooler) return {x};
      return {x, tanh((*net_.pooler)(x.select(1, 0)))};
    }
    const Tensor y = net_.head->forward(x, net_.word.weight);
    if (is(Head::question)) return {y.select(2, 0), y.select(2, 1)};
    return {is(Head::choice) ? y.reshape({shape[0], shape[1]}) : y};
  }

 private:
  bool is(Head kind) const { return spec_.head.kind == kind; }
  Tensor encode(const Tensor& ids, const Tensor& mask, Tensor types) {
    const Dim length = ids.shape(1);
    Tensor positions = arange_dim(length).reshape({1, length});
    if (spec_.counts_tokens) {
      const Tensor token = (ids != spec_.pad).to(DType::i64);
      positions = token.cumsum(1) * token + spec_.pad;
    }
    Tensor x = net_.word(ids) + net_.position(positions);
    if (net_.type) {
      if (!types.defined()) types = zeros_like(ids);
      x = x + (*net_.type)(types);
    }
    x = net_.norm(x);
    const AttentionCall call{.mask = seen_mask(mask)};
    for (Block& b : net_.layers) x = b.forward(std::move(x), call);
    return x;
  }
  TextSpec spec_;
  TextNet net_;
};

struct Kin {
  const char *type, *classes, *prefix;
  bool roberta;
};
constexpr Kin kKin[] = {{"bert", "Bert", "bert.", false},
                        {"roberta", "Roberta", "roberta.", true},
                        {"xlm-roberta", "XLMRoberta", "roberta.", true},
                        {"camembert", "Camembert", "roberta.", true}};

}  // namespace

std::unique_ptr<PretrainedModel> detail::make_text_encoder(const ModelConfig& c,
                                                           const FileNames& files) {
  const std::initializer_list<Head> heads = {Head::none,  Head::masked,   Head::sequence,
                                             Head::token, Head::question, Head::choice};
  if (c.model_type() == "distilbert")
    return std::make_unique<TextEncoder>(c, distilbert_spec(c, head_of(c, "DistilBert", heads)),
                                         false);
  for (const Kin& k : kKin)
    if (c.model_type() == k.type) {
      const Head head = head_of(c, k.classes, heads);
      const TextSpec s = bert_spec(c, k.roberta, k.prefix, head);
      const bool pooler = head == Head::none && files.has(k.prefix + s.pooler + ".weight");
      return std::make_unique<TextEncoder>(c, s, pooler);
    }
  TD_FAIL(Internal, "'{}' is not an encoder of text", c.model_type());
}

}  // namespace tandem::models
