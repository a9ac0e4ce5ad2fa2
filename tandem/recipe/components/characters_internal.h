// SPDX-License-Identifier: Apache-2.0
// Text character by character: the ids of a run's data and the bytes they stand for.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "tandem/recipe/recipe.h"

namespace tandem::recipe {

class Characters {
 public:
  /// DataFacts::characters.
  explicit Characters(std::vector<int64_t> bytes) : bytes_(std::move(bytes)) {}
  /// What keeps `text` from being encoded; empty: nothing does.
  std::string mistake(const std::string& text) const;
  /// A line begins with its end; other text is as it is, and an empty one begins a line. Throws
  /// Value with mistake().
  std::vector<int64_t> encode(const std::string& text) const;
  std::string decode(const std::vector<int64_t>& ids) const;
  /// The byte of an id as text; empty for the end of a line.
  std::string character(int64_t i) const;
  /// The same as one reads it: "a", "\n", "\xc3", "<end>".
  std::string shown(int64_t i) const;
  /// Ids that end a text.
  std::vector<int64_t> ends() const;
  bool lines() const { return id(-1).has_value(); }

 private:
  std::optional<int64_t> id(int64_t byte) const;
  std::string all() const;
  std::vector<int64_t> bytes_;
};

/// A text, cut to its last characters if it is longer than the context of the model.
Preparation prepared_characters(const RunData& run);

}  // namespace tandem::recipe
