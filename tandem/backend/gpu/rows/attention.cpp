// SPDX-License-Identifier: Apache-2.0
// Attention in f16 and bf16 on devices whose warps multiply matrices; elsewhere the rows' bodies
// run. Operands may lie in any order: what a model's heads are views of is not copied.
#include <algorithm>
#include <cmath>
#include <cstdlib>

#include "tandem/backend/gpu/rows/attention_internal.h"
#include "tandem/backend/gpu/rows/call_internal.h"
#include "tandem/backend/gpu/rows/register_internal.h"
#include "tandem/ops/nn/attention.h"

namespace tandem::gpu {
namespace {

constexpr int kMostRank = 4;
constexpr uintptr_t kVector = 16;  // bytes of a copy

// Inputs of one of the two rows; what is not there is nullptr.
struct Operands {
  const Array *q = nullptr, *k = nullptr, *v = nullptr, *mask = nullptr;
};

const Array* given(const KernelCall& c, int i) {
  return i < c.n_in && c.in[i].present() ? &c.in[i] : nullptr;
}
Operands forward_operands(const KernelCall& c) {
  return {&c.in[0], &c.in[1], &c.in[2], given(c, 3)};
}
Operands backward_operands(const KernelCall& c) {
  return {&c.in[1], &c.in[2], &c.in[3], given(c, 6)};
}

// Size and stride of dimension `d` of [b, h, rows, columns]; leading ones may be missing.
int64_t size_at(const Array& x, int d) {
  const int at = x.rank - kMostRank + d;
  return at < 0 ? 1 : x.shape[at];
}
int64_t stride_at(const Array& x, int d) {
  const int at = x.rank - kMostRank + d;
  return at < 0 || x.shape[at] == 1 ? 0 : x.strides[at];
}

struct Sizes {
  int64_t b, h, l, s, k_share, v_share;
};
Sizes sizes_of(const Operands& o) {
  Sizes z{};
  z.b = std::max({size_at(*o.q, 0), size_at(*o.k, 0), size_at(*o.v, 0)});
  z.h = std::max({size_at(*o.q, 1), size_at(*o.k, 1), size_at(*o.v, 1)});
  z.l = size_at(*o.q, 2);
  z.s = size_at(*o.k, 2);
  z.k_share = z.h / size_at(*o.k, 1);
  z.v_share = z.h / size_at(*o.v, 1);
  return z;
}

bool operands_fit(const KernelCall& c, const Operands& o) {
  if (!engine_of(c.device).info().warp_matmul || !is_short_float(o.q->dtype)) return false;
  for (const Array* x : {o.q, o.k, o.v, o.mask}) {
    if (x && (x->rank > kMostRank || x->numel == 0)) return false;
  }
  if (o.mask && is_floating(o.mask->dtype) && o.mask->dtype == DType::f64) return false;
  const Sizes z = sizes_of(o);
  const int64_t most = std::max({z.l, z.s}) + AttentionText::kKeys;  // numbers of 32 bits
  if (most > INT32_MAX || z.b * z.h * most > INT32_MAX) return false;
  const auto& at = c.get_attrs<AttentionAttrs>();
  return at.scale >= 0 && size_at(*o.q, 3) <= AttentionText::kMostFeatures &&
         size_at(*o.v, 3) <= AttentionText::kMostFeatures;
}

bool forward_supports(const KernelCall& c) { return operands_fit(c, forward_operands(c)); }

// A gradient is not summed over a dimension that was broadcast, other than shared heads.
bool backward_supports(const KernelCall& c) {
  const Operands o = backward_operands(c);
  if (!operands_fit(c, o) || c.get_attrs<AttentionAttrs>().mask_grad) return false;
  const Sizes z = sizes_of(o);
  for (const Array* x : {o.q, o.k, o.v}) {
    if (size_at(*x, 0) != z.b) return false;
  }
  return size_at(*o.q, 1) == z.h && z.k_share == z.v_share && c.in[0].rank <= kMostRank;
}

// ---- layouts

// Where heads lie within a line of `like`, as in views of [b, l, h, e], they do in `out`, too.
bool heads_inside(const Array& like, const Array& out, Strides& strides) {
  if (like.rank != kMostRank || out.rank != kMostRank || like.strides[3] != 1 ||
      like.strides[1] >= like.strides[2]) {
    return false;
  }
  const int64_t h = out.shape[1], l = out.shape[2], e = out.shape[3];
  strides.v[0] = l * h * e;
  strides.v[1] = e;
  strides.v[2] = h * e;
  strides.v[3] = 1;
  return true;
}
bool forward_layout(const KernelCall& c, int output, Strides& strides) {
  return output == 0 && heads_inside(c.in[0], c.out[0], strides);
}
bool backward_layout(const KernelCall& c, int output, Strides& strides) {
  return output < 3 && heads_inside(c.in[1 + output], c.out[output], strides);
}

// ---- launches

bool is_aligned(const Array& x) {
  constexpr int64_t kElements = kVector / 2;
  bool good = reinterpret_cast<uintptr_t>(x.data) % kVector == 0 && size_at(x, 3) % kElements == 0;
  for (int d = 0; d < 3; ++d) good = good && stride_at(x, d) % kElements == 0;
  return good && stride_at(x, 3) == 1 && std::abs(stride_at(x, 2)) < AttentionText::kFarLines;
}

AttentionText text_of(const KernelCall& c, const Operands& o,
                      std::initializer_list<const Array*> arrays) {
  AttentionText t;
  t.dtype = o.q->dtype;
  t.e = static_cast<int>(size_at(*o.q, 3));
  t.f = static_cast<int>(size_at(*o.v, 3));
  t.causal = c.get_attrs<AttentionAttrs>().causal;
  if (o.mask) {
    t.mask_type = o.mask->dtype;
    t.mask = is_floating(t.mask_type) ? AttentionText::added : AttentionText::visible;
  }
  t.aligned =
      std::all_of(arrays.begin(), arrays.end(), [](const Array* x) { return is_aligned(*x); });
  return t;
}

uint64_t variant_of_text(const AttentionText& t, uint64_t kernel) {
  uint64_t v = kernel;
  for (const uint64_t part : {uint64_t{t.aligned}, uint64_t{t.causal} | uint64_t{t.lse} << 1,
                              static_cast<uint64_t>(t.mask), static_cast<uint64_t>(t.mask_type),
                              static_cast<uint64_t>(t.dtype)}) {
    v = v << 8 | part;
  }
  return v;
}
KernelId id_of(const KernelCall& c, const AttentionText& t, uint64_t kernel) {
  return {&c.op, static_cast<uint64_t>(t.e) << 8 | static_cast<uint64_t>(t.f),
          variant_of_text(t, kernel)};
}

void argue_strides(Arguments& a, std::initializer_list<const Array*> arrays) {
  for (const Array* x : arrays) {
    for (int d = 0; d < kMostRank; ++d) a.value(stride_at(*x, d));
  }
}

void argue_mask_and_sizes(Arguments& a, const KernelCall& c, const Operands& o, const Sizes& z) {
  if (o.mask) {
    argue_array(a, *o.mask);
    argue_strides(a, {o.mask});
  }
  const double scale = c.get_attrs<AttentionAttrs>().scale;
  const auto e = static_cast<double>(size_at(*o.q, 3));
  for (const int64_t n : {z.l, z.s, z.h, z.k_share}) a.value(static_cast<int32_t>(n));
  a.value(static_cast<float>(scale > 0 ? scale : 1 / std::sqrt(e)));
}

void launch(const KernelCall& c, KernelRef kernel, int64_t lines, int64_t rows, int64_t heads,
            const Arguments& a) {
  Engine& e = engine_of(c.device);
  const auto blocks = static_cast<uint32_t>((lines + rows - 1) / rows * heads);
  e.launch(kernel, {blocks}, {AttentionText::kThreads}, a, e.stream(c.stream));
}

void forward_run(const KernelCall& c) {
  if (c.out[0].numel == 0) return;
  const Operands o = forward_operands(c);
  const Sizes z = sizes_of(o);
  AttentionText t = text_of(c, o, {o.q, o.k, o.v, &c.out[0]});
  t.lse = c.out[1].data != nullptr;
  const KernelRef k =
      plain_kernel(engine_of(c.device), id_of(c, t, 0), [&] { return t.forward(); });
  Arguments a;
  argue_array(a, c.out[0]);
  if (t.lse) {
    argue_array(a, c.out[1]);
  } else {
    argue_nothing(a);
  }
  for (const Array* x : {o.q, o.k, o.v}) argue_array(a, *x);
  argue_strides(a, {&c.out[0], o.q, o.k, o.v});
  argue_mask_and_sizes(a, c, o, z);
  a.value(static_cast<int32_t>(z.v_share));
  launch(c, k, z.l, t.rows(), z.b * z.h, a);
}

// ---- the derivative: delta in scratch, then both kernels

size_t delta_bytes(const Sizes& z) { return static_cast<size_t>(z.b * z.h * z.l) * sizeof(float); }

std::shared_ptr<const Plan> backward_prepare(const KernelCall& c) {
  auto plan = std::make_shared<Plan>();
  plan->workspace = delta_bytes(sizes_of(backward_operands(c)));
  return plan;
}

void run_delta(const KernelCall& c, const AttentionText& t, const Sizes& z) {
  const Array& gy = c.in[0];
  const Array& y = c.in[4];
  const Array* glse = given(c, 7);
  const KernelRef k = plain_kernel(engine_of(c.device), id_of(c, t, glse ? 1 : 2),
                                   [&] { return t.delta(glse != nullptr); });
  Arguments a;
  a.address(address_of(c.scratch), delta_bytes(z));
  argue_array(a, gy);
  argue_array(a, y);
  if (glse) {
    argue_array(a, *glse);
  } else {
    argue_nothing(a);
  }
  argue_strides(a, {&gy, &y});
  a.value(z.b * z.h * z.l).value(z.h).value(z.l);
  launch(c, k, z.b * z.h * z.l, AttentionText::kDeltaRows, 1, a);
}

void argue_inputs(Arguments& a, const KernelCall& c, const Operands& o, const Sizes& z) {
  for (const Array* x : {&c.in[0], o.q, o.k, o.v, &c.in[5]}) argue_array(a, *x);
  a.address(address_of(c.scratch), delta_bytes(z));
}

void backward_run(const KernelCall& c) {
  const Operands o = backward_operands(c);
  const Sizes z = sizes_of(o);
  const Array &gq = c.out[0], &gk = c.out[1], &gv = c.out[2];
  const AttentionText t = text_of(c, o, {o.q, o.k, o.v, &c.in[0], &gq, &gk, &gv});
  run_delta(c, t, z);
  Engine& e = engine_of(c.device);
  const KernelRef keys = plain_kernel(e, id_of(c, t, 3), [&] { return t.backward_keys(); });
  Arguments a;
  argue_array(a, gk);
  argue_array(a, gv);
  argue_inputs(a, c, o, z);
  argue_strides(a, {&gk, &gv, &c.in[0], o.q, o.k, o.v});
  argue_mask_and_sizes(a, c, o, z);
  launch(c, keys, z.s, t.rows(), z.b * z.h / z.k_share, a);
  const KernelRef queries = plain_kernel(e, id_of(c, t, 4), [&] { return t.backward_queries(); });
  Arguments b;
  argue_array(b, gq);
  argue_inputs(b, c, o, z);
  argue_strides(b, {&gq, &c.in[0], o.q, o.k, o.v});
  argue_mask_and_sizes(b, c, o, z);
  launch(c, queries, z.l, t.rows(), z.b * z.h, b);
}

// lse and what comes with it lie in rows of f32.
bool lines_fit(const KernelCall& c) {
  const auto fits = [](const Array* x) { return !x || (x->contiguous && x->dtype == DType::f32); };
  return fits(&c.in[5]) && fits(given(c, 7));
}

}  // namespace

void register_attention(DeviceKind kind) {
  register_kernel(kind, op::attention, {forward_supports, forward_layout, nullptr, forward_run});
  register_kernel(kind, op::attention_backward,
                  {[](const KernelCall& c) { return backward_supports(c) && lines_fit(c); },
                   backward_layout, backward_prepare, backward_run});
}

}  // namespace tandem::gpu
