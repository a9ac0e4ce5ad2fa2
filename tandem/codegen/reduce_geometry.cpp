// SPDX-License-Identifier: Apache-2.0
#include "tandem/codegen/reduce_geometry.h"

#include "tandem/graph/apply.h"
#include "tandem/graph/reduce_attrs.h"

namespace tandem::codegen {
namespace {

uint32_t reduced_mask(const KernelCall& call) {
  const Array& x = call.in[0];
  uint32_t mask = 0;
  if (&call.op == &op::sum_to) {
    const Array& y = call.out[0];
    const int lead = x.rank - y.rank;
    for (int d = 0; d < x.rank; ++d) {
      if (d < lead || (y.shape[d - lead] == 1 && x.shape[d] != 1)) mask |= 1u << d;
    }
    return mask;
  }
  const auto& attrs = call.get_attrs<ReduceAttrs>();
  if (x.rank == 0) return 0;
  for (Dim d : normalize_dims(attrs.dims, x.rank)) mask |= 1u << d.value();
  return mask;
}

// Strides of output `y` at each kept dimension of x, outermost first.
void kept_strides(const Array& x, const Array& y, uint32_t mask, int64_t* strides) {
  const bool keepdim = y.rank == x.rank;
  const bool shaped = !keepdim && __builtin_popcount(mask) != x.rank - y.rank;  // sum_to
  int at = 0, n = 0;
  for (int d = 0; d < x.rank; ++d) {
    const bool reduced = mask >> d & 1;
    if (keepdim) {
      at = d;
    } else if (shaped) {
      at = d - (x.rank - y.rank);
    }
    if (!reduced) strides[n++] = y.strides[at];
    if (!keepdim && !shaped && !reduced) ++at;
  }
}

// What the order is made of: see the head of reduce_geometry.h.
void set_order(ReduceGeometry& g, const Array& x, uint32_t mask) {
  int d = x.rank - 1;
  const auto skip = [&](bool reduced) {
    int64_t n = 1;
    for (; d >= 0 && (x.shape[d] == 1 || (mask >> d & 1) == reduced); --d) n *= x.shape[d];
    return n;
  };
  g.kept_is_inner = skip(false) > 1;
  g.run = skip(true);
  const bool is_short = g.n_reduced < kLanes && g.n_kept > 1;
  g.rows = g.n_kept == 1 || (!is_short && !g.kept_is_inner);
}

}  // namespace

ReduceGeometry make_reduce_geometry(const KernelCall& call) {
  const Array& x = call.in[0];
  const uint32_t mask = reduced_mask(call);
  ReduceGeometry g;
  g.kept.n_arrays = 1 + call.n_out;
  g.reduced.n_arrays = 1;
  for (int d = 0; d < x.rank; ++d) {
    const bool reduced = mask >> d & 1;
    TileLoop& loop = reduced ? g.reduced : g.kept;
    loop.size[loop.rank] = x.shape[d];
    loop.stride[0][loop.rank++] = x.strides[d];
    (reduced ? g.n_reduced : g.n_kept) *= x.shape[d];
  }
  set_order(g, x, mask);
  for (int k = 0; k < call.n_out; ++k) kept_strides(x, call.out[k], mask, g.kept.stride[1 + k]);
  // Columns walk along x where its kept elements lie side by side, all else along the output.
  bool side_by_side = false;
  for (int d = 0; d < g.kept.rank; ++d)
    side_by_side |= g.kept.size[d] > 1 && g.kept.stride[0][d] == 1;
  g.kept.normalise(!g.rows && side_by_side ? 0 : 1);
  g.reduced.normalise(-1);
  return g;
}

}  // namespace tandem::codegen
