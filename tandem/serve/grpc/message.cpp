// SPDX-License-Identifier: Apache-2.0
#include "tandem/serve/grpc/message.h"

#include <fmt/format.h>

#include "tandem/serve/refusal_internal.h"

namespace tandem::serve {
namespace {

constexpr const char* kCodingNames[] = {"identity", "gzip", "deflate"};
constexpr size_t kWorthCompressing = 256;

}  // namespace

std::optional<GrpcCoding> grpc_coding(std::string_view name) {
  for (size_t i = 0; i < std::size(kCodingNames); ++i)
    if (name == kCodingNames[i]) return static_cast<GrpcCoding>(i);
  return std::nullopt;
}
const std::string& grpc_codings() {
  static const std::string all = fmt::format("{}", fmt::join(kCodingNames, ","));
  return all;
}
const char* grpc_coding_name(GrpcCoding coding) {
  return kCodingNames[static_cast<size_t>(coding)];
}

std::optional<std::string_view> take_message(std::string_view& bytes, GrpcCoding coding,
                                             size_t most, std::string& room) {
  if (bytes.size() < kGrpcPrefix) return std::nullopt;
  const auto flag = static_cast<unsigned char>(bytes[0]);
  const size_t length = grpc_length(bytes);
  if (flag > 1) refuse(400, "a message begins with {}, which is neither 0 nor 1", flag);
  if (flag == 1 && coding == GrpcCoding::identity)
    refuse(400, "a message is compressed, and the call names no grpc-encoding");
  if (length > most) refuse(413, "a message has {} bytes; the server takes {}", length, most);
  if (bytes.size() - kGrpcPrefix < length) return std::nullopt;
  const std::string_view message = bytes.substr(kGrpcPrefix, length);
  bytes.remove_prefix(kGrpcPrefix + length);
  if (flag == 0) return message;
  std::string reason;
  if (const int status = inflate_bytes(message, coding == GrpcCoding::gzip, most, room, reason))
    refuse(status, "{}", reason);
  return std::string_view(room);
}

std::string framed(std::string message, GrpcCoding coding) {
  bool compressed = false;
  if (coding != GrpcCoding::identity && message.size() > kWorthCompressing) {
    std::string small(kGrpcPrefix, '\0');
    compressed = deflate_bytes(std::string_view(message).substr(kGrpcPrefix),
                               coding == GrpcCoding::gzip, small);
    if (compressed) message = std::move(small);
  }
  const size_t length = message.size() - kGrpcPrefix;
  message[0] = compressed ? '\1' : '\0';
  for (size_t i = 1; i < kGrpcPrefix; ++i)
    message[i] = static_cast<char>(length >> (8 * (kGrpcPrefix - 1 - i)));
  return message;
}

}  // namespace tandem::serve
