// SPDX-License-Identifier: Apache-2.0
// Reductions and scans from the expressions of their rows. How a reduction is cut follows from the
// shape alone, so its bits are the same in every run; few kept elements of many are cut into
// pieces, which a second kernel combines.
#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <memory>

#include "tandem/backend/gpu/rows/reduce_text_internal.h"
#include "tandem/backend/gpu/rows/register_internal.h"
#include "tandem/base/error.h"
#include "tandem/graph/apply.h"
#include "tandem/graph/reduce_attrs.h"

namespace tandem::gpu {

using codegen::ReduceGeometry;
using codegen::ReduceProgram;
using codegen::TileLoop;

namespace {

constexpr int64_t kBlocksWanted = 1024;  // so that all processors have enough
constexpr int64_t kUnitsOfThread = 8;    // of a piece, at least
constexpr size_t kMostStateBytes = 64;   // of a thread's group

int64_t rounded_up(int64_t n) {
  return static_cast<int64_t>(std::bit_ceil(static_cast<uint64_t>(std::max<int64_t>(n, 1))));
}

bool has_stride_one(const TileLoop& loop) {
  for (int d = 0; d < loop.rank; ++d) {
    if (loop.size[d] > 1 && loop.stride[0][d] == 1) return true;
  }
  return false;
}

ReduceGeometry geometry_of(const KernelCall& c) {
  ReduceGeometry g = codegen::make_reduce_geometry(c);
  if (has_stride_one(g.kept)) g.kept.normalise(0);
  return g;
}

// Can groups of e kept elements be taken: side by side in all arrays, and parts of all strides?
bool fits_columns(const ReduceGeometry& g, int e) {
  const TileLoop& kept = g.kept;
  bool fits = kept.inner() % e == 0;
  for (int k = 0; k < kept.n_arrays; ++k) {
    fits &= kept.inner_stride(k) == 1;
    for (int d = 0; d + 1 < kept.rank; ++d) fits &= kept.stride[k][d] % e == 0;
  }
  for (int d = 0; d < g.reduced.rank; ++d) fits &= g.reduced.stride[0][d] % e == 0;
  return fits;
}
bool fits_rows(const ReduceGeometry& g, int e) {
  if (g.reduced.rank != 1 || g.reduced.stride[0][0] != 1) return false;
  if (g.n_kept == 1) return true;
  bool fits = g.n_reduced % e == 0;
  for (int d = 0; d < g.kept.rank; ++d) fits &= g.kept.stride[0][d] % e == 0;
  return fits;
}

}  // namespace

int lanes_for(int64_t n, int64_t others) {
  const int64_t along = std::min<int64_t>(rounded_up(n), 32);
  return static_cast<int>(
      std::max(along, kReduceThreads / std::min<int64_t>(rounded_up(others), kReduceThreads)));
}

ReduceCut::ReduceCut(const ReduceGeometry& g, const ReduceProgram& p, const KernelCall& c) {
  const bool side_by_side = g.kept.inner() > 1 && g.kept.inner_stride(0) == 1;
  columns = g.n_kept > 1 && (side_by_side || (!has_stride_one(g.reduced) && !g.rows));
  size_t bytes = 0;
  for (int k = 0; k < p.n_states; ++k) bytes += size_of(codegen::dtype_of_reg(p.state[k]));
  for (int e = static_cast<int>(16 / size_of(c.in[0].dtype)); e > 1 && group == 1; e /= 2) {
    if (columns && static_cast<size_t>(e) * bytes > kMostStateBytes) continue;
    if (columns ? fits_columns(g, e) : fits_rows(g, e)) group = e;
  }
  aligned = lies_on_groups(c.in[0], group);
  const int64_t units = (columns ? g.n_kept : g.n_reduced) / group;
  if (columns) {
    lanes = lanes_for(units, g.n_reduced / kUnitsOfThread);
    const int64_t blocks = (units + lanes - 1) / lanes, others = kReduceThreads / lanes;
    pieces = std::min(kBlocksWanted / blocks, g.n_reduced / (others * kUnitsOfThread));
  } else {
    lanes = static_cast<int>(std::min<int64_t>(rounded_up(units / 2), kReduceThreads));
    if (lanes == kReduceThreads) {
      pieces = std::min(kBlocksWanted / g.n_kept, units / (kReduceThreads * kUnitsOfThread));
    }
  }
  pieces = std::max<int64_t>(pieces, 1);
}

Walk ReduceCut::walk(const ReduceGeometry& g, const KernelCall& c) const {
  Walk w = kept_walk(g, c);
  if (columns && group > 1) {
    const bool fits = w.group(group);
    TD_ASSERT(fits);
  }
  return w;
}

uint32_t ReduceCut::blocks(const ReduceGeometry& g) const {
  const int64_t of_block = columns ? int64_t{lanes} * group : kReduceThreads / lanes;
  return static_cast<uint32_t>((g.n_kept + of_block - 1) / of_block * pieces);
}

Walk kept_walk(const ReduceGeometry& g, const KernelCall& c) {
  size_t largest = span_of(c.in[0]);
  for (int k = 0; k < c.n_out; ++k) largest = std::max(largest, span_of(c.out[k]));
  return {g.kept, static_cast<int64_t>(largest)};
}

namespace {

const ReduceProgram& program_of_call(const KernelCall& c) {
  DType outs[kMaxOpOuts];
  for (int k = 0; k < c.n_out; ++k) outs[k] = c.out[k].dtype;
  return codegen::reduce_program_of(c.op, c.in[0].dtype, outs, c.n_out, c.n_in - 1);
}

int64_t aligned(int64_t bytes) { return (bytes + 255) / 256 * 256; }

int64_t bytes_of_parts(const ReduceProgram& p, int k, const ReduceGeometry& g,
                       const ReduceCut& cut) {
  return g.n_kept * cut.pieces * static_cast<int64_t>(size_of(codegen::dtype_of_reg(p.state[k])));
}

std::shared_ptr<const Plan> prepare_reduce(const KernelCall& c) {
  auto plan = std::make_shared<Plan>();
  const ReduceGeometry g = geometry_of(c);
  const ReduceProgram& p = program_of_call(c);
  const ReduceCut cut(g, p, c);
  for (int k = 0; cut.pieces > 1 && k < p.n_states; ++k) {
    plan->workspace += static_cast<size_t>(aligned(bytes_of_parts(p, k, g, cut)));
  }
  return plan;
}

void run_reduce(const KernelCall& c) {
  if (c.out[0].numel == 0) return;
  Engine& e = engine_of(c.device);
  const ReduceProgram& p = program_of_call(c);
  const ReduceGeometry g = geometry_of(c);
  const ReduceText text{p, c};
  const ReduceCut cut(g, p, c);
  const Walk kept = cut.walk(g, c);
  enum Which : uint64_t { rows, columns, of_pieces };
  const auto kernel = [&](Which which, const Walk& walk, auto&& source) {
    const uint64_t cuts = static_cast<uint64_t>(g.reduced.rank) << 8 |
                          static_cast<uint64_t>(cut.group) << 3 | uint64_t{cut.aligned} << 2 |
                          uint64_t{cut.pieces > 1} << 1;
    return plain_kernel(e, {&p, walk.ways(), (walk.shape_key() << 16 | cuts) << 2 | which}, source);
  };
  Arguments a, of;
  argue_array(a, c.in[0]);
  text.argue_finish(a, g.n_reduced);
  kept.argue(a);
  text.argue_reduced(a, g.reduced, cut);
  const Walk each = kept_walk(g, c);
  text.argue_finish(of, g.n_reduced);
  each.argue(of);
  const int lanes = lanes_for(g.n_kept, cut.pieces / 2);
  of.value(int32_t{lanes}).value(cut.pieces);
  Address part = address_of(c.scratch);
  for (int s = 0; cut.pieces > 1 && s < p.n_states; ++s) {
    const int64_t bytes = bytes_of_parts(p, s, g, cut);
    a.address(part, static_cast<size_t>(bytes));
    of.address(part, static_cast<size_t>(bytes));
    part += static_cast<Address>(aligned(bytes));
  }
  const KernelRef k = cut.columns
                          ? kernel(columns, kept, [&] { return text.columns(g, cut, kept); })
                          : kernel(rows, kept, [&] { return text.rows(g, cut, kept); });
  e.launch(k, {cut.blocks(g)}, {kReduceThreads}, a, e.stream(c.stream));
  if (cut.pieces == 1) return;
  e.launch(kernel(of_pieces, each, [&] { return text.of_pieces(each); }),
           {static_cast<uint32_t>((g.n_kept + lanes - 1) / lanes)}, {kReduceThreads}, of,
           e.stream(c.stream));
}

// ---- scans: a thread for each line

KernelSource scan_source(const ReduceText& t, const Walk& lines) {
  KernelSource k{.name = "scan", .prelude = true};
  t.declare_input(k);
  t.declare_finish(k);
  lines.declare(k);
  k.parameters.push_back({Parameter::value, DType::i64, "xs"});
  std::vector<std::string> places;
  for (int i = 0; i < t.call.n_out; ++i) {
    k.parameters.push_back({Parameter::value, DType::i64, fmt::format("ys{}", i)});
    places.push_back(fmt::format("{} + r * ys{}", lines.place(1 + i), i));
  }
  k.body = lines.lines() + fmt::format("  const td_i64 base = {};\n", lines.place(0)) +
           t.start("a") + "  for (td_i64 r = 0; r < count; ++r) {\n" +
           t.element("x[base + r * xs]") + t.step("v", "r") + t.finish(places) + "  }\n";
  return k;
}

void run_scan(const KernelCall& c) {
  if (c.out[0].numel == 0) return;
  Engine& e = engine_of(c.device);
  const Array& x = c.in[0];
  const ReduceProgram& p = program_of_call(c);
  const int dim = x.rank ? normalize_dim(c.get_attrs<ScanAttrs>().dim, x.rank) : 0;
  TileLoop loop;
  int64_t length = 1, along[1 + kMaxOpOuts] = {}, largest = static_cast<int64_t>(span_of(x));
  loop.n_arrays = 1 + c.n_out;
  for (int d = 0; d < x.rank; ++d) {
    if (d == dim) length = x.shape[d];
    for (int k = 0; k <= c.n_out; ++k) {
      const int64_t stride = k ? c.out[k - 1].strides[d] : x.strides[d];
      (d == dim ? along[k] : loop.stride[k][loop.rank]) = stride;
    }
    if (d != dim) loop.size[loop.rank++] = x.shape[d];
  }
  loop.normalise(0);
  for (int k = 0; k < c.n_out; ++k) {
    largest = std::max(largest, static_cast<int64_t>(span_of(c.out[k])));
  }
  const Walk lines(loop, largest);
  const ReduceText text{p, c};
  const KernelRef k = plain_kernel(e, {&p, lines.ways(), lines.shape_key() << 8 | 4},
                                   [&] { return scan_source(text, lines); });
  Arguments a;
  argue_array(a, x);
  text.argue_finish(a, length);
  lines.argue(a);
  for (int i = 0; i <= c.n_out; ++i) a.value(along[i]);
  launch_each(e, k, lines.count(), a, c.stream);
}

}  // namespace

void register_reductions(DeviceKind kind) {
  register_family_kernel(kind, Family::reduce, {has_types, nullptr, prepare_reduce, run_reduce});
  register_family_kernel(kind, Family::scan, {has_types, nullptr, nullptr, run_scan});
}

}  // namespace tandem::gpu
