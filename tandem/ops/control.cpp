// SPDX-License-Identifier: Apache-2.0
#include "tandem/ops/control.h"

#include <fmt/format.h>

#include <cstdio>

#include "tandem/ops/check_numerics.h"
#include "tandem/ops/function_internal.h"
#include "tandem/ops/stored.h"
#include "tandem/ops/view/strided_copy_internal.h"
#include "tandem/ops/view/view.h"

namespace tandem {
namespace {

double no_cost(const InferCall&) { return 0; }

// A placeholder is created by a trace, which knows its Spec; its attrs determine nothing.
void placeholder_infer(InferCall& c) {
  TD_FAIL(Internal, "'{}' stands for a value given at run time and cannot be called", c.op.name);
}

void constant_infer(InferCall& c) { c.out[0] = constant_spec(c.get_attrs<ConstantAttrs>()); }
void constant_loops(const KernelCall& k) {
  const Tensor value = constant_value(k.get_attrs<ConstantAttrs>());
  detail::copy_array(k.out[0], array_of(value));
}

void copy_infer(InferCall& c) { c.out[0] = c.in[0]; }
bool same_strides(const void*, const Shape&, const Strides& is, const Shape&, Strides& os,
                  int64_t&) {
  os = is;
  return true;
}
void copy_loops(const KernelCall& k) { detail::copy_array(k.out[0], k.in[0]); }
void pass_vjp(VjpCall& c) { c.results[0] = c.grad(); }
void identity_batch(BatchCall& c) { c.out[0] = call(op::identity, nullptr, c.node.loc, c.in[0]); }

// ---- with_vjp
int forward_outputs(const WithVjpAttrs& a, int n_in) { return n_in - static_cast<int>(a.n); }

// Outputs beyond those of the forward function are empty: a row has a fixed number of outputs.
void with_vjp_infer(InferCall& c) {
  const WithVjpAttrs& a = c.get_attrs<WithVjpAttrs>();
  const int m = forward_outputs(a, c.n_in());
  TD_CHECK(a.n >= 0 && m >= 1 && m <= kMaxOpOuts, Value,
           "a function with its own derivative returns 1 to {} tensors, got {}", kMaxOpOuts, m);
  for (int i = 0; i < kMaxOpOuts; ++i)
    c.out[static_cast<size_t>(i)] =
        i < m ? c.in[static_cast<size_t>(a.n + i)] : Spec(DType::b8, Shape(0), c.in[0].device);
}
void with_vjp_loops(const KernelCall& k) {
  const WithVjpAttrs& a = k.get_attrs<WithVjpAttrs>();
  const int m = forward_outputs(a, k.n_in);
  for (int i = 0; i < m; ++i) detail::copy_array(k.out[i], k.in[a.n + i]);
}
void with_vjp_vjp(VjpCall& c) {
  const WithVjpAttrs& a = c.get_attrs<WithVjpAttrs>();
  const int m = forward_outputs(a, c.n_in());
  std::vector<Tensor> x, y, g;
  for (int i = 0; i < a.n; ++i) x.push_back(c.in(i));
  for (int i = 0; i < m; ++i) {
    y.push_back(c.in(static_cast<int>(a.n) + i));
    g.push_back(c.grad(i));
  }
  auto* closure = static_cast<VjpClosure*>(a.closure.get());
  std::vector<Tensor> d = closure->backward(x, y, g);
  TD_CHECK(d.size() == x.size(), Value,
           "the derivative returned {} tensors for {} inputs\nReturn an undefined Tensor for none.",
           d.size(), x.size());
  for (size_t i = 0; i < d.size(); ++i) {
    TD_CHECK(!d[i].defined() || d[i].shape() == c.in_shape(static_cast<int>(i)), Shape,
             "the derivative of input {} is {}, the input {}", i, d[i].shape().to_string(),
             c.in_shape(static_cast<int>(i)).to_string());
    if (c.needs(static_cast<int>(i))) c.results[i] = std::move(d[i]);
  }
}

// ---- debug_print
void print_loops(const KernelCall& k) {
  const Array &x = k.in[0], &y = k.out[0];
  detail::copy_array(y, x);
  const Shape shape(std::span<const int64_t>(y.shape, y.rank));
  const Tensor view(Ref<detail::TensorImpl>::adopt(
      detail::new_external(shape, y.dtype, y.data, false, nullptr, nullptr)));
  const std::string& label = k.get_attrs<DebugPrintAttrs>().label;
  const std::string text =
      label.empty() ? to_string(view) + "\n" : label + " " + to_string(view) + "\n";
  std::fputs(text.c_str(), stderr);
}
void print_batch(BatchCall& c) {
  const DebugPrintAttrs a = c.get_attrs<DebugPrintAttrs>();
  c.out[0] = call(op::debug_print, &a, c.node.loc, c.in[0]);
}

constexpr OpDef placeholder(const char* name) {
  return control_row(name, {}).infer(placeholder_infer).flops(no_cost).bytes(no_cost);
}

}  // namespace

namespace op {
constinit const OpDef input = placeholder("input").doc("An argument of a traced function.");
constinit const OpDef capture =
    placeholder("capture").doc("A value that a traced function captures.");
constinit const OpDef cell_read =
    placeholder("cell_read").doc("The value of a Param or Buffer when a traced function starts.");
constinit const OpDef grad_read =
    placeholder("grad_read").doc("The gradient in a slot when a traced function starts.");
constinit const OpDef constant = control_row("constant", {}, fields<ConstantAttrs>())
                                     .flag(kNotDifferentiable)
                                     .infer(constant_infer)
                                     .reference(constant_loops)
                                     .flops(no_cost)
                                     .doc("A value stored in the graph.");
constinit const OpDef identity = view_row("identity", {"x"}, nullptr, same_strides)
                                     .infer(copy_infer)
                                     .vjp(pass_vjp)
                                     .batch(identity_batch)
                                     .reference(copy_loops)
                                     .flag(kPassesSame)
                                     .flops(no_cost)
                                     .bytes(no_cost)
                                     .onnx("Identity")
                                     .doc("The same value as a new tensor.");
constinit const OpDef with_vjp =
    control_row("with_vjp", {"xs*"}, fields<WithVjpAttrs>())
        .outputs({"y", "y1", "y2", "y3"})
        .infer(with_vjp_infer)
        .vjp(with_vjp_vjp, 1)
        .reference(with_vjp_loops)
        .flops(no_cost)
        .doc("Outputs of a function with a user-defined derivative: the last inputs, unchanged.");
constinit const OpDef debug_print =
    control_row("debug_print", {"x"}, fields<DebugPrintAttrs>())
        .flag(kEffect)
        .infer(copy_infer)
        .vjp(pass_vjp)
        .batch(print_batch)
        .reference(print_loops)
        .flops(no_cost)
        .doc("x unchanged; prints it to standard error each time it is computed.");
}  // namespace op

std::span<const OpDef* const> control_rows() {
  static constexpr const OpDef* kRows[] = {
      &op::input,    &op::capture,  &op::cell_read,   &op::grad_read,      &op::constant,
      &op::identity, &op::with_vjp, &op::debug_print, &op::check_numerics,
  };
  return kRows;
}

Tensor identity(const Tensor& x, SourceLocation loc) { return call(op::identity, nullptr, loc, x); }

std::vector<Tensor> with_vjp(std::span<const Tensor> x, std::span<const Tensor> y,
                             Ref<VjpClosure> closure, SourceLocation loc) {
  WithVjpAttrs a{std::move(closure), static_cast<int64_t>(x.size())};
  std::vector<Operand> in;
  in.reserve(x.size() + y.size());
  for (const Tensor& t : x) in.emplace_back(t, loc);
  for (const Tensor& t : y) in.emplace_back(t, loc);
  Tensor out[kMaxOpOuts];
  apply(op::with_vjp, &a, in, out, loc);
  std::vector<Tensor> result;
  for (size_t i = 0; i < y.size(); ++i) result.push_back(std::move(out[i]));
  return result;
}

Tensor debug_print(const Tensor& x, const std::string& label, SourceLocation loc) {
  DebugPrintAttrs a{label};
  return call(op::debug_print, &a, loc, x);
}

}  // namespace tandem
