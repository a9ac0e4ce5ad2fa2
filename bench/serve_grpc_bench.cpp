// SPDX-License-Identifier: Apache-2.0
#include <arpa/inet.h>
#include <fmt/core.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <unistd.h>

#include <map>

#include "bench/serve_bench.h"
#include "tandem/base/clock.h"
#include "tandem/io/json.h"
#include "tandem/serve/grpc/message.h"
#include "tandem/serve/histogram.h"
#include "tandem/serve/http/client.h"
#include "tandem/serve/http2/client.h"

namespace tandem {
namespace {

using serve::Http2Code;
using serve::Http2Frames;
using serve::HttpHeaders;

/// Answers each request with its body, as a call of gRPC: nothing but the library and a socket.
class BareEcho : private serve::Http2Events {
 public:
  explicit BareEcho(int fd) : fd_(fd), frames_(Http2Frames::Role::server, {}, *this) {}
  void run() {
    std::vector<char> room(size_t{256} << 10);
    std::string out;
    for (;;) {
      const ssize_t n = recv(fd_, room.data(), room.size(), 0);
      if (n <= 0 || !frames_.receive({room.data(), static_cast<size_t>(n)})) return;
      do {
        out.clear();
        frames_.produce(out, size_t{1} << 20);
        for (size_t at = 0; at < out.size();) {
          const ssize_t sent = send(fd_, out.data() + at, out.size() - at, MSG_NOSIGNAL);
          if (sent <= 0) return;
          at += static_cast<size_t>(sent);
        }
      } while (!out.empty());
    }
  }

 private:
  struct Stream {
    std::string body;
    size_t at = 0;
  };
  void begin_head(int32_t id) override { streams_[id]; }
  bool header(int32_t, std::string_view, std::string_view) override { return true; }
  void end_head(int32_t) override {}
  void data(int32_t id, std::string_view bytes) override {
    streams_[id].body += bytes;
    frames_.consume(id, bytes.size());
  }
  void end(int32_t id) override {
    frames_.respond(id, {{":status", "200"}, {"content-type", "application/grpc"}}, true);
  }
  void closed(int32_t id, Http2Code) override { streams_.erase(id); }
  bool control(bool) override { return true; }
  std::string_view to_send(int32_t id, size_t most, bool& ended) override {
    const Stream& s = streams_[id];
    const std::string_view rest = std::string_view(s.body).substr(s.at);
    ended = rest.size() <= most;
    return rest.substr(0, most);
  }
  HttpHeaders trailers(int32_t) override { return {{"grpc-status", "0"}}; }
  void sent(int32_t id, size_t n) override { streams_[id].at += n; }

  int fd_;
  std::map<int32_t, Stream> streams_;
  Http2Frames frames_;
};

/// One connection after the other.
void serve_bare_echo(OnCore0& at) {
  const int listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof address;
  const int on = 1;
  setsockopt(listener, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
  if (bind(listener, reinterpret_cast<sockaddr*>(&address), size) != 0 || listen(listener, 16) != 0)
    fmt::print(stderr, "the echo cannot listen\n");
  getsockname(listener, reinterpret_cast<sockaddr*>(&address), &size);
  at.url = fmt::format("http://127.0.0.1:{}", ntohs(address.sin_port));
  at.stop = [listener] { shutdown(listener, SHUT_RDWR); };
  at.ready = true;
  for (;;) {
    const int fd = accept(listener, nullptr, nullptr);
    if (fd < 0) break;
    BareEcho(fd).run();
    close(fd);
  }
  close(listener);
}

struct GrpcArm {
  const char* name;
  std::string url;
  std::vector<double> rates = {}, p50 = {}, p99 = {};
};

// ModelInfer with one row of zeros, as the model's metadata describes it.
std::string infer_body(const std::string& url, const std::string& model) {
  serve::HttpClient client{serve::HttpUrl(url)};
  const io::Json metadata = io::parse_json(client.get("/v2/models/" + model).body, "metadata");
  const io::Json& input = metadata.find("inputs")->as_array()->at(0);
  std::vector<int64_t> shape;
  int64_t count = 1;
  for (const io::Json& n : *input.find("shape")->as_array()) {
    shape.push_back(std::max<int64_t>(1, io::whole_of(&n)));
    count *= shape.back();
  }
  io::ProtoWriter out = serve::new_message(), tensor;
  tensor.add_bytes(1, io::text_of(input.find("name")));
  tensor.add_bytes(2, "FP32");
  tensor.add_packed(3, shape);
  out.add_bytes(1, model);
  out.add_message(5, tensor);
  out.add_bytes(7, std::string(static_cast<size_t>(count) * 4, '\0'));
  return serve::framed(out.take());
}

void run_calls(GrpcArm& arm, const std::string& body, int streams, double seconds) {
  const serve::HttpUrl to(arm.url);
  serve::Http2Client client(to.host, to.port);
  const HttpHeaders headers{{"content-type", "application/grpc"}, {"te", "trailers"}};
  const std::string path = "/inference.GRPCInferenceService/ModelInfer";
  std::map<int32_t, Clock::time_point> open;
  const auto start = [&] {
    const auto now = Clock::now();
    open[client.start("POST", path, body, headers)] = now;
  };
  serve::Histogram latency;
  uint64_t n = 0, wrong = 0;
  constexpr double kWarm = 0.2;
  for (int i = 0; i < streams; ++i) start();
  for (const auto begin = Clock::now(); seconds_since(begin) < kWarm + seconds;) {
    if (!client.step()) break;
    std::vector<int32_t> done;
    for (const auto& [id, since] : open)
      if (client.done(id)) done.push_back(id);
    for (const int32_t id : done) {
      if (seconds_since(begin) > kWarm) {
        latency.add(seconds_since(open[id]));
        ++n;
      }
      const serve::HttpResponse r = client.take(id);
      bool ok = false;
      for (const auto& [name, value] : r.trailers)
        ok = ok || (name == "grpc-status" && value == "0");
      wrong += !ok;
      open.erase(id);
      start();
    }
  }
  arm.rates.push_back(static_cast<double>(n) / seconds);
  arm.p50.push_back(latency.quantile(0.5));
  arm.p99.push_back(latency.quantile(0.99));
  if (wrong > 0) fmt::print("{}: {} wrong answers\n", arm.name, wrong);
}

}  // namespace

void bench_grpc(const std::string& url, const std::string& model, double seconds, int streams,
                int turns, Bars& bars) {
  if (!Http2Frames::available()) return fmt::print("this build has no gRPC\n");
  OnCore0 echo(serve_bare_echo);
  const std::string body = infer_body(url, model);
  GrpcArm arms[] = {{"bare echo of nghttp2", echo.url}, {"gRPC ModelInfer", url}};
  for (int t = 0; t < turns; ++t)
    for (GrpcArm& a : arms) run_calls(a, body, streams, seconds);
  fmt::print("{:28}{:>12}{:>12}{:>12}{:>10}\n",
             fmt::format("{}, {} bytes, {} streams", model, body.size(), streams), "calls/s",
             "p50 us", "p99 us", "to echo");
  for (const GrpcArm& a : arms)
    fmt::print("{:28}{:>12.0f}{:>12.0f}{:>12.0f}{:>10.2f}\n", a.name, median(a.rates),
               median(a.p50) * 1e6, median(a.p99) * 1e6, median(a.rates) / median(arms[0].rates));
  if (model != "null") return;  // the bars are those of a model that does next to nothing
  const auto bar = [&](const char* what) {
    return fmt::format("gRPC, {} streams, {} to the echo's", streams, what);
  };
  bars.least(bar("calls/s"), median(arms[1].rates) / median(arms[0].rates), 0.8);
  bars.most(bar("p50"), median(arms[1].p50) / median(arms[0].p50), 1.5);
}

}  // namespace tandem
