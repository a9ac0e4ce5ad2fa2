// SPDX-License-Identifier: Apache-2.0
// ConstraintCache: the constraints that a model's answers were held to last. Their masks are kept,
// so that the requests of one application pay for them once.
#pragma once

#include <functional>
#include <list>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "tandem/text/constraint.h"
#include "tandem/text/tokenizer.h"

namespace tandem::serve {

class TD_API ConstraintCache {
 public:
  static constexpr size_t kMost = 16;
  /// `ends`: tokens that end a text and are not part of one.
  ConstraintCache(text::Tokenizer tokenizer, int64_t vocabulary, std::vector<int64_t> ends)
      : tokenizer_(std::move(tokenizer)), vocabulary_(vocabulary), ends_(std::move(ends)) {}
  /// That of `key`, made by `make` where it is not known. Throws what making it throws.
  std::shared_ptr<text::Constraint> get(const std::string& key,
                                        const std::function<text::Grammar()>& make);

 private:
  struct Entry {
    std::string key;
    std::shared_ptr<text::Constraint> constraint;
  };
  text::Tokenizer tokenizer_;
  int64_t vocabulary_ = 0;
  std::vector<int64_t> ends_;
  std::mutex lock_;
  std::shared_ptr<const text::TokenBytes> tokens_;
  std::list<Entry> known_;  ///< the one used last first
};

}  // namespace tandem::serve
