// SPDX-License-Identifier: Apache-2.0
// Runs an op through the dispatcher (its CPU kernel) and through its row's reference, and compares.
#pragma once

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <string>
#include <vector>

#include "tandem/backend/cpu/registry_internal.h"
#include "tandem/base/parallel.h"
#include "tandem/graph/apply.h"
#include "tandem/init.h"
#include "tandem/ops/ops.h"

namespace tandem::cpu_test {

using Tensors = std::vector<Tensor>;

/// All outputs of the op, including hidden ones; undefined inputs are absent ones.
inline Tensors run_op(const OpDef& op, const void* attrs, const Tensors& in) {
  std::vector<Operand> ins(in.begin(), in.end());
  Tensor out[kMaxOpOuts];
  ApplyOptions options;
  options.hidden = true;
  NoGradGuard no_grad;
  apply(op, attrs, ins, out, SourceLocation::here(), options);
  return Tensors(out, out + op.n_out);
}

/// The meaning of a composite row: its body, every op of which runs as usual.
inline Tensors run_body(const OpDef& op, const void* attrs, const Tensors& in) {
  NoGradGuard no_grad;
  std::vector<Scalar> scalars(in.size());
  BodyCall b{op, attrs, in, scalars, {}, true};
  op.body_fn(b);
  return Tensors(b.out, b.out + op.n_out);
}

/// The same from the reference, into row-major arrays, or from the body.
inline Tensors run_reference(const OpDef& op, const void* attrs, const Tensors& in,
                             const Tensors& like) {
  if (!op.reference_fn) return run_body(op, attrs, in);
  std::vector<Array> arrays;
  for (const Tensor& t : in) arrays.push_back(t.defined() ? array_of(t) : Array());
  Tensors out;
  Array outs[kMaxOpOuts];
  for (size_t i = 0; i < like.size(); ++i) {
    out.push_back(zeros(like[i].shape(), like[i].dtype()));
    outs[i] = array_of(out.back());
  }
  ErrorWord error;
  KernelCall call{op,   attrs,    arrays.data(), static_cast<int>(arrays.size()),
                  outs, op.n_out, &error};
  op.reference_fn(call);
  EXPECT_EQ(error.code.load(), 0);
  return out;
}

inline double tolerance(DType t) {
  switch (t) {
    case DType::f64:
      return 1e-12;
    case DType::f32:
      return 1e-5;
    case DType::f16:
      return 2e-3;
    case DType::bf16:
      return 1.6e-2;
    default:
      return 0;
  }
}

/// Largest difference relative to the largest element.
inline void expect_close(const Tensor& got, const Tensor& want, double tol,
                         const std::string& what) {
  ASSERT_EQ(got.shape().to_string(), want.shape().to_string()) << what;
  std::vector<double> a = got.to_vector<double>(), b = want.to_vector<double>();
  double scale = 1, worst = 0;
  for (double v : b)
    if (std::isfinite(v)) scale = std::max(scale, std::fabs(v));
  for (size_t i = 0; i < a.size(); ++i) {
    if (std::isnan(a[i]) || std::isnan(b[i])) {
      ASSERT_EQ(std::isnan(a[i]), std::isnan(b[i])) << what << " element " << i;
      continue;
    }
    if (a[i] != b[i]) worst = std::max(worst, std::fabs(a[i] - b[i]));
  }
  EXPECT_LE(worst, tol * scale) << what;
}

inline void expect_same_bits(const Tensor& got, const Tensor& want, const std::string& what) {
  ASSERT_EQ(got.shape().to_string(), want.shape().to_string()) << what;
  Tensor a = got.contiguous(), b = want.contiguous();
  const size_t bytes = static_cast<size_t>(a.impl()->numel) * size_of(a.dtype());
  EXPECT_EQ(bytes ? std::memcmp(a.impl()->data, b.impl()->data, bytes) : 0, 0) << what;
}

struct Threads {
  explicit Threads(int n) { set_num_threads(n); }
  ~Threads() { set_num_threads(0); }
};

/// Whether a kernel (not the reference) runs this call.
inline bool has_kernel(const OpDef& op, const void* attrs, const Tensors& in, const Tensors& out) {
  std::vector<Array> arrays;
  for (const Tensor& t : in) arrays.push_back(t.defined() ? array_of(t) : Array());
  Array outs[kMaxOpOuts];
  for (size_t i = 0; i < out.size(); ++i) outs[i] = array_of(out[i]);
  KernelCall call{op, attrs, arrays.data(), static_cast<int>(arrays.size()), outs, op.n_out};
  return find_kernel(call, DeviceKind::cpu) != nullptr;
}

/// Kernel against reference, and equal bits at 1, 2, 3 and 8 threads.
inline void check(const OpDef& op, const void* attrs, const Tensors& in, const std::string& what,
                  bool kernel = true, double tol = -1) {
  Tensors want, first;
  for (int threads : {1, 2, 3, 8}) {
    Threads t(threads);
    Tensors got = run_op(op, attrs, in);
    if (threads == 1) {
      if (kernel) {
        EXPECT_TRUE(has_kernel(op, attrs, in, got)) << what;
      }
      want = run_reference(op, attrs, in, got);
      first = got;
      for (size_t i = 0; i < got.size(); ++i)
        expect_close(got[i], want[i], tol < 0 ? tolerance(in[0].dtype()) : tol,
                     what + " output " + std::to_string(i));
    } else {
      for (size_t i = 0; i < got.size(); ++i)
        expect_same_bits(
            got[i], first[i],
            what + " output " + std::to_string(i) + " threads " + std::to_string(threads));
    }
  }
}

inline Tensor random(const Shape& s, DType t = DType::f32) { return randn(s).to(t); }

/// The same values with other strides.
inline Tensor channels_last(const Tensor& x) {
  IntList to{0}, back{0, x.dim() - 1};
  for (int i = 2; i < x.dim(); ++i) to.push_back(i);
  to.push_back(1);
  for (int i = 2; i < x.dim(); ++i) back.push_back(i - 1);
  return x.permute(to).contiguous().permute(back);
}
/// The last two dimensions swapped in memory.
inline Tensor swapped(const Tensor& x) {
  return x.transpose(-2, -1).contiguous().transpose(-2, -1);
}
/// Every second element of rows twice as long.
inline Tensor gapped(const Tensor& x) {
  Tensor wide = stack(std::vector<Tensor>{x, x}, -1);
  return wide.select(-1, 0);
}

}  // namespace tandem::cpu_test
