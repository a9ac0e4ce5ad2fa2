// SPDX-License-Identifier: Apache-2.0
// Losses with integer labels (ops/nn/class_loss.cpp has their formulas): a block of threads a
// sample, then one block that adds samples up. The losses and factors of samples lie in scratch
// memory between the two.
#include <fmt/format.h>

#include <memory>

#include "tandem/backend/gpu/rows/call_internal.h"
#include "tandem/backend/gpu/rows/register_internal.h"
#include "tandem/ops/nn/loss.h"

namespace tandem::gpu {
namespace {

constexpr int64_t kMeanOfSamples = 0, kEachSample = 2;  // ClassLossAttrs::reduction

bool present(const KernelCall& c, int i) { return i < c.n_in && c.in[i].present(); }

// The type of sums over classes and samples.
DType sum_type(DType x) { return x == DType::f64 ? DType::f64 : DType::f32; }

// x without its dimension 1, its strides kept.
struct Samples {
  int64_t shape[kMaxRank] = {}, strides[kMaxRank] = {};
  Array array;

  explicit Samples(const Array& x) : array(x) {
    int n = 0;
    array.numel = 1;
    for (int d = 0; d < x.rank; ++d) {
      if (d == 1) continue;
      shape[n] = x.shape[d];
      strides[n++] = x.strides ? x.strides[d] : 0;
      array.numel *= x.shape[d];
    }
    array.shape = shape;
    array.strides = strides;
    array.rank = static_cast<uint8_t>(n);
  }
  Samples(const Samples&) = delete;
  Samples& operator=(const Samples&) = delete;
};

size_t padded(size_t bytes) { return (bytes + 255) / 256 * 256; }

// Losses of the samples, then their factors.
std::shared_ptr<const Plan> prepare_loss(const KernelCall& c) {
  auto plan = std::make_shared<Plan>();
  const Samples samples(c.in[0]);
  const size_t bytes = static_cast<size_t>(samples.array.numel) * size_of(sum_type(c.in[0].dtype));
  plan->workspace = 2 * padded(std::max<size_t>(bytes, 1));
  return plan;
}

// A tree over the block: `name`[t] of all threads into name[0], by the function `fold`.
std::string tree(const std::string& name, const std::string& fold) {
  return fmt::format(
      "  for (td_i32 gap = td_threads(x) / 2; gap > 0; gap /= 2) {{\n"
      "    td_barrier();\n"
      "    if (t < gap) {0}[t] = {1}({0}[t], {0}[t + gap]);\n"
      "  }}\n  td_barrier();\n",
      name, fold);
}

struct LossText {
  const KernelCall& c;
  const Walk& walk;  // over samples: x, target, lse
  bool from_logits, weighted;
  DType sum;

  std::string s() const { return td_type(sum); }
  std::string suffix() const { return sum == DType::f64 ? "d" : "f"; }
  std::string math() const { return sum == DType::f64 ? "" : "f"; }
  std::string x_at(const std::string& j) const {
    return loaded(fmt::format("x[{} + ({}) * xs]", walk.place(0), j), c.in[0].dtype);
  }
  std::string weight_at(const std::string& j) const {
    return weighted ? loaded(fmt::format("weight[{}]", j), c.in[2].dtype) : "1";
  }

  // A block a sample.
  KernelSource samples() const {
    const DType x = c.in[0].dtype;
    KernelSource k{.name = from_logits ? "cross_entropy" : "nll_loss",
                   .parameters = {{Parameter::in, word_of(x), "x"},
                                  {Parameter::in, c.in[1].dtype, "target"},
                                  {Parameter::out, sum, "loss"},
                                  {Parameter::out, sum, "factor"}},
                   .threads = kThreads,
                   .prelude = true};
    if (from_logits) k.parameters.push_back({Parameter::out, sum, "lse"});
    if (weighted) k.parameters.push_back({Parameter::in, word_of(c.in[2].dtype), "weight"});
    for (const char* name : {"classes", "xs", "ignored", "keeps_lse"}) {
      k.parameters.push_back({Parameter::value, DType::i64, name});
    }
    k.parameters.push_back({Parameter::value, sum, "keep"});
    k.parameters.push_back({Parameter::value, sum, "smooth"});
    walk.declare(k);
    declare_reports(k);
    k.shared.push_back({sum, "partial", kThreads});
    k.body = walk.lines("", fmt::format("({})td_block(x)", walk.index())) +
             fmt::format(
                 "  const td_i32 t = td_thread(x);\n"
                 "  const td_i64 named = target[{0}];\n"
                 "  const td_i32 valid = named >= 0 && named < classes;\n"
                 "  const td_i32 counts = valid && named != ignored;\n"
                 "  if (t == 0 && !valid && named != ignored) td_report(1, named);\n"
                 "  const td_i64 label = counts ? named : 0;\n"
                 "  const {1} mine = counts ? {2} : 0;\n",
                 walk.place(1), s(), weight_at("label"));
    k.body += from_logits ? logits() : fmt::format("  const {} all = 0;\n", s());
    k.body +=
        fmt::format("  {0} l = counts ? keep * mine * (all - {1}) : 0;\n", s(), x_at("label"));
    // A factor of 0 takes an infinite loss away.
    k.body += "  if (keep * mine == 0) l = 0;\n";
    if (from_logits) k.body += smoothing();
    k.body += "  if (t == 0) {\n    loss[i] = l;\n    factor[i] = mine;\n";
    if (from_logits) k.body += fmt::format("    if (keeps_lse) lse[{}] = all;\n", walk.place(2));
    k.body += "  }\n";
    return k;
  }

  // all = log(sum(exp(x))).
  std::string logits() const {
    return fmt::format("  {0} top = {1};\n", s(),
                       sum == DType::f64 ? "-tdmi_inf()" : "-tdmi_inff()") +
           fmt::format(
               "  for (td_i64 j = t; j < classes; j += td_threads(x)) "
               "top = tdo_max_{}(top, {});\n",
               suffix(), x_at("j")) +
           "  partial[t] = top;\n" + tree("partial", "tdo_max_" + suffix()) +
           fmt::format("  top = partial[0];\n  td_barrier();\n  {} total = 0;\n", s()) +
           fmt::format(
               "  for (td_i64 j = t; j < classes; j += td_threads(x)) "
               "total += tdm_exp{}({} - top);\n",
               math(), x_at("j")) +
           "  partial[t] = total;\n" + tree("partial", "tdo_add_" + suffix()) +
           fmt::format(
               "  const {0} all = tdo_isinf_{1}(top) ? top : top + tdm_log{2}(partial[0]);\n"
               "  td_barrier();\n",
               s(), suffix(), math());
  }

  // Every class has a part of the target.
  std::string smoothing() const {
    return fmt::format("  if (smooth > 0) {{\n    {0} rest = 0;\n", s()) +
           fmt::format(
               "    for (td_i64 j = t; j < classes; j += td_threads(x)) "
               "rest += smooth * {} * (all - {});\n",
               weight_at("j"), x_at("j")) +
           "    partial[t] = rest;\n" + tree("partial", "tdo_add_" + suffix()) +
           "    l = counts ? l + partial[0] : 0;\n  }\n";
  }

  // One block over all samples.
  KernelSource totals() const {
    const DType y = c.out[0].dtype;
    KernelSource k{.name = "loss_of_samples",
                   .parameters = {{Parameter::in, sum, "loss"},
                                  {Parameter::in, sum, "factor"},
                                  {Parameter::out, word_of(y), "y"},
                                  {Parameter::out, sum, "total"},
                                  {Parameter::value, DType::i64, "count"},
                                  {Parameter::value, DType::i64, "reduction"},
                                  {Parameter::value, DType::i64, "keeps_total"}},
                   .shared = {{sum, "a", kThreads}, {sum, "b", kThreads}},
                   .threads = kThreads,
                   .prelude = true};
    const std::string add = "tdo_add_" + suffix();
    k.body = fmt::format(
        "  const td_i32 t = td_thread(x);\n  {0} l = 0, w = 0;\n"
        "  for (td_i64 i = t; i < count; i += td_threads(x)) {{\n"
        "    l += loss[i];\n    w += factor[i];\n"
        "    if (reduction == {1}) {{\n      const {0} each = loss[i];\n      y[i] = {2};\n    }}\n"
        "  }}\n  a[t] = l;\n  b[t] = w;\n",
        s(), kEachSample, stored("each", y));
    k.body += tree("a", add) + tree("b", add);
    k.body += fmt::format(
        "  if (t == 0) {{\n    const {0} v = reduction == {1} ? a[0] / b[0] : a[0];\n"
        "    if (reduction != {2}) y[0] = {3};\n"
        "    if (keeps_total) total[0] = b[0];\n  }}\n",
        s(), kMeanOfSamples, kEachSample, stored("v", y));
    return k;
  }
};

void argue_sum(Arguments& a, DType t, double v) {
  t == DType::f64 ? a.value(v) : a.value(static_cast<float>(v));
}

template <bool kFromLogits>
void run_loss(const KernelCall& c) {
  Engine& e = engine_of(c.device);
  const auto& attrs = c.get_attrs<ClassLossAttrs>();
  const Array &x = c.in[0], &target = c.in[1];
  const DType sum = sum_type(x.dtype);
  const Samples samples(x);
  const Array* lse = kFromLogits && c.out[1].data ? &c.out[1] : nullptr;
  const Array* arrays[] = {&samples.array, &target, lse ? lse : &target};
  const Walk walk(samples.shape, samples.array.rank, arrays, 3, -1);
  const LossText text{c, walk, kFromLogits, present(c, 2), sum};
  const uint64_t types = static_cast<uint64_t>(c.out[0].dtype) << 12 |
                         static_cast<uint64_t>(x.dtype) << 8 |
                         static_cast<uint64_t>(target.dtype) << 4 |
                         (text.weighted ? static_cast<uint64_t>(c.in[2].dtype) + 1 : 0);
  const auto kernel = [&](uint64_t which, auto&& source) {
    return plain_kernel(e, {&c.op, walk.ways(), (types << 1 | which) << 8 | walk.shape_key()},
                        source);
  };
  const size_t bytes = static_cast<size_t>(walk.count()) * size_of(sum);
  const Address loss = address_of(c.scratch), factor = loss + padded(std::max<size_t>(bytes, 1));
  if (walk.count() > 0) {
    Arguments a;
    argue_array(a, x);
    argue_array(a, target);
    a.address(loss, bytes).address(factor, bytes);
    if (kFromLogits) lse ? argue_array(a, *lse) : argue_nothing(a);
    if (text.weighted) argue_array(a, c.in[2]);
    const int64_t classes = x.shape[1];
    a.value(classes).value(x.strides[1]).value(attrs.ignore_index).value(int64_t{lse != nullptr});
    argue_sum(a, sum, 1 - attrs.label_smoothing);
    argue_sum(a, sum, attrs.label_smoothing / static_cast<double>(classes));
    walk.argue(a);
    argue_reports(a, e, c);
    e.launch(kernel(0, [&] { return text.samples(); }), {static_cast<uint32_t>(walk.count())},
             {kThreads}, a, e.stream(c.stream));
  }
  const Array& total = c.out[c.n_out - 1];
  Arguments a;
  a.address(loss, bytes).address(factor, bytes);
  argue_array(a, c.out[0]);
  total.data ? argue_array(a, total) : argue_nothing(a);
  a.value(walk.count()).value(attrs.reduction).value(int64_t{total.data != nullptr});
  e.launch(kernel(1, [&] { return text.totals(); }), {1}, {kThreads}, a, e.stream(c.stream));
}

// ---- derivatives: a thread an element of x

// Array `a` over x's shape: without dimension 1 if it has one element a sample.
struct Spread {
  int64_t strides[kMaxRank] = {};
  Array array;
  Spread(const Array& a, const Array& x) : array(a) {
    for (int d = 0, k = 0; d < x.rank; ++d) {
      if (d == 1) continue;
      if (a.rank > 0) strides[d] = a.shape[k] == 1 ? 0 : a.strides[k];
      ++k;
    }
    array.shape = x.shape;
    array.strides = strides;
    array.rank = x.rank;
    array.numel = x.numel;
  }
  Spread(const Spread&) = delete;
  Spread& operator=(const Spread&) = delete;
};

// Inputs by number; -1: there is none.
struct BackwardInputs {
  int x, target, lse, total, weight;
};
constexpr BackwardInputs kOfCrossEntropy{1, 2, 3, 4, 5}, kOfNll{-1, 1, -1, 2, 3};

// The text of a derivative; walk: gx, x, g, target, lse.
struct BackwardText {
  const Walk& walk;
  DType gx, g, target, x, weight, sum;
  bool from_logits, mean, weighted;

  KernelSource source() const;
};

KernelSource BackwardText::source() const {
  KernelSource s{.name = from_logits ? "cross_entropy_backward" : "nll_loss_backward",
                 .parameters = {{Parameter::out, word_of(gx), "gx"},
                                {Parameter::in, word_of(g), "g"},
                                {Parameter::in, target, "target"}},
                 .prelude = true};
  if (from_logits) {
    s.parameters.push_back({Parameter::in, word_of(x), "x"});
    s.parameters.push_back({Parameter::in, sum, "lse"});
  }
  if (mean) s.parameters.push_back({Parameter::in, sum, "total"});
  if (weighted) {
    s.parameters.push_back({Parameter::in, word_of(weight), "weight"});
  }
  for (const char* name : {"classes", "inner", "ignored"}) {
    s.parameters.push_back({Parameter::value, DType::i64, name});
  }
  s.parameters.push_back({Parameter::value, sum, "keep"});
  s.parameters.push_back({Parameter::value, sum, "smooth"});
  walk.declare(s);
  declare_reports(s);
  const std::string t = td_type(sum);
  const std::string w = weighted ? loaded("weight[j]", weight) : std::string("1");
  const std::string w_label = weighted ? loaded("weight[label]", weight) : std::string("1");
  s.body = walk.lines() + fmt::format(
                              "  const td_i64 j = i / inner % classes, label = target[{0}];\n"
                              "  const td_i32 valid = label >= 0 && label < classes;\n"
                              "  const td_i32 counts = valid && label != ignored;\n"
                              "  if (j == 0 && !valid && label != ignored) td_report(1, label);\n"
                              "  {1} v = 0;\n  if (counts) {{\n    const {1} factor = {2}{3};\n",
                              walk.place(3), t, loaded(fmt::format("g[{}]", walk.place(2)), g),
                              mean ? " / total[0]" : "");
  if (from_logits) {
    s.body += fmt::format(
        "    const {0} p = tdm_exp{1}({2} - lse[{3}]);\n"
        "    const {0} want = smooth * {4} + (j == label ? keep * {4} : 0);\n"
        "    v = factor * ((keep * {5} + smooth * classes) * p - want);\n",
        t, sum == DType::f64 ? "" : "f", loaded(fmt::format("x[{}]", walk.place(1)), x),
        walk.place(4), w, w_label);
  } else {
    s.body += fmt::format("    if (j == label) v = -({}) * factor;\n", w);
  }
  s.body += fmt::format("  }}\n  gx[{}] = {};\n", walk.place(0), stored("v", gx));
  return s;
}

template <bool kFromLogits>
void run_loss_backward(const KernelCall& c) {
  constexpr BackwardInputs at = kFromLogits ? kOfCrossEntropy : kOfNll;
  const Array &g = c.in[0], &target = c.in[at.target], &gx = c.out[0];
  if (gx.numel == 0) return;
  Engine& e = engine_of(c.device);
  const auto& attrs = c.get_attrs<ClassLossAttrs>();
  const DType sum = sum_type(gx.dtype);
  const bool mean = attrs.reduction == kMeanOfSamples, weighted = present(c, at.weight);
  const Array& x = kFromLogits ? c.in[1] : gx;
  const Spread of_g(g, gx), of_target(target, gx), of_lse(kFromLogits ? c.in[3] : target, gx);
  const Array* arrays[] = {&gx, &x, &of_g.array, &of_target.array, &of_lse.array};
  const Walk walk(gx.shape, gx.rank, arrays, 5, -1);
  const uint64_t types =
      (static_cast<uint64_t>(x.dtype) << 12 | static_cast<uint64_t>(gx.dtype) << 8 |
       static_cast<uint64_t>(g.dtype) << 4 | static_cast<uint64_t>(target.dtype))
          << 5 |
      uint64_t{mean} << 4 | (weighted ? static_cast<uint64_t>(c.in[at.weight].dtype) + 1 : 0);
  const BackwardText text{
      walk, gx.dtype,    g.dtype, target.dtype, x.dtype, weighted ? c.in[at.weight].dtype : sum,
      sum,  kFromLogits, mean,    weighted};
  const KernelRef k = plain_kernel(e, {&c.op, walk.ways(), types << 8 | walk.shape_key()},
                                   [&] { return text.source(); });
  Arguments a;
  argue_array(a, gx);
  argue_array(a, g);
  argue_array(a, target);
  if (kFromLogits) {
    argue_array(a, x);
    argue_array(a, c.in[3]);
  }
  if (mean) argue_array(a, c.in[at.total]);
  if (weighted) argue_array(a, c.in[at.weight]);
  const int64_t classes = gx.shape[1];
  int64_t inner = 1;
  for (int d = 2; d < gx.rank; ++d) inner *= gx.shape[d];
  a.value(classes).value(inner).value(attrs.ignore_index);
  argue_sum(a, sum, 1 - attrs.label_smoothing);
  argue_sum(a, sum, attrs.label_smoothing / static_cast<double>(classes));
  walk.argue(a);
  argue_reports(a, e, c);
  launch_each(e, k, walk.count(), a, c.stream);
}

bool dense_weight(const KernelCall& c, int i) {
  return has_types(c) && (!present(c, i) || c.in[i].contiguous);
}
bool dense_outputs(const KernelCall& c) {
  return dense_weight(c, 2) && (c.in[1].dtype == DType::i64 || c.in[1].dtype == DType::i32);
}
// What the forward row saved, in the type that it saves.
bool is_saved(const KernelCall& c, int i) {
  return !present(c, i) || c.in[i].dtype == sum_type(c.out[0].dtype);
}
// With a weight for each class, smoothing wants the sum of all weights.
template <bool kFromLogits>
bool backward_supports(const KernelCall& c) {
  constexpr BackwardInputs at = kFromLogits ? kOfCrossEntropy : kOfNll;
  const bool smooth = c.get_attrs<ClassLossAttrs>().label_smoothing > 0;
  const DType label = c.in[at.target].dtype;
  const bool saved = is_saved(c, at.total) && (at.lse < 0 || is_saved(c, at.lse));
  return saved && dense_weight(c, at.weight) && !(smooth && present(c, at.weight)) &&
         (label == DType::i64 || label == DType::i32);
}

}  // namespace

// Each takes every float for its operands and results: Kernel::converts.
void register_losses(DeviceKind kind) {
  register_kernel(kind, op::softmax_cross_entropy,
                  {dense_outputs, nullptr, prepare_loss, run_loss<true>, true});
  register_kernel(kind, op::nll_loss,
                  {dense_outputs, nullptr, prepare_loss, run_loss<false>, true});
  register_kernel(kind, op::softmax_cross_entropy_backward,
                  {backward_supports<true>, nullptr, nullptr, run_loss_backward<true>, true});
  register_kernel(kind, op::nll_loss_backward,
                  {backward_supports<false>, nullptr, nullptr, run_loss_backward<false>, true});
}

}  // namespace tandem::gpu
