// SPDX-License-Identifier: Apache-2.0
#include "tandem/serve/record.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <cstring>
#include <thread>

#include "tandem/base/clock.h"
#include "tandem/base/error.h"
#include "tandem/base/log.h"
#include "tandem/io/json.h"
#include "tandem/serve/http/client.h"

namespace tandem::serve {
namespace {

double seconds_now() {
  return std::chrono::duration<double>(Clock::now().time_since_epoch()).count();
}

// Makes the file, for its owner alone from the first moment.
const std::string& fresh_file(const std::string& path) {
  const int fd = ::open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, S_IRUSR | S_IWUSR);
  TD_CHECK(fd >= 0 || errno != EEXIST, Value, "'{}' is there already\nGive the name of a new file.",
           path);
  TD_CHECK(fd >= 0, Io, "'{}' cannot be made: {}", path, std::strerror(errno));
  ::close(fd);
  return path;
}

}  // namespace

Recorder::Recorder(const std::string& path, double most_bytes)
    : most_bytes_(most_bytes), begin_(-1), file_(fresh_file(path)) {}

std::shared_ptr<RecordedRequest> Recorder::begin(const HttpRequest& r) {
  if (full_.load(std::memory_order_relaxed)) return nullptr;
  auto out = std::make_shared<RecordedRequest>();
  out->method = r.method;
  out->path = r.path;
  out->body = r.body;
  for (const char* name :
       {"content-type", "accept", "inference-header-content-length", "traceparent"})
    if (const std::string* value = r.header(name)) out->headers.emplace_back(name, *value);
  const double now = seconds_now();
  const std::lock_guard hold(lock_);
  if (begin_ < 0) begin_ = now;
  out->at = now - begin_;
  return out;
}

void Recorder::finish(const RecordedRequest& r, int status, std::string_view answer) noexcept {
  try {
    io::Json::Object headers;
    for (const auto& [name, value] : r.headers) headers.emplace_back(name, value);
    std::string entry = io::Json(io::Json::Object{{"at", r.at},
                                                  {"method", r.method},
                                                  {"path", r.path},
                                                  {"headers", std::move(headers)},
                                                  {"body_bytes", r.body.size()},
                                                  {"status", status},
                                                  {"answer_bytes", answer.size()}})
                            .dump();
    entry += '\n';
    entry += r.body;
    entry += answer;
    entry += '\n';
    const std::lock_guard hold(lock_);
    if (full_.load()) return;
    if (bytes_ + static_cast<double>(entry.size()) > most_bytes_) {
      full_.store(true);
      log_warning("no more requests are recorded: '{}' is full (record_mb)", file_.path());
      return;
    }
    bytes_ += static_cast<double>(entry.size());
    file_.append(entry);
  } catch (const std::exception& e) {
    full_.store(true);
    log_warning("no more requests are recorded: {}", e.what());
  }
}

std::vector<RecordedRequest> read_recorded(const std::string& path) {
  const std::string all = read_file(path);
  std::vector<RecordedRequest> out;
  for (size_t at = 0; at < all.size();) {
    const size_t end = all.find('\n', at);
    if (end == std::string::npos) break;
    const io::Json json = io::parse_json(std::string_view(all).substr(at, end - at),
                                         fmt::format("{}, request {}", path, out.size() + 1));
    RecordedRequest r;
    r.at = io::number_of(json.find("at"));
    r.method = io::text_of(json.find("method"));
    r.path = io::text_of(json.find("path"));
    r.status = static_cast<int>(io::whole_of(json.find("status")));
    const io::Json* headers = json.find("headers");
    const int64_t body = io::whole_of(json.find("body_bytes")),
                  answer = io::whole_of(json.find("answer_bytes"));
    const bool plain =
        std::none_of(r.path.begin(), r.path.end(), [](char c) { return c <= ' ' || c == 127; });
    TD_CHECK(headers && headers->as_object() && std::isfinite(r.at) && r.at >= 0 &&
                 r.path.starts_with('/') && plain && r.method == "POST" && body >= 0 && answer >= 0,
             Format, "'{}': request {} is not one that `tandem serve --record` writes", path,
             out.size() + 1);
    for (const auto& [name, value] : *headers->as_object())
      if (value.as_string()) r.headers.emplace_back(name, *value.as_string());
    const size_t left = all.size() - end - 1;
    const auto n = static_cast<uint64_t>(body), m = static_cast<uint64_t>(answer);
    if (n > left || m > left - n || n + m == left) break;  // a killed server cut it off
    r.body = all.substr(end + 1, n);
    r.answer = all.substr(end + 1 + n, m);
    at = end + 1 + n + m;
    TD_CHECK(all[at] == '\n', Format, "'{}': request {} is damaged", path, out.size() + 1);
    ++at;
    out.push_back(std::move(r));
  }
  // Answers came in another order than requests.
  std::stable_sort(out.begin(), out.end(),
                   [](const RecordedRequest& a, const RecordedRequest& b) { return a.at < b.at; });
  return out;
}

namespace {

// Where two values of JSON differ; "" where they do not.
std::string json_difference(const io::Json& a, const io::Json& b, const std::string& place,
                            double& largest) {
  const bool numbers = (a.as_int() || a.as_double()) && (b.as_int() || b.as_double());
  if (numbers) {
    const double x = io::number_of(&a), y = io::number_of(&b);
    if (x == y) return "";
    largest = std::max(largest, std::abs(x - y));
    return fmt::format("{}: {} was {}", place, y, x);
  }
  std::string first;
  const auto note = [&first](std::string text) {
    if (first.empty()) first = std::move(text);
  };
  if (a.as_array() && b.as_array() && a.as_array()->size() == b.as_array()->size()) {
    for (size_t i = 0; i < a.as_array()->size(); ++i)
      note(json_difference((*a.as_array())[i], (*b.as_array())[i], fmt::format("{}[{}]", place, i),
                           largest));
    return first;
  }
  if (a.as_object() && b.as_object() && a.as_object()->size() == b.as_object()->size()) {
    for (const auto& [key, value] : *a.as_object()) {
      const io::Json* other = b.find(key);
      if (other)
        note(json_difference(value, *other, place + "." + key, largest));
      else
        note(place + "." + key + " is missing");
    }
    return first;
  }
  return a.dump() == b.dump() ? "" : fmt::format("{} differs", place);
}

}  // namespace

std::string answer_difference(std::string_view a, std::string_view b, double& largest) {
  if (a == b) return "";
  try {
    return json_difference(io::parse_json(a), io::parse_json(b), "the answer", largest);
  } catch (const Error&) {  // not JSON: bytes
    return fmt::format("the answer has {} bytes, was {}, and they differ", b.size(), a.size());
  }
}

namespace {

class Replay {
 public:
  Replay(const ReplayOptions& o, const std::vector<RecordedRequest>& requests, ReplayReport& report)
      : options_(o), url_(o.url), requests_(requests), report_(report) {
    HttpClient probe(url_);  // nobody listens: an error before any thread
    report.requests = requests.size();
  }
  void run() {
    begin_ = Clock::now();
    std::vector<std::thread> threads;
    const size_t n = std::min<size_t>(static_cast<size_t>(std::max(options_.connections, 1)),
                                      std::max<size_t>(requests_.size(), 1));
    for (size_t i = 0; i < n; ++i) threads.emplace_back([this] { work(); });
    for (std::thread& t : threads) t.join();
    report_.seconds = seconds_since(begin_);
  }

 private:
  void work() {
    std::unique_ptr<HttpClient> client;
    for (size_t i = next_.fetch_add(1); i < requests_.size(); i = next_.fetch_add(1)) {
      const RecordedRequest& r = requests_[i];
      auto due = Clock::now();
      if (options_.speed > 0) {
        due = begin_ + std::chrono::duration_cast<Clock::duration>(
                           std::chrono::duration<double>(r.at / options_.speed));
        std::this_thread::sleep_until(due);
      }
      try {
        if (!client) client = std::make_unique<HttpClient>(url_);
        HttpHeaders headers = r.headers;
        if (!options_.key.empty()) headers.emplace_back("authorization", "Bearer " + options_.key);
        const HttpResponse answer = client->request(r.method, r.path, r.body, headers);
        report_.latency.add(seconds_since(due));
        count(i, answer);
        if (answer.close) client.reset();
      } catch (const Error&) {
        report_.broken.fetch_add(1);
        client.reset();
      }
    }
  }
  void count(size_t i, const HttpResponse& answer) {
    const RecordedRequest& r = requests_[i];
    (answer.status / 100 == 2 ? report_.ok : report_.other).fetch_add(1);
    if (!options_.compare) return;
    double largest = 0;
    const std::string what = answer.status != r.status
                                 ? fmt::format("status {} was {}", answer.status, r.status)
                                 : answer_difference(r.answer, answer.body, largest);
    (what.empty() ? report_.equal : report_.different).fetch_add(1);
    if (what.empty()) return;
    const std::lock_guard hold(lock_);
    report_.largest = std::max(report_.largest, largest);
    if (report_.first_difference.empty())
      report_.first_difference = fmt::format("request {}, {}: {}", i + 1, r.path, what);
  }

  ReplayOptions options_;
  HttpUrl url_;
  const std::vector<RecordedRequest>& requests_;
  ReplayReport& report_;
  Clock::time_point begin_{};
  std::atomic<size_t> next_{0};
  std::mutex lock_;
};

}  // namespace

void replay(const ReplayOptions& options, const std::vector<RecordedRequest>& requests,
            ReplayReport& report) {
  Replay(options, requests, report).run();
}

std::string ReplayReport::json() const {
  return io::Json(
             io::Json::Object{{"requests", requests},
                              {"seconds", seconds},
                              {"ok", ok.load()},
                              {"other_status", other.load()},
                              {"broken", broken.load()},
                              {"equal", equal.load()},
                              {"different", different.load()},
                              {"largest_difference", largest},
                              {"first_difference", first_difference},
                              {"latency_seconds", io::Json::Object{{"p50", latency.quantile(0.5)},
                                                                   {"p99", latency.quantile(0.99)},
                                                                   {"max", latency.quantile(1)}}}})
      .dump();
}

std::string ReplayReport::text() const {
  std::string out = fmt::format(
      "{} requests in {:.2f} s: {} answered, {} with another status, {} "
      "broken connections\np50 {:.0f} us  p99 {:.0f} us  max {:.0f} us\n",
      requests, seconds, ok.load(), other.load(), broken.load(), latency.quantile(0.5) * 1e6,
      latency.quantile(0.99) * 1e6, latency.quantile(1) * 1e6);
  if (equal + different > 0) {
    out +=
        fmt::format("{} answers are the recorded ones, {} differ", equal.load(), different.load());
    if (different > 0)
      out += fmt::format(", a number by up to {:.3g}; {}", largest, first_difference);
    out += "\n";
  }
  return out;
}

}  // namespace tandem::serve
