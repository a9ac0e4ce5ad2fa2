// SPDX-License-Identifier: Apache-2.0
// Rows of channels-last activations as f32 for kernels that compute in f32: f32 where it lies,
// 16-bit ones a row at a time, so that no widened copy of the whole goes through memory.
#pragma once

#include <algorithm>
#include <memory>
#include <vector>

#include "tandem/codegen/tile_kernels.h"

namespace tandem::detail {

/// Rows that one thread reads. A row stays valid until `keep` others have been asked for.
class WideRows {
 public:
  /// Rows of `width` elements at `data`.
  WideRows(const void* data, DType dtype, int64_t width, int keep)
      : data_(static_cast<const char*>(data)), width_(width) {
    if (dtype == DType::f32) return;
    load_ = codegen::tiles().load[static_cast<int>(dtype)];
    kept_.resize(static_cast<size_t>(keep));
    rows_ = std::make_unique<float[]>(static_cast<size_t>(keep * width));
  }

  const float* at(int64_t row) {
    if (!load_) return reinterpret_cast<const float*>(data_) + row * width_;
    ++now_;
    size_t oldest = 0;
    for (size_t i = 0; i < kept_.size(); ++i) {
      if (kept_[i].row == row) {
        kept_[i].used = now_;
        return buffer(i);
      }
      if (kept_[i].used < kept_[oldest].used) oldest = i;
    }
    kept_[oldest] = {row, now_};
    load_(buffer(oldest), data_ + row * width_ * 2, nullptr, nullptr, nullptr, width_);
    return buffer(oldest);
  }

 private:
  struct Kept {
    int64_t row = -1, used = 0;
  };
  float* buffer(size_t i) { return rows_.get() + static_cast<int64_t>(i) * width_; }

  const char* data_;
  int64_t width_, now_ = 0;
  codegen::TileFn load_ = nullptr;
  std::vector<Kept> kept_;
  std::unique_ptr<float[]> rows_;
};

/// Rows that one thread writes, each as a whole.
class NarrowRows {
 public:
  NarrowRows(void* data, DType dtype, int64_t width)
      : data_(static_cast<char*>(data)), width_(width) {
    if (dtype == DType::f32) return;
    store_ = codegen::tiles().store[static_cast<int>(dtype)];
    row_ = std::make_unique<float[]>(static_cast<size_t>(width));
  }

  /// Where the row is computed; done() then puts it in its place.
  float* begin(int64_t row) {
    return store_ ? row_.get() : reinterpret_cast<float*>(data_) + row * width_;
  }
  void done(int64_t row) {
    if (store_) store_(data_ + row * width_ * 2, row_.get(), nullptr, nullptr, nullptr, width_);
  }

 private:
  char* data_;
  int64_t width_;
  codegen::TileFn store_ = nullptr;
  std::unique_ptr<float[]> row_;
};

}  // namespace tandem::detail
