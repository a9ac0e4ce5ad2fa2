// SPDX-License-Identifier: Apache-2.0
// Nets of MLPerf Tiny's shapes in int8 (https://github.com/mlcommons/tiny), from codes to codes,
// with random weights.
#pragma once

#include <fmt/format.h>

#include <memory>
#include <vector>

#include "tandem/edge/edge.h"
#include "tests/edge/code_layers.h"

namespace tandem {

inline constexpr double kStep = 0.05;  ///< of all activations; what they hold does not matter here
inline Tensor codes_of(const Tensor& x) { return rounded(x, kStep, 0); }

class CodeLayers {
 public:
  Tensor conv(const Tensor& x, const ConvAttrs& a, int64_t out, int64_t kh, int64_t kw) {
    const CodeWeight& w = next({out, x.size(1) / a.groups, kh, kw});
    return codes_of(relu(tandem::conv(x, w.weight(), w.column(), a)));
  }
  Tensor conv3(const Tensor& x, int64_t out, int64_t stride) {
    return conv(x, conv_attrs(stride, 1, 1), out, 3, 3);
  }
  Tensor dense(const Tensor& x, int64_t out) {
    const CodeWeight& w = next({out, x.size(1)});
    return codes_of(relu(linear(x, w.weight(), w.column())));
  }
  void rewind() { at_ = 0; }

 private:
  const CodeWeight& next(const Shape& shape) {
    if (at_ == weights_.size()) weights_.push_back(std::make_unique<CodeWeight>(shape, 0, kStep));
    return *weights_[at_++];
  }
  std::vector<std::unique_ptr<CodeWeight>> weights_;
  size_t at_ = 0;
};

// Keyword spotting: x [1, 1, 49, 10].
inline Tensor ds_cnn(CodeLayers& l, Tensor x) {
  ConvAttrs first = conv_attrs(2, 0, 1);
  first.padding = first.padding_end = {5, 1};
  x = l.conv(x, first, 64, 10, 4);
  for (int k = 0; k < 4; ++k)
    x = l.conv(l.conv(x, conv_attrs(1, 1, 64), 64, 3, 3), conv_attrs(1, 0, 1), 64, 1, 1);
  return l.dense(codes_of(mean(x, {2, 3})), 12);
}

// Image classification: x [1, 3, 32, 32].
inline Tensor resnet8(CodeLayers& l, Tensor x) {
  x = l.conv3(x, 16, 1);
  for (const int64_t n : {16, 32, 64}) {
    const int64_t stride = n == 16 ? 1 : 2;
    const Tensor y = l.conv3(l.conv3(x, n, stride), n, 1);
    if (stride == 2) x = l.conv(x, conv_attrs(2, 0, 1), n, 1, 1);
    x = codes_of(relu(x + y));
  }
  return l.dense(codes_of(mean(x, {2, 3})), 10);
}

// Anomaly detection: x [1, 640].
inline Tensor autoencoder(CodeLayers& l, Tensor x) {
  for (const int64_t n : {128, 128, 128, 128, 8, 128, 128, 128, 128, 640}) x = l.dense(x, n);
  return x;
}

// Whether a person is in sight: MobileNet of a quarter of the width, x [1, 3, 96, 96].
inline Tensor mobilenet(CodeLayers& l, Tensor x) {
  x = l.conv3(x, 8, 2);
  for (const auto& [out, stride] : {std::pair{16, 1},
                                    {32, 2},
                                    {32, 1},
                                    {64, 2},
                                    {64, 1},
                                    {128, 2},
                                    {128, 1},
                                    {128, 1},
                                    {128, 1},
                                    {128, 1},
                                    {128, 1},
                                    {256, 2},
                                    {256, 1}})
    x = l.conv(l.conv(x, conv_attrs(stride, 1, x.size(1)), x.size(1), 3, 3), conv_attrs(1, 0, 1),
               out, 1, 1);
  return l.dense(codes_of(mean(x, {2, 3})), 2);
}

// Digits: x [1, 1, 28, 28].
inline Tensor lenet(CodeLayers& l, Tensor x) {
  x = codes_of(max_pool2d(l.conv(x, conv_attrs(1, 2, 1), 6, 5, 5), 2));
  x = codes_of(max_pool2d(l.conv(x, conv_attrs(1, 0, 1), 16, 5, 5), 2));
  return l.dense(l.dense(l.dense(codes_of(x.reshape({1, -1})), 120), 84), 10);
}

/// A net, and the most memory that its device has for all that a call works in, and for code.
struct TinyNet {
  const char* name;
  Shape input;
  Tensor (*net)(CodeLayers&, Tensor);
  size_t most_memory, most_code;
};
inline const TinyNet kTinyNets[] = {
    {"ds_cnn", {1, 1, 49, 10}, ds_cnn, 24 << 10, 16 << 10},
    {"resnet8", {1, 3, 32, 32}, resnet8, 56 << 10, 16 << 10},
    {"autoencoder", {1, 640}, autoencoder, 2 << 10, 16 << 10},
};

/// Nets whose time alone is of interest.
inline const TinyNet kTimedNets[] = {
    {"mobilenet", {1, 3, 96, 96}, mobilenet, 0, 0},
    {"lenet", {1, 1, 28, 28}, lenet, 0, 0},
};

/// The net as C.
inline edge::EdgeSource tiny_source(const TinyNet& n) {
  CodeLayers layers;
  const auto forward = [&](std::span<const Tensor> x) {
    layers.rewind();
    const Tensor y = n.net(layers, dequantize_linear(x[0], step(kStep), full({}, 0, DType::u8)));
    return std::vector{quantize_linear(y, step(kStep), full({}, 0, DType::u8))};
  };
  const Tensor made[] = {zeros(n.input, DType::u8)};
  forward(made);  // makes the weights
  const edge::EdgePort in{"x", Spec(DType::u8, n.input)};
  return edge::write_c99(forward, {&in, 1}, {}, {.name = n.name});
}

/// codes.h: names of the net's function and of the number of its results, and random codes x.
inline std::string codes_header(const TinyNet& n, const edge::EdgeSource& c) {
  const Tensor x = (rand(n.input) * 255).to(DType::u8);
  std::string s = fmt::format(
      "#include \"{0}.h\"\n#define NET_RUN {0}_run\n#define NET_OUT {1}\nstatic const uint8_t "
      "x[{2}] = {{",
      n.name, c.outputs[0].spec.shape.numel().value(), x.numel());
  for (const double v : x.to_vector<double>()) s += fmt::format("{},", v);
  return s + "};\n";
}

}  // namespace tandem
