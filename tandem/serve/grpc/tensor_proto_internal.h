// SPDX-License-Identifier: Apache-2.0
// TensorFlow's TensorProto as an input of a request and from an output.
#pragma once

#include "tandem/io/tensorflow/tensor_bundle.h"
#include "tandem/serve/grpc/call_internal.h"
#include "tandem/serve/protocol/v2_internal.h"

namespace tandem::serve {

/// A TensorProto as the input `name`, which is checked like one of V2. One value may stand for many
/// equal ones; `left`: bytes that the request's tensors may still become, which this one is taken
/// from. Throws Refusal and Format.
AskedInput read_tensor_proto(const std::string& name, std::string_view message, size_t& left);
io::ProtoWriter write_tensor_proto(const Tensor& t);
/// A TensorShapeProto; -1: open.
io::ProtoWriter write_shape_proto(const std::vector<int64_t>& sizes);

}  // namespace tandem::serve
