// SPDX-License-Identifier: Apache-2.0
// One row per op (several where an op has variants): what the row driver (rows_test.cpp) calls it
// with. A new op adds one line here. Element-wise ops get their rows from the op table itself.
//
// Inputs are "shape domain" separated by "|". A shape is "n,3" ("." is 0-d); n is 5, and 0, 1, 2 or
// a large number where a test wants another size. Domains: any (mixed signs, no ties), pos, unit
// (-0.85..0.85), prob (0.05..0.95), gt1, holes (any, every third 0), bool, ints (i64 -7..7), posint
// (1..7), int:K (i64 0..K-1), i32:K, perm:K (distinct 0..K-1). Without shape: "=0.7" and "#2" are
// numbers, "-" is absent; with shape they are tensors of that value.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "tandem/grad/transforms.h"
#include "tandem/ops/check_numerics.h"
#include "tandem/ops/nn/paged_attention.h"
#include "tandem/ops/ops.h"
#include "tandem/ops/pointwise/quantize.h"
#include "tandem/ops/reduce/order_statistics_internal.h"
#include "tandem/ops/view/bits.h"

namespace tandem::rows {

using MakeAttrs = std::function<AttrsHolder(int64_t n)>;

enum Off : unsigned {
  kNo0 = 1,            ///< size 0 is refused (tests/must_fail) or has no meaning
  kNo1 = 2,            ///< size 1 has no meaning
  kNo16 = 4,           ///< f16 and bf16 have no meaning
  kNoGrad = 8,         ///< see `why`
  kLastConstant = 32,  ///< the last tensor input is not a variable of the gradient
  kNoVmap = 16,
  kFirstConstant = 64,  ///< the first tensor input is not a variable of the gradient
};

struct Row {
  std::string op, in;
  MakeAttrs attrs = [](int64_t) { return AttrsHolder(); };
  unsigned off = 0;
  int64_t big = 20011;      ///< n of the test at several thread counts
  int order = 2;            ///< gradcheck to this order
  double tolerance = 2e-5;  ///< of f32 against the f64 reference, relative to the largest value
  std::string why = "";     ///< of anything that is off
};

template <class A>
MakeAttrs with(A a) {
  return [a](int64_t) { return AttrsHolder(fields<A>(), &a); };
}
template <class A>
MakeAttrs with_n(A (*make)(int64_t)) {
  return [make](int64_t n) {
    A a = make(n);
    return AttrsHolder(fields<A>(), &a);
  };
}

inline MakeAttrs over(IntList dims, bool keepdim = false) {
  return with(ReduceAttrs{dims, keepdim});
}
inline ConvAttrs conv_attrs(IntList stride, IntList padding, IntList dilation, int64_t groups = 1,
                            IntList size = {}) {
  return ConvAttrs{stride, padding, dilation, groups, padding, size};
}
inline PoolAttrs pool_attrs(IntList kernel, IntList stride, IntList padding, IntList dilation) {
  PoolAttrs a;
  a.kernel = kernel, a.stride = stride, a.padding = padding, a.dilation = dilation;
  return a;
}
inline PoolAttrs adaptive(IntList output) {
  PoolAttrs a;
  a.output = output;
  return a;
}
inline PoolAttrs sized(PoolAttrs a, IntList size) {
  a.size = size;
  return a;
}
inline ClassLossAttrs loss_attrs(int64_t reduction, double smoothing = 0, int64_t ignore = -100) {
  ClassLossAttrs a;
  a.reduction = reduction, a.label_smoothing = smoothing, a.ignore_index = ignore, a.classes = 6;
  return a;
}

// ---- reductions and scans

inline void add_reductions(std::vector<Row>& t) {
  for (const char* op : {"sum", "mean", "logsumexp", "norm"}) {
    t.push_back({op, "n,7", over({1})});
    t.push_back({op, "n,7", over({0})});
    t.push_back({op, "n,3,2", over({})});
    t.push_back({op, "3,n,2", over({0, 2}, true)});
    t.push_back({op, "n,2,3,4", over({1, -1})});
  }
  t.push_back({"sum", "n,7 ints", over({1})});
  t.push_back({"sum", "n,7 bool", over({})});
  t.push_back({"prod", "n,4", over({1})});
  t.push_back({"prod", "4,n", over({0}, true)});
  t.push_back({"prod", "n,4 posint", over({1})});
  t.push_back({"count_nonzero", "n,7 ints", over({1})});
  t.push_back({"count_nonzero", "n,7", over({})});
  for (const char* op : {"amax", "amin", "argmax", "argmin"}) {
    t.push_back({op, "n,7", over({1})});
    t.push_back({op, "7,n", over({0}, true)});
    t.push_back({op, "n,7 ints", over({1})});
    t.push_back({op, "n,3", over({0}), kNo0});
    t.push_back({op, "n,3", over({}), kNo0});
  }
  for (const char* op : {"max_dim", "min_dim"}) {
    t.push_back({op, "n,7", over({1})});
    t.push_back({op, "7,n", over({0}, true)});
  }
  for (const char* op : {"any", "all"}) {
    t.push_back({op, "n,7 bool", over({1})});
    t.push_back({op, "n,7 ints", over({0})});
    t.push_back({op, "n,7", over({})});
  }
  t.push_back({"var", "n,7|=1", over({1})});
  t.push_back({"var", "n,7|=0", over({0}, true), kNo1, 20011, 2, 2e-5, "var of one value is 0"});
  t.push_back({"var", "n,3|=1", over({})});
  t.push_back({"sum_to", "n,7", with(ShapeAttrs{{7}})});
  t.push_back({"sum_to", "2,n,7", with(ShapeAttrs{{1, 7}})});
  t.push_back({"sum_to", "3,n,2", with_n<ShapeAttrs>([](int64_t n) {
                 return ShapeAttrs{{n, 1}};
               })});
  for (const char* op : {"cumsum", "logcumsumexp", "cummax", "cummin"}) {
    t.push_back({op, "n,7", with(ScanAttrs{1})});
    t.push_back({op, "n,3", with(ScanAttrs{0})});
    t.push_back({op, "n", with(ScanAttrs{0})});
  }
  t.push_back({"cumsum", "n,7 ints", with(ScanAttrs{1})});
  t.push_back({"cumprod", "n,5", with(ScanAttrs{1})});
  t.push_back({"cumprod", "5,n", with(ScanAttrs{0})});
  t.push_back({"cumprod", "n,5 holes", with(ScanAttrs{1})});
  t.push_back({"prod", "n,5 holes", over({1})});
  t.push_back({"linear_scan", "n,6|n,6 prob", with(LinearScanAttrs{1, false})});
  t.push_back({"linear_scan", "6,n unit|6,n", with(LinearScanAttrs{0, true})});
  t.push_back({"linear_scan", "2,5,n holes|2,5,n", with(LinearScanAttrs{1, false})});
}

// ---- contractions and pooling

inline void add_contractions(std::vector<Row>& t) {
  t.push_back({"matmul", "n,4|4,3", with(MatmulAttrs{})});
  t.push_back({"matmul", "3,n|n,4", with(MatmulAttrs{})});
  t.push_back({"matmul", "4,n|4,3", with(MatmulAttrs{true, false})});
  t.push_back({"matmul", "2,n,4|2,3,4", with(MatmulAttrs{false, true})});
  t.push_back({"matmul", "2,4,n|2,3,4", with(MatmulAttrs{true, true})});
  t.push_back({"matmul", "3,1,n,4|2,4,3", with(MatmulAttrs{})});
  t.push_back({"matmul", "n,4|2,4,3", with(MatmulAttrs{})});
  t.push_back({"linear", "n,4|3,4|3"});
  t.push_back({"linear", "2,n,4|3,4|-"});
  t.push_back({"linear", "4|n,4|n"});
  const ConvAttrs plain = conv_attrs({1, 1}, {1, 1}, {1, 1});
  const ConvAttrs wide = conv_attrs({2, 1}, {1, 2}, {1, 2});
  const ConvAttrs grouped = conv_attrs({1, 2}, {0, 1}, {1, 1}, 2);
  ConvAttrs uneven = conv_attrs({1, 1}, {0, 1}, {1, 1});
  uneven.padding_end = {1, 0};
  t.push_back({"conv", "n,2,5,5|3,2,3,3|3", with(plain), 0, 501});
  t.push_back({"conv", "n,2,6,7|3,2,3,2|-", with(wide), 0, 501});
  t.push_back({"conv", "n,4,4,5|6,2,2,3|6", with(grouped), 0, 501});
  t.push_back({"conv", "n,3,4,4|3,1,3,3|3", with(conv_attrs({1, 1}, {1, 1}, {1, 1}, 3)), 0, 501});
  t.push_back({"conv", "n,2,4,4|3,2,2,2|3", with(uneven), 0, 501});
  t.push_back({"conv", "n,2,7|3,2,3|3", with(conv_attrs({2}, {1}, {1})), 0, 501});
  t.push_back(
      {"conv", "n,2,3,4,3|2,2,2,2,2|2", with(conv_attrs({1, 1, 1}, {0, 1, 0}, {1, 1, 1})), 0, 101});
  auto size = [](ConvAttrs a, IntList s) {
    a.size = s;
    return with(a);
  };
  t.push_back({"conv_backward_input", "n,3,5,5|3,2,3,3", size(plain, {5, 5}), 0, 501});
  t.push_back({"conv_backward_input", "n,3,3,9|3,2,3,2", size(wide, {6, 7}), 0, 501});
  t.push_back({"conv_backward_input", "n,6,3,3|6,2,2,3", size(grouped, {4, 5}), 0, 501});
  t.push_back({"conv_backward_input", "n,3,4|3,2,3", size(conv_attrs({2}, {1}, {1}), {7}), 0, 501});
  t.push_back({"conv_backward_weight", "n,2,5,5|n,3,5,5", size(plain, {3, 3}), 0, 501});
  t.push_back({"conv_backward_weight", "n,2,6,7|n,3,3,9", size(wide, {3, 2}), 0, 501});
  t.push_back({"conv_backward_weight", "n,4,4,5|n,6,3,3", size(grouped, {2, 3}), 0, 501});
  t.push_back(
      {"conv_backward_weight", "n,2,7|n,3,4", size(conv_attrs({2}, {1}, {1}), {3}), 0, 501});

  const PoolAttrs half = pool_attrs({2, 2}, {2, 2}, {0, 0}, {1, 1});
  PoolAttrs odd = pool_attrs({3, 2}, {2, 1}, {1, 1}, {1, 1});
  PoolAttrs odd_ceil = odd, bare = odd, divided = half;
  odd_ceil.ceil_mode = true;
  bare.count_include_pad = false;
  divided.divisor_override = 3;
  for (const char* op : {"max_pool", "max_pool_with_indices"}) {
    t.push_back({op, "n,2,6,4", with(half), 0, 501});
    t.push_back({op, "n,2,6,5", with(odd), 0, 501});
    t.push_back({op, "n,2,6,5", with(odd_ceil), 0, 501});
    t.push_back({op, "n,2,7,6", with(pool_attrs({2, 2}, {1, 2}, {0, 1}, {2, 1})), 0, 501});
    t.push_back({op, "n,2,7,5", with(adaptive({3, 2})), 0, 501});
    t.push_back({op, "n,2,9", with(pool_attrs({3}, {2}, {1}, {1})), 0, 501});
    t.push_back({op, "n,2,3,37", with(pool_attrs({2, 4}, {1, 3}, {1, 2}, {1, 2})), 0, 101, 1});
  }
  t.push_back({"max_pool_backward", "n,2,3,2|n,2,3,2 i32:24", with(sized(half, {6, 4})), 0, 501});
  t.push_back({"avg_pool", "n,2,6,4", with(half), 0, 501});
  t.push_back({"avg_pool", "n,2,6,5", with(odd), 0, 501});
  t.push_back({"avg_pool", "n,2,6,5", with(odd_ceil), 0, 501});
  t.push_back({"avg_pool", "n,2,6,5", with(bare), 0, 501});
  t.push_back({"avg_pool", "n,2,6,4", with(divided), 0, 501});
  t.push_back({"avg_pool", "n,2,7,5", with(adaptive({3, 2})), 0, 501});
  t.push_back({"avg_pool", "n,2,9", with(pool_attrs({3}, {2}, {1}, {1})), 0, 501});
  const PoolAttrs wide_rows = pool_attrs({2, 5}, {1, 3}, {1, 2}, {1, 1});  // rows that fill vectors
  t.push_back({"avg_pool", "n,2,3,37", with(wide_rows), 0, 101, 1});
  t.push_back({"avg_pool_backward", "n,2,4,13", with(sized(wide_rows, {3, 37})), 0, 101, 1});
  t.push_back({"avg_pool_backward", "n,2,3,2", with(sized(half, {6, 4})), 0, 501});
  t.push_back({"avg_pool_backward", "n,2,3,6", with(sized(odd, {6, 5})), 0, 501});
  t.push_back({"avg_pool_backward", "n,2,3,2", with(sized(adaptive({3, 2}), {7, 5})), 0, 501});
}

// ---- norms, softmax, attention, recurrence

inline void add_layers(std::vector<Row>& t) {
  for (const char* op : {"softmax", "log_softmax"}) {
    t.push_back({op, "n,6", with(SoftmaxAttrs{1})});
    t.push_back({op, "6,n", with(SoftmaxAttrs{0})});
    t.push_back({op, "n,3,2", with(SoftmaxAttrs{1})});
  }
  for (const char* op : {"softmax_backward", "log_softmax_backward"}) {
    t.push_back({op, "n,6|n,6", with(SoftmaxAttrs{1})});
    t.push_back({op, "6,n|6,n", with(SoftmaxAttrs{0})});
  }
  t.push_back({"layer_norm", "n,6|6|6", with(NormAttrs{1, 1e-5})});
  t.push_back({"layer_norm", "n,6|-|-", with(NormAttrs{1, 1e-5})});
  t.push_back({"layer_norm", "2,n,3,4|3,4|-", with(NormAttrs{2, 1e-3})});
  t.push_back(
      {"layer_norm_backward", "n,6|n,6|n,1|n,1 pos|6", with(NormBackwardAttrs{1, true, true})});
  t.push_back(
      {"layer_norm_backward", "n,6|n,6|n,1|n,1 pos|-", with(NormBackwardAttrs{1, false, false})});
  t.push_back({"rms_norm", "n,6|6", with(NormAttrs{1, 1e-5})});
  t.push_back({"rms_norm", "n,2,3|-", with(NormAttrs{2, 1e-5})});
  t.push_back({"rms_norm_backward", "n,6|n,6|n,1 pos|6", with(NormBackwardAttrs{1, true, false})});
  t.push_back({"rms_norm_backward", "n,6|n,6|n,1 pos|-", with(NormBackwardAttrs{1, false, false})});
  t.push_back({"batch_norm_train", "n,3,2|3|3", with(NormAttrs{0, 1e-5}), kNo0});
  t.push_back({"batch_norm_train", "n,3,2,2|-|-", with(NormAttrs{0, 1e-5}), kNo0});
  t.push_back({"batch_norm_backward", "n,3,2|n,3,2|3|3 pos|3",
               with(NormBackwardAttrs{0, true, true}), kNo0});
  t.push_back({"batch_norm_backward", "n,3,2|n,3,2|3|3 pos|-",
               with(NormBackwardAttrs{0, false, false}), kNo0});
  t.push_back({"batch_norm_infer", "n,3,2|3|3 pos|3|3", with(NormAttrs{0, 1e-5})});
  t.push_back({"batch_norm_infer", "n,3|3|3 pos|-|-", with(NormAttrs{0, 1e-5})});

  const char* kStep = "straight-through gradients: tests/ops/quantize_test.cpp";
  const FakeQuantizeAttrs fake{1, -3, 12, 0.5};
  const char* kCodes = "codes of 16-bit quotients differ from those of exact ones";
  t.push_back({"quantize_linear", "n,3|. =0.013|-", with(QuantizeAttrs{1, DType::i8}), kNo16, 20011,
               2, 2e-5, kCodes});
  t.push_back(
      {"quantize_linear", "3,n|3 pos|-", with(QuantizeAttrs{0}), kNo16, 20011, 2, 2e-5, kCodes});
  t.push_back({"dequantize_linear", "n,3 i32:300|. pos|. i32:9", with(QuantizeAttrs{})});
  t.push_back({"dequantize_linear", "n,3 i32:300|3 pos|3 i32:9", with(QuantizeAttrs{-1})});
  t.push_back({"dynamic_quantize_linear", "n,3", [](int64_t) { return AttrsHolder(); },
               kNo0 | kNo16, 20011, 2, 2e-5, kCodes});
  t.push_back({"fake_quantize", "n,3|. prob|-", with(fake), kNoGrad, 20011, 2, 2e-5, kStep});
  t.push_back({"fake_quantize", "n,3|3 prob|3 i32:9", with(fake), kNoGrad, 20011, 2, 2e-5, kStep});
  const AttentionAttrs plain, causal{true, 0, false}, scaled{false, 0.3, false};
  const PagedAttentionAttrs paged{4}, windowed{.block = 4, .scale = 0.7, .softcap = 2, .window = 3};
  t.push_back({"paged_attention", "2,4,n,3|24,2,3|24,2,5|2,3 int:6|2,n int:12", with(paged)});
  t.push_back({"paged_attention", "n,2,9,3|24,1,3|24,1,2|n,3 i32:6|n,9 i32:12", with(windowed)});
  t.push_back({"attention", "2,n,4|2,n,4|2,n,3|-", with(plain), 0, 131});
  t.push_back({"attention", "2,n,4|2,n,4|2,n,4|-", with(causal), 0, 131});
  t.push_back({"attention", "2,n,4|2,3,4|2,3,4|n,3 bool", with(scaled), 0, 131});
  t.push_back({"attention", "2,n,4|2,3,4|2,3,4|2,1,3", with(plain), 0, 131});
  t.push_back({"attention", "2,4,n,3|2,2,5,3|2,2,5,3|-", with(plain), 0, 131});
  t.push_back(
      {"attention_backward", "2,n,4|2,n,4|2,3,4|2,3,4|2,n,4|2,n pos|-|-", with(plain), 0, 67});
  t.push_back(
      {"attention_backward", "2,n,4|2,n,4|2,n,4|2,n,4|2,n,4|2,n pos|-|2,n", with(causal), 0, 67});
  t.push_back({"attention_backward", "2,n,4|2,n,4|2,3,4|2,3,4|2,n,4|2,n pos|n,3|-",
               with(AttentionAttrs{false, 0.5, true}), 0, 67});

  t.push_back({"lstm", "3,n,2|n,2|n,2|8,2|8,2|8|8", with(LstmAttrs{}), 0, 501});
  t.push_back({"lstm", "3,n,3|n,2|n,2|8,3|8,2|-|-", with(LstmAttrs{true}), 0, 501});
  t.push_back(
      {"lstm_backward", "3,n,2|n,2|n,2|3,n,10|8,2|n,2|3,n,10 prob", with(LstmAttrs{}), 0, 501});
  t.push_back({"lstm_backward", "3,n,2|-|-|-|8,2|n,2|3,n,10 prob", with(LstmAttrs{true}), 0, 501});
  t.push_back({"gru", "3,n,2|n,2|6,2|6,2|6|6", with(LstmAttrs{}), 0, 501});
  t.push_back({"gru", "3,n,3|n,2|6,3|6,2|-|-", with(LstmAttrs{true}), 0, 501});
  t.push_back(
      {"gru_backward", "3,n,2|n,2|3,n,8|6,2|n,2|3,n,2|3,n,8 prob", with(LstmAttrs{}), 0, 501});
  t.push_back(
      {"gru_backward", "3,n,2|-|-|6,2|n,2|3,n,2|3,n,8 prob", with(LstmAttrs{true}), 0, 501});
  t.push_back({"rnn", "3,n,2|n,2|2,2|2,2|2|2", with(RnnAttrs{}), 0, 501});
  t.push_back({"rnn", "3,n,3|n,2|2,3|2,2|-|2", with(RnnAttrs{true, true}), 0, 501});
  t.push_back({"rnn_backward", "3,n,2|n,2|2,2|3,n,2 unit", with(RnnAttrs{}), 0, 501});
  t.push_back({"rnn_backward", "3,n,2|-|2,2|3,n,2", with(RnnAttrs{true, true}), 0, 501});
  t.push_back({"lstm_cell", "n,8|n,2"});
  t.push_back({"lstm_cell_backward", "n,2|n,2|n,10|n,10 prob|n,2"});
  t.push_back({"lstm_cell_backward", "n,2|-|-|n,10 prob|n,2"});
}

// ---- losses

inline void add_losses(std::vector<Row>& t) {
  const char* kWeight = "class weights are constants, as in PyTorch";
  for (const char* op : {"softmax_cross_entropy", "nll_loss"}) {
    t.push_back({op, "n,6|n int:6", with(loss_attrs(0)), kNo0});
    t.push_back({op, "n,6|n int:6", with(loss_attrs(1))});
    t.push_back({op, "n,6|n int:6", with(loss_attrs(2))});
    t.push_back({op, "n,6,2|n,2 int:6", with(loss_attrs(0, 0, 2)), kNo0});
    t.push_back({op, "n,6|n int:6|6 pos", with(loss_attrs(0)), kNo0 | kLastConstant, 20011, 2, 2e-5,
                 kWeight});
  }
  t.push_back({"ctc_loss", "6,n,5 any|n,2 int:4|n #6|n #2", with(CtcAttrs{4}), 0, 300, 1, 2e-5,
               "no second derivative, as in PyTorch"});
  t.push_back({"ctc_loss_backward", "n any|6,n,5 any|n,2 int:4|n #6|n #2", with(CtcAttrs{4}),
               kNoGrad, 300, 2, 2e-5, "no second derivative, as in PyTorch"});
  t.push_back({"softmax_cross_entropy", "n,6|n int:6", with(loss_attrs(0, 0.1)), kNo0});
  t.push_back({"softmax_cross_entropy", "n,6,2|n,2 int:6", with(loss_attrs(2, 0.2, 1))});
  const std::string backward = "softmax_cross_entropy_backward";
  t.push_back({backward, ".|n,6|n int:6|n pos|. pos|-", with(loss_attrs(0)), kLastConstant});
  t.push_back({backward, ".|n,6|n int:6|n pos|-|-", with(loss_attrs(1, 0.1))});
  t.push_back({backward, "n|n,6|n int:6|n pos|-|-", with(loss_attrs(2))});
  t.push_back({"nll_loss_backward", ".|n int:6|. pos|-", with(loss_attrs(0)), kLastConstant});
  t.push_back({"nll_loss_backward", ".|n int:6|-|-", with(loss_attrs(1))});
  t.push_back({"nll_loss_backward", "n|n int:6|-|-", with(loss_attrs(2))});
  t.push_back({"binary_cross_entropy", "n,3 prob|n,3 prob"});
}

// ---- indices and sorting

inline void add_indexing(std::vector<Row>& t) {
  IndexAttrs dim1, wrap, add1, back;
  dim1.dim = wrap.dim = add1.dim = back.dim = 1;
  wrap.wrap = true;
  add1.accumulate = true;
  t.push_back({"index", "n,6,2|4 int:6", with(dim1)});
  t.push_back({"index", "n,6,2|3 int:6|3 int:2", with(wrap)});
  t.push_back({"index", "n,3|4,2 int:n", with(IndexAttrs{}), kNo0});
  t.push_back({"index_put", "n,6|n,4|4 perm:6", with(dim1)});
  t.push_back({"index_put", "n,6|n,9|9 int:6", with(add1)});
  t.push_back({"index_put", "n,6,3|n,2|2 perm:6|2 perm:3", with(dim1)});
  MakeAttrs backward = with_n<IndexAttrs>([](int64_t n) {
    IndexAttrs a;
    a.dim = 1;
    a.shape = {n, 6};
    return a;
  });
  MakeAttrs skipping = with_n<IndexAttrs>([](int64_t) {
    IndexAttrs a;
    a.skip = 2;
    a.shape = {6, 3};
    return a;
  });
  t.push_back({"index_backward", "n,9|9 int:6", backward});
  t.push_back({"index_backward", "n,3|n int:6", skipping});
  MakeAttrs region = with_n<RegionAttrs>([](int64_t n) {
    return RegionAttrs{{0, 1}, {n, 3}, {1, 2}, false};
  });
  MakeAttrs region_add = with_n<RegionAttrs>([](int64_t n) {
    return RegionAttrs{{0, 2}, {n, 4}, {1, 1}, true};
  });
  t.push_back({"region_put", "n,7|n,3", region});
  t.push_back({"region_put", "n,7|n,4", region_add});
  t.push_back({"gather", "n,6|n,3 int:6", with(GatherAttrs{1})});
  t.push_back({"gather", "6,n|3,n int:6", with(GatherAttrs{0})});
  t.push_back({"scatter", "n,6|n,3 perm:6|n,3", with(GatherAttrs{1})});
  t.push_back({"scatter_add", "n,6|n,9 int:6|n,9", with(GatherAttrs{1})});
  t.push_back({"scatter_add", "6,n|3,n int:6|3,n", with(GatherAttrs{0})});
  t.push_back({"dynamic_update", "n,7|#2|n,3", with(ShapeAttrs{{1}})});
  t.push_back({"dynamic_update", "n,7|. #3|n,3", with(ShapeAttrs{{1}})});
  t.push_back({"dynamic_slice", "n,7|#2", with(DynamicSliceAttrs{1, {3}})});
  t.push_back({"dynamic_slice", "n,7|. #4", with(DynamicSliceAttrs{1, {3}})});
  t.push_back({"nonzero", "n,3 bool", with(NonzeroAttrs{6, -1})});
  t.push_back({"nonzero", "n,3 ints", with(NonzeroAttrs{4, 9})});
  t.push_back({"one_hot", "n,2 int:6", with(OneHotAttrs{6})});
  t.push_back({"bincount", "n posint", with(BincountAttrs{10})});
  t.push_back({"sort", "n,7", with(SortAttrs{1, false, -1})});
  t.push_back({"sort", "n,3", with(SortAttrs{0, true, -1})});
  t.push_back({"sort", "n,7 ints", with(SortAttrs{1, false, -1})});
  for (const Rank r : {Rank::kth, Rank::median, Rank::nanmedian})
    t.push_back({"kthvalue", "n,7", with(KthvalueAttrs{1, 3, static_cast<int64_t>(r)})});
  t.push_back({"kthvalue", "7,n ints", with(KthvalueAttrs{0, 6, 0})});
  t.push_back({"topk", "n,7", with(SortAttrs{1, true, 3})});
  t.push_back({"topk", "7,n", with(SortAttrs{0, false, 2})});
}

// ---- views and rearrangements

inline void add_views(std::vector<Row>& t) {
  t.push_back({"view", "n,6", with_n<ShapeAttrs>([](int64_t n) { return ShapeAttrs{{n, 2, 3}}; })});
  t.push_back({"view", "n,2,3", with_n<ShapeAttrs>([](int64_t n) { return ShapeAttrs{{6 * n}}; })});
  t.push_back({"permute", "n,3,2", with(PermuteAttrs{{2, 0, 1}})});
  t.push_back({"expand", "n,1", with_n<ShapeAttrs>([](int64_t n) { return ShapeAttrs{{n, 5}}; })});
  t.push_back({"expand", "n", with_n<ShapeAttrs>([](int64_t n) { return ShapeAttrs{{3, n}}; })});
  t.push_back({"slice", "n,7", with(SliceAttrs{1, {1, 3, 2}})});
  t.push_back({"select", "n,7", with(SelectAttrs{1, {2}})});
  t.push_back({"diagonal", "n,4,5", with(DiagonalAttrs{1, 1, 2, {}})});
  t.push_back({"unfold", "n,7", with(UnfoldAttrs{1, 3, 2, {}})});
  t.push_back({"slice_backward", "n,3", with_n<SliceBackwardAttrs>([](int64_t n) {
                 return SliceBackwardAttrs{{n, 7}, 1, {1, 3, 2}};
               })});
  t.push_back({"diagonal_backward", "n,4", with_n<DiagonalAttrs>([](int64_t n) {
                 return DiagonalAttrs{1, 1, 2, {n, 4, 5}};
               })});
  t.push_back({"unfold_backward", "n,3,3", with_n<UnfoldAttrs>([](int64_t n) {
                 return UnfoldAttrs{1, 3, 2, {n, 7}};
               })});
  t.push_back({"identity", "n,7"});
  t.push_back({"copy", "n,7"});
  t.push_back({"to_device", "n,7", with(ToDeviceAttrs{"cpu"})});
  t.push_back({"check_numerics", "n,7", with(CheckNumericsAttrs{"x"})});
  t.push_back({"cat", "n,3|n,2", with(DimAttrs{1})});
  t.push_back({"cat", "n,3|2,3|n,3", with(DimAttrs{0})});
  t.push_back({"pad", "n,4", with(PadAttrs{{0, 1}, {0, 2}, 0.5})});
  t.push_back({"pad", "n,4", with(PadAttrs{{1, -1}, {2, -2}, 0})});
  t.push_back({"flip", "n,4,3", with(PermuteAttrs{{0, 2}})});
  t.push_back({"roll", "n,4,3", with(RollAttrs{{2, -1}, {1, 2}})});
  t.push_back({"tril", "n,4,5", with(TriAttrs{1})});
  t.push_back({"triu", "n,4,5", with(TriAttrs{-1})});
  t.push_back({"bitcast", "n,4 ints", with(BitcastAttrs{DType::f64})});
}

// ---- tensors out of nothing, random draws (all tests use one generator state)

inline void add_creation(std::vector<Row>& t) {
  t.push_back({"fill", "", with_n<FillAttrs>([](int64_t n) {
                 return FillAttrs{{n, 3}, 2.5, DType::f32};
               })});
  t.push_back({"arange", "", with_n<ArangeAttrs>([](int64_t n) {
                 return ArangeAttrs{2, 3, {n}, DType::i64};
               })});
  t.push_back({"arange", "", with_n<ArangeAttrs>([](int64_t n) {
                 return ArangeAttrs{0.5, 0.25, {n}, DType::f32};
               })});
  t.push_back({"linspace", "", with_n<LinspaceAttrs>([](int64_t n) {
                 return LinspaceAttrs{-1, 2, n, DType::f32};
               })});
  t.push_back({"eye", "", with_n<EyeAttrs>([](int64_t n) { return EyeAttrs{n, 4, DType::f32}; })});
  auto random = [](int64_t n) { return RandAttrs{{n, 3}, -1, 2, DType::f32}; };
  t.push_back({"rand", "", with_n<RandAttrs>(random)});
  t.push_back({"randn", "", with_n<RandAttrs>(random)});
  t.push_back({"randint", "", with_n<RandintAttrs>([](int64_t n) {
                 return RandintAttrs{{n, 3}, -5, 9, DType::i64};
               })});
  t.push_back({"randperm", "", with_n<RandpermAttrs>([](int64_t n) { return RandpermAttrs{n}; })});
  t.push_back({"bernoulli", "n,3 prob"});
  t.push_back({"dropout", "n,3", with(DropoutAttrs{0.3})});
  t.push_back({"dropout_backward", "n,3|n,3 bool", with(DropoutAttrs{0.3})});
  t.push_back({"multinomial", "n,6 pos", with(MultinomialAttrs{4, true})});
  t.push_back({"multinomial", "n,6 pos", with(MultinomialAttrs{4, false})});
  t.push_back({"constant", "", with(ConstantAttrs{make_ref<TensorBox>(tensor({1.f, 2.f}))})});
}

// ---- linear algebra

inline void add_linalg(std::vector<Row>& t) {
  using namespace linalg;
  t.push_back({"searchsorted", "7|n,3", with(SearchAttrs{false, false})});
  t.push_back({"searchsorted", "n,4|n,3", with(SearchAttrs{true, true})});
  t.push_back({"searchsorted", "9 ints|n,3 ints", with(SearchAttrs{true, false})});
  for (bool self : {false, true}) {
    t.push_back({"scatter_extreme", "n,6|n,9 int:6|n,9", with(ScatterExtremeAttrs{1, true, self})});
    t.push_back(
        {"scatter_extreme", "6,n|3,n int:6|4,n", with(ScatterExtremeAttrs{0, false, self})});
    t.push_back({"scatter_extreme", "n,6 ints|n,9 int:6|n,9 ints",
                 with(ScatterExtremeAttrs{1, true, self})});
  }
  for (bool inverse : {false, true}) {
    t.push_back({"fft", "n,6,2", with(fft::FftAttrs{1, inverse}), kNo16, 2003, 2, 2e-5,
                 "PyTorch's transforms take no 16-bit floats on the CPU either"});
    t.push_back({"fft", "3,n,2", with(fft::FftAttrs{-1, inverse}), kNo0 | kNo16, 2003, 2, 2e-5,
                 "PyTorch's transforms take no 16-bit floats on the CPU either"});
  }
  const char* kReal = "PyTorch's transforms take no 16-bit floats on the CPU either";
  for (int64_t length : {1, 2, 6, 7, 8, 67}) {
    const std::string in = std::to_string(length), half = std::to_string(length / 2 + 1);
    t.push_back(
        {"rfft", "n," + in, with(fft::RealFftAttrs{1, length}), kNo16, 2003, 2, 2e-5, kReal});
    t.push_back({"irfft", "n," + half + ",2", with(fft::RealFftAttrs{-1, length}), kNo16, 2003, 2,
                 2e-5, kReal});
  }
  t.push_back({"rfft", "12,n", with(fft::RealFftAttrs{0, 12}), kNo16, 2003, 2, 2e-5, kReal});
  t.push_back({"irfft", "7,n,2", with(fft::RealFftAttrs{0, 12}), kNo16, 2003, 2, 2e-5, kReal});
  t.push_back({"sample_gamma", "n,3 pos", Row().attrs, kNoGrad, 20011, 0, 2e-5,
               "a draw moves by jumps where it is rejected: tests/ops/distributions_test.cpp"});
  t.push_back({"sample_gamma_backward", "n,3 pos|n,3 pos", Row().attrs, kNoGrad, 20011, 0, 2e-5,
               "of first order only, as in PyTorch"});
  t.push_back({"poisson", "n,3 pos"});
  t.push_back({"binomial", "n,3 =7|n,3 prob"});
  t.push_back({"gcd", "n,3 ints|n,3 ints"});
  t.push_back({"nextafter", "n,3|n,3"});
  t.push_back({"cdist", "n,3|4,3"});
  t.push_back({"cdist", "2,n,5|2,3,5"});
  const char* k64 = "PyTorch's linear algebra takes no 16-bit floats either";
  const char* kTriangle =
      "reads one triangle; the gradient is that of a symmetric matrix: tests/ops/linalg_test.cpp";
  const auto add = [&](const char* op, const char* in, MakeAttrs attrs = Row().attrs,
                       unsigned off = 0, double tolerance = 1e-4, const char* why = nullptr) {
    t.push_back({op, in, attrs, kNo16 | off, 501, 2, tolerance, why ? why : k64});
  };
  for (bool upper : {false, true}) {
    add("cholesky", "n,3,3 spd", with(CholeskyAttrs{upper}), kNoGrad, 1e-4, kTriangle);
    add("eigh", "n,3,3 spd", with(CholeskyAttrs{upper}), kNoGrad, 1e-4, kTriangle);
    for (bool unit : {false, true})
      add("solve_triangular", "n,3,3 regular|n,3,2", with(TriangularAttrs{upper, unit}));
  }
  add("cholesky", "2,n,n spd", with(CholeskyAttrs{}), kNoGrad, 1e-4, kTriangle);
  add("lu_factor", "n,3,3 regular");
  add("ldl_factor", "n,3,3 spd");
  add("ldl_factor", "n,5,5 any");
  add("lu_factor", "n,4,2 any");
  add("lu_factor", "n,2,4 any");
  for (const char* op : {"solve"}) {
    add(op, "n,3,3 regular|n,3,2");
    add(op, "2,n,n regular|2,n,3");
  }
  for (const char* op : {"inv", "det", "slogdet", "cofactor", "matrix_exp"}) {
    add(op, "n,3,3 regular");
    t.back().big = 301;
  }
  add("inv", "n,n regular");
  add("det", "n,n regular");
  for (size_t i = t.size() - 2; i < t.size(); ++i) t[i].big = 61;
  for (const char* in : {"n,4,3 regular", "n,3,4 regular", "n,3,3 regular"}) {
    add("qr", in, with(QrAttrs{false}));
    add("svd", in, with(SvdAttrs{false}));
    add("pinv", in, with(PinvAttrs{}));
  }
  add("qr", "n,3,4 regular", with(QrAttrs{true}));
  add("qr", "n,4,3 regular", with(QrAttrs{true}), kNoGrad, 1e-4,
      "the last columns of a complete Q are arbitrary");
  add("svd", "n,4,3 regular", with(SvdAttrs{true}), kNoGrad, 1e-4,
      "the last columns of a full U are arbitrary");
}

inline void add_images(std::vector<Row>& t);  // image_rows.h

inline std::vector<Row> table() {
  std::vector<Row> t;
  add_reductions(t);
  add_contractions(t);
  add_layers(t);
  add_losses(t);
  add_indexing(t);
  add_views(t);
  add_creation(t);
  add_linalg(t);
  add_images(t);
  return t;
}

}  // namespace tandem::rows

#include "tests/ops/image_rows.h"
