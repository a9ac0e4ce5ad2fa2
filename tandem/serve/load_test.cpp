// SPDX-License-Identifier: Apache-2.0
#include "tandem/serve/load_test.h"

#include <fcntl.h>
#include <sys/epoll.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <deque>

#include "tandem/base/clock.h"
#include "tandem/base/error.h"
#include "tandem/serve/http/client.h"
#include "tandem/serve/load/wire_internal.h"

namespace tandem::serve {
namespace {

Clock::duration duration_of(double seconds) {
  return std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(seconds));
}
double seconds_between(Clock::time_point a, Clock::time_point b) {
  return std::chrono::duration<double>(b - a).count();
}

struct LoadConnection {
  std::unique_ptr<HttpClient> client;
  std::unique_ptr<LoadWire> wire;
  bool watches_room = false;  ///< epoll says when more can be sent
};
/// Room for a request on its way: `streams` of a connection.
struct LoadSlot {
  bool busy = false;
  Clock::time_point due{}, last_piece{};
  int64_t pieces = 0;
};

class Load : private LoadSink {
 public:
  Load(const LoadOptions& o, const LoadRequest& r, LoadReport& report)
      : options_(o),
        url_(o.url),
        report_(report),
        streams_(static_cast<size_t>(std::max(1, o.streams))),
        http2_(o.http2 || r.grpc),
        script_(r, url_.authority()) {
    TD_CHECK(!url_.secure, Unsupported,
             "load tests measure servers without TLS\nGive a URL that begins with http://.");
    TD_CHECK(streams_ == 1 || http2_, Value,
             "{} requests at a time over a connection need HTTP/2\n"
             "Speak it (--http2), or raise --connections.",
             streams_);
    epoll_ = epoll_create1(EPOLL_CLOEXEC);
    TD_CHECK(epoll_ >= 0, Io, "no file descriptors\nRaise `ulimit -n`.");
    connections_.resize(static_cast<size_t>(std::max(1, o.connections)));
    slots_.resize(connections_.size() * streams_);
    for (size_t i = 0; i < connections_.size(); ++i) open(i);
    for (size_t s = 0; s < streams_; ++s)  // one of each connection, then the second ones
      for (size_t i = 0; i < connections_.size(); ++i) idle_.push_back(i * streams_ + s);
  }
  ~Load() override { ::close(epoll_); }
  Load(const Load&) = delete;
  Load& operator=(const Load&) = delete;

  void run() {
    prctl(PR_SET_TIMERSLACK, 1UL);  // of this thread: 50 us otherwise
    const auto begin = Clock::now();
    counted_from_ = begin + duration_of(options_.warm_seconds);
    end_ = counted_from_ + duration_of(options_.seconds);
    const auto last = end_ + duration_of(std::max(options_.patience, 0.0));
    next_ = begin;
    std::vector<epoll_event> events(256);
    for (auto now = begin; now < end_ || (waits() && now < last); now = Clock::now()) {
      start(now);
      const int n = wait(events, now);
      for (int i = 0; i < n; ++i) ready(events[static_cast<size_t>(i)].data.u64);
    }
    report_.seconds = options_.seconds;
    count_unanswered(Clock::now());
  }

 private:
  bool open_loop() const { return options_.rate > 0; }
  /// Are there requests whose answers may still come?
  bool waits() const { return busy_ > 0 || (open_loop() && next_ < end_); }

  void count_unanswered(Clock::time_point now) {
    const auto add = [&](Clock::time_point due) {
      ++report_.unanswered;
      report_.latency.add(seconds_between(due, now));
    };
    for (const LoadSlot& s : slots_)
      if (s.busy) add(s.due);
    for (; open_loop() && next_ < end_; next_ += period()) add(next_);
  }
  Clock::duration period() const {
    return std::max<Clock::duration>(duration_of(1 / options_.rate), Clock::duration(1));
  }

  void open(size_t i) {
    LoadConnection& c = connections_[i];
    c.client = std::make_unique<HttpClient>(url_);
    c.wire = http2_ ? http2_wire(script_) : http1_wire(script_);
    c.watches_room = false;
    fcntl(c.client->fd(), F_SETFL, O_NONBLOCK);
    epoll_event e{};
    e.events = EPOLLIN;
    e.data.u64 = i;
    epoll_ctl(epoll_, EPOLL_CTL_ADD, c.client->fd(), &e);
  }

  // Until an answer comes or a request is due. Sleeps as exactly as the kernel can: a client that
  // spins takes time from the server where both share processors or a quota of them.
  int wait(std::vector<epoll_event>& events, Clock::time_point now) const {
    const auto most = static_cast<int>(events.size());
    Clock::duration left = std::chrono::milliseconds(100);
    if (now < end_) left = std::min<Clock::duration>(left, end_ - now);
    if (open_loop() && !idle_.empty() && next_ < end_) left = std::min(left, next_ - now);
    left = std::max(left, Clock::duration::zero());
#ifdef __GLIBC_PREREQ  // not in other C libraries, nor may it stand behind && there
#if __GLIBC_PREREQ(2, 35)
    const auto ns = std::chrono::duration_cast<std::chrono::nanoseconds>(left).count();
    const timespec time{ns / 1000000000, ns % 1000000000};
    const int n = epoll_pwait2(epoll_, events.data(), most, &time, nullptr);
    if (n >= 0 || errno != ENOSYS) return n;
#endif
#endif
    // The last part of a millisecond spins.
    const auto ms = std::chrono::duration_cast<std::chrono::milliseconds>(left).count();
    return epoll_wait(epoll_, events.data(), most, static_cast<int>(ms));
  }

  // Send what is due over connections that are idle. After the end that is what was due before it.
  void start(Clock::time_point now) {
    while (!idle_.empty() && (open_loop() ? next_ <= now && next_ < end_ : now < end_)) {
      const size_t at = idle_.front();
      idle_.pop_front();
      LoadSlot& s = slots_[at];
      s = {.busy = true, .due = open_loop() ? next_ : Clock::now()};
      ++busy_;
      if (open_loop()) next_ += period();
      connections_[at / streams_].wire->ask(at);
      write(at / streams_);
    }
  }

  void write(size_t i) {
    LoadConnection& c = connections_[i];
    for (std::string_view out = c.wire->unsent(); !out.empty(); out = c.wire->unsent()) {
      const ssize_t n = ::send(c.client->fd(), out.data(), out.size(), MSG_NOSIGNAL);
      if (n < 0 && errno == EAGAIN) return watch(i, true);
      if (n <= 0) return broken(i);
      c.wire->sent(static_cast<size_t>(n));
    }
    watch(i, false);
  }

  void watch(size_t i, bool room) {
    LoadConnection& c = connections_[i];
    if (c.watches_room == room) return;
    c.watches_room = room;
    epoll_event e{};
    e.events = EPOLLIN | (room ? EPOLLOUT : 0U);
    e.data.u64 = i;
    epoll_ctl(epoll_, EPOLL_CTL_MOD, c.client->fd(), &e);
  }

  // Of a connection that was idle nothing is lost.
  void broken(size_t i) {
    for (size_t at = i * streams_; at < (i + 1) * streams_; ++at)
      if (slots_[at].busy) {
        ++report_.broken;
        release(at);
      }
    open(i);
  }
  void release(size_t at) {
    slots_[at].busy = false;
    --busy_;
    idle_.push_back(at);
  }

  void ready(size_t i) {
    LoadConnection& c = connections_[i];
    for (;;) {
      const ssize_t n = recv(c.client->fd(), room_.data(), room_.size(), 0);
      if (n < 0 && errno == EAGAIN) break;
      if (n <= 0) return broken(i);
      if (!c.wire->take({room_.data(), static_cast<size_t>(n)}, *this)) return broken(i);
      if (static_cast<size_t>(n) < room_.size()) break;
    }
    write(i);
  }

  bool in_time(Clock::time_point now) const { return now >= counted_from_ && now < end_; }

  void piece(size_t at) override {
    LoadSlot& s = slots_[at];
    if (!s.busy) return;
    const auto now = Clock::now();
    if (counts(s, now))
      (s.pieces > 0 ? report_.next_token : report_.first_token)
          .add(seconds_between(s.pieces > 0 ? s.last_piece : s.due, now));
    ++s.pieces;
    s.last_piece = now;
    if (in_time(now)) ++report_.tokens;
  }

  /// Open loop: requests that were due in the time that counts. Closed loop: answers that came in
  /// it.
  bool counts(const LoadSlot& s, Clock::time_point now) const {
    return open_loop() ? s.due >= counted_from_ : in_time(now);
  }

  void answered(size_t at, const LoadAnswer& a) override {
    const LoadSlot& s = slots_[at];
    if (!s.busy) return;
    const auto now = Clock::now();
    report_.in_time += a.good && in_time(now);
    if (a.lost) {
      ++report_.broken;
    } else if (counts(s, now)) {
      if (a.good) {
        ++report_.ok;
        report_.latency.add(seconds_between(s.due, now));
        // An event may hold several tokens or a part of one.
        if (in_time(now) && a.tokens >= 0)
          report_.tokens += static_cast<uint64_t>(a.tokens - s.pieces);
      } else if (report_.other++ == 0) {
        report_.first_other = a.status;
        report_.first_text = a.text;
      }
    }
    release(at);
  }

  LoadOptions options_;
  HttpUrl url_;
  LoadReport& report_;
  size_t streams_;
  bool http2_;
  LoadScript script_;
  int epoll_ = -1;
  std::vector<LoadConnection> connections_;
  std::vector<LoadSlot> slots_;
  std::deque<size_t> idle_;
  size_t busy_ = 0;
  Clock::time_point next_{}, counted_from_{}, end_{};
  std::vector<char> room_ = std::vector<char>(size_t{256} << 10);
};

}  // namespace

void run_load(const LoadOptions& options, const LoadRequest& request, LoadReport& report) {
  Load(options, request, report).run();
}

}  // namespace tandem::serve
