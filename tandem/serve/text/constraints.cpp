// SPDX-License-Identifier: Apache-2.0
#include "tandem/serve/text/constraints.h"

#include <algorithm>

namespace tandem::serve {

std::shared_ptr<text::Constraint> ConstraintCache::get(const std::string& key,
                                                       const std::function<text::Grammar()>& make) {
  std::shared_ptr<const text::TokenBytes> tokens;
  {
    const std::lock_guard hold(lock_);
    const auto at =
        std::find_if(known_.begin(), known_.end(), [&](const Entry& e) { return e.key == key; });
    if (at != known_.end()) {
      known_.splice(known_.begin(), known_, at);
      return at->constraint;
    }
    if (!tokens_)
      tokens_ = std::make_shared<const text::TokenBytes>(tokenizer_, vocabulary_, ends_);
    tokens = tokens_;
  }
  auto made = std::make_shared<text::Constraint>(make(), std::move(tokens));
  const std::lock_guard hold(lock_);
  known_.push_front({key, made});
  if (known_.size() > kMost) known_.pop_back();
  return made;
}

}  // namespace tandem::serve
