// SPDX-License-Identifier: Apache-2.0
#include "tandem/serve/http2/client.h"

#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>

#include "tandem/base/error.h"
#include "tandem/serve/http/connection_internal.h"

namespace tandem::serve {

Http2Client::Http2Client(const std::string& host, int port, double seconds,
                         const Http2Limits& limits)
    : authority_(authority_of(host, port)), frames_(Http2Frames::Role::client, limits, *this) {
  fd_ = connect_to(host, port, seconds);
}
Http2Client::Http2Client(const HttpUrl& url, double seconds, const TlsTrust& trust)
    : Http2Client(url.host, url.port, seconds) {
  if (url.secure) tls_ = std::make_unique<TlsStream>(tls_client(trust, true), fd_, url.host);
}
Http2Client::~Http2Client() {
  if (tls_) tls_->finish();
  ::close(fd_);
}

int32_t Http2Client::start(const std::string& method, const std::string& path,
                           std::string_view body, const HttpHeaders& headers, bool open) {
  HttpHeaders head{{":method", method},
                   {":scheme", tls_ ? "https" : "http"},
                   {":authority", authority_},
                   {":path", path}};
  head.insert(head.end(), headers.begin(), headers.end());
  const bool with_body = open || !body.empty();
  const int32_t id = frames_.request(head, with_body);
  TD_CHECK(id > 0, Io, "{}: no more streams", authority_);
  Stream& s = streams_[id];
  s.out = body;
  s.out_ended = !open;
  flush();
  return id;
}

void Http2Client::more(int32_t stream, std::string_view bytes, bool end) {
  Stream& s = streams_.at(stream);
  s.out.append(bytes);
  s.out_ended = end;
  frames_.resume(stream);
  flush();
}

void Http2Client::reset(int32_t stream, Http2Code code) {
  frames_.reset(stream, code);
  flush();
}

HttpResponse Http2Client::take(int32_t stream) {
  HttpResponse out = std::move(streams_.at(stream).answer);
  streams_.erase(stream);
  return out;
}

HttpResponse Http2Client::wait(int32_t stream) {
  while (!done(stream))
    TD_CHECK(step() || done(stream), Io, "{}: the connection ended before the answer", authority_);
  return take(stream);
}

void Http2Client::wait_for(int32_t stream, size_t bytes) {
  while (!done(stream) && answer(stream).body.size() < bytes)
    TD_CHECK(step(), Io, "{}: the connection ended before the answer", authority_);
}

HttpResponse Http2Client::request(const std::string& method, const std::string& path,
                                  std::string_view body, const HttpHeaders& headers) {
  return wait(start(method, path, body, headers));
}

HttpResponse Http2Client::call(const std::string& path, std::string_view message,
                               const HttpHeaders& headers) {
  HttpHeaders all{{"content-type", "application/grpc"}, {"te", "trailers"}};
  all.insert(all.end(), headers.begin(), headers.end());
  return request("POST", path, message, all);
}

bool Http2Client::step() {
  std::array<char, 1 << 16> room;
  ssize_t n = 0;
  do n = receive_from(fd_, tls_.get(), room.data(), room.size());
  while (n < 0 && errno == EINTR);
  if (n <= 0) return false;
  const bool ok = frames_.receive({room.data(), static_cast<size_t>(n)});
  flush();
  return ok;
}

void Http2Client::flush() {
  constexpr size_t kAtATime = size_t{1} << 20;
  for (;;) {
    frames_.produce(out_, kAtATime);
    if (out_.empty()) return;
    for (size_t at = 0; at < out_.size();) {
      const ssize_t n = send_to(fd_, tls_.get(), out_.data() + at, out_.size() - at);
      if (n < 0 && errno == EINTR) continue;
      TD_CHECK(n > 0, Io, "{}: {}", authority_, problem_of(tls_.get()));
      at += static_cast<size_t>(n);
    }
    out_.clear();
  }
}

bool Http2Client::header(int32_t id, std::string_view name, std::string_view value) {
  const auto at = streams_.find(id);
  if (at == streams_.end()) return true;
  HttpResponse& r = at->second.answer;
  if (name == ":status")
    r.status = static_cast<int>(parse_digits(value, 999).value_or(0));
  else if (name == "content-type")
    r.content_type = value;
  // What comes before any of the body is the head; of an answer without a body, too.
  (at->second.headed ? r.trailers : r.headers).emplace_back(name, value);
  return true;
}

void Http2Client::end_head(int32_t id) {
  if (const auto at = streams_.find(id); at != streams_.end()) at->second.headed = true;
}

void Http2Client::data(int32_t id, std::string_view bytes) {
  frames_.consume(id, bytes.size());
  if (const auto at = streams_.find(id); at != streams_.end()) at->second.answer.body += bytes;
}

void Http2Client::closed(int32_t id, Http2Code code) {
  const auto at = streams_.find(id);
  if (at == streams_.end()) return;
  at->second.done = true;
  at->second.code = code;
}

std::string_view Http2Client::to_send(int32_t id, size_t most, bool& ended) {
  const auto at = streams_.find(id);
  ended = at == streams_.end();
  if (ended) return {};
  const Stream& s = at->second;
  const std::string_view rest = std::string_view(s.out).substr(s.out_at);
  ended = s.out_ended && rest.size() <= most;
  return rest.substr(0, most);
}

void Http2Client::sent(int32_t id, size_t n) {
  if (const auto at = streams_.find(id); at != streams_.end()) at->second.out_at += n;
}

}  // namespace tandem::serve
