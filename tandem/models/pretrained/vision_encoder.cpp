// SPDX-License-Identifier: Apache-2.0
// Vision transformers over patches of an image: ViT (Dosovitskiy et al. 2020), DINOv2 (Oquab et al.
// 2023) and masked autoencoders (He et al. 2021), with the names of Hugging Face's files;
// vision/vit.cpp has the one with torchvision's names.
#include <cmath>

#include "tandem/models/pretrained/family_internal.h"
#include "tandem/models/pretrained/layers_internal.h"
#include "tandem/ops/ops.h"

namespace tandem::models {
namespace {

using namespace detail;

struct VisionSpec {
  std::string prefix;
  int64_t width = 0, depth = 0, image = 0, patch = 0, channels = 0;
  BlockSpec block;
  bool any_size = false;    // positions are interpolated for images of other sizes
  bool mask_token = false;  // the files hold one, which images without masks do not use
  bool pools_mean = false;  // the class token beside the mean of the patches is classified
  int64_t labels = 0;
  double hidden_share = 0;  // of patches, in masked autoencoders
  // Of their decoder; depth 0: there is none.
  int64_t decoder_width = 0, decoder_depth = 0;
  BlockSpec decoder_block;
};

int64_t patches_of(const VisionSpec& s) { return (s.image / s.patch) * (s.image / s.patch); }

void name_vit(BlockSpec& b) {
  b.self.q = "attention.attention.query";
  b.self.k = "attention.attention.key";
  b.self.v = "attention.attention.value";
  b.self.o = "attention.output.dense";
  b.mlp.up = "intermediate.dense";
  b.mlp.down = "output.dense";
  b.norm1 = "layernorm_before";
  b.norm2 = "layernorm_after";
}

VisionSpec image_spec(const ModelConfig& c, const char* prefix, double eps) {
  VisionSpec s{.prefix = prefix};
  s.width = c.integer("hidden_size", 768, 1, 1 << 16);
  s.depth = c.integer("num_hidden_layers", 12, 0, 1024);
  s.image = c.first_integer("image_size", 224);
  s.patch = c.first_integer("patch_size", 16);
  s.channels = c.integer("num_channels", 3, 1, 1 << 12);
  if (s.patch > s.image) c.fail("'patch_size' is above 'image_size'");
  AttentionSpec& a = s.block.self;
  a.width = s.width;
  a.heads = c.integer("num_attention_heads", 12, 1, 1 << 12);
  a.q_bias = a.k_bias = a.v_bias = c.flag("qkv_bias", true);
  if (s.width % a.heads != 0) c.fail("'hidden_size' is not a multiple of 'num_attention_heads'");
  s.block.mlp.width = s.width;
  s.block.mlp.act = activation(c, c.text("hidden_act", "gelu"));
  s.block.norm.eps = c.number("layer_norm_eps", eps);
  name_vit(s.block);
  return s;
}

VisionSpec vit_spec(const ModelConfig& c, const char* prefix = "vit.") {
  VisionSpec s = image_spec(c, prefix, 1e-12);
  s.block.mlp.inner = c.integer("intermediate_size", 3072, 1, 1 << 20);
  c.only("pooler_act", "tanh");
  if (c.integer("pooler_output_size", s.width) != s.width)
    c.fail("'pooler_output_size' must be 'hidden_size'");
  return s;
}

VisionSpec dinov2_spec(const ModelConfig& c) {
  VisionSpec s = image_spec(c, "dinov2.", 1e-6);
  const double ratio = c.number("mlp_ratio", 4);
  const auto inner = static_cast<int64_t>(static_cast<double>(s.width) * ratio);
  if (!(ratio > 0) || inner < 1 || inner > 1 << 20) c.fail("'mlp_ratio' is out of range");
  s.block.mlp.inner = inner;
  s.block.mlp.up = "mlp.fc1";
  s.block.mlp.down = "mlp.fc2";
  if (c.flag("use_swiglu_ffn", false)) {
    s.block.mlp.inner = (inner * 2 / 3 + 7) / 8 * 8;
    s.block.mlp.gated = s.block.mlp.packed = true;
    s.block.mlp.act = activation(c, "silu");
    s.block.mlp.up = "mlp.weights_in";
    s.block.mlp.down = "mlp.weights_out";
  }
  s.block.norm1 = "norm1";
  s.block.norm2 = "norm2";
  s.block.scaled = true;
  s.block.scale1 = "layer_scale1.lambda1";
  s.block.scale2 = "layer_scale2.lambda1";
  s.any_size = s.pools_mean = true;
  s.mask_token = c.flag("use_mask_token", true);
  // Of backbones alone.
  for (const char* key : {"apply_layernorm", "reshape_hidden_states"}) c.flag(key, true);
  for (const char* key : {"out_features", "stage_names"}) c.texts(key);
  c.integers("out_indices", 0);
  return s;
}

VisionSpec mae_spec(const ModelConfig& c, bool decoder) {
  VisionSpec s = vit_spec(c);
  s.hidden_share = c.number("mask_ratio", 0.75);
  if (!(s.hidden_share >= 0 && s.hidden_share < 1)) c.fail("'mask_ratio' must lie in [0, 1)");
  c.flag("norm_pix_loss", false);  // of the loss alone
  s.decoder_width = c.integer("decoder_hidden_size", 512, 1, 1 << 16);
  const int64_t heads = c.integer("decoder_num_attention_heads", 16, 1, 1 << 12);
  const int64_t inner = c.integer("decoder_intermediate_size", 2048, 1, 1 << 20);
  const int64_t depth = c.integer("decoder_num_hidden_layers", 8, 1, 1024);
  if (!decoder) return s;
  if (s.decoder_width % heads != 0)
    c.fail("'decoder_hidden_size' is not a multiple of 'decoder_num_attention_heads'");
  s.decoder_depth = depth;
  s.decoder_block = s.block;
  s.decoder_block.self.width = s.decoder_block.mlp.width = s.decoder_width;
  s.decoder_block.self.heads = heads;
  s.decoder_block.mlp.inner = inner;
  return s;
}

// The decoder of a masked autoencoder: from visible patches to the pixels of all.
class PixelDecoder : public nn::Module {
 public:
  explicit PixelDecoder(const VisionSpec& s)
      : decoder_embed(s.width, s.decoder_width),
        mask_token(zeros({1, 1, s.decoder_width})),
        decoder_pos_embed(zeros({1, patches_of(s) + 1, s.decoder_width})),
        decoder_norm(s.decoder_width, s.block.norm),
        decoder_pred(s.decoder_width, s.patch * s.patch * s.channels) {
    for (int64_t i = 0; i < s.decoder_depth; ++i) decoder_layers.emplace_back(s.decoder_block);
    TD_REGISTER(decoder_embed, mask_token, decoder_pos_embed, decoder_layers, decoder_norm,
                decoder_pred);
  }
  // x [n, 1 + visible, width], restore [n, patches]: where each patch is in x and the masks.
  Tensor forward(Tensor x, const Tensor& restore) {
    x = decoder_embed(std::move(x));
    const int64_t width = x.size(2), visible = x.size(1) - 1;
    const Dim n = x.shape(0), patches = restore.shape(1);
    const Tensor masks = mask_token.value().expand({n, patches - visible, width});
    const Tensor all = cat({x.narrow(1, 1, visible), masks}, 1);
    const Tensor index = restore.unsqueeze(2).expand({n, patches, width});
    x = cat({x.narrow(1, 0, 1), gather(all, 1, index)}, 1) + decoder_pos_embed;
    for (Block& b : decoder_layers) x = b.forward(std::move(x), {});
    x = decoder_pred(decoder_norm(x));
    return x.narrow(1, 1, x.size(1) - 1);
  }
  nn::Linear decoder_embed;
  Param mask_token, decoder_pos_embed;
  std::vector<Block> decoder_layers;
  Norm decoder_norm;
  nn::Linear decoder_pred;
};

class VisionNet : public nn::Module {
 public:
  VisionNet(const VisionSpec& s, bool with_pooler)
      : cls_token(zeros({1, 1, s.width})),
        positions(nn::init::normal({1, patches_of(s) + 1, s.width}, 0, 0.02)),
        projection(s.channels, s.width, s.patch, {.stride = s.patch}),
        norm(s.width, s.block.norm) {
    if (s.mask_token) mask_token = Param(zeros({1, s.width}));
    for (int64_t i = 0; i < s.depth; ++i) layers.emplace_back(s.block);
    if (with_pooler) pooler.emplace(s.width, s.width);
    if (s.labels > 0) classifier.emplace(s.pools_mean ? 2 * s.width : s.width, s.labels);
    if (s.decoder_depth > 0) decoder.emplace(s);
    const std::string p = s.prefix, e = p + "embeddings.";
    register_as(this,
                {e + "cls_token", e + "mask_token", e + "position_embeddings",
                 e + "patch_embeddings.projection", p + "encoder.layer", p + "layernorm",
                 p + "pooler.dense", "classifier", "decoder"},
                cls_token, mask_token, positions, projection, layers, norm, pooler, classifier,
                decoder);
  }
  Param cls_token, mask_token, positions;
  nn::Conv2d projection;
  std::vector<Block> layers;
  Norm norm;
  std::optional<nn::Linear> pooler, classifier;
  std::optional<PixelDecoder> decoder;
};

class VisionEncoder : public PretrainedModel {
 public:
  VisionEncoder(const ModelConfig& c, const VisionSpec& s, bool pooler)
      : PretrainedModel(c), spec_(s), net_(s, pooler) {}
  nn::Module& module() override { return net_; }

  std::vector<ModelPort> inputs() const override {
    std::vector<ModelPort> ports = {
        {"pixel_values", DType::f32, {-1, spec_.channels, spec_.image, spec_.image}}};
    if (spec_.hidden_share > 0)
      ports.push_back({"noise", DType::f32, {-1, patches_of(spec_)}, true});
    return ports;
  }
  std::vector<std::string> output_names() const override {
    if (net_.classifier) return {"logits"};
    if (spec_.hidden_share > 0)
      return {net_.decoder ? "logits" : "last_hidden_state", "mask", "ids_restore"};
    if (net_.pooler || spec_.pools_mean) return {"last_hidden_state", "pooler_output"};
    return {"last_hidden_state"};
  }
  std::vector<Tensor> run(const ModelInputs& in) override {
    want(in.pixel_values, "pixel_values", 4);
    const Tensor position = positions_of(in.pixel_values);
    Tensor x = net_.projection(in.pixel_values).flatten(2).transpose(1, 2);
    const int64_t places = position.size(1);
    x = x + position.narrow(1, 1, places - 1);
    Masked masked;
    if (spec_.hidden_share > 0) x = hide(x, in.noise, masked);
    const Tensor first = net_.cls_token.value() + position.narrow(1, 0, 1);
    x = cat({first.expand({x.shape(0), 1, x.size(2)}), x}, 1);
    for (Block& b : net_.layers) x = b.forward(std::move(x), {});
    x = net_.norm(x);
    if (net_.classifier) {
      Tensor whole = x.select(1, 0);
      if (spec_.pools_mean) whole = cat({whole, x.narrow(1, 1, places - 1).mean({1})}, 1);
      return {(*net_.classifier)(whole)};
    }
    if (spec_.hidden_share > 0)
      return {net_.decoder ? net_.decoder->forward(x, masked.restore) : x, masked.mask,
              masked.restore};
    if (net_.pooler) return {x, tanh((*net_.pooler)(x.select(1, 0)))};
    if (spec_.pools_mean) return {x, x.select(1, 0)};
    return {x};
  }

 private:
  struct Masked {
    Tensor mask, restore;
  };
  Tensor positions_of(const Tensor& x) const {
    const int64_t h = x.size(2), w = x.size(3), side = spec_.image / spec_.patch;
    if (h == spec_.image && w == spec_.image) return net_.positions;
    TD_CHECK(spec_.any_size && h >= spec_.patch && w >= spec_.patch, Shape,
             "the model expects images of {0} x {0}, x is {1}", spec_.image, x.shape().to_string());
    const Tensor all = net_.positions;
    const Tensor grid =
        all.narrow(1, 1, side * side).reshape({1, side, side, spec_.width}).permute({0, 3, 1, 2});
    const Tensor sized = interpolate(
        grid,
        {.size = {h / spec_.patch, w / spec_.patch}, .mode = "bicubic", .align_corners = false});
    return cat({all.narrow(1, 0, 1), sized.flatten(2).transpose(1, 2)}, 1);
  }
  // Keeps the patches with the least noise.
  Tensor hide(const Tensor& x, Tensor noise, Masked& out) const {
    const Dim n = x.shape(0);
    const int64_t patches = patches_of(spec_);
    if (!noise.defined()) noise = rand({n, patches});
    TD_CHECK(noise.dim() == 2 && noise.size(1) == patches, Shape, "noise expects [n, {}], got {}",
             patches, noise.shape().to_string());
    const auto kept = static_cast<int64_t>(static_cast<double>(patches) * (1 - spec_.hidden_share));
    const Tensor order = argsort(noise, 1);
    out.restore = argsort(order, 1);
    out.mask = (out.restore >= kept).to(x.dtype());
    const Tensor index = order.narrow(1, 0, kept).unsqueeze(2).expand({n, kept, x.size(2)});
    return gather(x, 1, index);
  }
  VisionSpec spec_;
  VisionNet net_;
};

}  // namespace

std::unique_ptr<PretrainedModel> detail::make_vision_encoder(const ModelConfig& c,
                                                             const FileNames& files) {
  const bool dino = c.model_type() == "dinov2", mae = c.model_type() == "vit_mae";
  const Head head = mae    ? head_of(c, "ViTMAE", {Head::pretraining})
                    : dino ? head_of(c, "Dinov2", {Head::none, Head::image})
                           : head_of(c, "ViT", {Head::none, Head::image});
  VisionSpec s = dino ? dinov2_spec(c) : mae ? mae_spec(c, head == Head::pretraining) : vit_spec(c);
  if (head == Head::image) s.labels = c.num_labels();
  const bool pooler =
      head == Head::none && !dino && !mae && files.has(s.prefix + "pooler.dense.weight");
  return std::make_unique<VisionEncoder>(c, s, pooler);
}

StateDict detail::mae_names(StateDict files) {
  // Later versions of `transformers` write the decoder's layers under the encoder's name.
  const std::string later = "decoder.decoder_encoder.layer.";
  StateDict out;
  for (const auto& [name, t] : files)
    out[name.compare(0, later.size(), later) == 0
            ? "decoder.decoder_layers." + name.substr(later.size())
            : name] = t;
  return out;
}

}  // namespace tandem::models
