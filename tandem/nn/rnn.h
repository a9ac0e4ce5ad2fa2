// SPDX-License-Identifier: Apache-2.0
// RNN, GRU, LSTM and their cells with PyTorch's parameter names and order. Batches, single
// sequences and packed sequences.
#pragma once

#include "tandem/nn/module.h"
#include "tandem/nn/packed.h"

namespace tandem::nn {

struct RNNOptions {
  int64_t num_layers = 1;
  std::string nonlinearity = "tanh";  ///< or "relu"
  bool bias = true;
  bool batch_first = false;
  double dropout = 0;  ///< between layers, in training
  bool bidirectional = false;
  DType dtype = DType::f32;
};
struct GRUOptions {
  int64_t num_layers = 1;
  bool bias = true;
  bool batch_first = false;
  double dropout = 0;
  bool bidirectional = false;
  DType dtype = DType::f32;
};
struct LSTMOptions {
  int64_t num_layers = 1;
  bool bias = true;
  bool batch_first = false;
  double dropout = 0;  ///< between layers, in training
  bool bidirectional = false;
  int64_t proj_size = 0;  ///< > 0: h is a projection of this size (Sak et al. 2014)
  DType dtype = DType::f32;
};

/// y [t, n, d*h] (or [n, t, d*h] with batch_first), final h [layers*d, n, h].
struct RNNOutput {
  Tensor y, h;
};
/// The same and the final c [layers*d, n, hidden].
struct LSTMOutput {
  Tensor y, h, c;
};
struct PackedRNNOutput {
  PackedSequence y;
  Tensor h;
};
struct PackedLSTMOutput {
  PackedSequence y;
  Tensor h, c;
};

namespace detail {

enum class RecurrentKind : uint8_t { rnn_tanh, rnn_relu, gru, lstm };

/// Common part: parameters of layer k and direction weight_ih_l{k}, weight_hh_l{k}, bias_ih_l{k},
/// bias_hh_l{k}, weight_hr_l{k} (then "_reverse"), all uniform in +-1/sqrt(hidden).
class TD_API Recurrent : public Module {
 public:
  struct TD_API Direction : Module {
    Direction(int64_t in, int64_t hidden, int gates, const LSTMOptions& options,
              std::string suffix);
    Param weight_ih, weight_hh, bias_ih, bias_hh, weight_hr;
    std::string suffix;  ///< "_l0", "_l1_reverse"
  };
  std::vector<Direction> directions;  ///< layer by layer, forward then reverse
  int64_t input_size, hidden_size;
  LSTMOptions options;

 protected:
  Recurrent(RecurrentKind kind, Dim input_size, Dim hidden_size, const LSTMOptions& options);
  /// Register the parameters; call it after the derived class's register_members.
  void register_directions();
  /// x [t, n, in], [n, t, in] or [t, in]; undefined h0, c0 are zeros. Without cells c is undefined.
  LSTMOutput run(Tensor x, Tensor h0, Tensor c0);
  PackedLSTMOutput run(const PackedSequence& x, Tensor h0, Tensor c0);

 private:
  LSTMOutput one(const Direction& p, Tensor x, Tensor h, Tensor c, bool reverse) const;
  LSTMOutput one_packed(const Direction& p, const Tensor& x, const std::vector<int64_t>& sizes,
                        Tensor h, Tensor c, bool reverse) const;
  template <class One>
  LSTMOutput stack_layers(Tensor x, const Tensor& h0, const Tensor& c0, int64_t last_dim,
                          One&& one);
  int64_t out_size() const { return options.proj_size ? options.proj_size : hidden_size; }
  RecurrentKind kind_;
};

}  // namespace detail

/// h' = tanh(W_ih x + b_ih + W_hh h + b_hh), or relu.
class TD_API RNN : public detail::Recurrent {
 public:
  RNN(Dim input_size, Dim hidden_size, RNNOptions options = {});
  RNNOutput forward(Tensor x, Tensor h0 = {});
  RNNOutput operator()(Tensor x, Tensor h0 = {}, SourceLocation loc = SourceLocation::here());
  PackedRNNOutput operator()(const PackedSequence& x, Tensor h0 = {},
                             SourceLocation loc = SourceLocation::here());
};

/// Gates in order r, z, n (Cho et al. 2014; the reset gate acts after W_hh).
class TD_API GRU : public detail::Recurrent {
 public:
  GRU(Dim input_size, Dim hidden_size, GRUOptions options = {});
  RNNOutput forward(Tensor x, Tensor h0 = {});
  RNNOutput operator()(Tensor x, Tensor h0 = {}, SourceLocation loc = SourceLocation::here());
  PackedRNNOutput operator()(const PackedSequence& x, Tensor h0 = {},
                             SourceLocation loc = SourceLocation::here());
};

/// Gates in order i, f, g, o.
class TD_API LSTM : public detail::Recurrent {
 public:
  LSTM(Dim input_size, Dim hidden_size, LSTMOptions options = {});
  LSTMOutput forward(Tensor x, Tensor h0 = {}, Tensor c0 = {});
  LSTMOutput operator()(Tensor x, Tensor h0 = {}, Tensor c0 = {},
                        SourceLocation loc = SourceLocation::here());
  PackedLSTMOutput operator()(const PackedSequence& x, Tensor h0 = {}, Tensor c0 = {},
                              SourceLocation loc = SourceLocation::here());
};

struct RNNCellOptions {
  bool bias = true;
  std::string nonlinearity = "tanh";  ///< or "relu"; of RNNCell
  DType dtype = DType::f32;
};

namespace detail {
class TD_API RecurrentCell : public Module {
 public:
  Param weight_ih, weight_hh, bias_ih, bias_hh;
  int64_t input_size, hidden_size;
  RNNCellOptions options;

 protected:
  RecurrentCell(int gates, Dim input_size, Dim hidden_size, const RNNCellOptions& options);
  void check(const Tensor& x, const Tensor& h) const;
};
}  // namespace detail

/// One step: x [n, in] or [in], h [n, hidden] or [hidden] (zeros if undefined) -> h'.
class TD_API RNNCell : public detail::RecurrentCell {
 public:
  RNNCell(Dim input_size, Dim hidden_size, RNNCellOptions options = {});
  Tensor forward(Tensor x, Tensor h = {});
  Tensor operator()(Tensor x, Tensor h = {}, SourceLocation loc = SourceLocation::here());
};
class TD_API GRUCell : public detail::RecurrentCell {
 public:
  GRUCell(Dim input_size, Dim hidden_size, RNNCellOptions options = {});
  Tensor forward(Tensor x, Tensor h = {});
  Tensor operator()(Tensor x, Tensor h = {}, SourceLocation loc = SourceLocation::here());
};
/// The same with a cell state: returns h' and c'.
class TD_API LSTMCell : public detail::RecurrentCell {
 public:
  LSTMCell(Dim input_size, Dim hidden_size, RNNCellOptions options = {});
  std::pair<Tensor, Tensor> forward(Tensor x, Tensor h = {}, Tensor c = {});
  std::pair<Tensor, Tensor> operator()(Tensor x, Tensor h = {}, Tensor c = {},
                                       SourceLocation loc = SourceLocation::here());
};

}  // namespace tandem::nn
