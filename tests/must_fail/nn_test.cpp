// SPDX-License-Identifier: Apache-2.0
// Misuse of layers, losses, optimizers and schedules: wrong shapes, dtypes and options are rejected
// with the layer's path and the user's line.
#include <cmath>

#include "tests/must_fail/must_fail_helper.h"
#include "tests/support/init.h"

namespace tandem::must_fail {
namespace {

struct Model : nn::Module {
  nn::LSTM lstm{4, 3};
  nn::MultiheadAttention attn{8, 2};
  nn::EmbeddingBag bag{5, 2};
  nn::TransformerEncoderLayer encoder{8, 2, {.dim_feedforward = 4}};
  nn::GCNConv gcn{4, 2};
  nn::GRUCell cell{4, 3};
  nn::Dropout2d drop{0.5};
  Model() { TD_REGISTER(lstm, attn, bag, encoder, gcn, cell, drop); }
};

// clang-format off
TEST(MustFail, NewLayers) {
  Model net;
  net.named_modules();
  Tensor seq = ones({5, 2, 4}), q = ones({3, 2, 8}), ids = tensor({0, 1, 2}), edges = zeros({2, 3}, int64);
  nn::KVCache cache(2, 2, 2, 4);
  check({
    FAILS_PLAIN(lstm_features, Shape, "LSTM expects input size 4|[5, 2, 3]|In layer lstm", net.lstm(ones({5, 2, 3}))),
    FAILS_PLAIN(lstm_rank, Shape, "LSTM expects x of 2 or 3 dimensions|In layer lstm", net.lstm(ones({5}))),
    FAILS_PLAIN(lstm_state, Shape, "h0 is [1, 3, 3], expected [1, 2, 3]|In layer lstm", net.lstm(seq, ones({1, 3, 3}))),
    FAILS_PLAIN(lstm_cell_state, Shape, "c0 is [2, 3]|In layer lstm", net.lstm(seq, ones({1, 2, 3}), ones({2, 3}))),
    FAILS_PLAIN(lstm_packed, Shape, "input size 4|In layer lstm", net.lstm(nn::pack_padded_sequence(ones({3, 2, 5}), {3, 2}))),
    FAILS_PLAIN(gru_cell_input, Shape, "GRUCell expects x|[2, 5]|In layer cell", net.cell(ones({2, 5}))),
    FAILS_PLAIN(gru_cell_state, Shape, "state of size 3|[4, 3]|In layer cell", net.cell(ones({2, 4}), ones({4, 3}))),
    FAILS_PLAIN(attention_rank, Shape, "query, key and value|[3, 2, 8]|[8]|In layer attn", net.attn(q, ones({8}), q)),
    FAILS_PLAIN(attention_padding, Shape, "key_padding_mask|[3]|In layer attn", net.attn(q, q, q, {.key_padding_mask = zeros({3}, boolean)})),
    FAILS(attention_cache_full, Index, "cache holds 0 steps, and 3 more exceed|length 2|In layer attn", net.attn(q, q, q, {.cache = &cache})),
    FAILS_PLAIN(bag_offsets, Shape, "offsets for x of 1 dimension|[3]|In layer bag", net.bag(ids)),
    FAILS_PLAIN(bag_weights, Value, "per_sample_weights|sum|mean|In layer bag", net.bag(ids, tensor({0}), ones({3}))),
    FAILS(encoder_width, Shape, "linear|[2, 3, 6]|In layer encoder.self_attn", net.encoder(ones({3, 2, 6}))),
    FAILS_PLAIN(gcn_features, Shape, "GCNConv expects x [nodes, 4]|[3, 5]|In layer gcn", net.gcn(ones({3, 5}), edges)),
    FAILS_PLAIN(gcn_edges, Shape, "edge_index expects [2, edges]|[3]|In layer gcn", net.gcn(ones({3, 4}), ids)),
    FAILS(gcn_edge_dtype, DType, "edge_index|float32|int64|In layer gcn", net.gcn(ones({3, 4}), zeros({2, 3}))),
    FAILS_PLAIN(gcn_weight, Shape, "edge_weight expects [3]|[2]|In layer gcn", net.gcn(ones({3, 4}), edges, ones({2}))),
    FAILS_PLAIN(dropout_rank, Shape, "dropout2d: expected 3 or 4|[2, 2]|In layer drop", net.drop(ones({2, 2}))),
  });
}

TEST(MustFail, LayerOptions) {
  nn::Sequential chain{nn::ReLU()};
  nn::ModuleDict dict;
  dict.insert("a", nn::ReLU());
  nn::ParameterList params;
  nn::LoRALinear lora(nn::Linear(2, 2));
  nn::LSTM lstm(2, 2);
  Tensor x = ones({4, 2, 3});
  check({
    FAILS_ANYWHERE(heads, Value, "embed_dim = 8|num_heads = 3", nn::MultiheadAttention(8, 3)),
    FAILS_ANYWHERE(kv_heads, Value, "num_heads = 4|num_kv_heads = 3", nn::MultiheadAttention(8, 4, {.num_kv_heads = 3})),
    FAILS_ANYWHERE(proj_size, Value, "proj_size = 4|hidden_size = 4", nn::LSTM(2, 4, {.proj_size = 4})),
    FAILS_ANYWHERE(nonlinearity, Value, "tanh|relu|sine", nn::RNN(2, 2, {.nonlinearity = "sine"})),
    FAILS_ANYWHERE(activation, Value, "relu|gelu|tanh", nn::TransformerEncoderLayer(8, 2, {.activation = "tanh"})),
    FAILS_ANYWHERE(bag_mode, Value, "sum, mean and max|median", nn::EmbeddingBag(4, 2, {.mode = "median"})),
    FAILS_ANYWHERE(dropout_p, Value, "Dropout3d|0..1|1.5", nn::Dropout3d(1.5)),
    FAILS_ANYWHERE(rotary_odd, Value, "even size|5", nn::RotaryEmbedding(5)),
    FAILS_ANYWHERE(sequential_lstm, Value, "Sequential|LSTM|Tensor forward(Tensor)", nn::Sequential(nn::LSTM(2, 2))),
    FAILS_ANYWHERE(sequential_index, Index, "Sequential holds 1|7", chain[7]),
    FAILS_ANYWHERE(sequential_type, Value, "ReLU|Linear", chain[0].as<nn::Linear>()),
    FAILS_ANYWHERE(dict_twice, Value, "ModuleDict already holds 'a'", dict.insert("a", nn::ReLU())),
    FAILS_ANYWHERE(dict_dot, Value, "dot|a.b", dict.insert("a.b", nn::ReLU())),
    FAILS_ANYWHERE(dict_unknown, Value, "no 'z'|It holds a", dict["z"]),
    FAILS_ANYWHERE(list_index, Index, "ParameterList holds 0", params[0]),
    FAILS_ANYWHERE(hook_lstm, Unsupported, "LSTM|no hook would be called", lstm.register_forward_hook([](nn::Module&, const Tensor&, const Tensor& y) { return y; })),
    FAILS_ANYWHERE(lora_unmerge, Value, "not merged|merge()", lora.unmerge()),
    FAILS_ANYWHERE(lora_rank, Value, "rank r > 0", nn::LoRALinear(nn::Linear(2, 2), {.r = 0})),
    FAILS_ANYWHERE(weight_norm_name, Value, "Linear has no parameter 'kernel'", nn::weight_norm(nn::Linear(2, 2), "kernel")),
    FAILS_ANYWHERE(gain, Value, "unknown nonlinearity|swish|leaky_relu", nn::init::calculate_gain("swish")),
    FAILS_ANYWHERE(dirac_rank, Shape, "dirac|[2, 2]", nn::init::dirac({2, 2})),
    FAILS_ANYWHERE(kaiming_mode, Value, "fan_in|fan_out|fan", nn::init::kaiming_uniform({2, 2}, 0, float32, {.mode = "fan"})),
    FAILS_ANYWHERE(sparse_rank, Shape, "sparse expects a matrix|[2]", nn::init::sparse({2}, 0.5)),
    FAILS(pack_order, Value, "pack_padded_sequence|lengths must be sorted|enforce_sorted", nn::pack_padded_sequence(x, {2, 4})),
    FAILS(pack_length, Value, "pack_padded_sequence|length 5|4 steps", nn::pack_padded_sequence(x, {5, 4})),
    FAILS_PLAIN(pack_count, Shape, "pack_padded_sequence|1 lengths for 2", nn::pack_padded_sequence(x, {4})),
    FAILS_PLAIN(pad_empty, Value, "pad_sequence|at least one", nn::pad_sequence({})),
    FAILS_PLAIN(pool_batch, Shape, "global_add_pool|[4, 2, 3]|[2]", nn::global_add_pool(x, tensor({0, 1}))),
  });
}

TEST(MustFail, NewLosses) {
  Tensor x = ones({2, 3}), t = zeros({2}, int64), lp = log_softmax(ones({4, 2, 3}), -1), bad = tensor({{0.5, 1.5}});
  Tensor logits = randn({4, 2, 3}).requires_grad_(), ctc = ctc_loss(log_softmax(logits, -1), ones({2, 2}, int64), tensor({4, 4}), tensor({2, 1}));
  Tensor first = grad(ctc, logits, {.create_graph = true}).square().sum();
  Tensor targets = ones({2, 2}, int64), two = tensor({2, 2}), four = tensor({4, 4}), nan = full({2}, NAN);
  check({
    FAILS(bce_range, Value, "binary_cross_entropy|outside 0..1|with_logits", binary_cross_entropy(bad, ones({1, 2}))),
    FAILS(bce_nan, Value, "binary_cross_entropy|NaN", binary_cross_entropy(nan, ones({2}))),
    FAILS(bce_negative, Value, "binary_cross_entropy|outside 0..1", nn::BCELoss()(-x, x)),
    FAILS(ctc_label, Value, "ctc_loss|label 0|blank", ctc_loss(lp, zeros({2, 2}, int64), four, two)),
    FAILS(ctc_label_range, Value, "ctc_loss|label 7", ctc_loss(lp, targets + 6, four, two)),
    FAILS(ctc_input_length, Value, "ctc_loss|input length 5", ctc_loss(lp, targets, four + 1, two)),
    FAILS(ctc_target_length, Value, "ctc_loss|target length 3", ctc_loss(lp, targets, four, two + 1)),
    FAILS_PLAIN(ctc_lengths, Shape, "ctc_loss|one per sample|[2]", ctc_loss(lp, targets, tensor({4}), two)),
    FAILS_PLAIN(ctc_dtype, DType, "ctc_loss|floating|int64", ctc_loss(lp.to(int64), targets, four, two)),
    FAILS_PLAIN(ctc_blank, Value, "ctc_loss|blank is 3|0..2", ctc_loss(lp, targets, four, two, {.blank = 3})),
    FAILS_PLAIN(ctc_total, Shape, "ctc_loss|5 labels|4", ctc_loss(lp, ones({5}, int64), four, two)),
    {"ctc_second", ErrorKind::Unsupported, "ctc_loss|second derivative|create_graph", [&] { first.backward(); }, SourceLocation{}},
    FAILS(margin_target, DType, "multi_margin_loss|float32|int64", multi_margin_loss(x, ones({2}))),
    FAILS_PLAIN(margin_shape, Shape, "multi_margin_loss|[3]|[2, 3]", multi_margin_loss(x, zeros({3}, int64))),
    FAILS_PLAIN(margin_weight, Shape, "multi_margin_loss|[2]|[3]", multi_margin_loss(x, t, {.weight = ones({2})})),
    FAILS_PLAIN(margin_p, Value, "multi_margin_loss|p is 3", multi_margin_loss(x, t, {.p = 3})),
    FAILS_PLAIN(multilabel_shape, Shape, "multilabel_margin_loss|[2]|[2, 3]", multilabel_margin_loss(x, t)),
    FAILS(soft_margin_shape, Shape, "multilabel_soft_margin_loss|[2, 3]|[3]", multilabel_soft_margin_loss(x, ones({3}))),
    FAILS(focal_shape, Shape, "sigmoid_focal_loss|[2, 3]|[2]", sigmoid_focal_loss(x, ones({2}))),
    FAILS(dice_dtype, DType, "dice_loss|int64", dice_loss(t, t)),
    FAILS(tversky_reduction, Value, "tversky_loss|batchmean", tversky_loss(x, x, {.reduction = Reduction::batchmean})),
    FAILS_PLAIN(triplet_rank, Shape, "triplet_margin_with_distance_loss|[2]|[2, 3]", triplet_margin_with_distance_loss(x, x, ones({2}))),
  });
}

TEST(MustFail, OptimizersAndSchedules) {
  Param p{ones({2})}, q{ones({2, 2})}, wide{ones({2}, float64)}, nan{ones({2})};
  nan.set_grad(full({2}, NAN));
  optim::SGD sgd({p}, {.lr = 0.1}), momentum({q}, {.lr = 0.1, .momentum = 0.9});
  optim::Adadelta plain({p});
  optim::LBFGS lbfgs({p});
  optim::StepLR steps(sgd, {.step_size = 2});
  optim::OneCycleLR one(momentum, {.total_steps = 1});
  one.step();
  StateDict missing = momentum.state_dict(), extra = momentum.state_dict(), shape = momentum.state_dict();
  missing.erase("0.momentum_buffer");
  extra["7.momentum_buffer"] = ones({2});
  shape["0.momentum_buffer"] = ones({3});
  check({
    FAILS_ANYWHERE(group_twice, Value, "SGD|comes twice", sgd.add_param_group({.params = {p}})),
    FAILS_ANYWHERE(group_empty, Value, "SGD|without parameters", sgd.add_param_group({})),
    FAILS_ANYWHERE(group_option, Value, "SGD has no option 'beta1'", sgd.add_param_group({.params = {q}, .betas = {{0.9, 0.9}}})),
    FAILS_ANYWHERE(group_check, Value, "SGD expects momentum >= 0|-1", sgd.add_param_group({.params = {q}, .momentum = -1})),
    FAILS_ANYWHERE(option_name, Value, "SGD has no option 'alpha'|It has lr, momentum", sgd.option("alpha")),
    FAILS_ANYWHERE(option_group, Index, "SGD has 1 groups|3", sgd.lr(3)),
    FAILS_ANYWHERE(negative_lr, Value, "Adagrad expects lr >= 0", optim::Adagrad({q}, {.lr = -1})),
    FAILS_ANYWHERE(rho, Value, "Adadelta expects rho in [0, 1]|1.5", optim::Adadelta({q}, {.rho = 1.5})),
    FAILS_ANYWHERE(etas, Value, "Rprop expects etas|2", optim::Rprop({q}, {.etas = {2, 1.2}})),
    FAILS_ANYWHERE(nadam_betas, Value, "NAdam expects betas in [0, 1)|1", optim::NAdam({q}, {.betas = {0.9, 1}})),
    FAILS_ANYWHERE(muon_vector, Shape, "Muon expects matrices|[2]|AdamW", optim::Muon({p})),
    FAILS_ANYWHERE(muon_adjust, Value, "original|match_rms_adamw|none", optim::Muon({q}, {.adjust_lr_fn = "none"})),
    FAILS_ANYWHERE(lbfgs_dtypes, DType, "LBFGS expects parameters of one dtype|float32|float64", optim::LBFGS({p, wide})),
    FAILS_ANYWHERE(lbfgs_search, Value, "strong_wolfe|armijo", optim::LBFGS({p}, {.line_search_fn = "armijo"})),
    FAILS(lbfgs_step, Value, "LBFGS|step(closure)", lbfgs.step()),
    FAILS_ANYWHERE(state_missing, Value, "SGD: the state does not fit|1 missing (0.momentum_buffer)", momentum.load_state_dict(missing)),
    FAILS_ANYWHERE(state_extra, Value, "SGD: the state does not fit|1 unexpected (7.momentum_buffer)", momentum.load_state_dict(extra)),
    FAILS_ANYWHERE(state_shape, Shape, "SGD: the state does not fit|0.momentum_buffer is|[2, 2]|[3]", momentum.load_state_dict(shape)),
    FAILS(clip_nonfinite, Value, "clip_grad_norm_|total norm|nan", optim::clip_grad_norm_({nan}, 1.0, 2.0, true)),
    FAILS_PLAIN(clip_type, Value, "clip_grad_norm_|norm_type is 0", optim::clip_grad_norm_({nan}, 1.0, 0.0)),
    FAILS_ANYWHERE(schedule_step, Value, "StepLR expects step_size > 0", optim::StepLR(sgd, {.step_size = 0})),
    FAILS_ANYWHERE(schedule_linear, Value, "LinearLR expects start_factor|0", optim::LinearLR(sgd, {.start_factor = 0})),
    FAILS_ANYWHERE(schedule_cycle, Value, "CyclicLR with cycle_momentum|Adadelta|cycle_momentum = false", optim::CyclicLR(plain, {})),
    FAILS_ANYWHERE(schedule_mode, Value, "triangular|square", optim::CyclicLR(sgd, {.mode = "square"})),
    FAILS_ANYWHERE(schedule_end, Value, "OneCycleLR: step 2 of 1", one.step()),
    FAILS_ANYWHERE(schedule_total, Value, "OneCycleLR expects total_steps", optim::OneCycleLR(sgd, {})),
    FAILS_ANYWHERE(schedule_milestones, Value, "one milestone less|2|1", optim::SequentialLR(sgd, {&steps}, {1, 2})),
    FAILS_ANYWHERE(schedule_other, Value, "belong to one optimizer", optim::SequentialLR(plain, {&steps}, {})),
    FAILS_ANYWHERE(schedule_none, Value, "at least one schedule", optim::ChainedScheduler({})),
    FAILS_ANYWHERE(schedule_lambda, Value, "LambdaLR expects a function", optim::LambdaLR(sgd, {})),
    FAILS_ANYWHERE(schedule_state, Value, "StepLR: the state has no 'last_epoch'", steps.load_state_dict({})),
    FAILS_ANYWHERE(plateau_factor, Value, "ReduceLROnPlateau expects factor < 1", optim::ReduceLROnPlateau(sgd, {.factor = 2})),
    FAILS_ANYWHERE(average_decay, Value, "AveragedModel expects decay in 0..1|2", optim::AveragedModel<nn::Linear>(nn::Linear(2, 2), {.decay = 2})),
  });
}
// clang-format on

}  // namespace
}  // namespace tandem::must_fail
