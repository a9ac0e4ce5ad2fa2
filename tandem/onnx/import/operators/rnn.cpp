// SPDX-License-Identifier: Apache-2.0
// ONNX's RNN, GRU and LSTM: any activations, peepholes, both directions, lengths per sequence, in
// public ops. Inputs meet their weights in one matmul for all steps, states step by step.
#include <algorithm>
#include <array>

#include "tandem/onnx/export/exporters_internal.h"
#include "tandem/onnx/import/operators/activation_internal.h"
#include "tandem/onnx/import/operators/quant_internal.h"
#include "tandem/ops/ops.h"

namespace tandem::onnx {
namespace {

/// Shared by all three ops.
struct Layer {
  Tensor x;  ///< [t, n, i]
  int64_t hidden = 0, batch = 0, steps = 0, directions = 1;
  bool batch_first = false, reverse_only = false;
  double clip = 0;
  std::vector<int64_t> lengths;             ///< empty: all steps
  std::vector<OnnxActivation> activations;  ///< per direction, consecutively

  /// r: the weights of the states, [directions, gates * h, h].
  Layer(OnnxCall& c, const Tensor& r, const std::vector<std::string>& defaults) : x(c.x(0)) {
    batch_first = c.attr("layout", 0) != 0;
    if (batch_first) x = x.transpose(0, 1);
    steps = x.size(0);
    batch = x.size(1);
    hidden = c.attr("hidden_size", r.size(-1));
    const std::string direction =
        c.attr_choice("direction", "forward", {"forward", "reverse", "bidirectional"});
    directions = direction == "bidirectional" ? 2 : 1;
    reverse_only = direction == "reverse";
    TD_CHECK(r.dim() == 3 && r.size(0) == directions && c.x(1).dim() == 3 &&
                 c.x(1).size(0) == directions,
             Shape, "expected weights for {} directions, got {}", directions,
             c.x(1).shape().to_string());
    clip = c.attr_float("clip", 0);
    if (c.has(4)) lengths = c.ints(4);
    TD_CHECK(lengths.empty() || static_cast<int64_t>(lengths.size()) == batch, Shape,
             "expected {} lengths, got {}", batch, lengths.size());
    const size_t each = defaults.size();
    std::vector<std::string> names = c.attr_texts("activations");
    if (names.empty())
      for (int64_t d = 0; d < directions; ++d)
        names.insert(names.end(), defaults.begin(), defaults.end());
    TD_CHECK(names.size() == each * static_cast<size_t>(directions), Value,
             "expected {} activations, got {}", each * static_cast<size_t>(directions),
             names.size());
    const std::vector<float> alpha = c.attr_floats("activation_alpha"),
                             beta = c.attr_floats("activation_beta");
    for (size_t i = 0; i < names.size(); ++i) {
      OnnxActivation a = onnx_activation(names[i]);
      if (i < alpha.size()) a.alpha = alpha[i];
      if (i < beta.size()) a.beta = beta[i];
      activations.push_back(a);
    }
  }

  bool reversed(int64_t direction) const { return reverse_only || direction == 1; }
  const OnnxActivation& activation(int64_t direction, size_t i) const {
    return activations[static_cast<size_t>(direction) *
                           (activations.size() / static_cast<size_t>(directions)) +
                       i];
  }
  Tensor clipped(const Tensor& t) const { return clip > 0 ? clamp(t, -clip, clip) : t; }

  /// The initial state of a direction: input i as [directions, n, h] (or batch first), else zeros.
  Tensor initial(OnnxCall& c, size_t i, int64_t direction) const {
    if (!c.has(i)) return zeros({batch, hidden}, x.dtype());
    const Tensor s = c.x(i);
    return batch_first ? s.select(1, direction) : s.select(0, direction);
  }

  /// True where sequence n has a step t, as [n, 1].
  Tensor alive(int64_t t) const {
    std::vector<uint8_t> v;
    for (const int64_t n : lengths) v.push_back(t < n);
    return tensor(v, Shape(batch, 1)).to(DType::b8);
  }

  /// Run `step(gx_t, states) -> y_t` over the steps of one direction, gx: [t, n, ...]. States of
  /// finished sequences stay; their results are zeros.
  template <class Step>
  Tensor over_steps(const Tensor& gx, int64_t direction, std::vector<Tensor>& states,
                    Step step) const {
    std::vector<Tensor> ys(static_cast<size_t>(steps));
    for (int64_t s = 0; s < steps; ++s) {
      const int64_t t = reversed(direction) ? steps - 1 - s : s;
      std::vector<Tensor> old = states;
      Tensor y = step(gx.select(0, t), states);
      if (!lengths.empty()) {
        const Tensor on = alive(t);
        for (size_t i = 0; i < states.size(); ++i) states[i] = where(on, states[i], old[i]);
        y = where(on, y, zeros_like(y));
      }
      ys[static_cast<size_t>(t)] = y;
    }
    return stack(ys, 0);
  }

  /// Outputs from [t, n, h] and last states per direction.
  void finish(OnnxCall& c, const std::vector<Tensor>& ys,
              const std::vector<std::vector<Tensor>>& states) const {
    const Tensor y = stack(ys, 1);  // [t, directions, n, h]
    c.set(0, batch_first ? contiguous(y.permute({2, 0, 1, 3})) : y);
    for (size_t i = 0; i < states[0].size(); ++i) {
      std::vector<Tensor> last;
      for (const auto& s : states) last.push_back(s[i]);
      const Tensor h = stack(last, 0);
      c.set(1 + i, batch_first ? contiguous(h.transpose(0, 1)) : h);
    }
  }
};

/// The two parts of one direction's bias: [2 * gates * h] halved, or zeros.
std::pair<Tensor, Tensor> biases(OnnxCall& c, const Layer& l, int64_t direction, int64_t gates) {
  if (!c.has(3)) {
    const Tensor none = zeros({gates * l.hidden}, l.x.dtype());
    return {none, none};
  }
  const Tensor b = c.x(3).select(0, direction);
  return {b.narrow(0, 0, gates * l.hidden), b.narrow(0, gates * l.hidden, gates * l.hidden)};
}

void rnn_of(OnnxCall& c) {
  const Layer l(c, c.x(2), {"Tanh"});
  std::vector<Tensor> ys;
  std::vector<std::vector<Tensor>> all;
  for (int64_t d = 0; d < l.directions; ++d) {
    const Tensor w = c.x(1).select(0, d), r = c.x(2).select(0, d);
    const auto b = biases(c, l, d, 1);
    std::vector<Tensor> states{l.initial(c, 5, d)};
    const Tensor inputs = linear(l.x, w, b.first);
    ys.push_back(l.over_steps(inputs, d, states, [&](const Tensor& gx, std::vector<Tensor>& s) {
      s[0] = onnx_activate(l.activation(d, 0), l.clipped(gx + linear(s[0], r, b.second)));
      return s[0];
    }));
    all.push_back(states);
  }
  l.finish(c, ys, all);
}

// Gates in ONNX's order: z, r, h.
void gru_of(OnnxCall& c) {
  const Layer l(c, c.x(2), {"Sigmoid", "Tanh"});
  const bool before = c.attr("linear_before_reset", 0);
  const int64_t h = l.hidden;
  std::vector<Tensor> ys;
  std::vector<std::vector<Tensor>> all;
  for (int64_t d = 0; d < l.directions; ++d) {
    const Tensor w = c.x(1).select(0, d), r = c.x(2).select(0, d);
    const auto b = biases(c, l, d, 3);
    const Tensor r_zr = r.narrow(0, 0, 2 * h), r_h = r.narrow(0, 2 * h, h);
    const Tensor b_zr = b.second.narrow(0, 0, 2 * h), b_h = b.second.narrow(0, 2 * h, h);
    std::vector<Tensor> states{l.initial(c, 5, d)};
    const Tensor inputs = linear(l.x, w, b.first);
    ys.push_back(l.over_steps(inputs, d, states, [&](const Tensor& gx, std::vector<Tensor>& s) {
      const Tensor gh = linear(s[0], r_zr, b_zr);
      const Tensor zr = onnx_activate(l.activation(d, 0), l.clipped(gx.narrow(1, 0, 2 * h) + gh));
      const Tensor z = zr.narrow(1, 0, h), reset = zr.narrow(1, h, h);
      const Tensor recurrent =
          before ? reset * linear(s[0], r_h, b_h) : linear(reset * s[0], r_h, b_h);
      const Tensor fresh =
          onnx_activate(l.activation(d, 1), l.clipped(gx.narrow(1, 2 * h, h) + recurrent));
      s[0] = (1 - z) * fresh + z * s[0];
      return s[0];
    }));
    all.push_back(states);
  }
  l.finish(c, ys, all);
}

// Gates in ONNX's order: i, o, f, c.
// `recurrent` is [directions, 4h, h]. `weight(i, d)` is the weight of direction d that is input i:
// called with x [..., n] and b it gives their product, plus b.
template <class F>
void lstm_with(OnnxCall& c, const Tensor& recurrent, F weight) {
  const Layer l(c, recurrent, {"Sigmoid", "Tanh", "Tanh"});
  const bool coupled = c.attr("input_forget", 0);
  const int64_t h = l.hidden;
  std::vector<Tensor> ys;
  std::vector<std::vector<Tensor>> all;
  for (int64_t d = 0; d < l.directions; ++d) {
    const auto b = biases(c, l, d, 4);
    const Tensor peepholes = c.has(7) ? c.x(7).select(0, d) : Tensor();
    std::vector<Tensor> states{l.initial(c, 5, d), l.initial(c, 6, d)};
    const Tensor inputs = weight(1, d)(l.x, b.first);
    const auto times = weight(2, d);  // the same values in all steps
    ys.push_back(l.over_steps(inputs, d, states, [&](const Tensor& gx, std::vector<Tensor>& s) {
      const Tensor g = gx + times(s[0], b.second);
      auto gate = [&](int64_t i) { return g.narrow(1, i * h, h); };
      auto opened = [&](int64_t i, const Tensor& cell) {
        Tensor sum = gate(i);
        if (peepholes.defined()) sum = sum + peepholes.narrow(0, i * h, h) * cell;
        return onnx_activate(l.activation(d, 0), l.clipped(sum));
      };
      const Tensor in = opened(0, s[1]), forget = coupled ? 1 - in : opened(2, s[1]);
      const Tensor cell =
          forget * s[1] + in * onnx_activate(l.activation(d, 1), l.clipped(gate(3)));
      const Tensor out = opened(1, cell);
      s[0] = out * onnx_activate(l.activation(d, 2), cell);
      s[1] = cell;
      return s[0];
    }));
    all.push_back(states);
  }
  l.finish(c, ys, all);
}

void lstm_of(OnnxCall& c) {
  const std::array<Tensor, 2> weights = {c.x(1), c.x(2)};
  lstm_with(c, weights[1], [&](size_t i, int64_t d) {
    const Tensor w = weights[i - 1].select(0, d);
    return [w](const Tensor& x, const Tensor& b) { return linear(x, w, b); };
  });
}

// The weights [directions, k, n] are stored in 8 bits; inputs and states are rounded to 8 bits at
// every step.
void dynamic_quantize_lstm(OnnxCall& c) {
  const auto of_direction = [&](const Tensor& t, size_t weight, int64_t d) {
    const Tensor& w = c.value(weight).tensor();
    const bool columns = t.dim() == 2;
    TD_CHECK(w.dim() == 3 && t.dim() <= 2 && t.numel() == w.size(0) * (columns ? w.size(2) : 1),
             Shape, "scales of {} do not fit weights of {}", t.shape().to_string(),
             w.shape().to_string());
    return columns ? t.select(0, d) : t.reshape({-1}).narrow(0, d, 1);
  };
  lstm_with(c, c.x(2).transpose(1, 2), [&](size_t i, int64_t d) {
    const auto part = [&](size_t at) {  // of scales and zero points
      return onnx_known(c, {at}, [&](const std::vector<Tensor>& in) {
        return of_direction(in[0], i, d).contiguous();
      });
    };
    const size_t at = i == 1 ? 8 : 10;
    const Tensor w = c.x(i).select(0, d), scale = part(at), zero = part(at + 1);
    return [w, scale, zero](const Tensor& x, const Tensor& b) {
      const OnnxRounded codes = onnx_rounded(x);
      return codes.times(w, zero).to(DType::f32) * (codes.scale * scale) + b;
    };
  });
}

}  // namespace

std::span<const OnnxRow> onnx_rnn_rows() {
  static constexpr OnnxRow kRows[] = {
      {"",
       "RNN",
       1,
       0,
       rnn_of,
       {6, 2,
        "activation_alpha activation_beta activations clip direction hidden_size layout "
        "~output_sequence"},
       &op::rnn,
       export_rnn},
      {"",
       "GRU",
       1,
       0,
       gru_of,
       {6, 2,
        "activation_alpha activation_beta activations clip direction hidden_size layout "
        "linear_before_reset ~output_sequence"},
       &op::gru,
       export_gru},
      {"",
       "LSTM",
       1,
       0,
       lstm_of,
       {8, 3,
        "activation_alpha activation_beta activations clip direction hidden_size input_forget "
        "layout ~output_sequence"},
       &op::lstm,
       export_lstm},
      {kOnnxMicrosoft,
       "DynamicQuantizeLSTM",
       1,
       0,
       dynamic_quantize_lstm,
       {12, 3,
        "activation_alpha activation_beta activations clip direction hidden_size input_forget"}},
      exported(op::lstm_cell, export_lstm_cell),
      exported(op::lstm_cell_backward, export_lstm_cell_backward),
  };
  return kRows;
}

}  // namespace tandem::onnx
