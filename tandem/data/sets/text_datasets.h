// SPDX-License-Identifier: Apache-2.0
// Datasets from text files: lines, JSON lines and files of tokens. They map the file, release the
// pages they have read and keep a bounded number of offsets, so that a file far larger than memory
// costs little of it.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "tandem/base/files/file.h"
#include "tandem/data/sets/datasets.h"
#include "tandem/io/json.h"
#include "tandem/io/places.h"

namespace tandem::data {

struct TextLinesOptions {
  bool skip_empty = true;                ///< skip blank lines
  uint64_t longest = uint64_t{1} << 26;  ///< bytes; reaching a longer line throws Format
};

/// The lines of a text file (LF or CRLF). Sample i is its bytes, u8 [length].
class TD_API TextLines {
 public:
  static constexpr const char* kName = "TextLines";
  /// Throws Io; Format for a line longer than allowed, with its number.
  explicit TextLines(const FilePath& path, TextLinesOptions options = {});
  int64_t size() const { return marks_.size(); }
  Tensor get(int64_t i) const;
  /// The line without its line break; valid as long as the dataset lives.
  std::string_view line(int64_t i) const;
  /// The number of the line in the file, from 1.
  int64_t number(int64_t i) const;
  const std::string& path() const { return file_->path(); }

 private:
  struct Mark {
    uint64_t at;
    int64_t number;
  };
  friend class JsonLines;
  std::string_view seek(int64_t i, int64_t& number) const;
  std::string_view cut(uint64_t at, int64_t number, uint64_t& next) const;
  Ref<MappedFile> file_;
  TextLinesOptions options_;
  io::Places<Mark> marks_;
};

struct JsonLinesOptions {
  std::string x = "x", y = "y";  ///< members of each object
  DType x_dtype = DType::f32, y_dtype = DType::i64;
};

/// One JSON object per line, parsed on access; its members x and y are numbers or regular arrays,
/// nested as deep as the tensors have dimensions. Throws Format naming file and line.
class TD_API JsonLines {
 public:
  static constexpr const char* kName = "JsonLines";
  explicit JsonLines(const FilePath& path, JsonLinesOptions options = {});
  int64_t size() const { return lines_.size(); }
  Example get(int64_t i) const;
  io::Json json(int64_t i) const;

 private:
  Tensor member(const io::Json& object, const std::string& name, DType dtype, int64_t i) const;
  TextLines lines_;
  JsonLinesOptions options_;
};

struct TokenFileOptions {
  DType dtype = DType::i32;  ///< of a stored element: i16 and i32 are unsigned; or u8
  int64_t block = 64;        ///< tokens of x
  int64_t stride = 0;        ///< distance between the starts of samples; 0: `block`
  double from = 0, to = 1;   ///< the fraction of the file to use
};

/// A file of token ids, little-endian without a header (nanoGPT's .bin; with u8 any text file).
/// Sample i: x i64 [block], y the same shifted by one token.
class TD_API TokenFile {
 public:
  static constexpr const char* kName = "TokenFile";
  /// Throws Io; Format when the size is not a whole number of tokens; Value when it is shorter than
  /// one sample.
  explicit TokenFile(const FilePath& path, TokenFileOptions options = {});
  int64_t size() const { return size_; }
  Example get(int64_t i) const;
  Example get_many(std::span<const int64_t> rows) const;
  /// Number of tokens in the part used.
  int64_t tokens() const { return tokens_; }

 private:
  void copy(int64_t i, int64_t* x, int64_t* y) const;
  int64_t token(int64_t at) const;
  Ref<MappedFile> file_;
  TokenFileOptions options_;
  int64_t first_ = 0, tokens_ = 0, size_ = 0;
};

}  // namespace tandem::data
