// SPDX-License-Identifier: Apache-2.0
// Load tests of a server over HTTP/1.1: `tandem bench-serve`. Closed loop: each connection sends
// its next request when the last is answered. Open loop: requests are due at a fixed rate, and
// times count from when a request was due, so a server that stalls cannot hide what it kept
// waiting.
#pragma once

#include <string>
#include <string_view>

#include "tandem/serve/histogram.h"
#include "tandem/serve/http/message.h"

namespace tandem::serve {

struct LoadRequest {
  std::string method = "GET", path = "/";
  std::string body = "";
  HttpHeaders headers = {};
};
struct LoadOptions {
  std::string url;  ///< http://HOST:PORT
  int connections = 1;
  double rate = 0;  ///< requests a second; 0: closed loop
  double seconds = 5;
  double warm_seconds = 0.5;  ///< not counted
};
struct TD_API LoadReport {
  double seconds = 0;
  uint64_t ok = 0;      ///< answers with status 2xx
  uint64_t other = 0;   ///< answers with another status
  uint64_t broken = 0;  ///< connections that ended before their answer
  int first_other = 0;  ///< the status of the first one
  double rate() const { return seconds > 0 ? static_cast<double>(ok) / seconds : 0; }
  Histogram latency;
  /// {"requests_per_second": ..., "latency_seconds": {"p50": ...}}
  std::string json() const;
  std::string text() const;
};

/// A request to a model's V2 route with inputs of random numbers, as its metadata describes them:
/// open sizes are 1, `rows` in front. `binary`: tensors as bytes, else JSON. Asks the server.
/// Throws Io, Value for a model it does not have.
TD_API LoadRequest v2_request(const std::string& url, const std::string& model, int64_t rows,
                              bool binary);
/// Throws Io where nobody listens.
TD_API void run_load(const LoadOptions& options, const LoadRequest& request, LoadReport& report);

}  // namespace tandem::serve
