// SPDX-License-Identifier: Apache-2.0
// Layers without parameters, by the row that they call, and arguments of constructors as text.
#include <fmt/format.h>

#include <algorithm>

#include "tandem/edge/module/tree_internal.h"
#include "tandem/ops/ops.h"

namespace tandem::edge {
namespace {

// Layers whose constructor takes nothing, or the numbers of the call.
struct PlainRow {
  const char *row, *type;
  const char* arguments = "";
};
constexpr PlainRow kPlainRows[] = {
    {"relu", "ReLU"},
    {"relu6", "ReLU6"},
    {"sigmoid", "Sigmoid"},
    {"logsigmoid", "LogSigmoid"},
    {"tanh", "Tanh"},
    {"tanhshrink", "Tanhshrink"},
    {"silu", "SiLU"},
    {"mish", "Mish"},
    {"selu", "SELU"},
    {"softsign", "Softsign"},
    {"gelu", "GELU"},
    {"gelu_tanh", "GELU", "\"tanh\""},
    {"hardswish", "Hardswish"},
    {"hardsigmoid", "Hardsigmoid"},
    {"leaky_relu", "LeakyReLU"},
    {"elu", "ELU"},
    {"celu", "CELU"},
    {"softplus", "Softplus"},
    {"hardtanh", "Hardtanh"},
    {"hardshrink", "Hardshrink"},
    {"softshrink", "Softshrink"},
};

bool is_ones_or(const IntList& v, int64_t n) {
  return std::all_of(v.begin(), v.end(), [n](Dim d) { return d == Dim(n); });
}

std::optional<Layer> pool_layer(const Spec& x, const ModuleStep& s, bool max) {
  const auto& a = StepGraph::attrs<PoolAttrs>(s);
  const int rank = x.rank() - 2;
  Layer l;
  const auto adaptive = [&](const IntList& size) {
    l.type = fmt::format("nn::Adaptive{}Pool{}d", max ? "Max" : "Avg", rank);
    l.arguments = sizes(size, "output_size");
    return l;
  };
  if (!a.output.empty()) return adaptive(a.output);
  bool whole = !max && a.divisor_override == 0 && is_ones_or(a.padding, 0);
  for (int d = 0; d < rank; ++d) whole = whole && a.kernel[d] == x.shape[d + 2];
  if (whole) return adaptive({1});
  if (a.divisor_override && rank < 2) return {};
  const Text kernel = sizes(a.kernel, "kernel_size");
  l.type = fmt::format("nn::{}Pool{}d", max ? "Max" : "Avg", rank);
  l.arguments = kernel;
  std::vector<Option> options = {{"stride", sizes(a.stride, "stride"), plain_text(kernel)},
                                 {"padding", sizes(a.padding, "padding"), "0"}};
  if (max) options.push_back({"dilation", sizes(a.dilation, "dilation"), "1"});
  options.push_back({"ceil_mode", words(a.ceil_mode ? "true" : "false"), "false"});
  if (!max) {
    options.push_back({"count_include_pad", words(a.count_include_pad ? "true" : "false"), "true"});
    options.push_back({"divisor_override", number(a.divisor_override, "divisor"), "0"});
  }
  add_options(l.arguments, std::move(options));
  return l;
}

// Merges all dimensions from the second on.
bool flattens(const Shape& x, const Shape& y) {
  return x.rank() > 2 && y.rank() == 2 && x[0] == y[0];
}

}  // namespace

Text sizes(const IntList& v, const std::string& hint) {
  const bool one = !v.empty() && std::all_of(v.begin(), v.end(), [&](Dim d) { return d == v[0]; });
  if (one) return number(v[0].value(), hint);
  Text t = words("{");
  for (int i = 0; i < v.rank(); ++i) {
    if (i) append(t, ", ");
    append(t, number(v[i].value(), hint));
  }
  append(t, "}");
  return t;
}
void add_options(Text& arguments, std::vector<Option> options) {
  Piece p;
  p.options = std::move(options);
  arguments.push_back(std::move(p));
}
Option dtype_option(DType t) { return {"dtype", words(dtype_text(t)), "DType::f32"}; }

std::optional<Layer> plain_layer(const TracedModel& m, const ModuleStep& s) {
  if (!s.node || s.in.empty() || s.in[0].value == kNoValue) return {};
  const std::string_view row = s.node->op->name;
  const Spec& x = m.values[static_cast<size_t>(s.in[0].value)].spec;
  const Spec& y = m.values[static_cast<size_t>(s.out[0])].spec;
  Layer l;
  if (row == "identity") {
    const auto at = m.arguments.find(s.path);
    if (at == m.arguments.end()) return {};
    l.type = "nn::" + m.types.at(s.path);
    l.arguments = words(at->second);
    return l;
  }
  for (const PlainRow& r : kPlainRows)
    if (row == r.row) {
      l.type = std::string("nn::") + r.type;
      std::string arguments = r.arguments;
      for (size_t i = 1; i < s.in.size(); ++i) {
        if (!s.in[i].is_number) return {};
        arguments += (i > 1 ? ", " : "") + real(s.in[i].number.to_double());
      }
      if (!arguments.empty()) l.arguments = words(arguments);
      return l;
    }
  if (row == "max_pool" || row == "avg_pool") return pool_layer(x, s, row == "max_pool");
  if (row == "softmax" || row == "log_softmax") {
    l.type = row == "softmax" ? "nn::Softmax" : "nn::LogSoftmax";
    l.arguments = number(StepGraph::attrs<SoftmaxAttrs>(s).dim, "dim");
    return l;
  }
  if (row == "view" && flattens(x.shape, y.shape)) {
    l.type = "nn::Flatten";
    return l;
  }
  return {};
}

}  // namespace tandem::edge
