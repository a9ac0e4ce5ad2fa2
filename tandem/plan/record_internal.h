// SPDX-License-Identifier: Apache-2.0
// Record: one object of a file of data, read with bounds. Whatever is missing, of another type, out
// of bounds or not asked for is a Format error that names the file, the row, the key, what came and
// what was wanted. Not installed.
#pragma once

#include <limits>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "tandem/io/json.h"

namespace tandem::plan {

class Record {
 public:
  /// `where`: file and place, "data/prices.json: gpus[3]".
  Record(const io::Json& j, std::string loc);
  /// What the row is called from now on: "gpus[3] (L4)".
  void called(const std::string& name) { loc_ += " (" + name + ")"; }
  double number(const char* key, double low, double high, std::optional<double> otherwise = {});
  /// Above 0.
  double positive(const char* key, double high) {
    return number(key, std::numeric_limits<double>::denorm_min(), high);
  }
  int64_t whole(const char* key, int64_t low, int64_t high, std::optional<int64_t> otherwise = {});
  /// Printable, not empty, at most 400 bytes.
  std::string text(const char* key, std::optional<std::string> otherwise = {});
  /// YYYY-MM-DD.
  std::string date(const char* key);
  /// Where a row comes from: a public document or page with its year, or "assumed: " and why.
  std::string source(const char* key);
  const io::Json::Array& list(const char* key, size_t least, size_t most);
  std::vector<std::string> texts(const char* key, size_t most);
  std::vector<double> numbers(const char* key, size_t count, double low, double high);
  Record object(const char* key);
  /// The rows of a list of objects.
  std::vector<Record> rows(const char* key, size_t least, size_t most);
  /// 'schema' is to be `version`; `advice` says what to do otherwise.
  void schema(int version, const std::string& advice);
  bool has(const char* key) const;
  void skip(const char* key) { known_.insert(key); }
  /// Refuses keys that nobody asked for.
  void finish() const;
  [[noreturn]] void fail(const std::string& reason) const;
  const std::string& loc() const { return loc_; }

 private:
  const io::Json* get(const char* key, const std::string& wanted, bool optional);
  [[noreturn]] void refuse(const char* key, const io::Json& came, const std::string& wanted) const;
  const io::Json::Object* object_ = nullptr;
  std::string loc_;
  bool row_ = false;  ///< of a file, not the file itself
  std::set<std::string> known_;
};

}  // namespace tandem::plan
