// SPDX-License-Identifier: Apache-2.0
#include "tandem/nn/rnn.h"

#include <fmt/format.h>

#include <algorithm>

#include "tandem/grad/control_flow.h"
#include "tandem/nn/init.h"
#include "tandem/nn/layer_internal.h"
#include "tandem/ops/index/index.h"
#include "tandem/ops/nn/rnn.h"
#include "tandem/ops/random/random.h"
#include "tandem/ops/view/create.h"
#include "tandem/ops/view/view.h"

namespace tandem::nn {
namespace detail {
namespace {

int gates_of(RecurrentKind kind) {
  return kind == RecurrentKind::lstm ? 4 : kind == RecurrentKind::gru ? 3 : 1;
}

// State of layer and direction k, or undefined.
Tensor part(const Tensor& state, size_t k) {
  return state.defined() ? state.select(0, static_cast<int64_t>(k)) : Tensor();
}

void check_state(const char* name, const Tensor& h, Dim layers, Dim n, int64_t size) {
  if (!h.defined()) return;
  TD_CHECK(h.dim() == 3 && dims_equal(h.shape(0), layers) && dims_equal(h.shape(1), n) &&
               dims_equal(h.shape(2), size),
           Shape, "{} is {}, expected {}", name, h.shape().to_string(),
           Shape(layers, n, size).to_string());
}

// lstm_projected() over a number of steps that the trace does not know.
LSTMOutput scan_projected(const Recurrent::Direction& p, const Tensor& x, Tensor h, Tensor c,
                          const Tensor& b_ih, const Tensor& b_hh, bool reverse) {
  const Tensor w_hr = p.weight_hr.value();
  if (!h.defined()) h = zeros({x.shape(1), w_hr.shape(0)}, x.dtype());
  if (!c.defined()) c = zeros({x.shape(1), w_hr.shape(1)}, x.dtype());
  const auto step = [&](const std::pair<Tensor, Tensor>& state, const Tensor& now) {
    auto [wide, cells] =
        lstm_cell(now, state.first, state.second, p.weight_ih, p.weight_hh, b_ih, b_hh);
    const Tensor y = linear(wide, w_hr);
    return std::pair(std::pair(y, cells), y);
  };
  const auto [last, y] = scan(step, std::pair(h, c), x, {.reverse = reverse});
  return {y, last.first, last.second};
}

}  // namespace

Recurrent::Direction::Direction(int64_t in, int64_t h, int gates, const LSTMOptions& o,
                                std::string end)
    : suffix(std::move(end)) {
  int64_t out = o.proj_size ? o.proj_size : h;
  const Dim rows = Dim(h) * gates;
  weight_ih = Param(init::fan_in_uniform({rows, in}, h, o.dtype));
  weight_hh = Param(init::fan_in_uniform({rows, out}, h, o.dtype));
  if (o.bias) {
    bias_ih = Param(init::fan_in_uniform({rows}, h, o.dtype));
    bias_hh = Param(init::fan_in_uniform({rows}, h, o.dtype));
  }
  if (o.proj_size) weight_hr = Param(init::fan_in_uniform({out, h}, h, o.dtype));
  TD_REGISTER(weight_ih, weight_hh, bias_ih, bias_hh, weight_hr);
}

Recurrent::Recurrent(RecurrentKind kind, Dim in, Dim hidden, const LSTMOptions& o)
    : input_size(in.value()), hidden_size(hidden.value()), options(o), kind_(kind) {
  TD_CHECK(o.num_layers > 0 && hidden_size > 0, Value,
           "a recurrent layer expects num_layers and hidden_size > 0, got {} and {}", o.num_layers,
           hidden_size);
  TD_CHECK(o.proj_size >= 0 && o.proj_size < hidden_size, Value,
           "proj_size = {} must be below hidden_size = {}", o.proj_size, hidden_size);
  TD_CHECK(o.dropout >= 0 && o.dropout <= 1, Value, "dropout expects a probability in 0..1, got {}",
           o.dropout);
  int d = o.bidirectional ? 2 : 1;
  for (int64_t k = 0; k < o.num_layers; ++k)
    for (int r = 0; r < d; ++r)
      directions.emplace_back(k == 0 ? input_size : out_size() * d, hidden_size, gates_of(kind),
                              options, fmt::format("_l{}{}", k, r ? "_reverse" : ""));
}

void Recurrent::register_directions() {
  // PyTorch's flat names: weight_ih_l0, weight_ih_l0_reverse, ...
  state().members.back().visit = [](void* p, const std::string&, MemberVisitor& v) {
    for (Direction& m : *static_cast<std::vector<Direction>*>(p)) {
      v.param("weight_ih" + m.suffix, m.weight_ih);
      v.param("weight_hh" + m.suffix, m.weight_hh);
      v.param("bias_ih" + m.suffix, m.bias_ih);
      v.param("bias_hh" + m.suffix, m.bias_hh);
      v.param("weight_hr" + m.suffix, m.weight_hr);
    }
  };
}

LSTMOutput Recurrent::one(const Direction& p, Tensor x, Tensor h, Tensor c, bool reverse) const {
  Tensor b_ih = detail::value_or_none(p.bias_ih), b_hh = detail::value_or_none(p.bias_hh);
  if (kind_ == RecurrentKind::lstm) {
    if (p.weight_hr.defined() && x.shape(0).is_symbolic())
      return scan_projected(p, x, std::move(h), std::move(c), b_ih, b_hh, reverse);
    LstmResult r =
        p.weight_hr.defined()
            ? lstm_projected(x, h, c, p.weight_ih, p.weight_hh, b_ih, b_hh, p.weight_hr, reverse)
            : lstm(x, h, c, p.weight_ih, p.weight_hh, b_ih, b_hh, reverse);
    return {r.y, r.h, r.c};
  }
  auto f = kind_ == RecurrentKind::gru        ? gru
           : kind_ == RecurrentKind::rnn_relu ? rnn_relu
                                              : rnn_tanh;
  RnnResult r = f(x, h, p.weight_ih, p.weight_hh, b_ih, b_hh, reverse, SourceLocation::here());
  return {r.y, r.h, {}};
}

// Runs of steps with equal batch size go through the dense layer; a sequence that has ended keeps
// its state, and in reverse a sequence that begins brings its own.
LSTMOutput Recurrent::one_packed(const Direction& p, const Tensor& x,
                                 const std::vector<int64_t>& sizes, Tensor h, Tensor c,
                                 bool reverse) const {
  struct Block {
    int64_t row, steps, batch;
  };
  std::vector<Block> blocks;
  int64_t row = 0;
  for (int64_t b : sizes) {
    if (blocks.empty() || blocks.back().batch != b) blocks.push_back({row, 0, b});
    ++blocks.back().steps;
    row += b;
  }
  if (reverse) std::reverse(blocks.begin(), blocks.end());
  int64_t n = sizes[0];
  bool cells = kind_ == RecurrentKind::lstm;
  if (!h.defined()) h = zeros({n, out_size()}, x.dtype());
  if (cells && !c.defined()) c = zeros({n, hidden_size}, x.dtype());
  std::vector<Tensor> ys(blocks.size());
  for (size_t k = 0; k < blocks.size(); ++k) {
    const Block& b = blocks[k];
    Tensor in = x.narrow(0, b.row, b.steps * b.batch).reshape({b.steps, b.batch, x.shape(1)});
    const auto head = [&](const Tensor& s) { return s.narrow(0, 0, b.batch); };
    LSTMOutput r = one(p, in, head(h), cells ? head(c) : Tensor(), reverse);
    const auto with_rest = [&](const Tensor& fresh, const Tensor& old) {
      if (b.batch == n) return fresh;
      return cat({fresh, old.narrow(0, b.batch, n - b.batch)}, 0);
    };
    h = with_rest(r.h, h);
    if (cells) c = with_rest(r.c, c);
    ys[reverse ? blocks.size() - 1 - k : k] = r.y.reshape({b.steps * b.batch, r.y.shape(2)});
  }
  return {cat(ys, 0), h, c};
}

template <class One>
LSTMOutput Recurrent::stack_layers(Tensor x, const Tensor& h0, const Tensor& c0, int64_t last_dim,
                                   One&& one) {
  int d = options.bidirectional ? 2 : 1;
  std::vector<Tensor> hs, cs;
  for (int64_t k = 0; k < options.num_layers; ++k) {
    if (k > 0 && options.dropout > 0) x = dropout(std::move(x), options.dropout, is_training());
    std::vector<Tensor> ys;
    for (int r = 0; r < d; ++r) {
      size_t at = static_cast<size_t>(k * d + r);
      LSTMOutput out = one(directions[at], x, part(h0, at), part(c0, at), r == 1);
      ys.push_back(out.y);
      hs.push_back(out.h);
      if (out.c.defined()) cs.push_back(out.c);
    }
    x = d == 1 ? ys[0] : cat(ys, last_dim);
  }
  return {x, stack(hs, 0), cs.empty() ? Tensor() : stack(cs, 0)};
}

LSTMOutput Recurrent::run(Tensor x, Tensor h0, Tensor c0) {
  TD_CHECK(x.dim() == 3 || x.dim() == 2, Shape, "{} expects x of 2 or 3 dimensions, got {}", type(),
           x.shape().to_string());
  TD_CHECK(dims_equal(x.shape(-1), input_size), Shape,
           "{} expects input size {}, x is {} ({})\nSet input_size to the last dimension of x, or "
           "permute x to [{}, {}].",
           type(), input_size, x.shape().to_string(), x.shape(-1).to_string(),
           options.batch_first ? "n, steps" : "steps, n", input_size);
  const DeviceGuard there(x.device());  // of states that are not given
  bool single = x.dim() == 2;
  if (single) {
    x = x.unsqueeze(1);
    if (h0.defined()) h0 = h0.unsqueeze(1);
    if (c0.defined()) c0 = c0.unsqueeze(1);
  } else if (options.batch_first) {
    x = transpose(x, 0, 1);
  }
  Dim layers = static_cast<int64_t>(directions.size());
  check_state("h0", h0, layers, x.shape(1), out_size());
  check_state("c0", c0, layers, x.shape(1), hidden_size);
  LSTMOutput r =
      stack_layers(std::move(x), h0, c0, 2,
                   [&](const Direction& p, const Tensor& in, Tensor h, Tensor c, bool reverse) {
                     return one(p, in, std::move(h), std::move(c), reverse);
                   });
  if (single) {
    r.y = r.y.squeeze(1);
    r.h = r.h.squeeze(1);
    if (r.c.defined()) r.c = r.c.squeeze(1);
  } else if (options.batch_first) {
    r.y = transpose(r.y, 0, 1);
  }
  return r;
}

PackedLSTMOutput Recurrent::run(const PackedSequence& x, Tensor h0, Tensor c0) {
  TD_CHECK(x.data.defined() && x.data.dim() == 2 && !x.batch_sizes.empty(), Shape,
           "{} expects a packed sequence of vectors", type());
  TD_CHECK(dims_equal(x.data.shape(1), input_size), Shape,
           "{} expects input size {}, the packed data is {}", type(), input_size,
           x.data.shape().to_string());
  const DeviceGuard there(x.data.device());
  Dim layers = static_cast<int64_t>(directions.size());
  check_state("h0", h0, layers, x.batch_sizes[0], out_size());
  check_state("c0", c0, layers, x.batch_sizes[0], hidden_size);
  const auto order = [&](Tensor& s, const Tensor& by) {
    if (s.defined() && by.defined()) s = index_select(s, 1, by);
  };
  order(h0, x.sorted_indices);
  order(c0, x.sorted_indices);
  LSTMOutput r =
      stack_layers(x.data, h0, c0, 1,
                   [&](const Direction& p, const Tensor& in, Tensor h, Tensor c, bool reverse) {
                     return one_packed(p, in, x.batch_sizes, std::move(h), std::move(c), reverse);
                   });
  order(r.h, x.unsorted_indices);
  order(r.c, x.unsorted_indices);
  return {{r.y, x.batch_sizes, x.sorted_indices, x.unsorted_indices}, r.h, r.c};
}

RecurrentCell::RecurrentCell(int gates, Dim in, Dim hidden, const RNNCellOptions& o)
    : input_size(in.value()), hidden_size(hidden.value()), options(o) {
  TD_CHECK(hidden_size > 0, Value, "a recurrent cell expects hidden_size > 0, got {}", hidden_size);
  TD_CHECK(o.nonlinearity == "tanh" || o.nonlinearity == "relu", Value,
           "nonlinearity is \"tanh\" or \"relu\", got \"{}\"", o.nonlinearity);
  int64_t h = hidden_size;
  const Dim rows = Dim(h) * gates;
  weight_ih = Param(init::fan_in_uniform({rows, in}, h, o.dtype));
  weight_hh = Param(init::fan_in_uniform({rows, h}, h, o.dtype));
  if (!o.bias) return;
  bias_ih = Param(init::fan_in_uniform({rows}, h, o.dtype));
  bias_hh = Param(init::fan_in_uniform({rows}, h, o.dtype));
}

void RecurrentCell::check(const Tensor& x, const Tensor& h) const {
  TD_CHECK((x.dim() == 1 || x.dim() == 2) && dims_equal(x.shape(-1), input_size), Shape,
           "{} expects x [n, {}] or [{}], got {}", type(), input_size, input_size,
           x.shape().to_string());
  TD_CHECK(!h.defined() || (h.dim() == x.dim() && dims_equal(h.shape(-1), hidden_size) &&
                            (x.dim() == 1 || dims_equal(h.shape(0), x.shape(0)))),
           Shape, "{} expects a state of size {} for x {}, got {}", type(), hidden_size,
           x.shape().to_string(), h.shape().to_string());
}

}  // namespace detail

namespace {

detail::RecurrentKind kind_of(const RNNOptions& o) {
  TD_CHECK(o.nonlinearity == "tanh" || o.nonlinearity == "relu", Value,
           "RNN takes the nonlinearity \"tanh\" or \"relu\", got \"{}\"", o.nonlinearity);
  return o.nonlinearity == "relu" ? detail::RecurrentKind::rnn_relu
                                  : detail::RecurrentKind::rnn_tanh;
}
template <class O>
LSTMOptions common(const O& o) {
  return {.num_layers = o.num_layers,
          .bias = o.bias,
          .batch_first = o.batch_first,
          .dropout = o.dropout,
          .bidirectional = o.bidirectional,
          .dtype = o.dtype};
}

// Calls f with x and its states, adding a batch dimension of one if they have none.
template <class F>
Tensor batched(Tensor x, Tensor h, F&& f) {
  if (x.dim() == 2) return f(x, h);
  return f(x.unsqueeze(0), h.defined() ? h.unsqueeze(0) : h).squeeze(0);
}

}  // namespace

RNN::RNN(Dim in, Dim hidden, RNNOptions o) : Recurrent(kind_of(o), in, hidden, common(o)) {
  TD_REGISTER(directions);
  register_directions();
}
RNNOutput RNN::forward(Tensor x, Tensor h0) {
  LSTMOutput r = run(std::move(x), std::move(h0), {});
  return {r.y, r.h};
}
RNNOutput RNN::operator()(Tensor x, Tensor h0, SourceLocation loc) {
  return scoped(loc, [&] { return forward(std::move(x), std::move(h0)); });
}
PackedRNNOutput RNN::operator()(const PackedSequence& x, Tensor h0, SourceLocation loc) {
  return scoped(loc, [&]() -> PackedRNNOutput {
    PackedLSTMOutput r = run(x, std::move(h0), {});
    return {r.y, r.h};
  });
}

GRU::GRU(Dim in, Dim hidden, GRUOptions o)
    : Recurrent(detail::RecurrentKind::gru, in, hidden, common(o)) {
  TD_REGISTER(directions);
  register_directions();
}
RNNOutput GRU::forward(Tensor x, Tensor h0) {
  LSTMOutput r = run(std::move(x), std::move(h0), {});
  return {r.y, r.h};
}
RNNOutput GRU::operator()(Tensor x, Tensor h0, SourceLocation loc) {
  return scoped(loc, [&] { return forward(std::move(x), std::move(h0)); });
}
PackedRNNOutput GRU::operator()(const PackedSequence& x, Tensor h0, SourceLocation loc) {
  return scoped(loc, [&]() -> PackedRNNOutput {
    PackedLSTMOutput r = run(x, std::move(h0), {});
    return {r.y, r.h};
  });
}

LSTM::LSTM(Dim in, Dim hidden, LSTMOptions o)
    : Recurrent(detail::RecurrentKind::lstm, in, hidden, o) {
  TD_REGISTER(directions);
  register_directions();
}
LSTMOutput LSTM::forward(Tensor x, Tensor h0, Tensor c0) {
  return run(std::move(x), std::move(h0), std::move(c0));
}
LSTMOutput LSTM::operator()(Tensor x, Tensor h0, Tensor c0, SourceLocation loc) {
  return scoped(loc, [&] { return forward(std::move(x), std::move(h0), std::move(c0)); });
}
PackedLSTMOutput LSTM::operator()(const PackedSequence& x, Tensor h0, Tensor c0,
                                  SourceLocation loc) {
  return scoped(loc, [&] { return run(x, std::move(h0), std::move(c0)); });
}

RNNCell::RNNCell(Dim in, Dim hidden, RNNCellOptions o) : RecurrentCell(1, in, hidden, o) {
  TD_REGISTER(weight_ih, weight_hh, bias_ih, bias_hh);
}
Tensor RNNCell::forward(Tensor x, Tensor h) {
  check(x, h);
  auto f = options.nonlinearity == "relu" ? rnn_relu_cell : rnn_tanh_cell;
  return batched(std::move(x), std::move(h), [&](Tensor a, Tensor b) {
    return f(a, b, weight_ih, weight_hh, detail::value_or_none(bias_ih),
             detail::value_or_none(bias_hh), SourceLocation::here());
  });
}
Tensor RNNCell::operator()(Tensor x, Tensor h, SourceLocation loc) {
  return scoped(loc, [&] { return forward(std::move(x), std::move(h)); });
}

GRUCell::GRUCell(Dim in, Dim hidden, RNNCellOptions o) : RecurrentCell(3, in, hidden, o) {
  TD_REGISTER(weight_ih, weight_hh, bias_ih, bias_hh);
}
Tensor GRUCell::forward(Tensor x, Tensor h) {
  check(x, h);
  return batched(std::move(x), std::move(h), [&](Tensor a, Tensor b) {
    return gru_cell(a, b, weight_ih, weight_hh, detail::value_or_none(bias_ih),
                    detail::value_or_none(bias_hh));
  });
}
Tensor GRUCell::operator()(Tensor x, Tensor h, SourceLocation loc) {
  return scoped(loc, [&] { return forward(std::move(x), std::move(h)); });
}

LSTMCell::LSTMCell(Dim in, Dim hidden, RNNCellOptions o) : RecurrentCell(4, in, hidden, o) {
  TD_REGISTER(weight_ih, weight_hh, bias_ih, bias_hh);
}
std::pair<Tensor, Tensor> LSTMCell::forward(Tensor x, Tensor h, Tensor c) {
  check(x, h);
  check(x, c);
  bool single = x.dim() == 1;
  const auto up = [&](Tensor& t) {
    if (single && t.defined()) t = t.unsqueeze(0);
  };
  up(x);
  up(h);
  up(c);
  auto [h1, c1] = lstm_cell(x, h, c, weight_ih, weight_hh, detail::value_or_none(bias_ih),
                            detail::value_or_none(bias_hh));
  if (single) return {h1.squeeze(0), c1.squeeze(0)};
  return {h1, c1};
}
std::pair<Tensor, Tensor> LSTMCell::operator()(Tensor x, Tensor h, Tensor c, SourceLocation loc) {
  return scoped(loc, [&] { return forward(std::move(x), std::move(h), std::move(c)); });
}

}  // namespace tandem::nn
