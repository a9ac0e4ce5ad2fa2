// SPDX-License-Identifier: Apache-2.0
// grad, vjp, jvp, jacobian, functional_call and custom_vjp over the backward walk.
#include "tandem/grad/transforms.h"

#include "tandem/grad/engine_internal.h"
#include "tandem/graph/apply.h"
#include "tandem/graph/trace.h"
#include "tandem/ops/control.h"
#include "tandem/ops/view/create.h"
#include "tandem/ops/view/view.h"

namespace tandem {
namespace {

// A new variable with x's value, connected to x where an outer level (or a trace) may differentiate
// through it.
Tensor fresh_variable(const Tensor& x, bool outer_grad, SourceLocation loc) {
  TD_CHECK(x.defined(), Value, "an argument is an undefined tensor");
  TD_CHECK(is_floating(x.dtype()), DType, "only floating arguments have gradients, this is {}",
           to_string(x.dtype()));
  if (values_hidden() || (outer_grad && x.requires_grad())) {
    EnableGradGuard on;
    Tensor v = identity(x, loc);
    v.impl()->flags |= detail::kRequiresGrad;
    return v;
  }
  Tensor v = detached_alias(x);
  return std::move(v).requires_grad_();
}

bool differentiate_again(bool outer_grad, std::span<const Tensor> args, const Tensors& value,
                         std::span<const Tensor> variables) {
  if (values_hidden()) return true;
  if (!outer_grad) return false;
  for (const Tensor& a : args)
    if (a.requires_grad()) return true;
  return depends_on_others(value, variables);
}

Tensor zeros_if_undefined(Tensor g, const Tensor& like, SourceLocation loc) {
  return g.defined() ? std::move(g) : zeros_like(like, loc);
}

class Redirect {
 public:
  explicit Redirect(std::vector<std::pair<const Cell*, Tensor>>& map)
      : old_(context().redirect), slow_(context().slow) {
    if (old_) map.insert(map.end(), old_->begin(), old_->end());
    context().redirect = &map;
    context().slow |= kRedirect;
  }
  ~Redirect() {
    context().redirect = old_;
    context().slow = (context().slow & ~uint32_t{kRedirect}) | (slow_ & kRedirect);
  }
  Redirect(const Redirect&) = delete;
  Redirect& operator=(const Redirect&) = delete;

 private:
  std::vector<std::pair<const Cell*, Tensor>>* old_;
  uint32_t slow_;
};

struct UserVjp : VjpClosure {
  BackwardFn fn;
  explicit UserVjp(BackwardFn f) : fn(std::move(f)) {}
  Tensors backward(std::span<const Tensor> x, std::span<const Tensor> y,
                   std::span<const Tensor> g) override {
    return fn(x, y, g);
  }
};

}  // namespace

namespace detail {

ValueAndGrads value_and_grads(TensorFn f, std::span<const Tensor> x,
                              const std::vector<int>& argnums, SourceLocation loc) try {
  bool outer = is_grad_enabled();
  Tensors args(x.begin(), x.end()), variables;
  for (int a : argnums) {
    TD_CHECK(a >= 0 && a < static_cast<int>(x.size()), Index, "argument {} of a function of {}", a,
             x.size());
    args[a] = fresh_variable(x[a], outer, loc);
    variables.push_back(args[a]);
  }
  Tensors value;
  {
    EnableGradGuard on;
    value = f(args);
  }
  TD_CHECK(!value.empty(), Value, "the function returned nothing");
  std::span<const Tensor> root(value.data(), 1);
  Tensor g = root_gradient(value[0], {}, loc);
  bool again = differentiate_again(outer, x, value, variables);
  Tensors grads(variables.size());
  if (value[0].requires_grad())
    grads = run_backward({root, {&g, 1}, variables, false, again, again, loc});
  for (size_t i = 0; i < grads.size(); ++i)
    grads[i] = zeros_if_undefined(std::move(grads[i]), variables[i], loc);
  if (!again)
    for (Tensor& v : value) v = v.detach();
  return {std::move(value), std::move(grads)};
} catch (const Error& e) {
  rethrow_at(e, "grad", loc);
}

Tensors jvp_call(TensorFn f, std::span<const Tensor> x, std::span<const Tensor> v, Tensors& value,
                 SourceLocation loc) try {
  TD_CHECK(x.size() == v.size(), Value, "expected one direction per input: {} and {}", x.size(),
           v.size());
  bool outer = is_grad_enabled();
  Tensors args;
  for (size_t i = 0; i < x.size(); ++i) {
    TD_CHECK(v[i].shape() == x[i].shape(), Shape, "direction {} is {}, the input {}", i,
             v[i].shape().to_string(), x[i].shape().to_string());
    args.push_back(fresh_variable(x[i], outer, loc));
  }
  Tensors out;
  EnableGradGuard on;
  value = f(args);
  for (const Tensor& y : value) {
    if (!y.requires_grad()) {
      out.push_back(zeros_like(y, loc));
      continue;
    }
    // g(u) = J^T u is linear in u; its derivative along v is J v.
    Tensor u = fresh_variable(zeros_like(y, loc), false, loc);
    Tensors g = run_backward({{&y, 1}, {&u, 1}, args, false, true, true, loc});
    Tensors roots, seeds;
    for (size_t i = 0; i < g.size(); ++i) {
      if (!g[i].defined() || !g[i].requires_grad()) continue;
      roots.push_back(g[i]);
      seeds.push_back(v[i]);
    }
    bool again = values_hidden() || outer;
    Tensors j(1);
    if (!roots.empty()) j = run_backward({roots, seeds, {&u, 1}, false, true, again, loc});
    out.push_back(zeros_if_undefined(std::move(j[0]), y, loc));
  }
  if (!outer && !values_hidden())
    for (Tensor& t : out) t = t.detach();
  return out;
} catch (const Error& e) {
  rethrow_at(e, "jvp", loc);
}

Tensor jacobian_call(TensorFn f, std::span<const Tensor> x, int argnum, SourceLocation loc) try {
  bool outer = is_grad_enabled();
  Tensors args(x.begin(), x.end());
  args[argnum] = fresh_variable(x[argnum], outer, loc);
  const Tensor& in = args[argnum];
  EnableGradGuard on;
  Tensors value = f(args);
  const Tensor& y = value[0];
  bool again = differentiate_again(outer, x, value, {&in, 1});
  int64_t n = y.numel();
  Tensors rows;
  Shape full = y.shape();
  for (Dim d : in.shape()) full.push_back(d);
  for (int64_t i = 0; i < n; ++i) {
    std::vector<double> one(static_cast<size_t>(n), 0.0);
    one[static_cast<size_t>(i)] = 1.0;
    Tensor g = reshape(tensor(one).to(y.dtype()), y.shape(), loc);
    Tensors r(1);
    if (y.requires_grad()) r = run_backward({{&y, 1}, {&g, 1}, {&in, 1}, false, true, again, loc});
    rows.push_back(zeros_if_undefined(std::move(r[0]), in, loc));
  }
  if (rows.empty()) return zeros(full, y.dtype(), loc);
  Tensor j = reshape(stack(rows, 0, loc), full, loc);
  return again ? j : j.detach();
} catch (const Error& e) {
  rethrow_at(e, "jacobian", loc);
}

}  // namespace detail

Vjp vjp(TensorFn f, const Tensors& x, SourceLocation loc) try {
  bool outer = is_grad_enabled();
  Vjp r;
  for (const Tensor& t : x) r.inputs.push_back(fresh_variable(t, outer, loc));
  EnableGradGuard on;
  r.value = f(r.inputs);
  r.create_graph = differentiate_again(outer, x, r.value, r.inputs);
  return r;
} catch (const Error& e) {
  rethrow_at(e, "vjp", loc);
}

Tensors Vjp::operator()(const Tensors& g, SourceLocation loc) const {
  TD_CHECK(g.size() == value.size(), Value, "vjp expects {} gradients, got {}", value.size(),
           g.size());
  Tensors roots, grads;
  for (size_t i = 0; i < g.size(); ++i)
    if (value[i].requires_grad()) {
      roots.push_back(value[i]);
      grads.push_back(root_gradient(value[i], g[i], loc));
    }
  Tensors out(inputs.size());
  if (!roots.empty()) out = run_backward({roots, grads, inputs, false, true, create_graph, loc});
  for (size_t i = 0; i < out.size(); ++i)
    out[i] = zeros_if_undefined(std::move(out[i]), inputs[i], loc);
  return out;
}
Tensor Vjp::operator()(const Tensor& g, SourceLocation loc) const {
  return (*this)(Tensors{g}, loc)[0];
}

Tensors functional_call(const std::vector<std::pair<Param, Tensor>>& values,
                        FunctionRef<Tensors()> f) {
  std::vector<std::pair<const Cell*, Tensor>> map;
  for (const auto& [param, value] : values) {
    TD_CHECK(param.defined() && value.defined(), Value, "functional_call got an empty entry");
    TD_CHECK(value.shape() == param.shape(), Shape, "functional_call: '{}' is {}, the value is {}",
             param.name(), param.shape().to_string(), value.shape().to_string());
    map.emplace_back(param.cell().get(), value);
  }
  Redirect redirect(map);
  return f();
}

Tensors custom_vjp_call(const ForwardFn& forward, const BackwardFn& backward,
                        std::span<const Tensor> x, SourceLocation loc) try {
  Tensors y;
  {
    NoGradGuard no_grad;
    y = forward(x);
  }
  TD_CHECK(!y.empty() && y.size() <= 4, Value, "forward returned {} tensors, 1 to 4 are possible",
           y.size());
  return with_vjp(x, y, make_ref<UserVjp>(backward), loc);
} catch (const Error& e) {
  rethrow_at(e, "custom_vjp", loc);
}

}  // namespace tandem
