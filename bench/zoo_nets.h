// SPDX-License-Identifier: Apache-2.0
// The nets of bench/zoo that models::list() does not have, equal in order, names and shapes of
// parameters to bench/peers_zoo.py's.
#pragma once

#include "bench/models.h"

namespace tandem::bench {

/// Two bidirectional layers over [n, t, 64], mean over time, 10 classes.
template <class Cell>
struct Recurrent : nn::Module {
  Cell rnn{64, 128, {.num_layers = 2, .batch_first = true, .bidirectional = true}};
  nn::Linear fc{256, 10};
  Recurrent() { TD_REGISTER(rnn, fc); }
  Tensor forward(Tensor x) { return fc(rnn(x).y.mean(1)); }
};

/// 26 embedding tables of 1,000 x 16 side by side, then an MLP, as click-rate models have it.
struct Tables : nn::Module {
  std::vector<nn::Embedding> tables;
  nn::Linear fc1{26 * 16, 256}, fc2{256, 128}, fc3{128, 2};
  Tables() {
    for (int i = 0; i < 26; ++i) tables.emplace_back(1000, 16);
    TD_REGISTER(tables, fc1, fc2, fc3);
  }
  Tensor forward(Tensor x) {
    std::vector<Tensor> columns;
    for (int64_t i = 0; i < 26; ++i)
      columns.push_back(tables[static_cast<size_t>(i)](x.select(1, i)));
    return fc3(relu(fc2(relu(fc1(cat(columns, 1))))));
  }
};

/// Convolutions over [n, 1, 16, 32, 32] with batch norm and max pooling.
struct Volume : nn::Module {
  nn::Conv3d conv1{1, 16, 3, {.padding = {1}}}, conv2{16, 32, 3, {.padding = {1}}},
      conv3{32, 64, 3, {.padding = {1}}};
  nn::BatchNorm3d bn1{16}, bn2{32}, bn3{64};
  nn::Linear fc{64, 10};
  Volume() { TD_REGISTER(conv1, conv2, conv3, bn1, bn2, bn3, fc); }
  Tensor forward(Tensor x) {
    x = max_pool3d(relu(bn1(conv1(x))), 2);
    x = max_pool3d(relu(bn2(conv2(x))), 2);
    return fc(relu(bn3(conv3(x))).mean({2, 3, 4}));
  }
};

/// A variational auto-encoder without its noise: 784 numbers to 20 and back, the input's labels.
struct AutoEncoder : nn::Module {
  nn::Linear down1{784, 400}, mean{400, 20}, up1{20, 400}, up2{400, 784}, fc{784, 10};
  AutoEncoder() { TD_REGISTER(down1, mean, up1, up2, fc); }
  Tensor forward(Tensor x) { return fc(sigmoid(up2(silu(up1(tanh(mean(silu(down1(x))))))))); }
};

/// Two graph convolutions over 10,000 nodes and 100,000 edges, whose ends the net holds.
struct GraphNet : nn::Module {
  Buffer from, to;
  nn::Linear fc1{64, 64}, fc2{64, 10};
  GraphNet(Tensor from, Tensor to) : from(std::move(from)), to(std::move(to)) {
    TD_REGISTER(this->from, this->to, fc1, fc2);
  }
  Tensor gather(Tensor x) {
    return zeros_like(x).index_add(0, to.value(), x.index_select(0, from.value()));
  }
  Tensor forward(Tensor x) { return fc2(gather(relu(fc1(gather(x))))); }
};

}  // namespace tandem::bench
