// SPDX-License-Identifier: Apache-2.0
// Initial values that are made when they are needed: a net that is too large for one process is
// built as shapes and recipes, and each rank computes what it keeps.
#pragma once

#include <utility>

#include "tandem/graph/context.h"

namespace tandem {

/// Extends SlowFlags.
inline constexpr uint32_t kDeferred = 512;

/// While it lives, ops of this thread that make large tensors from nothing (zeros, random numbers),
/// and from such tensors, record what would give the value instead of computing it; a parameter
/// made of one has a shape and a dtype, and no elements. Random numbers keep their places, so that
/// the value has the bits that it would have had. It is computed when somebody reads its elements,
/// or an op outside takes it; small tensors, and those from data, are computed at once. Gradients
/// are off inside. With false, everything is computed at once while it lives.
class TD_API DeferredInitGuard {
 public:
  explicit DeferredInitGuard(bool on = true);
  ~DeferredInitGuard();
  DeferredInitGuard(const DeferredInitGuard&) = delete;
  DeferredInitGuard& operator=(const DeferredInitGuard&) = delete;

 private:
  uint32_t old_;
  bool old_grad_;
};

/// `Net net = deferred_init([] { return Net(sizes); });`: what `make` gives, made under the guard.
template <class Make>
auto deferred_init(Make&& make) {
  const DeferredInitGuard later;
  return std::forward<Make>(make)();
}

namespace detail {
/// Does it have a recipe instead of elements?
TD_API bool is_deferred(const Tensor& t);
/// The value, computed at each call, where it is deferred; else itself. Does not change `t`.
TD_API Tensor computed(const Tensor& t);
}  // namespace detail

}  // namespace tandem
