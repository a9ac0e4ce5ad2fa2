// SPDX-License-Identifier: Apache-2.0
#include "tandem/serve/http/parser.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstring>

#include "tandem/base/append_bytes.h"
#include "tandem/base/ascii.h"

namespace tandem::serve {
namespace {

// Characters of a token: methods and names of headers.
constexpr std::array<bool, 256> kOfTokens = [] {
  std::array<bool, 256> out{};
  for (const char c : std::string_view("!#$%&'*+-.^_`|~"))
    out[static_cast<unsigned char>(c)] = true;
  for (unsigned char c = '0'; c <= '9'; ++c) out[c] = true;
  for (unsigned char c = 'a'; c <= 'z'; ++c) out[c] = out[c - 'a' + 'A'] = true;
  return out;
}();
bool is_token(std::string_view s) {
  bool all = !s.empty();
  for (const char c : s) all = all && kOfTokens[static_cast<unsigned char>(c)];
  return all;
}
bool is_plain(char c) { return static_cast<unsigned char>(c) >= 32 && c != 127; }

// Nothing but characters that can be seen, blanks and tabs: mostly eight of them at a time.
bool is_plain_line(std::string_view s) {
  constexpr uint64_t kOnes = 0x0101010101010101U, kHigh = 0x80 * kOnes;
  const auto slow = [](std::string_view part) {
    return std::all_of(part.begin(), part.end(), [](char c) { return is_plain(c) || c == '\t'; });
  };
  size_t at = 0;
  for (; at + 8 <= s.size(); at += 8) {
    uint64_t word;
    std::memcpy(&word, s.data() + at, 8);
    const uint64_t deleted = word ^ 127 * kOnes;
    const uint64_t odd = ((word - 32 * kOnes) & ~word) | ((deleted - kOnes) & ~deleted);
    if ((odd & kHigh) != 0 && !slow(s.substr(at, 8))) return false;
  }
  return slow(s.substr(at));
}

}  // namespace

void HttpParser::fail(int status, std::string reason) {
  state_ = State::failed;
  status_ = status;
  reason_ = std::move(reason);
  request_.body = std::string();
  partial_ = std::string();
}

bool HttpParser::take_continue() {
  const bool now = continue_ && in_body() && request_.body.empty() && chunks_ == 0;
  continue_ = false;
  return now;
}

HttpRequest HttpParser::take() {
  HttpRequest out = std::move(request_);
  *this = HttpParser(limits_);
  return out;
}

size_t HttpParser::feed(std::string_view bytes) {
  size_t at = 0;
  while (at < bytes.size() && state_ < State::done) {
    const std::string_view rest = bytes.substr(at);
    if (state_ == State::body || state_ == State::chunk_data) {
      at += take_body(rest);
      continue;
    }
    const auto* end = static_cast<const char*>(std::memchr(rest.data(), '\n', rest.size()));
    const size_t n = end ? static_cast<size_t>(end - rest.data()) + 1 : rest.size();
    head_bytes_ += n;
    if (state_ == State::first_line && head_bytes_ > limits_.target_bytes + 64)
      return fail(414, fmt::format("the target has more than {} bytes", limits_.target_bytes)), at;
    if (head_bytes_ > limits_.header_bytes && state_ != State::chunk_size)
      return fail(431, fmt::format("the headers have more than {} bytes", limits_.header_bytes)),
             at;
    at += n;
    if (!end || !partial_.empty()) partial_.append(rest.data(), n);
    if (!end) {
      if (partial_.size() > limits_.header_bytes) fail(400, "a line of a chunk is too long");
      return at;
    }
    std::string_view whole = partial_.empty() ? rest.substr(0, n) : std::string_view(partial_);
    whole.remove_suffix(1);
    if (whole.empty() || whole.back() != '\r')
      return fail(400, "a line ends without a carriage return"), at;
    whole.remove_suffix(1);
    if (!is_plain_line(whole)) return fail(400, "a line of the head holds a control character"), at;
    line(whole);
    partial_.clear();
  }
  return at;
}

void HttpParser::line(std::string_view text) {
  switch (state_) {
    case State::first_line:
      if (text.empty() && head_bytes_ <= 2) return;  // one empty line before a request is allowed
      return first_line(text);
    case State::header:
      return text.empty() ? end_of_head() : header(text);
    case State::chunk_size:
      return chunk_size(text);
    case State::chunk_end:
      if (!text.empty()) return fail(400, "a chunk is longer than its size says");
      state_ = State::chunk_size;
      head_bytes_ = 0;
      return;
    case State::trailer:  // trailers are read and dropped
      if (text.empty()) state_ = State::done;
      return;
    default:
      return;
  }
}

void HttpParser::first_line(std::string_view text) {
  const size_t first = text.find(' ');
  const size_t last = text.rfind(' ');
  if (first == std::string_view::npos) return fail(400, "the request line has no target");
  const std::string_view method = text.substr(0, first);
  if (!is_token(method)) return fail(400, "the method is not a word");
  if (first == last) return fail(505, "the request line has no version; HTTP/1.1 is spoken here");
  const std::string_view version = text.substr(last + 1);
  if (version != "HTTP/1.1" && version != "HTTP/1.0") {
    const bool known = version.starts_with("HTTP/") && version.size() == 8;
    return fail(known ? 505 : 400, "the version is not HTTP/1.1 or HTTP/1.0");
  }
  const std::string_view target = text.substr(first + 1, last - first - 1);
  if (target.size() > limits_.target_bytes)
    return fail(414, fmt::format("the target has more than {} bytes", limits_.target_bytes));
  request_.method = std::string(method);
  request_.old = version == "HTTP/1.0";
  request_.keep_alive = !request_.old;
  if (!set_target(target)) return fail(400, "the target is not a path");
  state_ = State::header;
  constexpr size_t kUsual = 8;
  request_.headers.reserve(kUsual);
}

// "/path?query", or in the form for proxies "http://host/path".
bool HttpParser::set_target(std::string_view target) {
  if (target.starts_with("http://")) {
    const size_t slash = target.find('/', 7);
    target = slash == std::string_view::npos ? "/" : target.substr(slash);
  }
  const bool visible = std::all_of(target.begin(), target.end(),
                                   [](char c) { return is_plain(c) && c != ' ' && c != '#'; });
  if (!visible || (target != "*" && !target.starts_with("/"))) return false;
  const size_t mark = std::min(target.find('?'), target.size());
  request_.path = std::string(target.substr(0, mark));
  request_.query = std::string(target.substr(std::min(mark + 1, target.size())));
  // Escapes alone can be damaged.
  return request_.path.find('%') == std::string::npos || path_segments(request_.path).has_value();
}

void HttpParser::header(std::string_view text) {
  if (text.front() == ' ' || text.front() == '\t')
    return fail(400, "a header is folded over two lines");
  const size_t colon = text.find(':');
  if (colon == std::string_view::npos || !is_token(text.substr(0, colon)))
    return fail(400, "a line of the headers is not a 'Name: value'");
  if (request_.headers.size() >= limits_.headers)
    return fail(431, fmt::format("there are more than {} headers", limits_.headers));
  request_.headers.emplace_back(ascii_lower(text.substr(0, colon)),
                                std::string(trimmed(text.substr(colon + 1))));
}

// The body's length; false where the request is refused.
bool HttpParser::set_length() {
  const std::string* length = request_.header("content-length");
  const std::string* coding = request_.header("transfer-encoding");
  if (request_.count("content-length") > 1 || request_.count("transfer-encoding") > 1)
    return fail(400, "the body's length is given twice"), false;
  if (coding) {
    if (length) return fail(400, "Content-Length and Transfer-Encoding exclude each other"), false;
    if (request_.old) return fail(400, "HTTP/1.0 has no Transfer-Encoding"), false;
    if (ascii_lower(*coding) != "chunked")
      return fail(501, "Transfer-Encoding may be chunked alone"), false;
    state_ = State::chunk_size;
    return true;
  }
  left_ = 0;
  if (length) {
    if (length->empty() || length->find_first_not_of("0123456789") != std::string::npos)
      return fail(400, "Content-Length is not a number"), false;
    const auto bytes = parse_digits(*length, limits_.body_bytes);
    if (!bytes)
      return fail(413, fmt::format("the body has more than {} bytes", limits_.body_bytes)), false;
    left_ = *bytes;
  }
  state_ = left_ > 0 ? State::body : State::done;
  return true;
}

void HttpParser::end_of_head() {
  const size_t hosts = request_.count("host");
  if (hosts > 1 || (hosts == 0 && !request_.old)) return fail(400, "a request has one Host header");
  for (const auto& [name, value] : request_.headers) {
    if (name == "connection") {
      if (list_holds(value, "close"))
        request_.keep_alive = false;
      else if (request_.old && list_holds(value, "keep-alive"))
        request_.keep_alive = true;
    } else if (name == "expect") {
      if (ascii_lower(value) != "100-continue") return fail(417, "Expect may be 100-continue");
      continue_ = !request_.old;
    }
  }
  partial_.clear();
  head_bytes_ = 0;
  if (!set_length()) return;
}

void HttpParser::chunk_size(std::string_view text) {
  constexpr size_t kExtensions = 256;  // nobody uses them
  if (text.size() > kExtensions) return fail(400, "the line before a chunk is too long");
  const std::string_view digits = trimmed(text.substr(0, text.find(';')));
  if (digits.empty() || digits.size() > 16 ||
      digits.find_first_not_of("0123456789abcdefABCDEF") != std::string_view::npos)
    return fail(400, "the size of a chunk is not a hexadecimal number");
  uint64_t size = 0;
  for (const char c : digits)
    size = size * 16 + static_cast<uint64_t>(c <= '9' ? c - '0' : (c | 32) - 'a' + 10);
  if (++chunks_ > limits_.chunks)
    return fail(413, fmt::format("the body has more than {} chunks", limits_.chunks));
  if (size > limits_.body_bytes - std::min(limits_.body_bytes, request_.body.size()))
    return fail(413, fmt::format("the body has more than {} bytes", limits_.body_bytes));
  head_bytes_ = 0;
  left_ = size;
  state_ = size > 0 ? State::chunk_data : State::trailer;
}

size_t HttpParser::take_body(std::string_view bytes) {
  const size_t n = static_cast<size_t>(std::min<uint64_t>(left_, bytes.size()));
  // What is reserved counts as held: a length alone reserves nothing, and few bytes not much.
  constexpr uint64_t kAtOnce = uint64_t{4} << 20, kTimes = 64;
  if (state_ == State::body && request_.body.empty() && n < left_)
    request_.body.reserve(
        static_cast<size_t>(std::min({left_, kAtOnce, kTimes * static_cast<uint64_t>(n)})));
  append_bytes(request_.body, bytes.substr(0, n));
  left_ -= n;
  if (left_ == 0) state_ = state_ == State::body ? State::done : State::chunk_end;
  return n;
}

}  // namespace tandem::serve
