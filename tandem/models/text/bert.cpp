// SPDX-License-Identifier: Apache-2.0
// BERT and RoBERTa: encoders with a norm after each sum (Devlin et al. 2018, Liu et al. 2019). They
// differ in how positions are counted and in their heads. Names are those of BertForMaskedLM,
// BertForSequenceClassification and so on.
#include "tandem/models/text/attention_internal.h"
#include "tandem/ops/ops.h"

namespace tandem::models {
namespace {

using detail::Activation;

struct Sizes {
  explicit Sizes(const ModelConfig& c)
      : vocab(c.integer("vocab_size", c.model_type() == "roberta" ? 50265 : 30522)),
        hidden(c.integer("hidden_size", 768, 1, 1 << 16)),
        layers(c.integer("num_hidden_layers", 12, 0, 1024)),
        heads(c.integer("num_attention_heads", 12, 1, 1 << 12)),
        inner(c.integer("intermediate_size", 3072, 1, 1 << 20)),
        positions(c.integer("max_position_embeddings", 512)),
        types(c.integer("type_vocab_size", 2)),
        pad(c.integer("pad_token_id", c.model_type() == "roberta" ? 1 : 0, 0)),
        eps(c.number("layer_norm_eps", 1e-12)),
        act(detail::activation(c, c.text("hidden_act", "gelu"))) {
    if (hidden % heads != 0) c.fail("'hidden_size' is not a multiple of 'num_attention_heads'");
    if (pad >= vocab) c.fail("'pad_token_id' is not in the vocabulary");
  }
  int64_t vocab, hidden, layers, heads, inner, positions, types, pad;
  double eps;
  Activation act;
};

class Embeddings : public nn::Module {
 public:
  explicit Embeddings(const Sizes& s)
      : word_embeddings(s.vocab, s.hidden),
        position_embeddings(s.positions, s.hidden),
        token_type_embeddings(s.types, s.hidden),
        LayerNorm({s.hidden}, {.eps = s.eps}) {
    TD_REGISTER(word_embeddings, position_embeddings, token_type_embeddings, LayerNorm);
  }
  Tensor forward(Tensor ids, Tensor types, const Tensor& positions) {
    if (!types.defined()) types = zeros_like(ids);
    return LayerNorm(word_embeddings(ids) + token_type_embeddings(types) +
                     position_embeddings(positions));
  }
  nn::Embedding word_embeddings, position_embeddings, token_type_embeddings;
  nn::LayerNorm LayerNorm;
};

class SelfAttention : public nn::Module {
 public:
  explicit SelfAttention(const Sizes& s)
      : query(s.hidden, s.hidden),
        key(s.hidden, s.hidden),
        value(s.hidden, s.hidden),
        heads(s.heads) {
    TD_REGISTER(query, key, value);
  }
  Tensor forward(Tensor x, const Tensor& mask) {
    return detail::merge_heads(scaled_dot_product_attention(
        detail::split_heads(query(x), heads), detail::split_heads(key(x), heads),
        detail::split_heads(value(x), heads), mask));
  }
  nn::Linear query, key, value;
  int64_t heads;
};
// norm(dense(x) + residual)
class Output : public nn::Module {
 public:
  Output(int64_t in, const Sizes& s) : dense(in, s.hidden), LayerNorm({s.hidden}, {.eps = s.eps}) {
    TD_REGISTER(dense, LayerNorm);
  }
  Tensor forward(Tensor x, const Tensor& residual) { return LayerNorm(dense(x) + residual); }
  nn::Linear dense;
  nn::LayerNorm LayerNorm;
};
class Attention : public nn::Module {
 public:
  explicit Attention(const Sizes& s) : self(s), output(s.hidden, s) { TD_REGISTER(self, output); }
  Tensor forward(Tensor x, const Tensor& mask) { return output.forward(self.forward(x, mask), x); }
  SelfAttention self;
  Output output;
};
class Dense : public nn::Module {
 public:
  Dense(int64_t in, int64_t out) : dense(in, out) { TD_REGISTER(dense); }
  Tensor forward(Tensor x) { return dense(std::move(x)); }
  nn::Linear dense;
};
class Layer : public nn::Module {
 public:
  explicit Layer(const Sizes& s)
      : attention(s), intermediate(s.hidden, s.inner), output(s.inner, s), act(s.act) {
    TD_REGISTER(attention, intermediate, output);
  }
  Tensor forward(Tensor x, const Tensor& mask) {
    x = attention.forward(std::move(x), mask);
    return output.forward(act(intermediate(x)), x);
  }
  Attention attention;
  Dense intermediate;
  Output output;
  Activation act;
};
class Encoder : public nn::Module {
 public:
  explicit Encoder(const Sizes& s) {
    for (int64_t i = 0; i < s.layers; ++i) layer.emplace_back(s);
    TD_REGISTER(layer);
  }
  Tensor forward(Tensor x, const Tensor& mask) {
    for (Layer& l : layer) x = l.forward(std::move(x), mask);
    return x;
  }
  std::vector<Layer> layer;
};
class Base : public nn::Module {
 public:
  Base(const Sizes& s, bool with_pooler) : embeddings(s), encoder(s) {
    if (with_pooler) pooler.emplace(s.hidden, s.hidden);
    TD_REGISTER(embeddings, encoder, pooler);
  }
  Embeddings embeddings;
  Encoder encoder;
  std::optional<Dense> pooler;
};

// The heads of BERT.
class Transform : public nn::Module {
 public:
  explicit Transform(const Sizes& s)
      : dense(s.hidden, s.hidden), LayerNorm({s.hidden}, {.eps = s.eps}), act(s.act) {
    TD_REGISTER(dense, LayerNorm);
  }
  Tensor forward(Tensor x) { return LayerNorm(act(dense(std::move(x)))); }
  nn::Linear dense;
  nn::LayerNorm LayerNorm;
  Activation act;
};
class Predictions : public nn::Module {
 public:
  explicit Predictions(const Sizes& s) : transform(s), bias(zeros({s.vocab})) {
    TD_REGISTER(transform, bias);
  }
  Transform transform;
  Param bias;
};
class MaskedHead : public nn::Module {
 public:
  explicit MaskedHead(const Sizes& s) : predictions(s) { TD_REGISTER(predictions); }
  Predictions predictions;
};
class BertNet : public nn::Module {
 public:
  BertNet(const Sizes& s, bool masked, int64_t labels) : bert(s, labels > 0) {
    if (masked) cls.emplace(s);
    if (labels > 0) classifier.emplace(s.hidden, labels);
    TD_REGISTER(bert, cls, classifier);
  }
  Base bert;
  std::optional<MaskedHead> cls;
  std::optional<nn::Linear> classifier;
};

class Bert : public PretrainedModel {
 public:
  explicit Bert(const ModelConfig& c)
      : PretrainedModel(c),
        net_(Sizes(c), detail::ends_with(c.architecture(), "ForMaskedLM"),
             detail::ends_with(c.architecture(), "ForSequenceClassification") ? c.num_labels()
                                                                              : 0) {}
  nn::Module& module() override { return net_; }
  Tensor forward(const ModelInputs& in) override {
    detail::want(in.input_ids, "input_ids", 2);
    const Dim length = in.input_ids.shape(1);
    Tensor x = net_.bert.embeddings.forward(in.input_ids, in.token_type_ids,
                                            arange_dim(length).reshape({1, length}));
    x = net_.bert.encoder.forward(std::move(x), detail::seen_mask(in.attention_mask));
    if (net_.cls) {
      Predictions& p = net_.cls->predictions;
      return linear(p.transform(x), net_.bert.embeddings.word_embeddings.weight, p.bias);
    }
    if (net_.classifier) return (*net_.classifier)(tanh((*net_.bert.pooler)(x.select(1, 0))));
    return x;
  }

 private:
  BertNet net_;
};

// The heads of RoBERTa.
class LmHead : public nn::Module {
 public:
  explicit LmHead(const Sizes& s)
      : dense(s.hidden, s.hidden), layer_norm({s.hidden}, {.eps = s.eps}), bias(zeros({s.vocab})) {
    TD_REGISTER(dense, layer_norm, bias);
  }
  nn::Linear dense;
  nn::LayerNorm layer_norm;
  Param bias;
};
class ClassHead : public nn::Module {
 public:
  ClassHead(const Sizes& s, int64_t labels)
      : dense(s.hidden, s.hidden), out_proj(s.hidden, labels) {
    TD_REGISTER(dense, out_proj);
  }
  nn::Linear dense, out_proj;
};
class RobertaNet : public nn::Module {
 public:
  RobertaNet(const Sizes& s, bool masked, int64_t labels) : roberta(s, false) {
    if (masked) lm_head.emplace(s);
    if (labels > 0) classifier.emplace(s, labels);
    TD_REGISTER(roberta, lm_head, classifier);
  }
  Base roberta;
  std::optional<LmHead> lm_head;
  std::optional<ClassHead> classifier;
};

class Roberta : public PretrainedModel {
 public:
  explicit Roberta(const ModelConfig& c)
      : PretrainedModel(c),
        net_(Sizes(c), detail::ends_with(c.architecture(), "ForMaskedLM"),
             detail::ends_with(c.architecture(), "ForSequenceClassification") ? c.num_labels() : 0),
        pad_(Sizes(c).pad) {}
  nn::Module& module() override { return net_; }
  Tensor forward(const ModelInputs& in) override {
    detail::want(in.input_ids, "input_ids", 2);
    // Tokens are counted from pad + 1 on; padding stays at pad.
    const Tensor token = (in.input_ids != pad_).to(DType::i64);
    const Tensor positions = token.cumsum(1) * token + pad_;
    Tensor x = net_.roberta.embeddings.forward(in.input_ids, in.token_type_ids, positions);
    x = net_.roberta.encoder.forward(std::move(x), detail::seen_mask(in.attention_mask));
    if (net_.lm_head) {
      LmHead& h = *net_.lm_head;
      return linear(h.layer_norm(gelu(h.dense(x))), net_.roberta.embeddings.word_embeddings.weight,
                    h.bias);
    }
    if (net_.classifier)
      return net_.classifier->out_proj(tanh(net_.classifier->dense(x.select(1, 0))));
    return x;
  }

 private:
  RobertaNet net_;
  int64_t pad_;
};

}  // namespace

std::unique_ptr<PretrainedModel> detail::make_bert(const ModelConfig& c) {
  return std::make_unique<Bert>(c);
}
std::unique_ptr<PretrainedModel> detail::make_roberta(const ModelConfig& c) {
  return std::make_unique<Roberta>(c);
}

}  // namespace tandem::models
