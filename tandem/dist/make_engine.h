// SPDX-License-Identifier: Apache-2.0
// Engines of several ranks: TCP between every pair of ranks, every call compared with the others',
// a monitor that names ranks that die, hang or stray. "tcp" moves the elements itself and adds by a
// fixed tree; with "gloo" or "mpi" a carrier (dist/carrier.h) moves those of large calls.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "tandem/dist/engine.h"
#include "tandem/dist/environment.h"

namespace tandem::distributed {

struct EngineOptions {
  /// Seconds after which a rank that gives no sign of life is given up: a stopped process, a
  /// machine without power. Ranks that die are noticed at once.
  double deadline = 10;
  /// Seconds that a call waits for a rank that lives but does not make it.
  double timeout = 300;
  /// Seconds in which all ranks must have started.
  double start_timeout = 120;
  /// What all ranks must know; "": $TANDEM_TOKEN, else this user's own secret.
  std::string token = "";
  /// What moves large calls: one of engine_names(), a carrier of one's own (dist/carrier.h), or
  /// "auto": tcp on one machine, gloo on several.
  std::string engine = "auto";
  /// End the process with code 70 where the group has ended and nobody has made a call for another
  /// `deadline` seconds, as in a loop that never ends.
  bool exit_unheard = true;
};
/// The defaults, with $TANDEM_DIST_DEADLINE, _TIMEOUT, _START_TIMEOUT and _ENGINE in place of what
/// they name. Throws Value for what is not a positive number.
TD_API EngineOptions engine_options();

/// Meet the other ranks at place.master_addr and its port, where rank 0 listens. Throws Io where
/// ranks are missing at the deadline, a port is taken or the token is wrong; Value for a rank that
/// is there already, another size or another engine; Unsupported for an engine that is not there.
/// One rank by itself: single_engine().
TD_API std::shared_ptr<Engine> make_engine(const Place& place,
                                           const EngineOptions& options = engine_options());

/// "tcp", and the engines whose plugins are the library's own.
TD_API std::vector<std::string> engine_names();
/// What `tandem doctor` says of an engine: where its plugin lies, or why there is none.
TD_API std::string engine_status(const std::string& name);

}  // namespace tandem::distributed
