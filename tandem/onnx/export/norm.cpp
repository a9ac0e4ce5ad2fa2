// SPDX-License-Identifier: Apache-2.0
// Norms, softmax, losses of labels and recurrent layers.
#include "tandem/onnx/export/exporters_internal.h"
#include "tandem/ops/ops.h"

namespace tandem::onnx {

bool export_layer_norm(OnnxExportCall& c) {
  const auto& a = c.get_attrs<NormAttrs>();
  const Shape& x = c.shape(0);
  Shape inner;
  for (int d = x.rank() - static_cast<int>(a.dims); d < x.rank(); ++d) inner.push_back(x[d]);
  if (a.dims == 0 || (!c.has(1) && inner.is_symbolic())) return false;
  // ONNX's statistics are always f32.
  if (c.dtype(0) == DType::f64 && (c.wanted(1) || c.wanted(2))) return false;
  for (size_t i = 1; i < c.in.size(); ++i)
    if (c.has(i) && c.dtype(i) != c.dtype(0)) return false;
  const std::string w = c.has(1) ? c.x(1) : c.b.constant(full(inner, 1, c.dtype(0)));
  const size_t n = c.wanted(2) ? 3 : c.wanted(1) ? 2 : 1;
  const Names y = c.b.add("LayerNormalization", {c.x(0), w, c.maybe(2)}, n,
                          {onnx_int("axis", -a.dims), onnx_float("epsilon", a.eps)});
  for (size_t o = 0; o < n; ++o)
    c.set(o, o == 0 ? y[o] : c.b.cast(y[o], DType::f32, c.out[o].dtype));
  return true;
}

bool export_batch_norm(OnnxExportCall& c) {
  const auto& a = c.get_attrs<NormAttrs>();
  const Dim channels = c.shape(0)[1];
  if (channels.is_symbolic() || c.rank(0) < 2) return false;
  for (size_t i = 1; i < c.in.size(); ++i)
    if (c.has(i) && c.dtype(i) != c.dtype(0)) return false;
  const auto weight = [&](size_t i, double otherwise) {
    return c.has(i) ? c.x(i) : c.b.constant(full({channels}, otherwise, c.dtype(0)));
  };
  c.set(0, c.b.node("BatchNormalization", {c.x(0), weight(3, 1), weight(4, 0), c.x(1), c.x(2)},
                    {onnx_float("epsilon", a.eps)}));
  return true;
}

namespace {
bool softmax_as(OnnxExportCall& c, const char* op) {
  if (c.rank(0) == 0 || !is_floating(c.dtype(0)) || c.dtype(0) != c.out[0].dtype) return false;
  c.set(0, c.b.node(op, {c.x(0)}, {onnx_int("axis", c.axis(c.get_attrs<SoftmaxAttrs>().dim))}));
  return true;
}
}  // namespace
bool export_softmax(OnnxExportCall& c) { return softmax_as(c, "Softmax"); }
bool export_log_softmax(OnnxExportCall& c) { return softmax_as(c, "LogSoftmax"); }

// ---- losses with labels: -sum_j T_j logp_j, see ops/nn/class_loss.cpp

namespace {

struct Labels {
  Tensor valid, safe, weight, total;  // per sample
  Labels(const Tensor& target, const Tensor& weights, const ClassLossAttrs& a, DType t)
      : valid(target != a.ignore_index), safe(where(valid, target, 0).to(DType::i64)) {
    if (weights.defined()) {
      const IndexAttrs at = index_at(0);
      const Tensor all[] = {safe}, w[] = {weights.to(t)};
      weight = call_list(op::index, &at, SourceLocation::here(), all, w);
      total = where(valid, weight, 0.0).sum();
    } else {
      total = valid.to(t).sum();
    }
  }
};
Tensor per_class(const Tensor& v, int rank) {
  Shape s{Dim(1), v.shape(0)};
  for (int i = 2; i < rank; ++i) s.push_back(1);
  return v.reshape(s);
}
Tensor reduced(const Tensor& loss, const Labels& l, const ClassLossAttrs& a) {
  if (a.reduction == 2) return loss;
  return a.reduction == 0 ? loss.sum() / l.total : loss.sum();
}

}  // namespace

bool export_cross_entropy(OnnxExportCall& c) {
  const auto& a = c.get_attrs<ClassLossAttrs>();
  return c.by_ops([&](std::span<const Tensor> in) -> std::vector<Tensor> {
    const DType t = accumulation_dtype(in[0].dtype());
    const Tensor x = in[0].to(t), w = in.size() > 2 ? in[2] : Tensor();
    const Tensor lse = logsumexp(x, {1});
    const Labels l(in[1], w, a, t);
    Tensor loss = lse - gather(x, 1, l.safe.unsqueeze(1)).squeeze(1);
    if (l.weight.defined()) loss = loss * l.weight;
    if (a.label_smoothing > 0) {
      const double each = a.label_smoothing / static_cast<double>(x.size(1));
      const Tensor all = lse.unsqueeze(1) - x;
      const Tensor sum = (w.defined() ? all * per_class(w.to(t), x.dim()) : all).sum({1});
      loss = loss * (1 - a.label_smoothing) + sum * each;
    }
    loss = where(l.valid, loss, 0.0);
    return {reduced(loss, l, a).to(in[0].dtype()), lse, l.total};
  });
}

bool export_cross_entropy_backward(OnnxExportCall& c) {
  const auto& a = c.get_attrs<ClassLossAttrs>();
  return c.by_ops([&](std::span<const Tensor> in) -> std::vector<Tensor> {
    const DType t = in[3].dtype();
    const Tensor x = in[1].to(t), p = (x - in[3].unsqueeze(1)).exp();
    const Tensor &target = in[2], w = in.size() > 5 ? in[5] : Tensor();
    const Tensor classes = arange_dim(x.shape(1)).to(target.dtype());
    Tensor want = (target.unsqueeze(1) == per_class(classes, x.dim())).to(t);
    if (a.label_smoothing > 0)
      want = want * (1 - a.label_smoothing) + a.label_smoothing / static_cast<double>(x.size(1));
    if (w.defined()) want = want * per_class(w.to(t), x.dim());
    const bool plain = a.label_smoothing == 0 && !w.defined();
    const Tensor gradient = (plain ? p : want.sum({1}, true) * p) - want;
    Tensor g = in[0].to(t);
    if (a.reduction == 2) g = g.unsqueeze(1);
    if (a.reduction == 0) g = g / in[4].to(t);
    const Tensor valid = (target != a.ignore_index).unsqueeze(1);
    return {where(valid, gradient * g, 0.0).to(in[1].dtype())};
  });
}

bool export_nll_loss(OnnxExportCall& c) {
  const auto& a = c.get_attrs<ClassLossAttrs>();
  return c.by_ops([&](std::span<const Tensor> in) -> std::vector<Tensor> {
    const DType t = accumulation_dtype(in[0].dtype());
    const Labels l(in[1], in.size() > 2 ? in[2] : Tensor(), a, t);
    Tensor loss = -gather(in[0].to(t), 1, l.safe.unsqueeze(1)).squeeze(1);
    if (l.weight.defined()) loss = loss * l.weight;
    return {reduced(where(l.valid, loss, 0.0), l, a).to(in[0].dtype()), l.total};
  });
}

bool export_nll_loss_backward(OnnxExportCall& c) {
  const auto& a = c.get_attrs<ClassLossAttrs>();
  const int rank = c.out[0].rank();
  return c.by_ops([&](std::span<const Tensor> in) -> std::vector<Tensor> {
    const DType t = accumulation_dtype(in[0].dtype());
    const Tensor &target = in[1], w = in.size() > 3 ? in[3] : Tensor();
    const Tensor classes = arange_dim(a.classes).to(target.dtype());
    Tensor hit = (target.unsqueeze(1) == per_class(classes, rank)).to(t);
    if (w.defined()) hit = hit * per_class(w.to(t), rank);
    Tensor g = in[0].to(t);
    if (a.reduction == 2) g = g.unsqueeze(1);
    if (a.reduction == 0) g = g / in[2].to(t);
    const Tensor valid = (target != a.ignore_index).unsqueeze(1);
    return {where(valid, -(hit * g), 0.0).to(in[0].dtype())};
  });
}

// ---- recurrent layers: ONNX orders its gates differently and has a dimension for directions

namespace {

std::string in_order(OnnxExportCall& c, size_t i, const std::vector<int>& order) {
  const auto gates = static_cast<int64_t>(order.size());
  const int64_t h = c.shape(i)[0].value() / gates;
  if (order.size() == 1) return c.x(i);
  const Names parts = c.b.add("Split", {c.x(i), c.b.ints(std::vector<int64_t>(order.size(), h))},
                              order.size(), {onnx_int("axis", 0)});
  Names sorted;
  for (const int k : order) sorted.push_back(parts[static_cast<size_t>(k)]);
  return c.b.node("Concat", sorted, {onnx_int("axis", 0)});
}

// The node of one direction; `states` is 1 or 2 (with a cell state).
bool recurrent(OnnxExportCall& c, const char* op, const std::vector<int>& order, size_t states,
               bool reverse, OnnxAttributes more) {
  const size_t w = states + 1;
  for (size_t o = states + 1; o < c.wants.size(); ++o)
    if (c.wanted(o)) return false;
  if (c.has(w + 2) != c.has(w + 3) || c.shape(w).is_symbolic()) return false;
  const auto one = [&](const std::string& v) { return c.b.node("Unsqueeze", {v, c.b.ints({0})}); };
  Names in = {c.x(0), one(in_order(c, w, order)), one(in_order(c, w + 1, order)), "", ""};
  if (c.has(w + 2))
    in[3] = one(c.b.node("Concat", {in_order(c, w + 2, order), in_order(c, w + 3, order)},
                         {onnx_int("axis", 0)}));
  for (size_t s = 0; s < states; ++s) in.push_back(one(c.x(1 + s)));
  more.push_back(onnx_int("hidden_size", c.shape(w + 1)[1].value()));
  more.push_back(onnx_text("direction", reverse ? "reverse" : "forward"));
  const Names y = c.b.add(op, in, states + 1, more);
  c.set(0, c.b.node("Squeeze", {y[0], c.b.ints({1})}));
  for (size_t s = 0; s < states; ++s)
    if (c.wanted(s + 1)) c.set(s + 1, c.b.node("Squeeze", {y[s + 1], c.b.ints({0})}));
  return true;
}

}  // namespace

bool export_lstm(OnnxExportCall& c) {  // i, f, g, o becomes i, o, f, g
  return recurrent(c, "LSTM", {0, 3, 1, 2}, 2, c.get_attrs<LstmAttrs>().reverse, {});
}
bool export_gru(OnnxExportCall& c) {  // r, z, n becomes z, r, n
  return recurrent(c, "GRU", {1, 0, 2}, 1, c.get_attrs<LstmAttrs>().reverse,
                   {onnx_int("linear_before_reset", 1)});
}
bool export_rnn(OnnxExportCall& c) {
  const auto& a = c.get_attrs<RnnAttrs>();
  OnnxAttribute names = onnx_text("activations", "");
  names.kind = OnnxAttribute::strings;
  names.text_list = {a.relu ? "Relu" : "Tanh"};
  return recurrent(c, "RNN", {0}, 1, a.reverse, {names});
}

bool export_lstm_cell(OnnxExportCall& c) {
  return c.by_ops([](std::span<const Tensor> in) -> std::vector<Tensor> {
    const Dim h = in[1].shape(1);
    const auto gate = [&](int64_t k) { return narrow(in[0], 1, h * Dim(k), h); };
    const Tensor i = sigmoid(gate(0)), f = sigmoid(gate(1)), g = tanh(gate(2)),
                 o = sigmoid(gate(3));
    const Tensor state = f * in[1] + i * g;
    return {o * tanh(state), state, cat({i, f, g, o, state}, 1)};
  });
}
bool export_lstm_cell_backward(OnnxExportCall& c) {
  return c.by_ops([](std::span<const Tensor> in) -> std::vector<Tensor> {
    const Tensor &saved = in[3], &before = in[4];
    const Dim h = before.shape(1);
    const auto part = [&](const Tensor& t, int64_t k) { return narrow(t, 1, h * Dim(k), h); };
    const Tensor i = part(saved, 0), f = part(saved, 1), g = part(saved, 2), o = part(saved, 3);
    const Tensor th = tanh(part(saved, 4));
    Tensor gi, gf, gg, go, gc = in[1];
    const auto add = [](Tensor& to, const Tensor& v) { to = to.defined() ? to + v : v; };
    if (in[0].defined()) {
      add(go, in[0] * th);
      add(gc, in[0] * o * (1 - th * th));
    }
    if (in[2].defined()) {
      add(gc, part(in[2], 4));
      add(go, part(in[2], 3));
    }
    if (!gc.defined()) gc = before * 0.0;
    if (!go.defined()) go = before * 0.0;
    gi = gc * g;
    gf = gc * before;
    gg = gc * i;
    if (in[2].defined()) {
      gi = gi + part(in[2], 0);
      gf = gf + part(in[2], 1);
      gg = gg + part(in[2], 2);
    }
    return {cat({gi * i * (1 - i), gf * f * (1 - f), gg * (1 - g * g), go * o * (1 - o)}, 1),
            gc * f};
  });
}

}  // namespace tandem::onnx
