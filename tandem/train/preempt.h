// SPDX-License-Identifier: Apache-2.0
// Preemption notices: a signal, or a cloud metadata address polled every few seconds on its own
// thread. A notice requests a stop as StopGuard's signals do, with a deadline.
#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "tandem/base/export.h"

namespace tandem::train {

/// SIGUSR1 of "USR1" or "SIGUSR1"; 0 for a name that is not known (USR1, USR2, HUP, TERM).
TD_API int signal_of(const std::string& name);
/// "USR1" of SIGUSR1; empty for 0 and for signals that signal_of() does not know.
TD_API std::string signal_name(int signal);
namespace detail {
/// signal_of(), and 0 for an empty name; throws Value for one that is not known.
TD_API int preempt_signal(const std::string& name);
/// Throws Value for what is not a place to ask.
TD_API void check_preempt_url(const std::string& url);
}  // namespace detail

struct PreemptOptions {
  int signal = 0;
  std::string url = "";
  std::vector<std::pair<std::string, std::string>> headers = {};  ///< of the question
  double every = 5;
  double deadline = 0;

  /// All but the headers, each with "preempt_" before its name.
  template <class V>
  void fields(V& v) {
    std::string name = signal_name(signal);
    v("preempt_signal", name,
      {.doc = "signal that says so: USR1, USR2, HUP or TERM; empty: none", .resumable = true});
    signal = detail::preempt_signal(name);
    v("preempt_url", url,
      {.doc = "place to ask: aws (/latest/meta-data/spot/instance-action), gcp "
              "(instance/preempted), or an "
              "address http://...; an answer of 200 whose text is not FALSE or NONE is a "
              "notice, 404 is none",
       .resumable = true});
    detail::check_preempt_url(url);
    v("preempt_every", every,
      {.doc = "between questions", .unit = "seconds", .above = 0, .resumable = true});
    v("preempt_deadline", deadline,
      {.doc = "from the notice to the end; 0: what the cloud gives (aws 120, gcp 30), else 30",
       .unit = "seconds",
       .at_least = 0,
       .resumable = true});
  }
};

/// While it lives, a notice requests a stop (stop_requested() is true). Use it inside a StopGuard.
class TD_API PreemptGuard {
 public:
  /// Throws Value for an address of another form.
  explicit PreemptGuard(const PreemptOptions& options);
  ~PreemptGuard();
  PreemptGuard(const PreemptGuard&) = delete;
  PreemptGuard& operator=(const PreemptGuard&) = delete;

 private:
  struct Watch;
  std::unique_ptr<Watch> watch_;
};

/// True once a notice came while a guard lived; the guard's end forgets it.
TD_API bool preempted();
/// Why a run was asked to stop: "preempted", "signal 15" or "asked to stop".
TD_API std::string stop_reason();
/// Warns when the deadline is over; called once the state is saved.
TD_API void say_if_late();
/// Seconds that are left of the deadline; below 0: it is over. Infinite without a notice.
TD_API double preempt_seconds_left();

}  // namespace tandem::train
