// SPDX-License-Identifier: Apache-2.0
// One object per thread, made at first use. In the thread's own block lies a pointer alone: that
// block is small where the library is opened at run time. Used for tables of recent plans.
#pragma once

namespace tandem::detail {

/// This thread's T, default-constructed at the first call and destroyed when the thread ends.
template <class T>
class PerThread {
 public:
  static T& get() {
    T* p = here_;
    return p ? *p : make();
  }

 private:
  struct Owner {
    ~Owner() {
      delete here_;
      here_ = nullptr;
    }
  };

  [[gnu::noinline]] static T& make() {
    // A thread that asks again while it ends gets one that nobody destroys.
    static thread_local Owner owner;
    (void)owner;
    here_ = new T;
    return *here_;
  }

  static inline constinit thread_local T* here_ = nullptr;
};

}  // namespace tandem::detail
