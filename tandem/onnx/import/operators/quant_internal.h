// SPDX-License-Identifier: Apache-2.0
// Low-bit numbers: scales and zero points beside them, rounding to 8 bits, exact products, and
// values that are computed once from a model's constants.
#pragma once

#include <vector>

#include "tandem/onnx/import/run_internal.h"
#include "tandem/ops/view/create.h"

namespace tandem::onnx {

/// Scale or zero point, to broadcast against x: one number, one per entry of `axis`, or one per
/// block of it. Throws Shape for another number of them.
Tensor onnx_beside(Tensor s, const Tensor& x, int64_t axis, int64_t block = 0);
/// Input i, which has to be one number, as a 0-d tensor.
Tensor onnx_single(const OnnxCall& c, size_t i);
/// Rounded to even, shifted by the zero point, clamped to the range of `type`.
OnnxValue onnx_quantised(const Tensor& x, const Tensor& zero, OnnxType type);
/// Input x minus its zero point in `dtype`; a vector extends along `dim` of the input.
Tensor onnx_centred(const OnnxCall& c, size_t x, size_t zero, int64_t dim,
                    DType dtype = DType::f64);
/// The dtype in which every sum of products of inputs x and w, less their zero points, is exact, in
/// any order. f32 for inputs of 8 bits if w is known and no sum of its absolute values along
/// dimensions `summed` is too large; otherwise f64.
DType onnx_exact_sums(const OnnxCall& c, size_t x, size_t w, size_t zero, int64_t dim,
                      const IntList& summed);

/// Whether inputs x and w hold bytes and the zero point of x is one number: the rows matmul_integer
/// and conv_integer take them, w [k, n] or an image's weight.
bool onnx_bytes(const OnnxCall& c, size_t x, size_t w, size_t x_zero);
/// The exact sums of products of inputs x [..., k] and w [k, n], less their zero points: i32 where
/// both are bytes, else f64 or f32.
Tensor onnx_integer_matmul(const OnnxCall& c, size_t x, size_t x_zero, size_t w, size_t w_zero);
/// The same for the convolution of x (channels first) with w by the node's attributes.
Tensor onnx_integer_conv(const OnnxCall& c, size_t x, size_t x_zero, size_t w, size_t w_zero,
                         bool channels_last = false);

/// A tensor rounded to 8 bits over its own range, as DynamicQuantizeLinear does.
struct OnnxRounded {
  Tensor codes, zero;  ///< u8
  Tensor scale;        ///< f32
  /// Sums of products of (codes - zero) [..., k] and the bytes w [k, n] less their zero point.
  Tensor times(const Tensor& w, const Tensor& w_zero) const;
};
OnnxRounded onnx_rounded(const Tensor& x);

/// f(inputs `which`; undefined where absent). Where they are all known it is computed at once: in a
/// trace the result is a constant.
template <class F>
Tensor onnx_known(const OnnxCall& c, std::initializer_list<size_t> which, F f) {
  std::vector<Tensor> in;
  Tensor y;
  {
    const OutsideTrace outside;
    bool known = true;
    for (const size_t i : which) {
      in.push_back(c.has(i) ? c.value(i).tensor() : Tensor());
      known = known && !(in.back().defined() && in.back().is_symbolic());
    }
    if (known) y = f(in);
  }
  if (y.defined()) return is_tracing() ? constant(y) : y;
  in.clear();
  for (const size_t i : which) in.push_back(c.x_or_none(i));
  return f(in);
}

}  // namespace tandem::onnx
