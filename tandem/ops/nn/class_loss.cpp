// SPDX-License-Identifier: Apache-2.0
// Losses with integer labels: softmax_cross_entropy, nll_loss and their *_backward rows. A sample's
// loss is -sum_j T_j logp_j with T_j = (1 - s) w_label [j = label] + s / c w_j, s the smoothing; an
// ignored sample has T = 0. Sums run in sample order in f64.
#include <cmath>
#include <optional>

#include "tandem/base/math_prelude.h"
#include "tandem/ops/function_internal.h"
#include "tandem/ops/index/index.h"
#include "tandem/ops/index/positions_internal.h"
#include "tandem/ops/nn/loss.h"
#include "tandem/ops/pointwise/pointwise.h"
#include "tandem/ops/rule_internal.h"
#include "tandem/ops/view/create.h"
#include "tandem/ops/view/strided_copy_internal.h"

namespace tandem {
namespace {

using detail::Dense;

enum Reduce : int64_t { kMean, kSum, kNone };

// ---- shape rules

// One label per sample: x without its dimension 1.
Shape samples_of(const Shape& x) {
  Shape s = x;
  s.erase(1);
  return s;
}

void check_target(const Spec& t, const Shape& want, const char* x, const Shape& shape) {
  TD_CHECK(is_integral(t.dtype), DType,
           "target is {}, expected integer labels\nCast it with "
           ".to(int64), or give probabilities of {}'s shape.",
           to_string(t.dtype), x);
  bool same = t.rank() == want.rank();
  for (int i = 0; same && i < want.rank(); ++i) same = dims_equal(t[i], want[i]);
  TD_CHECK(same, Shape, "target is {}, {} is {}: expected one label per sample, {}",
           t.shape.to_string(), x, shape.to_string(), want.to_string());
}

void check_weight(const InferCall& c, int i, Dim classes, DType x) {
  if (!c.has(i)) return;
  const Spec& w = c.in[i];
  TD_CHECK(w.rank() == 1 && dims_equal(w[0], classes), Shape,
           "weight is {}, expected one factor per class, [{}]", w.shape.to_string(),
           classes.to_string());
  TD_CHECK(w.dtype == x || w.dtype == accumulation_dtype(x), DType, "weight is {}, expected {}",
           to_string(w.dtype), to_string(x));
}

void class_loss_infer(InferCall& c, const char* name) {
  const auto& a = c.get_attrs<ClassLossAttrs>();
  const Spec& x = c.in[0];
  TD_CHECK(is_floating(x.dtype), DType, "{} is {}, expected a floating dtype", name,
           to_string(x.dtype));
  TD_CHECK(x.rank() >= 2, Shape, "{} is {}, expected [n, classes, ...]", name, x.shape.to_string());
  Shape samples = samples_of(x.shape);
  check_target(c.in[1], samples, name, x.shape);
  check_weight(c, 2, x[1], x.dtype);
  TD_CHECK(a.label_smoothing >= 0 && a.label_smoothing <= 1, Value,
           "label_smoothing is {}, expected 0 to 1", a.label_smoothing);
  TD_CHECK(a.reduction != kMean || samples.is_symbolic() || samples.numel().value() > 0, Value,
           "{} is {}: an empty batch has no mean loss\nSkip empty batches, or use "
           "Reduction::sum.",
           name, x.shape.to_string());
  bool each = a.reduction == kNone;
  c.out[0] = Spec(x.dtype, each ? samples : Shape(), x.device);
  int o = 1;
  if (c.op.n_out == 3) c.out[o++] = Spec(accumulation_dtype(x.dtype), samples, x.device);
  c.out[o] = Spec(accumulation_dtype(x.dtype), Shape(), x.device);
}
void cross_entropy_infer(InferCall& c) { class_loss_infer(c, "x"); }
void nll_infer(InferCall& c) { class_loss_infer(c, "x"); }

void check_total(const InferCall& c, int i) {
  TD_CHECK(c.get_attrs<ClassLossAttrs>().reduction != kMean || c.has(i), Value,
           "reduction mean expects the total of the forward pass");
}

void cross_entropy_backward_infer(InferCall& c) {
  const Spec& x = c.in[1];
  TD_CHECK(x.rank() >= 2, Shape, "x is {}, expected [n, classes, ...]", x.shape.to_string());
  check_target(c.in[2], samples_of(x.shape), "x", x.shape);
  check_weight(c, 5, x[1], x.dtype);
  check_total(c, 4);
  c.out[0] = Spec(x.dtype, x.shape, x.device);
}

void nll_backward_infer(InferCall& c) {
  const Spec &g = c.in[0], &t = c.in[1];
  Shape s = t.shape;
  TD_CHECK(s.rank() >= 1, Shape, "target is {}, expected [n, ...]", s.to_string());
  s.insert(1, c.get_attrs<ClassLossAttrs>().classes);
  check_weight(c, 3, s[1], g.dtype);
  check_total(c, 2);
  c.out[0] = Spec(g.dtype, s, g.device);
}

// ---- loops

// A dense array of T: the array itself if it is dense, else a copy.
template <class T>
class Source {
 public:
  explicit Source(const Array& a) {
    if (a.contiguous && a.dtype == dtype_of<T>)
      p_ = a.as<const T>();
    else
      p_ = copy_.emplace(a).get();
  }
  const T& operator[](int64_t i) const { return p_[i]; }

 private:
  const T* p_ = nullptr;
  std::optional<Dense<T>> copy_;
};

// State shared by all four loops.
struct Samples {
  const ClassLossAttrs& attrs;
  int64_t n = 1, classes = 1, inner = 1, rows = 0;
  Dense<uint64_t> target;
  std::optional<Dense<double>> weight;
  double smooth_weight = 0;  // s / c * sum of weights
  ErrorWord* error;

  Samples(const KernelCall& c, const Array& t, const Array* w, int64_t classes)
      : attrs(c.get_attrs<ClassLossAttrs>()), classes(classes), target(t), error(c.error) {
    rows = t.numel;
    n = t.rank ? t.shape[0] : 1;
    inner = n ? rows / n : 1;
    if (w && w->present()) weight.emplace(*w);
    for (int64_t j = 0; j < classes; ++j) smooth_weight += weight_of(j);
    smooth_weight *= smoothing();
  }
  double weight_of(int64_t j) const { return weight ? (*weight)[j] : 1.0; }
  double smoothing() const { return attrs.label_smoothing / static_cast<double>(classes); }
  // First element of row r in [n, classes, inner]; elements are `inner` apart.
  int64_t base(int64_t r) const { return r / inner * classes * inner + r % inner; }
  // The label of row r, or -1 if ignored; an invalid one is reported and becomes -1.
  int64_t label(int64_t r) const {
    auto t = static_cast<int64_t>(target[r]);
    if (t == attrs.ignore_index) return -1;
    if (t >= 0 && t < classes) return t;
    error->report(1, t);
    return -1;
  }
};

const Array* weight_array(const KernelCall& c, int i) {
  return c.n_in > i && c.in[i].present() ? &c.in[i] : nullptr;
}

template <class T>
double log_sum_exp(const Source<T>& x, const Samples& s, int64_t base) {
  T top = -INFINITY;
  for (int64_t j = 0; j < s.classes; ++j) {
    T v = x[base + j * s.inner];
    top = v > top || v != v ? v : top;
  }
  if (std::isinf(top)) return top;
  double sum = 0;
  for (int64_t j = 0; j < s.classes; ++j) {
    if constexpr (std::is_same_v<T, float>)
      sum += tdm_expf(x[base + j * s.inner] - top);
    else
      sum += tdm_exp(x[base + j * s.inner] - top);
  }
  return top + tdm_log(sum);
}

// Reduces losses and writes y and total (out[last]).
void finish(const KernelCall& c, const Dense<double>& loss, const Samples& s) {
  double sum = 0, total = 0;
  for (int64_t r = 0; r < s.rows; ++r) {
    auto t = static_cast<int64_t>(s.target[r]);
    sum += loss[r];
    if (t != s.attrs.ignore_index && t >= 0 && t < s.classes) total += s.weight_of(t);
  }
  double y = s.attrs.reduction == kMean ? sum / total : sum;
  if (s.attrs.reduction == kNone)
    loss.store(c.out[0]);
  else
    detail::write_dense(&y, c.out[0]);
  const Array& out = c.out[c.n_out - 1];
  if (out.data) detail::write_dense(&total, out);
}

template <class T>
void cross_entropy_loops(const KernelCall& c) {
  Source<T> x(c.in[0]);
  Samples s(c, c.in[1], weight_array(c, 2), c.in[0].shape[1]);
  Dense<double> loss(s.rows), lse(s.rows);
  detail::parallel_for_rows(s.rows, 8 * s.classes, [&](int64_t first, int64_t last) {
    for (int64_t r = first; r < last; ++r) {
      int64_t base = s.base(r), t = s.label(r);
      double l = lse[r] = log_sum_exp(x, s, base);
      loss[r] = 0;
      if (t < 0) continue;
      double w = (1 - s.attrs.label_smoothing) * s.weight_of(t);
      loss[r] = w == 0 ? 0 : w * (l - x[base + t * s.inner]);
      for (int64_t j = 0; s.attrs.label_smoothing > 0 && j < s.classes; ++j)
        loss[r] += s.smoothing() * s.weight_of(j) * (l - x[base + j * s.inner]);
    }
  });
  finish(c, loss, s);
  if (c.out[1].data) lse.store(c.out[1]);
}

// The factor on each sample's loss in the backward pass.
class Incoming {
 public:
  Incoming(const KernelCall& c, int total) : g_(c.in[0]) {
    each_ = c.get_attrs<ClassLossAttrs>().reduction == kNone;
    if (c.get_attrs<ClassLossAttrs>().reduction == kMean) detail::read_dense(c.in[total], &total_);
  }
  double operator[](int64_t r) const { return g_[each_ ? r : 0] / total_; }

 private:
  Dense<double> g_;
  bool each_ = false;
  double total_ = 1;
};

template <class T>
void cross_entropy_backward_loops(const KernelCall& c) {
  Source<T> x(c.in[1]);
  Source<T> lse(c.in[3]);
  Samples s(c, c.in[2], weight_array(c, 5), c.in[1].shape[1]);
  if (s.rows == 0) return;
  Incoming g(c, 4);
  Dense<T> gx(c.out[0].numel);
  detail::parallel_for_rows(s.rows, 8 * s.classes, [&](int64_t first, int64_t last) {
    for (int64_t r = first; r < last; ++r) {
      int64_t base = s.base(r), t = s.label(r);
      double k = t < 0 ? 0 : g[r], keep = 1 - s.attrs.label_smoothing;
      double sum = t < 0 ? 0 : keep * s.weight_of(t) + s.smooth_weight;
      for (int64_t j = 0; j < s.classes; ++j) {
        int64_t at = base + j * s.inner;
        double p;
        if constexpr (std::is_same_v<T, float>)
          p = tdm_expf(x[at] - lse[r]);
        else
          p = tdm_exp(x[at] - lse[r]);
        double want = s.smoothing() * s.weight_of(j) + (j == t ? keep * s.weight_of(j) : 0);
        gx[at] = t < 0 ? T(0) : static_cast<T>(k * (sum * p - want));
      }
    }
  });
  gx.store(c.out[0]);
}

void cross_entropy_reference(const KernelCall& c) {
  if (c.in[0].dtype == DType::f64)
    cross_entropy_loops<double>(c);
  else
    cross_entropy_loops<float>(c);
}
void cross_entropy_backward_reference(const KernelCall& c) {
  if (c.in[1].dtype == DType::f64)
    cross_entropy_backward_loops<double>(c);
  else
    cross_entropy_backward_loops<float>(c);
}

template <class T>
double to_double(T v) {
  if constexpr (std::is_same_v<T, Half> || std::is_same_v<T, BFloat16>)
    return static_cast<float>(v);
  else
    return static_cast<double>(v);
}

// f(row, offset of its element in `a`, label) for the rows that have a label.
template <class F>
void each_labelled(const Samples& s, const Array& a, F&& f) {
  int64_t shape[kMaxRank], strides[kMaxRank];
  for (int i = 0, at = 0; i < a.rank; ++i) {
    if (i == 1) continue;
    shape[at] = a.shape[i];
    strides[at++] = a.strides[i];
  }
  const detail::Positions rows(shape, a.rank - 1, {strides});
  const int64_t step = rows.step(0), across = a.strides[1];
  parallel_for(0, s.rows, 8192, [&](int64_t first, int64_t last) {
    rows.runs(first, last - first, [&](int64_t row, int64_t n, const int64_t* offset) {
      for (int64_t k = 0; k < n; ++k)
        if (const int64_t t = s.label(row + k); t >= 0)
          f(row + k, offset[0] + k * step + t * across, t);
    });
  });
}

// The losses and their derivative touch one element a row.
void nll_reference(const KernelCall& c) {
  const Array& x = c.in[0];
  Samples s(c, c.in[1], weight_array(c, 2), x.shape[1]);
  Dense<double> loss(s.rows);
  loss.fill(0);
  visit_dtype(x.dtype, [&](auto tag) {
    using T = decltype(tag);
    each_labelled(s, x, [&](int64_t r, int64_t at, int64_t t) {
      loss[r] = -s.weight_of(t) * to_double(x.as<T>()[at]);
    });
  });
  finish(c, loss, s);
}

void nll_backward_reference(const KernelCall& c) {
  const Array& gx = c.out[0];
  Samples s(c, c.in[1], weight_array(c, 3), gx.shape[1]);
  if (s.rows == 0) return;
  Incoming g(c, 2);
  detail::zero_array(gx);
  visit_dtype(gx.dtype, [&](auto tag) {
    using T = decltype(tag);
    each_labelled(s, gx, [&](int64_t r, int64_t at, int64_t t) {
      gx.as<T>()[at] = detail::scalar_as<T>(-s.weight_of(t) * g[r]);
    });
  });
}

// ---- the same with public ops, for higher orders and vmap

// [c], to broadcast against [n, c, ...].
Tensor per_class(const Tensor& v, int rank) {
  Shape s{Dim(1), v.shape(0)};
  for (int i = 2; i < rank; ++i) s.push_back(1);
  return v.reshape(s);
}

// T of the head comment, [n, c, ...] of dtype t.
Tensor target_matrix(const Tensor& target, Dim classes, const Tensor& weight,
                     const ClassLossAttrs& a, DType t) {
  int rank = target.dim() + 1;
  Tensor hit = target.unsqueeze(1) == per_class(arange_dim(classes).to(target.dtype()), rank);
  Tensor valid = (target != a.ignore_index).unsqueeze(1);
  Tensor m = hit.to(t) * (1.0 - a.label_smoothing);
  if (a.label_smoothing > 0) m = std::move(m) + a.label_smoothing / double(classes.value());
  if (weight.defined()) m = std::move(m) * per_class(weight.to(t), rank);
  return where(valid, m, 0.0);
}

// A 0-d or [n, ...] coefficient, to broadcast against [n, c, ...].
Tensor beside(const Tensor& g, const ClassLossAttrs& a) {
  return a.reduction == kNone ? g.unsqueeze(1) : g;
}

Tensor softmax_of(const Tensor& x, const Tensor& lse) {
  return (x.to(lse.dtype()) - lse.unsqueeze(1)).exp();
}

// Gradient with respect to gy from that of every element, [n, c, ...].
Tensor to_incoming(const Tensor& v, const ClassLossAttrs& a, const Tensor& total, DType t) {
  Tensor r = a.reduction == kNone ? v.sum({1}) : v.sum();
  if (a.reduction == kMean) r = std::move(r) / total;
  return r.to(t);
}

// Class weights are constants, as in PyTorch.
void check_constant_weight(const VjpCall& c, int i) {
  TD_CHECK(!c.needs(i), Unsupported,
           "the class weight has no derivative\nCall detach() on it, or write the loss with "
           "log_softmax and gather.");
}

void cross_entropy_vjp(VjpCall& c) {
  check_constant_weight(c, 2);
  const auto& a = c.get_attrs<ClassLossAttrs>();
  SourceLocation loc = c.loc();
  Tensor lse = c.out(1);
  if (c.grad().defined())
    c.results[0] = call(op::softmax_cross_entropy_backward, &a, loc, c.grad(), c.in(0), c.in(1),
                        lse, c.out(2), c.has(2) ? c.in(2) : Tensor());
  if (!c.grads[1].defined()) return;
  Tensor more = (softmax_of(c.in(0), lse) * c.grads[1].unsqueeze(1)).to(c.in_dtype(0));
  c.results[0] = c.results[0].defined() ? c.results[0] + more : std::move(more);
}

void cross_entropy_backward_vjp(VjpCall& c) {
  check_constant_weight(c, 5);
  const auto& a = c.get_attrs<ClassLossAttrs>();
  const Tensor &gy = c.in(0), &x = c.in(1), &lse = c.in(3);
  DType t = lse.dtype();
  Tensor total = c.has(4) ? c.in(4) : Tensor();
  Tensor want = target_matrix(c.in(2), x.shape(1), c.has(5) ? c.in(5) : Tensor(), a, t);
  Tensor p = softmax_of(x, lse), u = c.grad().to(t);
  Tensor sp = want.sum({1}, true) * p;
  if (c.needs(0)) c.results[0] = to_incoming(u * (sp - want), a, total, gy.dtype());
  if (!c.needs(1) && !c.needs(3)) return;
  Tensor k = beside(gy.to(t), a);
  if (a.reduction == kMean) k = std::move(k) / total;
  Tensor d = k * u * sp;
  if (c.needs(1)) c.results[1] = d.to(x.dtype());
  if (c.needs(3)) c.results[3] = -d.sum({1});
}

void nll_vjp(VjpCall& c) {
  check_constant_weight(c, 2);
  if (!c.grad().defined()) return;
  ClassLossAttrs a = c.get_attrs<ClassLossAttrs>();
  a.classes = c.in_shape(0)[1];
  c.results[0] = call(op::nll_loss_backward, &a, c.loc(), c.grad(), c.in(1), c.out(1),
                      c.has(2) ? c.in(2) : Tensor());
}

void nll_backward_vjp(VjpCall& c) {
  check_constant_weight(c, 3);
  ClassLossAttrs a = c.get_attrs<ClassLossAttrs>();
  DType t = accumulation_dtype(c.in_dtype(0));
  Tensor want = target_matrix(c.in(1), a.classes, c.has(3) ? c.in(3) : Tensor(), a, t);
  c.results[0] =
      to_incoming(-(c.grad().to(t) * want), a, c.has(2) ? c.in(2) : Tensor(), c.in_dtype(0));
}

// ---- vmap: samples of all examples in one call without reduction, then reduced per example

// Examples with separate weights do not fit into one call.
bool own_weights(BatchCall& c, int i) { return c.by_slices = c.has(i) && c.batched[i]; }

Tensor sum_inner(const Tensor& t) {
  IntList dims;
  for (int i = 1; i < t.dim(); ++i) dims.push_back(i);
  return dims.empty() ? t : t.sum(dims);
}

// Sum of the weights of valid samples, per example: [B].
Tensor totals(const Tensor& target, const Tensor& weight, const ClassLossAttrs& a, DType t) {
  Tensor valid = target != a.ignore_index;
  if (!weight.defined()) return sum_inner(valid.to(t));
  Tensor safe = where(valid, target, 0).to(DType::i64);
  Tensor w = index_select(weight.to(t), 0, safe.reshape({safe.shape().numel()}));
  return sum_inner(where(valid, w.reshape(safe.shape()), 0.0));
}

void class_loss_batch(BatchCall& c) {
  ClassLossAttrs a = c.get_attrs<ClassLossAttrs>();
  if (own_weights(c, 2)) return;
  SourceLocation loc = c.node.loc;
  int64_t reduction = std::exchange(a.reduction, int64_t(kNone));
  Tensor x = detail::with_batch(c, 0), target = detail::with_batch(c, 1);
  Tensor w = c.has(2) ? c.in[2] : Tensor();
  Dim n = x.shape(1);
  Tensor out[kMaxOpOuts];
  Operand ins[] = {Operand(detail::merge_dims(x, 0, loc), loc),
                   Operand(detail::merge_dims(target, 0, loc), loc), Operand(w, loc)};
  detail::call_again(c, &a, ins, out);
  auto per_example = [&](const Tensor& t) { return detail::split_dim(t, 0, c.batch_size, n, loc); };
  bool hidden = c.node.out.size() > 1;
  Tensor y = per_example(out[0]), total;
  if (hidden || reduction == kMean) total = totals(target, w, a, accumulation_dtype(x.dtype()));
  if (reduction != kNone) y = sum_inner(y);
  if (reduction == kMean) y = y / total;
  c.out[0] = y.to(x.dtype());
  if (!hidden) return;
  int last = c.node.op->n_out - 1;
  if (last == 2) c.out[1] = per_example(out[1]);
  c.out[last] = std::move(total);
}

// gy as one coefficient per sample, [B * n, ...].
Tensor per_sample(const BatchCall& c, const Tensor& target, int64_t reduction, int total) {
  SourceLocation loc = c.node.loc;
  Tensor g = detail::with_batch(c, 0);
  if (reduction == kMean) g = (g / detail::with_batch(c, total)).to(g.dtype());
  if (reduction != kNone) {
    Shape ones{c.batch_size};
    for (int i = 1; i < target.dim(); ++i) ones.push_back(1);
    g = g.reshape(ones, loc).expand(target.shape(), loc);
  }
  return detail::merge_dims(g, 0, loc);
}

void cross_entropy_backward_batch(BatchCall& c) {
  ClassLossAttrs a = c.get_attrs<ClassLossAttrs>();
  if (own_weights(c, 5)) return;
  SourceLocation loc = c.node.loc;
  Tensor x = detail::with_batch(c, 1), target = detail::with_batch(c, 2);
  Tensor g = per_sample(c, target, std::exchange(a.reduction, int64_t(kNone)), 4);
  Dim n = x.shape(1);
  Tensor gx =
      call(*c.node.op, &a, loc, std::move(g), detail::merge_dims(x, 0, loc),
           detail::merge_dims(target, 0, loc), detail::merge_dims(detail::with_batch(c, 3), 0, loc),
           Tensor(), c.has(5) ? c.in[5] : Tensor());
  c.out[0] = detail::split_dim(gx, 0, c.batch_size, n, loc);
}

void nll_backward_batch(BatchCall& c) {
  ClassLossAttrs a = c.get_attrs<ClassLossAttrs>();
  if (own_weights(c, 3)) return;
  SourceLocation loc = c.node.loc;
  Tensor target = detail::with_batch(c, 1);
  Tensor g = per_sample(c, target, std::exchange(a.reduction, int64_t(kNone)), 2);
  Tensor gx = call(*c.node.op, &a, loc, std::move(g), detail::merge_dims(target, 0, loc), Tensor(),
                   c.has(3) ? c.in[3] : Tensor());
  c.out[0] = detail::split_dim(gx, 0, c.batch_size, target.shape(1), loc);
}

constexpr const char* kLabelText =
    "label {} is out of range: labels are class indices from 0< to {x.1-1}, since x is {x}>\n"
    "Give the last layer as many outputs as there are classes, or count the labels from 0.";

double flops(const InferCall& c) {
  return 4.0 * static_cast<double>(c.in[0].shape.numel().value());
}

}  // namespace

namespace op {
constinit const OpDef softmax_cross_entropy =
    index_row("softmax_cross_entropy", {"x", "target", "weight?"}, fields<ClassLossAttrs>())
        .outputs({"y", "lse!", "total!"})
        .infer(cross_entropy_infer)
        .vjp(cross_entropy_vjp, 7, 6)
        .batch(class_loss_batch)
        .reference(cross_entropy_reference)
        .autocast(Autocast::f32_inside)
        .flops(flops)
        .errors({kLabelText})
        .doc("Cross-entropy of logits [n, c, ...] with integer labels [n, ...].");
constinit const OpDef softmax_cross_entropy_backward =
    index_row("softmax_cross_entropy_backward", {"gy", "x", "target", "lse", "total?", "weight?"},
              fields<ClassLossAttrs>())
        .outputs({"gx"})
        .infer(cross_entropy_backward_infer)
        .vjp(cross_entropy_backward_vjp, 63)
        .batch(cross_entropy_backward_batch)
        .reference(cross_entropy_backward_reference)
        .errors({kLabelText})
        .doc("Gradient of softmax_cross_entropy with respect to the logits.");
constinit const OpDef nll_loss =
    index_row("nll_loss", {"x", "target", "weight?"}, fields<ClassLossAttrs>())
        .outputs({"y", "total!"})
        .infer(nll_infer)
        .vjp(nll_vjp, 6, 2)
        .batch(class_loss_batch)
        .reference(nll_reference)
        .autocast(Autocast::f32_inside)
        .errors({kLabelText})
        .doc("Negative log-probability [n, c, ...] of integer labels [n, ...].");
constinit const OpDef nll_loss_backward =
    index_row("nll_loss_backward", {"gy", "target", "total?", "weight?"}, fields<ClassLossAttrs>())
        .outputs({"gx"})
        .infer(nll_backward_infer)
        .vjp(nll_backward_vjp, 14)
        .batch(nll_backward_batch)
        .reference(nll_backward_reference)
        .errors({kLabelText})
        .doc("Gradient of nll_loss with respect to the log-probabilities.");
}  // namespace op

}  // namespace tandem
