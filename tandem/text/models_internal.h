// SPDX-License-Identifier: Apache-2.0
// Shared by the models: the cache of pieces seen before, and the factories that make_model calls.
#pragma once

#include <span>

#include "tandem/text/parts_internal.h"

namespace tandem::text {

/// Tokens of pieces seen before; cleared when it is full. Guarded by its owner.
class PieceCache {
 public:
  const std::vector<Token>* find(std::string_view piece) const;
  void add(std::string_view piece, std::span<const Token> tokens);

 private:
  static constexpr size_t kMost = 1 << 16;
  struct Hash {
    using is_transparent = void;
    size_t operator()(std::string_view s) const { return std::hash<std::string_view>()(s); }
  };
  std::unordered_map<std::string, std::vector<Token>, Hash, std::equal_to<>> map_;
};

std::unique_ptr<Model> make_bpe(const Fields& f);

}  // namespace tandem::text
