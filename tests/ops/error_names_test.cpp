// SPDX-License-Identifier: Apache-2.0
// Errors name the function that the user called, not one that it is made of: every alias, every
// method, and the other functions that call one.
#include <functional>

#include "tests/ops/values_helper.h"

namespace tandem::testing_ops {
namespace {

struct NamedCall {
  const char* name;
  std::function<void()> call;
};

/// An argument without a value: an undefined tensor, an empty list, 0.
template <class T>
std::decay_t<T> nothing() {
  using V = std::decay_t<T>;
  if constexpr (std::is_same_v<V, Operand>)
    return Operand(Tensor());
  else if constexpr (std::is_same_v<V, TensorIndices>)
    return {Slice()};
  else
    return V();
}
template <class... A>
void call_with_nothing(void (*f)(A...)) {
  f(nothing<A>()...);
}

std::vector<NamedCall> aliases() {
  std::vector<NamedCall> all;
#define TD_LIST(...) __VA_ARGS__
#define ALIAS(name, of, parameters, arguments) \
  all.push_back(                               \
      {#name, [] { call_with_nothing(+[](TD_LIST parameters) { name(TD_LIST arguments); }); }});
#define UNARY(name, of) ALIAS(name, of, (Tensor x), (std::move(x)))
#define BINARY(name, of) ALIAS(name, of, (Operand a, Operand b), (std::move(a), std::move(b)))
#include "tandem/ops/aliases.def"
#undef BINARY
#undef UNARY
#undef ALIAS
#undef TD_LIST
  return all;
}

std::vector<NamedCall> methods() {
  std::vector<NamedCall> all;
#define TD_NOTHING(type, name, ...) nothing<type>(),
#define TD_CALL(name, arguments) \
  all.push_back({#name, [] { Tensor().name(arguments SourceLocation::here()); }});
#define METHOD0(R, name) TD_CALL(name, )
#define METHOD1(R, name, a) TD_CALL(name, TD_NOTHING a)
#define METHOD2(R, name, a, b) TD_CALL(name, TD_NOTHING a TD_NOTHING b)
#define METHOD3(R, name, a, b, c) TD_CALL(name, TD_NOTHING a TD_NOTHING b TD_NOTHING c)
#define METHOD4(R, name, a, b, c, d) \
  TD_CALL(name, TD_NOTHING a TD_NOTHING b TD_NOTHING c TD_NOTHING d)
#define METHOD5(R, name, a, b, c, d, e) \
  TD_CALL(name, TD_NOTHING a TD_NOTHING b TD_NOTHING c TD_NOTHING d TD_NOTHING e)
#include "tandem/tensor/methods.def"
#undef TD_CALL
#undef TD_NOTHING
  return all;
}

void expect_names(const std::vector<NamedCall>& calls) {
  for (const NamedCall& c : calls) {
    try {
      c.call();
      ADD_FAILURE() << c.name << " did not throw";
    } catch (const Error& e) {
      EXPECT_EQ(e.op(), c.name) << e.what();
      EXPECT_EQ(std::string(e.what()).rfind(std::string(c.name) + ": ", 0), 0u) << e.what();
      EXPECT_NE(e.loc().file, nullptr) << e.what();
    }
  }
}

class ErrorNamesTest : public OpsTest {};

TEST_F(ErrorNamesTest, Aliases) {
  EXPECT_GT(aliases().size(), 40u);
  expect_names(aliases());
}
TEST_F(ErrorNamesTest, Methods) { expect_names(methods()); }

TEST_F(ErrorNamesTest, FunctionsOfOtherFunctions) {
  const Tensor x = ones({2, 3}), ids = ones({2, 3}, int64), one = ones({}), none;
  expect_names({
      {"clip", [&] { clip(ids, nullptr, none); }},
      {"clip", [&] { clip(ids, none, nullptr); }},
      {"empty_strided",
       [] {
         empty_strided({2, 3}, {1});
       }},
      {"empty_permuted",
       [] {
         empty_permuted({2, 3}, {1});
       }},
      {"broadcast_to", [&] { broadcast_to(x, {5}); }},
      {"concat",
       [&] {
         concat({x, one});
       }},
      {"atleast_3d",
       [&] {
         atleast_3d({x, none});
       }},
      {"zeros_like", [&] { zeros_like(none); }},
      {"full_like", [&] { full_like(none, 1, float64); }},
      {"empty_like", [&] { empty_like(none); }},
      {"rand_like", [&] { rand_like(ids); }},
      {"randn_like", [&] { randn_like(ids); }},
      {"randint_like", [&] { randint_like(x, 3, 2); }},
      {"bernoulli", [&] { bernoulli(x, 2.0); }},
      {"sum", [&] { sum(none, {}, false, float64); }},
      {"norm", [&] { norm(x, 1, {7}); }},
      {"norm", [&] { norm(ids, 3); }},
      {"gelu", [&] { gelu(x, "sigmoid"); }},
      {"prelu", [&] { prelu(x, ones({2})); }},
      {"addmm", [&] { addmm(x, x, x.t()); }},
      {"addmm", [&] { addmm(x, x, x); }},
      {"baddbmm", [&] { baddbmm(x, x, x); }},
      {"mm", [&] { mm(x, x); }},
      {"index_add",
       [&] {
         index_add(x, 0, tensor({0, 9}), x, 2);
       }},
      {"expit", [&] { special::expit(none); }},
      {"gammaln", [&] { special::gammaln(none); }},
      {"psi", [&] { special::psi(none); }},
      {"modified_bessel_i0", [&] { special::modified_bessel_i0(none); }},
      {"modified_bessel_i1", [&] { special::modified_bessel_i1(none); }},
      {"orgqr", [&] { orgqr(x, ids); }},
      {"ldl_factor", [&] { linalg::ldl_factor(x); }},
      {"ldl_factor_ex", [&] { linalg::ldl_factor_ex(x); }},
  });
}

TEST_F(ErrorNamesTest, FunctionsOfNetworks) {
  const Tensor x = ones({2, 3}), ids = ones({2, 3}, int64), one = ones({}), none;
  expect_names({
      {"conv1d",
       [&] {
         conv1d(ones({1, 2, 5}), ones({3, 3, 2}));
       }},
      {"conv2d",
       [&] {
         conv2d(ones({1, 2, 5, 5}), ones({3, 3, 2, 2}), none, {1}, "same");
       }},
      {"conv_transpose2d",
       [&] {
         conv_transpose2d(ones({1, 2, 5, 5}), ones({3, 3, 2, 2}));
       }},
      {"fractional_max_pool2d_with_indices",
       [&] { fractional_max_pool2d_with_indices(x, {2}, {.output_size = {1}}); }},
      {"fold",
       [&] {
         fold(x, {2, 2}, {7, 7});
       }},
      {"unfold",
       [&] {
         unfold(x, {7, 7});
       }},
      {"upsample", [&] { upsample(x, {.size = {4}}); }},
      {"upsample_nearest", [&] { upsample_nearest(x, {4}); }},
      {"upsample_bilinear", [&] { upsample_bilinear(x, {4}); }},
      {"batch_norm", [&] { batch_norm(x, ones({2}), ones({2})); }},
      {"cross_entropy", [&] { cross_entropy(one, one); }},
      {"ctc_loss", [&] { ctc_loss(x, ids, ids, ids); }},
      {"cosine_embedding_loss", [&] { cosine_embedding_loss(x, x, ones({5})); }},
      {"pairwise_distance", [&] { pairwise_distance(x, ones({4})); }},
      {"triplet_margin_loss", [&] { triplet_margin_loss(x, x, ones({4})); }},
      {"triplet_margin_with_distance_loss",
       [&] {
         triplet_margin_with_distance_loss(x, x, ones({1, 4}));
       }},
      {"scaled_dot_product_attention",
       [&] {
         scaled_dot_product_attention(x, x, x, ones({2, 9}), 0.5);
       }},
      {"gru_cell", [&] { gru_cell(x, x, x, x); }},
      {"gru_cell",
       [&] {
         gru_cell(x, ones({2, 4}), ones({9, 3}), ones({9, 3}));
       }},
      {"lstm_cell", [&] { lstm_cell(x, x, x, x, x); }},
      {"rnn_tanh_cell",
       [&] {
         rnn_tanh_cell(x, x, ones({3, 4}), x);
       }},
      {"rnn_relu_cell",
       [&] {
         rnn_relu_cell(x, x, ones({3, 4}), x);
       }},
  });
}

// What a caller's own function throws keeps its name.
TEST_F(ErrorNamesTest, CallersOwnFunctions) {
  const Tensor x = ones({2, 3});
  expect_names({{"matmul", [&] {
                   triplet_margin_with_distance_loss(
                       x, x, x, [](const Tensor& a, const Tensor& b) { return matmul(a, b); });
                 }}});
}

}  // namespace
}  // namespace tandem::testing_ops
