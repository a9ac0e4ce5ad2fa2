// SPDX-License-Identifier: Apache-2.0
// ValueId and InstrId: numbers of a Program's values and instructions that cannot be mixed up, and
// PerId, a vector with one element for each of them.
#pragma once

#include <compare>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <utility>
#include <vector>

namespace tandem::compiler {

/// "None of them": compares equal to an id that stands for nothing; -1 among plain numbers.
struct None {
  constexpr operator int() const { return -1; }
};
inline constexpr None kNone;

template <class Tag>
class Id {
 public:
  constexpr Id() = default;
  constexpr Id(None) {}
  constexpr explicit Id(int number) : number_(number) {}
  constexpr explicit Id(size_t number) : number_(static_cast<int32_t>(number)) {}

  constexpr int number() const { return number_; }
  constexpr size_t index() const { return static_cast<size_t>(number_); }
  constexpr Id& operator++() { return ++number_, *this; }
  friend constexpr bool operator==(Id, Id) = default;
  friend constexpr std::strong_ordering operator<=>(Id, Id) = default;

 private:
  int32_t number_ = -1;
};

using ValueId = Id<struct ValueTag>;
using InstrId = Id<struct InstrTag>;  ///< where an instruction stands: a later one is greater

/// "%3", or "-" for none.
inline std::string to_string(ValueId v) {
  return v == kNone ? std::string("-") : "%" + std::to_string(v.number());
}

/// Ids in order, or backwards.
template <class I, int step>
class IdRange {
 public:
  struct Iterator {
    I at;
    constexpr I operator*() const { return at; }
    constexpr Iterator& operator++() { return at = I(at.number() + step), *this; }
    friend constexpr bool operator==(Iterator, Iterator) = default;
  };
  constexpr IdRange(I begin, I end) : begin_{begin}, end_{end} {}
  constexpr Iterator begin() const { return begin_; }
  constexpr Iterator end() const { return end_; }

 private:
  Iterator begin_, end_;
};

/// A vector that is indexed by ids and nothing else.
template <class I, class T>
class PerId {
 public:
  PerId() = default;
  explicit PerId(size_t n) : all_(n) {}
  PerId(size_t n, const T& each) : all_(n, each) {}

  T& operator[](I id) { return all_[id.index()]; }
  const T& operator[](I id) const { return all_[id.index()]; }
  size_t size() const { return all_.size(); }
  bool empty() const { return all_.empty(); }
  I push_back(T x) {
    all_.push_back(std::move(x));
    return I(all_.size() - 1);
  }
  void resize(size_t n, const T& each = T()) { all_.resize(n, each); }
  void assign(size_t n, const T& each) { all_.assign(n, each); }
  void reserve(size_t n) { all_.reserve(n); }
  void clear() { all_.clear(); }
  T& back() { return all_.back(); }
  auto begin() { return all_.begin(); }
  auto end() { return all_.end(); }
  auto begin() const { return all_.begin(); }
  auto end() const { return all_.end(); }
  IdRange<I, 1> ids() const { return {I(0), I(all_.size())}; }
  IdRange<I, -1> backwards() const { return {I(static_cast<int>(all_.size()) - 1), I(-1)}; }
  const std::vector<T>& vector() const { return all_; }
  friend bool operator==(const PerId&, const PerId&) = default;

 private:
  std::vector<T> all_;
};

template <class T>
using PerValue = PerId<ValueId, T>;
template <class T>
using PerInstr = PerId<InstrId, T>;

}  // namespace tandem::compiler

template <class Tag>
struct std::hash<tandem::compiler::Id<Tag>> {
  size_t operator()(tandem::compiler::Id<Tag> id) const noexcept { return id.index(); }
};
