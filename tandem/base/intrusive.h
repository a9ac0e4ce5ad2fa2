// SPDX-License-Identifier: Apache-2.0
// Ref<T>: an intrusive pointer. T provides members `void add_ref()` and `void drop_ref()`;
// RefCounted adds both to a class with a virtual destructor. A count of one is dropped without an
// atomic write: nobody else can hold a reference.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <utility>

namespace tandem {

/// An atomic count; dropping the last reference needs no locked instruction.
class RefCount {
 public:
  explicit constexpr RefCount(uint32_t n = 1) : n_(n) {}
  void add() { n_.fetch_add(1, std::memory_order_relaxed); }
  /// True when this was the last reference.
  bool drop() {
    if (n_.load(std::memory_order_acquire) == 1) return true;
    return n_.fetch_sub(1, std::memory_order_acq_rel) == 1;
  }
  bool unique() const { return n_.load(std::memory_order_acquire) == 1; }
  uint32_t value() const { return n_.load(std::memory_order_relaxed); }
  void set(uint32_t n) { n_.store(n, std::memory_order_relaxed); }

 private:
  std::atomic<uint32_t> n_;
};

template <class T>
class Ref {
 public:
  constexpr Ref() = default;
  constexpr Ref(std::nullptr_t) {}
  Ref(const Ref& o) : p_(o.p_) {
    if (p_) p_->add_ref();
  }
  Ref(Ref&& o) noexcept : p_(o.p_) { o.p_ = nullptr; }
  template <class U>
  Ref(const Ref<U>& o) : p_(o.get()) {
    if (p_) p_->add_ref();
  }
  ~Ref() {
    if (p_) p_->drop_ref();
  }
  Ref& operator=(const Ref& o) {
    Ref(o).swap(*this);
    return *this;
  }
  Ref& operator=(Ref&& o) noexcept {
    Ref(std::move(o)).swap(*this);
    return *this;
  }
  void swap(Ref& o) noexcept { std::swap(p_, o.p_); }
  void reset() { Ref().swap(*this); }

  /// Take over a reference that the caller has already counted.
  static Ref adopt(T* p) {
    Ref r;
    r.p_ = p;
    return r;
  }
  /// Share `p`: adds one to its count.
  static Ref share(T* p) {
    if (p) p->add_ref();
    return adopt(p);
  }
  /// Give the reference away without dropping it.
  T* release() { return std::exchange(p_, nullptr); }

  T* get() const { return p_; }
  T* operator->() const { return p_; }
  T& operator*() const { return *p_; }
  explicit operator bool() const { return p_ != nullptr; }
  friend bool operator==(const Ref& a, const Ref& b) { return a.p_ == b.p_; }

 private:
  T* p_ = nullptr;
};

/// Base of counted objects that are created by `make_ref` and deleted through a virtual destructor.
class RefCounted {
 public:
  RefCounted() = default;
  RefCounted(const RefCounted&) = delete;
  RefCounted& operator=(const RefCounted&) = delete;
  virtual ~RefCounted() = default;
  void add_ref() { count_.add(); }
  void drop_ref() {
    if (count_.drop()) delete this;
  }
  bool unique() const { return count_.unique(); }

 private:
  RefCount count_;
};

template <class T, class... A>
Ref<T> make_ref(A&&... args) {
  return Ref<T>::adopt(new T(std::forward<A>(args)...));
}

}  // namespace tandem
