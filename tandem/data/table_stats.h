// SPDX-License-Identifier: Apache-2.0
// Statistics of a table: types, missing values, ranges and frequent values of each column; a schema
// that can be inferred, saved and checked against; and how far two sets have drifted apart.
#pragma once

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "tandem/io/csv.h"
#include "tandem/io/json.h"

namespace tandem::data {

enum class ColumnType : uint8_t { empty, integer, number, text };
TD_API const char* to_string(ColumnType type);

struct ColumnStats {
  std::string name;
  ColumnType type = ColumnType::empty;
  int64_t rows = 0, missing = 0;  ///< missing: empty, NA, N/A, null, NaN, ?
  int64_t nonfinite = 0;          ///< infinite numbers
  int64_t distinct = 0;           ///< of strings and integers; counts at most 10,000
  double mean = 0, deviation = 0, low = 0, high = 0, median = 0;  ///< of numbers
  std::vector<std::pair<std::string, int64_t>> frequent;  ///< ten values, most frequent first
  /// For drift: all numbers in order, or all values with their counts.
  std::vector<double> sorted;
  std::vector<std::pair<std::string, int64_t>> counts;
};
struct TableStats {
  std::string name;
  int64_t rows = 0;
  std::vector<ColumnStats> columns;
  const ColumnStats* find(const std::string& column) const;
};
/// Columns without a name are called "column 1", ...
TD_API TableStats table_stats(const io::Csv& table, const std::string& name);
/// Reads a CSV or TSV file (plain or gzip; `header` unset: inferred, a header has no numbers), or
/// JSON lines of flat objects (.jsonl). Throws Io, Format with file and line.
TD_API TableStats read_table_stats(const FilePath& path, std::optional<bool> header = {});

/// The requirements on a column; unset ones are not checked.
struct ColumnSchema {
  std::string name;
  ColumnType type = ColumnType::empty;
  double presence = 0;  ///< least fraction of rows that have a value
  std::optional<double> low = {}, high = {};
  std::vector<std::string> values = {};  ///< of strings; empty: any
};
struct Schema {
  std::vector<ColumnSchema> columns;
  int64_t least_rows = 1;
  TD_API io::Json to_json() const;
  /// Throws Format naming what is wrong, with the nearest valid key.
  static TD_API Schema from_json(const io::Json& json, const std::string& what);
};
/// The schema that this table satisfies: its types and presence, the observed ranges, and the
/// values of string columns that have at most 50.
TD_API Schema infer_schema(const TableStats& stats);

struct Anomaly {
  std::string column, what;
};
/// Reports missing and unexpected columns, wrong types, too many missing values, numbers out of
/// range, unknown values, non-finite numbers, too few rows.
TD_API std::vector<Anomaly> validate(const TableStats& stats, const Schema& schema);

/// How far a column of two sets has drifted.
struct Drift {
  std::string column;
  double jensen_shannon = 0;  ///< divergence in bits, 0 .. 1; numbers in 20 bins of the first set
  double l_infinity = 0;      ///< largest difference in a value's frequency; for strings
  double missing = 0;         ///< difference in the fraction of missing values
};
/// For the columns that both have, largest divergence first.
TD_API std::vector<Drift> drift(const TableStats& first, const TableStats& second);

}  // namespace tandem::data
