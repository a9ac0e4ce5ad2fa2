// SPDX-License-Identifier: Apache-2.0
// ONNX's string ops (UTF-8), and n-gram counts.
#include <algorithm>
#include <regex>

#include "tandem/base/budget.h"
#include "tandem/onnx/import/rows.h"
#include "tandem/ops/ops.h"

namespace tandem::onnx {
namespace {

void concat_strings(OnnxCall& c) {
  const OnnxStrings &a = c.value(0).strings(), &b = c.value(1).strings();
  auto positions = [](const OnnxStrings& s) {
    return arange(0, static_cast<int64_t>(s.values.size()), 1, DType::i64).reshape(Shape(s.shape));
  };
  const std::vector<Tensor> at = broadcast_tensors({positions(a), positions(b)});
  const auto i = at[0].to_vector<int64_t>(), j = at[1].to_vector<int64_t>();
  OnnxStrings out{at[0].shape().to_vector(), {}};
  double bytes = 0;
  for (size_t k = 0; k < i.size(); ++k)
    bytes += static_cast<double>(sizeof(std::string) + a.values[static_cast<size_t>(i[k])].size() +
                                 b.values[static_cast<size_t>(j[k])].size());
  check_onnx_loop(bytes, 2);
  for (size_t k = 0; k < i.size(); ++k)
    out.values.push_back(a.values[static_cast<size_t>(i[k])] + b.values[static_cast<size_t>(j[k])]);
  c.set(0, OnnxValue(std::move(out)));
}

/// Parts between delimiters, or between runs of white space if the delimiter is empty; at most
/// `most` splits (negative: no limit).
std::vector<std::string> split_text(const std::string& s, const std::string& by, int64_t most) {
  std::vector<std::string> parts;
  size_t from = 0;
  if (by.empty()) {
    const char* white = " \t\n\r\v\f";
    from = s.find_first_not_of(white);
    while (from != std::string::npos) {
      if (most >= 0 && static_cast<int64_t>(parts.size()) == most) {
        const size_t end = s.find_last_not_of(white);
        parts.push_back(s.substr(from, end - from + 1));
        return parts;
      }
      const size_t end = s.find_first_of(white, from);
      parts.push_back(s.substr(from, end - from));
      from = end == std::string::npos ? end : s.find_first_not_of(white, end);
    }
    return parts;
  }
  while (most < 0 || static_cast<int64_t>(parts.size()) < most) {
    const size_t at = s.find(by, from);
    if (at == std::string::npos) break;
    parts.push_back(s.substr(from, at - from));
    from = at + by.size();
  }
  parts.push_back(s.substr(from));
  return parts;
}

void split_strings(OnnxCall& c) {
  const OnnxStrings& x = c.value(0).strings();
  const std::string by = c.attr_text("delimiter");
  const int64_t most = c.attr("maxsplit", -1);
  std::vector<std::vector<std::string>> parts;
  std::vector<int64_t> counts;
  size_t widest = 0;
  for (const std::string& s : x.values) {
    parts.push_back(split_text(s, by, most));
    counts.push_back(static_cast<int64_t>(parts.back().size()));
    widest = std::max(widest, parts.back().size());
  }
  check_onnx_loop(static_cast<double>(widest) * static_cast<double>(parts.size()),
                  2 * sizeof(std::string));
  OnnxStrings out{x.shape, {}};
  out.shape.push_back(static_cast<int64_t>(widest));
  for (std::vector<std::string>& p : parts) {
    p.resize(widest);
    std::move(p.begin(), p.end(), std::back_inserter(out.values));
  }
  c.set(0, OnnxValue(std::move(out)));
  c.set(1, tensor(counts, Shape(x.shape)));
}

/// One code point with the case changed: Latin, Greek and Cyrillic letters.
uint32_t changed_case(uint32_t u, bool upper) {
  struct Block {
    uint32_t low, high;  ///< of the lower case letters
    uint32_t distance;
  };
  constexpr Block kBlocks[] = {
      {'a', 'z', 32}, {0xE0, 0xFE, 32}, {0x3B1, 0x3C9, 32}, {0x430, 0x44F, 32}, {0x450, 0x45F, 80}};
  if (u == 0xF7 || u == 0xD7 || u == 0x3C2 || u == 0x3A2) return u;  // no letters of these pairs
  for (const Block& b : kBlocks) {
    if (upper && u >= b.low && u <= b.high) return u - b.distance;
    if (!upper && u >= b.low - b.distance && u <= b.high - b.distance) return u + b.distance;
  }
  return u;
}

std::string with_case(const std::string& s, bool upper) {
  std::string out;
  for (size_t i = 0; i < s.size(); ++i) {
    const auto a = static_cast<unsigned char>(s[i]);
    const bool pair = (a & 0xE0) == 0xC0 && i + 1 < s.size() &&
                      (static_cast<unsigned char>(s[i + 1]) & 0xC0) == 0x80;
    if (a < 0x80) {
      out.push_back(static_cast<char>(changed_case(a, upper)));
    } else if (pair) {
      const auto b = static_cast<unsigned char>(s[++i]);
      const uint32_t u = changed_case(uint32_t{a & 0x1FU} << 6 | (b & 0x3FU), upper);
      out.push_back(static_cast<char>(0xC0 | u >> 6));
      out.push_back(static_cast<char>(0x80 | (u & 0x3F)));
    } else {
      out.push_back(s[i]);
    }
  }
  return out;
}

void normalize_strings(OnnxCall& c) {
  const OnnxStrings& x = c.value(0).strings();
  const std::string action =
      c.attr_choice("case_change_action", "NONE", {"NONE", "LOWER", "UPPER"});
  const bool sensitive = c.attr("is_case_sensitive", 0);
  const std::string locale = c.attr_text("locale");
  TD_CHECK(locale.empty() || locale == "C" || locale.starts_with("en"), Unsupported,
           "case is changed as in English, not by the rules of the locale '{}'", locale);
  const bool row = x.shape.size() == 2 && x.shape[0] == 1;
  TD_CHECK(x.shape.size() == 1 || row, Shape, "expected [c] or [1, c], got {}",
           c.value(0).describe());
  auto key = [&](const std::string& s) { return sensitive ? s : with_case(s, false); };
  std::vector<std::string> stops = c.attr_texts("stopwords");
  for (std::string& s : stops) s = key(s);
  OnnxStrings out;
  for (const std::string& s : x.values) {
    if (std::find(stops.begin(), stops.end(), key(s)) != stops.end()) continue;
    out.values.push_back(action == "NONE" ? s : with_case(s, action == "UPPER"));
  }
  if (out.values.empty()) out.values.emplace_back();
  if (row) out.shape.push_back(1);
  out.shape.push_back(static_cast<int64_t>(out.values.size()));
  c.set(0, OnnxValue(std::move(out)));
}

// Patterns and strings are limited in length; libstdc++'s breadth-first matcher takes their product
// of steps, where the usual one may take exponentially many. It knows no back-references.
void regex_full_match(OnnxCall& c) {
  const OnnxStrings& x = c.value(0).strings();
  const std::string pattern = c.attr_text("pattern");
  TD_CHECK(pattern.size() <= 1024, Unsupported,
           "the pattern has {} bytes, at most 1024 are supported", pattern.size());
  std::vector<uint8_t> out;
  try {
    const std::regex re(pattern, std::regex::ECMAScript | std::regex_constants::__polynomial);
    for (const std::string& s : x.values) {
      TD_CHECK(s.size() <= 4096, Unsupported, "a string has {} bytes, at most 4096 are supported",
               s.size());
      check_onnx_loop(100.0 * static_cast<double>(pattern.size() * s.size()));
      out.push_back(std::regex_match(s, re));
    }
  } catch (const std::regex_error& e) {
    TD_FAIL(Value, "'{}' is not a valid pattern: {}", pattern, e.what());
  }
  c.set(0, tensor(out, Shape(x.shape)).to(DType::b8));
}

/// Items as strings or numbers, as the pool requires.
template <class T>
std::vector<float> ngram_counts(OnnxCall& c, const std::vector<T>& pool,
                                const std::vector<T>& items, int64_t rows, int64_t columns,
                                int64_t width) {
  const int64_t least = c.attr("min_gram_length", 1), longest = c.attr("max_gram_length", 1),
                skips = c.attr("max_skip_count", 0);
  const std::vector<int64_t> starts = c.attr_ints("ngram_counts"),
                             places = c.attr_ints("ngram_indexes");
  std::map<std::vector<T>, size_t> known;
  for (size_t n = 0, id = 0; n < starts.size(); ++n) {
    const auto first = static_cast<size_t>(std::max<int64_t>(0, starts[n]));
    const size_t end = n + 1 < starts.size()
                           ? static_cast<size_t>(std::max<int64_t>(0, starts[n + 1]))
                           : pool.size();
    TD_CHECK(first <= end && end <= pool.size(), Format, "ngram_counts do not fit the pool");
    Budget::take((end - first) * (2 * sizeof(T) + 16));
    for (size_t i = first; i + n + 1 <= end; i += n + 1)
      known.emplace(std::vector<T>(pool.begin() + static_cast<int64_t>(i),
                                   pool.begin() + static_cast<int64_t>(i + n + 1)),
                    id++);
  }
  TD_CHECK(least >= 1 && skips >= 0, Value, "grams of {} items with {} skips", least, skips);
  std::vector<float> out(static_cast<size_t>(rows * width), 0);
  for (int64_t r = 0; r < rows; ++r)
    for (int64_t n = least; n <= std::min(longest, columns); ++n)
      for (int64_t skip = 0; skip <= (n == 1 ? 0 : std::min(skips, columns)); ++skip)
        for (int64_t i = 0; i + (n - 1) * (skip + 1) < columns; ++i) {
          check_onnx_loop(static_cast<double>(n));
          std::vector<T> gram;
          for (int64_t k = 0; k < n; ++k)
            gram.push_back(items[static_cast<size_t>(r * columns + i + k * (skip + 1))]);
          const auto it = known.find(gram);
          if (it == known.end()) continue;
          TD_CHECK(it->second < places.size(), Format, "ngram_indexes do not fit the pool");
          out[static_cast<size_t>(r * width + places[it->second])] += 1;
        }
  return out;
}

void tf_idf(OnnxCall& c) {
  const std::vector<int64_t> shape = c.value(0).shape(), places = c.attr_ints("ngram_indexes");
  TD_CHECK(shape.size() == 1 || shape.size() == 2, Shape, "expected [c] or [n, c], got {}",
           c.value(0).describe());
  const int64_t rows = shape.size() == 2 ? shape[0] : 1, columns = shape.back();
  int64_t width = 0;
  for (const int64_t p : places) {
    TD_CHECK(p >= 0 && p < (int64_t{1} << 28), Format, "an entry of ngram_indexes is {}", p);
    width = std::max(width, p + 1);
  }
  check_onnx_size(Shape(rows, width), 2 * sizeof(float));
  std::vector<float> y =
      c.value(0).is_strings()
          ? ngram_counts(c, c.attr_texts("pool_strings"), c.value(0).strings().values, rows,
                         columns, width)
          : ngram_counts(c, c.attr_ints("pool_int64s"), c.ints(0), rows, columns, width);
  const std::string mode = c.attr_choice("mode", "TF", {"TF", "IDF", "TFIDF"});
  const std::vector<float> weights = c.attr_floats("weights");
  std::vector<float> factor(static_cast<size_t>(width), 1);
  for (size_t i = 0; i < places.size() && i < weights.size(); ++i)
    factor[static_cast<size_t>(places[i])] = weights[i];
  for (size_t i = 0; i < y.size(); ++i) {
    if (mode == "IDF") y[i] = y[i] > 0 ? 1.0f : 0.0f;
    if (mode != "TF") y[i] *= factor[i % static_cast<size_t>(width)];
  }
  c.set(0, tensor(y, shape.size() == 2 ? Shape(rows, width) : Shape(width)));
}

}  // namespace

std::span<const OnnxRow> onnx_string_rows() {
  static constexpr OnnxRow kRows[] = {
      {"", "StringConcat", 20, 0, concat_strings, {2, 1, ""}},
      {"", "StringSplit", 20, 0, split_strings, {1, 2, "delimiter maxsplit"}},
      {"",
       "StringNormalizer",
       10,
       0,
       normalize_strings,
       {1, 1, "case_change_action is_case_sensitive locale stopwords"}},
      {"", "RegexFullMatch", 20, 0, regex_full_match, {1, 1, "pattern"}},
      {"",
       "TfIdfVectorizer",
       9,
       0,
       tf_idf,
       {1, 1,
        "max_gram_length max_skip_count min_gram_length mode ngram_counts ngram_indexes "
        "pool_int64s pool_strings weights"}},
  };
  return kRows;
}

}  // namespace tandem::onnx
