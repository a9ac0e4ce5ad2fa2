// SPDX-License-Identifier: Apache-2.0
// What the methods of tensorflow.serving.PredictionService share.
#pragma once

#include "tandem/serve/grpc/call_internal.h"

namespace tandem::serve {

/// A ModelSpec: which model is asked.
struct ModelSpec {
  std::string name, version, signature;
};
ModelSpec read_spec(io::ProtoReader& request);
io::ProtoWriter spec_of(const ModelVersion& v);

/// Classify, Regress and both at once: grpc/example_service.cpp.
void classify_examples(const GrpcCall& call, std::string_view message);
void regress_examples(const GrpcCall& call, std::string_view message);
void multi_inference(const GrpcCall& call, std::string_view message);

}  // namespace tandem::serve
