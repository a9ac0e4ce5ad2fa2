// SPDX-License-Identifier: Apache-2.0
// Losses with integer labels (ops/nn/class_loss.cpp has their formulas): some threads a sample,
// which read its classes once, then blocks that add samples up. The losses and factors of samples
// lie in scratch memory between the two.
#include <fmt/format.h>

#include <algorithm>
#include <memory>

#include "tandem/backend/gpu/rows/call_internal.h"
#include "tandem/backend/gpu/rows/register_internal.h"
#include "tandem/ops/nn/loss.h"

namespace tandem::gpu {
namespace {

constexpr int64_t kMeanOfSamples = 0, kEachSample = 2;  // ClassLossAttrs::reduction
constexpr int kLossThreads = 256;
constexpr int kClassesOfLoad = 4;         // of a thread at once, at least
constexpr int64_t kSamplesAcross = 4096;  // as many as give enough threads, one each
constexpr int64_t kSamplesOfPiece = 4096, kMostPieces = 256;

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

// Losses of the samples, their factors, and sums of both over pieces.
std::shared_ptr<const Plan> prepare_loss(const KernelCall& c) {
  auto plan = std::make_shared<Plan>();
  const Samples samples(c.in[0]);
  const size_t size = size_of(sum_type(c.in[0].dtype));
  plan->workspace = 2 * padded(static_cast<size_t>(samples.array.numel) * size) +
                    2 * padded(static_cast<size_t>(kMostPieces) * size);
  return plan;
}

// A tree over the first `n` of a power of two of threads that share it: `name`[t] of all into that
// of number 0, by the function `fold`. `lane` is the thread's number among them.
std::string tree(const std::string& name, const std::string& fold, int n = kLossThreads,
                 const char* lane = "t") {
  return n == 1 ? ""
                : fmt::format(
                      "  for (td_i32 gap = {2}; gap > 0; gap /= 2) {{\n"
                      "    td_barrier();\n"
                      "    if ({3} < gap) {0}[t] = {1}({0}[t], {0}[t + gap]);\n"
                      "  }}\n  td_barrier();\n",
                      name, fold, n / 2, lane);
}

// Types of sums and what follows from them.
struct SumText {
  DType sum;
  bool fast;  ///< exponentials of the device, close to the real value

  std::string s() const { return td_type(sum); }
  std::string suffix() const { return sum == DType::f64 ? "d" : "f"; }
  std::string math() const { return sum == DType::f64 ? "" : "f"; }
  std::string exp(const std::string& x) const {
    return fast ? fmt::format("td_exp2(({}) * 1.44269504f)", x)
                : fmt::format("tdm_exp{}({})", math(), x);
  }
};
bool has_fast_exp(const Engine& e, DType sum) { return e.info().warp_matmul && sum == DType::f32; }

// How the classes of a sample are dealt to threads, by shape and strides alone but for `aligned`.
struct LossCut {
  int lanes = 1;  ///< threads of a sample
  int group = 1;  ///< neighbouring classes that a thread loads at once
  bool aligned = true;

  LossCut(const Array& x, const Samples& samples, bool from_logits) {
    if (!from_logits) return;  // one element of a sample
    const int64_t classes = x.shape[1], n = samples.array.numel;
    for (int e = static_cast<int>(16 / size_of(x.dtype)); e > 1 && group == 1; e /= 2) {
      bool fits = n > 0 && x.strides[1] == 1 && classes % e == 0;
      for (int d = 0; d < samples.array.rank; ++d) fits &= samples.strides[d] % e == 0;
      if (fits) group = e;
    }
    aligned = lies_on_groups(x, group);
    const bool across = n >= kSamplesAcross && x.strides[1] != 1;
    if (across) return;
    while (lanes < kLossThreads && lanes * 2 * kClassesOfLoad < classes) lanes *= 2;
  }
  int samples() const { return kLossThreads / lanes; }
  int loaded() const { return group > 1 ? group : kClassesOfLoad; }
};

struct LossText : SumText {
  const KernelCall& c;
  const Walk& walk;  // over samples: x, target, lse
  const LossCut& cut;
  bool from_logits, weighted;

  std::string x_at(const std::string& j) const {
    return loaded(fmt::format("x[{} + ({}) * xs]", walk.place(0), j), c.in[0].dtype);
  }
  std::string weight_at(const std::string& j) const {
    return weighted ? loaded(fmt::format("weight[{}]", j), c.in[2].dtype) : "1";
  }
  std::string folded(const char* fold) const {
    return tree("partial", fmt::format("tdo_{}_{}", fold, suffix()), cut.lanes, "lane");
  }

  // A block a number of samples, cut.lanes threads each.
  KernelSource samples() const {
    const DType x = c.in[0].dtype;
    KernelSource k{.name = from_logits ? "cross_entropy" : "nll_loss",
                   .parameters = {{Parameter::in, word_of(x), "x"},
                                  {Parameter::in, c.in[1].dtype, "target"},
                                  {Parameter::out, sum, "loss"},
                                  {Parameter::out, sum, "factor"},
                                  {Parameter::out, word_of(c.out[0].dtype), "y"}},
                   .threads = kLossThreads,
                   .prelude = true,
                   .warps = fast};
    if (from_logits) k.parameters.push_back({Parameter::out, sum, "lse"});
    if (weighted) k.parameters.push_back({Parameter::in, word_of(c.in[2].dtype), "weight"});
    for (const char* name : {"classes", "xs", "ignored", "each", "keeps_lse"}) {
      k.parameters.push_back({Parameter::value, DType::i64, name});
    }
    k.parameters.push_back({Parameter::value, sum, "keep"});
    k.parameters.push_back({Parameter::value, sum, "smooth"});
    walk.declare(k);
    declare_reports(k);
    if (cut.lanes > 1) k.shared.push_back({sum, "partial", kLossThreads});
    k.body = places();
    k.body += from_logits ? logits() : fmt::format("  const {} all = 0;\n", s());
    k.body +=
        fmt::format("  {0} l = counts ? keep * mine * (all - {1}) : 0;\n", s(), x_at("label"));
    // A factor of 0 takes an infinite loss away.
    k.body += "  if (keep * mine == 0) l = 0;\n";
    if (from_logits) k.body += smoothing();
    k.body += "  if (live && lane == 0) {\n    loss[i] = l;\n    factor[i] = mine;\n";
    k.body += fmt::format("    if (each) y[i] = {};\n", stored("l", c.out[0].dtype));
    if (from_logits) k.body += fmt::format("    if (keeps_lse) lse[{}] = all;\n", walk.place(2));
    k.body += "  }\n";
    return k;
  }

  // The thread's sample and its label.
  std::string places() const {
    return fmt::format(
               "  const td_i32 t = td_thread(x), lane = t % {0};\n"
               "  const td_i64 sample = (td_i64)td_block(x) * {1} + t / {0};\n"
               "  const td_i32 live = sample < n;\n",
               cut.lanes, cut.samples()) +
           walk.lines("", fmt::format("({})(live ? sample : 0)", walk.index())) +
           fmt::format(
               "  const td_i64 named = target[{0}];\n"
               "  const td_i32 valid = named >= 0 && named < classes;\n"
               "  const td_i32 counts = valid && named != ignored;\n"
               "  if (live && lane == 0 && !valid && named != ignored) td_report(1, named);\n"
               "  const td_i64 label = counts ? named : 0;\n"
               "  const {1} mine = counts ? {2} : 0;\n",
               walk.place(1), s(), weight_at("label"));
  }

  // Some classes of the sample into v: neighbours, or those of every lanes-th thread.
  std::string load_classes() const {
    const int e = cut.loaded();
    const DType x = c.in[0].dtype;
    const std::string each = fmt::format("    td_unroll\n    for (td_i32 e = 0; e < {}; ++e) ", e);
    std::string text = fmt::format("    {} v[{}];\n", s(), e);
    if (cut.group > 1) {
      text += fmt::format("    td_line({}, line, {});\n", td_type(word_of(x)), e);
      text += cut.aligned
                  ? fmt::format("    td_load({0}, line, x, ({1} + j) / {0});\n", e, walk.place(0))
                  : each + fmt::format("line[e] = x[{} + j + e];\n", walk.place(0));
      return text + each + fmt::format("v[e] = {};\n", loaded("line[e]", x));
    }
    const std::string at = fmt::format("j + e * {}", cut.lanes);
    return text + each + fmt::format("v[e] = {} < classes ? {} : {};\n", at, x_at(at), least());
  }
  std::string least() const { return fmt::format("-tdmi_inf{}()", math()); }

  // all = log(sum(exp(x))). The classes are read once: the sum so far is always that of
  // exp(x - base) where base is the largest so far, or 0 while there is none.
  std::string logits() const {
    const int e = cut.loaded();
    const std::string each = fmt::format("    td_unroll\n    for (td_i32 e = 0; e < {}; ++e) ", e);
    const std::string first = cut.group > 1 ? fmt::format("lane * {}", e) : "lane";
    std::string text =
        fmt::format("  {0} top = {1}, total = 0;\n", s(), least()) +
        fmt::format("  for (td_i64 j = live ? {} : classes; j < classes; j += {}) {{\n", first,
                    e * cut.lanes) +
        load_classes() + fmt::format("    {0} next = top, part = 0;\n", s()) + each +
        fmt::format("next = tdo_max_{}(next, v[e]);\n", suffix()) +
        fmt::format("    const {} base = next == {} ? 0 : next;\n", s(), least()) + each +
        fmt::format("part += {};\n", exp("v[e] - base")) +
        fmt::format("    total = total * {} + part;\n    top = next;\n  }}\n", exp("top - base"));
    if (cut.lanes > 1) {
      text += fmt::format("  const {} own = top;\n  partial[t] = top;\n", s()) + folded("max") +
              "  top = partial[t - lane];\n  td_barrier();\n" +
              fmt::format("  partial[t] = total * {};\n",
                          exp(fmt::format("own - (top == {} ? 0 : top)", least()))) +
              folded("add") + "  total = partial[t - lane];\n  td_barrier();\n";
    }
    return text +
           fmt::format("  const {0} all = tdo_isinf_{1}(top) ? top : top + tdm_log{2}(total);\n",
                       s(), suffix(), math());
  }

  // Every class has a part of the target.
  std::string smoothing() const {
    std::string text =
        fmt::format("  if (smooth > 0) {{\n    {0} rest = 0;\n", s()) +
        fmt::format("    for (td_i64 j = live ? lane : classes; j < classes; j += {}) ",
                    cut.lanes) +
        fmt::format("rest += smooth * {} * (all - {});\n", weight_at("j"), x_at("j"));
    if (cut.lanes > 1) {
      text += "    partial[t] = rest;\n" + folded("add") + "    rest = partial[t - lane];\n";
    }
    return text + "    l = counts ? l + rest : 0;\n  }\n";
  }

  // Sums of losses and factors: of a piece by each block, or of all by one.
  KernelSource totals(bool pieces) const {
    const DType y = c.out[0].dtype;
    KernelSource k{.name = pieces ? "loss_of_pieces" : "loss_of_samples",
                   .parameters = {{Parameter::in, sum, "loss"},
                                  {Parameter::in, sum, "factor"},
                                  {Parameter::out, pieces ? sum : word_of(y), "y"},
                                  {Parameter::out, sum, "total"},
                                  {Parameter::value, DType::i64, "count"},
                                  {Parameter::value, DType::i64, "reduction"},
                                  {Parameter::value, DType::i64, "keeps_total"}},
                   .shared = {{sum, "a", kLossThreads}, {sum, "b", kLossThreads}},
                   .threads = kLossThreads,
                   .prelude = true};
    const std::string add = "tdo_add_" + suffix();
    k.body = fmt::format(
        "  const td_i32 t = td_thread(x);\n  {} l = 0, w = 0;\n"
        "  const td_i64 last = count * (td_block(x) + 1) / td_blocks(x);\n"
        "  for (td_i64 i = count * td_block(x) / td_blocks(x) + t; i < last; i += {}) {{\n"
        "    l += loss[i];\n    w += factor[i];\n  }}\n  a[t] = l;\n  b[t] = w;\n",
        s(), kLossThreads);
    k.body += tree("a", add) + tree("b", add) + "  if (t != 0) return;\n";
    if (pieces) {
      k.body += "  y[td_block(x)] = a[0];\n  total[td_block(x)] = b[0];\n";
      return k;
    }
    k.body +=
        fmt::format("  const {} v = reduction == {} ? a[0] / b[0] : a[0];\n", s(), kMeanOfSamples) +
        fmt::format("  if (reduction != {}) y[0] = {};\n", kEachSample, stored("v", y)) +
        "  if (keeps_total) total[0] = b[0];\n";
    return k;
  }
};

void argue_sum(Arguments& a, DType t, double v) {
  t == DType::f64 ? a.value(v) : a.value(static_cast<float>(v));
}

// Losses and factors of n samples, one after the other in a call's scratch memory.
struct Sums {
  Address loss, factor;
  size_t bytes;

  Sums(Address at, int64_t n, DType sum)
      : loss(at), factor(at), bytes(static_cast<size_t>(n) * size_of(sum)) {
    factor += padded(bytes);
  }
  Address end() const { return factor + padded(bytes); }
  void argue(Arguments& a) const { a.address(loss, bytes).address(factor, bytes); }
};

// Of all samples, by one block, after blocks that take pieces where they are many.
template <class Kernels>
void run_totals(const KernelCall& c, int64_t n, DType sum, const Kernels& kernel) {
  Engine& e = engine_of(c.device);
  const int64_t reduction = c.get_attrs<ClassLossAttrs>().reduction;
  Sums sums(address_of(c.scratch), n, sum);
  const int64_t pieces = std::min(n / kSamplesOfPiece, kMostPieces);
  if (pieces > 1) {
    const Sums of_pieces(sums.end(), pieces, sum);
    Arguments a;
    sums.argue(a);
    of_pieces.argue(a);
    a.value(n).value(reduction).value(int64_t{1});
    e.launch(kernel(true), {static_cast<uint32_t>(pieces)}, {kLossThreads}, a, e.stream(c.stream));
    sums = of_pieces;
  }
  const Array& total = c.out[c.n_out - 1];
  Arguments a;
  sums.argue(a);
  argue_array(a, c.out[0]);
  total.data ? argue_array(a, total) : argue_nothing(a);
  a.value(pieces > 1 ? pieces : n).value(reduction).value(int64_t{total.data != nullptr});
  e.launch(kernel(false), {1}, {kLossThreads}, a, e.stream(c.stream));
}

template <bool kFromLogits>
void run_loss(const KernelCall& c) {
  Engine& e = engine_of(c.device);
  const auto& attrs = c.get_attrs<ClassLossAttrs>();
  const Array &x = c.in[0], &target = c.in[1];
  const DType sum = sum_type(x.dtype);
  const Samples samples(x);
  const LossCut cut(x, samples, kFromLogits);
  const Array* lse = kFromLogits && c.out[1].data ? &c.out[1] : nullptr;
  const Array* arrays[] = {&samples.array, &target, lse ? lse : &target};
  const Walk walk(samples.shape, samples.array.rank, arrays, 3, -1);
  const LossText text{{sum, has_fast_exp(e, sum)}, c, walk, cut, kFromLogits, present(c, 2)};
  const uint64_t types = static_cast<uint64_t>(c.out[0].dtype) << 12 |
                         static_cast<uint64_t>(x.dtype) << 8 |
                         static_cast<uint64_t>(target.dtype) << 4 |
                         (text.weighted ? static_cast<uint64_t>(c.in[2].dtype) + 1 : 0);
  const uint64_t cuts = static_cast<uint64_t>(cut.lanes) << 8 |
                        static_cast<uint64_t>(cut.group) << 1 | uint64_t{cut.aligned};
  const auto kernel = [&](uint64_t which, auto&& source) {
    return plain_kernel(
        e, {&c.op, walk.ways() | cuts << 32, (types << 2 | which) << 8 | walk.shape_key()}, source);
  };
  const int64_t n = walk.count(), classes = x.shape[1];
  if (n > 0) {
    Arguments a;
    argue_array(a, x);
    argue_array(a, target);
    Sums(address_of(c.scratch), n, sum).argue(a);
    argue_array(a, c.out[0]);
    if (kFromLogits) lse ? argue_array(a, *lse) : argue_nothing(a);
    if (text.weighted) argue_array(a, c.in[2]);
    a.value(classes).value(x.strides[1]).value(attrs.ignore_index);
    a.value(int64_t{attrs.reduction == kEachSample}).value(int64_t{lse != nullptr});
    argue_sum(a, sum, 1 - attrs.label_smoothing);
    argue_sum(a, sum, attrs.label_smoothing / static_cast<double>(classes));
    walk.argue(a);
    argue_reports(a, e, c);
    e.launch(kernel(0, [&] { return text.samples(); }),
             {static_cast<uint32_t>((n + cut.samples() - 1) / cut.samples())}, {kLossThreads}, a,
             e.stream(c.stream));
  }
  run_totals(c, n, sum, [&](bool pieces) {
    return kernel(pieces ? 1 : 2, [&] { return text.totals(pieces); });
  });
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

// The text of a derivative; walk: gx, x, g, target, lse. In groups these are of classes.
struct BackwardText : SumText {
  const Walk& walk;
  DType gx, g, target, x, weight;
  bool from_logits, mean, weighted;

  KernelSource source() const;

 private:
  std::string sample() const;
  std::string element() const;
  std::string each() const {
    return fmt::format("  td_unroll\n  for (td_i32 e = 0; e < {}; ++e) {{\n", walk.grouped());
  }
};

// What is the same for the thread's elements; first is the class of the first one.
std::string BackwardText::sample() const {
  return fmt::format("  const td_i64 first = i * {} / inner % classes, label = target[{}];\n",
                     walk.grouped(), walk.place(3)) +
         fmt::format(
             "  const td_i32 valid = label >= 0 && label < classes;\n"
             "  const td_i32 counts = valid && label != ignored;\n"
             "  if (first == 0 && !valid && label != ignored) td_report(1, label);\n"
             "  const {0} factor = counts ? {1}{2} : 0;\n",
             s(), loaded(fmt::format("g[{}]", walk.place(2)), g), mean ? " / total[0]" : "");
}

// v of class j, from the element as stored, `there`.
std::string BackwardText::element() const {
  const std::string w = weighted ? loaded("weight[j]", weight) : std::string("1");
  const std::string w_label = weighted ? loaded("weight[label]", weight) : std::string("1");
  if (!from_logits) {
    return fmt::format("    {0} v = counts && j == label ? -({1}) * factor : 0;\n", s(), w);
  }
  return fmt::format("    {} v = 0;\n    if (counts) {{\n", s()) +
         fmt::format("      const {} p = {};\n", s(),
                     exp(fmt::format("{} - lse[{}]", loaded("there", x), walk.place(4)))) +
         fmt::format("      const {0} want = smooth * {1} + (j == label ? keep * {1} : 0);\n", s(),
                     w) +
         fmt::format("      v = factor * ((keep * {} + smooth * classes) * p - want);\n    }}\n",
                     w_label);
}

KernelSource BackwardText::source() const {
  KernelSource k{.name = from_logits ? "cross_entropy_backward" : "nll_loss_backward",
                 .parameters = {{Parameter::out, word_of(gx), "gx"},
                                {Parameter::in, word_of(g), "g"},
                                {Parameter::in, target, "target"}},
                 .prelude = true,
                 .warps = from_logits && fast};
  if (from_logits) {
    k.parameters.push_back({Parameter::in, word_of(x), "x"});
    k.parameters.push_back({Parameter::in, sum, "lse"});
  }
  if (mean) k.parameters.push_back({Parameter::in, sum, "total"});
  if (weighted) {
    k.parameters.push_back({Parameter::in, word_of(weight), "weight"});
  }
  for (const char* name : {"classes", "inner", "ignored"}) {
    k.parameters.push_back({Parameter::value, DType::i64, name});
  }
  k.parameters.push_back({Parameter::value, sum, "keep"});
  k.parameters.push_back({Parameter::value, sum, "smooth"});
  walk.declare(k);
  declare_reports(k);
  k.body = walk.lines() + sample();
  const int group = walk.grouped();
  const std::string word = td_type(word_of(x));
  if (group == 1) {
    k.body += "  const td_i64 j = first;\n";
    if (from_logits) k.body += fmt::format("  const {} there = x[{}];\n", word, walk.place(1));
    k.body += element() + fmt::format("  gx[{}] = {};\n", walk.place(0), stored("v", gx));
    return k;
  }
  if (from_logits) {
    k.body += fmt::format("  td_line({0}, line, {1});\n  td_load({1}, line, x, {2});\n", word,
                          group, walk.place(1));
  }
  k.body += fmt::format("  td_line({}, made, {});\n", td_type(word_of(gx)), group) + each() +
            "    const td_i64 j = first + e;\n" +
            (from_logits ? fmt::format("    const {} there = line[e];\n", word) : "") + element() +
            fmt::format("    made[e] = {};\n  }}\n", stored("v", gx)) +
            fmt::format("  td_store({}, gx, {}, made);\n", group, walk.place(0));
  return k;
}

// Neighbouring classes, where they lie side by side: 16 bytes of the narrower array.
void group_classes(Walk& walk, const Array& gx, const Array& x) {
  const size_t narrow = std::min(size_of(gx.dtype), size_of(x.dtype));
  for (int e = static_cast<int>(16 / narrow); e > 1; e /= 2) {
    const bool aligned = lies_on_groups(gx, e) && lies_on_groups(x, e);
    if (aligned && gx.shape[1] % e == 0 && walk.group(e)) return;
  }
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
  Walk walk(gx.shape, gx.rank, arrays, 5, -1);
  if (gx.strides[1] == 1) group_classes(walk, gx, x);
  const uint64_t types =
      (static_cast<uint64_t>(x.dtype) << 12 | static_cast<uint64_t>(gx.dtype) << 8 |
       static_cast<uint64_t>(g.dtype) << 4 | static_cast<uint64_t>(target.dtype))
          << 5 |
      uint64_t{mean} << 4 | (weighted ? static_cast<uint64_t>(c.in[at.weight].dtype) + 1 : 0);
  const BackwardText text{{sum, kFromLogits && has_fast_exp(e, sum)},
                          walk,
                          gx.dtype,
                          g.dtype,
                          target.dtype,
                          x.dtype,
                          weighted ? c.in[at.weight].dtype : sum,
                          kFromLogits,
                          mean,
                          weighted};
  const uint64_t variant = (types << 5 | static_cast<uint64_t>(walk.grouped())) << 8;
  const KernelRef k = plain_kernel(e, {&c.op, walk.ways(), variant | walk.shape_key()},
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
