// SPDX-License-Identifier: Apache-2.0
// Convolution rows on oneDNN. Activations are channels-last, weights are reordered inside the plan
// into the primitive's format; other layouts of activations are reordered too.
#ifdef TANDEM_HAVE_ONEDNN
#include <algorithm>

#include "tandem/backend/cpu/conv/conv_internal.h"
#include "tandem/backend/cpu/onednn/plans_internal.h"
#include "tandem/backend/cpu/registry_internal.h"
#include "tandem/base/parallel.h"
#include "tandem/graph/context.h"
#include "tandem/graph/epilogue.h"
#include "tandem/ops/conv/conv.h"

namespace tandem::detail {
namespace {

using namespace onednn;
using dnnl::algorithm;

// The sizes of one convolution, for each of its three forms.
struct Geometry {
  Dims x, w, y;  ///< w with a leading group dimension if groups > 1
  Dims stride, dilation, pad_begin, pad_end;
  int64_t groups = 1;
  double operations = 2;
};

Dims dims_of(const Array& a) { return {a.shape, a.shape + a.rank}; }

Geometry geometry(const ConvAttrs& a, const Array& x, const Array& w, const Array& y) {
  Geometry g;
  g.x = dims_of(x);
  g.w = dims_of(w);
  g.y = dims_of(y);
  g.groups = a.groups;
  for (int64_t v : g.y) g.operations *= static_cast<double>(v);
  for (size_t i = 1; i < g.w.size(); ++i) g.operations *= static_cast<double>(g.w[i]);
  if (a.groups > 1) {
    g.w.insert(g.w.begin(), a.groups);
    g.w[1] /= a.groups;
  }
  for (int i = 0; i < a.stride.rank(); ++i) {
    g.stride.push_back(a.stride[i].value());
    g.dilation.push_back(a.dilation[i].value() - 1);
    g.pad_begin.push_back(a.padding[i].value());
    g.pad_end.push_back(a.padding_end[i].value());
  }
  return g;
}

Dims channels_last(const Dims& dims) {
  Strides s = channels_last_strides(dims.data(), static_cast<int>(dims.size()));
  return {s.data(), s.data() + dims.size()};
}

Desc activation(DType t, const Dims& dims) {
  return PlanBuilder::desc_of(t, dims, channels_last(dims));
}

// Strides that oneDNN accepts: those of size-1 dimensions are derived from the others.
Dims clean_strides(const Array& a) {
  Dims s(a.strides, a.strides + a.rank);
  for (int d = 0; d < a.rank; ++d) {
    if (a.shape[d] != 1) continue;
    int64_t step = 1;
    for (int k = 0; k < a.rank; ++k)
      if (a.shape[k] != 1) step = std::max(step, a.strides[k] * a.shape[k]);
    s[d] = step;
  }
  return s;
}

// An input activation: channels-last as is, or converted.
Data read_activation(PlanBuilder& b, const Array& a, int input) {
  Dims dims = dims_of(a);
  Desc want = activation(a.dtype, dims);
  if (is_channels_last(a)) return b.input(input, want);
  if (!is_plain(a)) return b.copied(input, want);
  return b.as(b.input(input, PlanBuilder::desc_of(a.dtype, dims, clean_strides(a))), want);
}

// An output activation.
Data write_activation(PlanBuilder& b, const Array& a) {
  Desc want = activation(a.dtype, dims_of(a));
  return is_channels_last(a) ? b.output(0, want) : b.temporary(want);
}
void store_activation(PlanBuilder& b, const Array& a, const Data& d) {
  if (!is_channels_last(a))
    b.reorder(d, b.output(0, PlanBuilder::desc_of(a.dtype, dims_of(a), clean_strides(a))));
}

// Weights [o, i, ...k] as [g, o/g, i, ...k].
Desc weight_desc_of(const Array& a, const Geometry& g) {
  Dims s = clean_strides(a);
  if (g.groups > 1) s.insert(s.begin(), a.strides[0] * g.w[1]);
  return PlanBuilder::desc_of(a.dtype, g.w, s);
}
// Weights with unusual strides (flipped, expanded), copied to dense.
Data copied_weight(PlanBuilder& b, const Array& a, const Geometry& g, int input) {
  Dims strides(g.w.size(), 1);
  for (size_t i = g.w.size() - 1; i-- > 0;) strides[i] = strides[i + 1] * g.w[i + 1];
  Dims s(strides.end() - a.rank, strides.end());  // [g, o/g, ...] and [o, ...] have the same layout
  Data copy = b.copied(input, PlanBuilder::desc_of(a.dtype, dims_of(a), s));
  copy.desc = PlanBuilder::desc_of(a.dtype, g.w, strides);
  return copy;
}
Data read_weight(PlanBuilder& b, const Array& a, const Geometry& g, int input, const Desc& want) {
  return b.as(is_plain(a) ? b.input(input, weight_desc_of(a, g)) : copied_weight(b, a, g, input),
              want);
}

// Weights for a part of the samples: they have already been reordered for the primitive.
using ReadWeight = Data (*)(PlanBuilder&, const Array&, const Geometry&, int, const Desc&);
Data ready_weight(PlanBuilder& b, const Array&, const Geometry&, int input, const Desc& want) {
  return b.input(input, want);
}

// oneDNN's threads share a call that is not split into samples; under DeterministicGuard one thread
// runs it.
int threads_for(ReadWeight weight) {
  return weight == read_weight && !context().deterministic ? num_threads() : 1;
}

Desc any_weight(DType t, const Geometry& g) {
  return Desc(g.w, PlanBuilder::type_of(t), dnnl::memory::format_tag::any);
}

using Forward = dnnl::convolution_forward;

Forward::primitive_desc forward_desc(const Geometry& g, DType t, const Desc& bias) {
  return Forward::primitive_desc(engine(), dnnl::prop_kind::forward_training,
                                 algorithm::convolution_direct, activation(t, g.x),
                                 any_weight(t, g), bias, activation(t, g.y), g.stride, g.dilation,
                                 g.pad_begin, g.pad_end, user_scratchpad());
}

std::shared_ptr<const Plan> make_forward(const KernelCall& c, ReadWeight weight, Desc* wanted) {
  return plan_or_refuse(
      [&](PlanBuilder& b) {
        const Array &x = c.in[0], &w = c.in[1], &y = c.out[0];
        Geometry g = geometry(c.get_attrs<ConvAttrs>(), x, w, y);
        bool with_bias = c.n_in > 2 && c.in[2].present();
        Desc bias;
        if (with_bias) bias = PlanBuilder::desc_of(y.dtype, {y.shape[1]}, {1});
        auto pd = forward_desc(g, y.dtype, bias);
        if (wanted) *wanted = pd.weights_desc();
        Data dx = read_activation(b, x, 0);
        Data dw = weight(b, w, g, 1, pd.weights_desc());
        Data dy = write_activation(b, y);
        std::vector<Step::Arg> args = {
            {DNNL_ARG_SRC, dx}, {DNNL_ARG_WEIGHTS, dw}, {DNNL_ARG_DST, dy}};
        if (with_bias) {
          bool dense = c.in[2].contiguous;
          args.push_back({DNNL_ARG_BIAS, dense ? b.input(2, bias) : b.copied(2, bias)});
        }
        b.add(pd, Forward(pd), std::move(args), g.operations);
        store_activation(b, y, dy);
      },
      threads_for(weight));
}

std::shared_ptr<const Plan> make_backward_input(const KernelCall& c, ReadWeight weight,
                                                Desc* wanted) {
  return plan_or_refuse(
      [&](PlanBuilder& b) {
        const Array &gy = c.in[0], &w = c.in[1], &gx = c.out[0];
        Geometry g = geometry(c.get_attrs<ConvAttrs>(), gx, w, gy);
        auto hint = forward_desc(g, gx.dtype, Desc());
        dnnl::convolution_backward_data::primitive_desc pd(
            engine(), algorithm::convolution_direct, activation(gx.dtype, g.x),
            any_weight(gx.dtype, g), activation(gx.dtype, g.y), g.stride, g.dilation, g.pad_begin,
            g.pad_end, hint, user_scratchpad());
        if (wanted) *wanted = pd.weights_desc();
        Data dy = read_activation(b, gy, 0);
        Data dw = weight(b, w, g, 1, pd.weights_desc());
        Data dx = write_activation(b, gx);
        b.add(pd, dnnl::convolution_backward_data(pd),
              {{DNNL_ARG_DIFF_DST, dy}, {DNNL_ARG_WEIGHTS, dw}, {DNNL_ARG_DIFF_SRC, dx}},
              g.operations);
        store_activation(b, gx, dx);
      },
      threads_for(weight));
}

// A call on samples n0..n1-1. Arrays whose first dimension is the samples are sliced, the others
// stay whole.
struct Slice {
  Array in[3], out;
  int64_t shapes[4][kMaxRank];
  KernelCall call;

  Slice(const KernelCall& c, int64_t n0, int64_t n1, std::initializer_list<int> ins, bool cut_out)
      : call(c) {
    for (int i = 0; i < std::min(c.n_in, 3); ++i) in[i] = c.in[i];
    out = c.out[0];
    for (int i : ins) cut(in[i], shapes[i], n0, n1);
    if (cut_out) cut(out, shapes[3], n0, n1);
    call.in = in;
    call.out = &out;
  }

 private:
  static void cut(Array& a, int64_t* shape, int64_t n0, int64_t n1) {
    std::copy_n(a.shape, a.rank, shape);
    a.numel = a.numel / shape[0] * (n1 - n0);
    shape[0] = n1 - n0;
    a.shape = shape;
    if (a.data) a.data = a.as<char>() + n0 * a.strides[0] * static_cast<int64_t>(size_of(a.dtype));
  }
};

bool usable(const std::shared_ptr<const Plan>& p) {
  return static_cast<const DnnlPlan&>(*p).usable;
}
// Into how many parts a call with n samples and a number of operations is split.
int64_t parts_of(int64_t n, double operations, int64_t most) {
  constexpr double kOperationsPerPart = 4e6;
  return std::clamp<int64_t>(static_cast<int64_t>(operations / kOperationsPerPart), 1,
                             std::min(n, most));
}

// conv and its derivative with respect to the input, split into samples by the shape alone: the
// implementation that oneDNN picks for many threads sums some shapes in another order than the one
// it picks for one. An f32 call on at most kFewSamples large samples is left to the own kernels,
// which share a sample among threads; with 16-bit dtypes such a call is not split, and the bits of
// an odd shape may depend on the threads (kNotDeterministic) except under DeterministicGuard.
struct SamplesPlan : EpiloguePlan {
  std::shared_ptr<const Plan> whole;    ///< few large samples: the threads share each of them
  std::shared_ptr<const Plan> part[2];  ///< of floor and ceil of n / parts samples
  /// Reorder pieces of the weights into the format of the parts.
  std::vector<std::shared_ptr<const Plan>> weights[2];
  size_t weights_at[2] = {}, weights_scratch = 0, workers_at = 0, worker_bytes = 0;
  int64_t parts = 1;
  int workers = 1;
};

constexpr int64_t kFewSamples = 3;
constexpr int64_t kEpilogueGrain = 8192;  ///< elements
constexpr int64_t kFewChannels = 4;
constexpr double kLargeCall = 8e6;  ///< operations
constexpr int64_t kMostSampleParts = 32;
constexpr int64_t kWeightBlock = 64;  ///< outputs and inputs are blocked by at most this many

using MakePart = std::shared_ptr<const Plan> (*)(const KernelCall&, ReadWeight, Desc*);

// Piece i of `pieces` of a reorder of the weights into out[0].
std::shared_ptr<const Plan> make_weights(const KernelCall& c, const Geometry& g, const Desc& want,
                                         int64_t i, int64_t pieces) {
  return plan_or_refuse([&](PlanBuilder& b) {
    Data w = is_plain(c.in[1]) ? b.input(1, weight_desc_of(c.in[1], g))
                               : copied_weight(b, c.in[1], g, 1);
    Data to = b.output(0, want);
    if (pieces > 1) {
      Dims sizes = g.w, first(g.w.size(), 0);
      const int64_t blocks = g.w[0] / kWeightBlock;
      first[0] = blocks * i / pieces * kWeightBlock;
      sizes[0] = blocks * (i + 1) / pieces * kWeightBlock - first[0];
      w.desc = w.desc.submemory_desc(sizes, first);
      to.desc = to.desc.submemory_desc(sizes, first);
    }
    b.reorder(w, to);
  });
}

// The reorder split by outputs, where oneDNN allows it; each piece runs on one thread.
std::vector<std::shared_ptr<const Plan>> make_weights(const KernelCall& c, const Geometry& g,
                                                      const Desc& want) {
  constexpr int64_t kElementsPerPiece = 65536;
  std::vector<std::shared_ptr<const Plan>> plans;
  if (is_plain(c.in[1]) && g.groups == 1 && g.w[0] % kWeightBlock == 0) {
    const int64_t pieces = std::min(c.in[1].numel / kElementsPerPiece, g.w[0] / kWeightBlock);
    for (int64_t i = 0; pieces > 1 && i < pieces; ++i) {
      plans.push_back(make_weights(c, g, want, i, pieces));
      if (usable(plans.back())) continue;
      plans.clear();
      break;
    }
  }
  if (plans.empty()) plans.push_back(make_weights(c, g, want, 0, 1));
  return plans;
}

// f(worker, part, first sample, last sample) for all parts of n samples; each worker has its own.
template <class F>
void share_parts(int64_t n, int64_t parts, int64_t workers, const F& f) {
  parallel_for(0, workers, 1, [&](int64_t first, int64_t last) {
    for (int64_t w = first; w < last; ++w)
      for (int64_t p = parts * w / workers; p < parts * (w + 1) / workers; ++p)
        f(w, p, n * p / parts, n * (p + 1) / parts);
  });
}

void run_samples_with(const KernelCall& c, const Epilogue* epilogue);

std::shared_ptr<const Plan> prepare_samples(const KernelCall& c, MakePart make) {
  auto plan = std::make_shared<SamplesPlan>();
  plan->run_with = [](const KernelCall& call, const Epilogue& e) { run_samples_with(call, &e); };
  const bool forward = make == make_forward;
  Geometry g = geometry(c.get_attrs<ConvAttrs>(), forward ? c.in[0] : c.out[0], c.in[1],
                        forward ? c.out[0] : c.in[0]);
  const int64_t n = g.x[0];
  if (n <= kFewSamples && g.operations > kLargeCall) {
    plan->whole = make(c, read_weight, nullptr);
    plan->workspace = plan->whole->workspace;
    return plan;
  }
  plan->parts = parts_of(n, g.operations, kMostSampleParts);
  plan->workers = static_cast<int>(std::min<int64_t>(num_threads(), plan->parts));
  const int kinds = n % plan->parts ? 2 : 1;
  size_t part_scratch = 0;
  for (int i = 0; i < kinds; ++i) {
    Desc want;
    Slice s(c, 0, n / plan->parts + i, {0}, true);
    plan->part[i] = make(s.call, ready_weight, &want);
    if (!usable(plan->part[i])) {
      plan->whole = make(c, read_weight, nullptr);
      plan->workspace = plan->whole->workspace;
      return plan;
    }
    part_scratch = std::max(part_scratch, plan->part[i]->workspace);
    if (is_plain(c.in[1]) && want == weight_desc_of(c.in[1], g)) continue;
    plan->weights[i] = make_weights(c, g, want);
    plan->weights_at[i] = plan->workspace;
    plan->workspace += whole_lines(want.get_size());
    size_t all = 0;
    for (const auto& piece : plan->weights[i]) all += whole_lines(piece->workspace);
    plan->weights_scratch = std::max(plan->weights_scratch, all);
  }
  plan->worker_bytes = whole_lines(part_scratch);
  plan->workers_at = plan->workspace;
  plan->workspace +=
      std::max(plan->worker_bytes * static_cast<size_t>(plan->workers), plan->weights_scratch);
  return plan;
}

// Samples are the outermost dimension of a dense result: a part is a range of its memory.
EpilogueKind samples_epilogue(const KernelCall& c) {
  const Array& y = c.out[0];
  return y.shape[0] == 1 || y.strides[0] == y.numel / y.shape[0] ? EpilogueKind::ranges
                                                                 : EpilogueKind::none;
}

void run_samples_with(const KernelCall& c, const Epilogue* epilogue) {
  const auto& plan = *static_cast<const SamplesPlan*>(c.plan);
  if (plan.whole) {
    KernelCall whole = c;
    whole.plan = plan.whole.get();
    run_plan(whole);
    if (epilogue)
      parallel_for(0, c.out[0].numel, kEpilogueGrain, [&](int64_t first, int64_t last) {
        epilogue->run(*epilogue, first, last, 0, 1);
      });
    return;
  }
  char* scratch = static_cast<char*>(c.scratch);
  for (int i = 0; i < 2; ++i) {
    const auto& pieces = plan.weights[i];
    parallel_for(0, static_cast<int64_t>(pieces.size()), 1, [&](int64_t first, int64_t last) {
      KernelCall w = c;
      Array out = c.out[0];
      out.data = scratch + plan.weights_at[i];
      w.out = &out;
      w.scratch = scratch + plan.workers_at;
      for (int64_t p = 0; p < last; ++p) {
        const Plan* piece = pieces[static_cast<size_t>(p)].get();
        w.plan = piece;
        if (p >= first) run_plan(w);
        w.scratch = static_cast<char*>(w.scratch) + whole_lines(piece->workspace);
      }
    });
  }
  const int64_t n = c.in[0].shape[0];
  share_parts(n, plan.parts, plan.workers, [&](int64_t w, int64_t, int64_t n0, int64_t n1) {
    const int kind = n1 - n0 == n / plan.parts ? 0 : 1;
    Slice s(c, n0, n1, {0}, true);
    if (!plan.weights[kind].empty()) s.in[1].data = scratch + plan.weights_at[kind];
    s.call.plan = plan.part[kind].get();
    s.call.scratch = scratch + plan.workers_at + w * plan.worker_bytes;
    run_plan(s.call);
    const int64_t sample = c.out[0].numel / n;
    if (epilogue) epilogue->run(*epilogue, n0 * sample, n1 * sample, 0, 1);
  });
}
void run_samples(const KernelCall& c) { run_samples_with(c, nullptr); }

std::shared_ptr<const Plan> prepare_forward(const KernelCall& c) {
  return prepare_samples(c, make_forward);
}
std::shared_ptr<const Plan> prepare_backward_input(const KernelCall& c) {
  return prepare_samples(c, make_backward_input);
}

std::shared_ptr<const Plan> whole_backward_weight(const KernelCall& c) {
  return plan_or_refuse([&](PlanBuilder& b) {
    const Array &x = c.in[0], &gy = c.in[1], &gw = c.out[0];
    Geometry g = geometry(c.get_attrs<ConvAttrs>(), x, gw, gy);
    auto hint = forward_desc(g, x.dtype, Desc());
    dnnl::convolution_backward_weights::primitive_desc pd(
        engine(), algorithm::convolution_direct, activation(x.dtype, g.x), any_weight(gw.dtype, g),
        activation(x.dtype, g.y), g.stride, g.dilation, g.pad_begin, g.pad_end, hint,
        user_scratchpad());
    Data dx = read_activation(b, x, 0);
    Data dy = read_activation(b, gy, 1);
    Desc plain = weight_desc_of(gw, g);
    bool direct = pd.diff_weights_desc() == plain;
    Data dw = direct ? b.output(0, plain) : b.temporary(pd.diff_weights_desc());
    b.add(pd, dnnl::convolution_backward_weights(pd),
          {{DNNL_ARG_SRC, dx}, {DNNL_ARG_DIFF_DST, dy}, {DNNL_ARG_DIFF_WEIGHTS, dw}}, g.operations);
    if (!direct) b.reorder(dw, b.output(0, plain));
  });
}

// The derivative with respect to the weight, split into parts of the samples by the shape alone:
// oneDNN's sums depend on the thread count, so each part runs on one thread and the parts are added
// in order.
struct CutPlan : Plan {
  std::shared_ptr<const Plan> less, more;  ///< of parts of floor and ceil of n / parts samples
  int64_t parts = 1;
  int workers = 1;
  size_t part_bytes = 0, worker_bytes = 0;
  std::shared_ptr<const Plan> own;  ///< oneDNN has no good implementation: the own kernel's plan
};

constexpr int64_t kMostParts = 16;
constexpr int64_t kLargestWeight = 65536;  ///< elements; the own kernel is as fast from there on

std::shared_ptr<const Plan> prepare_backward_weight(const KernelCall& c) {
  auto plan = std::make_shared<CutPlan>();
  const Array& gw = c.out[0];
  const int64_t n = c.in[0].shape[0];
  Geometry g = geometry(c.get_attrs<ConvAttrs>(), c.in[0], gw, c.in[1]);
  plan->parts = parts_of(n, g.operations, kMostParts);
  const int64_t per = n / plan->parts;
  plan->less = whole_backward_weight(Slice(c, 0, per, {0, 1}, false).call);
  plan->more = n % plan->parts ? whole_backward_weight(Slice(c, 0, per + 1, {0, 1}, false).call)
                               : plan->less;
  if (!usable(plan->less) || !usable(plan->more)) {
    plan->own = own_conv_backward_weight_prepare(c);
    if (plan->own) plan->workspace = plan->own->workspace;
    return plan;
  }
  plan->workers = static_cast<int>(std::min<int64_t>(num_threads(), plan->parts));
  plan->worker_bytes = whole_lines(std::max(plan->less->workspace, plan->more->workspace));
  plan->part_bytes = whole_lines(static_cast<size_t>(gw.numel) * size_of(gw.dtype));
  plan->workspace = plan->worker_bytes * static_cast<size_t>(plan->workers) +
                    (plan->parts > 1 ? plan->part_bytes * static_cast<size_t>(plan->parts) : 0);
  return plan;
}

template <class T>
void add_parts(const Array& gw, const char* parts, size_t step, int64_t count) {
  parallel_for(0, gw.numel, 8192, [&](int64_t first, int64_t last) {
    for (int64_t i = first; i < last; ++i) {
      float sum = 0;
      for (int64_t p = 0; p < count; ++p)
        sum += static_cast<float>(reinterpret_cast<const T*>(parts + p * step)[i]);
      gw.as<T>()[i] = T(sum);
    }
  });
}

void run_backward_weight(const KernelCall& c) {
  const auto& plan = *static_cast<const CutPlan*>(c.plan);
  if (!usable(plan.less) || !usable(plan.more)) {
    KernelCall own = c;
    own.plan = plan.own.get();
    return plan.own ? own_conv_backward_weight_run(own) : c.op.reference_fn(c);
  }
  char* workers = static_cast<char*>(c.scratch);
  char* parts = workers + plan.worker_bytes * static_cast<size_t>(plan.workers);
  const int64_t n = c.in[0].shape[0];
  share_parts(n, plan.parts, plan.workers, [&](int64_t w, int64_t p, int64_t n0, int64_t n1) {
    Slice s(c, n0, n1, {0, 1}, false);
    if (plan.parts > 1) s.out.data = parts + p * plan.part_bytes;
    s.call.plan = (n1 - n0 == n / plan.parts ? plan.less : plan.more).get();
    s.call.scratch = workers + w * plan.worker_bytes;
    run_plan(s.call);
  });
  if (plan.parts == 1) return;
  const DType t = c.out[0].dtype;
  if (t == DType::f32)
    add_parts<float>(c.out[0], parts, plan.part_bytes, plan.parts);
  else if (t == DType::bf16)
    add_parts<BFloat16>(c.out[0], parts, plan.part_bytes, plan.parts);
  else
    add_parts<Half>(c.out[0], parts, plan.part_bytes, plan.parts);
}

bool supports(const KernelCall& c) {
  for (int i = 0; i < c.n_in; ++i) {
    if (!c.in[i].shape) continue;
    for (int d = 0; d < c.in[i].rank; ++d)
      if (c.in[i].shape[d] == 0) return false;
  }
  for (int d = 0; d < c.out[0].rank; ++d)
    if (c.out[0].shape[d] == 0) return false;
  return computes(c.out[0].dtype);
}

// Few large samples: the threads must share each of them.
bool shares_samples(const KernelCall& c, const Array& x, const Array& y) {
  return x.shape[0] <= kFewSamples &&
         geometry(c.get_attrs<ConvAttrs>(), x, c.in[1], y).operations > kLargeCall;
}
bool supports_forward(const KernelCall& c) {
  return supports(c) && (c.out[0].dtype != DType::f32 || !shares_samples(c, c.in[0], c.out[0]));
}

// Outputs have shapes here, but no numel.
bool supports_backward_weight(const KernelCall& c) {
  int64_t elements = 1;
  for (int d = 0; d < c.out[0].rank; ++d) elements *= c.out[0].shape[d];
  return supports(c) && (c.out[0].dtype != DType::f32 || elements < kLargestWeight);
}

// With few input channels the own kernel is faster.
bool supports_backward_input(const KernelCall& c) {
  if (!supports(c) || c.out[0].dtype != DType::f32) return supports(c);
  return !shares_samples(c, c.out[0], c.in[0]) &&
         (c.in[1].shape[1] > kFewChannels || c.get_attrs<ConvAttrs>().groups > 1);
}

}  // namespace

void register_onednn_conv_kernels() {
  register_epilogue(prepare_forward, samples_epilogue);
  register_epilogue(prepare_backward_input, samples_epilogue);
  register_kernel(DeviceKind::cpu, op::conv,
                  {supports_forward, conv_layout, prepare_forward, run_samples});
  register_kernel(DeviceKind::cpu, op::conv_backward_input,
                  {supports_backward_input, conv_layout, prepare_backward_input, run_samples});
  register_kernel(
      DeviceKind::cpu, op::conv_backward_weight,
      {supports_backward_weight, nullptr, prepare_backward_weight, run_backward_weight});
}

}  // namespace tandem::detail

#endif
