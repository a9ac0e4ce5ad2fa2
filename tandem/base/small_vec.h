// SPDX-License-Identifier: Apache-2.0
// SmallVec<T, N>: a vector whose first N elements live inside it. For the short lists of the hot
// path (inputs of an op, dims); grows to the heap beyond N.
#pragma once

#include <cstddef>
#include <initializer_list>
#include <memory>
#include <new>
#include <span>
#include <utility>

namespace tandem {

template <class T, size_t N>
class SmallVec {
 public:
  using value_type = T;
  SmallVec() = default;
  explicit SmallVec(size_t n) { resize(n); }
  SmallVec(size_t n, const T& v) {
    reserve(n);
    for (size_t i = 0; i < n; ++i) push_back(v);
  }
  SmallVec(std::initializer_list<T> xs) { append(xs.begin(), xs.end()); }
  template <class It>
  SmallVec(It first, It last) {
    append(first, last);
  }
  SmallVec(const SmallVec& o) { append(o.begin(), o.end()); }
  SmallVec(SmallVec&& o) noexcept { take(o); }
  ~SmallVec() {
    clear();
    free_heap();
  }
  SmallVec& operator=(const SmallVec& o) {
    if (this != &o) {
      clear();
      append(o.begin(), o.end());
    }
    return *this;
  }
  SmallVec& operator=(SmallVec&& o) noexcept {
    if (this != &o) {
      clear();
      free_heap();
      take(o);
    }
    return *this;
  }

  T* data() { return data_; }
  const T* data() const { return data_; }
  size_t size() const { return size_; }
  bool empty() const { return size_ == 0; }
  T* begin() { return data_; }
  T* end() { return data_ + size_; }
  const T* begin() const { return data_; }
  const T* end() const { return data_ + size_; }
  T& operator[](size_t i) { return data_[i]; }
  const T& operator[](size_t i) const { return data_[i]; }
  T& front() { return data_[0]; }
  const T& front() const { return data_[0]; }
  T& back() { return data_[size_ - 1]; }
  const T& back() const { return data_[size_ - 1]; }

  void reserve(size_t n) {
    if (n > capacity_) grow(n);
  }
  void push_back(T v) {
    if (size_ == capacity_) grow(capacity_ * 2);
    ::new (static_cast<void*>(data_ + size_)) T(std::move(v));
    ++size_;
  }
  template <class... A>
  T& emplace_back(A&&... a) {
    if (size_ == capacity_) grow(capacity_ * 2);
    ::new (static_cast<void*>(data_ + size_)) T(std::forward<A>(a)...);
    return data_[size_++];
  }
  void pop_back() { std::destroy_at(data_ + --size_); }
  void resize(size_t n) {
    reserve(n);
    while (size_ > n) pop_back();
    while (size_ < n) emplace_back();
  }
  void clear() {
    std::destroy_n(data_, size_);
    size_ = 0;
  }
  template <class It>
  void append(It first, It last) {
    for (; first != last; ++first) push_back(*first);
  }
  void insert_at(size_t i, T v) {
    push_back(std::move(v));
    for (size_t k = size_ - 1; k > i; --k) std::swap(data_[k], data_[k - 1]);
  }
  void erase_at(size_t i) {
    for (size_t k = i; k + 1 < size_; ++k) data_[k] = std::move(data_[k + 1]);
    pop_back();
  }
  operator std::span<const T>() const { return {data_, size_}; }
  operator std::span<T>() { return {data_, size_}; }
  friend bool operator==(const SmallVec& a, const SmallVec& b) {
    if (a.size_ != b.size_) return false;
    for (size_t i = 0; i < a.size_; ++i)
      if (!(a.data_[i] == b.data_[i])) return false;
    return true;
  }

 private:
  T* inline_data() { return std::launder(reinterpret_cast<T*>(inline_)); }
  bool on_heap() const {
    return static_cast<const void*>(data_) != static_cast<const void*>(inline_);
  }
  void free_heap() {
    if (on_heap()) ::operator delete(static_cast<void*>(data_), std::align_val_t(alignof(T)));
    data_ = inline_data();
    capacity_ = N;
  }
  void grow(size_t n) {
    if (n < 4) n = 4;
    T* fresh = static_cast<T*>(::operator new(n * sizeof(T), std::align_val_t(alignof(T))));
    for (size_t i = 0; i < size_; ++i) {
      ::new (static_cast<void*>(fresh + i)) T(std::move(data_[i]));
      std::destroy_at(data_ + i);
    }
    if (on_heap()) ::operator delete(static_cast<void*>(data_), std::align_val_t(alignof(T)));
    data_ = fresh;
    capacity_ = n;
  }
  void take(SmallVec& o) {
    if (o.on_heap()) {
      data_ = std::exchange(o.data_, o.inline_data());
      size_ = std::exchange(o.size_, 0);
      capacity_ = std::exchange(o.capacity_, N);
      return;
    }
    for (T& v : o) push_back(std::move(v));
    o.clear();
  }

  alignas(T) unsigned char inline_[N * sizeof(T)];
  T* data_ = std::launder(reinterpret_cast<T*>(inline_));
  size_t size_ = 0, capacity_ = N;
};

}  // namespace tandem
