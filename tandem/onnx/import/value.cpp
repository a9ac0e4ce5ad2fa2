// SPDX-License-Identifier: Apache-2.0
#include "tandem/onnx/import/value.h"

#include <cmath>
#include <cstring>
#include <limits>

#include "tandem/base/budget.h"
#include "tandem/graph/context.h"
#include "tandem/onnx/import/operators/small_float_internal.h"
#include "tandem/onnx/import/stored_internal.h"
#include "tandem/ops/ops.h"

namespace tandem::onnx {
namespace {

constexpr OnnxTypeInfo kTypes[] = {
    {"undefined", DType::f32, 0, false, false, false},
    {"float", DType::f32, 32, true, true, true},
    {"uint8", DType::u8, 8, true, false, false},
    {"int8", DType::i8, 8, true, false, true},
    {"uint16", DType::i32, 16, false, false, false},
    {"int16", DType::i16, 16, true, false, true},
    {"int32", DType::i32, 32, true, false, true},
    {"int64", DType::i64, 64, true, false, true},
    {"string", DType::u8, 0, false, false, false},
    {"bool", DType::b8, 8, true, false, false},
    {"float16", DType::f16, 16, true, true, true},
    {"double", DType::f64, 64, true, true, true},
    {"uint32", DType::i64, 32, false, false, false},
    {"uint64", DType::i64, 64, false, false, false},
    {"complex64", DType::f32, 64, false, false, false},
    {"complex128", DType::f64, 128, false, false, false},
    {"bfloat16", DType::bf16, 16, true, true, true},
    {"float8e4m3fn", DType::f32, 8, false, true, true},
    {"float8e4m3fnuz", DType::f32, 8, false, true, true},
    {"float8e5m2", DType::f32, 8, false, true, true},
    {"float8e5m2fnuz", DType::f32, 8, false, true, true},
    {"uint4", DType::u8, 4, false, false, false},
    {"int4", DType::i8, 4, false, false, true},
    {"float4e2m1", DType::f32, 4, false, true, true},
    {"float8e8m0", DType::f32, 8, false, true, false},
    {"uint2", DType::u8, 2, false, false, false},
    {"int2", DType::i8, 2, false, false, true},
};
constexpr size_t kTypeCount = std::size(kTypes);

uint8_t nan_bits(OnnxType type) {
  switch (type) {
    case OnnxType::f8e4m3fn:
    case OnnxType::f8e5m2:
      return 0x7F;
    case OnnxType::f4e2m1:
      return 0x08;  // there is no NaN: -0, as in the reference implementation
    default:
      return 0x80;
  }
}

// A power of two; `mode` tells how numbers in between are rounded: up, down or nearest.
uint8_t encode_scale(float v, bool saturate, const std::string& mode) {
  if (std::isnan(v)) return 0xFF;
  if (std::isinf(v)) return saturate ? 0xFE : 0xFF;
  if (v <= 0) return 0;
  int e = 0;
  const float m = std::frexp(v, &e);  // v = m 2^e, m in [0.5, 1)
  int power = e - 1;
  const bool exact = m == 0.5f;
  if (!exact && (mode == "up" || (mode == "nearest" && m >= 0.75f))) ++power;
  const int bits = power + 127;
  if (bits < 0) return 0;
  if (bits > 254) return saturate ? 0xFE : 0xFF;
  return static_cast<uint8_t>(bits);
}

std::string number_text(double v, OnnxType type) {
  if (!info_of(type).floating) return fmt::format("{}", static_cast<int64_t>(v));
  if (std::isnan(v)) return "NaN";
  if (std::isinf(v)) return v < 0 ? "-INF" : "INF";
  if (type == OnnxType::f64) return fmt::format("{}", v);
  return fmt::format("{}", static_cast<float>(v));
}

double text_number(const std::string& s) {
  char* end = nullptr;
  const double v = std::strtod(s.c_str(), &end);
  TD_CHECK(!s.empty() && *end == 0, Value, "'{}' is not a number", s);
  return v;
}

OnnxValue to_strings(const OnnxValue& v) {
  OnnxStrings s{v.shape(), {}};
  if (v.type() == OnnxType::u64 || v.type() == OnnxType::i64) {
    for (const int64_t i : v.tensor().to_vector<int64_t>())
      s.values.push_back(v.type() == OnnxType::u64 ? fmt::format("{}", static_cast<uint64_t>(i))
                                                   : fmt::format("{}", i));
  } else {
    for (const double d : v.tensor().to_vector<double>())
      s.values.push_back(number_text(d, v.type()));
  }
  return OnnxValue(std::move(s));
}

}  // namespace

SmallFloat small_float(OnnxType type) {
  switch (type) {
    case OnnxType::f8e4m3fn:
      return {4, 3, 7, 448.0f, false, false};
    case OnnxType::f8e4m3fnuz:
      return {4, 3, 8, 240.0f, false, true};
    case OnnxType::f8e5m2:
      return {5, 2, 15, 57344.0f, true, false};
    case OnnxType::f8e5m2fnuz:
      return {5, 2, 16, 57344.0f, false, true};
    case OnnxType::f4e2m1:
      return {2, 1, 1, 6.0f, false, false};
    default:
      TD_FAIL(Internal, "{} is not a small float", to_string(type));
  }
}

const OnnxTypeInfo& info_of(OnnxType type) {
  const auto i = static_cast<size_t>(type);
  TD_CHECK(i > 0 && i < kTypeCount, Unsupported, "the element type {} is unknown", i);
  TD_CHECK(type != OnnxType::c64 && type != OnnxType::c128, Unsupported,
           "complex tensors are not supported");
  return kTypes[i];
}

const char* to_string(OnnxType type) {
  const auto i = static_cast<size_t>(type);
  return i < kTypeCount ? kTypes[i].name : "unknown";
}

OnnxType onnx_type_of(DType dtype) {
  for (size_t i = 1; i < kTypeCount; ++i)
    if (kTypes[i].native && kTypes[i].carrier == dtype) return static_cast<OnnxType>(i);
  TD_FAIL(Internal, "no element type for {}", tandem::to_string(dtype));
}

OnnxValue::OnnxValue(Tensor t, OnnxType type) : type_(type), tensor_(std::move(t)) {
  // Under AutocastGuard an f32 matmul has a smaller type.
  if ((context().slow & kAutocast) && type == OnnxType::f32 &&
      tensor_.dtype() == context().autocast_dtype)
    type_ = onnx_type_of(tensor_.dtype());
  TD_CHECK(tensor_.dtype() == info_of(type_).carrier, DType,
           "a tensor of {} is stored as {}, got {}", to_string(type),
           tandem::to_string(info_of(type_).carrier), tandem::to_string(tensor_.dtype()));
}

namespace {
/// Shared, and charged until the last owner lets go of it.
template <class T>
std::shared_ptr<const T> charged(T v, uint64_t bytes) {
  Budget::take(bytes);
  return {new T(std::move(v)), [bytes](const T* p) {
            delete p;
            Budget::give_back(bytes);
          }};
}
}  // namespace

OnnxValue::OnnxValue(OnnxStrings s) : type_(OnnxType::string) {
  uint64_t bytes = s.values.size() * sizeof(std::string);
  for (const std::string& text : s.values) bytes += text.size();
  strings_ = charged(std::move(s), bytes);
}

OnnxValue OnnxValue::sequence(Sequence items, OnnxType type) {
  OnnxValue v;
  v.type_ = items.empty() ? type : items[0].type();
  const uint64_t bytes = items.size() * sizeof(OnnxValue);
  Budget::work(static_cast<double>(items.size()));
  v.sequence_ = charged(std::move(items), bytes);
  return v;
}

const Tensor& OnnxValue::tensor() const {
  TD_CHECK(is_tensor(), DType, "expected a tensor of numbers, got {}", describe());
  return is_stored(tensor_) ? StoredScope::tensor_of(tensor_) : tensor_;
}
const OnnxStrings& OnnxValue::strings() const {
  TD_CHECK(strings_, DType, "expected strings, got {}", describe());
  return *strings_;
}
const OnnxValue::Sequence& OnnxValue::items() const {
  TD_CHECK(sequence_, DType, "expected a sequence, got {}", describe());
  return *sequence_;
}

std::vector<int64_t> OnnxValue::shape() const {
  if (strings_) return strings_->shape;
  TD_CHECK(is_tensor(), DType, "expected a tensor of numbers, got {}", describe());
  return tensor_.shape().to_vector();
}

std::string OnnxValue::describe() const {
  if (is_tensor()) return std::string(to_string(type_)) + tensor_.shape().to_string();
  if (strings_) return "string" + Shape(strings_->shape).to_string();
  if (sequence_) return fmt::format("a sequence of {}", sequence_->size());
  return "nothing";
}

float decode_small_float(OnnxType type, uint8_t bits) {
  if (type == OnnxType::f8e8m0)
    return bits == 0xFF ? std::numeric_limits<float>::quiet_NaN()
                        : static_cast<float>(std::ldexp(1.0, int{bits} - 127));
  const SmallFloat f = small_float(type);
  const int sign_at = f.exponent + f.mantissa;
  const int e = bits >> f.mantissa & ((1 << f.exponent) - 1);
  const int m = bits & ((1 << f.mantissa) - 1);
  const float sign = bits >> sign_at & 1 ? -1.0f : 1.0f;
  if (type == OnnxType::f8e4m3fn && (bits & 0x7F) == 0x7F)
    return std::numeric_limits<float>::quiet_NaN();
  if (f.unsigned_zero && bits == 0x80) return std::numeric_limits<float>::quiet_NaN();
  if (f.infinite && e == (1 << f.exponent) - 1)
    return m ? std::numeric_limits<float>::quiet_NaN()
             : sign * std::numeric_limits<float>::infinity();
  const double v = e == 0 ? std::ldexp(m, 1 - f.bias - f.mantissa)
                          : std::ldexp(m + (1 << f.mantissa), e - f.bias - f.mantissa);
  return sign * static_cast<float>(v);
}

uint8_t encode_small_float(OnnxType type, float v, bool saturate) {
  if (type == OnnxType::f8e8m0) return encode_scale(v, saturate, "up");
  const SmallFloat f = small_float(type);
  if (std::isnan(v)) return nan_bits(type);
  const uint8_t sign = std::signbit(v) ? static_cast<uint8_t>(1 << (f.exponent + f.mantissa)) : 0;
  const double a = std::fabs(static_cast<double>(v));
  const int least = 1 - f.bias;  // exponent of the smallest normal number
  int e = a == 0 ? least : std::ilogb(a == std::numeric_limits<double>::infinity() ? 1e300 : a);
  if (e < least) e = least;
  const double unit = std::ldexp(1.0, e - f.mantissa);
  const double rounded = std::isinf(a) ? a : std::nearbyint(a / unit) * unit;
  if (rounded > f.largest) {
    const bool always = type == OnnxType::f4e2m1;
    if (saturate || always) {
      // The bits of the largest number.
      const int le = std::ilogb(f.largest);
      const int lm = static_cast<int>(std::ldexp(f.largest, f.mantissa - le)) - (1 << f.mantissa);
      return static_cast<uint8_t>(sign | (le + f.bias) << f.mantissa | lm);
    }
    if (f.infinite) return static_cast<uint8_t>(sign | ((1 << f.exponent) - 1) << f.mantissa);
    return static_cast<uint8_t>(f.unsigned_zero ? 0x80 : sign | nan_bits(type));
  }
  if (rounded == 0) return f.unsigned_zero ? 0 : sign;
  const int re = std::max(std::ilogb(rounded), least);
  const int m = static_cast<int>(std::ldexp(rounded, f.mantissa - re));
  const bool normal = m >= 1 << f.mantissa;
  const int bits = normal ? (re + f.bias) << f.mantissa | (m - (1 << f.mantissa)) : m;
  return static_cast<uint8_t>(sign | bits);
}

Tensor wrap_to(Tensor x, OnnxType type) {
  const OnnxTypeInfo& info = info_of(type);
  if (info.native || info.bits == 64) return x;
  if (info.floating) return round_to_small_float(x.to(DType::f32), type, true, "up");
  const int64_t mask = (int64_t{1} << info.bits) - 1;
  if (!info.is_signed) return bitwise_and(std::move(x), mask);
  const int64_t half = int64_t{1} << (info.bits - 1);
  return sub(bitwise_and(add(std::move(x), half), mask), half);
}

OnnxValue cast_value(const OnnxValue& v, OnnxType to, bool saturate,
                     const std::string& round_mode) {
  if (to == OnnxType::string && !v.is_strings()) return to_strings(v);
  const OnnxTypeInfo& t = info_of(to);
  if (v.is_strings()) {
    if (to == OnnxType::string) return v;
    std::vector<double> numbers;
    for (const std::string& s : v.strings().values) numbers.push_back(text_number(s));
    const Tensor x = tensor(numbers, Shape(v.strings().shape));
    return cast_value(OnnxValue(x), to, saturate, round_mode);
  }
  const Tensor& x = v.tensor();
  const OnnxType from = v.type();
  if (from == to) return v;
  if (to == OnnxType::b8) return OnnxValue(ne(x, 0), to);
  const OnnxTypeInfo& f = info_of(from);
  if (!t.native && t.floating)
    return OnnxValue(
        round_to_small_float(
            from == OnnxType::u64 ? cast_value(v, OnnxType::f32).tensor() : x.to(DType::f32), to,
            saturate, round_mode),
        to);
  if (from == OnnxType::u64 && t.floating) {
    const Tensor high = bitwise_and(bitwise_right_shift(x, 32), int64_t{0xFFFFFFFF});
    const Tensor low = bitwise_and(x, int64_t{0xFFFFFFFF});
    return OnnxValue((high.to(DType::f64) * 4294967296.0 + low.to(DType::f64)).to(t.carrier), to);
  }
  if (f.floating && !t.floating && t.bits < 32) {  // as C converts: to a wide integer, then wrapped
    const Tensor wide = x.to(DType::i64);
    return OnnxValue(t.native ? wide.to(t.carrier) : wrap_to(wide, to).to(t.carrier), to);
  }
  if (to == OnnxType::u64 && f.floating) {
    const Tensor d = x.to(DType::f64);
    const Tensor upper = ge(d, 9223372036854775808.0);
    const Tensor low = where(upper, d - 9223372036854775808.0, d).to(DType::i64);
    return OnnxValue(where(upper, bitwise_xor(low, std::numeric_limits<int64_t>::min()), low), to);
  }
  if (t.native) return OnnxValue(x.to(t.carrier), to);
  return OnnxValue(wrap_to(x.to(DType::i64), to).to(t.carrier), to);
}

}  // namespace tandem::onnx
