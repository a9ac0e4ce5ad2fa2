// SPDX-License-Identifier: Apache-2.0
// One object per thread, created at first use. The thread-local block holds only a pointer, since
// that block is small when the library is opened at run time. Used for tables of recent plans.
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
    // If a thread asks again during its exit, it gets an object that is never destroyed.
    static thread_local Owner owner;
    (void)owner;
    here_ = new T;
    return *here_;
  }

  static inline constinit thread_local T* here_ = nullptr;
};

}  // namespace tandem::detail
