// SPDX-License-Identifier: Apache-2.0
// Encoders of images whose attention stays in windows of the grid of patches: Swin (Liu et al.
// 2021) with shifted windows, and the encoder of Segment Anything (Kirillov et al. 2023; Li et al.
// 2022).
#include <algorithm>
#include <cmath>

#include "tandem/models/pretrained/family_internal.h"
#include "tandem/models/pretrained/layers_internal.h"
#include "tandem/ops/ops.h"

namespace tandem::models {
namespace {

using namespace detail;

int64_t up_to(int64_t n, int64_t size) { return (n + size - 1) / size * size; }

// [n, h, w, c] -> [n * windows, size * size, c], zeros added at the bottom and at the right.
Tensor to_windows(const Tensor& x, int64_t size) {
  const int64_t h = up_to(x.size(1), size), w = up_to(x.size(2), size), c = x.size(3);
  Tensor y = x;
  if (h != x.size(1) || w != x.size(2)) y = pad(y, {0, 0, 0, w - x.size(2), 0, h - x.size(1)});
  return y.reshape({x.shape(0), h / size, size, w / size, size, c})
      .transpose(2, 3)
      .reshape({-1, size * size, c});
}
// The inverse, for a grid of h x w.
Tensor from_windows(const Tensor& x, int64_t size, int64_t h, int64_t w) {
  const int64_t c = x.size(2), rows = up_to(h, size) / size, columns = up_to(w, size) / size;
  return x.reshape({-1, rows, columns, size, size, c})
      .transpose(2, 3)
      .reshape({-1, rows * size, columns * size, c})
      .narrow(1, 0, h)
      .narrow(2, 0, w);
}

// ---- Swin

struct SwinSpec {
  explicit SwinSpec(const ModelConfig& c)
      : image(c.first_integer("image_size", 224)),
        patch(c.first_integer("patch_size", 4)),
        channels(c.integer("num_channels", 3, 1, 1 << 12)),
        width(c.integer("embed_dim", 96, 1, 1 << 14)),
        window(c.integer("window_size", 7, 1, 1 << 10)),
        depths(c.integers("depths", 1, 1024)),
        heads(c.integers("num_heads", 1, 1 << 12)),
        ratio(c.number("mlp_ratio", 4)),
        eps(c.number("layer_norm_eps", 1e-5)),
        qkv_bias(c.flag("qkv_bias", true)),
        absolute(c.flag("use_absolute_embeddings", false)),
        act(activation(c, c.text("hidden_act", "gelu"))) {
    if (depths.empty()) depths = {2, 2, 6, 2};
    if (heads.empty()) heads = {3, 6, 12, 24};
    if (depths.size() != heads.size() || depths.size() > 8)
      c.fail("'depths' and 'num_heads' must have as many entries, 8 at most");
    if (!(ratio > 0 && ratio < 1024)) c.fail("'mlp_ratio' is out of range");
    if (patch > image) c.fail("'patch_size' is above 'image_size'");
    for (size_t i = 0; i < heads.size(); ++i)
      if ((width << i) % heads[i] != 0) c.fail("'num_heads' do not divide the widths");
    // They follow from the others.
    c.integer("hidden_size", 1);
    c.integer("num_layers", 1);
    for (const char* key : {"out_features", "stage_names"}) c.texts(key);
    c.integers("out_indices", 0);
  }
  int64_t image, patch, channels, width, window;
  std::vector<int64_t> depths, heads;
  double ratio, eps;
  bool qkv_bias, absolute;
  Activation act;
};

AttentionSpec swin_attention(const SwinSpec& s, int64_t width, int64_t heads) {
  AttentionSpec a{.width = width, .heads = heads};
  a.q_bias = a.k_bias = a.v_bias = s.qkv_bias;
  a.q = "attention.self.query";
  a.k = "attention.self.key";
  a.v = "attention.self.value";
  a.o = "attention.output.dense";
  return a;
}
MlpSpec swin_mlp(const SwinSpec& s, int64_t width) {
  MlpSpec m{.width = width,
            .inner = static_cast<int64_t>(s.ratio * static_cast<double>(width)),
            .act = s.act};
  m.up = "intermediate.dense";
  m.down = "output.dense";
  return m;
}

class SwinBlock : public nn::Module {
 public:
  SwinBlock(const SwinSpec& s, int64_t width, int64_t heads, bool shifted)
      : attention(swin_attention(s, width, heads)),
        mlp(swin_mlp(s, width)),
        before(width, {.eps = s.eps}),
        after(width, {.eps = s.eps}),
        table(zeros({(2 * s.window - 1) * (2 * s.window - 1), heads})),
        window(s.window),
        shifted(shifted) {
    register_as(this,
                {"", "", "layernorm_before", "layernorm_after",
                 "attention.self.relative_position_bias_table"},
                attention, mlp, before, after, table);
  }
  // x [n, h, w, c]
  Tensor forward(Tensor x) {
    const int64_t h = x.size(1), w = x.size(2), c = x.size(3);
    TD_CHECK(std::min(h, w) >= window, Shape, "a grid of {} x {} is smaller than its windows of {}",
             h, w, window);
    const int64_t shift = shifted && std::min(h, w) > window ? window / 2 : 0;
    const int64_t rows = up_to(h, window), columns = up_to(w, window);
    Tensor y = before(x);
    if (rows != h || columns != w) y = pad(y, {0, 0, 0, columns - w, 0, rows - h});
    if (shift > 0) y = roll(y, {-shift, -shift}, {1, 2});
    y = to_windows(y, window);
    Tensor added = bias();
    if (shift > 0) {
      const Tensor apart = regions(rows, columns, shift);
      const int64_t windows = apart.size(0), area = window * window;
      added = (added + apart.unsqueeze(1)).unsqueeze(0);
      added = added.expand({x.shape(0), windows, attention.spec.heads, area, area})
                  .reshape({-1, attention.spec.heads, area, area});
    }
    y = attention.forward(y, y, {.mask = added});
    y = from_windows(y, window, rows, columns);
    if (shift > 0) y = roll(y, {shift, shift}, {1, 2});
    x = x + y.narrow(1, 0, h).narrow(2, 0, w);
    return x + mlp(after(x)).reshape({x.shape(0), h, w, c});
  }
  Attention attention;
  Mlp mlp;
  Norm before, after;
  Param table;
  int64_t window;
  bool shifted;

 private:
  // [1, heads, area, area]: an entry of the table for each distance in a window.
  Tensor bias() const {
    std::vector<int64_t> index;
    for (int64_t a = 0; a < window * window; ++a)
      for (int64_t b = 0; b < window * window; ++b)
        index.push_back((a / window - b / window + window - 1) * (2 * window - 1) + a % window -
                        b % window + window - 1);
    const int64_t area = window * window;
    return index_select(table, 0, constant(tensor(index)))
        .reshape({1, area, area, -1})
        .permute({0, 3, 1, 2});
  }
  // [windows, area, area]: -100 between patches that the shift brought together.
  Tensor regions(int64_t rows, int64_t columns, int64_t shift) const {
    const auto region = [&](int64_t at, int64_t n) {
      return (at >= n - window ? 1 : 0) + (at >= n - shift ? 1 : 0);
    };
    std::vector<float> added;
    for (int64_t top = 0; top < rows; top += window)
      for (int64_t left = 0; left < columns; left += window)
        for (int64_t a = 0; a < window * window; ++a)
          for (int64_t b = 0; b < window * window; ++b)
            added.push_back(region(top + a / window, rows) == region(top + b / window, rows) &&
                                    region(left + a % window, columns) ==
                                        region(left + b % window, columns)
                                ? 0.0F
                                : -100.0F);
    return constant(tensor(added)).reshape({-1, window * window, window * window});
  }
};

// Four neighbours become one of twice the width.
class Merging : public nn::Module {
 public:
  explicit Merging(int64_t width)
      : reduction(4 * width, 2 * width, {.bias = false}), norm(4 * width, {}) {
    TD_REGISTER(reduction, norm);
  }
  Tensor forward(Tensor x) {
    const int64_t h = up_to(x.size(1), 2), w = up_to(x.size(2), 2), c = x.size(3);
    if (h != x.size(1) || w != x.size(2)) x = pad(x, {0, 0, 0, w - x.size(2), 0, h - x.size(1)});
    // Columns first: (0, 0), (1, 0), (0, 1), (1, 1).
    x = x.reshape({x.shape(0), h / 2, 2, w / 2, 2, c}).permute({0, 1, 3, 4, 2, 5});
    return reduction(norm(x.reshape({x.shape(0), h / 2, w / 2, 4 * c})));
  }
  nn::Linear reduction;
  Norm norm;
};

class SwinStage : public nn::Module {
 public:
  SwinStage(const SwinSpec& s, size_t stage) {
    const int64_t width = s.width << stage;
    for (int64_t i = 0; i < s.depths[stage]; ++i)
      blocks.emplace_back(s, width, s.heads[stage], i % 2 == 1);
    if (stage + 1 < s.depths.size()) downsample.emplace(width);
    TD_REGISTER(blocks, downsample);
  }
  Tensor forward(Tensor x) {
    for (SwinBlock& b : blocks) x = b(std::move(x));
    return downsample ? (*downsample)(std::move(x)) : x;
  }
  std::vector<SwinBlock> blocks;
  std::optional<Merging> downsample;
};

class SwinNet : public nn::Module {
 public:
  SwinNet(const SwinSpec& s, int64_t labels)
      : projection(s.channels, s.width, s.patch, {.stride = {s.patch}}),
        first(s.width, {}),
        norm(s.width << (s.depths.size() - 1), {.eps = s.eps}) {
    if (s.absolute)
      positions = Param(zeros({1, (s.image / s.patch) * (s.image / s.patch), s.width}));
    for (size_t i = 0; i < s.depths.size(); ++i) stages.emplace_back(s, i);
    if (labels > 0) classifier.emplace(norm.weight.size(0), labels);
    register_as(this,
                {"swin.embeddings.patch_embeddings.projection", "swin.embeddings.norm",
                 "swin.embeddings.position_embeddings", "swin.encoder.layers", "swin.layernorm",
                 "classifier"},
                projection, first, positions, stages, norm, classifier);
  }
  nn::Conv2d projection;
  Norm first;
  Param positions;
  std::vector<SwinStage> stages;
  Norm norm;
  std::optional<nn::Linear> classifier;
};

class Swin : public PretrainedModel {
 public:
  Swin(const ModelConfig& c, const SwinSpec& s, int64_t labels)
      : PretrainedModel(c), spec_(s), net_(s, labels) {}
  nn::Module& module() override { return net_; }
  std::vector<ModelPort> inputs() const override {
    return {{"pixel_values", DType::f32, {-1, spec_.channels, spec_.image, spec_.image}}};
  }
  std::vector<std::string> output_names() const override {
    if (net_.classifier) return {"logits"};
    return {"last_hidden_state", "pooler_output"};
  }
  std::vector<Tensor> run(const ModelInputs& in) override {
    want(in.pixel_values, "pixel_values", 4);
    Tensor x = in.pixel_values;
    const int64_t right = up_to(x.size(3), spec_.patch) - x.size(3),
                  bottom = up_to(x.size(2), spec_.patch) - x.size(2);
    if (right > 0 || bottom > 0) x = pad(x, {0, right, 0, bottom});
    x = net_.first(net_.projection(x).permute({0, 2, 3, 1}));
    if (net_.positions.defined()) {
      TD_CHECK(x.size(1) * x.size(2) == net_.positions.size(1), Shape,
               "the model expects images of {0} x {0}, x is {1}", spec_.image,
               in.pixel_values.shape().to_string());
      x = x + net_.positions.value().reshape({1, x.size(1), x.size(2), x.size(3)});
    }
    for (SwinStage& s : net_.stages) x = s(std::move(x));
    x = net_.norm(x).flatten(1, 2);
    const Tensor pooled = x.mean({1});
    if (net_.classifier) return {(*net_.classifier)(pooled)};
    return {x, pooled};
  }

 private:
  SwinSpec spec_;
  SwinNet net_;
};

// ---- Segment Anything's encoder

struct SamSpec {
  explicit SamSpec(const ModelConfig& c)
      : image(c.first_integer("image_size", 1024)),
        patch(c.first_integer("patch_size", 16)),
        channels(c.integer("num_channels", 3, 1, 1 << 12)),
        width(c.integer("hidden_size", 768, 1, 1 << 16)),
        depth(c.integer("num_hidden_layers", 12, 0, 1024)),
        heads(c.integer("num_attention_heads", 12, 1, 1 << 12)),
        window(c.integer("window_size", 14, 0, 1 << 10)),
        out(c.integer("output_channels", 256, 1, 1 << 14)),
        global(c.integers("global_attn_indexes", 0, 1024)),
        eps(c.number("layer_norm_eps", 1e-6)),
        qkv_bias(c.flag("qkv_bias", true)),
        absolute(c.flag("use_abs_pos", true)),
        relative(c.flag("use_rel_pos", true)) {
    const double ratio = c.number("mlp_ratio", 4);
    mlp.width = width;
    mlp.inner = c.integer(
        "mlp_dim", std::max<int64_t>(1, static_cast<int64_t>(static_cast<double>(width) * ratio)),
        1, 1 << 20);
    mlp.act = activation(c, c.text("hidden_act", "gelu"));
    mlp.up = "mlp.lin1";
    mlp.down = "mlp.lin2";
    if (width % heads != 0) c.fail("'hidden_size' is not a multiple of 'num_attention_heads'");
    if (patch > image) c.fail("'patch_size' is above 'image_size'");
    c.integer("num_pos_feats", 128);  // of the prompts
    c.number("scale", 0);
  }
  // 0: the whole grid
  int64_t window_of(int64_t layer) const {
    return std::find(global.begin(), global.end(), layer) == global.end() ? window : 0;
  }
  int64_t image, patch, channels, width, depth, heads, window, out;
  std::vector<int64_t> global;
  double eps;
  bool qkv_bias, absolute, relative;
  MlpSpec mlp;
};

class SamBlock : public nn::Module {
 public:
  SamBlock(const SamSpec& s, int64_t window)
      : norm1(s.width, {.eps = s.eps}),
        norm2(s.width, {.eps = s.eps}),
        qkv(s.width, 3 * s.width, {.bias = s.qkv_bias}),
        proj(s.width, s.width),
        mlp(s.mlp),
        heads(s.heads),
        window(window) {
    const int64_t side = window > 0 ? window : s.image / s.patch;
    if (s.relative) {
      rel_pos_h = Param(zeros({2 * side - 1, s.width / s.heads}));
      rel_pos_w = Param(zeros({2 * side - 1, s.width / s.heads}));
    }
    register_as(this,
                {"layer_norm1", "layer_norm2", "attn.qkv", "attn.proj", "attn.rel_pos_h",
                 "attn.rel_pos_w", ""},
                norm1, norm2, qkv, proj, rel_pos_h, rel_pos_w, mlp);
  }
  // x [n, h, w, c]
  Tensor forward(Tensor x) {
    const int64_t h = x.size(1), w = x.size(2), c = x.size(3);
    const Tensor y = norm1(x);
    if (window > 0)
      x = x + from_windows(attention(to_windows(y, window), window, window), window, h, w);
    else
      x = x + attention(y.flatten(1, 2), h, w).reshape({x.shape(0), h, w, c});
    return x + mlp(norm2(x));
  }
  Norm norm1, norm2;
  nn::Linear qkv, proj;
  Param rel_pos_h, rel_pos_w;
  Mlp mlp;
  int64_t heads, window;

 private:
  // x [n, h * w, c] of a grid of h x w.
  Tensor attention(const Tensor& x, int64_t h, int64_t w) {
    const int64_t c = x.size(2);
    const Tensor all = qkv(x);
    const Tensor q = split_heads(all.narrow(2, 0, c), heads),
                 k = split_heads(all.narrow(2, c, c), heads),
                 v = split_heads(all.narrow(2, 2 * c, c), heads);
    Tensor added;
    if (rel_pos_h.defined()) {
      // What each query says of the distance in height and in width: [n * heads, h, w, h | w].
      const Tensor grid = q.reshape({-1, h, w, c / heads});
      const Tensor up = matmul(grid, distances(rel_pos_h, h).transpose(1, 2));
      const Tensor across =
          matmul(grid.transpose(1, 2), distances(rel_pos_w, w).transpose(1, 2)).transpose(1, 2);
      added = (up.unsqueeze(4) + across.unsqueeze(3)).reshape({-1, heads, h * w, h * w});
    }
    return proj(merge_heads(attend(q, k, v, added, false, 0, 0)));
  }
  // [side, side, d]: a row of the table for each pair of places.
  static Tensor distances(const Param& table, int64_t side) {
    TD_CHECK(table.size(0) == 2 * side - 1, Shape,
             "the model has {} relative positions, a side of {} expects {}", table.size(0), side,
             2 * side - 1);
    std::vector<int64_t> index;
    for (int64_t a = 0; a < side; ++a)
      for (int64_t b = 0; b < side; ++b) index.push_back(a - b + side - 1);
    return index_select(table, 0, constant(tensor(index))).reshape({side, side, table.size(1)});
  }
};

class SamNet : public nn::Module {
 public:
  explicit SamNet(const SamSpec& s)
      : projection(s.channels, s.width, s.patch, {.stride = {s.patch}}),
        conv1(s.width, s.out, 1, {.bias = false}),
        conv2(s.out, s.out, 3, {.padding = {1}, .bias = false}),
        norm1(s.out, {.eps = 1e-6}),
        norm2(s.out, {.eps = 1e-6}) {
    const int64_t side = s.image / s.patch;
    if (s.absolute) positions = Param(zeros({1, side, side, s.width}));
    for (int64_t i = 0; i < s.depth; ++i) layers.emplace_back(s, s.window_of(i));
    const std::string p = "vision_encoder.";
    register_as(this,
                {p + "patch_embed.projection", p + "pos_embed", p + "layers", p + "neck.conv1",
                 p + "neck.layer_norm1", p + "neck.conv2", p + "neck.layer_norm2"},
                projection, positions, layers, conv1, norm1, conv2, norm2);
  }
  nn::Conv2d projection;
  Param positions;
  std::vector<SamBlock> layers;
  nn::Conv2d conv1, conv2;
  Norm norm1, norm2;
};

class Sam : public PretrainedModel {
 public:
  Sam(const ModelConfig& c, const SamSpec& s, bool whole)
      : PretrainedModel(c), spec_(s), whole_(whole), net_(s) {}
  nn::Module& module() override { return net_; }
  std::vector<ModelPort> inputs() const override {
    return {{"pixel_values", DType::f32, {-1, spec_.channels, spec_.image, spec_.image}}};
  }
  std::vector<std::string> output_names() const override {
    return {whole_ ? "image_embeddings" : "last_hidden_state"};
  }
  std::vector<Tensor> run(const ModelInputs& in) override {
    want(in.pixel_values, "pixel_values", 4);
    Tensor x = in.pixel_values;
    TD_CHECK(x.size(2) == spec_.image && x.size(3) == spec_.image, Shape,
             "the model expects images of {0} x {0}, x is {1}", spec_.image, x.shape().to_string());
    x = net_.projection(x).permute({0, 2, 3, 1});
    if (net_.positions.defined()) x = x + net_.positions;
    for (SamBlock& b : net_.layers) x = b(std::move(x));
    const auto last = [](Norm& norm, const Tensor& y) {
      return norm(y.permute({0, 2, 3, 1})).permute({0, 3, 1, 2});
    };
    x = last(net_.norm1, net_.conv1(x.permute({0, 3, 1, 2})));
    return {last(net_.norm2, net_.conv2(x))};
  }

 private:
  SamSpec spec_;
  bool whole_;
  SamNet net_;
};

}  // namespace

std::unique_ptr<PretrainedModel> detail::make_swin(const ModelConfig& c, const FileNames&) {
  const Head head = head_of(c, "Swin", {Head::none, Head::image});
  return std::make_unique<Swin>(c, SwinSpec(c), head == Head::image ? c.num_labels() : 0);
}
std::unique_ptr<PretrainedModel> detail::make_sam(const ModelConfig& c, const FileNames&) {
  const bool whole = c.model_type() == "sam";
  head_of(c, "Sam", {whole ? Head::none : Head::vision});
  return std::make_unique<Sam>(c, SamSpec(whole ? c.part("vision_config") : c), whole);
}

}  // namespace tandem::models
