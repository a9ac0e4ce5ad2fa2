// SPDX-License-Identifier: Apache-2.0
#include "tandem/serve/load_test.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/epoll.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <deque>
#include <memory>
#include <random>
#include <vector>

#include "tandem/base/clock.h"
#include "tandem/base/error.h"
#include "tandem/io/json.h"
#include "tandem/ops/ops.h"
#include "tandem/serve/http/client.h"
#include "tandem/serve/protocol/v2_internal.h"

namespace tandem::serve {
namespace {

struct LoadConnection {
  std::unique_ptr<HttpClient> client;
  std::string in;
  size_t sent = 0;
  bool busy = false;
  Clock::time_point due{};
};

class Load {
 public:
  Load(const LoadOptions& o, const LoadRequest& r, LoadReport& report)
      : options_(o), url_(o.url), report_(report) {
    TD_CHECK(!url_.secure, Unsupported,
             "load tests measure servers without TLS\nGive a URL that begins with http://.");
    bytes_ = request_text(r.method, r.path, url_.authority(), r.body, r.headers);
    epoll_ = epoll_create1(EPOLL_CLOEXEC);
    TD_CHECK(epoll_ >= 0, Io, "no file descriptors\nRaise `ulimit -n`.");
    connections_.resize(static_cast<size_t>(std::max(1, o.connections)));
    for (size_t i = 0; i < connections_.size(); ++i) open(i);
  }
  ~Load() { ::close(epoll_); }
  Load(const Load&) = delete;
  Load& operator=(const Load&) = delete;

  void run() {
    prctl(PR_SET_TIMERSLACK, 1UL);  // of this thread: 50 us otherwise
    const auto begin = Clock::now();
    counted_from_ = begin + seconds(options_.warm_seconds);
    const auto end = counted_from_ + seconds(options_.seconds);
    next_ = begin;
    std::vector<epoll_event> events(256);
    for (auto now = begin; now < end; now = Clock::now()) {
      start(now);
      const int n = wait(events, now);
      for (int i = 0; i < n; ++i) ready(events[static_cast<size_t>(i)].data.u64);
    }
    report_.seconds = options_.seconds;
  }

 private:
  static Clock::duration seconds(double s) {
    return std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(s));
  }

  void open(size_t i) {
    LoadConnection& c = connections_[i];
    c.client = std::make_unique<HttpClient>(url_);
    c.in.clear();
    c.busy = false;
    fcntl(c.client->fd(), F_SETFL, O_NONBLOCK);
    epoll_event e{};
    e.events = EPOLLIN;
    e.data.u64 = i;
    epoll_ctl(epoll_, EPOLL_CTL_ADD, c.client->fd(), &e);
    idle_.push_back(i);
  }

  // Until an answer comes or a request is due. Sleeps as exactly as the kernel can: a client that
  // spins takes time from the server where both share processors or a quota of them.
  int wait(std::vector<epoll_event>& events, Clock::time_point now) const {
    const auto most = static_cast<int>(events.size());
    Clock::duration left = std::chrono::milliseconds(100);
    if (options_.rate > 0 && !idle_.empty())
      left = std::max<Clock::duration>(next_ - now, Clock::duration::zero());
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

  // Send what is due over connections that are idle.
  void start(Clock::time_point now) {
    while (!idle_.empty() && (options_.rate <= 0 || next_ <= now)) {
      const size_t i = idle_.front();
      idle_.pop_front();
      LoadConnection& c = connections_[i];
      c.busy = true;
      c.sent = 0;
      c.due = options_.rate > 0 ? next_ : Clock::now();
      if (options_.rate > 0) next_ += seconds(1 / options_.rate);
      write(i);
    }
  }

  void write(size_t i) {
    LoadConnection& c = connections_[i];
    while (c.sent < bytes_.size()) {
      const ssize_t n =
          ::send(c.client->fd(), bytes_.data() + c.sent, bytes_.size() - c.sent, MSG_NOSIGNAL);
      if (n < 0 && errno == EAGAIN) return watch(i, EPOLLIN | EPOLLOUT);
      if (n <= 0) return broken(i);
      c.sent += static_cast<size_t>(n);
    }
  }

  void watch(size_t i, uint32_t wanted) {
    epoll_event e{};
    e.events = wanted;
    e.data.u64 = i;
    epoll_ctl(epoll_, EPOLL_CTL_MOD, connections_[i].client->fd(), &e);
  }

  void broken(size_t i) {
    if (connections_[i].busy) ++report_.broken;
    open(i);
  }

  void ready(size_t i) {
    LoadConnection& c = connections_[i];
    if (c.busy && c.sent < bytes_.size()) {
      write(i);
      if (connections_[i].sent == bytes_.size()) watch(i, EPOLLIN);
    }
    for (;;) {
      const ssize_t n = recv(c.client->fd(), room_.data(), room_.size(), 0);
      if (n < 0 && errno == EAGAIN) break;
      if (n <= 0) return broken(i);
      c.in.append(room_.data(), static_cast<size_t>(n));
      if (static_cast<size_t>(n) < room_.size()) break;
    }
    HttpResponse answer;
    const size_t used = parse_response(c.in, true, answer);
    if (used == 0 || !c.busy) return;
    c.in.erase(0, used);
    c.busy = false;
    const auto now = Clock::now();
    if (c.due >= counted_from_) {
      if (answer.status / 100 == 2) {
        ++report_.ok;
        report_.latency.add(std::chrono::duration<double>(now - c.due).count());
      } else {
        if (report_.other++ == 0) report_.first_other = answer.status;
      }
    }
    if (answer.close) return open(i);
    idle_.push_back(i);
  }

  LoadOptions options_;
  HttpUrl url_;
  LoadReport& report_;
  std::string bytes_;
  int epoll_ = -1;
  std::vector<LoadConnection> connections_;
  std::deque<size_t> idle_;
  Clock::time_point next_{}, counted_from_{};
  std::vector<char> room_ = std::vector<char>(size_t{256} << 10);
};

constexpr double kQuantiles[] = {0.5, 0.9, 0.99, 0.999, 1};
constexpr const char* kQuantileNames[] = {"p50", "p90", "p99", "p99.9", "max"};

// Random numbers of a dtype, as bytes and as JSON.
Tensor random_tensor(const Shape& shape, DType dtype) {
  const Tensor x = randn(shape);
  return is_floating(dtype) ? x.to(dtype) : (x > 0).to(dtype);
}

}  // namespace

LoadRequest v2_request(const std::string& url, const std::string& model, int64_t rows,
                       bool binary) {
  const HttpUrl to(url);
  HttpClient client(to);
  const HttpResponse r = client.get("/v2/models/" + model);
  TD_CHECK(r.status == 200, Value, "the server has no model '{}': {} {}", model, r.status,
           one_line(r.body));
  const io::Json metadata = io::parse_json(r.body, "the model's metadata");
  const io::Json* inputs = metadata.find("inputs");
  TD_CHECK(inputs && inputs->as_array(), Format, "the model's metadata names no inputs");
  std::string head = "{\"inputs\":[", tail;
  for (const io::Json& input : *inputs->as_array()) {
    const std::string datatype = io::text_of(input.find("datatype"));
    if (datatype == kBytes) continue;  // in the place of the others
    const auto dtype = v2_dtype(datatype);
    const io::Json* sizes = input.find("shape");
    TD_CHECK(dtype && sizes && sizes->as_array(), Format, "an input of '{}' is none of numbers",
             model);
    std::vector<int64_t> shape;
    for (const io::Json& n : *sizes->as_array()) {
      const int64_t size = io::whole_of(&n);
      shape.push_back(size >= 0 ? size : shape.empty() ? rows : 1);
    }
    const Tensor x = random_tensor(Shape(shape), *dtype);
    if (head.back() == '}') head += ',';
    head +=
        "{\"name\":" + io::quote_json(io::text_of(input.find("name"))) +
        fmt::format(",\"datatype\":\"{}\",\"shape\":[{}]", v2_name(*dtype), fmt::join(shape, ","));
    if (binary) {
      const size_t bytes = static_cast<size_t>(x.numel()) * size_of(*dtype);
      head += fmt::format(",\"parameters\":{{\"binary_data_size\":{}}}}}", bytes);
      tail.append(static_cast<const char*>(x.data_ptr()), bytes);
    } else {
      head += ",\"data\":";
      write_array(head, x, NonFinite::null, false);
      head += '}';
    }
  }
  head += binary ? "],\"parameters\":{\"binary_data_output\":true}}" : "]}";
  LoadRequest out{.method = "POST", .path = "/v2/models/" + model + "/infer"};
  out.headers.emplace_back("Content-Type",
                           binary ? "application/octet-stream" : "application/json");
  if (binary)
    out.headers.emplace_back("Inference-Header-Content-Length", std::to_string(head.size()));
  out.body = head + tail;
  return out;
}

void run_load(const LoadOptions& options, const LoadRequest& request, LoadReport& report) {
  Load(options, request, report).run();
}

std::string LoadReport::json() const {
  std::string out = fmt::format(
      "{{\"seconds\":{},\"requests\":{},\"other_status\":{},\"first_other_status\":{},"
      "\"broken\":{},\"requests_per_second\":{:.1f},\"latency_seconds\":{{\"mean\":{:.9f}",
      seconds, ok, other, first_other, broken, rate(),
      latency.count() > 0 ? latency.sum() / static_cast<double>(latency.count()) : 0);
  for (size_t i = 0; i < std::size(kQuantiles); ++i)
    out += fmt::format(",\"{}\":{:.9f}", kQuantileNames[i], latency.quantile(kQuantiles[i]));
  return out + "}}";
}

std::string LoadReport::text() const {
  std::string out = fmt::format("{:.0f} requests/s ({} in {} s)", rate(), ok, seconds);
  if (other > 0) out += fmt::format(", {} with another status, the first {}", other, first_other);
  if (broken > 0) out += fmt::format(", {} broken connections", broken);
  out += "\n";
  for (size_t i = 0; i < std::size(kQuantiles); ++i)
    out += fmt::format("{}{} {:.0f} us", i ? "  " : "", kQuantileNames[i],
                       latency.quantile(kQuantiles[i]) * 1e6);
  return out + "\n";
}

}  // namespace tandem::serve
