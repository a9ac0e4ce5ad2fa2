// SPDX-License-Identifier: Apache-2.0
// Softmax, norms and their backward rows from the CPU's row programs (row_text_internal.h). Sums
// down the columns, gradients of weight and bias, are added by each block over its lines and then
// by one more kernel over the blocks.
#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <memory>

#include "tandem/backend/gpu/rows/register_internal.h"
#include "tandem/backend/gpu/rows/row_text_internal.h"
#include "tandem/base/error.h"
#include "tandem/codegen/row_programs.h"
#include "tandem/ops/nn/norm.h"
#include "tandem/ops/nn/softmax.h"

namespace tandem::gpu {

using codegen::RowCall;
using codegen::RowKernel;
using codegen::RowKind;
using codegen::RowProgram;
using codegen::RowWalk;

namespace {

constexpr int kLineThreads = 128, kMostLanes = 512;
constexpr int kMostKept = 96, kMostOfArray = 32;  // 4-byte registers of a thread for elements
constexpr int64_t kPartBlocks = 512, kLinesOfPart = 4;

// Lines of the matrices as groups of e elements?
bool fits_groups(const RowProgram& p, const RowWalk& w, int e) {
  bool fits = w.length % e == 0;
  for (int k = 0; k < w.rows.n_arrays; ++k) {
    if (codegen::kind_of(p, k) != RowKind::matrix) continue;
    fits &= w.stride[k] == 1;
    for (int d = 0; d < w.rows.rank; ++d) fits &= w.rows.stride[k][d] % e == 0;
  }
  return fits;
}

// Neighbouring lines lie side by side, neighbouring elements of a line do not.
bool lies_across(const RowProgram& p, const RowWalk& w) {
  for (int k = 0; k < w.rows.n_arrays; ++k) {
    if (codegen::kind_of(p, k) == RowKind::columns) return false;
    if (codegen::kind_of(p, k) != RowKind::matrix) continue;
    if (w.stride[k] == 1 || w.rows.inner_stride(k) != 1) return false;
  }
  return true;
}

const Array& array_of(const RowCall& c, int k) {
  const int n_in = static_cast<int>(c.kernel->program.ins.size());
  return k < n_in ? *c.in[k] : *c.out[k - n_in];
}

// Registers for an element of a line: of matrices that are read, of what stages keep, of sums.
int kept_arrays(const RowProgram& p) {
  int n = p.n_stored;
  for (const RowKind kind : p.ins) n += kind == RowKind::matrix;
  for (const RowKind kind : p.outs) n += kind == RowKind::columns;
  return n * (p.compute == DType::f64 ? 2 : 1);
}

int64_t divided_up(int64_t n, int64_t by) { return (n + by - 1) / by; }

}  // namespace

uint64_t RowCut::key() const {
  return static_cast<uint64_t>(threads) << 32 | static_cast<uint64_t>(lanes) << 16 |
         static_cast<uint64_t>(groups) << 8 | static_cast<uint64_t>(group) << 3 |
         uint64_t{aligned} << 2 | uint64_t{across} << 1 | uint64_t{warps};
}

RowCut make_row_cut(const RowCall& c, const RowWalk& w, bool warps) {
  const RowProgram& p = c.kernel->program;
  RowCut cut;
  size_t narrowest = 16, widest = 1;
  const int n = static_cast<int>(p.ins.size() + p.outs.size());
  bool sums = false;
  for (int k = 0; k < n; ++k) {
    sums |= k >= static_cast<int>(p.ins.size()) && codegen::kind_of(p, k) == RowKind::columns;
    if (codegen::kind_of(p, k) != RowKind::matrix) continue;
    narrowest = std::min(narrowest, size_of(array_of(c, k).dtype));
    widest = std::max(widest, size_of(array_of(c, k).dtype));
  }
  for (size_t e = std::min(16 / narrowest, 32 / widest); e > 1 && cut.group == 1; e /= 2) {
    if (fits_groups(p, w, static_cast<int>(e))) cut.group = static_cast<int>(e);
  }
  cut.across = cut.group == 1 && lies_across(p, w);
  cut.warps = warps && !cut.across && p.compute == DType::f32;
  const int64_t units = w.length / cut.group;
  const int64_t most = std::min(kMostKept / kept_arrays(p), kMostOfArray) / cut.group;
  if (cut.across) {
    cut.lanes = 8;
  } else {
    const auto all = static_cast<int64_t>(std::bit_ceil(static_cast<uint64_t>(units)));
    cut.lanes = static_cast<int>(std::min<int64_t>(all, kWarp));
  }
  const int most_lanes = cut.across ? 16 : kMostLanes;
  while (units > cut.lanes * most && cut.lanes < most_lanes) cut.lanes *= 2;
  cut.threads = cut.across ? cut.lanes * kWarp : std::max(cut.lanes, kLineThreads);
  const int64_t of_thread = divided_up(units, cut.lanes);
  for (const int groups : {1, 2, 3, 4, 6, 8, 12, 16, 24, 32}) {
    if (groups < of_thread) continue;
    if (groups <= most) cut.groups = groups;
    break;
  }
  if (of_thread <= most && cut.groups == 0) cut.groups = static_cast<int>(most);
  for (int k = 0; k < n; ++k) {
    const RowKind kind = codegen::kind_of(p, k);
    const bool moved = kind == RowKind::matrix ||
                       (kind == RowKind::columns && k < n - static_cast<int>(p.outs.size()));
    if (moved) cut.aligned &= lies_on_groups(array_of(c, k), cut.group);
  }
  TD_ASSERT(!sums || cut.groups > 0);
  cut.blocks = divided_up(w.n_rows, cut.lines());
  if (sums) cut.blocks = std::clamp(divided_up(cut.blocks, kLinesOfPart), int64_t{1}, kPartBlocks);
  return cut;
}

namespace {

struct RowsKernel : Built {
  KernelRef kernel = nullptr;
  std::vector<StageValue> values;
};

void argue_values(Arguments& a, const RowsKernel& made, const RowCall& c, int64_t length) {
  const RowProgram& p = c.kernel->program;
  std::vector<PlanValues> values;
  for (const codegen::TilePlan& plan : c.kernel->plans) {
    PlanValues& v = values.emplace_back(plan);
    for (size_t k = 0; k < p.ins.size(); ++k) {
      if (p.ins[k] != RowKind::number) continue;
      const Reg r = is_floating(p.in_types[k]) ? Reg::f64 : Reg::i64;
      v.set(static_cast<int>(k), codegen::register_bits(c.in[k]->scalar, r));
    }
    v.set(RowProgram::kCount,
          codegen::register_bits(Scalar(static_cast<double>(length)), Reg::f64));
    v.compute();
  }
  for (const StageValue& v : made.values) {
    argue_value(a, v.value.type, values[v.stage].bits(v.value.slot));
  }
}

size_t bytes_of_part(int64_t blocks, int64_t length, DType t) {
  return static_cast<size_t>(blocks * length) * size_of(t);
}
size_t padded_part(size_t bytes) { return (bytes + 255) / 256 * 256; }

void run_rows(const RowCall& c, const KernelCall& call) {
  Engine& e = engine_of(call.device);
  const RowProgram& p = c.kernel->program;
  const int n_in = static_cast<int>(p.ins.size()), n_out = static_cast<int>(p.outs.size());
  RowWalk w = codegen::make_row_walk(p, c.space, c.in, c.out);
  w.rows.normalise(-1);
  size_t largest = 0;
  for (int k = 0; k < n_in + n_out; ++k) {
    if (!array_of(c, k).is_scalar) largest = std::max(largest, span_of(array_of(c, k)));
  }
  const Walk rows(w.rows, static_cast<int64_t>(largest));
  const RowCut cut = make_row_cut(c, w, e.info().warp_matmul);
  const RowsKernel& k = e.built({c.kernel, rows.ways(), rows.shape_key() << 48 | cut.key()}, [&] {
    auto made = std::make_unique<RowsKernel>();
    RowText text(*c.kernel, rows, cut);
    made->kernel = e.build(text.source());
    made->values = std::move(text.values);
    return made;
  });
  Arguments a;
  const size_t bytes = bytes_of_part(cut.blocks, w.length, p.compute);
  Address part = address_of(call.scratch);
  for (int i = 0; i < n_out; ++i) {
    const bool sums = p.outs[static_cast<size_t>(i)] == RowKind::columns;
    sums ? void(a.address(part, bytes)) : argue_array(a, *c.out[i]);
    if (sums) part += static_cast<Address>(padded_part(bytes));
  }
  for (int i = 0; i < n_in; ++i) {
    if (p.ins[static_cast<size_t>(i)] != RowKind::number) argue_array(a, *c.in[i]);
  }
  argue_values(a, k, c, w.length);
  rows.argue(a);
  a.value(w.length);
  for (int i = 0; i < n_in + n_out; ++i) {
    if (codegen::kind_of(p, i) == RowKind::matrix) a.value(w.stride[i]);
  }
  e.launch(k.kernel, {static_cast<uint32_t>(cut.blocks)}, {static_cast<uint32_t>(cut.threads)}, a,
           e.stream(call.stream));
  part = address_of(call.scratch);
  for (int i = 0; i < n_out; ++i) {
    if (p.outs[static_cast<size_t>(i)] != RowKind::columns) continue;
    add_parts(call, part, p.compute, cut.blocks, *c.out[i]);
    part += static_cast<Address>(padded_part(bytes));
  }
}

// ---- the rows

template <bool log>
void softmax_run(const KernelCall& c) {
  if (c.out[0].numel == 0) return;
  RowCall r;
  codegen::make_softmax(c.in[0], c.out[0], static_cast<int>(c.get_attrs<SoftmaxAttrs>().dim), log,
                        r);
  run_rows(r, c);
}
template <bool log>
void softmax_backward_run(const KernelCall& c) {
  if (c.out[0].numel == 0) return;
  RowCall r;
  codegen::make_softmax_backward(c.in[0], c.in[1], c.out[0],
                                 static_cast<int>(c.get_attrs<SoftmaxAttrs>().dim), log, r);
  run_rows(r, c);
}
bool has_rank(const KernelCall& c) { return has_types(c) && c.in[0].rank > 0; }

codegen::NormArrays operands(const KernelCall& c, bool centred, bool backward) {
  if (backward) {
    const auto dims = c.get_attrs<NormBackwardAttrs>().dims;
    return codegen::norm_backward_arrays(c, centred, static_cast<int>(dims));
  }
  const auto& a = c.get_attrs<NormAttrs>();
  return codegen::norm_arrays(c, centred, static_cast<int>(a.dims), a.eps);
}
template <bool centred>
constexpr Kernel kNorm{[](const KernelCall& c) {
                         return has_rank(c) && codegen::norm_supported(operands(c, centred, false));
                       },
                       nullptr, nullptr,
                       [](const KernelCall& c) {
                         if (c.out[0].numel == 0) return;
                         RowCall r;
                         codegen::make_norm(operands(c, centred, false), r);
                         run_rows(r, c);
                       },
                       /*converts=*/true};
bool has_elements(const Array* a) { return a && a->shape && a->numel > 0; }
// Lines of which a thread can keep its part and the sums of all.
bool sums_fit(const codegen::NormArrays& a) {
  const Array* sums = has_elements(a.gw) ? a.gw : has_elements(a.gb) ? a.gb : nullptr;
  const int64_t most = kMostLanes * kMostKept / 4 / (a.x->dtype == DType::f64 ? 2 : 1);
  return !sums || (a.x->numel > 0 && sums->numel <= most);
}
// Gradients of weight and bias over no lines.
void fill_sums(const KernelCall& c) {
  Engine& e = engine_of(c.device);
  for (int i = 1; i < c.n_out; ++i) {
    const Array& sums = c.out[i];
    if (!has_elements(&sums) || !sums.data) continue;
    e.check(e.context().fill(address_of(sums.data), 0, span_of(sums), e.stream(c.stream)));
  }
}
template <bool centred>
std::shared_ptr<const Plan> prepare_norm_backward(const KernelCall& c) {
  const codegen::NormArrays a = operands(c, centred, true);
  auto plan = std::make_shared<Plan>();
  for (const Array* sums : {a.gw, a.gb}) {
    if (!has_elements(sums)) continue;
    const int64_t blocks = std::min(kPartBlocks, a.x->numel / sums->numel);
    plan->workspace +=
        padded_part(bytes_of_part(blocks, sums->numel, accumulation_dtype(a.x->dtype)));
  }
  return plan;
}
template <bool centred>
constexpr Kernel kNormBackward{[](const KernelCall& c) {
                                 const codegen::NormArrays a = operands(c, centred, true);
                                 return has_rank(c) && sums_fit(a) && codegen::norm_supported(a);
                               },
                               nullptr, prepare_norm_backward<centred>,
                               [](const KernelCall& c) {
                                 if (c.out[0].numel == 0) return fill_sums(c);
                                 RowCall r;
                                 codegen::make_norm_backward(operands(c, centred, true), r);
                                 run_rows(r, c);
                               },
                               /*converts=*/true};

}  // namespace

// Each takes every float for its operands and results: Kernel::converts.
void register_row_programs(DeviceKind kind) {
  register_kernel(kind, op::softmax, {has_rank, nullptr, nullptr, softmax_run<false>, true});
  register_kernel(kind, op::log_softmax, {has_rank, nullptr, nullptr, softmax_run<true>, true});
  register_kernel(kind, op::softmax_backward,
                  {has_rank, nullptr, nullptr, softmax_backward_run<false>, true});
  register_kernel(kind, op::log_softmax_backward,
                  {has_rank, nullptr, nullptr, softmax_backward_run<true>, true});
  register_kernel(kind, op::layer_norm, kNorm<true>);
  register_kernel(kind, op::rms_norm, kNorm<false>);
  register_kernel(kind, op::layer_norm_backward, kNormBackward<true>);
  register_kernel(kind, op::rms_norm_backward, kNormBackward<false>);
}

}  // namespace tandem::gpu
