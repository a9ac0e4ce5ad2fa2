// SPDX-License-Identifier: Apache-2.0
#include "tandem/backend/cpu/widened_internal.h"

#include <algorithm>

#include "tandem/backend/cpu/registry_internal.h"
#include "tandem/base/parallel.h"
#include "tandem/codegen/tile_kernels.h"
#include "tandem/codegen/tile_loop.h"

namespace tandem::detail {
namespace {

using codegen::TileLoop;

constexpr int64_t kGrain = 16384;  ///< elements
constexpr int64_t kPiece = 512;    ///< elements of a row that is not contiguous

// Calls f(offset in `wide`, offset in `a`) for every row of the loop over both, in the order of
// `wide`.
template <class F>
void for_rows(const TileLoop& loop, F&& f) {
  const int64_t grain = std::max<int64_t>(1, kGrain / loop.inner());
  parallel_for(0, loop.rows(), grain, [&](int64_t first, int64_t last) {
    codegen::LoopCursor at(loop, first);
    for (int64_t r = first; r < last; ++r, at.advance()) f(at.offset[0], at.offset[1]);
  });
}
TileLoop loop_of(const Array& wide, const Array& a) {
  const Array* both[] = {&wide, &a};
  return TileLoop::make(a.shape, a.rank, both, 2, 0);
}

void to_wide(const Array& wide, const Array& a) {
  if (a.numel == 0) return;
  const codegen::TileFn load = codegen::tiles().load[static_cast<int>(a.dtype)];
  const TileLoop loop = loop_of(wide, a);
  const int64_t n = loop.inner(), step = loop.inner_stride(1);
  for_rows(loop, [&](int64_t to, int64_t from) {
    if (step == 1 || n == 1)
      return load(wide.as<float>() + to, a.as<uint16_t>() + from, nullptr, nullptr, nullptr, n);
    uint16_t piece[kPiece];
    for (int64_t i = 0; i < n; i += kPiece) {
      const int64_t m = std::min(kPiece, n - i);
      codegen::gather_run(piece, a.as<uint16_t>() + from + i * step, step, m, 2);
      load(wide.as<float>() + to + i, piece, nullptr, nullptr, nullptr, m);
    }
  });
}

void from_wide(const Array& a, const Array& wide) {
  if (a.numel == 0) return;
  const codegen::TileFn store = codegen::tiles().store[static_cast<int>(a.dtype)];
  const TileLoop loop = loop_of(wide, a);
  const int64_t n = loop.inner(), step = loop.inner_stride(1);
  for_rows(loop, [&](int64_t from, int64_t to) {
    if (step == 1 || n == 1)
      return store(a.as<uint16_t>() + to, wide.as<float>() + from, nullptr, nullptr, nullptr, n);
    uint16_t piece[kPiece];
    for (int64_t i = 0; i < n; i += kPiece) {
      const int64_t m = std::min(kPiece, n - i);
      store(piece, wide.as<float>() + from + i, nullptr, nullptr, nullptr, m);
      codegen::scatter_run(a.as<uint16_t>() + to + i * step, piece, step, m, 2);
    }
  });
}

}  // namespace

void widen_dense(const Array& a, float* to) {
  int64_t strides[kMaxRank], step = 1;
  for (int d = a.rank; d-- > 0; step *= a.shape[d]) strides[d] = step;
  Array wide = a;
  wide.data = to;
  wide.dtype = DType::f32;
  wide.strides = strides;
  wide.contiguous = true;
  to_wide(wide, a);
}

WidenedCall::WidenedCall(const KernelCall& c) : call_(c) {
  auto* scratch = static_cast<char*>(c.scratch);
  for (int i = 0; i < c.n_in; ++i) {
    in_[i] = c.in[i];
    widen(in_[i], strides_[i], scratch);
  }
  for (int i = 0; i < c.n_out; ++i) {
    out_[i] = c.out[i];
    widen(out_[i], strides_[kMostWidened + i], scratch);
  }
  call_.in = in_;
  call_.out = out_;
}

void WidenedCall::widen(Array& a, int64_t* strides, char* scratch) {
  if (!a.shape || a.is_scalar || !is_short_float(a.dtype)) return;
  any_ = true;
  Strides own;
  const bool as_it_lies = a.strides && (strides_like(a, own) || dense_strides_as(a, a, own));
  int64_t step = 1;
  for (int d = a.rank; d-- > 0; step *= a.shape[d]) strides[d] = as_it_lies ? own[d] : step;
  a.dtype = DType::f32;
  a.strides = strides;
  a.contiguous = !as_it_lies;
  a.data = scratch ? scratch + bytes_ : nullptr;
  bytes_ += whole_lines(static_cast<size_t>(a.numel) * sizeof(float));
}

void WidenedCall::read(const KernelCall& from) const {
  for (int i = 0; i < from.n_in; ++i)
    if (in_[i].dtype != from.in[i].dtype) to_wide(in_[i], from.in[i]);
}
void WidenedCall::write(const KernelCall& to) const {
  for (int i = 0; i < to.n_out; ++i)
    if (out_[i].dtype != to.out[i].dtype) from_wide(to.out[i], out_[i]);
}

namespace {

struct WidenedPlan : Plan {
  const Kernel* kernel = nullptr;
  std::shared_ptr<const Plan> inner;
  size_t inner_at = 0;  ///< where its scratch begins
};

const Kernel* kernel_of(const WidenedCall& wide) {
  return find_kernel(wide.call(), DeviceKind::cpu);
}

bool supports(const KernelCall& c) {
  if (c.n_in > kMostWidened || c.n_out > kMostWidened) return false;
  const WidenedCall wide(c);
  return wide.any() && kernel_of(wide);
}

bool layout(const KernelCall& c, int output, Strides& strides) {
  const WidenedCall wide(c);
  const Kernel* kernel = kernel_of(wide);
  return kernel && kernel->layout && kernel->layout(wide.call(), output, strides);
}

std::shared_ptr<const Plan> prepare(const KernelCall& c) {
  const WidenedCall wide(c);
  auto plan = std::make_shared<WidenedPlan>();
  plan->kernel = kernel_of(wide);
  plan->inner_at = plan->workspace = wide.bytes();
  if (plan->kernel->prepare) {
    plan->inner = plan->kernel->prepare(wide.call());
    plan->workspace += plan->inner->workspace;
  }
  return plan;
}

void run(const KernelCall& c) {
  const auto& plan = *static_cast<const WidenedPlan*>(c.plan);
  const WidenedCall wide(c);
  wide.read(c);
  KernelCall inner = wide.call();
  inner.plan = plan.inner.get();
  inner.scratch = static_cast<char*>(c.scratch) + plan.inner_at;
  plan.kernel->run(inner);
  wide.write(c);
}

}  // namespace

constinit const Kernel kWidened{
    .supports = supports, .layout = layout, .prepare = prepare, .run = run, .widens = true};

}  // namespace tandem::detail
