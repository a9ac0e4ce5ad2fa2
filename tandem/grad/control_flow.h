// SPDX-License-Identifier: Apache-2.0
// cond, while_loop and scan: control flow that depends on values. In eager mode they are plain
// branches and loops; in a trace the bodies become graphs and the call a single op with a
// derivative and a batch rule. Values that a body captures are operands of that op.
#pragma once

#include "tandem/grad/transforms.h"
#include "tandem/graph/signature.h"

namespace tandem {

struct WhileOptions {
  /// Stop after this many steps even if cond_fn holds; 0: no bound. Derivatives require a bound.
  int64_t max_steps = 0;
};
struct ScanOptions {
  bool reverse = false;  ///< from the last slice to the first; ys keep the order of xs
  int64_t length = -1;   ///< number of steps if xs has no tensor
};

namespace detail {
TD_API Tensors cond_call(const Tensor& pred, TensorFn true_fn, TensorFn false_fn,
                         std::span<const Tensor> operands, SourceLocation loc);
TD_API Tensors while_call(TensorFn cond_fn, TensorFn body_fn, std::span<const Tensor> carry,
                          WhileOptions options, SourceLocation loc);
/// f(carry..., slices of xs...) returns carry..., ys...; returns the last carry and the stacked ys.
TD_API Tensors scan_call(TensorFn f, std::span<const Tensor> carry, std::span<const Tensor> xs,
                         ScanOptions options, SourceLocation loc);
[[noreturn]] TD_API void fail_structure(const char* op, const char* what, SourceLocation loc);

/// Calls f with arguments of types T... assembled from `in` and `key`.
template <class... T, class F>
decltype(auto) call_packed(F& f, std::span<const Tensor> in, const std::string& key) {
  CallReader reader{in.data(), key.data()};
  typename Packed<std::tuple<T...>>::Type args = Packed<std::tuple<T...>>::rebuild(reader);
  return std::apply(f, std::move(args));
}
}  // namespace detail

/// true_fn(operands...) if pred (a bool of one element) holds, else false_fn(operands...). Both
/// must return the same structure, shapes and dtypes; only the chosen one computes. In a trace, and
/// in eager code that wants a gradient, both are called once on tensors without values; in eager
/// code a function that reads values is then called as usual.
template <detail::Function T, detail::Function F, class... X>
auto cond(const Operand& pred, T true_fn, F false_fn, const X&... operands) {
  detail::CallParts in;
  (detail::Packed<X>::flatten(operands, in), ...);
  using R = std::invoke_result_t<T&, typename detail::Packed<X>::Type...>;
  static_assert(std::is_same_v<R, std::invoke_result_t<F&, typename detail::Packed<X>::Type...>>,
                "cond: both functions must return the same type");
  std::string key;
  bool called = false;
  const auto branch = [&](auto& f) {
    return [&, &f = f](std::span<const Tensor> x) {
      detail::CallParts out;
      detail::Packed<R>::flatten(detail::call_packed<X...>(f, x, in.key), out);
      if (called && key != out.key)
        detail::fail_structure("cond", "true_fn and false_fn return different structures",
                               pred.loc());
      called = true;
      key = std::move(out.key);
      return std::move(out.tensors);
    };
  };
  auto t = branch(true_fn);
  auto f = branch(false_fn);
  Tensors out = detail::cond_call(pred.tensor(), t, f, in.tensors, pred.loc());
  detail::CallReader reader{out.data(), key.data()};
  return detail::Packed<R>::rebuild(reader);
}

/// carry = body_fn(carry) as long as cond_fn(carry) (a bool of one element) holds. The carry is a
/// tensor, or a tuple, vector or struct of them, whose shapes and dtypes must not change. Without
/// max_steps a derivative through the loop throws Unsupported; with it, eager code that wants a
/// gradient counts the steps first, then records the loop as a trace does.
template <detail::Function P, detail::Function F, class C>
auto while_loop(P cond_fn, F body_fn, const C& carry, WhileOptions options = {},
                SourceLocation loc = SourceLocation::here()) {
  detail::CallParts in;
  detail::Packed<C>::flatten(carry, in);
  const auto p = [&](std::span<const Tensor> x) {
    return Tensors{detail::call_packed<C>(cond_fn, x, in.key)};
  };
  const auto step = [&](std::span<const Tensor> x) {
    detail::CallParts out;
    detail::Packed<C>::flatten(detail::call_packed<C>(body_fn, x, in.key), out);
    if (out.key != in.key) detail::fail_structure("while_loop", "the carry changes", loc);
    return std::move(out.tensors);
  };
  Tensors out = detail::while_call(p, step, in.tensors, options, loc);
  detail::CallReader reader{out.data(), in.key.data()};
  return detail::Packed<C>::rebuild(reader);
}

/// For each slice x of xs along dimension 0, f(carry, x) returns a pair (carry, y). Returns the
/// last carry and the ys stacked along dimension 0. carry, xs and y are tensors, or tuples, vectors
/// or structs of them; carry keeps its shapes and dtypes. Eager code that wants a gradient calls f
/// once on tensors without values, as a trace does. Like jax.lax.scan.
template <detail::Function F, class C, class X>
auto scan(F f, const C& carry, const X& xs, ScanOptions options = {},
          SourceLocation loc = SourceLocation::here()) {
  detail::CallParts in, slices;
  detail::Packed<C>::flatten(carry, in);
  detail::Packed<X>::flatten(xs, slices);
  using R =
      std::invoke_result_t<F&, typename detail::Packed<C>::Type, typename detail::Packed<X>::Type>;
  using Y = std::decay_t<std::tuple_element_t<1, R>>;
  std::string y_key;
  const auto step = [&](std::span<const Tensor> x) {
    R r = detail::call_packed<C, X>(f, x, in.key + slices.key);
    detail::CallParts out, y;
    detail::Packed<C>::flatten(std::get<0>(r), out);
    if (out.key != in.key) detail::fail_structure("scan", "the carry changes", loc);
    detail::Packed<Y>::flatten(std::get<1>(r), y);
    y_key = std::move(y.key);
    for (Tensor& t : y.tensors) out.tensors.push_back(std::move(t));
    return std::move(out.tensors);
  };
  Tensors out = detail::scan_call(step, in.tensors, slices.tensors, options, loc);
  detail::CallReader c{out.data(), in.key.data()};
  auto last = detail::Packed<C>::rebuild(c);
  detail::CallReader y{out.data() + in.tensors.size(), y_key.data()};
  return std::pair(std::move(last), detail::Packed<Y>::rebuild(y));
}

// ---- rows: bodies are graphs in the attributes. A row has at most four outputs, so results of one
// dtype are concatenated into one flat output.

struct ControlAttrs {
  Ref<RefCounted> body;   ///< Graph: the step, or for cond the branch taken when pred holds
  Ref<RefCounted> other;  ///< Graph: for while_loop its cond_fn, for cond the other branch
  int64_t carries = 0;    ///< inputs that are carried; for cond the operands
  int64_t sequences = 0;  ///< for scan: inputs that are sliced
  IntList length = {};    ///< for scan
  bool reverse = false;
  bool saves = false;  ///< for scan: the first ys are the carries at the start of each step
  int64_t max_steps = 0;
  template <class V>
  void fields(V& v) {
    v("body", body);
    v("other", other);
    v("carries", carries);
    v("sequences", sequences);
    v("length", length);
    v("reverse", reverse);
    v("saves", saves);
    v("max_steps", max_steps);
  }
};

namespace op {
extern TD_API const OpDef cond, while_loop, scan;
}
TD_API std::span<const OpDef* const> control_flow_rows();

namespace detail {
/// Runs one of the rows with `body` and `other` in place of its graphs.
TD_API void run_control(const KernelCall& call, TensorFn body, TensorFn other);
/// Values for the symbols in the inputs of body (and other) of such a call.
TD_API std::vector<std::pair<Dim, int64_t>> control_symbols(const KernelCall& call, bool other);
}  // namespace detail

}  // namespace tandem
