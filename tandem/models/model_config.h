// SPDX-License-Identifier: Apache-2.0
// config.json of a Hugging Face folder: typed values with bounds. Each family reads its own keys,
// with its own defaults.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "tandem/base/file.h"
#include "tandem/io/json.h"

namespace tandem::models {

class TD_API ModelConfig {
 public:
  /// Throws Io, or Format if the file is not an object with "model_type".
  static ModelConfig from_file(const FilePath& path);
  static ModelConfig from_json(std::string_view text, std::string_view what = "config.json");

  const std::string& model_type() const { return model_type_; }
  /// The first of "architectures", or "".
  const std::string& architecture() const { return architecture_; }
  const io::Json& json() const { return json_; }

  /// A value, or `otherwise` when it is missing or null. Each throws Format for a wrong type or a
  /// number outside [low, high].
  int64_t integer(std::string_view key, int64_t otherwise, int64_t low = 1,
                  int64_t high = int64_t{1} << 24) const;
  double number(std::string_view key, double otherwise) const;
  bool flag(std::string_view key, bool otherwise) const;
  std::string text(std::string_view key, std::string_view otherwise) const;
  /// An integer, or the first of an array of integers (sizes of images and patches).
  int64_t first_integer(std::string_view key, int64_t otherwise) const;
  /// The object under `key`, or nullptr.
  const io::Json* object(std::string_view key) const;
  /// Number of classes: the size of "id2label", else "num_labels", else 2.
  int64_t num_labels() const;
  /// Token ids of a key that holds a number or an array ("eos_token_id").
  std::vector<int64_t> tokens(std::string_view key) const;
  [[noreturn]] void fail(const std::string& reason) const;

 private:
  const io::Json* find(std::string_view key) const;
  io::Json json_;
  std::string what_, model_type_, architecture_;
};

}  // namespace tandem::models
