// SPDX-License-Identifier: Apache-2.0
#include "tandem/serve/http/message.h"

#include "tandem/base/ascii.h"

#include <fmt/format.h>
#include <zlib.h>

#include <algorithm>
#include <array>

namespace tandem::serve {
namespace {

int hex_digit(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  if (c >= 'A' && c <= 'F') return c - 'A' + 10;
  return -1;
}

bool same_word(std::string_view a, std::string_view lower) {
  return a.size() == lower.size() && std::equal(a.begin(), a.end(), lower.begin(),
                                                [](char x, char y) { return ascii_lower(x) == y; });
}

struct StatusText {
  int status;
  const char* text;
};
constexpr StatusText kStatusTexts[] = {
    {100, "Continue"},
    {200, "OK"},
    {204, "No Content"},
    {400, "Bad Request"},
    {401, "Unauthorized"},
    {403, "Forbidden"},
    {404, "Not Found"},
    {405, "Method Not Allowed"},
    {408, "Request Timeout"},
    {409, "Conflict"},
    {413, "Content Too Large"},
    {414, "URI Too Long"},
    {415, "Unsupported Media Type"},
    {417, "Expectation Failed"},
    {429, "Too Many Requests"},
    {431, "Request Header Fields Too Large"},
    {499, "Client Closed Request"},
    {500, "Internal Server Error"},
    {501, "Not Implemented"},
    {503, "Service Unavailable"},
    {504, "Gateway Timeout"},
    {505, "HTTP Version Not Supported"},
};

/// A zlib stream that is ended whatever happens.
struct Zlib {
  z_stream z{};
  int (*end)(z_streamp) = nullptr;
  ~Zlib() {
    if (end) end(&z);
  }
};

}  // namespace

const std::string* HttpRequest::header(std::string_view name) const {
  for (const auto& [key, value] : headers)
    if (key == name) return &value;
  return nullptr;
}
size_t HttpRequest::count(std::string_view name) const {
  return static_cast<size_t>(std::count_if(headers.begin(), headers.end(),
                                           [&](const auto& h) { return h.first == name; }));
}

const char* status_text(int status) {
  for (const StatusText& s : kStatusTexts)
    if (s.status == status) return s.text;
  return "Unknown";
}

std::optional<std::vector<std::string>> path_segments(std::string_view path) {
  if (path.empty() || path[0] != '/') return std::nullopt;
  std::vector<std::string> out;
  out.reserve(static_cast<size_t>(std::count(path.begin(), path.end(), '/')));
  std::string* now = nullptr;
  for (size_t i = 0; i < path.size(); ++i) {
    if (path[i] == '/') {
      size_t end = i + 1;
      while (end < path.size() && path[end] != '/' && path[end] != '%') ++end;
      now = &out.emplace_back(path.substr(i + 1, end - i - 1));
      i = end - 1;
    } else if (path[i] == '%') {
      const int high = i + 1 < path.size() ? hex_digit(path[i + 1]) : -1;
      const int low = i + 2 < path.size() ? hex_digit(path[i + 2]) : -1;
      if (high < 0 || low < 0 || high + low == 0) return std::nullopt;
      *now += static_cast<char>(high * 16 + low);
      i += 2;
    } else {
      *now += path[i];
    }
  }
  if (out.back().empty()) out.pop_back();  // a slash at the end
  return out;
}

std::optional<uint64_t> parse_digits(std::string_view text, uint64_t most) {
  if (text.empty() || text.size() > 20) return std::nullopt;
  uint64_t v = 0;
  for (const char c : text) {
    if (c < '0' || c > '9') return std::nullopt;
    const auto digit = static_cast<uint64_t>(c - '0');
    if (v > (most - digit) / 10 || digit > most) return std::nullopt;
    v = v * 10 + digit;
  }
  return v;
}

std::string one_line(std::string_view text, size_t most) {
  std::string out;
  for (const char c : text.substr(0, most)) {
    const auto u = static_cast<unsigned char>(c);
    if (u < 32 || u > 126 || c == '\\')
      out += fmt::format("\\x{:02x}", u);
    else
      out += c;
  }
  if (text.size() > most) out += "...";
  return out;
}

bool list_holds(std::string_view list, std::string_view word) {
  while (!list.empty()) {
    const size_t comma = std::min(list.find(','), list.size());
    const std::string_view item = list.substr(0, comma);
    list.remove_prefix(std::min(comma + 1, list.size()));
    const size_t semicolon = std::min(item.find(';'), item.size());
    if (!same_word(trimmed(item.substr(0, semicolon)), word)) continue;
    std::string_view weight = trimmed(item.substr(std::min(semicolon + 1, item.size())));
    if (weight.starts_with("q=")) weight.remove_prefix(2);
    // A weight of zero means "not this one".
    return weight.empty() || weight.find_first_not_of("0.") != std::string_view::npos;
  }
  return false;
}

int inflate_bytes(std::string_view bytes, bool gzip, size_t most, std::string& out,
                  std::string& reason) {
  Zlib s;
  if (inflateInit2(&s.z, gzip ? MAX_WBITS + 16 : MAX_WBITS) != Z_OK) {
    reason = "no memory to inflate the body";
    return 503;
  }
  s.end = inflateEnd;
  out.clear();
  std::array<char, 1 << 16> room;
  s.z.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(bytes.data()));
  s.z.avail_in = static_cast<uInt>(bytes.size());
  for (int code = Z_OK; code != Z_STREAM_END;) {
    s.z.next_out = reinterpret_cast<Bytef*>(room.data());
    s.z.avail_out = static_cast<uInt>(room.size());
    code = inflate(&s.z, Z_NO_FLUSH);
    const size_t got = room.size() - s.z.avail_out;
    if (code != Z_OK && code != Z_STREAM_END) {
      reason = fmt::format("the body is not valid {} data", gzip ? "gzip" : "deflate");
      return 400;
    }
    if (got > most - std::min(out.size(), most)) {
      reason = fmt::format("the inflated body has more than {} bytes", most);
      return 413;
    }
    out.append(room.data(), got);
  }
  if (s.z.avail_in > 0) {
    reason = "bytes follow the compressed body";
    return 400;
  }
  return 0;
}

int inflate_body(HttpRequest& request, const HttpLimits& limits, std::string& reason) {
  const std::string* coding = request.header("content-encoding");
  if (!coding || same_word(trimmed(*coding), "identity")) return 0;
  const std::string_view word = trimmed(*coding);
  const bool gzip = same_word(word, "gzip") || same_word(word, "x-gzip");
  if ((!gzip && !same_word(word, "deflate")) || request.count("content-encoding") > 1) {
    reason = "Content-Encoding may be gzip, deflate or identity";
    return 415;
  }
  std::string out;
  if (const int status = inflate_bytes(request.body, gzip, limits.body_bytes, out, reason))
    return status;
  request.body = std::move(out);
  return 0;
}

bool deflate_bytes(std::string_view bytes, bool gzip, std::string& out) {
  constexpr size_t kMost = size_t{1} << 30;  // zlib counts in 32 bits
  Zlib s;
  if (bytes.size() > kMost || deflateInit2(&s.z, 1, Z_DEFLATED, gzip ? MAX_WBITS + 16 : MAX_WBITS,
                                           8, Z_DEFAULT_STRATEGY) != Z_OK)
    return false;
  s.end = deflateEnd;
  const size_t before = out.size();
  out.resize(before + deflateBound(&s.z, bytes.size()));
  s.z.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(bytes.data()));
  s.z.avail_in = static_cast<uInt>(bytes.size());
  s.z.next_out = reinterpret_cast<Bytef*>(out.data() + before);
  s.z.avail_out = static_cast<uInt>(out.size() - before);
  const bool done = deflate(&s.z, Z_FINISH) == Z_STREAM_END;
  out.resize(done ? before + s.z.total_out : before);
  return done;
}

void deflate_body(const HttpRequest& request, HttpResponse& response) {
  constexpr size_t kWorthIt = 256;
  const std::string* accept = request.header("accept-encoding");
  if (!accept || response.body.size() < kWorthIt) return;
  const bool gzip = list_holds(*accept, "gzip");
  if (!gzip && !list_holds(*accept, "deflate")) return;
  std::string out;
  if (!deflate_bytes(response.body, gzip, out)) return;
  response.body = std::move(out);
  response.headers.emplace_back("Content-Encoding", gzip ? "gzip" : "deflate");
  response.headers.emplace_back("Vary", "Accept-Encoding");
}

}  // namespace tandem::serve
