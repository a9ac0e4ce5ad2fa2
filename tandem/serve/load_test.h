// SPDX-License-Identifier: Apache-2.0
// Load tests of a server, over HTTP/1.1 and HTTP/2: `tandem bench-serve`. Closed loop: each
// connection sends its next request when the last is answered. Open loop: requests are due at a
// fixed rate, and times count from when a request was due, so a server that stalls cannot hide what
// it kept waiting. Requests without an answer count, too, with the time that they have waited.
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "tandem/serve/histogram.h"
#include "tandem/serve/http/message.h"

namespace tandem::serve {

struct LoadRequest {
  static constexpr size_t kNoNumber = ~size_t{0};
  std::string method = "GET", path = "/";
  std::string body = "";
  HttpHeaders headers = {};
  bool grpc = false;  ///< the body is a message with its prefix, for HTTP/2
  /// Where eight digits of the body are, in whose place each request has its number; kNoNumber: all
  /// requests are equal.
  size_t number_at = kNoNumber;
};
struct LoadOptions {
  std::string url;  ///< http://HOST:PORT
  int connections = 1;
  int streams = 1;  ///< requests at a time over each connection; above 1 with http2 alone
  bool http2 = false;
  double rate = 0;  ///< requests a second; 0: closed loop
  double seconds = 5;
  double warm_seconds = 0.5;  ///< not counted
  double patience = 5;        ///< seconds after the end in which answers may still come
};
struct TD_API LoadReport {
  double seconds = 0;
  uint64_t ok = 0;          ///< answers with status 2xx, of gRPC with code 0
  uint64_t in_time = 0;     ///< such answers that came in the time that counts, due in it or before
  uint64_t other = 0;       ///< answers with another status
  uint64_t broken = 0;      ///< connections that ended before their answer
  uint64_t unanswered = 0;  ///< neither: requests without an answer, sent or waiting to be sent
  int first_other = 0;      ///< the status of the first one; of gRPC its code
  std::string first_text;   ///< and what it says
  uint64_t tokens = 0;      ///< of texts that come as events
  Histogram latency;        ///< of answers (`ok`), and how long those without one have waited
  Histogram first_token;    ///< until the first token of a text
  Histogram next_token;     ///< between two events with text
  double rate() const { return seconds > 0 ? static_cast<double>(in_time) / seconds : 0; }
  double token_rate() const { return seconds > 0 ? static_cast<double>(tokens) / seconds : 0; }
  /// There are answers, and all requests have good ones.
  bool good() const { return ok > 0 && other + broken + unanswered == 0; }
  /// {"requests_per_second": ..., "latency_seconds": {"p50": ...}}
  std::string json() const;
  std::string text() const;
};

/// How a model is asked: V2 with tensors as bytes or as JSON and over gRPC; TensorFlow Serving's
/// predict by REST and gRPC; OpenAI's completions and chats, as server-sent events.
enum class LoadProtocol { v2, v2_json, v2_grpc, tensorflow, tensorflow_grpc, completions, chat };
/// The protocols' names, in that order: v2, v2-json, grpc, tensorflow ...
TD_API const std::vector<std::string>& load_protocols();
struct LoadModel {
  LoadProtocol protocol = LoadProtocol::v2;
  std::string name;
  int64_t rows = 1;  ///< of tensors
  std::string prompt = "Once upon a time";
  int64_t tokens = 64;   ///< of a text, at most
  std::string key = "";  ///< an API key
};
/// A request to a model. Tensors hold random numbers and are as the server's metadata, in the same
/// protocol, describes them: open sizes are 1, `rows` in front. A prompt begins with the request's
/// number, so that texts do not share their beginnings. Throws Io, Value for a model that the
/// server does not have, Format for inputs that are not numbers, Unsupported for gRPC without
/// libnghttp2.
TD_API LoadRequest load_request(const std::string& url, const LoadModel& model);
/// The same by V2, with tensors as bytes (`binary`) or as JSON.
TD_API LoadRequest v2_request(const std::string& url, const std::string& model, int64_t rows,
                              bool binary);
/// Throws Io where nobody listens, Value for options that do not go together.
TD_API void run_load(const LoadOptions& options, const LoadRequest& request, LoadReport& report);

// ---- sweeps
struct SweepOptions {
  LoadOptions load;  ///< its rate is not used
  std::vector<double>
      rates;               ///< empty: shares of a closed loop's rate, then ever closer to the bound
  double most_p99 = 0.01;  ///< the bound, in seconds
};
struct SweepPoint {
  double rate = 0,
         reached = 0;  ///< requests a second that were due, and that were answered in time
  double p50 = 0, p90 = 0, p99 = 0, p999 = 0, most = 0;  ///< seconds
  uint64_t failed = 0;                                   ///< without a good answer
  bool within = false;  ///< all answered, at the rate, and p99 is within the bound
};
struct TD_API SweepReport {
  double most_p99 = 0;
  double closed_rate = 0;          ///< of the closed loop; 0 without one
  std::vector<SweepPoint> points;  ///< by rate
  /// The highest rate that is within the bound while no lower one is beyond it; 0: none.
  double best() const;
  std::string json() const;
  std::string text() const;
  /// A page with the quantiles over the rate; `facts`: what it says of the test.
  std::string html(const std::string& title,
                   const std::vector<std::pair<std::string, std::string>>& facts) const;
};
/// Open loops at several rates; `said` hears of each point. Throws what run_load() does, and Value
/// for rates that are not above 0.
TD_API SweepReport sweep_load(const SweepOptions& options, const LoadRequest& request,
                              const std::function<void(const SweepPoint&)>& said = {});

}  // namespace tandem::serve
