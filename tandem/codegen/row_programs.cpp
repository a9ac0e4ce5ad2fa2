// SPDX-License-Identifier: Apache-2.0
// Softmax and norms written as row programs; a variant is one number (dtypes and what is there),
// from which its program is made once.
#include "tandem/codegen/row_programs.h"

#include "tandem/codegen/row_program.h"

namespace tandem::codegen {
namespace {

// ---- variants: 4 bits a dtype, then flags
constexpr uint64_t type_bits(DType t) { return static_cast<uint64_t>(t); }
DType type_at(uint64_t key, int place) { return static_cast<DType>(key >> (4 * place) & 15); }
constexpr uint64_t kFlags = uint64_t{1} << 32;
bool flag(uint64_t key, int k) { return key / kFlags >> k & 1; }

bool present(const Array* a) { return a && a->shape && a->data; }
bool wanted(const Array* a) { return present(a) && a->numel > 0; }

// ---- softmax
RowProgram softmax_program(uint64_t key) {
  const DType t = type_at(key, 0);
  RowBuilder b(accumulation_dtype(t));
  const E x = b.input(RowKind::matrix, t);
  b.output(RowKind::matrix, type_at(key, 1));
  const E top = b.fold(Fold::max, x);
  b.next_stage();
  const E e = exp(x - top);
  if (flag(key, 0)) {
    const E sum = b.fold(Fold::add, e);
    b.next_stage();
    b.write(0, (x - top) - log(sum));
  } else {
    const E kept = b.store(e);
    const E sum = b.fold(Fold::add, e);
    b.next_stage();
    b.write(0, kept * (1.0 / sum));
  }
  return b.finish();
}

RowProgram softmax_backward_program(uint64_t key) {
  const DType t = type_at(key, 0);
  RowBuilder b(accumulation_dtype(t));
  const E g = b.input(RowKind::matrix, type_at(key, 1)), y = b.input(RowKind::matrix, t);
  b.output(RowKind::matrix, type_at(key, 2));
  const bool log = flag(key, 0);
  const E sum = b.fold(Fold::add, log ? g : g * y);
  b.next_stage();
  b.write(0, log ? g - exp(y) * sum : (g - sum) * y);
  return b.finish();
}

// ---- norms
enum NormFlags { kCentred, kWeight, kBias, kStats, kGradWeight, kGradBias };

RowProgram norm_program(uint64_t key) {
  const DType t = type_at(key, 0);
  const bool centred = flag(key, kCentred);
  RowBuilder b(accumulation_dtype(t));
  const E x = b.input(RowKind::matrix, t), eps = b.input(RowKind::number, DType::f64);
  E w, bias;
  if (flag(key, kWeight)) w = b.input(RowKind::columns, type_at(key, 1));
  if (flag(key, kBias)) bias = b.input(RowKind::columns, type_at(key, 2));
  b.output(RowKind::matrix, type_at(key, 3));
  if (flag(key, kStats) && centred) b.output(RowKind::row, accumulation_dtype(t));
  if (flag(key, kStats)) b.output(RowKind::row, accumulation_dtype(t));
  E distance = x, mean;
  if (centred) {
    mean = b.fold(Fold::add, x) / b.count();
    b.next_stage();
    distance = x - mean;
  }
  const E squares = b.fold(Fold::add, square(distance));
  b.next_stage();
  const E rstd = rsqrt(squares / b.count() + eps);
  E y = distance * rstd;
  if (w.defined()) y = y * w;
  if (bias.defined()) y = y + bias;
  b.write(0, y);
  b.next_stage();
  int next = 1;
  if (flag(key, kStats) && centred) b.write(next++, mean);
  if (flag(key, kStats)) b.write(next, rstd);
  return b.finish();
}

RowProgram norm_backward_program(uint64_t key) {
  const DType t = type_at(key, 0);
  const bool centred = flag(key, kCentred);
  RowBuilder b(accumulation_dtype(t));
  const E g = b.input(RowKind::matrix, type_at(key, 1)), x = b.input(RowKind::matrix, t);
  E mean, w;
  if (centred) mean = b.input(RowKind::row, accumulation_dtype(t));
  const E rstd = b.input(RowKind::row, accumulation_dtype(t));
  if (flag(key, kWeight)) w = b.input(RowKind::columns, type_at(key, 2));
  b.output(RowKind::matrix, type_at(key, 3));
  if (flag(key, kGradWeight)) b.output(RowKind::columns, type_at(key, 4));
  if (flag(key, kGradBias)) b.output(RowKind::columns, type_at(key, 5));
  const E xhat = (centred ? x - mean : x) * rstd;
  const E gw = w.defined() ? g * w : g;
  const E along = b.fold(Fold::add, gw * xhat);
  E level;
  if (centred) level = b.fold(Fold::add, gw);
  b.next_stage();
  E gx = gw - xhat * (along / b.count());
  if (centred) gx = gx - level / b.count();
  b.write(0, gx * rstd);
  int next = 1;
  if (flag(key, kGradWeight)) b.write(next++, g * xhat);
  if (flag(key, kGradBias)) b.write(next, g);
  return b.finish();
}

RowSpace last_dims(const Array& x, int dims) { return {&x, x.rank - dims, x.rank}; }

}  // namespace

namespace {

void run(const RowCall& c) { run_row_kernel(*c.kernel, c.space, c.in, c.out); }

const Array* input(const KernelCall& c, int i) { return i < c.n_in ? &c.in[i] : nullptr; }
const Array* output(const KernelCall& c, int i) { return i < c.n_out ? &c.out[i] : nullptr; }

}  // namespace

void make_softmax(const Array& x, const Array& y, int dim, bool log, RowCall& c) {
  c.in[0] = &x;
  c.out[0] = &y;
  c.space = {&x, dim, dim + 1};
  c.kernel =
      &row_kernel(type_bits(x.dtype) | type_bits(y.dtype) << 4 | kFlags * log, softmax_program);
}

void run_softmax(const Array& x, const Array& y, int dim, bool log) {
  if (x.numel == 0) return;
  RowCall c;
  make_softmax(x, y, dim, log, c);
  run(c);
}

void make_softmax_backward(const Array& gy, const Array& y, const Array& gx, int dim, bool log,
                           RowCall& c) {
  c.in[0] = &gy;
  c.in[1] = &y;
  c.out[0] = &gx;
  c.space = {&y, dim, dim + 1};
  const uint64_t key =
      type_bits(y.dtype) | type_bits(gy.dtype) << 4 | type_bits(gx.dtype) << 8 | kFlags * log;
  c.kernel = &row_kernel(key, softmax_backward_program);
}

void run_softmax_backward(const Array& gy, const Array& y, const Array& gx, int dim, bool log) {
  if (y.numel == 0) return;
  RowCall c;
  make_softmax_backward(gy, y, gx, dim, log, c);
  run(c);
}

NormArrays norm_arrays(const KernelCall& c, bool centred, int dims, double eps) {
  NormArrays a;
  a.centred = centred;
  a.dims = dims;
  a.eps = eps;
  a.x = input(c, 0);
  a.w = input(c, 1);
  if (centred) a.b = input(c, 2);
  a.y = output(c, 0);
  if (centred) a.mean = output(c, 1);
  a.rstd = output(c, centred ? 2 : 1);
  return a;
}

NormArrays norm_backward_arrays(const KernelCall& c, bool centred, int dims) {
  NormArrays a;
  a.centred = centred;
  a.dims = dims;
  a.gy = input(c, 0);
  a.x = input(c, 1);
  if (centred) a.mean = input(c, 2);
  a.rstd = input(c, centred ? 3 : 2);
  a.w = input(c, centred ? 4 : 3);
  a.gx = output(c, 0);
  a.gw = output(c, 1);
  if (centred) a.gb = output(c, 2);
  return a;
}

bool norm_supported(const NormArrays& a) {
  if (a.gy) {  // what the forward row saved, in the type that it saves
    const DType t = a.x->dtype == DType::f64 ? DType::f64 : DType::f32;
    if (a.rstd->dtype != t || (a.centred && a.mean->dtype != t)) return false;
  }
  const Array* matrices[] = {a.x, a.gy, a.y, a.gx};
  if (!rows_merge(last_dims(*a.x, a.dims), matrices, 4)) return false;
  for (const Array* v : {a.w, a.b, a.gw, a.gb}) {
    if (v && v->shape && v->numel > 0 && !v->contiguous) return false;
  }
  return true;
}

void make_norm(const NormArrays& a, RowCall& c) {
  c.number.is_scalar = true;
  c.number.scalar = Scalar(a.eps);
  c.in[0] = a.x;
  c.in[1] = &c.number;
  c.out[0] = a.y;
  int n_in = 2, n_out = 1;
  uint64_t key = type_bits(a.x->dtype) | type_bits(a.y->dtype) << 12;
  uint64_t flags = uint64_t{a.centred} << kCentred;
  if (present(a.w)) {
    c.in[n_in++] = a.w;
    key |= type_bits(a.w->dtype) << 4;
    flags |= 1u << kWeight;
  }
  if (present(a.b)) {
    c.in[n_in++] = a.b;
    key |= type_bits(a.b->dtype) << 8;
    flags |= 1u << kBias;
  }
  if (present(a.rstd)) {
    if (a.centred) c.out[n_out++] = a.mean;
    c.out[n_out] = a.rstd;
    flags |= 1u << kStats;
  }
  c.kernel = &row_kernel(key | kFlags * flags, norm_program);
  c.space = last_dims(*a.x, a.dims);
}

void run_norm(const NormArrays& a) {
  if (a.x->numel == 0) return;
  RowCall c;
  make_norm(a, c);
  run(c);
}

void make_norm_backward(const NormArrays& a, RowCall& c) {
  c.in[0] = a.gy;
  c.in[1] = a.x;
  c.out[0] = a.gx;
  int n_in = 2, n_out = 1;
  uint64_t key = type_bits(a.x->dtype) | type_bits(a.gy->dtype) << 4 | type_bits(a.gx->dtype) << 12;
  uint64_t flags = uint64_t{a.centred} << kCentred;
  if (a.centred) c.in[n_in++] = a.mean;
  c.in[n_in++] = a.rstd;
  if (present(a.w)) {
    c.in[n_in] = a.w;
    key |= type_bits(a.w->dtype) << 8;
    flags |= 1u << kWeight;
  }
  if (wanted(a.gw)) {
    c.out[n_out++] = a.gw;
    key |= type_bits(a.gw->dtype) << 16;
    flags |= 1u << kGradWeight;
  }
  if (wanted(a.gb)) {
    c.out[n_out] = a.gb;
    key |= type_bits(a.gb->dtype) << 20;
    flags |= 1u << kGradBias;
  }
  c.kernel = &row_kernel(key | kFlags * flags, norm_backward_program);
  c.space = last_dims(*a.x, a.dims);
}

void run_norm_backward(const NormArrays& a) {
  RowCall c;
  make_norm_backward(a, c);
  run(c);
}

}  // namespace tandem::codegen
