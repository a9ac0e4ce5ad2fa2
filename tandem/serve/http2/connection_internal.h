// SPDX-License-Identifier: Apache-2.0
// One client's HTTP/2: its streams, their requests and answers, and the limits that hold for them.
// HttpLoop owns it, feeds it with bytes and sends what it produces.
#pragma once

#include <map>
#include <memory>
#include <string>

#include "tandem/serve/http/connection_internal.h"
#include "tandem/serve/http2/frames.h"
#include "tandem/serve/http2/stream.h"

namespace tandem::serve {

class Http2Connection;

/// What a connection needs of the loop that owns it.
struct Http2Owner {
  const HttpOptions& options;
  std::string remote;
  /// Makes a request's exchange and handles it.
  std::function<std::shared_ptr<HttpStream>(HttpRequest request, int32_t stream, bool streamed)>
      dispatch;
  /// The answer to what is refused here.
  HttpRefusal refusal;
  std::function<Seconds()> now;
  std::function<const std::string&()> date;
  /// Counts one that was refused, or dropped.
  std::function<void(bool dropped)> count;
};

/// What floods cost: frames that carry no request are allowed in bursts and at a rate.
class Allowance {
 public:
  Allowance(double most, double rate) : left_(most), most_(most), rate_(rate) {}
  /// False: there were too many.
  bool take(Seconds now);
  void give(double n) { left_ = std::min(most_, left_ + n); }

 private:
  double left_, most_, rate_;
  Seconds at_ = -1;
};

class Http2Connection : private Http2Events {
 public:
  explicit Http2Connection(Http2Owner owner);
  ~Http2Connection() override;
  Http2Connection(const Http2Connection&) = delete;
  Http2Connection& operator=(const Http2Connection&) = delete;

  /// False: the connection ends when its output is sent.
  bool receive(std::string_view bytes);
  void produce(std::string& out, size_t most) { frames_.produce(out, most); }
  bool over() const { return frames_.over(); }
  /// A piece of an answer; `last`: its end.
  void answer(int32_t stream, HttpResponse piece, bool last);
  void nudge(int32_t stream);
  void take(int32_t stream, size_t bytes, size_t held);
  size_t unsent(int32_t stream) const;
  /// No stream is open.
  bool idle() const { return streams_.empty(); }
  /// Nothing but streaming calls that have nothing to send: it may be closed to make room.
  bool quiet() const;
  Seconds idle_since() const { return idle_since_; }
  /// Bytes of requests that are held, with their headers, and of answers that wait for the client.
  size_t held() const { return held_ + waits_; }
  /// Refuse the requests whose bodies are still coming.
  void refuse_bodies(int status, const std::string& reason);
  /// Slow clients, late answers, ticks.
  void keep_time();
  /// The server is being shut down: say so; then take no more streams.
  void announce_end();
  void finish();
  void terminate(Http2Code code) { frames_.terminate(code); }

 private:
  struct Stream {
    HttpRequest request;
    size_t header_bytes = 0;
    bool headed = false;    ///< the head is complete
    bool complete = false;  ///< the client sends no more
    bool streamed = false;
    bool dispatched = false;
    bool head_only = false;            ///< HEAD
    bool grpc = false;                 ///< as the content type says
    bool begun = false, last = false;  ///< the answer
    std::string reason;                ///< why the head is refused
    int status = 0;
    std::weak_ptr<HttpStream> waiting;
    std::shared_ptr<HttpStream> kept;  ///< of a streamed one
    std::string out;
    size_t out_at = 0;
    HttpHeaders trailers;
    size_t held = 0, untaken = 0;
    size_t waits = 0;  ///< bytes of its answer that the client has not taken
    Seconds since = 0;
    FlowWatch body, sending;
  };
  void begin_head(int32_t id) override;
  bool header(int32_t id, std::string_view name, std::string_view value) override;
  void end_head(int32_t id) override;
  void data(int32_t id, std::string_view bytes) override;
  void end(int32_t id) override;
  void closed(int32_t id, Http2Code code) override;
  bool control(bool reset) override;
  std::string_view to_send(int32_t id, size_t most, bool& ended) override;
  HttpHeaders trailers(int32_t id) override;
  void sent(int32_t id, size_t n) override;

  Stream* find(int32_t id);
  void hold(Stream& s, size_t bytes);
  void wait_for_client(Stream& s);
  void dispatch(int32_t id, Stream& s);
  void refuse(int32_t id, Stream& s, int status, const std::string& reason);
  void put_head(int32_t id, Stream& s, HttpResponse& r, bool with_body);
  void keep_time_of(int32_t id, Stream& s);

  Http2Owner owner_;
  std::map<int32_t, Stream> streams_;
  size_t held_ = 0, waits_ = 0;
  Allowance resets_{500, 100}, controls_{4000, 1000};
  Seconds idle_since_ = 0;
  bool ending_ = false, said_end_ = false, finished_ = false;
  Http2Frames frames_;
};

}  // namespace tandem::serve
