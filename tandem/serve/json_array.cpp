// SPDX-License-Identifier: Apache-2.0
// Lists of numbers in JSON, read into the memory of tensors and written from it.
#include <fmt/format.h>

#include <array>
#include <charconv>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <limits>

#include "tandem/base/error.h"
#include "tandem/ops/ops.h"
#include "tandem/serve/json_cursor.h"

namespace tandem::serve {
namespace {

// Numbers whose value is known without a second look.
template <class T>
bool quick_value(const JsonNumber& n, T& v) {
  if constexpr (std::is_integral_v<T>) {
    if (!n.whole || !n.exact) return false;
    v = n.negative ? -static_cast<T>(n.digits) : static_cast<T>(n.digits);
    return true;
  } else {
    return n.real(v);
  }
}

template <class T>
Tensor quick_list(JsonCursor& json) {
  std::vector<T> values;
  const auto take = [&](const JsonNumber& n) {
    T v = 0;
    if (!quick_value(n, v)) return false;
    values.push_back(v);
    return true;
  };
  json.open('[');
  if (!json.next_item()) return {};
  if (json.take_numbers(take) > 0) json.next_item();
  const JsonNumber last = json.take_number();
  if (last.length == 0 || !take(last) || json.next_item()) return {};
  return tensor(values);
}

/// Walks nested lists; finds their shape and appends each number to bytes.
class ArrayReader {
 public:
  ArrayReader(std::string_view json, DType dtype, std::string_view name, bool nonfinite)
      : cursor_(json, name), dtype_(dtype), name_(name), nonfinite_(nonfinite) {
    bytes_.resize(std::min<size_t>(json.size() / 2, size_t{1} << 16));
  }

  Tensor read() {
    if (cursor_.peek() == '[')
      lists();
    else
      number();
    cursor_.finish();
    std::vector<int64_t> sizes;
    for (const int64_t n : sizes_) sizes.push_back(std::max<int64_t>(n, 0));
    Tensor t(Ref<detail::TensorImpl>::adopt(
        detail::new_tensor(Shape(std::span<const int64_t>(sizes)), dtype_, {})));
    if (used_ > 0) std::memcpy(t.impl()->data, bytes_.data(), used_);
    return t;
  }

 private:
  static constexpr size_t kMostDims = 8;

  // sizes_[d] is -1 until a list at depth d has ended. Numbers lie at one depth.
  void lists() {
    do {
      if (!at_.empty()) {
        if (!cursor_.next_item()) {
          end_list();
          continue;
        }
        ++at_.back();
      }
      if (cursor_.peek() == '[') {
        if (leaf_ >= 0 && at_.size() >= static_cast<size_t>(leaf_))
          fail("is a list, its neighbours are numbers");
        if (at_.size() >= kMostDims) fail(fmt::format("has more than {} dimensions", kMostDims));
        cursor_.open('[');
        at_.push_back(-1);
        if (at_.size() > sizes_.size()) sizes_.push_back(-1);
      } else {
        if (leaf_ < 0) leaf_ = static_cast<int64_t>(at_.size());
        if (at_.size() != static_cast<size_t>(leaf_)) fail("is a number, its neighbours are lists");
        if (const int64_t n = numbers(); n > 0)
          at_.back() += n - 1;
        else
          number();
      }
    } while (!at_.empty());
  }

  void end_list() {
    const int64_t n = at_.back() + 1;
    at_.pop_back();
    int64_t& size = sizes_[at_.size()];
    if (size < 0) size = n;
    if (size != n) fail(fmt::format("has {} items, its neighbours have {}", n, size));
    if (n == 0 && leaf_ < 0) leaf_ = static_cast<int64_t>(at_.size()) + 1;
  }

  [[noreturn]] void fail(const std::string& why) const {
    std::string place(name_);
    for (const int64_t i : at_) place += fmt::format("[{}]", i);
    TD_FAIL(Value, "{} {}", place, why);
  }

  void number() {
    const char c = cursor_.peek();
    if (c == '"' || c == '{')
      fail(fmt::format("is {}, expected a number of {}", c == '"' ? "a string" : "an object",
                       to_string(dtype_)));
    const std::string_view word = cursor_.read_word(true);
    switch (dtype_) {
      case DType::f32:
        return put(real<float>(word));
      case DType::f64:
        return put(real<double>(word));
      case DType::i64:
        return put(whole<int64_t>(word));
      case DType::i32:
        return put(whole<int32_t>(word));
      case DType::i16:
        return put(whole<int16_t>(word));
      case DType::i8:
        return put(whole<int8_t>(word));
      case DType::u8:
        return put(whole<uint8_t>(word));
      case DType::b8:
        if (word != "true" && word != "false" && word != "0" && word != "1")
          fail("is neither true nor false");
        return put(word == "true" || word == "1");
      case DType::f16:
      case DType::bf16:
        TD_FAIL(Value, "{}: {} has no form in JSON\nSend it as a binary tensor.", name_,
                to_string(dtype_));
    }
  }

  // Those in front that a comma follows and whose value is known at once.
  int64_t numbers() {
    switch (dtype_) {
      case DType::f32:
        return cursor_.take_numbers([this](const JsonNumber& n) { return quick<float>(n); });
      case DType::f64:
        return cursor_.take_numbers([this](const JsonNumber& n) { return quick<double>(n); });
      case DType::i64:
        return cursor_.take_numbers([this](const JsonNumber& n) { return quick<int64_t>(n); });
      default:
        return 0;
    }
  }

  template <class T>
  bool quick(const JsonNumber& n) {
    T v;
    if (!quick_value(n, v)) return false;
    put(v);
    return true;
  }

  void refuse_word(std::string_view word) {
    fail(fmt::format("is {}, expected a number of {}", word, to_string(dtype_)));
  }

  template <class T>
  T real(std::string_view word) {
    T v = 0;
    const char* end = word.data() + word.size();
    const auto [stop, error] = std::from_chars(word.data(), end, v);
    const char last = word.back();
    if (last < '0' || last > '9') {  // NaN, true, null
      if (word == "true" || word == "false" || word == "null" || !nonfinite_) refuse_word(word);
      if (word == "NaN") return std::numeric_limits<T>::quiet_NaN();
      return word[0] == '-' ? -std::numeric_limits<T>::infinity()
                            : std::numeric_limits<T>::infinity();
    }
    if (error == std::errc() && stop == end) return v;
    // Out of range: too small is 0 or nearly so, too large is refused.
    const std::string text(word);
    v = sizeof(T) == 4 ? static_cast<T>(std::strtof(text.c_str(), nullptr))
                       : static_cast<T>(std::strtod(text.c_str(), nullptr));
    if (std::isinf(v)) fail(fmt::format("is too large for {}", to_string(dtype_)));
    return v;
  }

  template <class T>
  T whole(std::string_view word) {
    T v = 0;
    const char* end = word.data() + word.size();
    const auto [stop, error] = std::from_chars(word.data(), end, v);
    if (error == std::errc() && stop == end) return v;
    if (word == "true" || word == "false" || word == "null" || word.back() == 'N' ||
        word.back() == 'y')
      refuse_word(word);
    // 1e3 and 2.0 are whole numbers, too.
    double d = 0;
    const auto [stop2, error2] = std::from_chars(word.data(), end, d);
    constexpr double kExact = 9007199254740992.0;
    if (error2 == std::errc() && stop2 == end && d == std::floor(d) && std::abs(d) <= kExact &&
        d >= static_cast<double>(std::numeric_limits<T>::min()) &&
        d <= static_cast<double>(std::numeric_limits<T>::max()))
      return static_cast<T>(d);
    fail(fmt::format("is {}, which {} does not hold", word.substr(0, 40), to_string(dtype_)));
  }

  template <class T>
  void put(T v) {
    if (bytes_.size() - used_ < sizeof v) bytes_.resize(2 * bytes_.size() + 64);
    std::memcpy(bytes_.data() + used_, &v, sizeof v);
    used_ += sizeof v;
  }

  JsonCursor cursor_;
  DType dtype_;
  std::string_view name_;
  bool nonfinite_;
  std::vector<int64_t> at_;     ///< the place in each open list
  std::vector<int64_t> sizes_;  ///< of each dimension
  int64_t leaf_ = -1;           ///< how deep numbers lie
  std::vector<char> bytes_;     ///< the numbers are the first `used_` of them
  size_t used_ = 0;
};

template <class T>
void write_number(std::string& out, T v, NonFinite nan) {
  if constexpr (std::is_same_v<T, bool>) {
    out += v ? "true" : "false";
  } else if constexpr (std::is_same_v<T, Half> || std::is_same_v<T, BFloat16>) {
    write_number(out, static_cast<float>(v), nan);
  } else {
    if constexpr (std::is_floating_point_v<T>) {
      if (!std::isfinite(v)) {
        out += nan == NonFinite::null ? "null"
               : std::isnan(v)        ? "NaN"
               : v < 0                ? "-Infinity"
                                      : "Infinity";
        return;
      }
    }
    std::array<char, 40> room;
    const auto r = std::to_chars(room.data(), room.data() + room.size(), v);
    const size_t n = static_cast<size_t>(r.ptr - room.data());
    out.append(room.data(), n);
    // A real number stays one for readers that tell them apart.
    if constexpr (std::is_floating_point_v<T>)
      if (std::string_view(room.data(), n).find_first_of(".e") == std::string_view::npos)
        out += ".0";
  }
}

template <class T>
void write_lists(std::string& out, const T*& data, std::span<const int64_t> sizes, NonFinite nan) {
  if (sizes.empty()) return write_number(out, *data++, nan);
  out += '[';
  for (int64_t i = 0; i < sizes[0]; ++i) {
    if (i) out += ',';
    write_lists(out, data, sizes.subspan(1), nan);
  }
  out += ']';
}

void write_from(std::string& out, const Tensor& t, const void* data, std::span<const int64_t> sizes,
                NonFinite nan) {
  visit_dtype(t.dtype(), [&](auto sample) {
    const auto* p = static_cast<const decltype(sample)*>(data);
    write_lists(out, p, sizes, nan);
  });
}

}  // namespace

Tensor read_list(JsonCursor& json, DType dtype) {
  if (json.peek() != '[') return {};
  const JsonCursor before = json;
  const Tensor t = dtype == DType::f32   ? quick_list<float>(json)
                   : dtype == DType::f64 ? quick_list<double>(json)
                   : dtype == DType::i64 ? quick_list<int64_t>(json)
                                         : Tensor();
  if (!t.defined()) json = before;
  return t;
}

Tensor read_array(std::string_view json, DType dtype, std::string_view name, bool nonfinite) {
  return ArrayReader(json, dtype, name, nonfinite).read();
}

void write_array(std::string& out, const Tensor& t, NonFinite nan, bool nested) {
  const Tensor x = t.contiguous();
  const int64_t n = x.numel();
  write_from(out, x, x.data_ptr(), nested ? x.sizes() : std::span<const int64_t>(&n, 1), nan);
}

void write_row(std::string& out, const Tensor& t, int64_t row, NonFinite nan) {
  const Tensor x = t.contiguous();
  const int64_t n = x.size(0) > 0 ? x.numel() / x.size(0) : 0;
  const auto* first = static_cast<const char*>(x.data_ptr());
  write_from(out, x, first + row * n * x.element_size(), x.sizes().subspan(1), nan);
}

}  // namespace tandem::serve
