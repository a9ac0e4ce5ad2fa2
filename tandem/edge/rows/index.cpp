// SPDX-License-Identifier: Apache-2.0
// Elements at index tensors. An index out of range reads the nearest element and is reported.
#include "tandem/ops/index/index.h"
#include "tandem/codegen/tile_loop.h"
#include "tandem/edge/rows_internal.h"
#include "tandem/graph/apply.h"

namespace tandem::edge {

void emit_index(const KernelCall& c, Body& to) {
  const auto& attrs = c.get_attrs<IndexAttrs>();
  const Array &x = c.in[0], &y = c.out[0];
  const int n = c.n_in - 1, first = normalize_dim(attrs.dim, x.rank);
  const int index_rank = y.rank - (x.rank - n);
  codegen::TileLoop loop;
  loop.n_arrays = 2 + n;
  loop.rank = y.rank;
  for (int d = 0; d < y.rank; ++d) {
    const int in_x = d < first ? d : d - index_rank + n;
    const bool indexed = d >= first && d < first + index_rank;
    loop.size[d] = y.shape[d];
    loop.stride[0][d] = y.strides[d];
    loop.stride[1][d] = indexed ? 0 : x.strides[in_x];
    for (int k = 0; k < n; ++k) {
      const Array& index = c.in[1 + k];
      const int r = d - first - (index_rank - index.rank);
      loop.stride[2 + k][d] = indexed && r >= 0 && index.shape[r] != 1 ? index.strides[r] : 0;
    }
  }
  loop.normalise(0);
  to.reports = true;
  Lines& t = to.text;
  t.open_nest(loop);
  t.open("");
  t.line("int32_t at = {};", place_in(loop, 1));
  for (int k = 0; k < n; ++k) {
    const int64_t size = x.shape[first + k];
    t.line("int64_t p{0} = x{1}[{2}];", k, 1 + k, place_in(loop, 2 + k));
    if (attrs.wrap) t.line("if (p{0} < 0) p{0} += {1};", k, size);
    t.open("if (p{0} < 0 || p{0} >= {1})", k, size);
    t.line("p{0} = p{0} < 0 ? 0 : {1};", k, size - 1);
    t.line("bad = 1;");
    t.close();
    t.line("at += (int32_t)p{} * {};", k, x.strides[first + k]);
  }
  t.line("y0[{}] = x0[at];", place_in(loop, 0));
  t.close();
  t.close_nest(loop);
}

}  // namespace tandem::edge
