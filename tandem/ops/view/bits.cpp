// SPDX-License-Identifier: Apache-2.0
#include "tandem/ops/view/bits.h"

#include "tandem/graph/batch.h"
#include "tandem/ops/function_internal.h"
#include "tandem/ops/view/strided_copy_internal.h"

namespace tandem {
namespace {

void bitcast_infer(InferCall& c) {
  const DType from = c.in[0].dtype, to = c.get_attrs<BitcastAttrs>().dtype;
  TD_CHECK(size_of(from) == size_of(to) && is_bool(from) == is_bool(to), DType,
           "the bits of {} are not those of {}", to_string(from), to_string(to));
  c.out[0] = Spec(to, c.in[0].shape, c.in[0].device);
}
void bitcast_loops(const KernelCall& k) {
  Array y = k.out[0];
  y.dtype = k.in[0].dtype;
  detail::copy_array(y, k.in[0]);
}
void bitcast_batch(BatchCall& c) {
  c.out[0] = call(op::bitcast, c.node.attrs.get(), c.node.loc, c.in[0]);
}

}  // namespace

namespace op {
constinit const OpDef bitcast =
    make_row("bitcast", Family::index, Types::custom, {"x"}, fields<BitcastAttrs>())
        .flops(detail::no_flops)
        .bytes(detail::bytes_moved)
        .infer(bitcast_infer)
        .batch(bitcast_batch)
        .reference(bitcast_loops)
        .flag(kNotDifferentiable | kMoved)
        .doc("The bits of each element as an element of another dtype of the same width.");
}  // namespace op

Tensor bitcast(const Tensor& x, DType dtype, SourceLocation loc) {
  BitcastAttrs a{dtype};
  return call(op::bitcast, &a, loc, x);
}

}  // namespace tandem
