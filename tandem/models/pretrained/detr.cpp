// SPDX-License-Identifier: Apache-2.0
// DETR (Carion et al. 2020): a ResNet, and an encoder and a decoder whose queries become boxes.
#include <cmath>
#include <numbers>

#include "tandem/models/pretrained/family_internal.h"
#include "tandem/models/pretrained/layers_internal.h"
#include "tandem/ops/nn/norm.h"
#include "tandem/ops/ops.h"

namespace tandem::models {
namespace {

using namespace detail;

struct BackboneSpec {
  int64_t channels = 3, first = 64;
  std::vector<int64_t> depths = {3, 4, 6, 3}, widths = {256, 512, 1024, 2048};
  bool bottleneck = true, first_stride = false, early_stride = false;
};

BackboneSpec backbone_spec(const ModelConfig& c) {
  BackboneSpec s;
  s.channels = c.integer("num_channels", 3, 1, 1 << 12);
  c.only("dilation", false);
  c.flag("use_pretrained_backbone", true);
  c.flag("use_timm_backbone", true);
  c.object("backbone_kwargs");
  const std::string name = c.text("backbone", "");
  if (!c.object("backbone_config")) {
    if (name == "resnet101") s.depths = {3, 4, 23, 3};
    if (name != "resnet50" && name != "resnet101")
      c.fail("'backbone': '" + name + "' is not supported, only resnet50 and resnet101");
    return s;
  }
  const ModelConfig b = c.part("backbone_config");
  b.only("model_type", "resnet");
  b.only("hidden_act", "relu");
  s.channels = b.integer("num_channels", s.channels, 1, 1 << 12);
  s.first = b.integer("embedding_size", 64, 1, 1 << 14);
  if (const auto own = b.integers("depths", 1, 1024); !own.empty()) s.depths = own;
  if (const auto own = b.integers("hidden_sizes", 4, 1 << 14); !own.empty()) s.widths = own;
  if (s.depths.size() != s.widths.size())
    c.fail("'depths' and 'hidden_sizes' of the backbone must have as many entries");
  const std::string layer = b.text("layer_type", "bottleneck");
  if (layer != "bottleneck" && layer != "basic") c.fail("'layer_type' is bottleneck or basic");
  s.bottleneck = layer == "bottleneck";
  s.first_stride = b.flag("downsample_in_first_stage", false);
  s.early_stride = b.flag("downsample_in_bottleneck", false);
  const std::vector<std::string> out = b.texts("out_features");
  b.texts("stage_names");
  b.integers("out_indices", 0);
  b.integer("chunk_size_feed_forward", 0, 0);
  if (!out.empty() && out.back() != "stage" + std::to_string(s.depths.size()))
    c.fail("'out_features' of the backbone must end with its last stage");
  return s;
}

// A convolution and a norm with fixed statistics.
class ConvNorm2d : public nn::Module {
 public:
  ConvNorm2d(int64_t in, int64_t out, int64_t kernel, int64_t stride)
      : convolution(in, out, kernel, {.stride = {stride}, .padding = {kernel / 2}, .bias = false}),
        weight(ones({out})),
        bias(zeros({out})),
        mean(zeros({out})),
        var(ones({out})) {
    register_as(this,
                {"convolution", "normalization.weight", "normalization.bias",
                 "normalization.running_mean", "normalization.running_var"},
                convolution, weight, bias, mean, var);
  }
  Tensor forward(Tensor x) {
    return batch_norm(convolution(std::move(x)), mean, var, weight, bias).y;
  }
  nn::Conv2d convolution;
  Param weight, bias;
  Buffer mean, var;
};

class ResidualBlock : public nn::Module {
 public:
  ResidualBlock(const BackboneSpec& s, int64_t in, int64_t out, int64_t stride) {
    if (in != out || stride != 1) shortcut.emplace(in, out, 1, stride);
    if (s.bottleneck) {
      const int64_t inner = out / 4;
      layer.emplace_back(in, inner, 1, s.early_stride ? stride : 1);
      layer.emplace_back(inner, inner, 3, s.early_stride ? 1 : stride);
      layer.emplace_back(inner, out, 1, 1);
    } else {
      layer.emplace_back(in, out, 3, stride);
      layer.emplace_back(out, out, 3, 1);
    }
    TD_REGISTER(shortcut, layer);
  }
  Tensor forward(Tensor x) {
    Tensor y = x;
    for (size_t i = 0; i < layer.size(); ++i) {
      y = layer[i](std::move(y));
      if (i + 1 < layer.size()) y = relu(std::move(y));
    }
    return relu(y + (shortcut ? (*shortcut)(x) : x));
  }
  std::optional<ConvNorm2d> shortcut;
  std::vector<ConvNorm2d> layer;
};
class BackboneStage : public nn::Module {
 public:
  BackboneStage(const BackboneSpec& s, size_t stage) {
    int64_t in = stage == 0 ? s.first : s.widths[stage - 1];
    int64_t stride = stage > 0 || s.first_stride ? 2 : 1;
    for (int64_t i = 0; i < s.depths[stage]; ++i) {
      layers.emplace_back(s, in, s.widths[stage], stride);
      in = s.widths[stage];
      stride = 1;
    }
    TD_REGISTER(layers);
  }
  Tensor forward(Tensor x) {
    for (ResidualBlock& b : layers) x = b(std::move(x));
    return x;
  }
  std::vector<ResidualBlock> layers;
};
class Backbone : public nn::Module {
 public:
  explicit Backbone(const BackboneSpec& s) : first(s.channels, s.first, 7, 2) {
    for (size_t i = 0; i < s.depths.size(); ++i) stages.emplace_back(s, i);
    register_as(this, {"embedder.embedder", "encoder.stages"}, first, stages);
  }
  Tensor forward(Tensor x) {
    x = max_pool2d(relu(first(std::move(x))), {3}, {2}, {1});
    for (BackboneStage& s : stages) x = s(std::move(x));
    return x;
  }
  ConvNorm2d first;
  std::vector<BackboneStage> stages;
};

struct DetrSpec {
  int64_t width = 0, encoder_depth = 0, decoder_depth = 0, queries = 0, labels = 0;
  BlockSpec encoder, decoder;
  BackboneSpec backbone;
};

AttentionSpec detr_attention(int64_t width, int64_t heads, const std::string& name) {
  AttentionSpec a{.width = width, .heads = heads};
  a.q = name + ".q_proj";
  a.k = name + ".k_proj";
  a.v = name + ".v_proj";
  a.o = name + ".out_proj";
  return a;
}
BlockSpec detr_block(const ModelConfig& c, int64_t width, const std::string& side) {
  BlockSpec b;
  const int64_t heads = c.integer(side + "_attention_heads", 8, 1, 1 << 12);
  if (width % heads != 0) c.fail("'d_model' is not a multiple of '" + side + "_attention_heads'");
  b.self = detr_attention(width, heads, "self_attn");
  if (side == "decoder") b.cross = detr_attention(width, heads, "encoder_attn");
  b.mlp.width = width;
  b.mlp.inner = c.integer(side + "_ffn_dim", 2048, 1, 1 << 20);
  b.mlp.act = activation(c, c.text("activation_function", "relu"));
  b.mlp.up = "fc1";
  b.mlp.down = "fc2";
  b.order = BlockSpec::Order::after;
  b.norm1 = "self_attn_layer_norm";
  b.cross_norm = "encoder_attn_layer_norm";
  b.norm2 = "final_layer_norm";
  return b;
}
DetrSpec detr_spec(const ModelConfig& c, Head head) {
  DetrSpec s;
  s.width = c.integer("d_model", 256, 1, 1 << 16);
  if (s.width % 4 != 0) c.fail("'d_model' must be a multiple of 4");
  s.encoder_depth = c.integer("encoder_layers", 6, 0, 1024);
  s.decoder_depth = c.integer("decoder_layers", 6, 0, 1024);
  s.queries = c.integer("num_queries", 100);
  s.labels = head == Head::detection ? c.num_labels() : 0;
  c.only("position_embedding_type", "sine");
  c.only("auxiliary_loss", false);
  c.integer("num_hidden_layers", 6, 0);  // encoder_layers
  c.only("scale_embedding", false);
  for (const char* key : {"class_cost", "bbox_cost", "giou_cost"}) c.number(key, 0);  // training
  s.encoder = detr_block(c, s.width, "encoder");
  s.decoder = detr_block(c, s.width, "decoder");
  s.backbone = backbone_spec(c);
  return s;
}

class DetrNet : public nn::Module {
 public:
  explicit DetrNet(const DetrSpec& s)
      : backbone(s.backbone),
        projection(s.backbone.widths.back(), s.width, 1),
        queries(s.queries, s.width),
        norm(s.width, {}) {
    for (int64_t i = 0; i < s.encoder_depth; ++i) encoder.emplace_back(s.encoder);
    for (int64_t i = 0; i < s.decoder_depth; ++i) decoder.emplace_back(s.decoder);
    if (s.labels > 0) {
      classes.emplace(s.width, s.labels + 1);
      for (int64_t i = 0; i < 3; ++i) boxes.emplace_back(s.width, i == 2 ? 4 : s.width);
    }
    register_as(this,
                {"model.backbone.conv_encoder.model", "model.input_projection",
                 "model.query_position_embeddings", "model.encoder.layers", "model.decoder.layers",
                 "model.decoder.layernorm", "class_labels_classifier", "bbox_predictor.layers"},
                backbone, projection, queries, encoder, decoder, norm, classes, boxes);
  }
  Backbone backbone;
  nn::Conv2d projection;
  nn::Embedding queries;
  std::vector<Block> encoder, decoder;
  Norm norm;
  std::optional<nn::Linear> classes;
  std::vector<nn::Linear> boxes;
};

// Sines and cosines of the place in height and in width, [1, h * w, width].
Tensor sine_positions(int64_t h, int64_t w, int64_t width) {
  const int64_t half = width / 2;
  std::vector<float> out;
  const auto add = [&](int64_t at, int64_t n) {
    const double place =
        static_cast<double>(at + 1) / (static_cast<double>(n) + 1e-6) * 2 * std::numbers::pi;
    for (int64_t i = 0; i < half; ++i) {
      const double t =
          std::pow(10000.0, 2.0 * static_cast<double>(i / 2) / static_cast<double>(half));
      out.push_back(static_cast<float>(i % 2 == 0 ? std::sin(place / t) : std::cos(place / t)));
    }
  };
  for (int64_t y = 0; y < h; ++y)
    for (int64_t x = 0; x < w; ++x) {
      add(y, h);
      add(x, w);
    }
  return constant(tensor(out)).reshape({1, h * w, width});
}

class Detr : public PretrainedModel {
 public:
  Detr(const ModelConfig& c, const DetrSpec& s) : PretrainedModel(c), spec_(s), net_(s) {}
  nn::Module& module() override { return net_; }
  std::vector<ModelPort> inputs() const override {
    return {{"pixel_values", DType::f32, {-1, spec_.backbone.channels, -1, -1}}};
  }
  std::vector<std::string> output_names() const override {
    if (net_.classes)
      return {"logits", "pred_boxes", "last_hidden_state", "encoder_last_hidden_state"};
    return {"last_hidden_state", "encoder_last_hidden_state"};
  }
  std::vector<Tensor> run(const ModelInputs& in) override {
    want(in.pixel_values, "pixel_values", 4);
    const Tensor map = net_.projection(net_.backbone(in.pixel_values));
    const Tensor places = sine_positions(map.size(2), map.size(3), spec_.width);
    Tensor memory = map.flatten(2).transpose(1, 2);
    const AttentionCall own{.q_added = places, .k_added = places};
    for (Block& b : net_.encoder) memory = b.forward(std::move(memory), own);
    const Tensor query =
        net_.queries.weight.value().unsqueeze(0).expand({map.shape(0), spec_.queries, spec_.width});
    const AttentionCall between{.q_added = query, .k_added = query},
        other{.q_added = query, .k_added = places};
    Tensor x = zeros_like(query);
    for (Block& b : net_.decoder) x = b.forward(std::move(x), between, memory, other);
    x = net_.norm(x);
    if (!net_.classes) return {x, memory};
    Tensor boxes = relu(net_.boxes[0](x));
    boxes = sigmoid(net_.boxes[2](relu(net_.boxes[1](boxes))));
    return {(*net_.classes)(x), boxes, x, memory};
  }

 private:
  DetrSpec spec_;
  DetrNet net_;
};

// "layer1.0.conv2" -> "encoder.stages.0.layers.0.layer.1.convolution", as timm and as Hugging Face
// call the layers of a ResNet.
std::string backbone_name(const std::string& name) {
  const auto begins = [&](const char* with) {
    return name.compare(0, std::string_view(with).size(), with) == 0;
  };
  if (begins("conv1.")) return "embedder.embedder.convolution." + name.substr(6);
  if (begins("bn1.")) return "embedder.embedder.normalization." + name.substr(4);
  if (!begins("layer") || name.size() < 8 || name[6] != '.') return name;
  const size_t dot = name.find('.', 7);
  if (dot == name.npos) return name;
  const std::string block = "encoder.stages." + std::to_string(name[5] - '1') + ".layers." +
                            name.substr(7, dot - 7) + ".";
  const std::string rest = name.substr(dot + 1);
  const auto part = [&](const char* with, size_t digits) {
    return rest.compare(0, std::string_view(with).size(), with) == 0 && rest.size() > digits;
  };
  if (part("conv", 6))
    return block + "layer." + std::to_string(rest[4] - '1') + ".convolution." + rest.substr(6);
  if (part("bn", 4))
    return block + "layer." + std::to_string(rest[2] - '1') + ".normalization." + rest.substr(4);
  if (part("downsample.0.", 13)) return block + "shortcut.convolution." + rest.substr(13);
  if (part("downsample.1.", 13)) return block + "shortcut.normalization." + rest.substr(13);
  return name;
}

}  // namespace

std::unique_ptr<PretrainedModel> detail::make_detr(const ModelConfig& c, const FileNames&) {
  const Head head = head_of(c, "Detr", {Head::detection});
  return std::make_unique<Detr>(c, detr_spec(c, head));
}

StateDict detail::detr_names(StateDict files) {
  const std::string backbone = "model.backbone.conv_encoder.model.";
  StateDict out;
  for (const auto& [name, t] : files)
    out[name.compare(0, backbone.size(), backbone) == 0
            ? backbone + backbone_name(name.substr(backbone.size()))
            : name] = t;
  return out;
}

}  // namespace tandem::models
