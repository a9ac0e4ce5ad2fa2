// SPDX-License-Identifier: Apache-2.0
// Constraint: which tokens of a vocabulary may come next, so that a text stays one of a grammar.
// The network runs as a deterministic automaton over bytes whose states are made when they are
// first reached; a state has one bit for each token, computed once (Willard and Louf 2023,
// "Efficient guided generation"; Dong et al. 2024, "XGrammar").
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "tandem/text/grammar.h"
#include "tandem/text/tokenizer.h"

namespace tandem::text {

/// The bytes of a vocabulary's tokens, in their order.
class TD_API TokenBytes {
 public:
  /// Tokens from `size` on, special ones and those in `left_out` are never part of a text.
  TokenBytes(const Tokenizer& tokenizer, int64_t size, std::span<const int64_t> left_out = {});
  int64_t size() const { return size_; }
  struct Entry {
    std::string bytes;
    int64_t id = 0;
    size_t common = 0;  ///< bytes that it begins with as the entry before does
  };
  const std::vector<Entry>& entries() const { return entries_; }
  /// Of a token; "" where it is never part of a text.
  std::string_view of(int64_t id) const;

 private:
  int64_t size_ = 0;
  std::vector<Entry> entries_;
  std::vector<int32_t> places_;  ///< of each token among the entries; -1: none
};

/// A grammar over a vocabulary. Several texts may share one, from any thread.
class TD_API Constraint {
 public:
  /// Memory of states and masks; beyond it they are forgotten and made when needed.
  static constexpr size_t kUsualBytes = size_t{64} << 20;
  /// Throws Value for a grammar that has too many ways to read a text.
  Constraint(const Grammar& grammar, std::shared_ptr<const TokenBytes> tokens,
             size_t bytes = kUsualBytes);
  ~Constraint();
  Constraint(const Constraint&) = delete;
  Constraint& operator=(const Constraint&) = delete;

  /// States and masks made so far, for tests and measurements.
  int64_t states() const;
  int64_t masks() const;

 private:
  friend class ConstrainedText;
  struct Automaton;
  std::unique_ptr<Automaton> automaton_;
};

/// How far one text has come.
class TD_API ConstrainedText {
 public:
  explicit ConstrainedText(std::shared_ptr<Constraint> constraint);
  ~ConstrainedText();
  ConstrainedText(const ConstrainedText&) = delete;
  ConstrainedText& operator=(const ConstrainedText&) = delete;

  /// The text is one of the grammar.
  bool may_end() const;
  /// No byte may follow.
  bool must_end() const;
  /// Sets what must not come next to minus infinity; false: nothing may. Throws Value where a
  /// mask takes too many states.
  bool mask(std::span<float> logits);
  /// Adds a token or bytes. False: they may not come next, and nothing has changed.
  bool push(int64_t token);
  bool push(std::string_view bytes);

 private:
  friend class Constraint;
  std::shared_ptr<Constraint> constraint_;
  int32_t state_ = 0;
};

}  // namespace tandem::text
