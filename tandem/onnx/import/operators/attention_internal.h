// SPDX-License-Identifier: Apache-2.0
// Parts of attention that several ops share: heads, softmax under a mask, rotary embeddings.
#pragma once

#include "tandem/onnx/import/rows.h"

namespace tandem::onnx {

/// [b, t, h * d] as [b, h, t, d]. Throws Shape where the features do not divide.
Tensor onnx_heads(const Tensor& x, int64_t heads);
/// [b, h, t, d] as [b, t, h * d].
Tensor onnx_joined_heads(const Tensor& x);
/// Repeats the heads of keys and values [b, h, t, d] for the queries that share them.
Tensor onnx_shared_heads(const Tensor& x, int64_t heads);
/// Softmax along the last dimension; zeros where everything is -inf.
Tensor onnx_masked_softmax(const Tensor& scores);
/// Turns the first features of x [b, t, h, d] by angles given as cosines and sines [b or 1, t, 1,
/// n]: 2n features, pairs of which are neighbours if `interleaved`, else n apart.
Tensor onnx_rotated(const Tensor& x, const Tensor& cosine, const Tensor& sine, bool interleaved);
/// Rows of a table [positions, n] at positions [b, t], as [b, t, 1, n].
Tensor onnx_angles(const Tensor& table, const Tensor& at);

}  // namespace tandem::onnx
