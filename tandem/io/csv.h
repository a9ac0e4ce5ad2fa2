// SPDX-License-Identifier: Apache-2.0
// Text tables: CSV after RFC 4180 (quotes, doubled quotes, line breaks inside quotes, CRLF or LF),
// plain or gzip. Columns become tensors; every error names the file, line and column.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "tandem/base/budget.h"
#include "tandem/base/files/file.h"
#include "tandem/tensor/tensor.h"

namespace tandem::io {

struct CsvOptions {
  char delimiter = ',';
  bool header = true;                  ///< the first line holds the names of the columns
  uint64_t limit = uint64_t{1} << 32;  ///< most bytes, unpacked
  BudgetLimits limits = {};            ///< what reading it may cost
};

/// A parsed table. Every row has as many fields as the first; blank lines are skipped.
class TD_API Csv {
 public:
  /// Throws Io when the file cannot be read, Format when it is damaged or not a table.
  static Csv read(const FilePath& path, const CsvOptions& options = {});
  /// The same for text in memory; `name` is used in messages.
  static Csv parse(std::string text, const CsvOptions& options = {}, std::string name = "CSV");

  size_t rows() const { return lines_.size(); }
  size_t columns() const { return columns_; }
  /// Names of the columns; empty without a header.
  const std::vector<std::string>& names() const { return names_; }
  /// The field without its quotes. Throws Index.
  std::string_view field(size_t row, size_t column) const;
  /// The index of the column with that name; throws Value, listing the names there are.
  size_t index(std::string_view name) const;

  /// One column as numbers, [rows]; throws Format naming line and column where a field is not a
  /// number of that dtype (bool takes 0, 1, true, false).
  Tensor column(size_t column, DType dtype) const;
  Tensor column(std::string_view name, DType dtype) const { return column(index(name), dtype); }
  /// `count` columns starting at `first` as numbers, [rows, count].
  Tensor table(size_t first, size_t count, DType dtype) const;

 private:
  struct Field {
    size_t at, size;
  };
  void split(char delimiter);
  void take_header();
  Tensor numbers(size_t first, size_t count, const Shape& shape, DType dtype) const;
  std::string column_name(size_t column) const;

  std::string name_, text_;  // text_ holds the fields, unquoted in place
  std::vector<std::string> names_;
  std::vector<Field> fields_;  // row by row
  std::vector<size_t> lines_;  // first line of each row, from 1
  size_t columns_ = 0;
};

}  // namespace tandem::io
