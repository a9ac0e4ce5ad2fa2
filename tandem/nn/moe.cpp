// SPDX-License-Identifier: Apache-2.0
#include "tandem/nn/moe.h"

#include <cmath>

#include "tandem/graph/trace.h"
#include "tandem/nn/init.h"
#include "tandem/ops/ops.h"

namespace tandem::nn {
namespace {

constexpr char kMoE = 0;

Tensor activate(const std::string& name, const Tensor& x) {
  return name == "relu" ? relu(x) : name == "silu" ? silu(x) : gelu(x);
}

}  // namespace

MoE* detail::as_moe(Module& m) { return m.state().kind == &kMoE ? static_cast<MoE*>(&m) : nullptr; }

MoE::MoE(int64_t w, MoEOptions o)
    : gate(w, o.experts, {.bias = false, .dtype = o.dtype}), width(w), options(std::move(o)) {
  state().kind = &kMoE;
  if (options.hidden == 0) options.hidden = 4 * width;
  TD_CHECK(width > 0 && options.experts > 0 && options.hidden > 0, Value,
           "MoE expects sizes > 0, got a width of {}, {} experts and {} within them", width,
           options.experts, options.hidden);
  TD_CHECK(options.top_k > 0 && options.top_k <= options.experts, Value,
           "MoE: top_k is {}, expected 1 to {} (the experts)", options.top_k, options.experts);
  TD_CHECK(options.capacity_factor >= 0 && std::isfinite(options.capacity_factor), Value,
           "MoE expects a capacity_factor >= 0 (0: no limit), got {}", options.capacity_factor);
  const std::string& act = options.activation;
  TD_CHECK(act == "gelu" || act == "relu" || act == "silu", Value,
           "MoE: activation is '{}', expected gelu, relu or silu", act);
  const int64_t up = options.gated ? 2 * options.hidden : options.hidden;
  up_proj = Param(init::fan_in_uniform({options.experts, up, width}, width, options.dtype));
  down_proj = Param(init::fan_in_uniform({options.experts, width, options.hidden}, options.hidden,
                                         options.dtype));
  TD_REGISTER(gate, up_proj, down_proj);
}

// Rows that each expert takes: the same for all, so that one matmul has all of them.
int64_t MoE::capacity(const Tensor& choices, int64_t tokens) const {
  int64_t most = tokens;  // the experts of a token differ
  if (options.capacity_factor > 0) {
    const double share = static_cast<double>(tokens * options.top_k) /
                         static_cast<double>(options.experts) * options.capacity_factor;
    if (share < static_cast<double>(tokens))
      most = std::max<int64_t>(1, static_cast<int64_t>(std::ceil(share)));
  } else if (!is_tracing() && tokens > 0) {
    most = bincount(choices, options.experts).max().item<int64_t>();
  }
  return exchange_ ? exchange_->agree(most) : most;
}

MoE::Routes MoE::route(const Tensor& x) {
  const int64_t tokens = x.size(0), experts = options.experts, k = options.top_k;
  const Tensor scores_of_all = gate(x);
  const bool narrow = size_of(scores_of_all.dtype()) < size_of(DType::f32);
  const Tensor probabilities = softmax(narrow ? scores_of_all.to(DType::f32) : scores_of_all, 1);
  const auto [scores, chosen] = topk(probabilities, k, 1);
  const Tensor weights = options.normalize ? scores / scores.sum({1}, true) : scores;
  // First choices of all tokens come before second ones, which are dropped first.
  const Tensor choices = chosen.transpose(0, 1).flatten();
  const Tensor taken = one_hot(choices, experts);
  const Tensor share = taken.to(probabilities.dtype()).mean({0}).detach();
  aux_ = (share * probabilities.mean({0})).sum() * static_cast<double>(experts);

  Routes r;
  r.capacity = capacity(choices, tokens);
  const Tensor place = gather(cumsum(taken, 0), 1, choices.unsqueeze(1)).squeeze(1) - 1;
  r.slots = where(place < r.capacity, choices * r.capacity + place, experts * r.capacity);
  const Tensor numbers = arange(tokens).repeat({k});
  r.sources = scatter(full({experts * r.capacity + 1}, tokens, DType::i64), 0, r.slots, numbers)
                  .narrow(0, 0, experts * r.capacity);
  r.weights = weights.transpose(0, 1).reshape({k * tokens, 1});
  return r;
}

// x [experts, rows, width] -> the same.
Tensor MoE::run_experts(const Tensor& x) const {
  Tensor y = matmul(x, up_proj.value().transpose(1, 2));
  if (options.gated)
    y = activate(options.activation, y.narrow(2, 0, options.hidden)) *
        y.narrow(2, options.hidden, options.hidden);
  else
    y = activate(options.activation, y);
  return matmul(y, down_proj.value().transpose(1, 2));
}

Tensor MoE::forward(Tensor x) {
  TD_CHECK(x.dim() > 0 && x.size(-1) == width, Shape, "MoE expects x [..., {}], got {}", width,
           x.shape().to_string());
  const Shape shape = x.shape();
  x = x.reshape({-1, width});
  const int64_t tokens = x.size(0);
  const Routes r = route(x);
  const Tensor nothing = zeros({1, width}, x.dtype());
  Tensor in = index_select(cat({x, nothing}, 0), 0, r.sources)
                  .reshape({options.experts, r.capacity, width});
  if (exchange_) in = exchange_->out(in);
  Tensor out = run_experts(in);
  if (exchange_) out = exchange_->back(out);
  out = cat({out.reshape({options.experts * r.capacity, width}), nothing}, 0);
  const Tensor weighted = index_select(out, 0, r.slots) * r.weights.to(x.dtype());
  return weighted.reshape({options.top_k, tokens, width}).sum({0}).reshape(shape);
}

Tensor MoE::aux_loss(SourceLocation) const {
  TD_CHECK(aux_.defined(), Value, "aux_loss() is that of a forward pass, and there was none yet");
  return aux_;
}

}  // namespace tandem::nn
