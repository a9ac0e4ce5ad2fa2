// SPDX-License-Identifier: Apache-2.0
// Keras's layers as nodes. Channels are last; what a layer does to the batch of one sample is the
// same for any batch, so that the first dimension stays open.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "tandem/onnx/tensorflow/keras_internal.h"
#include "tandem/ops/ops.h"

namespace tandem::onnx {
namespace {

using io::Json;
using Values = KerasBuilder::Values;

/// Dimensions of the images of "Conv2D", "MaxPooling1D"...
size_t image_dims(const std::string& type) {
  for (size_t i = 0; i < type.size(); ++i)
    if (type[i] >= '1' && type[i] <= '3' && i + 1 < type.size() && type[i + 1] == 'D')
      return static_cast<size_t>(type[i] - '0');
  return 2;
}

/// One entry for each dimension of images with channels last.
std::vector<int64_t> around(std::vector<int64_t> v) {
  v.insert(v.begin(), 1);
  v.push_back(1);
  return v;
}

std::string upper(std::string s) {
  for (char& c : s) c = static_cast<char>(c >= 'a' && c <= 'z' ? c - 32 : c);
  return s;
}

/// "relu" from a text, or from an object with a class or registered name.
std::string activation_name(const Json* j) {
  if (!j || j->is_null()) return "linear";
  if (j->as_string()) return *j->as_string();
  const Json* config = j->find("config");
  if (config && config->as_string()) return *config->as_string();
  return io::text_of(j->find("class_name"));
}

}  // namespace

// ---- activations

std::string KerasBuilder::activate(const KerasCall& c, const std::string& x,
                                   const Json* activation) {
  const Json* config = activation && activation->as_object() ? activation->find("config") : nullptr;
  return activate(c, x, activation_name(activation), config);
}

std::string KerasBuilder::activate(const KerasCall& c, const std::string& x,
                                   const std::string& name, const Json* config) {
  struct Plain {
    const char *name, *op, *domain;
    std::vector<double> numbers = {};  ///< more inputs
  };
  static const Plain kPlain[] = {
      {"relu", "Relu", kOnnxTf},
      {"relu6", "Relu6", kOnnxTf},
      {"sigmoid", "Sigmoid", kOnnxTf},
      {"tanh", "Tanh", kOnnxTf},
      {"softmax", "Softmax", kOnnxTf},
      {"log_softmax", "LogSoftmax", kOnnxTf},
      {"softplus", "Softplus", kOnnxTf},
      {"softsign", "Softsign", kOnnxTf},
      {"elu", "Elu", kOnnxTf},
      {"selu", "Selu", kOnnxTf},
      {"exponential", "Exp", kOnnxTf},
      {"mish", "Mish", ""},
      {"hard_silu", "HardSwish", ""},
      {"hard_swish", "HardSwish", ""},
      {"gelu", "Gelu", ""},
      {"leaky_relu", "LeakyRelu", kOnnxTf},
      {"celu", "celu", kOnnxTandem, {1}},
      {"hard_shrink", "hardshrink", kOnnxTandem, {0.5}},
      {"soft_shrink", "softshrink", kOnnxTandem, {0.5}},
      {"tanh_shrink", "tanhshrink", kOnnxTandem},
      {"hard_tanh", "hardtanh", kOnnxTandem, {-1, 1}},
      {"log_sigmoid", "logsigmoid", kOnnxTandem},
      {"glu", "Glu", kOnnxKeras},
      {"sparsemax", "Sparsemax", kOnnxKeras},
      {"sparse_plus", "SparsePlus", kOnnxKeras},
      {"sparse_sigmoid", "SparseSigmoid", kOnnxKeras},
      {"squareplus", "Squareplus", kOnnxKeras},
  };
  if (name == "linear") return x;
  for (const Plain& p : kPlain)
    if (name == p.name) {
      if (name == "gelu" && config && config->find("approximate") &&
          config->find("approximate")->as_bool() && *config->find("approximate")->as_bool())
        return onnx(c, "Gelu", {x}, {onnx_text("approximate", "tanh")});
      Values in{x};
      for (const double v : p.numbers) in.push_back(number(v));
      return node(c, p.op, std::move(in), {}, p.domain);
    }
  if (name == "swish" || name == "silu") return node(c, "Mul", {x, node(c, "Sigmoid", {x})});
  if (name == "hard_sigmoid")
    return onnx(c, "HardSigmoid", {x}, {onnx_float("alpha", keras2_ ? 0.2 : 1.0 / 6)});
  lacks(c, fmt::format("the activation '{}'", name));
}

Values KerasBuilder::same(const KerasCall& c) { return {c.in()}; }
Values KerasBuilder::activation(const KerasCall& c) {
  return {activate(c, c.in(), c.find("activation"))};
}

Values KerasBuilder::relu_layer(const KerasCall& c) {
  const double slope = c.type == "LeakyReLU" ? c.number("negative_slope", c.number("alpha", 0.3))
                                             : c.number("negative_slope", c.number("alpha", 0));
  if (c.type == "ELU")
    return {onnx(c, "Elu", {c.in()}, {onnx_float("alpha", c.number("alpha", 1))})};
  if (const double t = c.number("threshold", 0); t != 0)
    return {node(c, "ReLU", {c.in()},
                 {onnx_float("threshold", t), onnx_float("negative_slope", slope),
                  onnx_float("max_value", c.number("max_value", INFINITY))},
                 kOnnxKeras)};
  std::string x = slope == 0 ? node(c, "Relu", {c.in()})
                             : node(c, "LeakyRelu", {c.in()}, {onnx_float("alpha", slope)});
  if (const double most = c.number("max_value", INFINITY); std::isfinite(most))
    x = node(c, "Minimum", {x, number(most)});
  return {x};
}
Values KerasBuilder::prelu(const KerasCall& c) {
  return {onnx(c, "PRelu", {c.in(), constant(c.name + "/alpha", c.weights.at(0))})};
}
Values KerasBuilder::softmax_layer(const KerasCall& c) {
  const std::string mask = mask_of(c);
  if (const Json* axis = c.find("axis"); !mask.empty() || (axis && axis->as_array()))
    return {node(c, "Softmax", mask.empty() ? Values{c.in()} : Values{c.in(), mask},
                 {onnx_ints("axes", c.list("axis", 1, -1))}, kOnnxKeras)};
  return {onnx(c, "Softmax", {c.in()}, {onnx_int("axis", c.whole("axis", -1))})};
}

// ---- linear layers

std::string KerasBuilder::bias(const KerasCall& c, const std::string& x, size_t i) {
  if (!c.flag("use_bias", true)) return x;
  return node(c, "AddV2", {x, constant(c.name + "/bias", c.weights.at(i))});
}

Values KerasBuilder::dense(const KerasCall& c) {
  if (c.find("lora_rank") && !c.find("lora_rank")->is_null()) lacks(c, "LoRA");
  const std::string w = constant(c.name + "/kernel", c.weights.at(0));
  return {activate(c, bias(c, onnx(c, "MatMul", {c.in(), w}), 1), c.find("activation"))};
}

Values KerasBuilder::einsum_dense(const KerasCall& c) {
  const std::string w = constant(c.name + "/kernel", c.weights.at(0));
  std::string x = onnx(c, "Einsum", {c.in(), w}, {onnx_text("equation", c.text("equation", ""))});
  if (c.find("bias_axes") && !c.find("bias_axes")->is_null())
    x = node(c, "AddV2", {x, constant(c.name + "/bias", c.weights.at(1))});
  return {activate(c, x, c.find("activation"))};
}

Values KerasBuilder::embedding(const KerasCall& c) {
  if (c.type == "ReversibleEmbedding" && c.option("reverse")) {
    const Tensor w =
        c.flag("tie_weights", true) ? c.weights.at(0).transpose(0, 1) : c.weights.at(1);
    const std::string y =
        onnx(c, "MatMul", {c.in(), constant(c.name + "/reverse_embeddings", contiguous(w))});
    const double most = c.number("logit_soft_cap", 0);
    if (most == 0) return {y};
    return {
        node(c, "Mul", {node(c, "Tanh", {node(c, "RealDiv", {y, number(most)})}), number(most)})};
  }
  const std::string y = {onnx(c, "Gather",
                              {constant(c.name + "/embeddings", c.weights.at(0)),
                               onnx(c, "Cast", {c.in()}, {onnx_int("to", 7)})},
                              {onnx_int("axis", 0)})};
  if (c.flag("mask_zero", false)) masks_[y] = is_not(c, c.in(), 0);
  return {y};
}

std::string KerasBuilder::is_not(const KerasCall& c, const std::string& x, double v) {
  return node(c, "NotEqual", {onnx(c, "Cast", {x}, {onnx_int("to", 1)}), number(v)});
}

// Steps whose features all have the value count for no later layer.
Values KerasBuilder::masking(const KerasCall& c) {
  const Json* v = c.find("mask_value");
  if (v && v->as_object() && v->find("config")) v = v->find("config")->find("value");
  const std::string differs = is_not(c, c.in(), v ? io::number_of(v) : 0);
  const std::string mask = node(c, "Any", {differs, numbers({-1})});
  const std::string wide = onnx(c, "Unsqueeze", {mask, numbers({-1})});
  const std::string y = node(c, "SelectV2", {wide, c.in(), number(0)});
  masks_[y] = mask;
  return {y};
}

// ---- convolutions and pools

namespace {

OnnxAttributes window_attributes(const KerasCall& c, size_t dims, const char* padding) {
  return {onnx_ints("strides", around(c.list("strides", dims, 1))),
          onnx_ints("dilations", around(c.list("dilation_rate", dims, 1))),
          onnx_text("padding", padding), onnx_text("data_format", "NHWC")};
}

}  // namespace

Values KerasBuilder::conv(const KerasCall& c) {
  const size_t dims = image_dims(c.type);
  const Tensor w = c.weights.at(0);
  std::string x = c.in(), padding = c.text("padding", "valid");
  if (padding == "causal") {
    const std::vector<int64_t> by = c.list("dilation_rate", 1, 1);
    check_onnx_list(by);
    if (by.size() != 1 || w.dim() != 3) lacks(c, "causal padding of several dimensions");
    const int64_t before = (w.size(0) - 1) * by[0];
    x = onnx(c, "Pad", {x, numbers({0, before, 0, 0, 0, 0})});
    padding = "valid";
  }
  x = node(c, dims == 3 ? "Conv3D" : "Conv2D", {x, constant(c.name + "/kernel", w)},
           window_attributes(c, dims, upper(padding).c_str()));
  return {activate(c, bias(c, x, 1), c.find("activation"))};
}

// The kernel [..., i, m] of all three kinds holds m filters for each input channel.
Values KerasBuilder::depthwise(const KerasCall& c) {
  const size_t dims = image_dims(c.type);
  const Tensor w = c.weights.at(0);
  Shape s;
  for (int d = 0; d < w.dim() - 2; ++d) s.push_back(w.shape(d));
  s.push_back(1);
  s.push_back(w.shape(w.dim() - 2) * w.shape(w.dim() - 1));
  std::string x = node(c, "Conv2D", {c.in(), constant(c.name + "/depthwise_kernel", w.reshape(s))},
                       window_attributes(c, dims, upper(c.text("padding", "valid")).c_str()));
  if (c.type.starts_with("Separable")) return {x};
  return {activate(c, bias(c, x, 1), c.find("activation"))};
}

Values KerasBuilder::separable(const KerasCall& c) {
  const size_t dims = image_dims(c.type);
  const std::string x = depthwise(c)[0];
  const std::string y =
      node(c, "Conv2D", {x, constant(c.name + "/pointwise_kernel", c.weights.at(1))},
           {onnx_ints("strides", std::vector<int64_t>(dims + 2, 1)), onnx_text("padding", "VALID"),
            onnx_text("data_format", "NHWC")});
  return {activate(c, bias(c, y, 2), c.find("activation"))};
}

// Through ONNX's op, whose result follows from the sizes at run time. The kernel is [..., o, i].
Values KerasBuilder::conv_transpose(const KerasCall& c) {
  const size_t dims = image_dims(c.type);
  if (c.find("output_padding") && !c.find("output_padding")->is_null())
    lacks(c, "an output padding");
  const Tensor w = c.weights.at(0);
  std::vector<int64_t> order{w.dim() - 1, w.dim() - 2}, in{0, static_cast<int64_t>(dims) + 1},
      out{0};
  for (int64_t d = 0; d < w.dim() - 2; ++d) {
    order.push_back(d);
    in.push_back(d + 1);
    out.push_back(d + 2);
  }
  out.push_back(1);
  const std::vector<int64_t> strides = c.list("strides", dims, 1);
  OnnxAttributes a{onnx_ints("strides", strides),
                   onnx_ints("dilations", c.list("dilation_rate", dims, 1))};
  if (c.text("padding", "valid") == "same") {
    a.push_back(onnx_text("auto_pad", "SAME_UPPER"));
  } else {
    std::vector<int64_t> more;
    for (size_t d = 0; d < dims && d < strides.size(); ++d)
      more.push_back(std::max<int64_t>(0, strides[d] - w.size(static_cast<int64_t>(d))));
    a.push_back(onnx_ints("output_padding", std::move(more)));
  }
  const std::string x = onnx(c, "Transpose", {c.in()}, {onnx_ints("perm", in)});
  const std::string kernel =
      constant(c.name + "/kernel", contiguous(tandem::permute(w, IntList(order))));
  const std::string y = onnx(c, "Transpose", {onnx(c, "ConvTranspose", {x, kernel}, std::move(a))},
                             {onnx_ints("perm", out)});
  return {activate(c, bias(c, y, 1), c.find("activation"))};
}

Values KerasBuilder::pool(const KerasCall& c) {
  const size_t dims = image_dims(c.type);
  const std::vector<int64_t> size = c.list("pool_size", dims, 2);
  const Json* strides = c.find("strides");
  return {node(
      c, c.type.starts_with("Max") ? "MaxPool" : "AvgPool", {c.in()},
      {onnx_ints("ksize", around(size)),
       onnx_ints("strides",
                 around(strides && !strides->is_null() ? c.list("strides", dims, 2) : size)),
       onnx_text("padding", upper(c.text("padding", "valid"))), onnx_text("data_format", "NHWC")})};
}

Values KerasBuilder::global_pool(const KerasCall& c) {
  const size_t dims = image_dims(c.type);
  std::vector<int64_t> axes;
  for (size_t d = 1; d <= dims; ++d) axes.push_back(static_cast<int64_t>(d));
  if (const std::string mask = c.type == "GlobalAveragePooling1D" ? mask_of(c) : "";
      !mask.empty()) {
    const std::string wide = onnx(c, "Unsqueeze", {mask, numbers({-1})});
    const OnnxAttributes keep{onnx_int("keepdims", c.flag("keepdims", false))};
    const std::string kept = node(c, "SelectV2", {wide, c.in(), number(0)});
    const std::string many = onnx(c, "Cast", {wide}, {onnx_int("to", 1)});
    return {node(c, "RealDiv",
                 {onnx(c, "ReduceSum", {kept, numbers({1})}, keep),
                  onnx(c, "ReduceSum", {many, numbers({1})}, keep)})};
  }
  return {onnx(c, c.type.find("Max") != std::string::npos ? "ReduceMax" : "ReduceMean",
               {c.in(), numbers(axes)}, {onnx_int("keepdims", c.flag("keepdims", false))})};
}

// ---- norms

// Folded into a factor and an offset, in f32 as Keras computes them.
Values KerasBuilder::batch_norm(const KerasCall& c) {
  int64_t axis = -1;
  if (const Json* a = c.find("axis"))
    axis = a->as_array() && !keras_entries(a).empty() ? io::whole_of(&keras_entries(a)[0])
                                                      : io::whole_of(a);
  const int64_t after = axis < 0 ? -1 - axis : c.rank - 1 - axis;  // dimensions after it
  if (after < 0 || (axis >= 0 && c.rank == 0)) lacks(c, "an axis of an input of unknown rank");
  size_t next = 0;
  const bool scaled = c.flag("scale", true), centred = c.flag("center", true);
  Tensor gamma = scaled ? c.weights.at(next++) : Tensor(),
         beta = centred ? c.weights.at(next++) : Tensor();
  const Tensor m = c.weights.at(next), v = c.weights.at(next + 1);
  Tensor factor = rsqrt(v + c.number("epsilon", 1e-3));
  if (scaled) factor = factor * gamma;
  Tensor offset = -(m * factor);
  if (centred) offset = offset + beta;
  Shape along(m.size(0));
  for (int64_t d = 0; d < after; ++d) along.push_back(1);
  factor = factor.reshape(along);
  offset = offset.reshape(along);
  return {node(c, "AddV2",
               {node(c, "Mul", {c.in(), constant(c.name + "/factor", factor)}),
                constant(c.name + "/offset", offset)})};
}

/// The dimensions that a norm's "axis" names, counted from the end.
std::vector<int64_t> KerasBuilder::norm_axes(const KerasCall& c) {
  std::vector<int64_t> axes = c.list("axis", 1, -1);
  for (int64_t& a : axes) {
    if (a >= 0 && c.rank == 0) lacks(c, "an axis of an input of unknown rank");
    if (a >= 0) a -= c.rank;
  }
  std::sort(axes.begin(), axes.end());
  return axes;
}

namespace {
/// A norm's variable, whose dimensions are these, broadcast to the input's.
Tensor along_axes(const Tensor& w, const std::vector<int64_t>& axes) {
  Shape s;
  int next = 0;
  for (int64_t d = axes.empty() ? 0 : axes[0]; d < 0; ++d) {
    const bool named = std::find(axes.begin(), axes.end(), d) != axes.end() && next < w.dim();
    s.push_back(named ? w.shape(next++) : Dim(1));
  }
  return w.reshape(s);
}
}  // namespace

Values KerasBuilder::layer_norm(const KerasCall& c) {
  const std::vector<int64_t> axes = norm_axes(c);
  size_t next = 0;
  const bool scaled = c.flag("scale", true), rms = c.flag("rms_scaling", false);
  const std::string x = c.in(), over = numbers(axes), epsilon = number(c.number("epsilon", 1e-3));
  const auto average = [&](const std::string& v) { return onnx(c, "ReduceMean", {v, over}); };
  const std::string centred = rms ? x : node(c, "Sub", {x, average(x)});
  const std::string variance = average(node(c, "Square", {node(c, "Sub", {x, average(x)})}));
  std::string y =
      node(c, "Mul", {centred, node(c, "Rsqrt", {node(c, "AddV2", {variance, epsilon})})});
  const auto variable = [&](const char* name) {
    return constant(c.name + "/" + name, along_axes(c.weights.at(next++), axes));
  };
  if (scaled || rms) y = node(c, "Mul", {y, variable("gamma")});
  if (c.flag("center", true) && !rms) y = node(c, "AddV2", {y, variable("beta")});
  return {y};
}

Values KerasBuilder::rms_norm(const KerasCall& c) {
  const std::vector<int64_t> axes = norm_axes(c);
  const std::string x = c.in();
  const std::string power = onnx(c, "ReduceMean", {node(c, "Square", {x}), numbers(axes)});
  const std::string by =
      node(c, "Rsqrt", {node(c, "AddV2", {power, number(c.number("epsilon", 1e-6))})});
  return {node(
      c, "Mul",
      {node(c, "Mul", {x, by}), constant(c.name + "/scale", along_axes(c.weights.at(0), axes))})};
}

// ONNX's op keeps channels in place 1; dimensions in between are one.
Values KerasBuilder::group_norm(const KerasCall& c) {
  if (c.whole("axis", -1) != -1) lacks(c, "an axis other than the last one");
  const bool scaled = c.flag("scale", true), centred = c.flag("center", true);
  const Tensor gamma = scaled ? c.weights.at(0) : Tensor(),
               beta = centred ? c.weights.at(scaled ? 1 : 0) : Tensor();
  if (!scaled && !centred) lacks(c, "neither scale nor center");  // the channels are unknown
  const Tensor w = scaled ? gamma : ones_like(beta), b = centred ? beta : zeros_like(w);
  int64_t groups = c.whole("groups", 32);
  if (groups == -1) groups = w.size(0);
  const std::string x = c.in(), shape = onnx(c, "Shape", {x});
  const std::string flat = onnx(c, "Reshape", {x, numbers({0, -1, w.size(0)})});
  const std::string y =
      onnx(c, "GroupNormalization",
           {onnx(c, "Transpose", {flat}, {onnx_ints("perm", {0, 2, 1})}),
            constant(c.name + "/gamma", w), constant(c.name + "/beta", b)},
           {onnx_int("num_groups", groups), onnx_float("epsilon", c.number("epsilon", 1e-3))});
  return {onnx(c, "Reshape", {onnx(c, "Transpose", {y}, {onnx_ints("perm", {0, 2, 1})}), shape})};
}

Values KerasBuilder::unit_norm(const KerasCall& c) {
  const std::string x = c.in();
  const std::string all =
      onnx(c, "ReduceSum", {node(c, "Square", {x}), numbers(c.list("axis", 1, -1))});
  return {node(c, "Mul", {x, node(c, "Rsqrt", {node(c, "Maximum", {all, number(1e-12)})})})};
}

Values KerasBuilder::normalization(const KerasCall& c) {
  Tensor m, v;
  const auto given = [](const Json* j, Tensor& t) {
    if (!j || j->is_null()) return false;
    std::vector<double> all;
    if (j->as_array())
      for (const Json& e : keras_entries(j))
        for (const Json* one = &e;; one = &keras_entries(one)[0])
          if (!one->as_array() || keras_entries(one).empty()) {
            all.push_back(io::number_of(one));
            break;
          }
    if (!j->as_array()) all.push_back(io::number_of(j));
    t = tensor(all, Shape(static_cast<int64_t>(all.size()))).to(DType::f32);
    return true;
  };
  if (!given(c.find("mean"), m) || !given(c.find("variance"), v)) {
    m = c.weights.at(0);
    v = c.weights.at(1);
  }
  const Tensor deviation = maximum(sqrt(v), 1e-7);
  const std::string mean_at = constant(c.name + "/mean", m),
                    scale_at = constant(c.name + "/deviation", deviation);
  if (c.flag("invert", false))
    return {node(c, "AddV2", {mean_at, node(c, "Mul", {c.in(), scale_at})})};
  return {node(c, "RealDiv", {node(c, "Sub", {c.in(), mean_at}), scale_at})};
}

Values KerasBuilder::rescaling(const KerasCall& c) {
  const std::string x = onnx(c, "Cast", {c.in()}, {onnx_int("to", 1)});
  const auto given = [&](const char* key) {
    const std::vector<double> all = c.numbers(key);
    if (all.size() < 2) return number(all.empty() ? 0 : all[0]);
    const Tensor t = tensor(all, Shape(static_cast<int64_t>(all.size()))).to(DType::f32);
    return constant(fmt::format("{}/{}", c.name, key), t);
  };
  const std::string y = node(c, "Mul", {x, given("scale")});
  return {node(c, "AddV2", {y, given("offset")})};
}

// ConvNeXt's factor for each channel; Inception-ResNet's sum of a branch and a scaled one.
Values KerasBuilder::scale(const KerasCall& c) {
  if (c.type == "LayerScale")
    return {node(c, "Mul", {c.in(), constant(c.name + "/gamma", c.weights.at(0))})};
  return {node(c, "AddV2", {c.in(0), node(c, "Mul", {c.in(1), number(c.number("scale", 1))})})};
}

// ---- shapes

namespace {
/// [[top, bottom], [left, right]], [h, w] or one number, as pairs.
std::vector<std::pair<int64_t, int64_t>> pairs_of(const Json* j, size_t dims) {
  std::vector<std::pair<int64_t, int64_t>> out;
  if (j && j->as_int()) return {dims, {*j->as_int(), *j->as_int()}};
  const std::vector<Json>& all = keras_entries(j);
  if (dims == 1 && all.size() == 2 && all[0].as_int())
    return {{io::whole_of(&all[0]), io::whole_of(&all[1])}};
  for (const Json& e : all) {
    const std::vector<Json>& pair = keras_entries(&e);
    if (pair.size() == 2)
      out.emplace_back(io::whole_of(&pair[0]), io::whole_of(&pair[1]));
    else
      out.emplace_back(io::whole_of(&e), io::whole_of(&e));
  }
  return out;
}
}  // namespace

Values KerasBuilder::zero_padding(const KerasCall& c) {
  const size_t dims = image_dims(c.type);
  const auto pairs = pairs_of(c.find("padding"), dims);
  if (pairs.size() != dims) lacks(c, "this padding");
  std::vector<int64_t> pads(2 * (dims + 2), 0);
  for (size_t d = 0; d < dims; ++d) {
    pads[d + 1] = pairs[d].first;
    pads[dims + 2 + d + 1] = pairs[d].second;
  }
  return {onnx(c, "Pad", {c.in(), numbers(pads)})};
}
Values KerasBuilder::cropping(const KerasCall& c) {
  const size_t dims = image_dims(c.type);
  const auto pairs = pairs_of(c.find("cropping"), dims);
  if (pairs.size() != dims) lacks(c, "this cropping");
  std::vector<int64_t> starts, ends, axes;
  for (size_t d = 0; d < dims; ++d) {
    starts.push_back(pairs[d].first);
    ends.push_back(pairs[d].second > 0 ? -pairs[d].second : int64_t{1} << 40);
    axes.push_back(static_cast<int64_t>(d) + 1);
  }
  return {onnx(c, "Slice", {c.in(), numbers(starts), numbers(ends), numbers(axes)})};
}
Values KerasBuilder::up_sampling(const KerasCall& c) {
  const size_t dims = image_dims(c.type);
  const std::vector<int64_t> size = c.list("size", dims, 2);
  const std::string mode = c.text("interpolation", "nearest");
  if (mode == "bicubic")
    return {node(c, "UpSampling", {c.in()}, {onnx_ints("size", size)}, kOnnxKeras)};
  if (mode != "nearest" && mode != "bilinear")
    lacks(c, fmt::format("the interpolation '{}'", mode));
  std::vector<double> scales{1};
  for (const int64_t n : size) scales.push_back(static_cast<double>(n));
  scales.resize(dims + 1, scales.back());
  scales.push_back(1);
  const Tensor by = tensor(scales, Shape(static_cast<int64_t>(scales.size()))).to(DType::f32);
  return {onnx(
      c, "Resize", {c.in(), "", constant(c.name + "/scales", by)},
      {onnx_text("mode", mode == "nearest" ? "nearest" : "linear"),
       onnx_text("coordinate_transformation_mode", mode == "nearest" ? "asymmetric" : "half_pixel"),
       onnx_text("nearest_mode", "floor")})};
}

Values KerasBuilder::reshape(const KerasCall& c) {
  std::vector<int64_t> shape{0};
  for (const int64_t d : c.list("target_shape", 0, 0)) shape.push_back(d);
  return {onnx(c, "Reshape", {c.in(), numbers(shape)})};
}
Values KerasBuilder::flatten(const KerasCall& c) {
  return {onnx(c, "Flatten", {c.in()}, {onnx_int("axis", 1)})};
}
Values KerasBuilder::permute(const KerasCall& c) {
  std::vector<int64_t> order{0};
  for (const int64_t d : c.list("dims", 0, 0)) order.push_back(d);
  return {onnx(c, "Transpose", {c.in()}, {onnx_ints("perm", order)})};
}
Values KerasBuilder::repeat_vector(const KerasCall& c) {
  const std::string x = onnx(c, "Unsqueeze", {c.in(), numbers({1})});
  return {onnx(c, "Tile", {x, numbers({1, c.whole("n", 1), 1})})};
}

}  // namespace tandem::onnx
