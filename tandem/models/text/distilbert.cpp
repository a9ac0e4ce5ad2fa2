// SPDX-License-Identifier: Apache-2.0
// DistilBERT (Sanh et al. 2019): BERT with half the layers and no token types. Names are those of
// DistilBertForMaskedLM and DistilBertForSequenceClassification.
#include "tandem/models/text/attention_internal.h"
#include "tandem/ops/ops.h"

namespace tandem::models {
namespace {

struct Sizes {
  explicit Sizes(const ModelConfig& c)
      : vocab(c.integer("vocab_size", 30522)),
        dim(c.integer("dim", 768, 1, 1 << 16)),
        layers(c.integer("n_layers", 6, 0, 1024)),
        heads(c.integer("n_heads", 12, 1, 1 << 12)),
        inner(c.integer("hidden_dim", 3072, 1, 1 << 20)),
        positions(c.integer("max_position_embeddings", 512)),
        act(detail::activation(c, c.text("activation", "gelu"))) {
    if (dim % heads != 0) c.fail("'dim' is not a multiple of 'n_heads'");
  }
  int64_t vocab, dim, layers, heads, inner, positions;
  detail::Activation act;
};
constexpr double kEps = 1e-12;

class Embeddings : public nn::Module {
 public:
  explicit Embeddings(const Sizes& s)
      : word_embeddings(s.vocab, s.dim),
        position_embeddings(s.positions, s.dim),
        LayerNorm({s.dim}, {.eps = kEps}) {
    TD_REGISTER(word_embeddings, position_embeddings, LayerNorm);
  }
  Tensor forward(Tensor ids) {
    const Dim length = ids.shape(1);
    return LayerNorm(word_embeddings(ids) +
                     position_embeddings(arange_dim(length).reshape({1, length})));
  }
  nn::Embedding word_embeddings, position_embeddings;
  nn::LayerNorm LayerNorm;
};
class Attention : public nn::Module {
 public:
  explicit Attention(const Sizes& s)
      : q_lin(s.dim, s.dim),
        k_lin(s.dim, s.dim),
        v_lin(s.dim, s.dim),
        out_lin(s.dim, s.dim),
        heads(s.heads) {
    TD_REGISTER(q_lin, k_lin, v_lin, out_lin);
  }
  Tensor forward(Tensor x, const Tensor& mask) {
    return out_lin(detail::merge_heads(scaled_dot_product_attention(
        detail::split_heads(q_lin(x), heads), detail::split_heads(k_lin(x), heads),
        detail::split_heads(v_lin(x), heads), mask)));
  }
  nn::Linear q_lin, k_lin, v_lin, out_lin;
  int64_t heads;
};
class Ffn : public nn::Module {
 public:
  explicit Ffn(const Sizes& s) : lin1(s.dim, s.inner), lin2(s.inner, s.dim), act(s.act) {
    TD_REGISTER(lin1, lin2);
  }
  Tensor forward(Tensor x) { return lin2(act(lin1(std::move(x)))); }
  nn::Linear lin1, lin2;
  detail::Activation act;
};
class Layer : public nn::Module {
 public:
  explicit Layer(const Sizes& s)
      : attention(s),
        sa_layer_norm({s.dim}, {.eps = kEps}),
        ffn(s),
        output_layer_norm({s.dim}, {.eps = kEps}) {
    TD_REGISTER(attention, sa_layer_norm, ffn, output_layer_norm);
  }
  Tensor forward(Tensor x, const Tensor& mask) {
    x = sa_layer_norm(attention.forward(x, mask) + x);
    return output_layer_norm(ffn(x) + x);
  }
  Attention attention;
  nn::LayerNorm sa_layer_norm;
  Ffn ffn;
  nn::LayerNorm output_layer_norm;
};
class Transformer : public nn::Module {
 public:
  explicit Transformer(const Sizes& s) {
    for (int64_t i = 0; i < s.layers; ++i) layer.emplace_back(s);
    TD_REGISTER(layer);
  }
  std::vector<Layer> layer;
};
class Base : public nn::Module {
 public:
  explicit Base(const Sizes& s) : embeddings(s), transformer(s) {
    TD_REGISTER(embeddings, transformer);
  }
  Embeddings embeddings;
  Transformer transformer;
};
class Projector : public nn::Module {  // shares the embedding's weight
 public:
  explicit Projector(int64_t vocab) : bias(zeros({vocab})) { TD_REGISTER(bias); }
  Param bias;
};
class Net : public nn::Module {
 public:
  Net(const Sizes& s, bool masked, int64_t labels) : distilbert(s) {
    if (masked) {
      vocab_transform.emplace(s.dim, s.dim);
      vocab_layer_norm.emplace(IntList{s.dim}, nn::LayerNormOptions{.eps = kEps});
      vocab_projector.emplace(s.vocab);
    }
    if (labels > 0) {
      pre_classifier.emplace(s.dim, s.dim);
      classifier.emplace(s.dim, labels);
    }
    TD_REGISTER(distilbert, vocab_transform, vocab_layer_norm, vocab_projector, pre_classifier,
                classifier);
  }
  Base distilbert;
  std::optional<nn::Linear> vocab_transform;
  std::optional<nn::LayerNorm> vocab_layer_norm;
  std::optional<Projector> vocab_projector;
  std::optional<nn::Linear> pre_classifier, classifier;
};

class DistilBert : public PretrainedModel {
 public:
  explicit DistilBert(const ModelConfig& c)
      : PretrainedModel(c),
        net_(Sizes(c), detail::ends_with(c.architecture(), "ForMaskedLM"),
             detail::ends_with(c.architecture(), "ForSequenceClassification") ? c.num_labels() : 0),
        act_(Sizes(c).act) {}
  nn::Module& module() override { return net_; }
  Tensor forward(const ModelInputs& in) override {
    detail::want(in.input_ids, "input_ids", 2);
    Tensor x = net_.distilbert.embeddings(in.input_ids);
    const Tensor mask = detail::seen_mask(in.attention_mask);
    for (Layer& l : net_.distilbert.transformer.layer) x = l.forward(std::move(x), mask);
    if (net_.vocab_projector) {
      x = (*net_.vocab_layer_norm)(act_((*net_.vocab_transform)(x)));
      return linear(x, net_.distilbert.embeddings.word_embeddings.weight,
                    net_.vocab_projector->bias);
    }
    if (net_.classifier) return (*net_.classifier)(relu((*net_.pre_classifier)(x.select(1, 0))));
    return x;
  }

 private:
  Net net_;
  detail::Activation act_;
};

}  // namespace

std::unique_ptr<PretrainedModel> detail::make_distilbert(const ModelConfig& c) {
  return std::make_unique<DistilBert>(c);
}

}  // namespace tandem::models
