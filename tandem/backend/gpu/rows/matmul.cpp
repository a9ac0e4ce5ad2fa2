// SPDX-License-Identifier: Apache-2.0
// matmul and linear, with batch dimensions and transposed operands without copies: by the library
// of the device's vendor where it takes them, else by a tiled kernel.
#include <fmt/format.h>

#include "tandem/backend/gpu/matmul_library.h"
#include "tandem/backend/gpu/rows/call_internal.h"
#include "tandem/backend/gpu/rows/register_internal.h"
#include "tandem/backend/gpu/rows/tiled_internal.h"
#include "tandem/graph/precision.h"
#include "tandem/ops/matmul/matmul.h"

namespace tandem::gpu {
namespace {

// y[m, n] = a[m, k] b[k, n] for each matrix of a batch; strides in elements.
struct Matmul {
  const Array *a, *b, *y, *bias = nullptr;
  int64_t m = 0, n = 0, k = 0;
  int64_t am = 0, ak = 0, bk = 0, bn = 0, ym = 0, yn = 0;
  codegen::TileLoop batch;  // arrays: y, a, b

  int per_thread() const { return tile_per_thread(m, n); }
};

// The dimensions before the last two, as a loop over y's with the others broadcast.
void set_batch(Matmul& p, int last) {
  const Array* arrays[] = {p.y, p.a, p.b};
  codegen::TileLoop& loop = p.batch;
  loop.n_arrays = 3;
  loop.rank = p.y->rank - last;
  for (int d = 0; d < loop.rank; ++d) loop.size[d] = p.y->shape[d];
  for (int i = 0; i < 3; ++i) {
    const Array& x = *arrays[i];
    const int lead = p.y->rank - x.rank;
    for (int d = 0; d < loop.rank; ++d) {
      const bool there = d >= lead && x.shape[d - lead] != 1;
      loop.stride[i][d] = there ? x.strides[d - lead] : 0;
    }
  }
  loop.normalise(-1);
  // One matrix b for all: the matrices of a are the rows of a taller one.
  const bool tall = loop.rank == 1 && loop.stride[2][0] == 0 && loop.size[0] > 1 &&
                    loop.stride[1][0] == p.m * p.am && loop.stride[0][0] == p.m * p.ym;
  if (!tall) return;
  p.m *= loop.size[0];
  loop.size[0] = 1;
  loop.normalise(-1);
}

Matmul matmul_of(const KernelCall& c) {
  const auto& at = c.get_attrs<MatmulAttrs>();
  Matmul p{&c.in[0], &c.in[1], &c.out[0]};
  const int ra = p.a->rank, rb = p.b->rank, ry = p.y->rank;
  const int am = ra - (at.trans_a ? 1 : 2), ak = ra - (at.trans_a ? 2 : 1);
  const int bk = rb - (at.trans_b ? 1 : 2), bn = rb - (at.trans_b ? 2 : 1);
  p.m = p.a->shape[am];
  p.k = p.a->shape[ak];
  p.n = p.b->shape[bn];
  p.am = p.a->strides[am];
  p.ak = p.a->strides[ak];
  p.bk = p.b->strides[bk];
  p.bn = p.b->strides[bn];
  p.ym = p.y->strides[ry - 2];
  p.yn = p.y->strides[ry - 1];
  set_batch(p, 2);
  return p;
}

// x [..., in] and w [out, in]: rows of x are a batch of matrices of one row, which becomes tall.
Matmul linear_of(const KernelCall& c) {
  Matmul p{&c.in[0], &c.in[1], &c.out[0]};
  if (c.n_in > 2 && c.in[2].present()) p.bias = &c.in[2];
  const int rx = p.a->rank, ry = p.y->rank;
  const bool matrix = rx >= 2;
  p.m = matrix ? p.a->shape[rx - 2] : 1;
  p.k = p.a->shape[rx - 1];
  p.n = p.b->shape[0];
  p.am = matrix ? p.a->strides[rx - 2] : 0;
  p.ak = p.a->strides[rx - 1];
  p.bk = p.b->strides[1];
  p.bn = p.b->strides[0];
  p.ym = matrix ? p.y->strides[ry - 2] : 0;
  p.yn = p.y->strides[ry - 1];
  const Array w = *p.b;
  Array none = w;  // w has no batch dimensions
  none.rank = 0;
  p.b = &none;
  set_batch(p, matrix ? 2 : 1);
  p.b = &c.in[1];
  return p;
}

TiledText matmul_text(const Matmul& p, const Walk& batch) {
  const DType t = p.y->dtype;
  TiledText text;
  text.name = "matmul";
  text.y = text.a = text.b = t;
  text.per_thread = p.per_thread();
  text.a_along_k = p.ak == 1;
  text.b_along_k = p.bk == 1;
  if (p.bias) text.inputs.push_back({Parameter::in, word_of(t), "bias"});
  for (const char* name : {"am", "ak", "bk", "bn", "ym", "yn"}) text.numbers.push_back(name);
  text.batch = batch.lines("z", fmt::format("({})tile", batch.index()));
  text.load_a =
      fmt::format("v = {};", text.element("a", batch.place(1, "z") + " + row * am + at * ak"));
  text.load_b =
      fmt::format("v = {};", text.element("b", batch.place(2, "z") + " + at * bk + col * bn"));
  text.place = batch.place(0, "z") + " + row * ym + col * yn";
  if (p.bias) text.added = text.element("bias", "col");
  return text;
}

void run_matmul(const KernelCall& c, const Matmul& p) {
  if (p.y->numel == 0) return;
  Engine& e = engine_of(c.device);
  const Walk batch(p.batch, 0);
  const uint64_t variant =
      uint64_t{p.ak == 1} | uint64_t{p.bk == 1} << 1 | uint64_t{p.bias != nullptr} << 2 |
      static_cast<uint64_t>(p.per_thread()) << 3 | static_cast<uint64_t>(p.y->dtype) << 8;
  const KernelId id{&op::matmul, batch.ways(), variant << 16 | batch.shape_key()};
  const KernelRef k = plain_kernel(e, id, [&] {
    KernelSource source = matmul_text(p, batch).source();
    batch.declare(source, "z");
    return source;
  });
  Arguments a;
  argue_array(a, *p.y);
  argue_array(a, *p.a);
  argue_array(a, *p.b);
  if (p.bias) argue_array(a, *p.bias);
  const Extent blocks = argue_tiles(a, p.per_thread(), batch.count(), p.m, p.n, p.k);
  for (const int64_t v : {p.am, p.ak, p.bk, p.bn, p.ym, p.yn}) a.value(v);
  batch.argue(a);
  e.launch(k, blocks, {TiledText::kBlock}, a, e.stream(c.stream));
}

// ---- the vendor's library

// A call as matmuls of the library: the innermost dimension of the batch is one call's, the others
// are calls.
struct LibraryPlan : Plan {
  std::unique_ptr<MatmulPlan> matmul;  // nullptr: the tiled kernel
  codegen::TileLoop calls;             // arrays: y, a, b
  int64_t n_calls = 1;
};
constexpr int64_t kMostCalls = 64;

// One side's stride is 1, and lines do not overlap.
bool line_of(int64_t along_k, int64_t across, int64_t k, int64_t other, bool& is_along_k,
             int64_t& line) {
  is_along_k = along_k == 1 && (across >= k || other == 1);
  line = is_along_k ? across : along_k;
  return is_along_k || (across == 1 && (along_k >= other || k == 1));
}

bool library_problem(const Matmul& p, MatmulProblem& q, LibraryPlan& plan) {
  if (p.y->numel == 0 || p.k == 0 || p.yn != 1 || (p.ym < p.n && p.m > 1)) return false;
  q.dtype = p.y->dtype;
  q.tf32 = float32_matmul_precision() == MatmulPrecision::tf32;
  q.bias = p.bias != nullptr;
  q.m = p.m;
  q.n = p.n;
  q.k = p.k;
  q.y_line = p.ym;
  if (!line_of(p.ak, p.am, p.k, p.m, q.a_along_k, q.a_line)) return false;
  if (!line_of(p.bk, p.bn, p.k, p.n, q.b_along_k, q.b_line)) return false;
  plan.calls = p.batch;
  if (const int last = p.batch.rank - 1; last >= 0) {
    q.count = p.batch.size[last];
    q.y_next = p.batch.stride[0][last];
    q.a_next = p.batch.stride[1][last];
    q.b_next = p.batch.stride[2][last];
    plan.calls.rank = last;
  }
  for (int d = 0; d < plan.calls.rank; ++d) plan.n_calls *= plan.calls.size[d];
  return plan.n_calls <= kMostCalls;
}

std::shared_ptr<const Plan> plan_matmul(const KernelCall& c, const Matmul& p) {
  auto plan = std::make_shared<LibraryPlan>();
  Engine& e = engine_of(c.device);
  Status status;
  MatmulLibrary* library = e.context().matmul_library(status);
  if (!library) {
    static std::once_flag said;
    say_library_is_off(said, e, "matmuls", status);
    return plan;
  }
  MatmulProblem problem;
  if (!library_problem(p, problem, *plan)) return plan;
  status = library->plan(problem, plan->matmul);
  if (status.code() == Code::unavailable) return plan;  // the library does not take it
  e.check(status);
  plan->workspace = plan->matmul->workspace;
  return plan;
}

// False where an address is not aligned as the plan expects it.
bool run_by_library(const KernelCall& c, const Matmul& p) {
  const auto& plan = *static_cast<const LibraryPlan*>(c.plan);
  if (!plan.matmul) return false;
  const auto bytes = static_cast<int64_t>(size_of(p.y->dtype));
  MatmulOperands first{address_of(p.a->data), address_of(p.b->data),
                       p.bias ? address_of(p.bias->data) : 0, address_of(p.y->data),
                       address_of(c.scratch)};
  Address low = first.a | first.b | first.bias | first.y;
  const codegen::TileLoop& calls = plan.calls;
  for (int d = 0; d < calls.rank; ++d) {
    for (int i = 0; i < 3; ++i) low |= static_cast<Address>(calls.stride[i][d] * bytes);
  }
  if (low % kMatmulAlignment != 0) return false;
  Engine& e = engine_of(c.device);
  for (int64_t i = 0; i < plan.n_calls; ++i) {
    MatmulOperands at = first;
    int64_t rest = i;
    for (int d = calls.rank - 1; d >= 0; --d) {
      const int64_t place = rest % calls.size[d] * bytes;
      rest /= calls.size[d];
      at.y += static_cast<Address>(place * calls.stride[0][d]);
      at.a += static_cast<Address>(place * calls.stride[1][d]);
      at.b += static_cast<Address>(place * calls.stride[2][d]);
    }
    const StreamRef stream = e.stream(c.stream);
    e.watched("cublasLt", stream, [&] { e.check(plan.matmul->run(at, stream)); });
  }
  return true;
}

void run(const KernelCall& c, const Matmul& p) {
  if (!run_by_library(c, p)) run_matmul(c, p);
}

bool bias_is_dense(const KernelCall& c) {
  return has_types(c) && (c.n_in < 3 || !c.in[2].present() || c.in[2].contiguous);
}

}  // namespace

void register_matmul(DeviceKind kind) {
  register_kernel(
      kind, op::matmul,
      {has_types, nullptr, [](const KernelCall& c) { return plan_matmul(c, matmul_of(c)); },
       [](const KernelCall& c) { run(c, matmul_of(c)); }});
  register_kernel(
      kind, op::linear,
      {bias_is_dense, nullptr, [](const KernelCall& c) { return plan_matmul(c, linear_of(c)); },
       [](const KernelCall& c) { run(c, linear_of(c)); }});
}

}  // namespace tandem::gpu
