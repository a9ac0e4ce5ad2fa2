// SPDX-License-Identifier: Apache-2.0
// The loop's part of HTTP/2: which connections speak it, their bytes in and out, and the answers of
// their streams.
#include <algorithm>

#include "tandem/serve/grpc/status.h"
#include "tandem/serve/http/loop_internal.h"
#include "tandem/serve/http2/connection_internal.h"
#include "tandem/serve/refusal_internal.h"

namespace tandem::serve {
namespace {

constexpr size_t kProduced = size_t{1} << 20;  // bytes to send that are made at a time

/// A request that came over a stream of a connection.
class StreamExchange : public HttpStream {
 public:
  StreamExchange(HttpRequest r, std::shared_ptr<Mailbox> mail, uint64_t connection, int32_t stream,
                 bool streamed)
      : mail_(std::move(mail)),
        connection_(connection),
        stream_(stream),
        grpc_(is_grpc(r)),
        in_pieces_(streamed) {
    request = std::move(r);
  }
  ~StreamExchange() override {
    constexpr std::string_view kText = "the request was left without an answer";
    if (answered_.load()) return;
    answer(grpc_
               ? grpc_error(500, kText)
               : HttpResponse{.status = 500, .body = "{\"error\":\"" + std::string(kText) + "\"}"});
  }
  StreamExchange(const StreamExchange&) = delete;
  StreamExchange& operator=(const StreamExchange&) = delete;

  void answer(HttpResponse response) override {
    if (answered_.exchange(true)) return;
    show(response, true);
    post(std::move(response), true);
  }
  void write(HttpResponse piece) override {
    in_pieces_.store(true);
    if (answered_.load()) return;
    show(piece, false);
    post(std::move(piece), false);
  }
  bool on_loop() const override { return mail_->thread.load() == std::this_thread::get_id(); }
  void beside(std::function<void()> task) override { mail_->loop->beside(std::move(task)); }
  void take(size_t bytes, size_t held) override {
    if (Http2Connection* c = connection()) c->take(stream_, bytes, held);
  }
  size_t unsent() const override {
    const Http2Connection* c = connection();
    return c ? c->unsent(stream_) : 0;
  }
  void nudge() override {
    mail_->post({.connection = connection_,
                 .response = {},
                 .last = false,
                 .stream = stream_,
                 .nudge = true});
  }

 private:
  Http2Connection* connection() const {
    return mail_->loop ? mail_->loop->http2_of(connection_) : nullptr;
  }
  void post(HttpResponse piece, bool last) {
    Mailbox::Letter letter{connection_, std::move(piece), last, stream_};
    // Pieces keep their order because all of them go by mail.
    if (!in_pieces_.load() && on_loop() && mail_->loop)
      mail_->loop->answered_http2(std::move(letter));
    else
      mail_->post(std::move(letter));
  }
  std::shared_ptr<Mailbox> mail_;
  uint64_t connection_;
  int32_t stream_;
  bool grpc_;
  std::atomic<bool> in_pieces_, answered_{false};
};

}  // namespace

Connection::Connection(int fd, uint64_t id, const HttpLimits& limits, Seconds now,
                       std::string remote)
    : fd(fd), id(id), remote(std::move(remote)), parser(limits), changed(now) {}
Connection::~Connection() = default;

bool Connection::idle() const {
  if (lingering || unsent() > 0) return false;
  return http2 ? http2->idle() : !handling && parser.idle() && in.empty();
}

// True where the bytes are HTTP/2's, or where too few have come to know.
bool HttpLoop::read_http2(Connection& c, std::string_view bytes) {
  if (c.http1) return false;
  if (!c.http2) {
    const std::string all = c.in + std::string(bytes.substr(0, kHttp2Preface.size()));
    const std::string_view begin = std::string_view(all).substr(0, kHttp2Preface.size());
    if (!kHttp2Preface.starts_with(begin)) {
      c.http1 = true;
      return false;
    }
    if (c.in.empty()) c.changed = now();
    c.in.append(bytes);
    if (begin.size() < kHttp2Preface.size()) return true;
    if (!Http2Frames::available()) {
      refuse(c, 505,
             "this server was built without HTTP/2 and gRPC; install libnghttp2-dev and build it "
             "again");
      flush(c);
      return true;
    }
    open_http2(c);
    const std::string first = std::move(c.in);
    c.in = std::string();
    return read_http2(c, first);
  }
  if (c.closing) return true;
  c.changed = now();
  touched_.push_back(c.id);
  if (!c.http2->receive(bytes)) c.closing = true;
  in_flight_->change(c.charged, c.http2->held());
  c.charged = c.http2->held();
  if (in_flight_->full()) c.http2->refuse_bodies(503, kHoldsTooMuch);
  return true;
}

void HttpLoop::open_http2(Connection& c) {
  const uint64_t connection = c.id;
  const auto dispatch = [this, connection](HttpRequest r, int32_t stream,
                                           bool streamed) -> std::shared_ptr<HttpStream> {
    requests.fetch_add(1, std::memory_order_relaxed);
    auto exchange =
        std::make_shared<StreamExchange>(std::move(r), mail_, connection, stream, streamed);
    exchange->account = in_flight_;
    if (options.begun) options.begun(exchange);
    if (streamed || !goes_beside(exchange->request))
      call(exchange);
    else
      beside([this, exchange] { call(exchange); });
    return exchange;
  };
  c.http2 = std::make_unique<Http2Connection>(Http2Owner{
      options, c.remote, dispatch, refusal_, [this] { return now(); },
      [this]() -> const std::string& { return date(); },
      [this](bool lost) { (lost ? dropped : refused).fetch_add(1, std::memory_order_relaxed); }});
}

Http2Connection* HttpLoop::http2_of(uint64_t id) {
  const auto at = connections_.find(id);
  return at == connections_.end() ? nullptr : at->second->http2.get();
}

void HttpLoop::answered_http2(Mailbox::Letter letter) {
  Http2Connection* http2 = http2_of(letter.connection);
  if (!http2) return;
  if (letter.nudge)
    http2->nudge(letter.stream);
  else
    http2->answer(letter.stream, std::move(letter.response), letter.last);
  touched_.push_back(letter.connection);
}

void HttpLoop::write_touched() {
  while (!touched_.empty()) {
    std::vector<uint64_t> ids;
    ids.swap(touched_);
    std::sort(ids.begin(), ids.end());
    ids.erase(std::unique(ids.begin(), ids.end()), ids.end());
    for (const uint64_t id : ids)
      if (const auto at = connections_.find(id); at != connections_.end()) process(*at->second);
  }
}

void HttpLoop::write_http2(Connection& c) {
  while (!c.lingering) {
    if (c.unsent() < kProduced / 4) {
      c.out.erase(0, c.sent);
      c.sent = 0;
      c.http2->produce(c.out, kProduced);
    }
    if (c.http2->over()) c.closing = true;
    if (c.unsent() == 0 && !c.closing) break;
    flush(c);
    if (c.fd < 0) return;
    if (c.unsent() > 0 || c.closing) break;  // the socket is full, or all is said
  }
  in_flight_->change(c.charged, c.http2->held());
  c.charged = c.http2->held();
  watch(c);
}

void HttpLoop::keep_time_http2(Connection& c) {
  touched_.push_back(c.id);
  c.http2->keep_time();
  if (!c.http2->idle() || timed_at_ - c.http2->idle_since() < options.idle_seconds) return;
  c.http2->terminate(Http2Code::none);
}

// The server is being shut down; `last`: now, else soon.
void HttpLoop::end_http2(bool last) {
  for (auto& [id, c] : connections_) {
    if (!c->http2 || c->closing) continue;
    c->http2->announce_end();
    if (last) c->http2->finish();
    if (last && c->http2->idle()) c->http2->terminate(Http2Code::none);
    touched_.push_back(id);
  }
  write_touched();
}

}  // namespace tandem::serve
