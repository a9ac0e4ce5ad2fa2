// SPDX-License-Identifier: Apache-2.0
// OpenTelemetry's traces: the context that a request brings (`traceparent`) is given back with our
// own span in it, and spans go to a file as lines of OTLP's JSON, which a collector reads.
// https://www.w3.org/TR/trace-context, https://opentelemetry.io/docs/specs/otlp
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "tandem/base/clock.h"
#include "tandem/runs/append_file.h"
#include "tandem/serve/http/message.h"

namespace tandem::serve {

struct JobResult;
struct StepRun;

struct TraceContext {
  std::string trace;  ///< 32 hexadecimal digits
  std::string span;   ///< 16: of who asks
  bool sampled = false;
};
/// Of a `traceparent`; nothing for one that is not as the specification has it.
TD_API std::optional<TraceContext> parse_traceparent(std::string_view text);
/// That of a request; nothing where it has none, several, or a broken one.
TD_API std::optional<TraceContext> trace_context(const HttpRequest& request);

/// Appends spans to a file from any thread, up to a size.
class TD_API TraceFile {
 public:
  /// Makes the file where it is not there. Throws Io.
  TraceFile(const std::string& path, double most_bytes);
  /// A line of an ExportTraceServiceRequest.
  void append(const std::string& spans) noexcept;

 private:
  const double most_bytes_;
  std::mutex lock_;
  double bytes_ = 0;
  bool full_ = false;
  runs::AppendFile file_;
};

/// A request that belongs to a trace: from its head to the end of its answer.
class TD_API RequestTrace {
 public:
  /// `file`: where its spans go, if they go anywhere; it outlives this.
  RequestTrace(const HttpRequest& request, const std::optional<TraceContext>& asked,
               TraceFile* file);
  /// The trace's.
  const std::string& id() const { return context_.trace; }
  /// "00-TRACE-SPAN-01": what comes after it belongs below our span.
  std::string parent() const;
  /// A model answered: the time that it waited and ran become spans, and below its run those of an
  /// ensemble's steps.
  void ran(const std::string& model, int64_t version, const JobResult& r);
  /// Gives the context to the first piece of an answer, and writes the spans with the last.
  void answer(HttpResponse& piece, bool last);

 private:
  static constexpr size_t kRoot = static_cast<size_t>(-1);
  struct Part {
    std::string name, attributes;
    double begin = 0, end = 0;
    int status = 200;
    size_t above = kRoot;  ///< the part below which it stands
  };
  double unix_of(Clock::time_point t) const;
  void add_steps(const std::vector<StepRun>& steps, size_t above);
  std::string span_text(const std::string& id, const std::string& above, int kind,
                        const Part& part) const;
  TraceContext context_;
  std::string own_, name_, path_, method_;
  bool has_parent_;
  TraceFile* file_;
  double begin_;
  Clock::time_point begun_at_;
  std::mutex lock_;
  bool begun_ = false, done_ = false;
  int status_ = 200;
  std::vector<Part> parts_;
};

}  // namespace tandem::serve
