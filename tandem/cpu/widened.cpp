// SPDX-License-Identifier: Apache-2.0
#include "tandem/cpu/widened_internal.h"

#include <algorithm>

#include "tandem/base/parallel.h"
#include "tandem/codegen/tile_kernels.h"
#include "tandem/codegen/tile_loop.h"

namespace tandem::detail {
namespace {

bool is_short(DType t) { return t == DType::f16 || t == DType::bf16; }
size_t whole_lines(size_t bytes) { return (bytes + 63) / 64 * 64; }

constexpr int64_t kGrain = 16384;  ///< elements

// Dimensions 0..rank-1, those of larger strides first.
void sort_dims(int* order, int rank, const int64_t* strides) {
  for (int d = 0; d < rank; ++d) {
    int at = d;
    for (; at > 0 && strides[order[at - 1]] < strides[d]; --at) order[at] = order[at - 1];
    order[at] = d;
  }
}

// The dimensions of an array in the order in which its wide copy lies, outermost first; neighbours
// that lie one behind the other in both are one.
struct Runs {
  int rank = 0;
  int64_t size[kMaxRank], stride[kMaxRank];

  Runs(const Array& a, const Array& wide) {
    int order[kMaxRank];
    sort_dims(order, a.rank, wide.strides);
    for (int i = 0; i < a.rank; ++i) {
      const int d = order[i];
      if (a.shape[d] == 1) continue;
      if (rank && stride[rank - 1] == a.strides[d] * a.shape[d]) {
        size[rank - 1] *= a.shape[d];
        stride[rank - 1] = a.strides[d];
      } else {
        size[rank] = a.shape[d];
        stride[rank++] = a.strides[d];
      }
    }
    if (rank == 0) size[rank] = stride[rank] = 1, ++rank;
  }
  int64_t row() const { return size[rank - 1]; }
  int64_t step() const { return stride[rank - 1]; }
};

// f(offset in elements of run r of `a`, r) for all of them.
template <class F>
void for_rows(const Array& a, const Runs& runs, F&& f) {
  const int64_t n = runs.row();
  if (a.numel == 0) return;
  parallel_for(0, a.numel / n, std::max<int64_t>(1, kGrain / n), [&](int64_t first, int64_t last) {
    for (int64_t r = first; r < last; ++r) {
      int64_t rest = r, at = 0;
      for (int d = runs.rank - 1; d-- > 0;) {
        at += rest % runs.size[d] * runs.stride[d];
        rest /= runs.size[d];
      }
      f(at, r);
    }
  });
}

constexpr int64_t kPiece = 512;  ///< elements of a row whose neighbours lie apart

void to_wide(const Array& wide, const Array& a) {
  const codegen::TileFn load = codegen::tiles().load[static_cast<int>(a.dtype)];
  const auto* from = a.as<uint16_t>();
  auto* to = wide.as<float>();
  const Runs runs(a, wide);
  const int64_t n = runs.row(), step = runs.step();
  for_rows(a, runs, [&](int64_t at, int64_t r) {
    if (step == 1 || n == 1) {
      load(to + r * n, from + at, nullptr, nullptr, nullptr, n);
      return;
    }
    uint16_t piece[kPiece];
    for (int64_t i = 0; i < n; i += kPiece) {
      const int64_t m = std::min(kPiece, n - i);
      codegen::gather_run(piece, from + at + i * step, step, m, 2);
      load(to + r * n + i, piece, nullptr, nullptr, nullptr, m);
    }
  });
}

void from_wide(const Array& a, const Array& wide) {
  const codegen::TileFn store = codegen::tiles().store[static_cast<int>(a.dtype)];
  auto* to = a.as<uint16_t>();
  const auto* from = wide.as<float>();
  const Runs runs(a, wide);
  const int64_t n = runs.row(), step = runs.step();
  for_rows(a, runs, [&](int64_t at, int64_t r) {
    if (step == 1 || n == 1) {
      store(to + at, from + r * n, nullptr, nullptr, nullptr, n);
      return;
    }
    uint16_t piece[kPiece];
    for (int64_t i = 0; i < n; i += kPiece) {
      const int64_t m = std::min(kPiece, n - i);
      store(piece, from + r * n + i, nullptr, nullptr, nullptr, m);
      codegen::scatter_run(to + at + i * step, piece, step, m, 2);
    }
  });
}

}  // namespace

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
  if (!a.shape || a.is_scalar || !is_short(a.dtype)) return;
  any_ = true;
  // The last dimension innermost, the others as they lie: heads that are parts of one row stay so.
  int order[kMaxRank];
  for (int d = 0; d < a.rank; ++d) order[d] = d;
  if (a.rank > 1 && a.strides) sort_dims(order, a.rank - 1, a.strides);
  int64_t step = 1;
  bool row_major = true;
  for (int i = a.rank; i-- > 0;) {
    strides[order[i]] = step;
    step *= a.shape[order[i]];
    row_major = row_major && order[i] == i;
  }
  a.dtype = DType::f32;
  a.strides = strides;
  a.contiguous = row_major;
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

std::shared_ptr<const Plan> prepare_widened(const KernelCall& c, const Kernel& kernel) {
  const WidenedCall wide(c);
  auto plan = std::make_shared<WidenedPlan>();
  plan->inner_at = plan->workspace = wide.bytes();
  if (kernel.prepare) {
    plan->inner = kernel.prepare(wide.call());
    plan->workspace += plan->inner->workspace;
  }
  return plan;
}

void run_widened(const KernelCall& c, const Kernel& kernel) {
  const auto& plan = *static_cast<const WidenedPlan*>(c.plan);
  const WidenedCall wide(c);
  wide.read(c);
  KernelCall inner = wide.call();
  inner.plan = plan.inner.get();
  inner.scratch = static_cast<char*>(c.scratch) + plan.inner_at;
  kernel.run(inner);
  wide.write(c);
}

}  // namespace tandem::detail
