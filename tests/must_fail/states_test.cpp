// SPDX-License-Identifier: Apache-2.0
// Misuse of gradients, traces, cells, modules, optimizers and data: what is rejected, with which
// text, and that nothing is half-done afterwards.
#include <cmath>

#include "tandem/data/sets/datasets.h"
#include "tests/must_fail/must_fail_helper.h"
#include "tests/support/init.h"

namespace tandem::must_fail {
namespace {

constinit const OpDef no_derivative = index_row("test_no_derivative", {"x"})
                                          .infer([](InferCall& c) { c.out[0] = c.in[0]; })
                                          .reference(
                                              [](const KernelCall& c) {
                                                for (int64_t i = 0; i < c.in[0].numel; ++i)
                                                  c.out[0].as<float>()[i] = c.in[0].as<float>()[i];
                                              },
                                              {DType::f32})
                                          .doc("An op without a derivative.");
constinit const OpDef same_name = index_row("relu", {"x"}).doc("A name that is taken.");
constinit const OpDef no_doc = index_row("test_no_doc", {"x"});
constinit const OpDef no_dtypes =
    index_row("test_no_dtypes", {"x"}).reference([](const KernelCall&) {}).doc("Takes what?");
constinit const OpDef unregistered = index_row("test_unregistered", {"x"}).doc("Never registered.");

Ref<Graph> trace_of(FunctionRef<Tensor(const Tensor&)> f, Shape shape = {2}) {
  Spec spec(float32, shape);
  return trace([&](std::span<const Tensor> x) { return std::vector<Tensor>{f(x[0])}; }, {&spec, 1},
               Captures::refuse);
}

// clang-format off
TEST(MustFail, Gradients) {
  register_op(no_derivative);
  Tensor x = ones({3}).requires_grad_(), z = ones({3}).requires_grad_(), plain = ones({3});
  Tensor used = (x * x).sum();
  used.backward();
  Tensor y = call(no_derivative, nullptr, SourceLocation::here(), x).sum();
  Tensor w = ones({3}).requires_grad_();
  Tensor weighted = cross_entropy(ones({2, 3}).requires_grad_(), zeros({2}, int64), {.weight = w});
  check({
    FAILS(backward_twice, Value, "second time|sum|retain_graph", used.backward()),
    FAILS(backward_many, Shape, "backward|[3]|one element", (x * 2.0).backward()),
    FAILS(backward_nothing, Value, "backward|does not depend", plain.sum().backward()),
    FAILS_PLAIN(backward_shape, Shape, "[3]|[2]", (x * 2.0).backward(ones({2}))),
    FAILS_PLAIN(backward_int, DType, "backward|int64", ones({}, int64).backward()),
    {"missing_derivative", ErrorKind::Unsupported, "test_no_derivative|no derivative|custom_vjp", [&] { y.backward(); }, SourceLocation{}},
    {"class_weight", ErrorKind::Unsupported, "softmax_cross_entropy|class weight|detach", [&] { weighted.backward(); }, SourceLocation{}},
    FAILS(grad_unused, Value, "grad|is not used by|allow_unused", grad((x * x).sum(), z)),
    FAILS(grad_plain, Value, "grad|does not require", grad((x * x).sum(), plain)),
    FAILS(requires_grad_result, Value, "requires_grad_|detach", (x * 2.0).requires_grad_()),
    FAILS_PLAIN(grad_argnum, Index, "argument 3", grad([](Tensor a) { return a.sum(); }, 3)(plain)),
    FAILS_PLAIN(vmap_sizes, Shape, "vmap|2|3", vmap([](Tensor a, Tensor b) { return a + b; })(ones({2}), plain)),
    FAILS_PLAIN(vmap_scalar, Shape, "vmap|no dimension", vmap([](Tensor a) { return a; })(ones({}))),
    FAILS_PLAIN(jvp_direction, Shape, "direction 0|[2]|[3]", jvp([](Tensor a) { return a; }, plain, ones({2}))),
    FAILS_PLAIN(gradcheck_dtype, DType, "gradcheck|expected f64|float32", gradcheck([](std::span<const Tensor> v) { return Tensors{v[0]}; }, {plain})),
    FAILS_PLAIN(jacobian_int, DType, "floating|int64", jacobian([](Tensor a) { return a; }, ones({2}, int64))),
    FAILS(vmap_item, Unsupported, "trace", vmap([](Tensor a) { return a * a.item<float>(); })(plain)),
    FAILS(vmap_backward, Unsupported, "vmap|grad()", vmap([&](Tensor a) { (a * x.sum()).backward(); return a; })(plain)),
  });
}

TEST(MustFail, RegisteringOps) {
  check({
    FAILS_ANYWHERE(register_taken, Value, "relu|registered already|another name", register_op(same_name)),
    FAILS_ANYWHERE(register_no_doc, Value, "test_no_doc|doc", register_op(no_doc)),
    FAILS_ANYWHERE(register_no_dtypes, Value, "test_no_dtypes|which dtypes|kEveryDType", register_op(no_dtypes)),
    FAILS(not_in_table, Unsupported, "test_unregistered|init()|register_op", call(unregistered, nullptr, SourceLocation::here(), ones({2}))),
  });
  EXPECT_EQ(find_op("test_no_doc"), nullptr);
}

TEST(MustFail, Traces) {
  Tensor outside = ones({2}), kept;
  Param p{ones({2})};
  optim::SGD opt({p}, {.lr = 0.1});
  trace_of([&](const Tensor& x) { kept = x * 2.0; return x; });
  Ref<Graph> g = trace_of([](const Tensor& x) { return x + 1.0; });
  Tensor two = ones({2}), three = ones({3});
  check({
    FAILS(trace_item, Unsupported, "item|trace", trace_of([](const Tensor& x) { return x * x.sum().item<float>(); })),
    FAILS_ANYWHERE(trace_bool, Unsupported, "trace", trace_of([](const Tensor& x) { return x.sum() ? x : -x; })),
    FAILS(trace_data, Unsupported, "data|trace", trace_of([](const Tensor& x) { x.data<float>(); return x; })),
    FAILS(trace_vector, Unsupported, "trace", trace_of([](const Tensor& x) { x.to_vector<float>(); return x; })),
    FAILS(trace_capture, Unsupported, "add|[2]|from outside|constant(x)", trace_of([&](const Tensor& x) { return x + outside; })),
    FAILS(trace_ended, Unsupported, "relu|trace that has ended|Buffer", relu(kept)),
    FAILS_ANYWHERE(trace_param, Unsupported, "inside a trace", trace_of([](const Tensor& x) { return x * Param(ones({2})); })),
    FAILS_ANYWHERE(trace_requires_grad, Unsupported, "requires_grad_|trace", trace_of([&](const Tensor& x) { p.requires_grad_(false); return x; })),
    FAILS_ANYWHERE(trace_lr, Unsupported, "lr()|lr_tensor", trace_of([&](const Tensor& x) { opt.lr(); return x; })),
    FAILS(trace_nonzero, Unsupported, "nonzero|trace", trace_of([](const Tensor& x) { return nonzero(x); })),
    FAILS_ANYWHERE(trace_nothing, Value, "undefined", trace_of([](const Tensor&) { return Tensor(); })),
    FAILS_ANYWHERE(run_count, Value, "1 inputs|got 2", run(*g, std::vector<Tensor>{two, two})),
    FAILS_ANYWHERE(run_shape, Shape, "[2]|[3]", run(*g, {&three, 1})),
    FAILS_ANYWHERE(symbolic_size, Shape, "shape(", trace_of([](const Tensor& x) { return x * x.size(0); }, {Dim::symbol("must_fail_n")})),
  });
  EXPECT_FALSE(is_tracing());
  EXPECT_TRUE(p.requires_grad());
}

TEST(MustFail, CellsStayWhole) {
  Param p{ones({2})};
  Buffer b{zeros({4})};
  Tensor two = ones({2});
  check({
    FAILS_PLAIN(assign_shape, Shape, "assign_|[2]|[3]", p.assign_(ones({3}))),
    FAILS_PLAIN(assign_undefined, Value, "assign_|undefined", p.assign_(Tensor())),
    FAILS_ANYWHERE(assign_empty, Value, "assign_|empty", Param().assign_(two)),
    FAILS_ANYWHERE(empty_value, Value, "empty Param", Param().value()),
    FAILS_ANYWHERE(param_int, DType, "floating|int64|Buffer", Param(ones({2}, int64))),
    FAILS_ANYWHERE(param_undefined, Value, "undefined", Param{Tensor()}),
    FAILS_ANYWHERE(assign_vmap, Unsupported, "assign_|vmap|outside", vmap([&](Tensor x) { b.assign_(zeros({4}) + x); return x; })(two)),
    FAILS(write_range, Index, "dynamic_update|5", b.write_(0, 5, two)),
    FAILS_PLAIN(write_shape, Shape, "dynamic_update", b.write_(0, 0, ones({2, 2}))),
    FAILS_ANYWHERE(assign_if, Shape, "AssignIf|bool", AssignIf(ones({2}))),
    FAILS_ANYWHERE(functional_shape, Shape, "functional_call|[2]|[3]", functional_call({{p, ones({3})}}, [] { return Tensors{}; })),
  });
  // An update that fails while running restores the values.
  EXPECT_EQ(b.value().to_vector<float>(), std::vector<float>(4, 0));
  b.write_(0, 1, two);
  EXPECT_EQ(b.value().to_vector<float>(), (std::vector<float>{0, 1, 1, 0}));
  EXPECT_EQ(p.value().to_vector<float>(), (std::vector<float>{1, 1}));
  p.set_grad(full({2}, std::nan("")));
  optim::SGD opt({p}, {.lr = 0.1});
  {
    DetectAnomalyGuard watch;
    check({FAILS(anomaly_update, Value, "sgd_plain_update|NaN", opt.step())});
  }
  EXPECT_EQ(p.value().to_vector<float>(), (std::vector<float>{1, 1}));
}

TEST(MustFail, AnomalyNamesOpLayerAndLine) {
  struct Net : nn::Module {
    nn::Linear fc{2, 2};
    Net() { TD_REGISTER(fc); }
    Tensor forward(Tensor x) { return fc(x); }
  } net;
  net.parameters();
  Tensor zero = zeros({2}).requires_grad_();
  Tensor y = sqrt(zero);
  Tensor bad = full({1, 2}, std::nan(""));
  DetectAnomalyGuard watch;
  check({
    FAILS(anomaly_forward, Value, "log|infinity", log(zero)),
    FAILS_ANYWHERE(anomaly_layer, Value, "linear|an input does already|In layer fc, tests/must_fail/states_test.cpp", net(bad)),
    {"anomaly_backward", ErrorKind::Value, "sqrt|infinity", [&] { y.sum().backward(); }, SourceLocation{}},
  });
}

struct Small : nn::Module {
  nn::Linear fc1{4, 3}, fc2{3, 2};
  Small() { TD_REGISTER(fc1, fc2); }
  Tensor forward(Tensor x) { return fc2(relu(fc1(x))); }
};
struct Forgotten : nn::Module {
  nn::Linear fc1{4, 3}, fc2{3, 2};
  Forgotten() { TD_REGISTER(fc1); }
};
struct Twice : nn::Module {
  nn::Linear fc1{4, 3};
  Twice() { TD_REGISTER(fc1, fc1); }
};
struct Bare : nn::Module {};

TEST(MustFail, Modules) {
  Small net;
  net.parameters();
  StateDict good = net.state_dict(), missing = good, extra = good, shape = good;
  missing.erase("fc2.bias");
  extra["fc3.weight"] = ones({2});
  shape["fc1.weight"] = ones({3, 5});
  shape["fc2.weight"] = zeros({2, 3});
  nn::Embedding words(10, 4);
  nn::Conv2d conv(3, 8, 3);
  nn::BatchNorm1d bn(4);
  check({
    FAILS_ANYWHERE(layer_shape, Shape, "linear|4 input features|[1, 5]|In layer fc1, tests/must_fail/states_test.cpp", net(ones({1, 5}))),
    FAILS_ANYWHERE(layer_dtype, DType, "linear|float64|float32|In layer fc1", net(ones({1, 4}, float64))),
    FAILS(layer_index, Index, "index|99|In layer Embedding", words(full({1}, 99))),
    FAILS(layer_conv, Shape, "conv|In layer Conv2d", conv(ones({1, 4, 8, 8}))),
    {"layer_norm_one", ErrorKind::Value, "batch_norm|one value per channel|In layer BatchNorm1d", [&] { bn(ones({1, 4})); }, SourceLocation{}},
    FAILS_ANYWHERE(forgotten_layer, Value, "Forgotten|TD_REGISTER|Linear", Forgotten()),
    FAILS_ANYWHERE(named_twice, Value, "TD_REGISTER|fc1|twice", Twice()),
    FAILS_ANYWHERE(load_missing, Value, "fc2.bias|missing", net.load_state_dict(missing)),
    FAILS_ANYWHERE(load_unexpected, Value, "fc3.weight|unexpected", net.load_state_dict(extra)),
    FAILS_ANYWHERE(load_shape, Shape, "fc1.weight|[3, 4]|[3, 5]", net.load_state_dict(shape)),
    FAILS_ANYWHERE(load_shape_loose, Shape, "fc1.weight", net.load_state_dict(shape, false)),
    FAILS_ANYWHERE(state_at, Value, "fc1.weigth|fc1.weight", good.at("fc1.weigth")),
    FAILS_ANYWHERE(conv_option, Value, "groups", nn::Conv2d(3, 8, 3, {.groups = 2})),
    FAILS_ANYWHERE(dropout_option, Value, "Dropout|1.5", nn::Dropout(1.5)),
    FAILS_ANYWHERE(heads_option, Value, "heads", nn::MultiheadAttention(10, 3)),
    FAILS_ANYWHERE(padding_option, Index, "padding_idx", nn::Embedding(4, 2, {.padding_idx = 9})),
    FAILS_ANYWHERE(no_parameters, Value, "SGD|no parameters|TD_REGISTER", optim::SGD(Bare().parameters())),
  });
  // A load that failed has changed nothing.
  StateDict now = net.state_dict();
  for (const auto& [name, value] : good) EXPECT_EQ(now.at(name).to_vector<float>(), value.to_vector<float>()) << name;
}

TEST(MustFail, Optimizers) {
  Small net;
  net.parameters();
  optim::AdamW opt(net.parameters(), {.lr = 1e-2});
  StateDict good = opt.state_dict(), missing = good, extra = good, shape = good;
  missing.erase("fc1.bias.exp_avg");
  extra["fc9.weight.exp_avg"] = ones({1});
  shape["fc1.bias.exp_avg"] = ones({9});
  check({
    FAILS_ANYWHERE(optimizer_lr, Value, "AdamW|lr|-1", optim::AdamW(net.parameters(), {.lr = -1})),
    FAILS_ANYWHERE(optimizer_beta, Value, "beta|1.5", optim::AdamW(net.parameters(), {.betas = {1.5, 0.9}})),
    FAILS_ANYWHERE(optimizer_momentum, Value, "nesterov|momentum", optim::SGD(net.parameters(), {.nesterov = true})),
    FAILS_ANYWHERE(optimizer_twice, Value, "twice|fc1.weight", optim::SGD({net.fc1.weight, net.fc1.weight})),
    FAILS_ANYWHERE(optimizer_missing, Value, "fc1.bias.exp_avg", opt.load_state_dict(missing)),
    FAILS_ANYWHERE(optimizer_unknown, Value, "fc9.weight.exp_avg", opt.load_state_dict(extra)),
    FAILS_ANYWHERE(optimizer_shape, Shape, "fc1.bias.exp_avg|[3]|[9]", opt.load_state_dict(shape)),
  });
  for (const auto& [name, value] : opt.state_dict()) EXPECT_EQ(value.to_vector<double>(), good.at(name).to_vector<double>()) << name;
}

TEST(MustFail, Data) {
  data::TensorDataset set(ones({6, 2}), zeros({6}, int64));
  auto run = [](auto loader) { for (auto batch : loader) (void)batch; };
  struct Ragged {
    int64_t size() const { return 4; }
    Tensor get(int64_t i) const { return ones({i + 1}); }
  };
  check({
    FAILS_ANYWHERE(dataset_sizes, Shape, "TensorDataset|[6, 2]|[5]", data::TensorDataset(ones({6, 2}), zeros({5}))),
    FAILS_ANYWHERE(sample_index, Index, "sample 6|6", set.get(6)),
    FAILS_ANYWHERE(batch_size, Value, "batch_size|0", data::DataLoader(set, {.batch_size = 0})),
    FAILS_ANYWHERE(workers, Value, "num_workers|-2", data::DataLoader(set, {.num_workers = -2})),
    FAILS_ANYWHERE(sampler_index, Index, "7", run(data::DataLoader(set, {.sampler = [](int64_t) { return std::vector<int64_t>{0, 7}; }}))),
    FAILS_ANYWHERE(ragged, Shape, "[1]|[2]", run(data::DataLoader(Ragged(), {.batch_size = 2}))),
    FAILS_ANYWHERE(fold, Value, "fold 7", data::Digits({.fold = 7})),
    FAILS_ANYWHERE(mnist_null, Io, "MNIST", data::MNIST(static_cast<const char*>(nullptr))),
    FAILS_ANYWHERE(mnist_missing, Io, "MNIST|/no/such/folder", data::MNIST("/no/such/folder")),
    FAILS_ANYWHERE(weights, Value, "-1", data::weighted_order({1, -1}, 2, 0, 0)),
  });
}
// clang-format on

}  // namespace
}  // namespace tandem::must_fail
