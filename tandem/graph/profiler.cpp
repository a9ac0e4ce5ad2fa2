// SPDX-License-Identifier: Apache-2.0
#include "tandem/graph/profiler.h"

#include <fmt/format.h>
#include <time.h>

#include <algorithm>
#include <chrono>
#include <map>
#include <utility>

#include "tandem/graph/context.h"
#include "tandem/graph/profiler_clock.h"

namespace tandem {
namespace {

thread_local bool t_processor_time = false;

int64_t clock_ns() {
  if (t_processor_time) {
    timespec t{};
    ::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return int64_t{t.tv_sec} * 1000000000 + t.tv_nsec;
  }
  return std::chrono::duration_cast<std::chrono::nanoseconds>(
             std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

double numel_of(const Spec& s) {
  Dim n = s.shape.numel();
  return n.is_symbolic() ? 0 : static_cast<double>(n.value());
}

std::string escaped(const std::string& s) {
  std::string out;
  for (char c : s) {
    if (c == '"' || c == '\\')
      out += std::string("\\") + c;
    else if (static_cast<unsigned char>(c) < 32)
      out += fmt::format("\\u{:04x}", static_cast<int>(c));
    else
      out += c;
  }
  return out;
}

std::string line_of(SourceLocation w) {
  return w.file ? fmt::format("{}:{}", w.file, w.line) : std::string("?");
}

}  // namespace

ProcessorTimeGuard::ProcessorTimeGuard(bool on) : outer_(std::exchange(t_processor_time, on)) {}
ProcessorTimeGuard::~ProcessorTimeGuard() { t_processor_time = outer_; }
double profiler_seconds() { return 1e-9 * static_cast<double>(clock_ns()); }

double flops_of(const InferCall& c) {
  if (c.op.flops_fn) return c.op.flops_fn(c);
  double n = 0;
  for (const Spec& s : c.out) n += numel_of(s);
  if (c.op.family == Family::view) return 0;
  // A reduction's work is proportional to what it reads.
  if (c.op.family == Family::reduce && c.has(0)) n = numel_of(c.in[0]);
  return n;
}

double bytes_of(const InferCall& c) {
  if (c.op.bytes_fn) return c.op.bytes_fn(c);
  if (c.op.family == Family::view) return 0;
  double n = 0;
  for (int i = 0; i < c.n_in(); ++i)
    if (c.has(i)) n += numel_of(c.in[i]) * static_cast<double>(size_of(c.in[i].dtype));
  for (const Spec& s : c.out) n += numel_of(s) * static_cast<double>(size_of(s.dtype));
  return n;
}

ProfilerGuard::ProfilerGuard() : outer_(context().profiler), start_(clock_ns()) {
  context().profiler = this;
  context().slow |= kProfile;
}
ProfilerGuard::~ProfilerGuard() {
  context().profiler = outer_;
  if (!outer_) context().slow &= ~uint32_t{kProfile};
}
int64_t ProfilerGuard::now() const { return clock_ns() - start_; }

double Profile::seconds() const {
  int64_t ns = 0;
  for (const ProfileEvent& e : events) ns += e.end_ns - e.start_ns;
  return 1e-9 * static_cast<double>(ns);
}

std::string Profile::table(By by, MachineLimits limits) const {
  struct Row {
    int64_t calls = 0;
    double ns = 0, flops = 0, bytes = 0;
  };
  std::map<std::string, Row> rows;
  size_t width = 12;
  for (const ProfileEvent& e : events) {
    std::string key = by == By::op      ? e.name
                      : by == By::layer ? scope_path(e.scope)
                                        : line_of(e.loc);
    if (key.empty()) key = "(no layer)";
    if (key.size() > 60) key = key.substr(0, 57) + "...";
    width = std::max(width, key.size());
    Row& r = rows[key];
    ++r.calls;
    r.ns += static_cast<double>(e.end_ns - e.start_ns);
    r.flops += e.flops;
    r.bytes += e.bytes;
  }
  std::vector<std::pair<std::string, Row>> order(rows.begin(), rows.end());
  std::sort(order.begin(), order.end(),
            [](const auto& a, const auto& b) { return a.second.ns > b.second.ns; });
  const double all = std::max(1e9 * seconds(), 1.0);
  std::string s = fmt::format("{:<{}} {:>7} {:>10} {:>7} {:>9} {:>8} {:>9}\n",
                              by == By::op      ? "op"
                              : by == By::layer ? "layer"
                                                : "line",
                              width, "calls", "ms", "time", "GFLOP/s", "GB/s", "of limit");
  const auto line = [&](const std::string& name, const Row& r) {
    const double ns = std::max(r.ns, 1.0), gflops = r.flops / ns, gbs = r.bytes / ns;
    double share = 0;
    if (limits.gflops > 0) share = std::max(share, gflops / limits.gflops);
    if (limits.gbs > 0) share = std::max(share, gbs / limits.gbs);
    s += fmt::format("{:<{}} {:>7} {:>10.3f} {:>6.1f}% {:>9.1f} {:>8.1f} {:>9}\n", name, width,
                     r.calls, 1e-6 * r.ns, 100 * r.ns / all, gflops, gbs,
                     share > 0 ? fmt::format("{:.0f}%", 100 * share) : std::string("-"));
  };
  Row total;
  for (const auto& [name, r] : order) {
    line(name, r);
    total.calls += r.calls;
    total.ns += r.ns;
    total.flops += r.flops;
    total.bytes += r.bytes;
  }
  line("all", total);
  return s;
}

std::string Profile::chrome_trace() const {
  std::string s = "{\"displayTimeUnit\":\"ns\",\"traceEvents\":[";
  const char* sep = "\n";
  for (const ProfileEvent& e : events) {
    s += fmt::format(
        "{}{{\"name\":\"{}\",\"cat\":\"{}\",\"ph\":\"X\",\"pid\":1,\"tid\":1,\"ts\":{:.3f},"
        "\"dur\":{:.3f},\"args\":{{\"layer\":\"{}\",\"line\":\"{}\",\"flops\":{:.0f},"
        "\"bytes\":{:.0f}}}}}",
        sep, escaped(e.name), e.compiled ? "compiled" : "eager",
        1e-3 * static_cast<double>(e.start_ns), 1e-3 * static_cast<double>(e.end_ns - e.start_ns),
        escaped(scope_path(e.scope)), escaped(line_of(e.loc)), e.flops, e.bytes);
    sep = ",\n";
  }
  return s + "\n]}\n";
}

}  // namespace tandem
