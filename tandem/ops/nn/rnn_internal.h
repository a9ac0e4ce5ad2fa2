// SPDX-License-Identifier: Apache-2.0
// Shared by the recurrent rows (rnn.cpp, gru.cpp): shape checks, the order of steps, the states
// before each step. Not installed.
#pragma once

#include "tandem/ops/matmul/matmul.h"
#include "tandem/ops/rule_internal.h"
#include "tandem/ops/view/create.h"
#include "tandem/ops/view/view.h"

namespace tandem::detail {

inline void want_shape(const InferCall& c, int i, const char* name, const Shape& want) {
  if (!c.has(i)) return;
  const Spec& s = c.in[i];
  bool same = s.rank() == want.rank();
  for (int k = 0; same && k < want.rank(); ++k) same = dims_equal(s[k], want[k]);
  TD_CHECK(same, Shape, "{} is {}, expected {}", name, s.shape.to_string(), want.to_string());
}

inline void check_weight_dtypes(const InferCall& c) {
  for (int i = 1; i < c.n_in(); ++i)
    TD_CHECK(!c.has(i) || c.in[i].dtype == c.in[0].dtype, DType,
             "x is {}, {} is {}\nCast one of them with .to().", to_string(c.in[0].dtype),
             c.op.in_names[i], to_string(c.in[i].dtype));
  TD_CHECK(is_floating(c.in[0].dtype), DType, "x is {}, expected a floating dtype",
           to_string(c.in[0].dtype));
}

inline int64_t step_at(int64_t k, int64_t steps, bool reverse) {
  return reverse ? steps - 1 - k : k;
}

inline Tensor plus(Tensor a, Tensor b) {
  return !a.defined() ? b : !b.defined() ? a : std::move(a) + std::move(b);
}
inline Tensor at_step(const Tensor& t, int64_t k) { return t.defined() ? t.select(0, k) : t; }

inline Tensor flat_rows(const Tensor& t, SourceLocation loc) {
  return t.reshape({t.shape(0) * t.shape(1), t.shape(2)}, loc);
}

// h before each step, [t, n, h].
inline Tensor states_before(const Tensor& y, const Tensor& h0, bool reverse, SourceLocation loc) {
  Tensor first = h0.unsqueeze(0, loc);
  Dim rest = y.shape(0) - 1;
  if (rest == Dim(0)) return first;
  return reverse ? cat({narrow(y, 0, 1, rest, loc), first}, 0, loc)
                 : cat({first, narrow(y, 0, 0, rest, loc)}, 0, loc);
}

// Replaces an absent state by zeros.
inline Tensor state_or_zeros(Tensor h, const Tensor& x, Dim hidden, int batch_dim,
                             SourceLocation loc) {
  const DeviceGuard there(x.device());
  return h.defined() ? h : zeros({x.shape(batch_dim), hidden}, x.dtype(), loc);
}

inline void check_sequence(const Tensor& x, const Tensor& w_hh) {
  TD_CHECK(x.defined() && w_hh.defined(), Value, "x or w_hh is an undefined tensor");
  TD_CHECK(x.dim() == 3, Shape, "x is {}, expected [steps, n, features]", x.shape().to_string());
  TD_CHECK(x.shape(0).is_symbolic() || x.size(0) > 0, Shape, "x is {}: a sequence without steps",
           x.shape().to_string());
  TD_CHECK(w_hh.dim() == 2, Shape, "w_hh is {}, expected a matrix", w_hh.shape().to_string());
}

}  // namespace tandem::detail
