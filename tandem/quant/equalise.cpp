// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cmath>
#include <optional>

#include "tandem/ops/ops.h"
#include "tandem/quant/calibrate.h"
#include "tandem/quant/roles.h"

namespace tandem::quant {
namespace {

constexpr int kRounds = 20;
constexpr double kDone = 1.001;  ///< a factor that changes nothing worth another round
constexpr double kLeast = 1e-8;  ///< ranges below it are channels of zeros

// Rows for which f(s x) = s f(x) for s > 0, channel by channel.
bool scales_through(const Network& net, const Node& n) {
  return net.is_folded(n) || n.op == &op::relu || n.op == &op::max_pool || n.op == &op::avg_pool;
}

// The one layer that reads what a layer gives, through such rows.
std::optional<size_t> next_layer(const Network& net, const Layer& layer) {
  ValueId v{layer.node->index, 0};
  for (;;) {
    if (net.is_output(v) || net.uses(v).size() != 1) return {};
    const Network::Use& use = net.uses(v)[0];
    const int at = net.layer_at(*use.node);
    if (at >= 0) return use.operand == 0 ? std::optional<size_t>(at) : std::nullopt;
    if (use.operand != 0 || !scales_through(net, *use.node)) return {};
    v = {use.node->index, 0};
  }
}

bool is_depthwise(const Layer& l) {
  if (!l.node->op->has(kConvolution)) return false;
  const int64_t groups = static_cast<const ConvAttrs*>(l.node->attrs.get())->groups;
  return groups > 1 && l.weight.size(1) == 1 && l.weight.size(0) == groups;
}

// The dimension of the weight that belongs to channels of x; -1: none alone.
int input_axis(const Layer& l) {
  if (!l.node->op->has(kConvolution)) return 1 - l.axis;
  if (static_cast<const ConvAttrs*>(l.node->attrs.get())->groups == 1) return 1 - l.axis;
  return is_depthwise(l) ? 0 : -1;
}

Tensor ranges(const Tensor& w, int axis) {
  IntList others;
  for (int d = 0; d < w.dim(); ++d)
    if (d != axis) others.push_back(d);
  return amax(abs(w), others);
}
Tensor along(const Tensor& s, const Tensor& w, int axis) {
  Shape shape;
  for (int d = 0; d < w.dim(); ++d) shape.push_back(d == axis ? w.shape(d) : Dim(1));
  return s.reshape(shape);
}

// Returns the largest factor, 1 where the two do not fit.
double equalise_pair(Layer& a, Layer& b) {
  const int in = input_axis(b);
  if (in < 0 || a.weight.size(a.axis) != b.weight.size(in)) return 1;
  if (a.node->op->has(kConvolution) != b.node->op->has(kConvolution)) return 1;
  const Tensor ra = ranges(a.weight, a.axis), rb = ranges(b.weight, in);
  const Tensor both = logical_and(ra > kLeast, rb > kLeast);
  const Tensor s = where(both, sqrt(ra / where(both, rb, 1.0)), 1.0);
  a.weight = a.weight / along(s, a.weight, a.axis);
  if (a.bias.defined()) a.bias = a.bias / s;
  b.weight = b.weight * along(s, b.weight, in);
  return amax(maximum(s, 1.0 / s)).item<double>();
}

}  // namespace

int equalise(Network& net) {
  check_untrained(net, "equalisation");
  const NoGradGuard no_grad;
  int pairs = 0;
  for (int round = 0; round < kRounds; ++round) {
    double most = 1;
    int changed = 0;
    for (Layer& a : net.layers()) {
      const std::optional<size_t> next = next_layer(net, a);
      if (!next) continue;
      const double f = equalise_pair(a, net.layers()[*next]);
      changed += f != 1;
      most = std::max(most, f);
    }
    if (round == 0) pairs = changed;
    if (most < kDone) break;
  }
  return pairs;
}

}  // namespace tandem::quant
