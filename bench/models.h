// SPDX-License-Identifier: Apache-2.0
// The models of the benchmarks, in parameter order and shape equal to bench/peers_torch.py's.
#pragma once

#include <tandem/tandem.h>

#include "bench/numbers.h"

namespace tandem::bench {

struct Mlp : nn::Module {
  nn::Linear fc1{784, 128}, fc2{128, 10};
  Mlp() { TD_REGISTER(fc1, fc2); }
  Tensor forward(Tensor x) { return fc2(relu(fc1(x))); }
};

/// The net of `make demo` and of the README.
struct Conv : nn::Module {
  nn::Conv2d conv1{1, 32, 3}, conv2{32, 64, 3};
  nn::Linear fc1{9216, 128}, fc2{128, 10};
  Conv() { TD_REGISTER(conv1, conv2, fc1, fc2); }
  Tensor forward(Tensor x) {
    x = relu(conv1(x));
    x = max_pool2d(relu(conv2(x)), 2);
    return fc2(relu(fc1(x.flatten(1))));
  }
};

struct Block : nn::Module {
  int64_t heads;
  nn::LayerNorm ln1;
  nn::Linear qkv, out;
  nn::LayerNorm ln2;
  nn::Linear up, down;
  Block(int64_t d, int64_t heads)
      : heads(heads), ln1(d), qkv(d, 3 * d), out(d, d), ln2(d), up(d, 4 * d), down(4 * d, d) {
    TD_REGISTER(ln1, qkv, out, ln2, up, down);
  }
  Tensor forward(Tensor x) {
    int64_t b = x.size(0), t = x.size(1), d = x.size(2);
    std::vector<Tensor> parts = qkv(ln1(x)).split(d, 2);
    for (Tensor& s : parts) s = s.view({b, t, heads, d / heads}).transpose(1, 2);
    Tensor y = scaled_dot_product_attention(parts[0], parts[1], parts[2], {}, 0, true);
    x = x + out(y.transpose(1, 2).reshape({b, t, d}));
    return x + down(gelu(up(ln2(x))));
  }
};

struct Gpt : nn::Module {
  nn::Embedding tok{65, 128}, pos{64, 128};
  std::vector<Block> blocks;
  nn::LayerNorm ln{128};
  nn::Linear head{128, 65, {.bias = false}};
  Gpt() {
    for (int i = 0; i < 4; ++i) blocks.emplace_back(128, 4);
    TD_REGISTER(tok, pos, blocks, ln, head);
  }
  Tensor forward(Tensor x) {
    Tensor y = tok(x) + pos.weight.value().narrow(0, 0, x.size(1));
    for (Block& b : blocks) y = b(y);
    return head(ln(y));
  }
};

/// A layer of BERT: attention and MLP, each followed by a residual sum and a norm.
struct BertLayer : nn::Module {
  int64_t heads;
  nn::Linear query, key, value, out;
  nn::LayerNorm ln1;
  nn::Linear up, down;
  nn::LayerNorm ln2;
  BertLayer(int64_t d, int64_t heads)
      : heads(heads),
        query(d, d),
        key(d, d),
        value(d, d),
        out(d, d),
        ln1(d),
        up(d, 4 * d),
        down(4 * d, d),
        ln2(d) {
    TD_REGISTER(query, key, value, out, ln1, up, down, ln2);
  }
  Tensor forward(Tensor x) {
    int64_t b = x.size(0), t = x.size(1), d = x.size(2);
    const auto split = [&](Tensor s) { return s.view({b, t, heads, d / heads}).transpose(1, 2); };
    Tensor y = scaled_dot_product_attention(split(query(x)), split(key(x)), split(value(x)));
    x = ln1(x + out(y.transpose(1, 2).reshape({b, t, d})));
    return ln2(x + down(gelu(up(x))));
  }
};

/// BERT-base with two layers, classifying the whole text; no dropout.
struct Bert : nn::Module {
  nn::Embedding word{30522, 768}, position{512, 768}, segment{2, 768};
  nn::LayerNorm ln{768};
  std::vector<BertLayer> layers;
  nn::Linear pooler{768, 768}, classifier{768, 2};
  Bert() {
    for (int i = 0; i < 2; ++i) layers.emplace_back(768, 12);
    TD_REGISTER(word, position, segment, ln, layers, pooler, classifier);
  }
  Tensor forward(Tensor x) {
    Tensor y = ln(word(x) + position.weight.value().narrow(0, 0, x.size(1)) +
                  segment.weight.value().narrow(0, 0, 1));
    for (BertLayer& l : layers) y = l(y);
    return classifier(tanh(pooler(y.select(1, 0))));
  }
};

struct Lstm : nn::Module {
  nn::LSTM lstm{64, 256, {.batch_first = true}};
  nn::Linear fc{256, 10};
  Lstm() { TD_REGISTER(lstm, fc); }
  Tensor forward(Tensor x) { return fc(lstm(x).y.select(1, -1)); }
};

struct Residual : nn::Module {
  nn::Conv2d conv1;
  nn::BatchNorm2d bn1;
  nn::Conv2d conv2;
  nn::BatchNorm2d bn2;
  struct Down : nn::Module {
    nn::Conv2d conv;
    nn::BatchNorm2d bn;
    Down(int64_t in, int64_t out, int64_t stride)
        : conv(in, out, {1}, {.stride = {stride}, .bias = false}), bn(out) {
      TD_REGISTER(conv, bn);
    }
    Tensor forward(Tensor x) { return bn(conv(x)); }
  };
  std::optional<Down> downsample;
  Residual(int64_t in, int64_t out, int64_t stride)
      : conv1(in, out, {3}, {.stride = {stride}, .padding = {1}, .bias = false}),
        bn1(out),
        conv2(out, out, {3}, {.padding = {1}, .bias = false}),
        bn2(out) {
    if (stride != 1 || in != out) downsample.emplace(in, out, stride);
    TD_REGISTER(conv1, bn1, conv2, bn2, downsample);
  }
  Tensor forward(Tensor x) {
    Tensor y = bn2(conv2(relu(bn1(conv1(x)))));
    return relu(y + (downsample ? (*downsample)(x) : x));
  }
};

struct ResNet18 : nn::Module {
  nn::Conv2d conv1{3, 64, 7, {.stride = {2}, .padding = {3}, .bias = false}};
  nn::BatchNorm2d bn1{64};
  std::vector<Residual> layers;
  nn::Linear fc{512, 1000};
  ResNet18() {
    int64_t in = 64;
    for (int64_t out : {64, 128, 256, 512}) {
      layers.emplace_back(in, out, out == 64 ? 1 : 2);
      layers.emplace_back(out, out, 1);
      in = out;
    }
    TD_REGISTER(conv1, bn1, layers, fc);
  }
  Tensor forward(Tensor x) {
    x = max_pool2d(relu(bn1(conv1(x))), 3, {2}, {1});
    for (Residual& r : layers) x = r(x);
    return fc(adaptive_avg_pool2d(x, 1).flatten(1));
  }
};

/// The weights that bench/peers_torch.py gives the same net: numbers of a formula, by the order of
/// the parameters.
inline void set_formula_weights(nn::Module& net) {
  uint64_t p = 0;
  for (auto& [name, param] : net.named_parameters()) {
    uint64_t seed = 1000 + p++;
    if (param.dim() == 1) {
      bool weight = name.size() >= 6 && name.compare(name.size() - 6, 6, "weight") == 0;
      param.assign_(weight ? 1.0 : 0.0);
      continue;
    }
    double fan = static_cast<double>(param.numel()) / static_cast<double>(param.size(0));
    param.assign_(uniform(seed, param.shape(), static_cast<float>(1.0 / std::sqrt(fan))));
  }
}

}  // namespace tandem::bench
