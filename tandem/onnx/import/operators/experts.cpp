// SPDX-License-Identifier: Apache-2.0
// Mixtures of experts (domain com.microsoft): MoE, and QMoE, whose weights are packed in bytes.
// Each token is sent through the k experts whose router scores are largest. All experts run on all
// tokens, since which are chosen is not a property of a shape; what an expert was not chosen for
// counts for nothing, whatever it gives.
#include "tandem/onnx/import/operators/activation_internal.h"
#include "tandem/onnx/import/operators/quant_internal.h"
#include "tandem/ops/matmul/nbits.h"
#include "tandem/ops/ops.h"

namespace tandem::onnx {
namespace {

/// Weights [experts, n, k] and their biases [experts, n] of one layer of all experts.
struct ExpertLayer {
  Tensor weight, bias;
  bool present() const { return weight.defined(); }
  Tensor of(const Tensor& x, int64_t expert) const {
    return linear(x, weight.select(0, expert),
                  bias.defined() ? bias.select(0, expert).to(DType::f32) : Tensor());
  }
};

class Experts {
 public:
  /// The router's scores are input 1, what mixes the chosen experts instead of them is input
  /// `mixing`.
  Experts(const OnnxCall& c, size_t mixing) : c_(c) {
    TD_CHECK(c.attr("use_sparse_mixer", 0) == 0, Unsupported, "use_sparse_mixer is not known");
    activation_ =
        c.attr_choice("activation_type", "relu", {"relu", "gelu", "silu", "swiglu", "identity"});
    fusion_ = c.attr("swiglu_fusion", 0);
    TD_CHECK(fusion_ >= 0 && fusion_ <= 2, Value, "swiglu_fusion is {}, expected 0, 1 or 2",
             fusion_);
    x_ = c.x(0).to(DType::f32);
    x_ = x_.reshape({-1, x_.size(-1)});
    const Tensor scores = c.x(1).to(DType::f32).reshape({x_.shape(0), -1});
    count_ = scores.size(1);
    const int64_t k = c.attr("k", 1);
    TD_CHECK(k >= 1 && k <= count_, Value, "k is {}, there are {} experts", k, count_);
    const auto best = topk(scores, k, 1);
    Tensor weights;
    if (c.has(mixing)) {
      weights = gather(c.x(mixing).to(DType::f32).reshape(scores.shape()), 1, best.indices);
      if (normalised()) weights = weights / sum(weights, {1}, true);
    } else {
      weights =
          normalised() ? softmax(best.values, 1) : gather(softmax(scores, 1), 1, best.indices);
    }
    weights_ = scatter(zeros_like(scores), 1, best.indices, weights);
    chosen_ = scatter(zeros_like(scores), 1, best.indices, ones_like(weights));
  }

  Tensor run(const ExpertLayer& first, const ExpertLayer& second, const ExpertLayer& third) const {
    for (const ExpertLayer* l : {&first, &second, &third})
      TD_CHECK(!l->present() || (l->weight.dim() == 3 && l->weight.size(0) == count_), Shape,
               "expected weights of {} experts, got {}", count_, l->weight.shape().to_string());
    Tensor y;
    for (int64_t e = 0; e < count_; ++e) {
      Tensor h = hidden(first, third, e);
      const Tensor part =
          where(chosen_.narrow(1, e, 1) > 0, second.of(h, e), 0.0) * weights_.narrow(1, e, 1);
      y = y.defined() ? y + part : part;
    }
    return y.reshape(c_.x(0).shape()).to(c_.x(0).dtype());
  }

 private:
  bool normalised() const { return c_.attr("normalize_routing_weights", 0) != 0; }

  Tensor hidden(const ExpertLayer& first, const ExpertLayer& third, int64_t e) const {
    const Tensor h = first.of(x_, e);
    if (activation_ == "swiglu") {
      if (fusion_ == 0) {
        TD_CHECK(third.present(), Value, "swiglu that is not fused expects fc3");
        return swiglu(h, third.of(x_, e));
      }
      TD_CHECK(h.size(1) % 2 == 0, Shape,
               "fused swiglu expects an even number of rows of fc1, got {}", h.size(1));
      const int64_t n = h.size(1) / 2;
      if (fusion_ == 2) return swiglu(h.narrow(1, 0, n), h.narrow(1, n, n));
      const Tensor pairs = h.reshape({h.shape(0), n, 2});
      return swiglu(pairs.select(2, 0), pairs.select(2, 1));
    }
    const Tensor y = activated(h);
    return third.present() ? y * third.of(x_, e) : y;
  }
  Tensor activated(const Tensor& h) const {
    if (activation_ == "gelu") return gelu(h, "tanh");  // as onnxruntime
    if (activation_ == "silu") return silu(h);
    return activation_ == "relu" ? relu(h) : h;
  }
  Tensor swiglu(Tensor gate, Tensor linear) const {
    if (c_.attribute("swiglu_limit")) {
      const double limit = c_.attr_float("swiglu_limit", 0);
      gate = clamp_max(gate, limit);
      linear = clamp(linear, -limit, limit);
    }
    return gate * sigmoid(gate * c_.attr_float("activation_alpha", 1)) *
           (linear + c_.attr_float("activation_beta", 0));
  }

  const OnnxCall& c_;
  std::string activation_;
  int64_t fusion_ = 0, count_ = 0;
  Tensor x_, weights_, chosen_;  ///< tokens [t, hidden]; [t, experts]
};

void mixture(OnnxCall& c) {
  const auto layer = [&](size_t i) {
    return c.has(i) ? ExpertLayer{c.x(i).to(DType::f32), c.x_or_none(i + 1)} : ExpertLayer{};
  };
  c.set(0, Experts(c, 8).run(layer(2), layer(4), layer(6)));
}

/// Numbers [experts, n, k] of packed weights, scales and zero points (may be undefined); a block of
/// 0 is a whole row.
Tensor expert_numbers(const std::vector<Tensor>& in, int64_t bits, int64_t block) {
  TD_CHECK(in[0].dim() == 3 && in[1].defined(), Shape,
           "expected weights [experts, n, k] and scales");
  const Tensor w = unpack_codes(in[0], bits).to(DType::f32);
  const int64_t experts = w.size(0), n = w.size(1), k = w.size(2);
  TD_CHECK(block == 0 || k % block == 0, Shape, "rows of {} do not divide into blocks of {}", k,
           block);
  const int64_t blocks = block ? k / block : 1;
  const auto beside = [&](const Tensor& t, const char* what) {
    TD_CHECK(t.numel() == experts * n * blocks, Shape, "expected {} [{}, {}, {}], got {}", what,
             experts, n, blocks, t.shape().to_string());
    return t.to(DType::f32).reshape({experts, n, blocks, 1});
  };
  Tensor y = w.reshape({experts, n, blocks, block ? block : k});
  if (in[2].defined()) {
    const Tensor z = unpack_codes(in[2], bits);
    y = y - beside(z.narrow(-1, 0, std::min(z.size(-1), block ? blocks : n)), "zero points");
  } else {
    y = y - static_cast<double>(int64_t{1} << (bits - 1));
  }
  return (y * beside(in[1], "scales")).reshape({experts, n, k});
}

void quantised_mixture(OnnxCall& c) {
  TD_CHECK(c.attr_text("quant_type", "int") == "int" && c.attr("weights_prepacked", 0) <= 0,
           Unsupported, "weights of the type '{}' or in an order for one device",
           c.attr_text("quant_type", "int"));
  const int64_t block = std::max<int64_t>(c.attr("block_size", 0), 0);
  const auto layer = [&](size_t i, size_t zero, const char* own) {
    if (!c.has(i)) return ExpertLayer{};
    const int64_t bits = c.attr(own, c.attr("expert_weight_bits", 4));
    TD_CHECK(bits == 2 || bits == 4 || bits == 8, Unsupported, "expected 2, 4 or 8 bits, got {}",
             bits);
    return ExpertLayer{
        onnx_known(c, {i, i + 1, zero},
                   [&](const std::vector<Tensor>& in) { return expert_numbers(in, bits, block); }),
        c.x_or_none(i + 2)};
  };
  c.set(0, Experts(c, 14).run(layer(2, 11, "fc1_expert_weight_bits"),
                              layer(5, 12, "fc2_expert_weight_bits"),
                              layer(8, 13, "fc3_expert_weight_bits")));
}

}  // namespace

std::span<const OnnxRow> onnx_expert_rows() {
  static constexpr OnnxRow kRows[] = {
      {kOnnxMicrosoft,
       "MoE",
       1,
       0,
       mixture,
       {8, 1,
        "activation_alpha activation_beta activation_type k normalize_routing_weights "
        "swiglu_fusion "
        "swiglu_limit use_sparse_mixer"}},
      {kOnnxMicrosoft,
       "QMoE",
       1,
       0,
       quantised_mixture,
       {15, 1,
        "activation_alpha activation_beta activation_type block_size expert_weight_bits "
        "fc1_expert_weight_bits fc2_expert_weight_bits fc3_expert_weight_bits k "
        "normalize_routing_weights quant_type swiglu_fusion swiglu_limit use_sparse_mixer "
        "weights_prepacked ~accuracy_level"}},
  };
  return kRows;
}

}  // namespace tandem::onnx
