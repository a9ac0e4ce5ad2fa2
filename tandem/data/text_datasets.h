// SPDX-License-Identifier: Apache-2.0
// Datasets of text files: lines, JSON lines and files of tokens. They map the file, give the pages
// they have read back and keep a bounded number of places, so that a file far larger than memory
// costs little of it.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "tandem/base/file.h"
#include "tandem/data/datasets.h"
#include "tandem/io/json.h"
#include "tandem/io/places.h"

namespace tandem::data {

struct TextLinesOptions {
  bool skip_empty = true;                ///< leave out lines without any text
  uint64_t longest = uint64_t{1} << 26;  ///< bytes; a longer line throws Format when it is met
};

/// The lines of a text file (LF or CRLF). Sample i is its bytes, u8 [length].
class TD_API TextLines {
 public:
  static constexpr const char* kName = "TextLines";
  /// Throws Io; Format for a line longer than allowed, with its number.
  explicit TextLines(const FilePath& path, TextLinesOptions options = {});
  int64_t size() const { return marks_.size(); }
  Tensor get(int64_t i) const;
  /// The line without its end; it lives as long as the dataset.
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

/// One JSON object a line, parsed when it is asked for; its members x and y are numbers or arrays
/// of one size, nested as deep as the tensors' dimensions. Throws Format naming file and line.
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
  DType dtype = DType::i32;  ///< of an element in the file: i16 and i32 are read as unsigned; or u8
  int64_t block = 64;        ///< tokens of x
  int64_t stride = 0;        ///< between the beginnings of samples; 0: `block`
  double from = 0, to = 1;   ///< the part of the file that is used
};

/// A file of token ids, little-endian without any head (nanoGPT's .bin; with u8 any text file).
/// Sample i: x i64 [block], y the same one token on.
class TD_API TokenFile {
 public:
  static constexpr const char* kName = "TokenFile";
  /// Throws Io; Format when it does not hold whole tokens; Value when it is shorter than one
  /// sample.
  explicit TokenFile(const FilePath& path, TokenFileOptions options = {});
  int64_t size() const { return size_; }
  Example get(int64_t i) const;
  Example get_many(std::span<const int64_t> rows) const;
  /// Tokens in the used part.
  int64_t tokens() const { return tokens_; }

 private:
  void copy(int64_t i, int64_t* x, int64_t* y) const;
  int64_t token(int64_t at) const;
  Ref<MappedFile> file_;
  TokenFileOptions options_;
  int64_t first_ = 0, tokens_ = 0, size_ = 0;
};

}  // namespace tandem::data
