// SPDX-License-Identifier: Apache-2.0
// ProfilerGuard: times every op of this thread while it lives, both eager ones and the steps of
// compiled functions, with the work stated by the row's cost columns. Tables by op and by layer,
// and a trace for chrome://tracing or ui.perfetto.dev.
#pragma once

#include <string>
#include <vector>

#include "tandem/graph/infer.h"

namespace tandem {

/// One op or step that ran.
struct ProfileEvent {
  std::string name;
  uint32_t scope = 0;  ///< layer, see scope_path()
  SourceLocation loc;
  int64_t start_ns = 0, end_ns = 0;  ///< since the guard was made
  double flops = 0, bytes = 0;       ///< as the row's cost columns say
  bool compiled = false;
};

/// Peak rates of the machine, for the share column; 0: unknown.
struct MachineLimits {
  double gflops = 0;  ///< f32 multiply-adds counted as two, all threads
  double gbs = 0;     ///< bytes read and written
};

/// The recorded events.
class TD_API Profile {
 public:
  enum class By : uint8_t { op, layer, line };
  std::vector<ProfileEvent> events;

  /// One row per op, layer or user's line, most time first: calls, ms, share of the time, GFLOP/s,
  /// GB/s, and the share of the binding machine limit (the larger one).
  std::string table(By by = By::op, MachineLimits limits = {}) const;
  /// Chrome's trace event format (JSON).
  std::string chrome_trace() const;
  /// Seconds in recorded ops.
  double seconds() const;
};

/// Records while it lives; guards nest (the innermost records).
class TD_API ProfilerGuard {
 public:
  ProfilerGuard();
  ~ProfilerGuard();
  ProfilerGuard(const ProfilerGuard&) = delete;
  ProfilerGuard& operator=(const ProfilerGuard&) = delete;
  Profile& profile() { return profile_; }
  const Profile& profile() const { return profile_; }
  /// Nanoseconds since the guard was made.
  int64_t now() const;

 private:
  Profile profile_;
  ProfilerGuard* outer_;
  int64_t start_;
};

/// Work of a call from the row's columns; without one: one operation per output element, and every
/// input read and output written once.
TD_API double flops_of(const InferCall& c);
TD_API double bytes_of(const InferCall& c);

}  // namespace tandem
