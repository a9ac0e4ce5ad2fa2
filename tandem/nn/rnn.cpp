// SPDX-License-Identifier: Apache-2.0
#include "tandem/nn/rnn.h"

#include <fmt/format.h>

#include "tandem/nn/init.h"
#include "tandem/ops/create.h"
#include "tandem/ops/random.h"
#include "tandem/ops/rnn.h"
#include "tandem/ops/view.h"

namespace tandem::nn {

LSTM::Direction::Direction(Dim in, Dim hidden, const LSTMOptions& o, std::string end)
    : suffix(std::move(end)) {
  int64_t h = hidden.value();
  weight_ih = Param(init::fan_in_uniform({4 * h, in}, h, o.dtype));
  weight_hh = Param(init::fan_in_uniform({4 * h, h}, h, o.dtype));
  if (o.bias) {
    bias_ih = Param(init::fan_in_uniform({4 * h}, h, o.dtype));
    bias_hh = Param(init::fan_in_uniform({4 * h}, h, o.dtype));
  }
  TD_REGISTER(weight_ih, weight_hh, bias_ih, bias_hh);
}

LSTM::LSTM(Dim in, Dim hidden, LSTMOptions o)
    : input_size(in.value()), hidden_size(hidden.value()), options(o) {
  TD_CHECK(o.num_layers > 0 && hidden_size > 0, Value, "LSTM wants num_layers and hidden_size > 0");
  int d = o.bidirectional ? 2 : 1;
  for (int64_t k = 0; k < o.num_layers; ++k)
    for (int r = 0; r < d; ++r)
      directions.emplace_back(k == 0 ? in : Dim(hidden_size * d), hidden, options,
                              fmt::format("_l{}{}", k, r ? "_reverse" : ""));
  TD_REGISTER(directions);
  // PyTorch's flat names: weight_ih_l0, weight_ih_l0_reverse, ...
  state().members.back().visit = [](void* p, const std::string&, MemberVisitor& v) {
    for (Direction& m : *static_cast<std::vector<Direction>*>(p)) {
      v.param("weight_ih" + m.suffix, m.weight_ih);
      v.param("weight_hh" + m.suffix, m.weight_hh);
      v.param("bias_ih" + m.suffix, m.bias_ih);
      v.param("bias_hh" + m.suffix, m.bias_hh);
    }
  };
}

LSTMOutput LSTM::forward(Tensor x, Tensor h0, Tensor c0) {
  TD_CHECK(x.dim() == 3, Shape, "LSTM wants x of 3 dimensions, got {}", x.shape().to_string());
  TD_CHECK(dims_equal(x.shape(2), input_size), Shape, "LSTM wants input size {}, x is {}",
           input_size, x.shape().to_string());
  if (options.batch_first) x = transpose(x, 0, 1);
  int d = options.bidirectional ? 2 : 1;
  std::vector<Tensor> hs, cs;
  for (int64_t k = 0; k < options.num_layers; ++k) {
    if (k > 0 && options.dropout > 0) x = dropout(std::move(x), options.dropout, is_training());
    std::vector<Tensor> ys;
    for (int r = 0; r < d; ++r) {
      const Direction& p = directions[static_cast<size_t>(k * d + r)];
      auto state = [&](const Tensor& s) {
        return s.defined() ? select(s, 0, k * d + r) : Tensor();
      };
      auto bias = [](const Param& b) { return b.defined() ? b.value() : Tensor(); };
      LstmResult out = lstm(x, state(h0), state(c0), p.weight_ih, p.weight_hh, bias(p.bias_ih),
                            bias(p.bias_hh), r == 1);
      ys.push_back(out.y);
      hs.push_back(out.h);
      cs.push_back(out.c);
    }
    x = d == 1 ? ys[0] : cat(ys, 2);
  }
  if (options.batch_first) x = transpose(x, 0, 1);
  return {x, stack(hs, 0), stack(cs, 0)};
}

LSTMOutput LSTM::operator()(Tensor x, Tensor h0, Tensor c0, Where where) {
  return scoped(where, [&] { return forward(std::move(x), std::move(h0), std::move(c0)); });
}

}  // namespace tandem::nn
