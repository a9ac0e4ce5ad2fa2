// SPDX-License-Identifier: Apache-2.0
#include "tandem/serve/grpc/status.h"

#include <fmt/format.h>

namespace tandem::serve {
namespace {

struct CodeOfStatus {
  int status;
  GrpcCode code;
};
constexpr CodeOfStatus kCodes[] = {
    {200, GrpcCode::ok},
    {400, GrpcCode::invalid_argument},
    {401, GrpcCode::unauthenticated},
    {403, GrpcCode::permission_denied},
    {404, GrpcCode::not_found},
    {405, GrpcCode::unimplemented},
    {408, GrpcCode::deadline_exceeded},
    {409, GrpcCode::failed_precondition},
    {413, GrpcCode::resource_exhausted},
    {414, GrpcCode::unimplemented},
    {415, GrpcCode::unimplemented},
    {429, GrpcCode::resource_exhausted},
    {431, GrpcCode::resource_exhausted},
    {499, GrpcCode::cancelled},
    {500, GrpcCode::internal},
    {501, GrpcCode::unimplemented},
    {503, GrpcCode::unavailable},
    {504, GrpcCode::deadline_exceeded},
};

// Bytes outside printable ASCII are escaped as in URLs; so are spaces at the ends, with which a
// header is broken.
std::string escaped(std::string_view text) {
  constexpr size_t kMost = 1024;
  std::string out;
  text = text.substr(0, kMost);
  for (size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    const auto u = static_cast<unsigned char>(c);
    const bool end = i == 0 || i + 1 == text.size();
    if (u < 32 || u > 126 || c == '%' || (c == ' ' && end))
      out += fmt::format("%{:02X}", u);
    else
      out += c;
  }
  return out;
}

}  // namespace

GrpcCode grpc_code(int http_status) {
  for (const CodeOfStatus& c : kCodes)
    if (c.status == http_status) return c.code;
  return GrpcCode::unknown;
}

bool is_grpc(const HttpRequest& request) {
  constexpr std::string_view kType = "application/grpc";
  const std::string* type = request.header("content-type");
  if (!type || !type->starts_with(kType)) return false;
  return type->size() == kType.size() || (*type)[kType.size()] == '+' ||
         (*type)[kType.size()] == ';';
}

size_t grpc_length(std::string_view prefix) {
  size_t length = 0;
  for (size_t i = 1; i < kGrpcPrefix; ++i)
    length = length << 8 | static_cast<unsigned char>(prefix[i]);
  return length;
}

HttpHeaders grpc_trailers(GrpcCode code, std::string_view text) {
  HttpHeaders out;
  out.emplace_back("grpc-status", std::to_string(static_cast<int>(code)));
  if (!text.empty()) out.emplace_back("grpc-message", escaped(text));
  return out;
}

HttpResponse grpc_error(GrpcCode code, std::string_view text) {
  return {.content_type = "application/grpc", .trailers = grpc_trailers(code, text)};
}
HttpResponse grpc_error(int http_status, std::string_view text) {
  return grpc_error(grpc_code(http_status), text);
}

std::optional<double> grpc_timeout(std::string_view text) {
  if (text.size() < 2 || text.size() > 9) return std::nullopt;
  constexpr std::string_view kUnits = "HMSmun";
  constexpr double kSeconds[] = {3600, 60, 1, 1e-3, 1e-6, 1e-9};
  const size_t unit = kUnits.find(text.back());
  const auto n = parse_digits(text.substr(0, text.size() - 1), 99999999);
  if (unit == std::string_view::npos || !n) return std::nullopt;
  return static_cast<double>(*n) * kSeconds[unit];
}

}  // namespace tandem::serve
