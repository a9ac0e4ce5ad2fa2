// SPDX-License-Identifier: Apache-2.0
// A library of the system that is opened when it is first needed. It is never closed. Not
// installed.
#pragma once

#include <dlfcn.h>

namespace tandem::io {

class SharedLibrary {
 public:
  /// `file` as the loader finds it: "libtiff.so.6". Nothing is thrown where it is missing.
  explicit SharedLibrary(const char* file) : handle_(::dlopen(file, RTLD_NOW | RTLD_LOCAL)) {}
  /// Sets `to` to the function of that name, or to nullptr.
  template <class F>
  void find(const char* name, F*& to) {
    to = handle_ ? reinterpret_cast<F*>(::dlsym(handle_, name)) : nullptr;
    whole_ = whole_ && to;
  }
  /// Is the library there, with every function that was asked for?
  bool whole() const { return whole_; }

 private:
  void* handle_;
  bool whole_ = handle_ != nullptr;
};

}  // namespace tandem::io
