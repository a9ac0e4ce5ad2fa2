// SPDX-License-Identifier: Apache-2.0
// An encoder that reads a prompt and a decoder that writes a text: BART (Lewis et al. 2019), and
// Whisper (Radford et al. 2022), whose prompt is sound. t5.cpp has the one with relative positions.
#include <cmath>

#include "tandem/models/paged_pair.h"
#include "tandem/models/pretrained/family_internal.h"
#include "tandem/models/pretrained/layers_internal.h"
#include "tandem/ops/ops.h"

namespace tandem::models {
namespace {

using namespace detail;

struct PairSpec {
  bool whisper = false;
  int64_t vocab = 0, width = 0, mels = 0;
  int64_t encoder_depth = 0, decoder_depth = 0, encoder_positions = 0, decoder_positions = 0;
  BlockSpec encoder, decoder;
  double embedding_scale = 1;
  bool final_bias = false;
  Head head = Head::none;
};

// BART's learned positions begin with two rows that nothing uses.
int64_t position_offset(const PairSpec& s) { return s.whisper ? 0 : 2; }

AttentionSpec pair_attention(const PairSpec& s, int64_t heads, const std::string& name) {
  AttentionSpec a{.width = s.width, .heads = heads};
  a.k_bias = !s.whisper;
  a.q = name + ".q_proj";
  a.k = name + ".k_proj";
  a.v = name + ".v_proj";
  a.o = name + ".out_proj";
  return a;
}
BlockSpec pair_block(const ModelConfig& c, const PairSpec& s, const std::string& side) {
  BlockSpec b;
  const int64_t heads = c.integer(side + "_attention_heads", 16, 1, 1 << 12);
  if (s.width % heads != 0) c.fail("'d_model' is not a multiple of '" + side + "_attention_heads'");
  b.self = pair_attention(s, heads, "self_attn");
  if (side == "decoder") b.cross = pair_attention(s, heads, "encoder_attn");
  b.mlp.width = s.width;
  b.mlp.inner = c.integer(side + "_ffn_dim", 4096, 1, 1 << 20);
  b.mlp.act = activation(c, c.text("activation_function", "gelu"));
  b.mlp.up = "fc1";
  b.mlp.down = "fc2";
  b.order = s.whisper ? BlockSpec::Order::before : BlockSpec::Order::after;
  b.norm1 = "self_attn_layer_norm";
  b.cross_norm = "encoder_attn_layer_norm";
  b.norm2 = "final_layer_norm";
  return b;
}

PairSpec pair_spec(const ModelConfig& c, Head head, bool final_bias) {
  PairSpec s;
  s.whisper = c.model_type() == "whisper";
  s.head = head;
  s.vocab = c.integer("vocab_size", s.whisper ? 51865 : 50265);
  s.width = c.integer("d_model", s.whisper ? 384 : 1024, 1, 1 << 16);
  s.encoder_depth = c.integer("encoder_layers", s.whisper ? 4 : 12, 0, 1024);
  s.decoder_depth = c.integer("decoder_layers", s.whisper ? 4 : 12, 1, 1024);
  if (s.whisper) {
    s.mels = c.integer("num_mel_bins", 80, 1, 1 << 12);
    s.encoder_positions = c.integer("max_source_positions", 1500);
    s.decoder_positions = c.integer("max_target_positions", 448);
    // Of training and of other heads.
    for (const char* key : {"apply_spec_augment", "use_weighted_layer_sum"}) c.flag(key, false);
    for (const char* key : {"classifier_proj_size", "median_filter_width", "mask_feature_length",
                            "mask_feature_min_masks", "mask_time_length", "mask_time_min_masks"})
      c.integer(key, 1, 0);
    for (const char* key : {"mask_feature_prob", "mask_time_prob"}) c.number(key, 0);
  } else {
    s.encoder_positions = s.decoder_positions = c.integer("max_position_embeddings", 1024);
    // Of BART's relatives under the same name.
    c.only("normalize_before", false);
    c.only("add_final_layer_norm", false);
    c.only("normalize_embedding", true);
    c.only("static_position_embeddings", false);
    c.only("add_bias_logits", false);
    c.integer("num_hidden_layers", 12, 0);  // encoder_layers
    s.final_bias = head == Head::generation && final_bias;
  }
  c.only("is_decoder", false);
  c.only("tie_word_embeddings", true);
  // Whisper's implementations read it and do not use it.
  if (c.flag("scale_embedding", false) && !s.whisper)
    s.embedding_scale = std::sqrt(static_cast<double>(s.width));
  s.encoder = pair_block(c, s, "encoder");
  s.decoder = pair_block(c, s, "decoder");
  return s;
}

// The blocks of one side with their positions and norms.
class Side : public nn::Module {
 public:
  Side(const PairSpec& s, bool decoder)
      : positions((decoder ? s.decoder_positions : s.encoder_positions) + position_offset(s),
                  s.width),
        norm(s.width, {}),
        offset(position_offset(s)),
        first(!s.whisper) {
    for (int64_t i = 0; i < (decoder ? s.decoder_depth : s.encoder_depth); ++i)
      layers.emplace_back(decoder ? s.decoder : s.encoder);
    if (s.whisper && !decoder) {
      conv1.emplace(s.mels, s.width, 3, nn::ConvOptions{.padding = {1}});
      conv2.emplace(s.width, s.width, 3, nn::ConvOptions{.stride = {2}, .padding = {1}});
    }
    register_as(this,
                {"conv1", "conv2", "embed_positions", first ? "layernorm_embedding" : "layer_norm",
                 "layers"},
                conv1, conv2, positions, norm, layers);
  }
  // x and the embeddings of `at` [n or 1, l], normalised where the norm comes first.
  Tensor begin(const Tensor& x, const Tensor& at) {
    const Tensor y = x + positions(at + offset);
    return first ? norm(y) : y;
  }
  Tensor end(Tensor x) { return first ? x : norm(std::move(x)); }
  std::optional<nn::Conv1d> conv1, conv2;
  nn::Embedding positions;
  Norm norm;
  std::vector<Block> layers;
  int64_t offset;
  bool first;
};

class PairNet : public nn::Module {
 public:
  explicit PairNet(const PairSpec& s)
      : tokens(s.vocab, s.width), encoder(s, false), decoder(s, true) {
    if (s.final_bias) final_logits_bias = Buffer(zeros({1, s.vocab}));
    register_as(this,
                {s.whisper ? "model.decoder.embed_tokens" : "model.shared", "model.encoder",
                 "model.decoder", "final_logits_bias"},
                tokens, encoder, decoder, final_logits_bias);
  }
  nn::Embedding tokens;
  Side encoder, decoder;
  Buffer final_logits_bias;
};

class EncoderDecoder : public PretrainedModel, public PagedPair {
 public:
  EncoderDecoder(const ModelConfig& c, const PairSpec& s) : PretrainedModel(c), spec_(s), net_(s) {}
  nn::Module& module() override { return net_; }
  bool is_encoder_decoder() const override { return spec_.head == Head::generation; }
  int64_t max_positions() const override { return spec_.decoder_positions; }

  std::vector<ModelPort> inputs() const override {
    const ModelPort own{"decoder_input_ids", DType::i64, {-1, -1}};
    if (spec_.whisper)
      return {{"input_features", DType::f32, {-1, spec_.mels, 2 * spec_.encoder_positions}}, own};
    std::vector<ModelPort> ports = text_ports();
    ports.insert(ports.begin() + 1, own);
    return ports;
  }
  std::vector<std::string> output_names() const override {
    return {spec_.head == Head::generation ? "logits" : "last_hidden_state",
            "encoder_last_hidden_state"};
  }
  std::vector<Tensor> run(const ModelInputs& in) override {
    want(in.decoder_input_ids, "decoder_input_ids", 2);
    const Dim length = in.decoder_input_ids.shape(1);
    const Tensor memory = encode(in, {});
    const AttentionCall own{.causal = true}, other{.mask = memory_mask(in)};
    Tensor x =
        net_.decoder.begin(embed(in.decoder_input_ids), arange_dim(length).reshape({1, length}));
    for (Block& b : net_.decoder.layers) x = b.forward(std::move(x), own, memory, other);
    x = net_.decoder.end(std::move(x));
    return {spec_.head == Head::generation ? logits(x) : x, memory};
  }

  DecodeState start_decoding(int64_t n, int64_t length) override {
    if (!is_encoder_decoder()) return PretrainedModel::start_decoding(n, length);
    DecodeState s;
    const AttentionSpec& a = spec_.decoder.self;
    for (int64_t i = 0; i < spec_.decoder_depth; ++i)
      s.layers.emplace_back(n, a.heads, length, spec_.width / a.heads, dtype_of(net_));
    s.start = Buffer(zeros({n}, DType::i64));
    return s;
  }
  Tensor start(const ModelInputs& in, DecodeState& state) override {
    ModelInputs prompt = in;
    Tensor at;
    if (!spec_.whisper) {  // rows are padded on the left
      const Dim length = in.input_ids.shape(1);
      const Tensor from = state.start.value().unsqueeze(1);
      const Tensor steps = arange_dim(length).unsqueeze(0) - from;
      prompt.attention_mask = (steps >= 0).to(DType::i64);
      at = maximum(steps, zeros_like(steps));
    }
    const Tensor memory = encode(prompt, at);
    const AttentionSpec& a = spec_.decoder.self;
    for (Block& b : net_.decoder.layers) {
      state.layers.emplace_back(memory.size(0), a.heads, memory.size(1), spec_.width / a.heads,
                                memory.dtype());
      b.cross->fill(state.layers.back(), memory);
    }
    return decode(first_tokens(in, memory.size(0)), state);
  }
  Tensor decode(const Tensor& ids, DecodeState& state) override {
    const auto depth = static_cast<size_t>(spec_.decoder_depth);
    const int64_t fresh = ids.size(1);
    const Tensor at = state.layers[0].length.value() + arange(fresh).reshape({1, fresh});
    const Tensor own_mask = cached_mask(fresh, state, 0, false);
    Tensor seen;
    if (!spec_.whisper)
      seen =
          (arange(state.layers[depth].max_length).unsqueeze(0) >= state.start.value().unsqueeze(1))
              .unsqueeze(1)
              .unsqueeze(1);
    Tensor x = net_.decoder.begin(embed(ids), at);
    for (size_t i = 0; i < depth; ++i) {
      const AttentionCall own{.mask = own_mask, .cache = &state.layers[i]};
      const AttentionCall other{.mask = seen, .cache = &state.layers[depth + i], .complete = true};
      x = net_.decoder.layers[i].forward(std::move(x), own, {}, other);
    }
    return logits(net_.decoder.end(std::move(x)).select(1, -1));
  }

  PagedCache start_pair(int64_t blocks, int64_t block) override {
    TD_CHECK(!spec_.whisper, Unsupported, "a model whose prompts are sound does not answer texts");
    const AttentionSpec& a = spec_.decoder.self;
    return empty_pool({2 * spec_.decoder_depth, a.heads, spec_.width / a.heads}, dtype_of(net_),
                      blocks, block);
  }
  void read_prompt(const Tensor& ids, const Tensor& slots, PagedCache& cache) override {
    const Tensor memory = encode({.input_ids = ids}, {});
    auto at = static_cast<size_t>(spec_.decoder_depth);
    for (Block& b : net_.decoder.layers) b.cross->fill(cache.layers[at++], memory, slots);
  }
  Tensor decode_pair(const PagedStep& step, const Tensor& prompt_last, PagedCache& cache) override {
    const auto depth = static_cast<size_t>(spec_.decoder_depth);
    Tensor x =
        net_.decoder.begin(embed(step.ids), maximum(step.positions, zeros_like(step.positions)));
    for (size_t i = 0; i < depth; ++i) {
      const PagedLayerCall own{&cache.layers[i], &step, cache.block},
          prompt{&cache.layers[depth + i], &step, cache.block};
      x = net_.decoder.layers[i].forward(std::move(x), {.paged = &own}, {},
                                         {.complete = true, .paged = &prompt, .seen = prompt_last});
    }
    return logits(net_.decoder.end(values_at(x, step.last)));
  }

 private:
  Tensor embed(const Tensor& ids) {
    const Tensor x = net_.tokens(ids);
    return spec_.embedding_scale == 1 ? x : x * spec_.embedding_scale;
  }
  Tensor logits(const Tensor& x) {
    Tensor y = linear(x, net_.tokens.weight);
    return net_.final_logits_bias.defined() ? y + net_.final_logits_bias.value() : y;
  }
  Tensor memory_mask(const ModelInputs& in) const {
    return spec_.whisper ? Tensor() : seen_mask(in.attention_mask);
  }
  // The encoder's values; `at`: positions of the tokens where they do not begin with 0.
  Tensor encode(const ModelInputs& in, Tensor at) {
    Tensor x;
    if (spec_.whisper) {
      want(in.input_features, "input_features", 3);
      TD_CHECK(in.input_features.size(1) == spec_.mels &&
                   in.input_features.size(2) == 2 * spec_.encoder_positions,
               Shape, "the model expects input_features [n, {}, {}], got {}", spec_.mels,
               2 * spec_.encoder_positions, in.input_features.shape().to_string());
      x = gelu((*net_.encoder.conv1)(in.input_features));
      x = gelu((*net_.encoder.conv2)(std::move(x))).transpose(1, 2);
    } else {
      want(in.input_ids, "input_ids", 2);
      x = embed(in.input_ids);
    }
    if (!at.defined()) at = arange_dim(x.shape(1)).reshape({1, x.shape(1)});
    x = net_.encoder.begin(x, at);
    const AttentionCall call{.mask = memory_mask(in)};
    for (Block& b : net_.encoder.layers) x = b.forward(std::move(x), call);
    return net_.encoder.end(std::move(x));
  }

  PairSpec spec_;
  PairNet net_;
};

}  // namespace

std::unique_ptr<PretrainedModel> detail::make_encoder_decoder(const ModelConfig& c,
                                                              const FileNames& files) {
  const char* classes = c.model_type() == "whisper" ? "Whisper" : "Bart";
  const Head head = head_of(c, classes, {Head::generation});
  return std::make_unique<EncoderDecoder>(c, pair_spec(c, head, files.has("final_logits_bias")));
}

}  // namespace tandem::models
