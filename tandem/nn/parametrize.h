// SPDX-License-Identifier: Apache-2.0
// Weights computed from other parameters: weight_norm, spectral_norm, LoRA. Each wraps a layer;
// while it runs, reading the layer's weight gives the computed value, so gradients reach the
// parameters it was computed from.
#pragma once

#include "tandem/nn/linear.h"

namespace tandem::nn {

namespace detail {

/// While alive, makes reads of `cell` on this thread return `value`.
class TD_API Substitute {
 public:
  Substitute(const Param& p, Tensor value);
  ~Substitute();
  Substitute(const Substitute&) = delete;
  Substitute& operator=(const Substitute&) = delete;

 private:
  std::vector<std::pair<const Cell*, Tensor>> list_;
  std::vector<std::pair<const Cell*, Tensor>>* before_;
};

/// Forwards all members of a layer except one parameter.
class TD_API AllBut : public MemberVisitor {
 public:
  AllBut(MemberVisitor& to, const std::string& name) : to_(to), name_(name) {}
  void param(const std::string& name, Param& p) override {
    if (name != name_)
      to_.param(name, p);
    else
      to_.hidden(p);
  }
  void buffer(const std::string& name, Buffer& b) override { to_.buffer(name, b); }
  void child(const std::string& name, Module& m) override { to_.child(name, m); }
  void hidden(Module& m) override { to_.hidden(m); }
  void hidden(Param& p) override { to_.hidden(p); }

 private:
  MemberVisitor& to_;
  const std::string& name_;
};

/// The parameter `name` of a layer; throws Value when it has none.
TD_API Param& member_param(Module& m, const std::string& name);

/// g [n, 1, ...] and v of w = g v / |v|, the norm over all dimensions but dim (-1: over all).
struct TD_API WeightNormParts {
  WeightNormParts(Module& m, std::string name, int64_t dim);
  Tensor value() const;
  std::string name;
  int64_t dim;
  Param original0, original1;  ///< g, v
};

struct TD_API SpectralNormParts {
  SpectralNormParts(Module& m, std::string name, int64_t n_power_iterations, double eps,
                    int64_t dim);
  /// w / sigma; in training the vectors first take n_power_iterations steps.
  Tensor value(bool training);
  Tensor matrix(const Tensor& w) const;
  void iterate(int64_t n);
  std::string name;
  int64_t n_power_iterations, dim;
  double eps;
  Param original;
  Buffer u, v;
};

}  // namespace detail

/// A layer whose weight is g v / |v| (Salimans and Kingma 2016). Names as in PyTorch:
/// parametrizations.weight.original0 (g), parametrizations.weight.original1 (v), bias.
template <class M>
class WeightNorm : public Module {
 public:
  explicit WeightNorm(M module, std::string name = "weight", int64_t dim = 0)
      : layer(std::move(module)), parts(layer, std::move(name), dim) {
    state().members.push_back(
        {"layer", 0, [](void* self, const std::string&, MemberVisitor& v) {
           auto& m = *static_cast<WeightNorm*>(static_cast<Module*>(self));
           detail::AllBut rest(v, m.parts.name);
           v.hidden(m.layer);
           m.layer.visit_members(rest);
           v.param("parametrizations." + m.parts.name + ".original0", m.parts.original0);
           v.param("parametrizations." + m.parts.name + ".original1", m.parts.original1);
         }});
    this->register_members(this, "");
  }
  Tensor forward(Tensor x) {
    detail::Substitute now(detail::member_param(layer, parts.name), parts.value());
    return layer.forward(std::move(x));
  }
  /// The layer with the current weight as an ordinary parameter.
  M remove() const {
    M out = nn::clone(layer);
    detail::member_param(out, parts.name).assign_(parts.value());
    return out;
  }
  M layer;
  detail::WeightNormParts parts;
};

/// A layer whose weight is divided by its largest singular value, found by power iteration (Miyato
/// et al. 2018). Names: parametrizations.weight.original, parametrizations.weight.0._u, ._v.
template <class M>
class SpectralNorm : public Module {
 public:
  explicit SpectralNorm(M module, std::string name = "weight", int64_t n_power_iterations = 1,
                        double eps = 1e-12, int64_t dim = 0)
      : layer(std::move(module)), parts(layer, std::move(name), n_power_iterations, eps, dim) {
    state().members.push_back({"layer", 0, [](void* self, const std::string&, MemberVisitor& v) {
                                 auto& m = *static_cast<SpectralNorm*>(static_cast<Module*>(self));
                                 detail::AllBut rest(v, m.parts.name);
                                 v.hidden(m.layer);
                                 m.layer.visit_members(rest);
                                 v.param("parametrizations." + m.parts.name + ".original",
                                         m.parts.original);
                                 v.buffer("parametrizations." + m.parts.name + ".0._u", m.parts.u);
                                 v.buffer("parametrizations." + m.parts.name + ".0._v", m.parts.v);
                               }});
    this->register_members(this, "");
  }
  Tensor forward(Tensor x) {
    detail::Substitute now(detail::member_param(layer, parts.name), parts.value(is_training()));
    return layer.forward(std::move(x));
  }
  M layer;
  detail::SpectralNormParts parts;
};

template <class M>
WeightNorm<M> weight_norm(M module, std::string name = "weight", int64_t dim = 0) {
  return WeightNorm<M>(std::move(module), std::move(name), dim);
}
template <class M>
SpectralNorm<M> spectral_norm(M module, std::string name = "weight", int64_t n_power_iterations = 1,
                              double eps = 1e-12, int64_t dim = 0) {
  return SpectralNorm<M>(std::move(module), std::move(name), n_power_iterations, eps, dim);
}

struct LoRAOptions {
  int64_t r = 8;
  double alpha = 8;    ///< the update is scaled by alpha / r
  double dropout = 0;  ///< of the update's input, in training
};
/// A frozen Linear layer plus a trained update of rank r: y = W x + b + alpha/r B A x (Hu et al.
/// 2022). Names: base_layer.weight, base_layer.bias, lora_A.weight [r, in], lora_B.weight [out, r];
/// B starts at zero.
class TD_API LoRALinear : public Module {
 public:
  explicit LoRALinear(Linear base, LoRAOptions options = {});
  Tensor forward(Tensor x);
  /// Merge the update into the base weight (then forward is one matmul), and take it out again.
  /// Throws Value when it is already merged, or not merged.
  void merge();
  void unmerge();
  bool merged() const { return merged_; }
  Linear base_layer, lora_A, lora_B;
  LoRAOptions options;

 private:
  void add_update(double sign);
  bool merged_ = false;
};

}  // namespace tandem::nn
