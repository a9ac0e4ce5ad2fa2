// SPDX-License-Identifier: Apache-2.0
// Copies between strided layouts: the core of copy, cat, pad, flip and of the derivatives of views.
// Rows by memcpy, transposes in tiles, large ones on several threads. Not installed.
#pragma once

#include "tandem/graph/kernel.h"

namespace tandem::detail {

/// dst[i] = src[i] for every index of `shape`, with elements of `size` bytes. Strides count
/// elements and may be negative or (for src) zero. The two must not overlap.
void strided_copy(void* dst, const int64_t* dst_strides, const void* src,
                  const int64_t* src_strides, const int64_t* shape, int rank, size_t size);

/// Copy all elements of `src` to `dst`, which has the same shape and dtype.
void copy_array(const Array& dst, const Array& src);

/// Set all elements of a dense array to zero bytes.
void zero_array(const Array& a);
/// Set all elements to `value`.
void fill_array(const Array& a, Scalar value);

/// Does what the functions above do on a device whose memory the host may not touch.
class Mover {
 public:
  /// As strided_copy().
  virtual void copy(void* dst, const int64_t* dst_strides, const void* src,
                    const int64_t* src_strides, const int64_t* shape, int rank, size_t size) = 0;
  virtual void fill(const Array& a, Scalar value) = 0;

 protected:
  ~Mover() = default;
};
/// While it lives, calls of the functions above by this thread go to `mover`: a backend runs the
/// references of the rows with kMoved under it and needs no kernels for each.
class MoverGuard {
 public:
  explicit MoverGuard(Mover& mover);
  ~MoverGuard();
  MoverGuard(const MoverGuard&) = delete;
  MoverGuard& operator=(const MoverGuard&) = delete;

 private:
  Mover* old_;
};

}  // namespace tandem::detail
