// SPDX-License-Identifier: Apache-2.0
#include "tandem/io/csv.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <limits>
#include <unordered_map>

#include "tandem/base/ascii.h"
#include "tandem/io/gzip.h"
#include "tandem/tensor/strided.h"

namespace tandem::io {
namespace {

/// A field for a message: shortened, and without control characters.
std::string shown(std::string_view s) {
  std::string out;
  for (const char c : s.substr(0, 40)) out += static_cast<unsigned char>(c) < 0x20 ? '?' : c;
  return s.size() > 40 ? out + "..." : out;
}

bool parse_double(std::string_view s, double* out) {
  s = trimmed(s);
  if (s.size() > 1 && s.front() == '+' && s[1] != '-') s.remove_prefix(1);
  auto [end, code] = std::from_chars(s.data(), s.data() + s.size(), *out);
  return code == std::errc() && end == s.data() + s.size();
}

bool parse_int(std::string_view s, DType dtype, int64_t* out) {
  s = trimmed(s);
  if (dtype == DType::b8 && (s == "true" || s == "True" || s == "TRUE")) s = "1";
  if (dtype == DType::b8 && (s == "false" || s == "False" || s == "FALSE")) s = "0";
  if (s.size() > 1 && s.front() == '+' && s[1] != '-') s.remove_prefix(1);
  auto [end, code] = std::from_chars(s.data(), s.data() + s.size(), *out);
  if (code != std::errc() || end != s.data() + s.size()) return false;
  if (dtype == DType::b8) return *out == 0 || *out == 1;
  return visit_dtype(dtype, [&](auto t) {
    using T = decltype(t);
    if constexpr (std::is_integral_v<T>)
      return *out >= int64_t{std::numeric_limits<T>::min()} &&
             *out <= int64_t{std::numeric_limits<T>::max()};
    else
      return false;
  });
}

}  // namespace

Csv Csv::read(const FilePath& path, const CsvOptions& options) {
  InputFile in(path);
  const Budget budget(in.path(), in.size(), options.limits);
  return parse(in.read_rest(static_cast<size_t>(options.limit)), options, in.path());
}

Csv Csv::parse(std::string text, const CsvOptions& options, std::string name) {
  const char d = options.delimiter;
  TD_CHECK(d != '"' && d != '\n' && d != '\r' && d != '\0', Value,
           "CSV: a quote, a line break or a zero byte cannot be the delimiter");
  const Budget budget(name, text.size(), options.limits);
  Csv csv;
  csv.name_ = std::move(name);
  csv.text_ = std::move(text);
  csv.split(d);
  if (options.header) csv.take_header();
  return csv;
}

void Csv::split(char delimiter) {
  constexpr size_t kCharged = 1024;  // fields at once; a list doubles as it grows
  std::string& s = text_;
  const size_t n = s.size();
  size_t at = s.starts_with("\xEF\xBB\xBF") ? 3 : 0;  // a byte order mark
  size_t line = 1;
  while (at < n) {
    const size_t row_line = line, first = fields_.size(), row_start = at;
    for (bool more = true; more;) {
      const size_t column = fields_.size() - first + 1;
      size_t begin = at, end;
      if (at < n && s[at] == '"') {
        size_t to = begin = ++at;
        for (;; ++at) {
          TD_CHECK(at < n, Format, "'{}' line {}, column {}: the quote is never closed", name_,
                   row_line, column);
          if (s[at] == '"' && !(at + 1 < n && s[at + 1] == '"')) break;
          if (s[at] == '"') ++at;  // a doubled quote stands for one
          if (s[at] == '\n') ++line;
          s[to++] = s[at];
        }
        end = to;
        ++at;
        TD_CHECK(at >= n || s[at] == delimiter || s[at] == '\n' || s[at] == '\r', Format,
                 "'{}' line {}, column {}: there is text after the closing quote", name_, line,
                 column);
      } else {
        while (at < n && s[at] != delimiter && s[at] != '\n' && s[at] != '\r') {
          TD_CHECK(s[at] != '"' && s[at] != '\0', Format, "'{}' line {}, column {}: {}", name_,
                   line, column,
                   s[at] == '"' ? "a quote inside a field that is not quoted" : "a zero byte");
          ++at;
        }
        end = at;
      }
      if (fields_.size() % kCharged == 0) Budget::take(3 * sizeof(Field) * kCharged);
      fields_.push_back({begin, end - begin});
      more = at < n && s[at] == delimiter;
      if (more) ++at;
    }
    if (at < n && s[at] == '\r') {
      ++at;
      TD_CHECK(at >= n || s[at] == '\n', Format,
               "'{}' line {}: a carriage return without a line feed", name_, line);
    }
    const bool blank =
        fields_.size() == first + 1 && fields_[first].size == 0 && s[row_start] != '"';
    if (at < n) ++at, ++line;
    if (blank) {
      fields_.pop_back();
      continue;
    }
    const size_t count = fields_.size() - first;
    Budget::take(2 * sizeof(size_t));
    if (lines_.empty()) columns_ = count;
    TD_CHECK(count == columns_, Format, "'{}' line {}: {} field{}, the first line has {}", name_,
             row_line, count, count == 1 ? "" : "s", columns_);
    lines_.push_back(row_line);
  }
}

void Csv::take_header() {
  TD_CHECK(!lines_.empty(), Format, "'{}' is empty: expected a line with the column names", name_);
  std::unordered_map<std::string_view, size_t> seen;
  Budget::take(columns_ * 128);
  for (size_t c = 0; c < columns_; ++c) {
    const std::string_view name = trimmed(field(0, c));
    const auto [at, fresh] = seen.emplace(name, c);
    TD_CHECK(fresh || name.empty(), Format, "'{}': columns {} and {} are both named '{}'", name_,
             at->second + 1, c + 1, shown(name));
    names_.emplace_back(name);
  }
  fields_.erase(fields_.begin(), fields_.begin() + static_cast<std::ptrdiff_t>(columns_));
  lines_.erase(lines_.begin());
}

std::string_view Csv::field(size_t row, size_t column) const {
  TD_CHECK(row < rows() && column < columns_, Index,
           "'{}' has {} rows and {} columns; row {}, column {} was requested (from 0)", name_,
           rows(), columns_, row, column);
  const Field& f = fields_[row * columns_ + column];
  return std::string_view(text_).substr(f.at, f.size);
}

std::string Csv::column_name(size_t column) const {
  return names_.empty() ? std::to_string(column + 1)
                        : fmt::format("{} ('{}')", column + 1, shown(names_[column]));
}

size_t Csv::index(std::string_view name) const {
  for (size_t c = 0; c < names_.size(); ++c)
    if (names_[c] == name) return c;
  std::string known;
  for (size_t c = 0; c < names_.size() && c < 10; ++c)
    known += (c > 0 ? ", " : "") + shown(names_[c]);
  if (names_.size() > 10) known += ", ...";
  TD_FAIL(Value, "'{}' has no column '{}'\n{}", name_, shown(name),
          names_.empty() ? "It was read without a header." : "It has: " + known + ".");
}

Tensor Csv::numbers(size_t first, size_t count, const Shape& shape, DType dtype) const {
  TD_CHECK(first <= columns_ && count <= columns_ - first, Index,
           "'{}' has {} columns; {} from column {} on were requested (from 0)", name_, columns_,
           count, first);
  Tensor out(Ref<detail::TensorImpl>::adopt(detail::new_tensor(shape, dtype, cpu)));
  char* to = static_cast<char*>(out.impl()->data);
  for (size_t r = 0; r < rows(); ++r) {
    for (size_t c = first; c < first + count; ++c, to += size_of(dtype)) {
      const std::string_view text = field(r, c);
      double real = 0;
      int64_t whole = 0;
      const bool good =
          is_floating(dtype) ? parse_double(text, &real) : parse_int(text, dtype, &whole);
      TD_CHECK(good, Format, "'{}' line {}, column {}: '{}' is not a valid {}", name_, lines_[r],
               column_name(c), shown(text),
               is_floating(dtype) ? "number" : std::string(to_string(dtype)) + " number");
      if (is_floating(dtype))
        detail::convert_elements(&real, DType::f64, to, dtype, 1);
      else
        detail::convert_elements(&whole, DType::i64, to, dtype, 1);
    }
  }
  return out;
}

Tensor Csv::column(size_t column, DType dtype) const { return numbers(column, 1, {rows()}, dtype); }

Tensor Csv::table(size_t first, size_t count, DType dtype) const {
  return numbers(first, count, {rows(), count}, dtype);
}

}  // namespace tandem::io
