// SPDX-License-Identifier: Apache-2.0
// One row per op: inputs of the row driver (rows_test.cpp). A new op adds one line here.
//
// Shapes: "n,3" - `n` is 5 and is replaced by 0 and 1 in the size tests; "" is 0-d.
// Domains: any (mixed signs, no ties), pos, unit (-0.9..0.9), prob (0.05..0.95), gt1, big, int:K
// (i64 0..K-1), ints (i64 -7..7), posint, bool, num:V (a number), - (absent).
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "tandem/graph/op_def.h"
#include "tandem/tandem.h"

namespace tandem::rows {

struct In {
  std::string shape;
  std::string domain = "any";
};

struct Row {
  std::string op;
  std::vector<In> in;
  std::function<AttrsHolder()> attrs = [] { return AttrsHolder(); };
  int order = 2;            ///< gradcheck to this order; 0: no gradient check
  double tolerance = 2e-5;  ///< of f32 against the f64 reference, relative to the largest value
  bool sizes = true;        ///< size 0 and 1 variants of `n` make sense
  bool vmap = true;
  std::string note = "";    ///< why something is off
};

template <class A>
std::function<AttrsHolder()> with(A a) {
  return [a] { return AttrsHolder(fields<A>(), &a); };
}

/// Domain of a pointwise row's tensor inputs where `any` is not right.
inline std::string pointwise_domain(const std::string& op) {
  static const std::vector<std::pair<std::string, std::string>> kDomains = {
      {"log", "pos"},     {"log2", "pos"},      {"log10", "pos"},   {"log1p", "pos"},
      {"sqrt", "pos"},    {"rsqrt", "pos"},     {"asin", "unit"},   {"acos", "unit"},
      {"atanh", "unit"},  {"erfinv", "unit"},   {"acosh", "gt1"},   {"logit", "prob"},
      {"lgamma", "pos"},  {"digamma", "pos"},   {"pow", "pos"},     {"xlogy", "pos"},
      {"xlog1py", "pos"}, {"entr", "pos"},      {"polygamma", "pos"}};
  for (const auto& [name, domain] : kDomains)
    if (name == op) return domain;
  return "any";
}

inline std::vector<Row> table() {
  ConvAttrs conv2;
  conv2.stride = {1, 1};
  conv2.padding = {1, 1};
  conv2.dilation = {1, 1};
  conv2.padding_end = {1, 1};
  ConvAttrs conv_in = conv2, conv_w = conv2;
  conv_in.size = {5, 5};
  conv_w.size = {3, 3};
  PoolAttrs pool;
  pool.kernel = {2, 2};
  pool.stride = {2, 2};
  pool.padding = {0, 0};
  pool.dilation = {1, 1};
  pool.output = {3, 2};
  pool.size = {6, 4};
  ReduceAttrs dim1;
  dim1.dims = {1};
  return {
      // ---- reductions and scans
      {"sum", {{"n,7"}}, with(dim1)},
      {"mean", {{"n,7"}}, with(dim1)},
      {"prod", {{"n,4", "unit"}}, with(dim1)},
      {"amax", {{"n,7"}}, with(dim1)},
      {"amin", {{"n,7"}}, with(dim1)},
      {"argmax", {{"n,7"}}, with(dim1), 0},
      {"argmin", {{"n,7"}}, with(dim1), 0},
      {"any", {{"n,7", "bool"}}, with(dim1), 0},
      {"all", {{"n,7", "bool"}}, with(dim1), 0},
      {"logsumexp", {{"n,7"}}, with(dim1)},
      // ---- contractions
      {"matmul", {{"n,4"}, {"4,3"}}, with(MatmulAttrs{})},
      {"matmul", {{"2,n,4"}, {"2,3,4"}}, with(MatmulAttrs{false, true})},
      {"linear", {{"n,4"}, {"3,4"}, {"3"}}},
      {"conv", {{"n,2,5,5"}, {"3,2,3,3"}, {"3"}}, with(conv2)},
      {"conv_backward_input", {{"n,3,5,5"}, {"3,2,3,3"}}, with(conv_in)},
      {"conv_backward_weight", {{"n,2,5,5"}, {"n,3,5,5"}}, with(conv_w)},
      {"max_pool", {{"n,2,6,4"}}, with(pool)},
      {"avg_pool", {{"n,2,6,4"}}, with(pool)},
      // ---- norms and losses
      {"softmax", {{"n,6"}}, with(SoftmaxAttrs{1})},
      {"log_softmax", {{"n,6"}}, with(SoftmaxAttrs{1})},
      {"layer_norm", {{"n,6"}, {"6"}, {"6"}}, with(NormAttrs{1, 1e-5})},
      {"rms_norm", {{"n,6"}, {"6"}}, with(NormAttrs{1, 1e-5})},
      {"softmax_cross_entropy", {{"n,6"}, {"n", "int:6"}}, with(ClassLossAttrs{}), 2, 2e-5, false},
      // ---- indexing and views
      {"gather", {{"n,6"}, {"n,3", "int:6"}}, with(GatherAttrs{1})},
      {"scatter_add", {{"n,6"}, {"n,3", "int:6"}, {"n,3"}}, with(GatherAttrs{1})},
      {"permute", {{"n,3,2"}}, with(PermuteAttrs{{2, 0, 1}})},
      {"slice", {{"n,7"}}, with(SliceAttrs{1, {1, 3, 2}})},
      {"select", {{"n,7"}}, with(SelectAttrs{1, {2}})},
      {"identity", {{"n,7"}}},
      {"copy", {{"n,7"}}},
      {"tril", {{"n,7"}}, with(TriAttrs{1})},
      {"triu", {{"n,7"}}, with(TriAttrs{-1})},
  };
}

}  // namespace tandem::rows
