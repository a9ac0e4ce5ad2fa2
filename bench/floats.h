// SPDX-License-Identifier: Apache-2.0
// Arrays of floats for the benchmarks of loops (tile_bench, fused_bench).
#pragma once

#include <array>
#include <vector>

#include "tandem/graph/kernel.h"
#include "tandem/ops/ops.h"

namespace tandem::bench {

/// A dense array at the beginning of a cache line, filled with numbers between -2 and 1.6.
struct Floats {
  std::vector<float> memory;
  std::vector<int64_t> shape, strides;
  Array array;
  explicit Floats(std::vector<int64_t> s) : shape(std::move(s)), strides(shape.size()) {
    int64_t n = 1;
    for (size_t d = shape.size(); d-- > 0;) {
      strides[d] = n;
      n *= shape[d];
    }
    memory.resize(static_cast<size_t>(n) + 16);
    for (size_t i = 0; i < memory.size(); ++i) memory[i] = static_cast<float>(i % 37) * 0.1f - 2;
    const auto at = reinterpret_cast<uintptr_t>(memory.data());
    array.data = reinterpret_cast<void*>((at + 63) / 64 * 64);
    array.shape = shape.data();
    array.strides = strides.data();
    array.rank = static_cast<uint8_t>(shape.size());
    array.numel = n;
    array.contiguous = true;
  }
  Floats(Floats&&) = default;
};

/// A step of AdamW in place: p, g, m, v and seven numbers to p, m, v.
class AdamW {
 public:
  explicit AdamW(const std::array<Array, 4>& state) : in_(state.begin(), state.end()) {
    for (double number : {1e-3, 0.9, 0.999, 1e-8, 0.01, 0.1, 0.001}) {
      in_.emplace_back();
      in_.back().is_scalar = true;
      in_.back().scalar = Scalar(number);
    }
    out_ = {in_[0], in_[2], in_[3]};
    call_.in = in_.data();
    call_.n_in = static_cast<int>(in_.size());
    call_.out = out_.data();
    call_.n_out = static_cast<int>(out_.size());
  }
  AdamW(const AdamW&) = delete;
  AdamW& operator=(const AdamW&) = delete;
  const KernelCall& call() const { return call_; }

 private:
  std::vector<Array> in_;
  std::array<Array, 3> out_;
  KernelCall call_{op::adamw_update};
};

}  // namespace tandem::bench
