// SPDX-License-Identifier: Apache-2.0
#include "tandem/serve/trace.h"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <random>

#include "tandem/base/clock.h"
#include "tandem/base/log.h"
#include "tandem/io/json.h"
#include "tandem/serve/model/scheduler.h"

namespace tandem::serve {
namespace {

constexpr size_t kTraceDigits = 32, kSpanDigits = 16;
constexpr size_t kMostParts = 256;  // of one request: a stream has many

bool is_lower_hex(std::string_view text) {
  return std::all_of(text.begin(), text.end(),
                     [](char c) { return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f'); });
}
bool is_zero(std::string_view text) {
  return text.find_first_not_of('0') == std::string_view::npos;
}

// Ids have to differ, not to be secret: a counter and a key of the process, mixed as in
// SplitMix64 (Steele, Lea and Flood, 2014).
std::string random_digits(size_t count) {
  static const uint64_t key = (uint64_t{std::random_device()()} << 32) | std::random_device()();
  static std::atomic<uint64_t> next{0};
  std::string out;
  while (out.size() < count) {
    uint64_t z = key + ++next * 0x9e3779b97f4a7c15U;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9U;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebU;
    out += fmt::format("{:016x}", z ^ (z >> 31));
  }
  return is_zero(out) ? std::string(count - 1, '0') + "1" : out;
}

std::string text_attribute(std::string_view key, std::string_view value) {
  return fmt::format("{{\"key\":\"{}\",\"value\":{{\"stringValue\":{}}}}}", key,
                     io::quote_json(std::string(value)));
}
std::string number_attribute(std::string_view key, int64_t value) {
  return fmt::format("{{\"key\":\"{}\",\"value\":{{\"intValue\":\"{}\"}}}}", key, value);
}
std::string nanoseconds(double unix_seconds) { return fmt::format("{:.0f}", unix_seconds * 1e9); }

}  // namespace

// version 2 - trace 32 - parent 16 - flags 2; later versions may have more behind another '-'.
std::optional<TraceContext> parse_traceparent(std::string_view t) {
  constexpr size_t kSpanAt = 3 + kTraceDigits + 1, kFlagsAt = kSpanAt + kSpanDigits + 1,
                   kSize = kFlagsAt + 2;
  if (t.size() < kSize || t[2] != '-' || t[kSpanAt - 1] != '-' || t[kFlagsAt - 1] != '-')
    return std::nullopt;
  const std::string_view version = t.substr(0, 2), trace = t.substr(3, kTraceDigits),
                         span = t.substr(kSpanAt, kSpanDigits), flags = t.substr(kFlagsAt, 2);
  for (const std::string_view part : {version, trace, span, flags})
    if (!is_lower_hex(part)) return std::nullopt;
  const bool longer = t.size() > kSize;
  if (version == "ff" || (longer && (version == "00" || t[kSize] != '-'))) return std::nullopt;
  if (is_zero(trace) || is_zero(span)) return std::nullopt;
  const char last = flags[1];
  const int bits = last <= '9' ? last - '0' : last - 'a' + 10;
  return TraceContext{std::string(trace), std::string(span), (bits & 1) != 0};
}

std::optional<TraceContext> trace_context(const HttpRequest& request) {
  const std::string* text = request.header("traceparent");
  return text && request.count("traceparent") == 1 ? parse_traceparent(*text) : std::nullopt;
}

TraceFile::TraceFile(const std::string& path, double most_bytes)
    : most_bytes_(most_bytes), file_(path, runs::AppendFile::Content::lines) {}

void TraceFile::append(const std::string& spans) noexcept {
  const std::lock_guard hold(lock_);
  if (full_) return;
  try {
    const std::string line =
        "{\"resourceSpans\":[{\"resource\":{\"attributes\":[" +
        text_attribute("service.name", "tandem") + "]},\"scopeSpans\":[{\"scope\":{\"name\":" +
        "\"tandem.serve\",\"version\":\"" TANDEM_VERSION "\"},\"spans\":[" + spans + "]}]}]}\n";
    bytes_ += static_cast<double>(line.size());
    full_ = bytes_ > most_bytes_;
    if (full_)
      log_warning("no more traces are written: '{}' is full (traces_mb)", file_.path());
    else
      file_.append(line);
  } catch (const std::exception& e) {
    full_ = true;
    log_warning("no more traces are written: {}", e.what());
  }
}

RequestTrace::RequestTrace(const HttpRequest& request, const std::optional<TraceContext>& asked,
                           TraceFile* file)
    : own_(random_digits(kSpanDigits)),
      path_(request.path),
      method_(request.method),
      has_parent_(asked.has_value()),
      file_(file),
      begin_(unix_time()),
      begun_at_(Clock::now()) {
  if (asked)
    context_ = *asked;
  else
    context_ = {.trace = random_digits(kTraceDigits), .span = "", .sampled = true};
  name_ = method_ + " " + one_line(path_);
}

// All times of a trace follow one clock, so that spans lie inside those above them.
double RequestTrace::unix_of(Clock::time_point t) const {
  return begin_ + std::chrono::duration<double>(t - begun_at_).count();
}

std::string RequestTrace::parent() const {
  return fmt::format("00-{}-{}-{}", context_.trace, own_, context_.sampled ? "01" : "00");
}

void RequestTrace::ran(const std::string& model, int64_t version, const JobResult& r) {
  if (!file_ || !context_.sampled) return;
  const bool has_run = r.began != Clock::time_point();
  const double run = unix_of(has_run ? r.began : Clock::now()), end = run + r.compute_seconds;
  const std::string attributes = text_attribute("tandem.model", model) + "," +
                                 number_attribute("tandem.version", version) + "," +
                                 number_attribute("tandem.batch", r.batch);
  const std::lock_guard hold(lock_);
  if (parts_.size() + 2 > kMostParts) return;
  if (r.kept) {
    parts_.push_back({"cache", attributes, end, end});
    return;
  }
  parts_.push_back({"queue", attributes, run - r.queue_seconds, run});
  if (!has_run) return;
  const size_t compute = parts_.size();
  parts_.push_back({"compute", attributes, run, end, r.status});
  add_steps(r.steps, compute);
}

void RequestTrace::add_steps(const std::vector<StepRun>& steps, size_t above) {
  for (const StepRun& s : steps) {
    if (parts_.size() >= kMostParts) return;
    const size_t own = parts_.size();
    const double begin = unix_of(s.begin);
    parts_.push_back({"step " + s.model,
                      text_attribute("tandem.model", s.model) + "," +
                          number_attribute("tandem.version", s.version) + "," +
                          number_attribute("tandem.queue_us", std::lround(s.queue_seconds * 1e6)),
                      begin, begin + s.seconds, s.failed ? 500 : 200, above});
    add_steps(s.steps, own);
  }
}

std::string RequestTrace::span_text(const std::string& id, const std::string& above, int kind,
                                    const Part& part) const {
  std::string out = fmt::format("{{\"traceId\":\"{}\",\"spanId\":\"{}\",", context_.trace, id);
  if (!above.empty()) out += fmt::format("\"parentSpanId\":\"{}\",", above);
  out += fmt::format(
      "\"name\":{},\"kind\":{},\"startTimeUnixNano\":\"{}\",\"endTimeUnixNano\":\"{}\","
      "\"attributes\":[{}]",
      io::quote_json(part.name), kind, nanoseconds(part.begin), nanoseconds(part.end),
      part.attributes);
  constexpr int kError = 2;
  if (part.status >= 500) out += fmt::format(",\"status\":{{\"code\":{}}}", kError);
  return out + "}";
}

void RequestTrace::answer(HttpResponse& piece, bool last) {
  std::string spans;
  {
    const std::lock_guard hold(lock_);
    if (!begun_) {
      piece.headers.emplace_back("traceparent", parent());
      status_ = piece.status;
    }
    begun_ = true;
    if (!last || done_) return;
    done_ = true;
    if (!file_ || !context_.sampled) return;
    constexpr int kInternal = 1, kServer = 2;
    std::string attributes = text_attribute("http.request.method", method_) + "," +
                             text_attribute("url.path", path_) + "," +
                             number_attribute("http.response.status_code", status_);
    for (const HttpHeaders* of : {&piece.headers, &piece.trailers})
      for (const auto& [key, value] : *of)
        if (key == "grpc-status") attributes += "," + text_attribute("rpc.grpc.status_code", value);
    spans = span_text(own_, has_parent_ ? context_.span : "", kServer,
                      {name_, attributes, begin_, unix_of(Clock::now()), status_});
    std::vector<std::string> ids;
    for (const Part& part : parts_) {
      ids.push_back(random_digits(kSpanDigits));
      const std::string& above = part.above == kRoot ? own_ : ids[part.above];
      spans += "," + span_text(ids.back(), above, kInternal, part);
    }
  }
  file_->append(spans);
}

}  // namespace tandem::serve
