// SPDX-License-Identifier: Apache-2.0
// Two encoders whose embeddings of texts and images are compared: CLIP (Radford et al. 2021) and
// SigLIP (Zhai et al. 2023); each part is a model of its own, too.
#include "tandem/models/pretrained/family_internal.h"
#include "tandem/models/pretrained/layers_internal.h"
#include "tandem/ops/ops.h"

namespace tandem::models {
namespace {

using namespace detail;

BlockSpec tower_block(const ModelConfig& c, bool siglip, int64_t width, int64_t heads,
                      int64_t inner) {
  BlockSpec b;
  b.self.width = c.integer("hidden_size", width, 1, 1 << 16);
  b.self.heads = c.integer("num_attention_heads", heads, 1, 1 << 12);
  if (b.self.width % b.self.heads != 0)
    c.fail("'hidden_size' is not a multiple of 'num_attention_heads'");
  b.self.q = "self_attn.q_proj";
  b.self.k = "self_attn.k_proj";
  b.self.v = "self_attn.v_proj";
  b.self.o = "self_attn.out_proj";
  b.mlp.width = b.self.width;
  b.mlp.inner = c.integer("intermediate_size", inner, 1, 1 << 20);
  b.mlp.act = activation(c, c.text("hidden_act", siglip ? "gelu_pytorch_tanh" : "quick_gelu"));
  b.mlp.up = "mlp.fc1";
  b.mlp.down = "mlp.fc2";
  b.norm.eps = c.number("layer_norm_eps", siglip ? 1e-6 : 1e-5);
  b.norm1 = "layer_norm1";
  b.norm2 = "layer_norm2";
  return b;
}

struct WordsSpec {
  WordsSpec(const ModelConfig& c, bool siglip)
      : siglip(siglip),
        block(tower_block(c, siglip, siglip ? 768 : 512, siglip ? 12 : 8, siglip ? 3072 : 2048)),
        vocab(c.integer("vocab_size", siglip ? 32000 : 49408)),
        depth(c.integer("num_hidden_layers", 12, 0, 1024)),
        positions(c.integer("max_position_embeddings", siglip ? 64 : 77)),
        eos(c.integer("eos_token_id", 49407, 0)),
        embedding(siglip ? c.integer("projection_size", block.self.width, 1, 1 << 16)
                         : c.integer("projection_dim", 512, 1, 1 << 16)) {}
  bool siglip;
  BlockSpec block;
  int64_t vocab, depth, positions, eos, embedding;
};

// Hidden values of texts, and one for the whole: CLIP's at the token that ends the text, SigLIP's
// last one, projected.
class Words : public nn::Module {
 public:
  Words(const WordsSpec& s, const std::string& prefix)
      : spec(s),
        token(s.vocab, s.block.self.width),
        position(s.positions, s.block.self.width),
        norm(s.block.self.width, s.block.norm) {
    for (int64_t i = 0; i < s.depth; ++i) layers.emplace_back(s.block);
    if (s.siglip) head.emplace(s.block.self.width, s.embedding);
    register_as(this,
                {prefix + "embeddings.token_embedding", prefix + "embeddings.position_embedding",
                 prefix + "encoder.layers", prefix + "final_layer_norm", prefix + "head"},
                token, position, layers, norm, head);
  }
  std::pair<Tensor, Tensor> run(const ModelInputs& in) {
    want(in.input_ids, "input_ids", 2);
    const Tensor& ids = in.input_ids;
    const Dim length = ids.shape(1);
    Tensor x = token(ids) + position(arange_dim(length).reshape({1, length}));
    AttentionCall call{.mask = seen_mask(in.attention_mask)};
    if (!spec.siglip) {
      call.causal = true;
      if (call.mask.defined()) call.mask = causal_mask(length, in.attention_mask);
    }
    for (Block& b : layers) x = b.forward(std::move(x), call);
    x = norm(x);
    if (head) return {x, (*head)(x.select(1, -1))};
    // Files that say 2 do not mean it: there the largest token ends the text.
    const Tensor end = spec.eos == 2 ? argmax(ids, 1) : argmax((ids == spec.eos).to(DType::i64), 1);
    const Tensor index = end.reshape({ids.shape(0), 1, 1}).expand({ids.shape(0), 1, x.size(2)});
    return {x, gather(x, 1, index).squeeze(1)};
  }
  WordsSpec spec;
  nn::Embedding token, position;
  std::vector<Block> layers;
  Norm norm;
  std::optional<nn::Linear> head;
};

struct PixelsSpec {
  PixelsSpec(const ModelConfig& c, bool siglip)
      : siglip(siglip),
        block(tower_block(c, siglip, 768, 12, 3072)),
        depth(c.integer("num_hidden_layers", 12, 0, 1024)),
        image(c.first_integer("image_size", 224)),
        patch(c.first_integer("patch_size", siglip ? 16 : 32)),
        channels(c.integer("num_channels", 3, 1, 1 << 12)),
        embedding(c.integer("projection_dim", 512, 1, 1 << 16)),
        head(siglip && c.flag("vision_use_head", true)) {
    if (patch > image) c.fail("'patch_size' is above 'image_size'");
  }
  bool siglip;
  BlockSpec block;
  int64_t depth, image, patch, channels, embedding;
  bool head;
};

// One learned query that attends to all patches.
class Pooling : public nn::Module {
 public:
  explicit Pooling(const BlockSpec& s)
      : probe(nn::init::normal({1, 1, s.self.width}, 0, 1)),
        attention(s.self.width, s.self.heads, {.batch_first = true}),
        layernorm(s.self.width, s.norm),
        mlp(s.mlp) {
    register_as(this, {"probe", "attention", "layernorm", ""}, probe, attention, layernorm, mlp);
  }
  Tensor forward(Tensor x) {
    x = attention(probe.value().expand({x.shape(0), 1, x.size(2)}), x, x);
    return (x + mlp(layernorm(x))).select(1, 0);
  }
  Param probe;
  nn::MultiheadAttention attention;
  Norm layernorm;
  Mlp mlp;
};

// Hidden values of patches, and one for the image: CLIP's class token, SigLIP's pooled one.
class Pixels : public nn::Module {
 public:
  Pixels(const PixelsSpec& s, const std::string& prefix)
      : spec(s),
        patches(s.channels, s.block.self.width, s.patch, {.stride = {s.patch}, .bias = s.siglip}),
        position((s.image / s.patch) * (s.image / s.patch) + (s.siglip ? 0 : 1),
                 s.block.self.width),
        after(s.block.self.width, s.block.norm) {
    const int64_t width = s.block.self.width;
    if (!s.siglip) {
      first = Param(nn::init::normal({width}, 0, 0.02));
      before.emplace(width, s.block.norm);
    }
    for (int64_t i = 0; i < s.depth; ++i) layers.emplace_back(s.block);
    if (s.head) head.emplace(s.block);
    register_as(this,
                {prefix + "embeddings.class_embedding", prefix + "embeddings.patch_embedding",
                 prefix + "embeddings.position_embedding", prefix + "pre_layrnorm",
                 prefix + "encoder.layers", prefix + "post_layernorm", prefix + "head"},
                first, patches, position, before, layers, after, head);
  }
  std::pair<Tensor, Tensor> run(const ModelInputs& in) {
    want(in.pixel_values, "pixel_values", 4);
    Tensor x = in.pixel_values;
    TD_CHECK(x.size(2) == spec.image && x.size(3) == spec.image, Shape,
             "the model expects images of {0} x {0}, x is {1}", spec.image, x.shape().to_string());
    x = patches(x).flatten(2).transpose(1, 2);
    if (first.defined())
      x = cat({first.value().reshape({1, 1, -1}).expand({x.shape(0), 1, x.size(2)}), x}, 1);
    x = x + position.weight;
    if (before) x = (*before)(x);
    for (Block& b : layers) x = b.forward(std::move(x), {});
    if (!spec.siglip) return {x, after(x.select(1, 0))};
    x = after(x);
    return {x, head ? (*head)(x) : Tensor()};
  }
  PixelsSpec spec;
  Param first;
  nn::Conv2d patches;
  nn::Embedding position;
  std::optional<Norm> before;
  std::vector<Block> layers;
  Norm after;
  std::optional<Pooling> head;
};

class ImageTextNet : public nn::Module {
 public:
  ImageTextNet(std::optional<Words> w, std::optional<Pixels> p, int64_t text_embedding,
               int64_t image_embedding, bool siglip)
      : words(std::move(w)), pixels(std::move(p)) {
    const nn::LinearOptions plain{.bias = false};
    if (text_embedding > 0)
      text_projection.emplace(words->spec.block.self.width, text_embedding, plain);
    if (image_embedding > 0)
      visual_projection.emplace(pixels->spec.block.self.width, image_embedding, plain);
    if (words && pixels) {
      logit_scale = Param(zeros(siglip ? Shape{1} : Shape{}));
      if (siglip) logit_bias = Param(zeros({1}));
    }
    register_as(this, {"", "", "text_projection", "visual_projection", "logit_scale", "logit_bias"},
                words, pixels, text_projection, visual_projection, logit_scale, logit_bias);
  }
  std::optional<Words> words;
  std::optional<Pixels> pixels;
  std::optional<nn::Linear> text_projection, visual_projection;
  Param logit_scale, logit_bias;
};

class ImageText : public PretrainedModel {
 public:
  ImageText(const ModelConfig& c, ImageTextNet net) : PretrainedModel(c), net_(std::move(net)) {}
  nn::Module& module() override { return net_; }

  std::vector<ModelPort> inputs() const override {
    std::vector<ModelPort> ports;
    if (net_.words) ports = text_ports();
    if (net_.pixels) {
      const PixelsSpec& s = net_.pixels->spec;
      ports.insert(ports.begin() + (net_.words ? 1 : 0),
                   {"pixel_values", DType::f32, {-1, s.channels, s.image, s.image}});
    }
    return ports;
  }
  std::vector<std::string> output_names() const override {
    if (net_.words && net_.pixels)
      return {"logits_per_image", "logits_per_text", "text_embeds", "image_embeds"};
    if (net_.text_projection) return {"text_embeds", "last_hidden_state"};
    if (net_.visual_projection) return {"image_embeds", "last_hidden_state"};
    if (net_.pixels && net_.pixels->spec.siglip && !net_.pixels->head) return {"last_hidden_state"};
    return {"last_hidden_state", "pooler_output"};
  }
  std::vector<Tensor> run(const ModelInputs& in) override {
    if (net_.words && net_.pixels) return compare(in);
    const auto [all, pooled] = net_.words ? net_.words->run(in) : net_.pixels->run(in);
    if (net_.text_projection) return {(*net_.text_projection)(pooled), all};
    if (net_.visual_projection) return {(*net_.visual_projection)(pooled), all};
    if (!pooled.defined()) return {all};
    return {all, pooled};
  }

 private:
  std::vector<Tensor> compare(const ModelInputs& in) {
    Tensor text = net_.words->run(in).second, image = net_.pixels->run(in).second;
    if (net_.text_projection) text = (*net_.text_projection)(text);
    if (net_.visual_projection) image = (*net_.visual_projection)(image);
    text = text / sqrt(square(text).sum({1}, true));
    image = image / sqrt(square(image).sum({1}, true));
    Tensor logits = matmul(text, image.transpose(0, 1)) * exp(net_.logit_scale.value());
    if (net_.logit_bias.defined()) logits = logits + net_.logit_bias;
    return {logits.transpose(0, 1), logits, text, image};
  }
  ImageTextNet net_;
};

}  // namespace

std::unique_ptr<PretrainedModel> detail::make_image_text(const ModelConfig& c, const FileNames&) {
  const std::string& type = c.model_type();
  const bool siglip = type.compare(0, 6, "siglip") == 0;
  const char* classes = siglip ? "Siglip" : "CLIP";
  if (ends_with(type, "text_model")) {
    const Head head = head_of(c, classes, {Head::text, Head::text_embedding});
    const WordsSpec s(c, siglip);
    return std::make_unique<ImageText>(
        c, ImageTextNet(Words(s, "text_model."), std::nullopt,
                        head == Head::text_embedding ? s.embedding : 0, 0, siglip));
  }
  if (ends_with(type, "vision_model")) {
    const Head head = head_of(c, classes, {Head::vision, Head::image_embedding});
    const PixelsSpec s(c, siglip);
    return std::make_unique<ImageText>(
        c, ImageTextNet(std::nullopt, Pixels(s, "vision_model."), 0,
                        head == Head::image_embedding ? s.embedding : 0, siglip));
  }
  head_of(c, classes, {Head::none});
  const int64_t both = siglip ? 0 : c.integer("projection_dim", 512, 1, 1 << 16);
  const WordsSpec words(c.part("text_config"), siglip);
  const PixelsSpec pixels(c.part("vision_config"), siglip);
  if (siglip && !pixels.head)
    c.fail("'vision_use_head': false is not supported beside a text part");
  return std::make_unique<ImageText>(
      c, ImageTextNet(Words(words, "text_model."), Pixels(pixels, "vision_model."), both, both,
                      siglip));
}

}  // namespace tandem::models
