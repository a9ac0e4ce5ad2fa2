// SPDX-License-Identifier: Apache-2.0
// Code shared by several layers: parameters that may be absent, the weights of embeddings, the
// scale, shift and running statistics of norms over channels. Not installed.
#pragma once

#include "tandem/nn/init.h"
#include "tandem/nn/module.h"
#include "tandem/ops/view/create.h"

namespace tandem::nn::detail {

/// The parameter's value, or an undefined Tensor for a layer made without it.
inline Tensor value_or_none(const Param& p) { return p.defined() ? p.value() : Tensor(); }

/// [n, d] from the normal distribution, with row `padding_idx`, if given, zero. A negative one
/// counts from the end and becomes the row's number.
inline Param embedding_weight(const char* type, Dim n, Dim d, std::optional<int64_t>& padding_idx,
                              DType dtype) {
  TD_CHECK(n.value() > 0 && d.value() >= 0, Value, "{} expects sizes > 0, got {} and {}", type,
           n.value(), d.value());
  Tensor w = init::normal({n, d}, 0, 1, dtype);
  if (padding_idx) {
    TD_CHECK(*padding_idx >= -n.value() && *padding_idx < n.value(), Index,
             "padding_idx {} is out of range for {} rows", *padding_idx, n.value());
    if (*padding_idx < 0) *padding_idx += n.value();
    w = init::zero_row(std::move(w), *padding_idx);
  }
  return Param(std::move(w));
}

/// Scale and shift of c channels and their running statistics, as requested by the options.
template <class Layer, class Options>
void make_channel_norm(Layer& l, const char* type, Dim c, const Options& o) {
  TD_CHECK(c.value() > 0, Value, "{} expects num_features > 0, got {}", type, c.value());
  if (o.affine) {
    l.weight = Param(ones({c}, o.dtype));
    l.bias = Param(zeros({c}, o.dtype));
  }
  if (o.track_running_stats) {
    l.running_mean = Buffer(zeros({c}, o.dtype));
    l.running_var = Buffer(ones({c}, o.dtype));
    l.num_batches_tracked = Buffer(zeros({}, DType::i64));
  }
}

}  // namespace tandem::nn::detail
