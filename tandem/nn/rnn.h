// SPDX-License-Identifier: Apache-2.0
// LSTM: layers, directions, projection-free, with PyTorch's parameter names and order.
#pragma once

#include "tandem/nn/module.h"

namespace tandem::nn {

struct LSTMOptions {
  int64_t num_layers = 1;
  bool bias = true;
  bool batch_first = false;
  double dropout = 0;  ///< between layers, in training
  bool bidirectional = false;
  DType dtype = DType::f32;
};

/// y [t, n, d*h] (or [n, t, d*h] with batch_first), final h and c [layers*d, n, h].
struct LSTMOutput {
  Tensor y, h, c;
};

/// x [t, n, in] (or [n, t, in] with batch_first). Parameters of layer k and direction:
/// weight_ih_l{k}, weight_hh_l{k}, bias_ih_l{k}, bias_hh_l{k} (then "_reverse"), gates in order
/// i, f, g, o; all start uniform in +-1/sqrt(hidden).
class TD_API LSTM : public Module {
 public:
  LSTM(Dim input_size, Dim hidden_size, LSTMOptions options = {});
  /// h0, c0 [layers*d, n, h]; undefined are zeros.
  LSTMOutput forward(Tensor x, Tensor h0 = {}, Tensor c0 = {});
  LSTMOutput operator()(Tensor x, Tensor h0 = {}, Tensor c0 = {}, Where where = Where::here());

  struct TD_API Direction : Module {
    Direction(Dim in, Dim hidden, const LSTMOptions& options, std::string suffix);
    Param weight_ih, weight_hh, bias_ih, bias_hh;
    std::string suffix;  ///< "_l0", "_l1_reverse"
  };
  std::vector<Direction> directions;  ///< layer by layer, forward then reverse
  int64_t input_size, hidden_size;
  LSTMOptions options;
};

}  // namespace tandem::nn
