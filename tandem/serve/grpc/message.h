// SPDX-License-Identifier: Apache-2.0
// Messages of gRPC as they stand in a body: a byte that says whether the message is compressed, its
// length in four bytes, and the message.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "tandem/io/protobuf.h"
#include "tandem/serve/grpc/status.h"
#include "tandem/serve/http/message.h"

namespace tandem::serve {

/// The message encodings that are taken and given.
enum class GrpcCoding : uint8_t { identity, gzip, deflate };
/// "identity,gzip,deflate"
TD_API const std::string& grpc_codings();
/// Of a grpc-encoding; nothing for an unknown one.
TD_API std::optional<GrpcCoding> grpc_coding(std::string_view name);
TD_API const char* grpc_coding_name(GrpcCoding coding);

/// Take the first message from the front of `bytes`: a view of them, or of `room` where it was
/// compressed. Nothing where its end is missing. Throws Refusal 413 for one beyond `most` bytes, as
/// sent or inflated, and 400 for what is damaged.
TD_API std::optional<std::string_view> take_message(std::string_view& bytes, GrpcCoding coding,
                                                    size_t most, std::string& room);

/// A message to be written, with room in front of it.
inline io::ProtoWriter new_message() { return io::ProtoWriter(std::string(kGrpcPrefix, '\0')); }
/// What new_message() became, as it stands in a body; compressed where that is worth it.
TD_API std::string framed(std::string message, GrpcCoding coding = GrpcCoding::identity);

}  // namespace tandem::serve
