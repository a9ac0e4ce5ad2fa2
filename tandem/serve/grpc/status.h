// SPDX-License-Identifier: Apache-2.0
// gRPC's status codes, as they follow from the HTTP statuses that the server's refusals have, and
// the headers of its calls. https://github.com/grpc/grpc/blob/master/doc/PROTOCOL-HTTP2.md
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "tandem/serve/http/message.h"

namespace tandem::serve {

enum class GrpcCode : uint8_t {
  ok = 0,
  cancelled = 1,
  unknown = 2,
  invalid_argument = 3,
  deadline_exceeded = 4,
  not_found = 5,
  permission_denied = 7,
  resource_exhausted = 8,
  failed_precondition = 9,
  unimplemented = 12,
  internal = 13,
  unavailable = 14,
  unauthenticated = 16,
};

/// A message is preceded by a byte, is it compressed, and its length in four.
constexpr size_t kGrpcPrefix = 5;
/// The length that they say.
size_t grpc_length(std::string_view prefix);

/// invalid_argument of 400, not_found of 404 ...
TD_API GrpcCode grpc_code(int http_status);
/// Is it a call of gRPC, as its content type says?
TD_API bool is_grpc(const HttpRequest& request);
/// The answer of a call that failed: headers alone, of HTTP status 200.
TD_API HttpResponse grpc_error(GrpcCode code, std::string_view text);
TD_API HttpResponse grpc_error(int http_status, std::string_view text);
/// The trailers of an answer that ends so.
TD_API HttpHeaders grpc_trailers(GrpcCode code, std::string_view text = {});
/// The seconds of a grpc-timeout, "150m"; nothing where it is damaged.
TD_API std::optional<double> grpc_timeout(std::string_view text);

}  // namespace tandem::serve
