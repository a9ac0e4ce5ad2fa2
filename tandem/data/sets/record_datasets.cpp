// SPDX-License-Identifier: Apache-2.0
#include "tandem/data/sets/record_datasets.h"

#include <algorithm>
#include <charconv>
#include <cstring>

#include "tandem/base/error.h"
#include "tandem/base/files/mapped_pages.h"
#include "tandem/graph/context.h"
#include "tandem/ops/ops.h"

namespace tandem::data {
namespace {

std::vector<std::string> expand_all(const std::vector<std::string>& files, const char* what) {
  std::vector<std::string> out;
  for (const std::string& f : files)
    for (std::string& one : expand_shards(f)) out.push_back(std::move(one));
  TD_CHECK(!out.empty(), Value, "{}: there are no files", what);
  return out;
}

const io::TFFeature& feature_of(const io::TFExample& e, const std::string& key,
                                const std::string& loc) {
  const auto it = e.find(key);
  if (it != e.end() && it->second.kind != io::TFFeature::Kind::none) return it->second;
  std::string names;
  for (const auto& [name, value] : e) names += (names.empty() ? "" : ", ") + name;
  TD_FAIL(Format, "{}: there is no feature '{}', it has ({})", loc, key, names);
}

// Numbers as a tensor: 0-d for a single number when no shape is requested.
template <class T>
Tensor numbers(const std::vector<T>& v, const IntList& shape, bool scalar) {
  Tensor t = tensor(v);
  if (!shape.empty()) return t.reshape(shape);
  return scalar && v.size() == 1 ? t.reshape({}) : t;
}

/// The part after the first '.' of the file name, and the name up to there.
std::pair<std::string_view, std::string_view> split_name(std::string_view name) {
  const size_t slash = name.rfind('/');
  const size_t dot = name.find('.', slash == name.npos ? 0 : slash + 1);
  if (dot == name.npos) return {name, {}};
  return {name.substr(0, dot), name.substr(dot + 1)};
}

}  // namespace

std::vector<std::string> expand_shards(const std::string& pattern) {
  const size_t open = pattern.find('{');
  if (open == pattern.npos) return {pattern};
  const size_t close = pattern.find('}', open), dots = pattern.find("..", open);
  TD_CHECK(close != pattern.npos && dots != pattern.npos && dots < close, Value,
           "'{}': braces expect two numbers such as {{000..007}}", pattern);
  const std::string from = pattern.substr(open + 1, dots - open - 1),
                    to = pattern.substr(dots + 2, close - dots - 2);
  const auto number = [&](const std::string& s) {
    int64_t v = -1;
    const auto [end, error] = std::from_chars(s.data(), s.data() + s.size(), v);
    TD_CHECK(error == std::errc() && end == s.data() + s.size() && v >= 0, Value,
             "'{}': '{}' is not a number", pattern, s);
    return v;
  };
  const int64_t a = number(from), b = number(to);
  TD_CHECK(a <= b && b - a < int64_t{1} << 24, Value, "'{}': the numbers are out of order",
           pattern);
  std::vector<std::string> out;
  for (int64_t k = a; k <= b; ++k)
    for (const std::string& rest : expand_shards(pattern.substr(close + 1)))
      out.push_back(fmt::format("{}{:0{}}{}", pattern.substr(0, open), k, from.size(), rest));
  return out;
}

TFRecordDataset::TFRecordDataset(const std::vector<std::string>& files, TFRecordOptions options)
    : options_(std::move(options)) {
  int64_t n = 0;
  for (const std::string& f : expand_all(files, kName)) {
    files_.push_back(std::make_shared<const io::TFRecordFile>(
        f, io::TFRecordFileOptions{.keep_whole = options_.skip_damaged}));
    if (!files_.back()->damage().empty()) damaged_.add();
    ends_.push_back(n += files_.back()->size());
  }
}

const io::TFRecordFile& TFRecordDataset::file_of(int64_t& i) const {
  TD_CHECK(i >= 0 && i < size(), Index, "sample {} of a dataset of {}", i, size());
  const auto it = std::upper_bound(ends_.begin(), ends_.end(), i);
  if (it != ends_.begin()) i -= *(it - 1);
  return *files_[static_cast<size_t>(it - ends_.begin())];
}

std::string TFRecordDataset::name_of(int64_t i) const {
  const io::TFRecordFile& f = file_of(i);
  return fmt::format("'{}' record {}", f.path(), i);
}

io::TFExample TFRecordDataset::example(int64_t i) const {
  const std::string name = name_of(i);
  const io::TFRecordFile& f = file_of(i);
  return io::parse_tf_example(f.record(i), name);
}

Example TFRecordDataset::get(int64_t i) const {
  TD_CHECK(i >= 0 && i < size(), Index, "sample {} of a dataset of {}", i, size());
  NoGradGuard no_grad;
  return damaged_.take(i, size(), options_.skip_damaged, [this](int64_t k) { return read(k); });
}

Example TFRecordDataset::read(int64_t i) const {
  const std::string name = name_of(i);
  const io::TFExample e = example(i);
  const auto value = [&](const std::string& key, bool x) -> Tensor {
    const io::TFFeature& f = feature_of(e, key, name);
    const IntList& shape = x ? options_.x_shape : IntList();
    if (f.kind == io::TFFeature::Kind::floats) return numbers(f.floats, shape, !x);
    if (f.kind == io::TFFeature::Kind::ints) return numbers(f.ints, shape, !x);
    TD_CHECK(x && f.bytes.size() == 1, Format, "{}: the feature '{}' holds {} strings, not {}",
             name, key, f.bytes.size(), x ? "one image" : "numbers");
    if (!options_.x_raw) return io::decode_image(f.bytes[0], {.mode = options_.mode}, name);
    const auto item = static_cast<int64_t>(size_of(*options_.x_raw));
    const auto bytes = static_cast<int64_t>(f.bytes[0].size());
    TD_CHECK(bytes % item == 0, Format, "{}: the {} bytes of '{}' are not a whole number of {}",
             name, bytes, key, to_string(*options_.x_raw));
    Tensor t = zeros({bytes / item}, *options_.x_raw);
    if (bytes > 0) std::memcpy(t.impl()->data, f.bytes[0].data(), f.bytes[0].size());
    return shape.empty() ? t : t.reshape(shape);
  };
  return {value(options_.x, true), value(options_.y, false)};
}

WebDataset::WebDataset(const std::vector<std::string>& shards, WebDatasetOptions options)
    : options_(std::move(options)) {
  for (const std::string& f : expand_all(shards, kName)) {
    shards_.push_back(std::make_shared<const io::TarFile>(
        f, io::TarFileOptions{.keep_whole = options_.skip_damaged}));
    if (!shards_.back()->damage().empty()) damaged_.add();
    const auto& entries = shards_.back()->entries();
    for (size_t first = 0; first < entries.size();) {
      const std::string_view name = split_name(entries[first].name).first;
      Sample s{shards_.back().get(), first, 0, entries.size(), entries.size()};
      while (first < entries.size() && split_name(entries[first].name).first == name) {
        ++first;
        ++s.count;
      }
      const auto find = [&](const std::string& list) {
        for (size_t at = 0; at <= list.size();) {
          const size_t end = std::min(list.find(';', at), list.size());
          for (size_t k = s.first; k < s.first + s.count; ++k)
            if (split_name(entries[k].name).second == std::string_view(list).substr(at, end - at))
              return k;
          at = end + 1;
        }
        TD_CHECK(options_.skip_damaged, Value, "'{}': the sample '{}' has no entry '{}'", f, name,
                 list);
        return entries.size();
      };
      s.x = find(options_.x);
      s.y = find(options_.y);
      if (s.x < entries.size() && s.y < entries.size())
        samples_.push_back(s);
      else
        damaged_.add();
    }
  }
}

const WebDataset::Sample& WebDataset::at(int64_t i) const {
  TD_CHECK(i >= 0 && i < size(), Index, "sample {} of a dataset of {}", i, size());
  return samples_[static_cast<size_t>(i)];
}

std::string WebDataset::name_of(int64_t i) const {
  const Sample& s = at(i);
  return fmt::format("{}: {}", s.shard->path(), split_name(s.shard->entries()[s.first].name).first);
}

std::string_view WebDataset::entry(int64_t i, const std::string& extension) const {
  const Sample& s = at(i);
  std::string names;
  for (size_t k = s.first; k < s.first + s.count; ++k) {
    const io::TarFile::Entry& e = s.shard->entries()[k];
    const std::string_view own = split_name(e.name).second;
    if (own == extension) {
      passed_mapped(e.bytes.data(), e.bytes.size());
      return e.bytes;
    }
    names += (names.empty() ? "" : ", ") + std::string(own);
  }
  TD_FAIL(Value, "{} has no entry '{}', it has ({})", name_of(i), extension, names);
}

Example WebDataset::get(int64_t i) const {
  at(i);  // throws Index
  NoGradGuard no_grad;
  return damaged_.take(i, size(), options_.skip_damaged, [this](int64_t k) { return read(k); });
}

Example WebDataset::read(int64_t i) const {
  const Sample& s = at(i);
  const io::TarFile::Entry &x = s.shard->entries()[s.x], &y = s.shard->entries()[s.y];
  const std::string name = fmt::format("{}: {}", s.shard->path(), x.name);
  passed_mapped(x.bytes.data(), x.bytes.size());
  std::string_view text = y.bytes;
  while (!text.empty() && std::strchr(" \t\r\n", text.back())) text.remove_suffix(1);
  int64_t label = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), label);
  TD_CHECK(!text.empty() && error == std::errc() && end == text.data() + text.size(), Format,
           "{}: {}: '{}' is not a number", s.shard->path(), y.name, text.substr(0, 40));
  return {io::decode_image(x.bytes, {.mode = options_.mode}, name), tensor(label)};
}

}  // namespace tandem::data
