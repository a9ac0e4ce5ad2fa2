// SPDX-License-Identifier: Apache-2.0
// ONNX export of any traced function or module: inference, or a whole training step. Parameters
// keep their names and go to a separate safetensors file, to which the model's external data
// points; both files can be used on their own. docs/onnx.md describes how state is exported.
#pragma once

#include <string>
#include <vector>

#include "tandem/base/files/file.h"
#include "tandem/compile/compile.h"
#include "tandem/onnx/onnx.h"
#include "tandem/tensor/state_dict.h"

namespace tandem::onnx {

struct OnnxExportOptions {
  std::vector<std::string> input_names = {};   ///< "x", or "x0", "x1", ...
  std::vector<std::string> output_names = {};  ///< "y", or "y0", "y1", ...
  /// Dimensions that stay symbolic, by name.
  std::vector<DynamicDim> dynamic = {};
  int opset = 18;  ///< 17 to 22
  /// Name of the weights file next to the model; "": the model's, with .safetensors. A file that
  /// already holds these weights is not rewritten.
  std::string weights = "";
  /// Weights in a separate file; otherwise inside the model, up to 2 GB.
  bool external_data = true;
  /// Extra contents of the weights file: for a module its whole state_dict.
  StateDict state = {};
  /// Read the model back and run it on the examples: throws when an output differs by more than
  /// atol + rtol times the expected value.
  bool verify = true;
  double rtol = 1e-4, atol = 1e-5;
};

struct TD_API OnnxExportReport {
  size_t nodes = 0, initializers = 0;
  uint64_t model_bytes = 0, weight_bytes = 0;
  /// Difference between the model read back and the function, over all outputs, and relative to the
  /// largest value of the output. Negative: not compared.
  double largest_error = -1, relative_error = -1;
  /// The model draws random numbers: they differ from the function's, and outputs were only
  /// compared by shape and dtype.
  bool random = false;
  /// Rows without an ONNX equivalent; the model calls them in the domain "tandem".
  std::vector<std::string> custom_ops;
  /// Equalities that sizes left open have to keep, such as "(height%32) = 0": no ONNX model can
  /// check them.
  std::vector<std::string> conditions;
  /// Cells that the function updates: an input with its current value, and the output that becomes
  /// the next call's input. The model names them too: OnnxModel::states().
  std::vector<OnnxState> states;
  std::string to_string() const;
};

/// The same for a function over tensors. Throws Unsupported for what no file can express (user
/// functions as derivatives, a size that must be a number), Value for an opset out of range, Io,
/// and what `f` throws.
TD_API OnnxExportReport export_onnx_function(
    FunctionRef<std::vector<Tensor>(std::span<const Tensor>)> f, std::span<const Tensor> examples,
    const FilePath& path, const OnnxExportOptions& options = {});
/// The Specs of the examples with the open dimensions as symbols: what the function is traced on.
TD_API std::vector<Spec> export_specs(std::span<const Tensor> examples,
                                      const std::vector<DynamicDim>& dynamic);

namespace detail {
template <class T>
struct AsTuple {
  static std::tuple<T> of(const T& v) { return std::tuple<T>(v); }
};
template <class... T>
struct AsTuple<std::tuple<T...>> {
  static std::tuple<T...> of(const std::tuple<T...>& v) { return v; }
};
/// f of x: a call, or forward() of a module that is not callable.
template <class F, class... X>
decltype(auto) call_or_forward(F& f, X&&... x) {
  if constexpr (std::is_invocable_v<F&, X...>)
    return f(std::forward<X>(x)...);
  else
    return f.forward(std::forward<X>(x)...);
}
}  // namespace detail

/// Write `f` (a function, a lambda, a module's forward) as the ONNX model `path`. `example` is its
/// argument, or a std::tuple of its arguments: tensors, or vectors and structs of them, as
/// compile() takes them. A module is exported in the mode it is in, without derivatives, with its
/// whole state_dict in the file of weights.
///     export_onnx(net, randn({1, 3, 224, 224}), "net.onnx", {.dynamic = {{0, "batch"}}});
template <class F, class A>
OnnxExportReport export_onnx(F&& f, const A& example, const FilePath& path,
                             OnnxExportOptions options = {}) {
  const auto args = detail::AsTuple<A>::of(example);
  using Args = std::decay_t<decltype(args)>;
  tandem::detail::CallParts flat;
  tandem::detail::Packed<Args>::flatten(args, flat);
  constexpr bool kModule = requires { f.state_dict(); };
  if constexpr (kModule) {
    for (const auto& [name, t] : f.state_dict())
      if (!options.state.contains(name)) options.state[name] = t;
  }
  const auto body = [&](std::span<const Tensor> in) {
    NoGradGuard no_grad(kModule || !is_grad_enabled());
    tandem::detail::CallReader reader{in.data(), flat.key.data()};
    auto rebuilt = tandem::detail::Packed<Args>::rebuild(reader);
    const auto call = [&f](auto&&... x) {
      return detail::call_or_forward(f, std::forward<decltype(x)>(x)...);
    };
    tandem::detail::CallParts out;
    using Result = std::decay_t<decltype(std::apply(call, rebuilt))>;
    tandem::detail::Packed<Result>::flatten(std::apply(call, std::move(rebuilt)), out);
    return std::move(out.tensors);
  };
  return export_onnx_function(body, flat.tensors, path, options);
}
}  // namespace tandem::onnx
