// SPDX-License-Identifier: Apache-2.0
#include <fcntl.h>
#include <fmt/format.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>

#include "tandem/base/error.h"
#include "tandem/base/log.h"
#include "tandem/base/short_turns.h"
#include "tandem/serve/http/loop_internal.h"
#include "tandem/serve/http2/connection_internal.h"
#include "tandem/serve/refusal_internal.h"

namespace tandem::serve {
namespace {

constexpr uint64_t kListener = 1, kWake = 2;
constexpr size_t kMostUnsent = size_t{1}
                               << 20;  // more pipelined requests wait while this much is unsent
constexpr size_t kLarge = size_t{16} << 10;  // bodies that are sent from where they are
constexpr Seconds kTick = 0.2;

/// A request that came over a connection of the loop.
class LoopExchange : public HttpExchange {
 public:
  LoopExchange(HttpRequest r, std::shared_ptr<Mailbox> mail, uint64_t connection)
      : mail_(std::move(mail)), connection_(connection) {
    request = std::move(r);
  }
  ~LoopExchange() override {
    if (!answered_.load())
      answer({.status = 500, .body = "{\"error\":\"the request was left without an answer\"}"});
  }
  LoopExchange(const LoopExchange&) = delete;
  LoopExchange& operator=(const LoopExchange&) = delete;
  void answer(HttpResponse response) override {
    if (answered_.exchange(true)) return;
    show(response, true);
    // Pieces keep their order because all of them go by mail.
    if (!in_pieces_.load() && on_loop() && mail_->loop)
      mail_->loop->answered(connection_, std::move(response));
    else
      mail_->post({connection_, std::move(response)});
  }
  void write(HttpResponse piece) override {
    in_pieces_.store(true);
    if (answered_.load()) return;
    show(piece, false);
    mail_->post({connection_, std::move(piece), false});
  }
  bool on_loop() const override { return mail_->thread.load() == std::this_thread::get_id(); }
  void beside(std::function<void()> task) override { mail_->loop->beside(std::move(task)); }
  void leave() { gone_.store(true, std::memory_order_relaxed); }

 private:
  std::shared_ptr<Mailbox> mail_;
  uint64_t connection_;
  std::atomic<bool> answered_{false}, in_pieces_{false};
};

void set_watch(int epoll, int op, int fd, uint64_t id, uint32_t events) {
  epoll_event e{};
  e.events = events;
  e.data.u64 = id;
  epoll_ctl(epoll, op, fd, &e);
}

}  // namespace

void HttpLoop::wake_up() noexcept {
  const uint64_t one = 1;
  if (::write(wake, &one, sizeof one) < 0) return;  // it is awake already
}

HttpLoop::HttpLoop(HttpOptions o, HttpHandler handler, HttpRefusal refusal)
    : options(std::move(o)),
      port(options.port),
      handler_(std::move(handler)),
      refusal_(std::move(refusal)) {
  if (!options.tls.empty()) tls_ = tls_server(options.tls, Http2Frames::available());
  listener_ = listen_at(options.host, port);
  epoll_ = epoll_create1(EPOLL_CLOEXEC);
  wake = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
  if (epoll_ < 0 || wake < 0) {
    for (const int fd : {listener_, epoll_, wake})
      if (fd >= 0) ::close(fd);
    TD_FAIL(Io, "no file descriptors for a server\nRaise `ulimit -n`.");
  }
  mail_->wake = wake;
  mail_->loop = this;
  set_watch(epoll_, EPOLL_CTL_ADD, wake, kWake, EPOLLIN);
  set_watch(epoll_, EPOLL_CTL_ADD, listener_, kListener, EPOLLIN);
  accepting_ = true;
  for (int i = 0; i < std::max(1, options.workers); ++i) workers_.emplace_back([this] { work(); });
}

HttpLoop::~HttpLoop() {
  {
    const std::lock_guard hold(work_lock_);
    work_ends_ = true;
    work_.clear();
  }
  work_ready_.notify_all();
  for (std::thread& t : workers_) t.join();
  {
    const std::lock_guard hold(mail_->lock);
    mail_->loop = nullptr;
  }
  for (auto& [id, c] : connections_) {
    // Work for those who wait is not begun any more.
    if (const auto waiting = c->waiting.lock()) static_cast<LoopExchange&>(*waiting).leave();
    ::close(c->fd);
  }
  for (const int fd : {listener_, epoll_, wake})
    if (fd >= 0) ::close(fd);
}

void HttpLoop::look_at_clock() {
  now_ = std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

void HttpLoop::run() {
  mail_->thread.store(std::this_thread::get_id());
  of_this_thread() = this;
  take_short_turns();  // requests come while models, or other programs, have the cores
  look_at_clock();
  constexpr size_t kManyAnswers = 32;  // are sent before the turn ends
  std::vector<epoll_event> ready(256);
  while (!drained()) {
    const int wait = put_off_.empty() ? static_cast<int>(kTick * 1000) : 0;
    const int n = epoll_wait(epoll_, ready.data(), static_cast<int>(ready.size()), wait);
    look_at_clock();
    for (int i = 0; i < n; ++i) {
      const uint64_t id = ready[static_cast<size_t>(i)].data.u64;
      const uint32_t events = ready[static_cast<size_t>(i)].events;
      if (id == kListener) {
        accept_all();
      } else if (id == kWake) {
        read_mail();
      } else if (const auto at = connections_.find(id); at != connections_.end()) {
        Connection& c = *at->second;
        if (events & (EPOLLERR | EPOLLHUP)) {
          close(c);
          continue;
        }
        if (events & EPOLLOUT) process(c);
        const bool handshake = c.tls && c.tls->wants_to_write();
        if (c.fd >= 0 && (handshake || (events & (EPOLLIN | EPOLLRDHUP)))) readable(c);
      }
      if (touched_.size() >= kManyAnswers) write_touched();
    }
    if (reloads.load() != reloaded_) reload();
    end_turn();
    if (now() - timed_at_ >= kTick) keep_time();
    end_turn();
  }
  do end_turn();
  while (!put_off_.empty());
  of_this_thread() = nullptr;
  mail_->thread.store(std::thread::id());
}

void HttpLoop::accept_all() {
  for (int i = 0; i < 64; ++i) {
    std::string remote;
    const int fd = accept_at(listener_, remote);
    if (fd < 0) {
      if (errno == EMFILE || errno == ENFILE || errno == ENOMEM || errno == ENOBUFS) {
        // No descriptors: stop accepting until the next tick, else epoll reports it for ever.
        set_watch(epoll_, EPOLL_CTL_MOD, listener_, kListener, 0);
        accepting_ = false;
        make_room();
      }
      return;
    }
    accepted.fetch_add(1, std::memory_order_relaxed);
    if (connections_.size() >= options.connections) make_room();
    if (connections_.size() >= options.connections) {
      dropped.fetch_add(1, std::memory_order_relaxed);
      ::close(fd);
      continue;
    }
    const uint64_t id = next_id_++;
    auto c = std::make_unique<Connection>(fd, id, options.limits, now(), std::move(remote));
    if (tls_) c->tls = std::make_unique<TlsStream>(tls_, fd);
    c->events = EPOLLIN | EPOLLRDHUP;
    set_watch(epoll_, EPOLL_CTL_ADD, fd, id, c->events);
    connections_.emplace(id, std::move(c));
    open.store(connections_.size(), std::memory_order_relaxed);
  }
}

void HttpLoop::reload() {
  reloaded_ = reloads.load();
  const auto attempt = [](const std::function<void()>& read) {
    try {
      read();
    } catch (const std::exception& e) {
      log_warning("what was in use stays: {}", one_line(e.what()));
    }
  };
  if (tls_) attempt([this] { tls_ = tls_server(options.tls, Http2Frames::available()); });
  if (options.reloaded) attempt(options.reloaded);
}

// Close the connection that has been idle, or reading its headers, for longest.
void HttpLoop::make_room() {
  Connection* oldest = nullptr;
  for (auto& [id, c] : connections_)
    if (!c->handling && c->out.empty() && !c->parser.in_body() &&
        (!c->http2 || c->http2->quiet()) && (!oldest || c->changed < oldest->changed))
      oldest = c.get();
  if (!oldest) return;
  dropped.fetch_add(1, std::memory_order_relaxed);
  close(*oldest);
}

void HttpLoop::readable(Connection& c) {
  for (int i = 0; i < 16; ++i) {
    const ssize_t n = receive_from(c.fd, c.tls.get(), room_.data(), room_.size());
    if (n == 0) {
      c.ended = true;
      break;
    }
    if (n < 0) {
      if (errno == EAGAIN || errno == EINTR) break;
      return broken(c);
    }
    const auto bytes = static_cast<size_t>(n);
    if (c.lingering) continue;
    c.body.bytes += bytes;
    if (c.idle()) c.changed = now();
    if (read_http2(c, {room_.data(), bytes})) {
      if (c.fd < 0) return;
      if (bytes < room_.size()) break;
      continue;
    }
    // Most requests come whole and are read where they lie.
    if (c.in.empty() && !c.handling && c.unsent() < kMostUnsent && c.large.empty()) {
      const std::string_view all(room_.data(), bytes);
      const size_t used = c.parser.feed(all);
      c.in.assign(all.substr(used));
    } else {
      c.in.append(room_.data(), bytes);
    }
    process(c);
    if (c.fd < 0) return;
    if (bytes < room_.size() || c.in.size() >= options.limits.header_bytes) break;
  }
  if (c.ended) {
    // A client that closes while it waits does not want the answer any more.
    if (c.handling || c.lingering || c.out.empty()) {
      if (c.handling) dropped.fetch_add(1, std::memory_order_relaxed);
      return close(c);
    }
    c.closing = true;
  }
  if (c.fd >= 0) watch(c);
}

// Nothing more can be read.
void HttpLoop::broken(Connection& c) {
  if (c.tls && !c.tls->established()) {
    refused.fetch_add(1, std::memory_order_relaxed);
    if (c.tls->met_plain_http()) {
      const HttpResponse r{.status = 400, .content_type = "text/plain", .body = "use https here\n"};
      std::string out;
      put_head(out, r, false, true, date());
      out += r.body;
      if (::send(c.fd, out.data(), out.size(), MSG_NOSIGNAL | MSG_DONTWAIT) > 0)
        shutdown(c.fd, SHUT_WR);
    }
  }
  close(c);
}

// Handle what has come until a request waits for its answer or bytes are missing.
void HttpLoop::process(Connection& c) {
  if (c.http2) return write_http2(c);
  const auto may_handle = [&c] {
    return c.fd >= 0 && !c.handling && !c.closing && c.unsent() < kMostUnsent && c.large.empty();
  };
  do {
    while (may_handle()) {
      if (!c.in.empty() && !c.parser.done() && !c.parser.failed()) {
        const size_t used = c.parser.feed(c.in);
        c.in.erase(0, used);
      }
      if (!parse(c)) break;
    }
    if (c.fd < 0) return;
    charge(c);
    flush(c);
  } while (!c.in.empty() && may_handle());  // what waited for answers to leave
}

// After bytes were fed: true where a request was handled or refused.
bool HttpLoop::parse(Connection& c) {
  if (c.parser.failed()) {
    refuse(c, c.parser.status(), c.parser.reason());
    return true;
  }
  if (c.parser.done()) {
    dispatch(c);
    return true;
  }
  if (c.parser.take_continue()) c.out += "HTTP/1.1 100 Continue\r\n\r\n";
  if (c.parser.in_body() && c.body.since < 0) c.body.start(now());
  return false;
}

// Count the bytes that the connection's request holds.
void HttpLoop::charge(Connection& c) {
  const size_t bytes = c.handling ? c.charged : c.parser.body_bytes();
  in_flight_->change(c.charged, bytes);
  c.charged = bytes;
  if (in_flight_->full() && c.parser.in_body() && bytes > 0) refuse(c, 503, kHoldsTooMuch);
}

void HttpLoop::dispatch(Connection& c) {
  charge(c);
  requests.fetch_add(1, std::memory_order_relaxed);
  c.body.stop();
  c.changed = now();
  c.handling = true;
  auto exchange = std::make_shared<LoopExchange>(c.parser.take(), mail_, c.id);
  exchange->request.remote = c.remote;
  exchange->account = in_flight_;
  const HttpRequest& r = exchange->request;
  if (options.begun) options.begun(exchange);
  c.keep_alive = r.keep_alive;
  c.old = r.old;
  c.head_only = r.method == "HEAD";
  c.waiting = exchange;
  if (goes_beside(r)) return beside([this, e = std::move(exchange)] { call(e); });
  dispatching_ = c.id;
  call(exchange);
  dispatching_ = 0;
}

bool HttpLoop::goes_beside(const HttpRequest& r) const {
  return r.body.size() > options.inline_bytes || r.header("content-encoding") ||
         r.header("grpc-encoding") || (options.beside && options.beside(r));
}

void HttpLoop::beside(std::function<void()> task) {
  const std::lock_guard hold(work_lock_);
  work_.push_back(std::move(task));
  work_ready_.notify_one();
}

void HttpLoop::call(const HttpExchangePtr& exchange) {
  if (exchange->gone()) return;
  try {
    handler_(exchange);
  } catch (const std::exception& e) {
    log_warning("a request failed: {}", one_line(e.what()));
    exchange->answer({.status = 500, .body = "{\"error\":\"internal error\"}"});
  }
}

void HttpLoop::work() {
  for (;;) {
    std::function<void()> next;
    {
      std::unique_lock hold(work_lock_);
      work_ready_.wait(hold, [this] { return work_ends_ || !work_.empty(); });
      if (work_ends_) return;
      next = std::move(work_.front());
      work_.pop_front();
    }
    next();
  }
}

void HttpLoop::answered(uint64_t id, HttpResponse response) {
  const auto at = connections_.find(id);
  if (at == connections_.end() || !at->second->handling) return;
  put(*at->second, std::move(response));
  if (id != dispatching_) touched_.push_back(id);  // else what handles it also sends
}

const std::string& HttpLoop::date() {
  if (date_at_ < 0 || now() - date_at_ > 0.5) {
    date_ = http_date();
    date_at_ = now();
  }
  return date_;
}

// The answer to the request that waits, or the first piece of it.
void HttpLoop::put(Connection& c, HttpResponse response, bool last) {
  if (c.in_pieces) return put_piece(c, std::move(response), last);
  // Without chunks the end of the connection is the end of the answer.
  if (response.close || drains.load() > 0 || (!last && c.old)) c.keep_alive = false;
  put_head(c.out, response, c.old, !c.keep_alive, date(), !last);
  if (!last) {
    c.in_pieces = true;
    return put_piece(c, {.body = std::move(response.body)}, false);
  }
  if (!c.head_only && response.body.size() > kLarge)
    c.large = std::move(response.body);
  else if (!c.head_only)
    c.out += response.body;
  answer_ends(c);
}

void HttpLoop::put_piece(Connection& c, HttpResponse piece, bool last) {
  c.changed = now();
  if (piece.status >= 500) {  // nobody may take what was sent for the whole
    dropped.fetch_add(1, std::memory_order_relaxed);
    return close(c);
  }
  const bool chunked = !c.old && !c.head_only;
  if (!c.head_only && !piece.body.empty()) {
    if (chunked) c.out += fmt::format("{:x}\r\n", piece.body.size());
    c.out += piece.body;
    if (chunked) c.out += "\r\n";
  }
  if (!last) return;
  if (chunked) c.out += "0\r\n\r\n";
  answer_ends(c);
}

void HttpLoop::answer_ends(Connection& c) {
  c.handling = c.in_pieces = false;
  in_flight_->give(c.charged);
  c.charged = 0;
  c.changed = now();
  if (!c.keep_alive) c.closing = true;
}

void HttpLoop::refuse(Connection& c, int status, const std::string& reason) {
  refused.fetch_add(1, std::memory_order_relaxed);
  c.keep_alive = c.head_only = false;
  c.body.stop();
  c.in = std::string();
  HttpResponse r{.status = status, .body = reason};
  if (refusal_) r = refusal_(status, reason);
  if (const auto waiting = c.handling ? c.waiting.lock() : nullptr) {
    waiting->show(r, true);
    static_cast<LoopExchange&>(*waiting).leave();
  } else if (!c.handling && options.refused) {
    HttpRequest partial = c.parser.partial();
    partial.remote = c.remote;
    options.refused(partial, r);
  }
  put(c, std::move(r));
  c.parser = HttpParser(options.limits);
}

void HttpLoop::read_mail() {
  uint64_t count = 0;
  while (::read(wake, &count, sizeof count) > 0) {}
  std::vector<Mailbox::Letter> letters;
  {
    const std::lock_guard hold(mail_->lock);
    letters.swap(mail_->letters);
  }
  for (Mailbox::Letter& l : letters) {
    if (l.stream > 0) {
      answered_http2(std::move(l));
      continue;
    }
    const auto at = connections_.find(l.connection);
    if (at == connections_.end() || !at->second->handling) continue;
    Connection& c = *at->second;
    put(c, std::move(l.response), l.last);
    if (c.fd >= 0) process(c);
    if (c.fd >= 0) watch(c);
  }
}

void HttpLoop::flush(Connection& c) {
  while (c.unsent() > 0) {
    const ssize_t n = send_some(c);
    if (n < 0) {
      if (errno == EINTR) continue;
      if (errno != EAGAIN) return close(c);
      break;
    }
    c.sent += static_cast<size_t>(n);
    c.answer.bytes += static_cast<size_t>(n);
  }
  if (c.unsent() == 0) {
    c.out.clear();
    if (c.out.capacity() > kMostUnsent) c.out = std::string();
    c.large = std::string();
    c.sent = 0;
    c.answer.stop();
    if (c.closing && !c.lingering) linger(c);
  } else if (c.answer.since < 0) {
    c.answer.start(now());
  }
  if (c.fd >= 0) watch(c);
}

// The answer is sent, but the client may still write: closing at once would throw the answer away
// with it.
void HttpLoop::linger(Connection& c) {
  if (c.ended) return close(c);
  if (c.tls) c.tls->finish();
  shutdown(c.fd, SHUT_WR);
  c.lingering = true;
  c.changed = now();
}

void HttpLoop::watch(Connection& c) {
  uint32_t events = EPOLLRDHUP;
  const bool full = c.in.size() >= options.limits.header_bytes ||
                    (c.http2 && (c.unsent() >= kMostUnsent || c.closing));
  if (!full && !c.ended) events |= EPOLLIN;
  if (c.ended) events = 0;
  if (c.unsent() > 0 || (c.tls && c.tls->wants_to_write())) events |= EPOLLOUT;
  if (events == c.events) return;
  c.events = events;
  set_watch(epoll_, EPOLL_CTL_MOD, c.fd, c.id, events);
}

void HttpLoop::close(Connection& c) {
  if (c.fd < 0) return;
  if (const auto waiting = c.waiting.lock()) static_cast<LoopExchange&>(*waiting).leave();
  in_flight_->give(c.charged);
  c.http2.reset();
  ::close(c.fd);
  c.fd = -1;
  const auto at = connections_.find(c.id);
  closed_.push_back(std::move(at->second));
  connections_.erase(at);
  open.store(connections_.size(), std::memory_order_relaxed);
}

void HttpLoop::keep_time() {
  timed_at_ = now();
  if (!accepting_ && listener_ >= 0) {
    accepting_ = true;
    set_watch(epoll_, EPOLL_CTL_MOD, listener_, kListener, EPOLLIN);
  }
  std::vector<Connection*> all;
  all.reserve(connections_.size());
  for (auto& [id, c] : connections_) all.push_back(c.get());
  for (Connection* c : all)
    if (c->fd >= 0) keep_time_of(*c);
}

void HttpLoop::keep_time_of(Connection& c) {
  const Seconds waited = timed_at_ - c.changed;
  if (c.lingering) {
    if (waited > options.linger_seconds) close(c);
  } else if (c.tls && !c.tls->established()) {
    if (waited <= options.header_seconds) return;
    refused.fetch_add(1, std::memory_order_relaxed);
    close(c);
  } else if (c.unsent() > 0) {
    if (!c.answer.too_slow(timed_at_, options)) return;
    dropped.fetch_add(1, std::memory_order_relaxed);
    close(c);
  } else if (c.http2) {
    keep_time_http2(c);
  } else if (c.handling) {
    if (waited < options.answer_seconds) return;
    refuse(c, 504, "the request took too long");
    flush(c);
  } else if (c.parser.in_body()) {
    if (!c.body.too_slow(timed_at_, options)) return;
    refuse(c, 408, "the body came too slowly");
    flush(c);
  } else if (c.parser.idle() && c.in.empty()) {
    if (waited > options.idle_seconds) close(c);
  } else if (waited > options.header_seconds) {
    refuse(c, 408, "the headers came too slowly");
    flush(c);
  }
}

}  // namespace tandem::serve
