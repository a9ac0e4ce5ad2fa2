// SPDX-License-Identifier: Apache-2.0
// Matrix multiplication. Two rows, `matmul` (operands of at least 2 dims, either of them transposed
// without a copy, batch dimensions broadcast) and `linear`; everything else here builds on them.
#pragma once

#include "tandem/graph/op_def.h"

namespace tandem {

/// The row `matmul`: op(a) [..., m, k] times op(b) [..., k, n], where op swaps the last two
/// dimensions if trans_* is set. Both operands have at least two dimensions and the same dtype.
struct MatmulAttrs {
  bool trans_a = false, trans_b = false;
  template <class V>
  void fields(V& v) {
    v("trans_a", trans_a);
    v("trans_b", trans_b);
  }
};

namespace op {
extern TD_API const OpDef matmul, linear;
}
TD_API std::span<const OpDef* const> matmul_rows();

/// Matrix product like torch.matmul: 1-d operands are a row (left) or a column (right), and that
/// dimension is dropped from the result; leading dimensions broadcast. Throws Shape, DType.
TD_API Tensor matmul(Tensor a, Tensor b, SourceLocation loc = SourceLocation::here());
/// The row itself: operands of at least 2 dims, transposed without a copy.
TD_API Tensor matmul(Tensor a, Tensor b, MatmulAttrs attrs,
                     SourceLocation loc = SourceLocation::here());
/// x [..., in] times w^T, w [out, in], plus b [out] if given: [..., out].
TD_API Tensor linear(Tensor x, Tensor w, Tensor b = {},
                     SourceLocation loc = SourceLocation::here());
/// [m, k] x [k, n] = [m, n].
TD_API Tensor mm(Tensor a, Tensor b, SourceLocation loc = SourceLocation::here());
/// [b, m, k] x [b, k, n] = [b, m, n].
TD_API Tensor bmm(Tensor a, Tensor b, SourceLocation loc = SourceLocation::here());
/// [m, k] x [k] = [m].
TD_API Tensor mv(Tensor a, Tensor v, SourceLocation loc = SourceLocation::here());
/// The dot product of two vectors, 0-d.
TD_API Tensor dot(Tensor a, Tensor b, SourceLocation loc = SourceLocation::here());
/// [n] x [m] = [n, m].
TD_API Tensor outer(Tensor a, Tensor b, SourceLocation loc = SourceLocation::here());
/// beta * input + alpha * (a @ b), a [m, k], b [k, n]; input broadcasts to [m, n].
TD_API Tensor addmm(Tensor input, Tensor a, Tensor b, Scalar beta = 1, Scalar alpha = 1,
                    SourceLocation loc = SourceLocation::here());
/// beta * input + alpha * (a @ b), a [b, m, k], b [b, k, n]; input broadcasts to [b, m, n].
TD_API Tensor baddbmm(Tensor input, Tensor a, Tensor b, Scalar beta = 1, Scalar alpha = 1,
                      SourceLocation loc = SourceLocation::here());
/// Sum of products over paired dims_a of a and dims_b of b; the other dims of a, then of b, remain.
TD_API Tensor tensordot(Tensor a, Tensor b, IntList dims_a, IntList dims_b,
                        SourceLocation loc = SourceLocation::here());
/// The same over the last `dims` of a and the first `dims` of b.
TD_API Tensor tensordot(Tensor a, Tensor b, int64_t dims = 2,
                        SourceLocation loc = SourceLocation::here());
/// Einstein sum: "ij,jk->ik", "...d,dk->...k", "ii->i", "i,j->". Letters only; throws Value for an
/// invalid equation, Shape when a letter has two sizes.
TD_API Tensor einsum(std::string_view equation, std::span<const Tensor> operands,
                     SourceLocation loc = SourceLocation::here());
TD_API Tensor einsum(std::string_view equation, std::initializer_list<Tensor> operands,
                     SourceLocation loc = SourceLocation::here());
/// x1 [..., i1] and x2 [..., i2] through w [out, i1, i2], plus b [out]: [..., out].
TD_API Tensor bilinear(Tensor x1, Tensor x2, Tensor w, Tensor b = {},
                       SourceLocation loc = SourceLocation::here());

}  // namespace tandem
