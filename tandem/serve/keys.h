// SPDX-License-Identifier: Apache-2.0
// API keys: who may infer, load and unload models, and read metrics. A file has a key on each line:
//   infer,metrics  pWn3cJw0yT5m2Qk8      # a comment
// Health is open to everybody, because what watches a server has no key.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "tandem/serve/http/message.h"

namespace tandem::serve {

/// What a key allows. `none` wants no key.
enum class KeyScope : uint8_t { none = 0, infer = 1, admin = 2, metrics = 4 };

class TD_API ApiKeys {
 public:
  ApiKeys() = default;
  /// Throws Io, and Value naming the line for an unknown scope, a key of fewer than 16 characters
  /// or one that stands there twice.
  explicit ApiKeys(const std::string& file);
  /// Reads the text of such a file.
  static ApiKeys parse(std::string_view text, const std::string& file);
  bool empty() const { return keys_.empty(); }

  /// 0 where the request may do what wants `scope`; 401 without a key or with an unknown one, 403
  /// with one that allows other things. Takes the same time whichever keys there are.
  int check(const HttpRequest& request, KeyScope scope) const;

 private:
  struct Key {
    std::string digest;  ///< SHA-256, so that all comparisons have one length
    uint8_t scopes = 0;
  };
  std::vector<Key> keys_;
};

/// What a request's path wants, of REST and gRPC. `health_route`: one more that is open.
TD_API KeyScope scope_of(const HttpRequest& request, std::string_view health_route = "");

}  // namespace tandem::serve
