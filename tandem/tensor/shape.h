// SPDX-License-Identifier: Apache-2.0
// Shape: up to eight Dims inline; also the type of every list of ints in the API (dims, axes,
// kernel sizes), so braces take any integer type. Strides count elements, not bytes.
#pragma once

#include <array>
#include <span>
#include <string>
#include <vector>

#include "tandem/base/error.h"
#include "tandem/tensor/dim.h"

namespace tandem {

inline constexpr int kMaxRank = 8;

class TD_API Shape {
 public:
  constexpr Shape() = default;
  /// From up to eight numbers or Dims: `{n, -1}` works with int, size_t, int64_t.
  template <class... D>
    requires(sizeof...(D) >= 1 && sizeof...(D) <= kMaxRank && (std::convertible_to<D, Dim> && ...))
  constexpr Shape(D... d) : dims_{Dim(d)...}, rank_(sizeof...(D)) {}
  /// From a vector or a span of any integers or Dims.
  template <std::convertible_to<Dim> D>
  Shape(const std::vector<D>& v) : Shape(std::span(v)) {}
  template <std::convertible_to<Dim> D, size_t n>
  Shape(std::span<D, n> v) {
    for (const D& d : v) push_back(d);
  }

  int rank() const { return rank_; }
  size_t size() const { return rank_; }
  bool empty() const { return rank_ == 0; }
  Dim& operator[](int i) { return dims_[i]; }
  const Dim& operator[](int i) const { return dims_[i]; }
  Dim back() const { return dims_[rank_ - 1]; }
  const Dim* begin() const { return dims_.data(); }
  const Dim* end() const { return dims_.data() + rank_; }
  Dim* begin() { return dims_.data(); }
  Dim* end() { return dims_.data() + rank_; }
  /// The numbers; meaningful only when !is_symbolic().
  const int64_t* data() const { return reinterpret_cast<const int64_t*>(dims_.data()); }
  std::span<const int64_t> values() const { return {data(), size_t(rank_)}; }
  std::vector<int64_t> to_vector() const { return {data(), data() + rank_}; }

  void push_back(Dim d) {
    TD_CHECK(rank_ < kMaxRank, Shape, "a tensor has at most {} dimensions", kMaxRank);
    dims_[rank_++] = d;
  }
  void insert(int at, Dim d) {
    push_back(d);
    for (int i = rank_ - 1; i > at; --i) std::swap(dims_[i], dims_[i - 1]);
  }
  void erase(int at) {
    for (int i = at; i + 1 < rank_; ++i) dims_[i] = dims_[i + 1];
    --rank_;
  }
  void resize(int n) {
    while (rank_ < n) push_back(1);
    rank_ = static_cast<uint8_t>(n);
  }
  bool is_symbolic() const {
    for (int i = 0; i < rank_; ++i)
      if (dims_[i].is_symbolic()) return true;
    return false;
  }
  /// Product of the dims; throws Value when it does not fit 63 bits.
  Dim numel() const;
  /// "[8, 3, 32]"
  std::string to_string() const;
  friend bool operator==(const Shape& a, const Shape& b) {
    if (a.rank_ != b.rank_) return false;
    for (int i = 0; i < a.rank_; ++i)
      if (!(a.dims_[i] == b.dims_[i])) return false;
    return true;
  }

 private:
  std::array<Dim, kMaxRank> dims_{};
  uint8_t rank_ = 0;
};

using IntList = Shape;

struct Strides {
  std::array<int64_t, kMaxRank> v{};
  int64_t& operator[](int i) { return v[i]; }
  int64_t operator[](int i) const { return v[i]; }
  const int64_t* data() const { return v.data(); }
};

/// Row-major strides.
TD_API Strides contiguous_strides(const Shape& shape);
/// NumPy's broadcast of two shapes; throws Shape naming both.
TD_API Shape broadcast_shapes(const Shape& a, const Shape& b);
/// `d` in -rank..rank-1 made non-negative; throws Index with the allowed range.
TD_API int normalize_dim(int64_t d, int rank);
/// Dims normalised, checked for repeats; an empty list means all.
TD_API IntList normalize_dims(const IntList& dims, int rank);

}  // namespace tandem
