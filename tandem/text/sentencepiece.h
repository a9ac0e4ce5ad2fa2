// SPDX-License-Identifier: Apache-2.0
// SentencePiece models (.model files): Unigram and BPE, with their own normalisation. A handle;
// several threads may share one. https://github.com/google/sentencepiece
#pragma once

#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "tandem/base/budget.h"
#include "tandem/base/export.h"
#include "tandem/base/files/file.h"

namespace tandem::text {

class TD_API SentencePiece {
 public:
  /// Throws Io, Format for other files, Unsupported for word and character models.
  static SentencePiece from_file(const FilePath& path, const BudgetLimits& limits = {});
  static SentencePiece from_bytes(std::string_view bytes, std::string_view what = "model",
                                  const BudgetLimits& limits = {});

  /// Token ids of a text (well-formed UTF-8, else Value); no special tokens are added.
  std::vector<int64_t> encode(std::string_view text) const;
  /// The text of token ids; control symbols give nothing.
  std::string decode(std::span<const int64_t> ids) const;

  int64_t vocab_size() const;
  std::optional<int64_t> piece_to_id(std::string_view piece) const;
  std::optional<std::string> id_to_piece(int64_t id) const;
  /// Ids of the special symbols; -1 if there is none.
  int64_t unk_id() const;
  int64_t bos_id() const;
  int64_t eos_id() const;
  int64_t pad_id() const;

 private:
  struct Impl;
  explicit SentencePiece(std::shared_ptr<const Impl> impl) : impl_(std::move(impl)) {}
  std::shared_ptr<const Impl> impl_;
};

}  // namespace tandem::text
