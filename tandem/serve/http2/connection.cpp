// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include "tandem/base/append_bytes.h"
#include "tandem/base/ascii.h"
#include "tandem/serve/grpc/status.h"
#include "tandem/serve/http2/connection_internal.h"

namespace tandem::serve {
namespace {

// Each header counts for this much more than its text (RFC 9113, 10.5.1).
constexpr size_t kOfHeader = 32;

Http2Limits limits_of(const HttpLimits& http) {
  Http2Limits out;
  out.streams = static_cast<uint32_t>(http.streams);
  out.header_bytes = static_cast<uint32_t>(http.header_bytes);
  return out;
}

// Headers of HTTP/1.1's connections have no place in HTTP/2.
bool is_of_connection(std::string_view name) {
  return name == "connection" || name == "keep-alive" || name == "transfer-encoding" ||
         name == "upgrade" || name == "proxy-connection";
}

}  // namespace

bool Allowance::take(Seconds now) {
  if (at_ >= 0) give((now - at_) * rate_);
  at_ = now;
  if (left_ < 1) return false;
  left_ -= 1;
  return true;
}

Http2Connection::Http2Connection(Http2Owner owner)
    : owner_(std::move(owner)),
      idle_since_(owner_.now()),
      frames_(Http2Frames::Role::server, limits_of(owner_.options.limits), *this) {}

Http2Connection::~Http2Connection() {
  for (auto& [id, s] : streams_)
    if (const auto waiting = s.waiting.lock()) waiting->leave();
}

bool Http2Connection::receive(std::string_view bytes) {
  if (finished_) return false;
  if (frames_.receive(bytes)) return true;
  owner_.count(false);
  finished_ = true;
  return false;
}

Http2Connection::Stream* Http2Connection::find(int32_t id) {
  const auto at = streams_.find(id);
  return at == streams_.end() ? nullptr : &at->second;
}

void Http2Connection::hold(Stream& s, size_t bytes) {
  held_ += bytes - s.held;
  s.held = bytes;
}

void Http2Connection::wait_for_client(Stream& s) {
  const size_t now = s.out.size() - s.out_at;
  waits_ += now - s.waits;
  s.waits = now;
}

// ---- what the client sends

void Http2Connection::begin_head(int32_t id) {
  Stream& s = streams_[id];
  if (s.headed) return;  // trailers of a request are read and dropped
  s.since = owner_.now();
  s.request.http2 = true;
  constexpr size_t kUsual = 12;
  s.request.headers.reserve(kUsual);
  s.request.remote = owner_.remote;
}

bool Http2Connection::header(int32_t id, std::string_view name, std::string_view value) {
  Stream* s = find(id);
  if (!s || s->headed) return true;
  const HttpLimits& limits = owner_.options.limits;
  s->header_bytes += name.size() + value.size() + kOfHeader;
  // One that goes far beyond the limit is not worth the work of reading on.
  if (s->header_bytes > 8 * limits.header_bytes) return false;
  if (s->header_bytes > limits.header_bytes || s->request.headers.size() >= limits.headers) {
    s->status = 431;
    s->reason = "the headers are too large";
    return true;
  }
  HttpRequest& r = s->request;
  if (name == ":method") {
    r.method = value;
  } else if (name == ":path") {
    if (value.size() > limits.target_bytes) {
      s->status = 414;
      s->reason = "the target is too long";
      return true;
    }
    const size_t question = std::min(value.find('?'), value.size());
    r.path = value.substr(0, question);
    r.query = value.substr(std::min(question + 1, value.size()));
  } else if (name == ":authority") {
    r.headers.emplace_back("host", value);
  } else if (!name.starts_with(':')) {
    r.headers.emplace_back(name, value);
  }
  return true;
}

void Http2Connection::end_head(int32_t id) {
  Stream* s = find(id);
  if (!s || s->headed) return;
  s->headed = true;
  s->head_only = s->request.method == "HEAD";
  s->grpc = is_grpc(s->request);
  s->streamed = owner_.options.streamed && owner_.options.streamed(s->request);
  hold(*s, s->header_bytes);
  if (s->status > 0) return refuse(id, *s, s->status, s->reason);
  if (s->streamed) return dispatch(id, *s);
  s->body.start(owner_.now());
}

void Http2Connection::data(int32_t id, std::string_view bytes) {
  Stream* s = find(id);
  if (!s || s->last) return frames_.consume(id, bytes.size());
  s->body.bytes += bytes.size();
  if (s->streamed) {
    s->untaken += bytes.size();
    if (s->kept) s->kept->received.fetch_add(bytes.size(), std::memory_order_relaxed);
    if (s->kept && s->kept->on_body) s->kept->on_body(bytes, false);
    return;
  }
  frames_.consume(id, bytes.size());
  std::string& body = s->request.body;
  const size_t most = owner_.options.limits.body_bytes + (s->grpc ? kGrpcPrefix : 0);
  if (bytes.size() > most - std::min(body.size(), most))
    return refuse(id, *s, 413, "the body is larger than the server takes");
  // The first message of a call says how long it is. (A length alone must not reserve the limit,
  // nor a few bytes much: what is reserved counts as held.)
  constexpr size_t kAtOnce = size_t{1} << 20, kTimes = 64;
  if (s->grpc && body.empty() && bytes.size() >= kGrpcPrefix)
    body.reserve(
        std::min({kGrpcPrefix + grpc_length(bytes), most, kAtOnce, kTimes * bytes.size()}));
  append_bytes(body, bytes);
  hold(*s, s->header_bytes + body.capacity());
}

void Http2Connection::end(int32_t id) {
  Stream* s = find(id);
  if (!s) return;
  s->complete = true;
  s->body.stop();
  if (s->last) return;
  if (!s->streamed) return dispatch(id, *s);
  if (s->kept && s->kept->on_body) s->kept->on_body({}, true);
}

void Http2Connection::dispatch(int32_t id, Stream& s) {
  s.since = owner_.now();
  const bool streamed = s.streamed;
  s.dispatched = true;
  std::shared_ptr<HttpStream> exchange = owner_.dispatch(std::move(s.request), id, streamed);
  Stream* now = find(id);  // the handler may have answered
  if (!now || now->last) return;
  now->waiting = exchange;
  if (streamed) now->kept = std::move(exchange);
}

void Http2Connection::closed(int32_t id, Http2Code) {
  const auto at = streams_.find(id);
  if (at == streams_.end()) return;
  Stream& s = at->second;
  if (const auto waiting = s.waiting.lock()) {
    waiting->leave();
    if (!s.last) owner_.count(true);
  }
  if (s.last) controls_.give(8);
  if (s.last) resets_.give(0.5);
  frames_.consume_closed(s.untaken);
  hold(s, 0);
  waits_ -= s.waits;
  streams_.erase(at);
  if (streams_.empty()) idle_since_ = owner_.now();
}

bool Http2Connection::control(bool reset) {
  return (reset ? resets_ : controls_).take(owner_.now());
}

// ---- what is answered

void Http2Connection::put_head(int32_t id, Stream& s, HttpResponse& r, bool with_body) {
  HttpHeaders head;
  head.reserve(r.headers.size() + 4);
  head.emplace_back(":status", std::to_string(r.status));
  if (!s.grpc) head.emplace_back("date", owner_.date());
  if (!r.body.empty() || r.status == 200) head.emplace_back("content-type", r.content_type);
  if (!s.grpc && s.last) head.emplace_back("content-length", std::to_string(r.body.size()));
  for (auto& [name, value] : r.headers) {
    std::string small = ascii_lower(std::string_view(name));
    if (!is_of_connection(small)) head.emplace_back(std::move(small), std::move(value));
  }
  if (!with_body)
    for (auto& trailer : r.trailers) head.push_back(std::move(trailer));
  frames_.respond(id, head, with_body);
}

void Http2Connection::answer(int32_t id, HttpResponse piece, bool last) {
  Stream* s = find(id);
  if (!s || s->last) return;
  s->last = last;
  s->since = owner_.now();
  // Nobody may take what was sent for the whole.
  if (s->begun && piece.status >= 500) return frames_.reset(id, Http2Code::internal_error);
  // A client that takes no answers gets no more of them: the connection may have a part of what the
  // server may hold.
  constexpr size_t kParts = 4;
  if (waits_ > owner_.options.bytes_in_flight / kParts && s->out.empty() && !piece.body.empty()) {
    if (last) owner_.count(true);  // else closed() does
    return frames_.reset(id, Http2Code::enhance_your_calm);
  }
  const bool with_body = !s->head_only && (!last || s->begun || !piece.body.empty());
  if (!s->begun) put_head(id, *s, piece, with_body);
  if (s->out.empty()) {
    s->out = std::move(piece.body);
    s->out_at = 0;
  } else {
    s->out += piece.body;
  }
  wait_for_client(*s);
  if (s->out.size() > s->out_at && s->sending.since < 0) s->sending.start(owner_.now());
  if (last) {
    s->trailers = std::move(piece.trailers);
    hold(*s, 0);
  }
  if (s->begun) frames_.resume(id);
  s->begun = true;
  const std::shared_ptr<HttpStream> stream = last ? nullptr : s->kept;
  if (stream && stream->on_tick) stream->on_tick(ending_);  // there is room for more work
}

void Http2Connection::refuse(int32_t id, Stream& s, int status, const std::string& reason) {
  owner_.count(false);
  s.body.stop();
  s.request.body = std::string();
  HttpResponse r = s.grpc           ? grpc_error(status, reason)
                   : owner_.refusal ? owner_.refusal(status, reason)
                                    : HttpResponse{.status = status, .body = reason};
  if (const auto waiting = s.waiting.lock()) {
    waiting->show(r, true);
    waiting->leave();
  } else if (owner_.options.refused && !s.dispatched) {
    owner_.options.refused(s.request, r);
  }
  answer(id, std::move(r), true);
}

std::string_view Http2Connection::to_send(int32_t id, size_t most, bool& ended) {
  const Stream* s = find(id);
  if (!s) return {};
  const std::string_view rest = std::string_view(s->out).substr(s->out_at);
  ended = s->last && rest.size() <= most;
  return rest.substr(0, most);
}

HttpHeaders Http2Connection::trailers(int32_t id) {
  Stream* s = find(id);
  return s ? std::move(s->trailers) : HttpHeaders{};
}

void Http2Connection::sent(int32_t id, size_t n) {
  Stream* s = find(id);
  if (!s) return;
  s->out_at += n;
  s->sending.bytes += n;
  wait_for_client(*s);
  if (s->out_at < s->out.size()) {
    constexpr size_t kCompact = size_t{1} << 20;
    if (s->out_at > kCompact && !s->last) {
      s->out.erase(0, s->out_at);
      s->out_at = 0;
    }
    return;
  }
  s->out.clear();
  s->out_at = 0;
  s->sending.stop();
}

void Http2Connection::nudge(int32_t id) {
  Stream* s = find(id);
  if (!s || s->last) return;
  const std::shared_ptr<HttpStream> stream = s->kept;
  if (stream && stream->on_tick) stream->on_tick(ending_);
}

void Http2Connection::take(int32_t id, size_t bytes, size_t held) {
  Stream* s = find(id);
  if (!s || s->last) return;
  hold(*s, s->header_bytes + held);
  bytes = std::min(bytes, s->untaken);
  s->untaken -= bytes;
  frames_.consume(id, bytes);
}

size_t Http2Connection::unsent(int32_t id) const {
  const auto at = streams_.find(id);
  return at == streams_.end() ? 0 : at->second.out.size() - at->second.out_at;
}

bool Http2Connection::quiet() const {
  return std::all_of(streams_.begin(), streams_.end(), [](const auto& entry) {
    const Stream& s = entry.second;
    return s.streamed && !s.last && s.out_at == s.out.size();
  });
}

// ---- times and ends

void Http2Connection::refuse_bodies(int status, const std::string& reason) {
  for (auto& [id, s] : streams_)
    if (s.headed && !s.complete && !s.last && s.held > 0) refuse(id, s, status, reason);
}

void Http2Connection::keep_time() {
  std::vector<int32_t> ids;
  ids.reserve(streams_.size());
  for (const auto& [id, s] : streams_) ids.push_back(id);
  for (const int32_t id : ids)
    if (Stream* s = find(id)) keep_time_of(id, *s);
}

void Http2Connection::keep_time_of(int32_t id, Stream& s) {
  const Seconds now = owner_.now();
  const HttpOptions& o = owner_.options;
  if (!s.headed) {
    if (now - s.since < o.header_seconds) return;
    frames_.terminate(Http2Code::enhance_your_calm);
  } else if (s.sending.since >= 0) {
    if (!s.sending.too_slow(now, o)) return;
    owner_.count(true);
    frames_.reset(id, Http2Code::enhance_your_calm);
  } else if (s.last) {
    return;
  } else if (s.streamed) {
    const std::shared_ptr<HttpStream> stream = s.kept;
    if (stream && stream->on_tick) stream->on_tick(ending_);
  } else if (!s.complete) {
    if (s.body.too_slow(now, o)) refuse(id, s, 408, "the body came too slowly");
  } else if (now - s.since > o.answer_seconds) {
    refuse(id, s, 504, "the request took too long");
  }
}

void Http2Connection::announce_end() {
  if (!said_end_) frames_.announce_end();
  said_end_ = true;
}

void Http2Connection::finish() {
  if (ending_) return;
  ending_ = true;
  frames_.refuse_streams();
  keep_time();
}

}  // namespace tandem::serve
