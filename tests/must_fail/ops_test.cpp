// SPDX-License-Identifier: Apache-2.0
// Wrong arguments to ops: each error names the op, what was wanted, what came, the user's line and
// what to do.
#include "tests/must_fail/must_fail_helper.h"
#include "tests/support/init.h"

namespace tandem::must_fail {
namespace {

// clang-format off
TEST(MustFail, Shapes) {
  Tensor x = ones({8, 3}), img = ones({2, 3, 8, 8}), w = ones({4, 16, 3, 3}), v = ones({5});
  check({
    FAILS(add_broadcast, Shape, "add|[8, 3]|[5]", x + v),
    FAILS(where_broadcast, Shape, "where|[8, 3]", where(x > 0, x, v)),
    FAILS(matmul_inner, Shape, "matmul|[8, 3]|[5, 2]", matmul(x, ones({5, 2}))),
    FAILS(linear_features, Shape, "linear|3|7", linear(x, ones({4, 7}))),
    FAILS_PLAIN(linear_bias, Shape, "linear|bias|[5]", linear(x, ones({4, 3}), v)),
    FAILS_PLAIN(bmm_rank, Shape, "bmm|[8, 3]", bmm(x, x)),
    FAILS_PLAIN(dot_rank, Shape, "dot|[8, 3]", dot(x, x)),
    FAILS(conv_channels, Shape, "conv|16 input channels|[2, 3, 8, 8]|(3)", conv2d(img, w)),
    FAILS_PLAIN(conv_rank, Shape, "conv2d|[8, 3]", conv2d(x, w)),
    FAILS(conv_kernel, Shape, "conv|kernel", conv2d(img, ones({4, 3, 9, 9}))),
    FAILS_PLAIN(conv_groups, Value, "groups|0", conv2d(img, ones({4, 3, 3, 3}), {}, {1}, {0}, {1}, 0)),
    FAILS(pool_window, Shape, "max_pool", max_pool2d(img, 9)),
    FAILS(pool_padding, Value, "max_pool|padding", max_pool2d(img, 2, {}, 2)),
    FAILS_PLAIN(pool_rank, Shape, "avg_pool|[8, 3]", avg_pool2d(x, 2)),
    FAILS_PLAIN(layer_norm_shape, Shape, "layer_norm|[8, 3]|[4]", layer_norm(x, {4})),
    FAILS_PLAIN(layer_norm_weight, Shape, "layer_norm|[5]", layer_norm(x, {3}, v)),
    FAILS(batch_norm_weight, Shape, "batch_norm|[5]", batch_norm(img, {}, {}, v, {}, true)),
    FAILS(batch_norm_one, Value, "batch_norm", batch_norm(ones({1, 3}), {}, {}, {}, {}, true)),
    FAILS_PLAIN(group_norm_groups, Shape, "group_norm|2|3", group_norm(img, 2)),
    FAILS_PLAIN(attention_keys, Shape, "attention", scaled_dot_product_attention(ones({2, 4, 8}), ones({2, 4, 7}), ones({2, 4, 8}))),
    FAILS_PLAIN(attention_mask, Shape, "attention|mask", scaled_dot_product_attention(ones({2, 4, 8}), ones({2, 4, 8}), ones({2, 4, 8}), ones({3, 3}))),
    FAILS_PLAIN(lstm_weight, Shape, "lstm", lstm(ones({3, 2, 4}), {}, {}, ones({8, 5}), ones({8, 2}))),
    FAILS_PLAIN(cross_entropy_batch, Shape, "cross_entropy|[8]|[5]", cross_entropy(x, zeros({5}, int64))),
    FAILS(mse_shape, Shape, "mse_loss|[8, 3]|[5]", mse_loss(x, v)),
    FAILS(reshape_count, Shape, "reshape|[8, 3]|[5, 5]|25 elements", x.reshape({5, 5})),
    FAILS(reshape_guess, Shape, "reshape|[7, -1]|24", x.reshape({7, -1})),
    FAILS_PLAIN(flatten_unflatten, Shape, "unflatten", unflatten(x, 1, {2, 2})),
    FAILS(expand_size, Shape, "expand|[8, 3]", x.expand({8, 4})),
    FAILS_PLAIN(cat_sizes, Shape, "cat|[8, 3]|[7, 2]", cat({x, ones({7, 2})}, 1)),
    FAILS_PLAIN(stack_shapes, Shape, "stack|[8, 3]|[5]", stack({x, v})),
    FAILS(t_rank, Shape, "t|[2, 3, 8, 8]", img.t()),
    FAILS_PLAIN(gather_rank, Shape, "gather", gather(x, 1, zeros({2}, int64))),
    FAILS_PLAIN(scatter_source, Shape, "scatter", scatter(x, 1, zeros({8, 2}, int64), ones({3, 3}))),
    FAILS(index_put_value, Shape, "expand|[3]|[7]", index_put(x, {0}, ones({7}))),
    FAILS(masked_fill_mask, Shape, "condition|[5]|[8, 3]", masked_fill(x, full({5}, true), 0)),
    FAILS_PLAIN(amax_empty, Shape, "amax|empty", amax(ones({0, 3}), {0})),
    FAILS_PLAIN(max_empty, Shape, "max", max(ones({0}))),
    FAILS_PLAIN(einsum_sizes, Shape, "einsum|3|5", einsum("ij,jk->ik", {x, ones({5, 2})})),
    FAILS(item_many, Shape, "item|[8, 3]", x.item<float>()),
    FAILS(tensor_rows, Shape, "tensor|rows|2 and 1", tensor({{1, 2}, {3}})),
  });
}

TEST(MustFail, DTypes) {
  Tensor x = ones({2, 3}), i = ones({2, 3}, int64), b = full({2, 3}, true);
  check({
    FAILS(matmul_dtype, DType, "matmul|float32|int64", matmul(x, ones({3, 2}, int64))),
    FAILS(conv_dtype, DType, "conv|float64|float32", conv2d(ones({1, 1, 4, 4}, float64), ones({1, 1, 3, 3}))),
    FAILS(softmax_int, DType, "softmax|int64", softmax(i, 1)),
    FAILS(layer_norm_int, DType, "layer_norm|int64", layer_norm(i, {3})),
    FAILS(mean_int, DType, "mean|floating|int64", mean(i)),
    FAILS(var_int, DType, "var|int64", var(i)),
    FAILS(norm_int, DType, "norm|int64", norm(i)),
    FAILS(bits_float, DType, "bitwise_and|float32", x & x),
    FAILS(neg_bool, DType, "neg|bool", -b),
    FAILS(sub_bool, DType, "sub|bool", b - b),
    FAILS(floor_bool, DType, "floor|bool", floor(b)),
    FAILS(where_condition, DType, "where|condition|bool|float32", where(x, x, x)),
    FAILS(labels_float, DType, "nll_loss|target is float32", nll_loss(x, ones({2}))),
    FAILS(index_float, DType, "index|float32", x[ones({1})]),
    FAILS(gather_float, DType, "gather|float32", gather(x, 1, x)),
    FAILS(embedding_float, DType, "embedding|float32", embedding(ones({2}), x)),
    FAILS_PLAIN(mask_int, DType, "masked_select|int64", masked_select(x, i)),
    FAILS(data_dtype, DType, "data|float32", x.data<double>()),
    FAILS_PLAIN(requires_grad_int, DType, "requires_grad_|int64", i.requires_grad_()),
    FAILS(one_hot_float, DType, "one_hot|float32", one_hot(x, 3)),
  });
}

TEST(MustFail, IndicesAndValues) {
  Tensor x = ones({4, 3}), one = ones({2});
  check({
    FAILS_PLAIN(select_range, Index, "select|9|4", x[9]),
    FAILS_PLAIN(select_negative, Index, "select|-5", x.select(0, -5)),
    FAILS_PLAIN(dim_range, Index, "sum|2|-2", x.sum({2})),
    FAILS_PLAIN(dim_twice, Value, "sum|twice", x.sum({0, -2})),
    FAILS_PLAIN(size_dim, Index, "size|dimension 3", x.size(3)),
    FAILS_PLAIN(narrow_range, Index, "narrow|5", x.narrow(0, 2, 5)),
    FAILS_PLAIN(transpose_dim, Index, "transpose|5", x.transpose(0, 5)),
    FAILS(index_tensor, Index, "index|7", x[tensor({7})]),
    FAILS(index_select_range, Index, "index|-1|out of range", index_select(x, 0, tensor({-1}))),
    FAILS(gather_range, Index, "gather|3", gather(x, 1, full({4, 1}, 3))),
    FAILS(scatter_range, Index, "scatter|4", scatter(x, 0, full({1, 3}, 4), 1.0)),
    FAILS(embedding_range, Index, "index|12|out of range", embedding(tensor({12}), x)),
    FAILS_PLAIN(too_many_indices, Index, "index", index(x, {0, 0, 0})),
    FAILS(label_range, Value, "label 12|out of range", cross_entropy(x, full({4}, 12))),
    FAILS(label_negative, Value, "label -1", cross_entropy(x, full({4}, -1))),
    FAILS(empty_batch, Value, "cross_entropy|empty", cross_entropy(ones({0, 3}), zeros({0}, int64))),
    FAILS_PLAIN(smoothing_range, Value, "label_smoothing|1.5", cross_entropy(x, zeros({4}, int64), {.label_smoothing = 1.5})),
    FAILS_PLAIN(division_by_zero, Value, "floor_divide|division by zero", floor_divide(ones({2}, int64), zeros({2}, int64))),
    FAILS_PLAIN(remainder_by_zero, Value, "remainder|division by zero", ones({2}, int64) % 0),
    FAILS(negative_power, Value, "pow|-2", pow(full({2}, 3), -2)),
    FAILS_PLAIN(dropout_p, Value, "dropout|1.5", dropout(x, 1.5)),
    FAILS_PLAIN(bernoulli_p, Value, "bernoulli|element 0|0..1", bernoulli(full({2}, 2.0))),
    FAILS_PLAIN(multinomial_weights, Value, "multinomial|negative", multinomial(full({2}, -1.0), 1)),
    FAILS(multinomial_count, Value, "multinomial", multinomial(one, 3)),
    FAILS_PLAIN(topk_k, Index, "topk|5|3", topk(x, 5, 1)),
    FAILS_PLAIN(randint_range, Value, "randint", randint(5, 5, {2})),
    FAILS_PLAIN(arange_step, Value, "arange", arange(0, 5, 0)),
    FAILS_PLAIN(negative_size, Shape, "-1", zeros({2, -1})),
    FAILS_PLAIN(huge_size, Value, "", zeros({int64_t{1} << 40, int64_t{1} << 40})),
    FAILS_PLAIN(einsum_equation, Value, "einsum", einsum("ij,jk", {x})),
    FAILS_PLAIN(cat_nothing, Value, "cat", cat({})),
    FAILS_PLAIN(pad_mode, Value, "pad|mirror", pad(x, {1, 1}, "mirror")),
    FAILS(rounding_mode, Value, "div|up", div(x, x, "up")),
    FAILS(one_hot_range, Index, "one_hot|5", one_hot(tensor({5}), 3)),
    FAILS(undefined_input, Value, "relu|undefined", relu(Tensor())),
    FAILS(undefined_operand, Value, "add|undefined", x + Tensor()),
    FAILS_ANYWHERE(undefined_method, Value, "empty|moved from", Tensor().shape()),
  });
}

TEST(MustFail, MovedFromTensor) {
  Tensor x = ones({2});
  Tensor y = relu(std::move(x));
  check({FAILS(moved_from, Value, "add|undefined|moved", x + y)});
}
// clang-format on

}  // namespace
}  // namespace tandem::must_fail
