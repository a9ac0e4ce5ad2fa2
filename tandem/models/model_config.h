// SPDX-License-Identifier: Apache-2.0
// config.json of a Hugging Face folder: typed values with bounds. Each family reads its own keys,
// with its own defaults.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "tandem/base/files/file.h"
#include "tandem/io/json.h"

namespace tandem::models {

class TD_API ModelConfig {
 public:
  /// Throws Io, or Format if the file is not an object with "model_type" (if `typed`).
  static ModelConfig from_file(const FilePath& path, bool typed = true);
  static ModelConfig from_json(std::string_view text, std::string_view what = "config.json",
                               bool typed = true);

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
  /// The object under `key` as a config of its own (of a model's text part, say), or an empty one.
  ModelConfig part(std::string_view key) const;
  /// The strings, numbers or integers of the array under `key`; empty when it is missing or null.
  std::vector<std::string> texts(std::string_view key) const;
  std::vector<int64_t> integers(std::string_view key, int64_t low = 1,
                                int64_t high = int64_t{1} << 24) const;
  /// Number of classes: the size of "id2label", else "num_labels", else 2.
  int64_t num_labels() const;
  /// Token ids of a key that holds a number or an array ("eos_token_id").
  std::vector<int64_t> tokens(std::string_view key) const;
  [[noreturn]] void fail(const std::string& reason) const;
  /// Throw Format, naming the key, unless it is missing, null or the one value that is supported.
  void only(std::string_view key, bool value) const;
  void only(std::string_view key, const char* value) const;
  /// The keys that no model has read so far, without those that do not change what a model computes
  /// (training, tokens, names). Copies and parts share what was read.
  std::vector<std::string> unread() const;

 private:
  const io::Json* find(std::string_view key) const;
  io::Json json_;
  std::string what_, model_type_, architecture_;
  std::string prefix_;  ///< of a part: "text_config."
  struct Read {
    std::mutex lock;
    std::set<std::string> keys;
  };
  std::shared_ptr<Read> read_ = std::make_shared<Read>();
};

}  // namespace tandem::models
