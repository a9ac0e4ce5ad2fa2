// SPDX-License-Identifier: Apache-2.0
#include "tandem/serve/access_log.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <ctime>

#include "tandem/base/error.h"
#include "tandem/base/log.h"
#include "tandem/io/json.h"
#include "tandem/serve/grpc/status.h"
#include "tandem/serve/model/scheduler.h"

namespace tandem::serve {
namespace {

// Lines are written together: after the first one came, for so long or until there are so many.
constexpr auto kGather = std::chrono::milliseconds(50);
constexpr size_t kMany = 4096;
constexpr size_t kPiece = 4096;  // a pipe that can be written to takes as much without waiting
constexpr int kPatience = 1000;  // milliseconds, for one that nobody reads

std::string day_text(double at, const char* form) {
  const auto seconds = static_cast<time_t>(at);
  std::tm parts{};
  gmtime_r(&seconds, &parts);
  char text[64];
  return {text, std::strftime(text, sizeof text, form, &parts)};
}

std::string milliseconds(double seconds) { return fmt::format("{:.3f}", seconds * 1e3); }

}  // namespace

std::string json_line(const AccessEntry& e) {
  const double whole = std::floor(e.at);
  std::string out = fmt::format("{{\"time\":\"{}.{:03}Z\"", day_text(e.at, "%Y-%m-%dT%H:%M:%S"),
                                static_cast<int>((e.at - whole) * 1000));
  const auto text = [&out](const char* key, const std::string& value) {
    if (value.empty()) return;
    out += fmt::format(",\"{}\":", key);
    out += io::quote_json(value);
  };
  const auto number = [&out](const char* key, const auto& value) {
    out += fmt::format(",\"{}\":{}", key, value);
  };
  text("remote", e.remote);
  text("protocol", e.protocol);
  text("method", e.method);
  text("path", e.path);
  text("model", e.model);
  if (e.version > 0) number("version", e.version);
  number("status", e.status);
  if (!e.grpc_status.empty()) number("grpc_status", e.grpc_status);
  number("bytes_in", e.bytes_in);
  number("bytes_out", e.bytes_out);
  number("ms", milliseconds(e.seconds));
  if (e.batch > 0) {
    number("queue_ms", milliseconds(e.queue_seconds));
    number("compute_ms", milliseconds(e.compute_seconds));
    number("batch", e.batch);
  }
  if (e.prompt_tokens > 0) number("prompt_tokens", e.prompt_tokens);
  if (e.new_tokens > 0) number("new_tokens", e.new_tokens);
  text("trace", e.trace);
  text("request_id", e.request_id);
  text("agent", e.agent);
  return out + "}\n";
}

std::string combined_line(const AccessEntry& e) {
  const size_t port = e.remote.rfind(':');
  const auto quoted = [](const std::string& text) {
    std::string out;
    for (const char c : text) out += c == '"' ? std::string("\\x22") : std::string(1, c);
    return out.empty() ? "-" : out;
  };
  return fmt::format("{} - - [{}] \"{} {} {}\" {} {} \"-\" \"{}\"\n",
                     e.remote.empty() ? "-" : e.remote.substr(0, port),
                     day_text(e.at, "%d/%b/%Y:%H:%M:%S +0000"), quoted(e.method), quoted(e.path),
                     e.protocol == "gRPC" ? "HTTP/2" : e.protocol, e.status, e.bytes_out,
                     quoted(e.agent));
}

// ---- the file

AccessLog::AccessLog(AccessLogOptions options) : options_(std::move(options)) {
  TD_CHECK(options_.format == "json" || options_.format == "combined", Value,
           "'{}' is no format of an access log\nThere are json and combined.", options_.format);
  open();
  TD_CHECK(fd_ >= 0, Io, "the access log '{}' cannot be opened: {}", options_.path,
           std::strerror(errno));
  thread_ = std::thread([this] { work(); });
}

AccessLog::~AccessLog() {
  {
    const std::lock_guard hold(lock_);
    ends_ = true;
  }
  ready_.notify_one();
  thread_.join();
  if (fd_ >= 0) ::close(fd_);
}

void AccessLog::open() {
  if (fd_ >= 0) ::close(fd_);
  // A pipe that nobody reads is an error, not a wait.
  fd_ = options_.path == "-"
            ? fcntl(STDOUT_FILENO, F_DUPFD_CLOEXEC, 0)
            : ::open(options_.path.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC | O_NONBLOCK,
                     S_IRUSR | S_IWUSR | S_IRGRP);
  struct stat about {};
  regular_ = options_.path != "-" && fd_ >= 0 && fstat(fd_, &about) == 0 && S_ISREG(about.st_mode);
  bytes_ = regular_ ? static_cast<double>(about.st_size) : 0;
  torn_ = false;
}

void AccessLog::turn_over() {
  const std::string old = options_.path + ".1";
  if (std::rename(options_.path.c_str(), old.c_str()) == 0) return open();
  log_warning("the access log '{}' grows beyond its size: {}", options_.path, std::strerror(errno));
  bytes_ = 0;  // said again after as much more
}

void AccessLog::add(AccessEntry entry) noexcept {
  bool first = false, many = false;
  try {
    const std::lock_guard hold(lock_);
    if (waiting_.size() >= options_.most_waiting) {
      lost_.fetch_add(1, std::memory_order_relaxed);
      return;
    }
    first = waiting_.empty();
    waiting_.push_back(std::move(entry));
    many = waiting_.size() == kMany;
  } catch (const std::exception&) {  // no memory
    lost_.fetch_add(1, std::memory_order_relaxed);
  }
  if (first || many) ready_.notify_one();
}

void AccessLog::work() {
  // A pipe whose reader has gone is an error of a write, and no end of the program.
  sigset_t broken_pipe;
  sigemptyset(&broken_pipe);
  sigaddset(&broken_pipe, SIGPIPE);
  pthread_sigmask(SIG_BLOCK, &broken_pipe, nullptr);
  for (bool ends = false; !ends;) {
    std::vector<AccessEntry> entries;
    {
      std::unique_lock hold(lock_);
      ready_.wait(hold, [this] { return ends_ || !waiting_.empty(); });
      ready_.wait_for(hold, kGather, [this] { return ends_ || waiting_.size() >= kMany; });
      entries.swap(waiting_);
      ends = ends_;
    }
    try {
      if (!entries.empty()) write(entries);
    } catch (const std::exception& e) {
      lose(entries.size(), e.what());
    }
  }
}

void AccessLog::write(const std::vector<AccessEntry>& entries) {
  if (const int asked = reopens_.load(); asked != reopened_ || fd_ < 0) {
    reopened_ = asked;
    open();
  }
  if (fd_ < 0) return lose(entries.size(), std::strerror(errno));
  std::string text;
  for (const AccessEntry& e : entries)
    text += options_.format == "json" ? json_line(e) : combined_line(e);
  if (regular_ && bytes_ > 0 && bytes_ + static_cast<double>(text.size()) > options_.most_bytes)
    turn_over();
  if (torn_) text.insert(0, 1, '\n');
  put(text);
}

void AccessLog::put(std::string_view text) {
  const size_t most = regular_ ? text.size() : kPiece;
  while (!text.empty()) {
    pollfd ready{.fd = fd_, .events = POLLOUT, .revents = 0};
    const bool waits = !regular_ && ::poll(&ready, 1, kPatience) == 0;
    const ssize_t n = waits ? -1 : ::write(fd_, text.data(), std::min(most, text.size()));
    if (n < 0 && !waits && errno == EINTR) continue;
    if (n < 0) {
      const auto lines = static_cast<size_t>(std::count(text.begin(), text.end(), '\n'));
      return lose(lines, waits ? "nobody reads it" : std::strerror(errno));
    }
    bytes_ += static_cast<double>(n);
    text.remove_prefix(static_cast<size_t>(n));
    torn_ = !text.empty() && text.data()[-1] != '\n';
  }
  if (failing_) log_warning("lines of the access log are written again");
  failing_ = false;
}

void AccessLog::lose(size_t lines, const std::string& why) {
  lost_.fetch_add(lines, std::memory_order_relaxed);
  if (!failing_)
    log_warning("lines of the access log '{}' are lost: {}", options_.path, one_line(why));
  failing_ = true;
}

// ---- a request

AccessRecord::AccessRecord(const HttpRequest& r, AccessLog& log) : log_(log) {
  constexpr size_t kMostPath = 1024, kMostText = 128;
  entry_.at = unix_time();
  entry_.remote = r.remote;
  entry_.protocol = is_grpc(r) ? "gRPC" : r.http2 ? "HTTP/2" : r.old ? "HTTP/1.0" : "HTTP/1.1";
  entry_.method = one_line(r.method, kMostText);
  entry_.path = one_line(r.path, kMostPath);
  entry_.bytes_in = r.body.size();
  if (const std::string* id = r.header("x-request-id"))
    entry_.request_id = one_line(*id, kMostText);
  if (const std::string* agent = r.header("user-agent")) entry_.agent = one_line(*agent, kMostText);
}

void AccessRecord::ran(const std::string& model, int64_t version, const JobResult& r) {
  const std::lock_guard hold(lock_);
  entry_.model = model;
  entry_.version = version;
  entry_.queue_seconds += r.queue_seconds;
  entry_.compute_seconds += r.compute_seconds;
  entry_.batch = r.batch;
}

void AccessRecord::names(const std::string& model, int64_t version) {
  const std::lock_guard hold(lock_);
  entry_.model = model;
  entry_.version = version;
}

void AccessRecord::texts(int64_t prompt_tokens, int64_t new_tokens) {
  const std::lock_guard hold(lock_);
  entry_.prompt_tokens = prompt_tokens;
  entry_.new_tokens = new_tokens;
}

void AccessRecord::called(std::string_view id) {
  constexpr size_t kMostText = 128;
  const std::lock_guard hold(lock_);
  if (entry_.request_id.empty()) entry_.request_id = one_line(id, kMostText);
}

void AccessRecord::traced(std::string_view trace) {
  const std::lock_guard hold(lock_);
  entry_.trace = trace;
}

void AccessRecord::answer(const HttpResponse& piece, bool last, bool gone, uint64_t received) {
  const std::lock_guard hold(lock_);
  if (done_) return;
  constexpr int kWentAway = 499;
  if (!begun_ || piece.status >= 500) entry_.status = piece.status;
  begun_ = true;
  entry_.bytes_out += piece.body.size();
  if (!last) return;
  done_ = true;
  if (gone) entry_.status = kWentAway;
  for (const HttpHeaders* of : {&piece.headers, &piece.trailers})
    for (const auto& [key, value] : *of)
      if (key == "grpc-status") entry_.grpc_status = value;
  entry_.bytes_in += received;
  entry_.seconds = seconds_since(begin_);
  log_.add(std::move(entry_));
}

}  // namespace tandem::serve
