// SPDX-License-Identifier: Apache-2.0
// Function transforms: grad, value_and_grad, vjp, jvp, vmap, jacobian, checkpoint, functional_call,
// custom_vjp. They nest freely. A function takes Tensors and returns a Tensor, a vector, pair or
// tuple of them or a result such as sort()'s; the templates here only wrap it.
#pragma once

#include <functional>
#include <tuple>
#include <utility>
#include <vector>

#include "tandem/base/function_ref.h"
#include "tandem/grad/autograd.h"
#include "tandem/graph/signature.h"

namespace tandem {

using Tensors = std::vector<Tensor>;
using TensorFn = FunctionRef<Tensors(std::span<const Tensor>)>;

namespace detail {
inline Tensors as_tensors(Tensor t) { return {std::move(t)}; }
inline Tensors as_tensors(Tensors t) { return t; }
template <class... T>
Tensors as_tensors(std::tuple<T...> t) {
  return std::apply([](auto&&... x) { return Tensors{std::move(x)...}; }, std::move(t));
}
inline Tensors as_tensors(std::pair<Tensor, Tensor> t) { return {t.first, t.second}; }
template <HasFields R>
Tensors as_tensors(R r) {
  Tensors out;
  auto take = [&out](const char*, Tensor& t) { out.push_back(std::move(t)); };
  r.fields(take);
  return out;
}
/// The inverse of as_tensors.
template <HasFields R>
R from_tensors(Tensors t) {
  R r;
  auto put = [next = t.begin()](const char*, Tensor& field) mutable { field = std::move(*next++); };
  r.fields(put);
  return r;
}

template <class F, size_t... I>
Tensors spread(F& f, std::span<const Tensor> x, std::index_sequence<I...>) {
  return as_tensors(f(x[I]...));
}
/// `f` as a function of a list of N tensors.
template <size_t N, class F>
auto list_fn(F& f) {
  return [&f](std::span<const Tensor> x) { return spread(f, x, std::make_index_sequence<N>{}); };
}

struct ValueAndGrads {
  Tensors value, grads;
};
TD_API ValueAndGrads value_and_grads(TensorFn f, std::span<const Tensor> x,
                                     const std::vector<int>& argnums, SourceLocation loc);
TD_API Tensors vmap_call(TensorFn f, std::span<const Tensor> x, const std::vector<int>& in_dims,
                         int out_dim, SourceLocation loc);
TD_API Tensors checkpoint_call(std::function<Tensors(std::span<const Tensor>)> f,
                               std::span<const Tensor> x, SourceLocation loc);
TD_API Tensors jvp_call(TensorFn f, std::span<const Tensor> x, std::span<const Tensor> v,
                        Tensors& value, SourceLocation loc);
TD_API Tensor jacobian_call(TensorFn f, std::span<const Tensor> x, int argnum, SourceLocation loc);

template <class F>
concept Function = !std::is_convertible_v<F, Tensor> && !std::is_same_v<std::decay_t<F>, Tensors>;
}  // namespace detail

/// A function that returns df/dx of argument `argnum` of f (one-element result), by reverse mode.
/// It can be differentiated and vmapped again.
template <detail::Function F>
auto grad(F f, int argnum = 0, SourceLocation loc = SourceLocation::here()) {
  return [f = std::move(f), argnum, loc](const auto&... x) mutable -> Tensor {
    const Tensor xs[] = {static_cast<Tensor>(x)...};
    auto list = detail::list_fn<sizeof...(x)>(f);
    return detail::value_and_grads(list, xs, {argnum}, loc).grads[0];
  };
}
/// The same for several arguments: returns one gradient per entry of `argnums`.
template <detail::Function F>
auto grad(F f, std::vector<int> argnums, SourceLocation loc = SourceLocation::here()) {
  return
      [f = std::move(f), argnums = std::move(argnums), loc](const auto&... x) mutable -> Tensors {
        const Tensor xs[] = {static_cast<Tensor>(x)...};
        auto list = detail::list_fn<sizeof...(x)>(f);
        return detail::value_and_grads(list, xs, argnums, loc).grads;
      };
}
/// (f(x...), df/dx of argument `argnum`).
template <detail::Function F>
auto value_and_grad(F f, int argnum = 0, SourceLocation loc = SourceLocation::here()) {
  return [f = std::move(f), argnum, loc](const auto&... x) mutable -> std::pair<Tensor, Tensor> {
    const Tensor xs[] = {static_cast<Tensor>(x)...};
    auto list = detail::list_fn<sizeof...(x)>(f);
    auto r = detail::value_and_grads(list, xs, {argnum}, loc);
    return {r.value[0], r.grads[0]};
  };
}
template <detail::Function F>
auto value_and_grad(F f, std::vector<int> argnums, SourceLocation loc = SourceLocation::here()) {
  return [f = std::move(f), argnums = std::move(argnums),
          loc](const auto&... x) mutable -> std::pair<Tensor, Tensors> {
    const Tensor xs[] = {static_cast<Tensor>(x)...};
    auto list = detail::list_fn<sizeof...(x)>(f);
    auto r = detail::value_and_grads(list, xs, argnums, loc);
    return {r.value[0], r.grads};
  };
}

/// A value and the function that maps a gradient of it to gradients of the inputs; the function may
/// be called more than once.
struct TD_API Vjp {
  Tensors value;
  Tensors operator()(const Tensors& g, SourceLocation loc = SourceLocation::here()) const;
  Tensor operator()(const Tensor& g, SourceLocation loc = SourceLocation::here()) const;
  Tensors inputs;
  bool create_graph = false;
};
TD_API Vjp vjp(TensorFn f, const Tensors& x, SourceLocation loc = SourceLocation::here());

/// (f(x), J v): the derivative of f at x along v, by applying reverse mode twice.
template <detail::Function F>
std::pair<Tensor, Tensor> jvp(F f, const Tensor& x, const Tensor& v,
                              SourceLocation loc = SourceLocation::here()) {
  auto list = detail::list_fn<1>(f);
  Tensors value;
  Tensors out = detail::jvp_call(list, {&x, 1}, {&v, 1}, value, loc);
  return {value[0], out[0]};
}
template <detail::Function F>
std::pair<Tensors, Tensors> jvp(F f, const Tensors& x, const Tensors& v,
                                SourceLocation loc = SourceLocation::here()) {
  Tensors value;
  auto list = [&f](std::span<const Tensor> xs) {
    return detail::as_tensors(f(Tensors(xs.begin(), xs.end())));
  };
  Tensors out = detail::jvp_call(list, x, v, value, loc);
  return {std::move(value), std::move(out)};
}

/// [f(x).shape..., x.shape...]: all derivatives of f at x.
template <detail::Function F>
Tensor jacobian(F f, const Tensor& x, SourceLocation loc = SourceLocation::here()) {
  auto list = detail::list_fn<1>(f);
  return detail::jacobian_call(list, {&x, 1}, 0, loc);
}
/// [x.shape..., x.shape...]: second derivatives of a one-element f.
template <detail::Function F>
Tensor hessian(F f, const Tensor& x, SourceLocation loc = SourceLocation::here()) {
  return jacobian(grad(std::move(f), 0, loc), x, loc);
}

/// Marks an argument of vmap that has no batch dimension.
inline constexpr int kNoBatchDim = INT32_MIN;

/// A function that applies f to every slice along dimension `in_dim` of each argument and stacks
/// the results along `out_dim`, as one batched computation. f is traced on one example: it cannot
/// branch on values.
template <detail::Function F>
auto vmap(F f, std::vector<int> in_dims = {}, int out_dim = 0,
          SourceLocation loc = SourceLocation::here()) {
  return [f = std::move(f), in_dims = std::move(in_dims), out_dim, loc](const auto&... x) mutable {
    const Tensor xs[] = {static_cast<Tensor>(x)...};
    auto list = detail::list_fn<sizeof...(x)>(f);
    Tensors out = detail::vmap_call(list, xs, in_dims, out_dim, loc);
    using R = std::decay_t<decltype(f(static_cast<Tensor>(x)...))>;
    if constexpr (std::is_same_v<R, Tensors>)
      return out;
    else if constexpr (std::is_same_v<R, std::pair<Tensor, Tensor>>)
      return R{out[0], out[1]};
    else if constexpr (detail::HasFields<R>)
      return detail::from_tensors<R>(std::move(out));
    else if constexpr (std::is_convertible_v<R, Tensor>)
      return out[0];
    else
      return out;
  };
}

/// f(x...) without keeping what its inner derivatives need: the backward pass recomputes f, with
/// the same cell values and random draws as the first run.
template <class F, class... X>
Tensor checkpoint(F f, const X&... x) {
  const Tensor xs[] = {static_cast<Tensor>(x)...};
  auto list = [f = std::move(f)](std::span<const Tensor> v) mutable {
    return detail::spread(f, v, std::make_index_sequence<sizeof...(X)>{});
  };
  return detail::checkpoint_call(std::move(list), xs, SourceLocation::here())[0];
}

/// Call f while every read of a cell in `values` yields the tensor given for it.
TD_API Tensors functional_call(const std::vector<std::pair<Param, Tensor>>& values,
                               FunctionRef<Tensors()> f);

/// A function with a custom derivative. `forward(x)` returns up to four tensors, computed without
/// recording; `backward(x, y, g)` returns one gradient per input (undefined: none).
using ForwardFn = std::function<Tensors(std::span<const Tensor> x)>;
using BackwardFn = std::function<Tensors(std::span<const Tensor> x, std::span<const Tensor> y,
                                         std::span<const Tensor> g)>;
TD_API Tensors custom_vjp_call(const ForwardFn& forward, const BackwardFn& backward,
                               std::span<const Tensor> x,
                               SourceLocation loc = SourceLocation::here());
inline auto custom_vjp(ForwardFn forward, BackwardFn backward,
                       SourceLocation loc = SourceLocation::here()) {
  return [forward = std::move(forward), backward = std::move(backward), loc](const auto&... x) {
    const Tensor xs[] = {static_cast<Tensor>(x)...};
    return custom_vjp_call(forward, backward, xs, loc)[0];
  };
}

struct GradcheckOptions {
  double eps = 1e-6, atol = 1e-5, rtol = 1e-3;
  int order = 1;  ///< 2 also checks the gradient of the gradient
};
/// Compare the gradient of f at f64 inputs with central differences along every element. Throws
/// Value with input, element and both numbers where they differ; returns true.
TD_API bool gradcheck(TensorFn f, const Tensors& inputs, GradcheckOptions options = {},
                      SourceLocation loc = SourceLocation::here());

}  // namespace tandem
