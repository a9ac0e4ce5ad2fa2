// SPDX-License-Identifier: Apache-2.0
// TensorFlow's TensorProto as an input of a request and from an output.
#pragma once

#include "tandem/io/tensorflow/tensor_bundle.h"
#include "tandem/serve/grpc/call_internal.h"
#include "tandem/serve/protocol/v2_internal.h"

namespace tandem::serve {

/// A TensorProto as the input `name`, which is checked like one of V2. One value may stand for many
/// equal ones; `most`: bytes that it may become. Throws Refusal and Format.
AskedInput read_tensor_proto(const std::string& name, std::string_view message, size_t most);
io::ProtoWriter write_tensor_proto(const Tensor& t);
/// A TensorShapeProto; -1: open.
io::ProtoWriter write_shape_proto(const std::vector<int64_t>& sizes);

}  // namespace tandem::serve
