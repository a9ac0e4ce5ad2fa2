// SPDX-License-Identifier: Apache-2.0
// One plain HTTP request with a time limit for all of it: metadata addresses of clouds
// (preempt.h), monitors (RemoteMonitor). No TLS, no redirects.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "tandem/base/export.h"

namespace tandem::train {

struct HttpRequest {
  std::string method = "GET", url = "";  ///< "http://host[:port]/path"
  std::vector<std::pair<std::string, std::string>> headers = {};
  std::string body = "";
  double seconds = 2;  ///< for all of it
};
struct HttpReply {
  int status = 0;
  std::string body;  ///< its first mebibyte
};

/// Throws Value for an address of another form, Io when no answer came in time.
TD_API HttpReply http_request(const HttpRequest& request);

}  // namespace tandem::train
