// SPDX-License-Identifier: Apache-2.0
// API keys: who may infer, load and unload models, and read metrics. A file has a key on each line:
//   infer,metrics  pWn3cJw0yT5m2Qk8      # a comment
//   infer          9fK2mW8qLr5x1Zt0  rate=50 burst=100
// Health is open to everybody, because what watches a server has no key.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

#include "tandem/serve/http/message.h"

namespace tandem::serve {

/// What a key allows. `none` wants no key.
enum class KeyScope : uint8_t { none = 0, infer = 1, admin = 2, metrics = 4 };

/// Requests at a rate, and `burst` of them at once.
class TD_API TokenBucket {
 public:
  TokenBucket(double rate, double burst) : rate_(rate), burst_(burst), tokens_(burst) {}
  /// Takes one; or gives the seconds until there is one. `now` in seconds, of any clock.
  double take(double now);
  bool is_like(const TokenBucket& b) const { return rate_ == b.rate_ && burst_ == b.burst_; }

 private:
  const double rate_, burst_;
  std::mutex lock_;
  double tokens_, since_ = -1;
};

class TD_API ApiKeys {
 public:
  ApiKeys() = default;
  /// Throws Io, and Value naming the line for an unknown scope, a key of fewer than 16 characters
  /// or one that stands there twice.
  explicit ApiKeys(const std::string& file);
  /// Reads the text of such a file.
  static ApiKeys parse(std::string_view text, const std::string& file);
  bool empty() const { return keys_.empty(); }
  /// What is left to keys that have stayed as they were.
  void keep_rates(const ApiKeys& before);

  /// 0 where the request may do what wants `scope`; 401 without a key or with an unknown one, 403
  /// with one that allows other things, 429 beyond its rate, which `wait` tells the seconds of.
  /// Takes the same time whichever keys there are.
  int check(const HttpRequest& request, KeyScope scope, double* wait = nullptr) const;

 private:
  struct Key {
    std::string digest;  ///< SHA-256, so that all comparisons have one length
    uint8_t scopes = 0;
    std::shared_ptr<TokenBucket> bucket = {};  ///< none: as many requests as it likes
  };
  std::vector<Key> keys_;
};

/// What a request's path wants, of REST and gRPC. `health_route`: one more that is open.
TD_API KeyScope scope_of(const HttpRequest& request, std::string_view health_route = "");

}  // namespace tandem::serve
