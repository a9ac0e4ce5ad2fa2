// SPDX-License-Identifier: Apache-2.0
#include "tandem/data/sets/text_datasets.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "tandem/base/files/mapped_pages.h"
#include "tandem/ops/view/create.h"
#include "tandem/ops/view/view.h"

namespace tandem::data {
namespace {

void check_index(int64_t i, int64_t n) {
  TD_CHECK(i >= 0 && i < n, Index, "sample {} of a dataset of {}", i, n);
}

// A file small enough to be kept whole releases no pages.
void passed(const MappedFile& file, uint64_t at, uint64_t bytes) {
  if (file.size() > kPassedBytes) passed_mapped(file.data() + at, bytes);
}

}  // namespace

TextLines::TextLines(const FilePath& path, TextLinesOptions options)
    : file_(make_ref<MappedFile>(path)), options_(options) {
  uint64_t at = 0;
  for (int64_t number = 1; at < file_->size(); ++number) {
    const uint64_t begin = at;
    const std::string_view text = cut(begin, number, at);
    passed(*file_, begin, at - begin);
    if (!options_.skip_empty || !text.empty()) marks_.add({begin, number});
  }
}

// The line that begins at byte `at`; `number` is reported if the line is too long.
std::string_view TextLines::cut(uint64_t at, int64_t number, uint64_t& next) const {
  const std::string_view all = file_->view();
  // Scans the longest allowed line in windows, as it can exceed what should be kept in memory.
  constexpr uint64_t kWindow = 4 << 20;
  const uint64_t room = all.size() - at;
  const uint64_t limit = options_.longest < room ? std::min(options_.longest + 2, room) : room;
  const char* end = nullptr;
  for (uint64_t from = 0; from < limit && !end; from += kWindow) {
    const char* p = all.data() + at + from;
    const uint64_t n = std::min(kWindow, limit - from);
    end = static_cast<const char*>(std::memchr(p, '\n', n));
    if (!end) passed(*file_, at + from, n);
  }
  uint64_t stop = end ? static_cast<uint64_t>(end - all.data()) : at + limit;
  next = end ? stop + 1 : stop;
  if (stop > at && all[stop - 1] == '\r') --stop;
  TD_CHECK(
      stop - at <= options_.longest, Format,
      "'{}' line {}: more than the {} bytes that are allowed in a line\nSet `longest`, if this "
      "is a text file.",
      file_->path(), number, options_.longest);
  return all.substr(at, stop - at);
}

std::string_view TextLines::seek(int64_t i, int64_t& number) const {
  check_index(i, size());
  const Mark mark = marks_.before(i);
  uint64_t at = mark.at;
  number = mark.number;
  for (int64_t left = i % marks_.every();; ++number) {
    const uint64_t begin = at;
    const std::string_view text = cut(begin, number, at);
    passed(*file_, begin, at - begin);
    if (options_.skip_empty && text.empty()) continue;
    if (left-- == 0) return text;
  }
}

std::string_view TextLines::line(int64_t i) const {
  int64_t number;
  return seek(i, number);
}
int64_t TextLines::number(int64_t i) const {
  int64_t number;
  seek(i, number);
  return number;
}

Tensor TextLines::get(int64_t i) const {
  const std::string_view text = line(i);
  Tensor t = empty({static_cast<int64_t>(text.size())}, DType::u8);
  if (!text.empty()) std::memcpy(t.impl()->data, text.data(), text.size());
  return t;
}

JsonLines::JsonLines(const FilePath& path, JsonLinesOptions options)
    : lines_(path), options_(std::move(options)) {}

io::Json JsonLines::json(int64_t i) const {
  int64_t number;
  const std::string_view text = lines_.seek(i, number);
  io::Json j = io::parse_json(text, fmt::format("'{}' line {}", lines_.path(), number));
  TD_CHECK(j.as_object(), Format, "'{}' line {}: expected an object, got {}", lines_.path(), number,
           j.kind());
  return j;
}

Tensor JsonLines::member(const io::Json& object, const std::string& name, DType dtype,
                         int64_t i) const {
  const io::Json* value = object.find(name);
  auto fail = [&](const std::string& what) {
    TD_FAIL(Format, "'{}' line {}: {}", lines_.path(), lines_.number(i), what);
  };
  if (!value) fail(fmt::format("the object has no member '{}'", name));
  std::vector<int64_t> sizes;
  for (const io::Json* v = value; v->as_array(); v = v->as_array()->data()) {
    sizes.push_back(static_cast<int64_t>(v->as_array()->size()));
    if (sizes.back() == 0) break;
    if (sizes.size() > kMaxRank)
      fail(fmt::format("'{}' has more than {} dimensions", name, kMaxRank));
  }
  std::vector<double> numbers;
  auto walk = [&](auto& self, const io::Json& v, size_t depth) -> void {
    if (depth == sizes.size()) {
      if (const int64_t* n = v.as_int())
        numbers.push_back(static_cast<double>(*n));
      else if (const double* d = v.as_double())
        numbers.push_back(*d);
      else if (const bool* b = v.as_bool())
        numbers.push_back(*b);
      else
        fail(fmt::format("'{}' expects numbers, got {}", name, v.kind()));
      return;
    }
    if (!v.as_array() || static_cast<int64_t>(v.as_array()->size()) != sizes[depth])
      fail(fmt::format("the arrays of '{}' have different sizes", name));
    for (const io::Json& e : *v.as_array()) self(self, e, depth + 1);
  };
  walk(walk, *value, 0);
  if (sizes.empty()) return tensor(numbers, Shape()).to(dtype);
  return tensor(numbers, Shape(sizes)).to(dtype);
}

Example JsonLines::get(int64_t i) const {
  const io::Json object = json(i);
  return {member(object, options_.x, options_.x_dtype, i),
          member(object, options_.y, options_.y_dtype, i)};
}

TokenFile::TokenFile(const FilePath& path, TokenFileOptions options)
    : file_(make_ref<MappedFile>(path)), options_(options) {
  const DType t = options_.dtype;
  TD_CHECK(t == DType::u8 || t == DType::i16 || t == DType::i32, DType,
           "TokenFile reads u8, i16 and i32, got {}", to_string(t));
  TD_CHECK(options_.block > 0 && options_.stride >= 0, Value,
           "TokenFile expects block > 0 and stride >= 0, got {} and {}", options_.block,
           options_.stride);
  TD_CHECK(0 <= options_.from && options_.from < options_.to && options_.to <= 1, Value,
           "TokenFile: the part from {} to {} of a file", options_.from, options_.to);
  TD_CHECK(file_->size() % size_of(t) == 0, Format, "'{}' has {} bytes, no multiple of {}",
           file_->path(), file_->size(), size_of(t));
  const auto all = static_cast<int64_t>(file_->size() / size_of(t));
  first_ = static_cast<int64_t>(static_cast<double>(all) * options_.from);
  tokens_ = static_cast<int64_t>(static_cast<double>(all) * options_.to) - first_;
  if (options_.stride == 0) options_.stride = options_.block;
  TD_CHECK(tokens_ > options_.block, Value, "'{}' has {} tokens there, a sample expects {}",
           file_->path(), tokens_, options_.block + 1);
  size_ = (tokens_ - options_.block - 1) / options_.stride + 1;
}

int64_t TokenFile::token(int64_t at) const {
  const unsigned char* p = file_->data() + static_cast<size_t>(at) * size_of(options_.dtype);
  if (options_.dtype == DType::u8) return *p;
  if (options_.dtype == DType::i16) {
    uint16_t v;
    std::memcpy(&v, p, 2);
    return v;
  }
  uint32_t v;
  std::memcpy(&v, p, 4);
  return v;
}

void TokenFile::copy(int64_t i, int64_t* x, int64_t* y) const {
  check_index(i, size_);
  const int64_t at = first_ + i * options_.stride, n = options_.block;
  const size_t item = size_of(options_.dtype);
  passed(*file_, static_cast<size_t>(at) * item, static_cast<size_t>(n + 1) * item);
  for (int64_t k = 0; k < n; ++k) x[k] = token(at + k);
  std::memcpy(y, x + 1, static_cast<size_t>(n - 1) * sizeof(int64_t));
  y[n - 1] = token(at + n);
}

Example TokenFile::get(int64_t i) const {
  Tensor x = empty({options_.block}, DType::i64), y = empty({options_.block}, DType::i64);
  copy(i, static_cast<int64_t*>(x.impl()->data), static_cast<int64_t*>(y.impl()->data));
  return {x, y};
}

Example TokenFile::get_many(std::span<const int64_t> rows) const {
  const auto n = static_cast<int64_t>(rows.size());
  Tensor x = empty({n, options_.block}, DType::i64), y = empty({n, options_.block}, DType::i64);
  auto *px = static_cast<int64_t*>(x.impl()->data), *py = static_cast<int64_t*>(y.impl()->data);
  for (int64_t k = 0; k < n; ++k)
    copy(rows[static_cast<size_t>(k)], px + k * options_.block, py + k * options_.block);
  return {x, y};
}

}  // namespace tandem::data
