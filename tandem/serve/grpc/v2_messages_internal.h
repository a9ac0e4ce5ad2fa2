// SPDX-License-Identifier: Apache-2.0
// The messages of V2 over gRPC that carry tensors.
#pragma once

#include "tandem/serve/grpc/call_internal.h"
#include "tandem/serve/protocol/v2_internal.h"

namespace tandem::serve {

/// A ModelInferRequest.
struct V2Request {
  std::string model, version;
  Asked asked;
};
/// Its tensors are views of `message` where they came as bytes. Throws Refusal and Format.
V2Request read_v2_request(std::string_view message);
/// The fields of a ModelInferResponse, into `out`.
void write_v2_response(io::ProtoWriter& out, const ModelVersion& v, const std::string& id,
                       const std::vector<WantedOutput>& wanted, const JobResult& r);

// ---- methods of GRPCInferenceService in v2_shared_service.cpp
void shared_memory_status(const GrpcCall& call, std::string_view message);
void shared_memory_register(const GrpcCall& call, std::string_view message);
void shared_memory_unregister(const GrpcCall& call, std::string_view message);
void cuda_memory_status(const GrpcCall& call, std::string_view message);
void cuda_memory_register(const GrpcCall& call, std::string_view message);
void cuda_memory_unregister(const GrpcCall& call, std::string_view message);

}  // namespace tandem::serve
