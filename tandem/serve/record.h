// SPDX-License-Identifier: Apache-2.0
// Requests and their answers on disk, to be sent again: `tandem serve --record` writes them,
// `tandem bench-serve --replay` reads them. Each is a line of JSON, then the bytes of the body and
// of the answer. Of headers only those that say what the body is, and to which trace the request
// belongs, are kept, so no credentials are.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "tandem/runs/append_file.h"
#include "tandem/serve/histogram.h"
#include "tandem/serve/http/message.h"

namespace tandem::serve {

struct RecordedRequest {
  double at = 0;  ///< seconds since the first one
  std::string method = "POST", path, body;
  HttpHeaders headers = {};
  int status = 0;
  std::string answer;
};

/// Appends to a file from any thread, up to a size.
class TD_API Recorder {
 public:
  /// Makes the file, which only its owner may read. Throws Io, Value where it is there already.
  Recorder(const std::string& path, double most_bytes);
  /// What is kept of a request; nothing once the file is full.
  std::shared_ptr<RecordedRequest> begin(const HttpRequest& request);
  void finish(const RecordedRequest& request, int status, std::string_view answer) noexcept;

 private:
  const double most_bytes_;
  double begin_;  ///< of the first request; negative before it
  std::atomic<bool> full_{false};
  std::mutex lock_;
  double bytes_ = 0;
  runs::AppendFile file_;
};

/// Throws Io, and Format naming the file for what is not such a file; an entry at the end that was
/// cut off is left out.
TD_API std::vector<RecordedRequest> read_recorded(const std::string& path);

struct ReplayOptions {
  std::string url;
  int connections = 8;
  double speed = 1;      ///< 2: in half the time; 0: as fast as answers come
  std::string key = "";  ///< an API key
  bool compare = false;  ///< answers with those recorded
};
struct TD_API ReplayReport {
  size_t requests = 0;
  double seconds = 0;
  std::atomic<uint64_t> ok{0}, other{0}, broken{0};
  std::atomic<uint64_t> equal{0}, different{0};  ///< answers, where they are compared
  std::string first_difference = "";             ///< which, and how
  double largest = 0;                            ///< difference of a number
  Histogram latency;                             ///< from when a request was due
  std::string json() const;
  std::string text() const;
};
/// Sends the requests with the time between them that they had. Throws Io where nobody listens.
TD_API void replay(const ReplayOptions& options, const std::vector<RecordedRequest>& requests,
                   ReplayReport& report);

/// "" for equal answers, else what differs; the largest difference of a number goes to `largest`.
/// Numbers of JSON are compared as numbers, other bytes as bytes.
TD_API std::string answer_difference(std::string_view a, std::string_view b, double& largest);

}  // namespace tandem::serve
