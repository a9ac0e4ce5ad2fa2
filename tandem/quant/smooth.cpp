// SPDX-License-Identifier: Apache-2.0
#include "tandem/quant/smooth.h"

#include <algorithm>

#include "tandem/ops/ops.h"
#include "tandem/quant/roles.h"

namespace tandem::quant {
namespace {

constexpr double kLeastMagnitude = 1e-5;  ///< channels below it stay as they are

Tensor most_along(const Tensor& t, int axis) {
  IntList others;
  for (int d = 0; d < t.dim(); ++d)
    if (d != axis) others.push_back(d);
  return others.empty() ? abs(t) : amax(abs(t), others);
}

/// The largest magnitude of each input of some layers.
class InputMagnitudes : public Walk {
 public:
  InputMagnitudes(const Network& net, std::vector<Tensor>& most) : Walk(net), most_(most) {}

 protected:
  Tensor layer(size_t index, const Tensor& x) override {
    if (multiplies_rows(net_.layers()[index])) {
      const Tensor now = most_along(x, x.dim() - 1);
      most_[index] = most_[index].defined() ? maximum(most_[index], now) : now;
    }
    return Walk::layer(index, x);
  }

 private:
  std::vector<Tensor>& most_;
};

// The layers that read each value that linear layers alone read.
std::map<ValueId, std::vector<size_t>> readers(const Network& net) {
  std::map<ValueId, std::vector<size_t>> out;
  for (size_t i = 0; i < net.layers().size(); ++i)
    if (const Layer& l = net.layers()[i]; multiplies_rows(l))
      out[value_of(l.node->in[0])].push_back(i);
  for (auto at = out.begin(); at != out.end();)
    at = net.uses(at->first).size() == at->second.size() ? std::next(at) : out.erase(at);
  return out;
}

}  // namespace

int smooth(Network& net, const Batches& batches, double alpha) {
  TD_CHECK(alpha >= 0 && alpha <= 1, Value,
           "smoothing by {} was asked for, expected a number from 0 to 1, as 0.5", alpha);
  check_untrained(net, "smoothing");
  const NoGradGuard no_grad;
  std::vector<Tensor> most(net.layers().size());
  batches([&](std::span<const Tensor> x) { InputMagnitudes(net, most).run(x); });
  int count = 0;
  for (const auto& [value, layers] : readers(net)) {
    const Tensor x = most[layers[0]];
    if (!x.defined()) continue;
    Tensor w;
    for (const size_t i : layers) {
      const Layer& l = net.layers()[i];
      const Tensor own = most_along(l.weight, 1 - l.axis);
      w = w.defined() ? maximum(w, own) : own;
    }
    const Tensor both = logical_and(x > kLeastMagnitude, w > kLeastMagnitude);
    const Tensor s = where(both, pow(x, alpha) / pow(where(both, w, 1.0), 1 - alpha), 1.0);
    for (const size_t i : layers) {
      Layer& l = net.layers()[i];
      l.weight = l.weight * (l.axis == 0 ? s : s.unsqueeze(1));
    }
    net.scale_inputs(value, 1.0 / s);
    ++count;
  }
  return count;
}

}  // namespace tandem::quant
