// SPDX-License-Identifier: Apache-2.0
// Element types, their sizes and PyTorch's promotion. The single list is TD_FOR_EACH_DTYPE.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "tandem/base/export.h"
#include "tandem/base/half.h"

namespace tandem {

/// X(enum name, C++ storage type, PyTorch's name)
#define TD_FOR_EACH_DTYPE(X)    \
  X(f64, double, "float64")     \
  X(f32, float, "float32")      \
  X(f16, Half, "float16")       \
  X(bf16, BFloat16, "bfloat16") \
  X(i64, int64_t, "int64")      \
  X(i32, int32_t, "int32")      \
  X(i16, int16_t, "int16")      \
  X(i8, int8_t, "int8")         \
  X(u8, uint8_t, "uint8")       \
  X(b8, bool, "bool")

enum class DType : uint8_t {
#define X(name, type, text) name,
  TD_FOR_EACH_DTYPE(X)
#undef X
};
inline constexpr int kDTypeCount = 10;

inline constexpr DType float64 = DType::f64, float32 = DType::f32, float16 = DType::f16,
                       bfloat16 = DType::bf16, int64 = DType::i64, int32 = DType::i32,
                       int16 = DType::i16, int8 = DType::i8, uint8 = DType::u8, boolean = DType::b8;

/// Bytes of one element.
constexpr size_t size_of(DType t) {
  constexpr unsigned char kSize[kDTypeCount] = {8, 4, 2, 2, 8, 4, 2, 1, 1, 1};
  return kSize[static_cast<int>(t)];
}
constexpr bool is_floating(DType t) { return t <= DType::bf16; }
/// Is it f16 or bf16, which most kernels widen to f32?
constexpr bool is_short_float(DType t) { return t == DType::f16 || t == DType::bf16; }
constexpr bool is_integral(DType t) { return t >= DType::i64 && t <= DType::u8; }
constexpr bool is_bool(DType t) { return t == DType::b8; }
/// 2 floating, 1 integral, 0 bool: the category that promotion compares first.
constexpr int category(DType t) { return is_floating(t) ? 2 : is_integral(t) ? 1 : 0; }

/// PyTorch's name: "float32", "bool".
TD_API const char* to_string(DType t);
/// The enumerator's: "f32", "b8".
TD_API const char* short_name(DType t);
/// The result dtype of two tensors of the same category rank, like torch.promote_types.
TD_API DType promote(DType a, DType b);
/// The dtype that sums and statistics of elements of `t` are kept in: f64 for f64, f32 for the
/// others.
inline DType accumulation_dtype(DType t) { return t == DType::f64 ? DType::f64 : DType::f32; }

template <class T>
struct DTypeOf;
#define X(name, type, text)                     \
  template <>                                   \
  struct DTypeOf<type> {                        \
    static constexpr DType value = DType::name; \
  };
TD_FOR_EACH_DTYPE(X)
#undef X
template <class T>
inline constexpr DType dtype_of = DTypeOf<T>::value;

/// Call f(T{}) with the storage type of `t`.
template <class F>
decltype(auto) visit_dtype(DType t, F&& f) {
  switch (t) {
#define X(name, type, text) \
  case DType::name:         \
    return f(type{});
    TD_FOR_EACH_DTYPE(X)
#undef X
  }
  __builtin_unreachable();
}

}  // namespace tandem
