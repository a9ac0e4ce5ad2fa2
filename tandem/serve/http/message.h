// SPDX-License-Identifier: Apache-2.0
// HTTP/1.1 messages as the server keeps them: what was asked, what is answered, and the limits that
// hold for whatever a client sends.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "tandem/base/export.h"

namespace tandem::serve {

/// What a request may be at most.
struct HttpLimits {
  size_t body_bytes = size_t{64} << 20;  ///< as sent, and once more after it was inflated
  size_t header_bytes = size_t{32} << 10;
  size_t target_bytes = size_t{8} << 10;
  size_t headers = 100;
  size_t chunks = 65536;  ///< of a chunked body
  size_t streams = 256;   ///< open at a time on a connection of HTTP/2
};

using HttpHeaders = std::vector<std::pair<std::string, std::string>>;
/// Says what an answer took; its value hardly comes again, so HTTP/2 keeps it out of its table.
inline constexpr const char* kTimingHeader = "tandem-timing";

struct TD_API HttpRequest {
  std::string method;
  std::string path;        ///< as sent, without the query
  std::string query;       ///< after '?'
  HttpHeaders headers;     ///< names in lower case
  std::string body;        ///< without chunks; inflate_body() removes a Content-Encoding
  bool keep_alive = true;  ///< the connection stays open after the answer
  bool old = false;        ///< HTTP/1.0
  bool http2 = false;
  std::string remote;  ///< the client's address and port
  /// The value of a header by its name in lower case, or nullptr. Repeated ones: the first.
  const std::string* header(std::string_view name) const;
  /// How many headers have that name.
  size_t count(std::string_view name) const;
};

struct HttpResponse {
  int status = 200;
  std::string content_type = "application/json";
  HttpHeaders headers = {};
  std::string body = "";
  bool close = false;         ///< close the connection after it
  HttpHeaders trailers = {};  ///< over HTTP/2 alone
};

/// "Not Found" of 404.
TD_API const char* status_text(int status);

/// The segments of a path, decoded: "/v2/models/a%20b" is v2, models, a b. An escaped slash stays
/// inside its segment. Nothing where an escape is damaged or gives a NUL, or the path does not
/// begin with a slash.
TD_API std::optional<std::vector<std::string>> path_segments(std::string_view path);

/// A whole number of decimal digits alone, at most `most`; nothing for anything else.
TD_API std::optional<uint64_t> parse_digits(std::string_view text, uint64_t most);

/// `text` in one line for a log: control characters, quotes and bytes above 126 are escaped.
TD_API std::string one_line(std::string_view text, size_t most = 200);

/// Does a list such as "gzip, deflate;q=0.5" hold `word` (in lower case) with a weight above 0?
TD_API bool list_holds(std::string_view list, std::string_view word);

/// Inflate gzip or zlib data into `out`. Gives 0, or a status (400 damaged, 413 more than `most`
/// bytes, 503 no memory) and why in `reason`.
TD_API int inflate_bytes(std::string_view bytes, bool gzip, size_t most, std::string& out,
                         std::string& reason);
/// Append `bytes` to `out`, compressed quickly; false: it cannot be done.
TD_API bool deflate_bytes(std::string_view bytes, bool gzip, std::string& out);

/// Remove the body's Content-Encoding (gzip, deflate, identity). Gives 0, or the status to answer
/// with (400 damaged, 413 more than the limit, 415 unknown) and why in `reason`.
TD_API int inflate_body(HttpRequest& request, const HttpLimits& limits, std::string& reason);
/// Compress the body as the request's Accept-Encoding allows (gzip or deflate), if it is worth it.
TD_API void deflate_body(const HttpRequest& request, HttpResponse& response);

}  // namespace tandem::serve
