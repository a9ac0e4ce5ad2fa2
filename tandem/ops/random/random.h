// SPDX-License-Identifier: Apache-2.0
// Random tensors. Each op takes one offset of the generator (graph/rng.h); element e of a draw is
// philox(seed, {offset, draw, e}) with e the row-major index, so results do not depend on threads
// or layout, and eager, compiled and resumed runs agree.
#pragma once

#include "tandem/graph/apply.h"
#include "tandem/graph/rng.h"

namespace tandem {

/// Uniform in [0, 1).
TD_API Tensor rand(Shape shape, DType dtype = DType::f32,
                   SourceLocation loc = SourceLocation::here());
TD_API Tensor rand_like(const Tensor& x, SourceLocation loc = SourceLocation::here());
/// Uniform in [low, high).
TD_API Tensor uniform(Shape shape, double low, double high, DType dtype = DType::f32,
                      SourceLocation loc = SourceLocation::here());
/// Standard normal.
TD_API Tensor randn(Shape shape, DType dtype = DType::f32,
                    SourceLocation loc = SourceLocation::here());
TD_API Tensor randn_like(const Tensor& x, SourceLocation loc = SourceLocation::here());
/// Normal of the given mean and standard deviation.
TD_API Tensor normal(double mean, double std, Shape shape, DType dtype = DType::f32,
                     SourceLocation loc = SourceLocation::here());
/// Integers in [low, high).
TD_API Tensor randint(int64_t low, int64_t high, Shape shape, DType dtype = DType::i64,
                      SourceLocation loc = SourceLocation::here());
TD_API Tensor randint(int64_t high, Shape shape, DType dtype = DType::i64,
                      SourceLocation loc = SourceLocation::here());
/// A permutation of 0 .. n-1 (int64).
TD_API Tensor randperm(int64_t n, SourceLocation loc = SourceLocation::here());
/// 1 with probability p[i], else 0, in p's dtype. Throws Value unless 0 <= p <= 1.
TD_API Tensor bernoulli(const Tensor& p, SourceLocation loc = SourceLocation::here());
/// Zeros and ones in x's shape and dtype, 1 with probability p.
TD_API Tensor bernoulli(const Tensor& x, double p, SourceLocation loc = SourceLocation::here());
/// Zero with probability p, else x / (1 - p); x itself when not training.
TD_API Tensor dropout(Tensor x, double p = 0.5, bool training = true,
                      SourceLocation loc = SourceLocation::here());
/// num_samples indices per row of `input` ([n] or [rows, n], weights not negative), each drawn with
/// probability weight / sum.
TD_API Tensor multinomial(const Tensor& input, int64_t num_samples, bool replacement = false,
                          SourceLocation loc = SourceLocation::here());

// ---- rows
struct RandAttrs {
  IntList shape;
  double a = 0, b = 1;  ///< low and high, or mean and standard deviation
  DType dtype = DType::f32;
  template <class V>
  void fields(V& v) {
    v("shape", shape);
    v("a", a);
    v("b", b);
    v("dtype", dtype);
  }
};
struct RandintAttrs {
  IntList shape;
  int64_t low = 0, high = 1;
  DType dtype = DType::i64;
  template <class V>
  void fields(V& v) {
    v("shape", shape);
    v("low", low);
    v("high", high);
    v("dtype", dtype);
  }
};
struct RandpermAttrs {
  int64_t n = 0;
  template <class V>
  void fields(V& v) {
    v("n", n);
  }
};
struct DropoutAttrs {
  double p = 0.5;
  template <class V>
  void fields(V& v) {
    v("p", p);
  }
};
struct MultinomialAttrs {
  int64_t num_samples = 1;
  bool replacement = false;
  template <class V>
  void fields(V& v) {
    v("num_samples", num_samples);
    v("replacement", replacement);
  }
};

namespace op {
extern TD_API const OpDef rand, randn, randint, randperm, bernoulli, dropout, dropout_backward,
    multinomial;
}  // namespace op

/// The rows of this family.
TD_API std::span<const OpDef* const> random_rows();

}  // namespace tandem
