// SPDX-License-Identifier: Apache-2.0
// Random programs over tensors: views and layouts, sums of gradients that arrive by several ways,
// branches that need no gradient, reductions, loops and conditions, in f32, f64 and bf16, with
// sizes from 0 on. A program is a function of its seed alone: every call does the same, so that a
// traced and an eager run can be compared to the bit.
#pragma once

#include <random>
#include <string>
#include <vector>

#include "tandem/tandem.h"

namespace tandem::test {

class RandomProgram {
 public:
  explicit RandomProgram(uint64_t seed);

  /// The arguments.
  std::vector<Tensor> inputs() const;
  /// What it computes; `text` then tells how.
  std::vector<Tensor> run(std::span<const Tensor> x);
  /// The gradients of a weighted sum of it by all floating arguments, and the sum.
  std::vector<Tensor> gradients(std::span<const Tensor> x);

  std::string text;  ///< of the latest run

 private:
  // ---- draws
  int64_t below(int64_t n) { return static_cast<int64_t>(rng_() % static_cast<uint64_t>(n)); }
  bool one_in(int64_t n) { return below(n) == 0; }
  DType draw_type();
  int64_t draw_size();
  Shape draw_shape(int most_dims);
  int64_t draw_dim(const Tensor& x) { return below(std::max(x.dim(), 1)); }
  /// A value made so far; of a floating dtype.
  const Tensor& pick() {
    return pool_[static_cast<size_t>(below(static_cast<int64_t>(pool_.size())))];
  }
  /// One of this rank at least and with elements in every dimension.
  Tensor pick_full(int rank);
  /// One of the shape and dtype: truncated or repeated from another.
  Tensor pick_like(const Shape& shape, DType dtype);

  // ---- steps: each makes a value from values made before
  using Step = Tensor (RandomProgram::*)();
  Tensor any_step();
  Tensor view();
  Tensor rearranged();
  Tensor joined();
  Tensor unary();
  Tensor binary();
  Tensor broadcast();
  Tensor reduction();
  Tensor running();
  Tensor row_wise();
  Tensor indexed();
  Tensor put_back();
  Tensor product();
  Tensor window();
  Tensor without_gradient();
  Tensor cast();
  Tensor noise();
  Tensor scanned();
  Tensor branched();
  Tensor looped();
  Tensor mapped();

  void say(std::string_view what) { (text += what) += "; "; }
  static Tensor bounded(const Tensor& t) { return t / (abs(t) + 1.0); }

  uint64_t seed_;
  std::mt19937_64 rng_;
  DType dtype_ = DType::f32;  ///< that most values have
  int depth_ = 0;             ///< of loops
  std::vector<Tensor> pool_;
};

}  // namespace tandem::test
