// SPDX-License-Identifier: Apache-2.0
// The loop behind HttpServer: sockets, times, and answers that come from other threads.
#pragma once

#include <atomic>
#include <condition_variable>
#include <deque>
#include <functional>
#include <mutex>
#include <thread>
#include <unordered_map>
#include <vector>

#include "tandem/serve/http/connection_internal.h"

namespace tandem::serve {

class HttpLoop;

/// Answers wait here for the loop, which may be gone by then.
struct Mailbox : std::enable_shared_from_this<Mailbox> {
  struct Letter {
    uint64_t connection;
    HttpResponse response;
    bool last = true;    ///< the answer is complete
    int32_t stream = 0;  ///< of HTTP/2
    bool nudge = false;  ///< there is no piece: HttpStream::on_tick alone
  };
  std::mutex lock;
  std::vector<Letter> letters;
  int wake = -1;                          ///< an eventfd
  HttpLoop* loop = nullptr;               ///< nullptr: it is gone
  std::atomic<std::thread::id> thread{};  ///< the loop's, while it runs
  /// Wakes the loop where it is the first; during an AnswersTogether of this thread, when that
  /// ends.
  void post(Letter letter);
  void post_all(std::vector<Letter> letters);
};

class HttpLoop {
 public:
  HttpLoop(HttpOptions options, HttpHandler handler, HttpRefusal refusal);
  ~HttpLoop();
  void run();
  /// From any thread and from signal handlers.
  void wake_up() noexcept;
  /// The answer to the request that a connection waits for.
  void answered(uint64_t id, HttpResponse response);
  /// A piece of an answer over HTTP/2. The connection itself: nullptr where it is closed.
  void answered_http2(Mailbox::Letter letter);
  Http2Connection* http2_of(uint64_t id);
  /// From the loop's thread.
  void put_off(std::function<void()> task) { put_off_.push_back(std::move(task)); }
  /// The loop whose thread this is; nullptr on other threads.
  static HttpLoop*& of_this_thread();

  const HttpOptions options;
  int port = 0;
  std::atomic<int> drains{0};   ///< calls of drain()
  std::atomic<int> reloads{0};  ///< calls of reload()
  /// Runs on a worker.
  void beside(std::function<void()> task);
  std::atomic<double> drain_delay{0}, drain_wait{0};
  int wake = -1;
  std::atomic<uint64_t> accepted{0}, open{0}, requests{0}, refused{0}, dropped{0};

 private:
  using Connections = std::unordered_map<uint64_t, std::unique_ptr<Connection>>;
  void accept_all();
  void reload();
  void broken(Connection& c);
  void make_room();
  void readable(Connection& c);
  void process(Connection& c);
  bool parse(Connection& c);
  void charge(Connection& c);
  void dispatch(Connection& c);
  bool goes_beside(const HttpRequest& r) const;
  void call(const HttpExchangePtr& exchange);
  void refuse(Connection& c, int status, const std::string& reason);
  void put(Connection& c, HttpResponse response, bool last = true);
  void put_piece(Connection& c, HttpResponse piece, bool last);
  void answer_ends(Connection& c);
  void flush(Connection& c);
  void linger(Connection& c);
  void watch(Connection& c);
  void close(Connection& c);
  void read_mail();
  void keep_time();
  void keep_time_of(Connection& c);
  bool drained();
  // ---- http2/loop.cpp
  bool read_http2(Connection& c, std::string_view bytes);
  void open_http2(Connection& c);
  void write_http2(Connection& c);
  void end_turn();
  void write_touched();
  void keep_time_http2(Connection& c);
  void end_http2(bool last);
  const std::string& date();
  void work();
  /// The turn's: nothing that is timed here needs more.
  Seconds now() const { return now_; }
  void look_at_clock();

  HttpHandler handler_;
  HttpRefusal refusal_;
  TlsContextPtr tls_;
  int reloaded_ = 0;
  int listener_ = -1, epoll_ = -1;
  bool accepting_ = false;
  Connections connections_;
  std::vector<std::unique_ptr<Connection>> closed_;  ///< in this turn of the loop
  uint64_t next_id_ = 16;                            ///< below: the listener and the eventfd
  std::shared_ptr<ByteAccount> in_flight_ = std::make_shared<ByteAccount>(options.bytes_in_flight);
  std::vector<uint64_t> touched_;               ///< connections that may have something to send
  std::vector<std::function<void()>> put_off_;  ///< to the end of the turn
  uint64_t dispatching_ = 0;                    ///< the connection whose request is being handled
  Seconds now_ = 0;                             ///< when the turn began
  std::shared_ptr<Mailbox> mail_ = std::make_shared<Mailbox>();
  std::string date_;
  Seconds date_at_ = -1, drain_at_ = -1, timed_at_ = 0;
  std::vector<char> room_ = std::vector<char>(size_t{256} << 10);
  std::mutex work_lock_;
  std::condition_variable work_ready_;
  std::deque<std::function<void()>> work_;
  bool work_ends_ = false;
  std::vector<std::thread> workers_;
};

}  // namespace tandem::serve
