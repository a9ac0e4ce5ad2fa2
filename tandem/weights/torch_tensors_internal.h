// SPDX-License-Identifier: Apache-2.0
// What PyTorch has and Tandem lacks, as tensors that Tandem has. Used by torch_read.cpp.
#pragma once

#include <string>

#include "tandem/tensor/tensor.h"
#include "tandem/weights/torch_storages_internal.h"

namespace tandem::weights {

/// `raw` with an element of `type.bytes` bytes each (a dtype of that width), as `type.dtype`.
/// Throws Format for one that does not fit.
Tensor converted(const Tensor& raw, const StoredType& type);

/// (q - zero_point) * scale in f32. Scales and zero points have one element, or one for each of
/// dimension `axis` of q.
Tensor dequantized(const Tensor& q, const Tensor& scales, const Tensor& zero_points, int64_t axis);

/// The parts of torch.sparse_coo, _csr and _csc tensors, in their order: indices and values, or
/// pointers, indices and values. Throws Format where they do not describe a tensor of `sizes`.
Tensor dense_of(std::string_view layout, std::span<const Tensor> parts,
                const std::vector<int64_t>& sizes);

}  // namespace tandem::weights
