// SPDX-License-Identifier: Apache-2.0
// Dim: one size of a shape, 8 bytes. A number, or (below -2^62) the index of an interned expression
// over + * floordiv mod min max of named symbols, in normal form. Numbers cost one sign test. A
// symbol is never assumed to be 1 or not 1; an equality that cannot be decided is passed to the
// DimChecks of the running trace. A number that a program passes cannot be taken for an expression:
// the constructor refuses it.
#pragma once

#include <concepts>
#include <cstdint>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "tandem/base/export.h"

namespace tandem {

class TD_API Dim {
 public:
  constexpr Dim() = default;
  /// A number; throws Value below -2^62 and above 2^63 - 1.
  template <std::integral I>
  constexpr Dim(I v) : v_(static_cast<int64_t>(v)) {
    if (TD_UNLIKELY(v_ < kSymbolic || (std::is_unsigned_v<I> && v_ < 0)))
      throw_no_size(v_, std::is_signed_v<I>);
  }

  /// A new or existing named symbol (names are global: the same name is the same symbol).
  static Dim symbol(const std::string& name);

  constexpr bool is_symbolic() const { return v_ < kSymbolic; }
  /// The number; throws Shape when symbolic.
  int64_t value() const { return TD_LIKELY(!is_symbolic()) ? v_ : throw_symbolic(); }
  /// The raw 8 bytes: equal exactly when the normal forms are equal.
  constexpr int64_t raw() const { return v_; }
  static constexpr Dim from_raw(int64_t raw) {
    Dim d;
    d.v_ = raw;
    return d;
  }
  std::string to_string() const;
  /// The value with symbols replaced; throws Shape if a symbol has no value.
  int64_t evaluate(const std::vector<std::pair<Dim, int64_t>>& symbols) const;

  // Of numbers: what does not fit throws Value.
  friend Dim operator+(Dim a, Dim b) {
    Dim r;
    const bool fits = !__builtin_add_overflow(a.v_, b.v_, &r.v_) && !r.is_symbolic();
    return TD_LIKELY(both(a, b) && fits) ? r : combine('+', a, b);
  }
  friend Dim operator-(Dim a, Dim b) {
    Dim r;
    const bool fits = !__builtin_sub_overflow(a.v_, b.v_, &r.v_) && !r.is_symbolic();
    return TD_LIKELY(both(a, b) && fits) ? r : combine('-', a, b);
  }
  friend Dim operator*(Dim a, Dim b) {
    Dim r;
    const bool fits = !__builtin_mul_overflow(a.v_, b.v_, &r.v_) && !r.is_symbolic();
    return TD_LIKELY(both(a, b) && fits) ? r : combine('*', a, b);
  }
  /// Rounds toward minus infinity; the divisor is positive.
  friend Dim floordiv(Dim a, Dim b) { return combine('/', a, b); }
  friend Dim mod(Dim a, Dim b) { return combine('%', a, b); }
  friend Dim min(Dim a, Dim b) { return combine('<', a, b); }
  friend Dim max(Dim a, Dim b) { return combine('>', a, b); }
  /// Identity of normal forms (not a run-time equality; see dims_equal).
  friend constexpr bool operator==(Dim a, Dim b) { return a.v_ == b.v_; }

 private:
  static constexpr int64_t kSymbolic = -(int64_t{1} << 62);
  static constexpr bool both(Dim a, Dim b) { return !a.is_symbolic() && !b.is_symbolic(); }
  static Dim combine(char op, Dim a, Dim b);
  [[noreturn]] int64_t throw_symbolic() const;
  [[noreturn]] static void throw_no_size(int64_t v, bool negative);
  int64_t v_ = 0;
};

/// Equalities that can only be decided at run time: collected by a trace, checked at each run.
struct DimChecks {
  std::vector<std::pair<Dim, Dim>> equal;
};
/// The collector of this thread, or nullptr; a trace sets and restores it.
TD_API DimChecks*& current_dim_checks();

/// True when a and b are the same size. If undecidable: inside a trace records the check and
/// returns true, outside returns false.
TD_API bool dims_equal(Dim a, Dim b);

}  // namespace tandem
