// SPDX-License-Identifier: Apache-2.0
// Rows with a thread an element or a line that fit nowhere else: gcd, nextafter, cdist,
// linear_scan, dynamic_slice, dynamic_update. Bits are the CPU's.
#include "tandem/backend/gpu/rows/dense_internal.h"
#include "tandem/backend/gpu/rows/register_internal.h"
#include "tandem/graph/apply.h"
#include "tandem/ops/index/index.h"
#include "tandem/ops/matmul/matrix.h"
#include "tandem/ops/pointwise/exact.h"
#include "tandem/ops/reduce/scan.h"
#include "tandem/ops/view/view.h"

namespace tandem::gpu {
namespace {

// Magnitudes without sign, so that the least number has one.
constexpr DenseKernel kGcd{.name = "gcd", .body = {R"td_text(
  td_u64 a = (td_u64)I0(me), b = (td_u64)I1(me);
  if (I0(me) < 0) a = 0 - a;
  if (I1(me) < 0) b = 0 - b;
  while (b != 0) {
    const td_u64 rest = a % b;
    a = b;
    b = rest;
  }
  P0(me, (TO0)a);
)td_text"}};

// The bits of floating numbers of one sign are ordered like the numbers. They are taken from the
// arrays as stored: BITS is their unsigned type, SIGN its highest bit.
constexpr const char* kNeighbourText =
    R"td_text(
  const TI0 x = I0(me), to = I1(me);
  const td_global BITS* a = (const td_global BITS*)td_in0;
  const td_global BITS* b = (const td_global BITS*)td_in1;
  BITS bits = a[me];
  if (x == x) {
    if (to != to || x == to)
      bits = b[me];
    else if (x == 0)
      bits = (BITS)((to < 0 ? SIGN : 0) + 1);
    else
      bits = (BITS)((x < to) == (x > 0) ? bits + 1 : bits - 1);
  }
  ((td_global BITS*)td_out0)[me] = bits;
#undef BITS
#undef SIGN
)td_text";
constexpr DenseKernel kNextafter16{
    .name = "nextafter", .body = {"#define BITS td_u16\n#define SIGN 0x8000u\n", kNeighbourText}};
constexpr DenseKernel kNextafter32{
    .name = "nextafter",
    .body = {"#define BITS td_u32\n#define SIGN 0x80000000u\n", kNeighbourText}};
constexpr DenseKernel kNextafter64{
    .name = "nextafter",
    .body = {"#define BITS td_u64\n#define SIGN ((td_u64)1 << 63)\n", kNeighbourText}};

void run_gcd(const KernelCall& c) { DenseCall(c).run(kGcd, c.out[0].numel); }
void run_nextafter(const KernelCall& c) {
  const size_t size = size_of(c.out[0].dtype);
  DenseCall(c).run(size == 2   ? kNextafter16
                   : size == 4 ? kNextafter32
                               : kNextafter64,
                   c.out[0].numel);
}

// Four sums, as in the row's reference.
constexpr DenseKernel kCdist{.name = "cdist", .body = {R"td_text(
  const td_i64 a = me / rows * m, b = (me / rows / own * rows + me % rows) * m;
  TO0 sum0 = 0, sum1 = 0, sum2 = 0, sum3 = 0;
  td_i64 e = 0;
#define SQUARE(k) (I0(a + e + k) - I1(b + e + k)) * (I0(a + e + k) - I1(b + e + k))
  for (; e + 4 <= m; e += 4) {
    sum0 += SQUARE(0);
    sum1 += SQUARE(1);
    sum2 += SQUARE(2);
    sum3 += SQUARE(3);
  }
  for (; e < m; ++e) sum0 += SQUARE(0);
#undef SQUARE
  P0(me, MATH(tdm_sqrt)((sum0 + sum1) + (sum2 + sum3)));
)td_text"}};

void run_cdist(const KernelCall& c) {
  const Array &a = c.in[0], &b = c.in[1];
  if (c.out[0].numel == 0) return;
  DenseCall call(c);
  call.number("m", a.shape[a.rank - 1]).number("own", a.shape[a.rank - 2]);
  call.number("rows", b.shape[b.rank - 2]).run(kCdist, c.out[0].numel);
}

// Sizes around dimension d: [outer, size, inner].
int64_t inner_size(const Array& a, int d) {
  int64_t n = 1;
  for (int i = d + 1; i < a.rank; ++i) n *= a.shape[i];
  return n;
}

constexpr DenseKernel kLinearScan{.name = "linear_scan", .body = {R"td_text(
  const td_i64 first = me / inner * n * inner + me % inner;
  TO0 state = 0;
  for (td_i64 k = 0; k < n; ++k) {
    const td_i64 at = first + (reverse ? n - 1 - k : k) * inner;
    state = I0(at) * state + I1(at);
    P0(at, state);
  }
)td_text"}};

void run_linear_scan(const KernelCall& c) {
  const auto& attrs = c.get_attrs<LinearScanAttrs>();
  const Array& y = c.out[0];
  if (y.numel == 0) return;
  const int d = normalize_dim(attrs.dim, y.rank);
  DenseCall call(c);
  call.number("n", y.shape[d]).number("inner", inner_size(y, d));
  call.number("reverse", int64_t{attrs.reverse}).run(kLinearScan, y.numel / y.shape[d]);
}

// ---- a part of one dimension whose start is an operand

constexpr const char* kStartText =
    R"td_text(
  td_i64 start = I1(0);
  if (start < 0 || start > n - length) {
    if (me == 0) td_report(1, start);
    start = start < 0 ? 0 : n - length;
)td_text";
constexpr DenseKernel kDynamicSlice{
    .name = "dynamic_slice", .reports = true, .body = {kStartText, R"td_text(
  }
  if (me < elements) {
    const td_i64 j = me % inner, k = me / inner % length, o = me / inner / length;
    P0(me, I0((o * n + start + k) * inner + j));
  }
)td_text"}};
// The result is unchanged after an error.
constexpr DenseKernel kDynamicUpdate{
    .name = "dynamic_update", .reports = true, .body = {kStartText, R"td_text(
    return;
  }
  if (me < elements) {
    const td_i64 j = me % inner, k = me / inner % length, o = me / inner / length;
    P0((o * n + start + k) * inner + j, I2(me));
  }
)td_text"}};

void run_part(const KernelCall& c, const DenseKernel& kernel, int64_t dim, const Array& whole,
              const Array& part) {
  const int d = normalize_dim(dim, whole.rank);
  DenseCall call(c);
  call.number("n", whole.shape[d]).number("length", part.shape[d]);
  call.number("inner", inner_size(whole, d)).number("elements", part.numel);
  call.run(kernel, std::max<int64_t>(part.numel, 1));
}
void run_dynamic_slice_row(const KernelCall& c) {
  run_part(c, kDynamicSlice, c.get_attrs<DynamicSliceAttrs>().dim, c.in[0], c.out[0]);
}
void run_dynamic_update_row(const KernelCall& c) {
  start_with(c, &c.in[0]);
  run_part(c, kDynamicUpdate, c.get_attrs<ShapeAttrs>().shape[0].value(), c.out[0], c.in[2]);
}

}  // namespace

void register_elements(DeviceKind kind) {
  register_kernel(kind, op::gcd, {has_f64, nullptr, prepare_dense, run_gcd});
  register_kernel(kind, op::nextafter, {has_f64, nullptr, prepare_dense, run_nextafter});
  register_kernel(kind, op::cdist, {has_f64, nullptr, prepare_dense, run_cdist});
  register_kernel(kind, op::linear_scan, {has_f64, nullptr, prepare_dense, run_linear_scan});
  register_kernel(kind, op::dynamic_slice,
                  {has_f64, nullptr, prepare_dense, run_dynamic_slice_row});
  register_kernel(kind, op::dynamic_update,
                  {has_f64, nullptr, prepare_dense, run_dynamic_update_row});
}

}  // namespace tandem::gpu
