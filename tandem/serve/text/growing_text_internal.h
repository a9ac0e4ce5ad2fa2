// SPDX-License-Identifier: Apache-2.0
// A text of a TextEngine from its request to its last token.
#pragma once

#include <algorithm>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "tandem/base/clock.h"
#include "tandem/base/philox.h"
#include "tandem/serve/model/priority_internal.h"
#include "tandem/serve/text/text_engine.h"
#include "tandem/text/constraint.h"

namespace tandem::serve {

/// A text on its way.
struct GrowingText {
  /// `start`: what the text begins with where an encoder reads the prompt.
  GrowingText(TextRequest r, std::optional<int64_t> start, double step)
      : request(std::move(r)),
        tokens(start ? std::vector<int64_t>{*start} : request.prompt),
        given(static_cast<int64_t>(tokens.size())),
        encoded(start ? static_cast<int64_t>(request.prompt.size()) : 0),
        draws(request.options.seed, 0, 0),
        place(place_of(since, request.priority, step)) {
    if (request.constraint) held = std::make_unique<text::ConstrainedText>(request.constraint);
  }
  TextRequest request;
  std::vector<int64_t> tokens;        ///< the prompt's and the new ones
  int64_t given = 0, encoded = 0;     ///< those that are not new; tokens that an encoder reads
  std::vector<int64_t> blocks;        ///< that hold its keys, in order
  int64_t read = 0;                   ///< tokens whose keys lie in them
  int64_t draft_read = 0;             ///< the same of the draft model
  int64_t shared = 0, published = 0;  ///< tokens found in the pool; blocks made known
  bool begun = false;                 ///< it has run, and is not refused for coming too late
  PhiloxStream draws;
  std::unique_ptr<text::ConstrainedText> held = {};  ///< where the answer has a constraint
  Clock::time_point since = Clock::now(), last_token = since;
  Clock::time_point place;  ///< among those that wait

  /// The block before the first: texts of another adapter share nothing with it.
  int64_t root() const { return -request.adapter; }
  int64_t size() const { return static_cast<int64_t>(tokens.size()); }
  int64_t fresh() const { return size() - given; }
  /// Tokens that there are blocks for: the prompt of an encoder shares them with the text.
  int64_t room() const { return std::max(size(), encoded); }
  int64_t unread() const { return size() - read; }
};

}  // namespace tandem::serve
