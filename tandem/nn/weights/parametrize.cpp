// SPDX-License-Identifier: Apache-2.0
#include "tandem/nn/parametrize.h"

#include <cmath>

#include "tandem/graph/context.h"
#include "tandem/nn/init.h"
#include "tandem/ops/matmul/matmul.h"
#include "tandem/ops/nn/norm.h"
#include "tandem/ops/pointwise/pointwise.h"
#include "tandem/ops/random/random.h"
#include "tandem/ops/reduce/reduce.h"
#include "tandem/ops/view/create.h"
#include "tandem/ops/view/view.h"

namespace tandem::nn {
namespace detail {

Substitute::Substitute(const Param& p, Tensor value) : before_(context().redirect) {
  Context& c = context();
  if (before_) list_ = *before_;
  list_.insert(list_.begin(), {p.cell().get(), std::move(value)});
  c.redirect = &list_;
  c.slow |= kRedirect;
}
Substitute::~Substitute() {
  Context& c = context();
  c.redirect = before_;
  if (!before_) c.slow &= ~uint32_t{kRedirect};
}

Param& member_param(Module& m, const std::string& name) {
  struct Find : MemberVisitor {
    const std::string& name;
    Param* found = nullptr;
    explicit Find(const std::string& n) : name(n) {}
    void param(const std::string& n, Param& p) override {
      if (n == name && p.defined()) found = &p;
    }
    void buffer(const std::string&, Buffer&) override {}
    void child(const std::string&, Module&) override {}
  } find(name);
  m.visit_members(find);
  TD_CHECK(find.found, Value, "{} has no parameter '{}'", m.type().empty() ? "the layer" : m.type(),
           name);
  return *find.found;
}

// ---- weight norm

namespace {
// The norm over all dimensions except `dim`, which are kept with size 1.
Tensor norm_except(const Tensor& v, int64_t dim) {
  if (dim == -1) return norm(v, 2);
  IntList others;
  for (int i = 0; i < v.dim(); ++i)
    if (i != normalize_dim(dim, v.dim())) others.push_back(i);
  if (others.empty()) return abs(v);
  return sqrt(sum(square(v), others, true));
}
}  // namespace

WeightNormParts::WeightNormParts(Module& m, std::string n, int64_t d) : name(std::move(n)), dim(d) {
  NoGradGuard no_grad;
  Tensor w = member_param(m, name).value().detach();
  if (dim != -1) normalize_dim(dim, w.dim());
  original0 = Param(norm_except(w, dim).clone());
  original1 = Param(w.clone());
}

Tensor WeightNormParts::value() const {
  Tensor v = original1;
  return v * (original0.value() / norm_except(v, dim));
}

// ---- spectral norm

SpectralNormParts::SpectralNormParts(Module& m, std::string n, int64_t iterations, double e,
                                     int64_t d)
    : name(std::move(n)), n_power_iterations(iterations), dim(d), eps(e) {
  TD_CHECK(iterations > 0, Value, "spectral_norm expects n_power_iterations > 0, got {}",
           iterations);
  NoGradGuard no_grad;
  Tensor w = member_param(m, name).value().detach();
  dim = normalize_dim(dim, w.dim());
  original = Param(w.clone());
  if (w.dim() < 2) return;
  Tensor mat = matrix(w);
  u = Buffer(normalize(randn({mat.size(0)}, w.dtype()), 2, 0, eps));
  v = Buffer(normalize(randn({mat.size(1)}, w.dtype()), 2, 0, eps));
  iterate(15);
}

Tensor SpectralNormParts::matrix(const Tensor& w) const {
  Tensor t = movedim(w, {dim}, {0});
  return t.flatten(1);
}

void SpectralNormParts::iterate(int64_t n) {
  NoGradGuard no_grad;
  Tensor w = matrix(original.value()), a = u, b = v;
  for (int64_t k = 0; k < n; ++k) {
    a = normalize(mv(w, b), 2, 0, eps);
    b = normalize(mv(w.t(), a), 2, 0, eps);
  }
  u.assign_(a);
  v.assign_(b);
}

Tensor SpectralNormParts::value(bool training) {
  Tensor w = original;
  if (w.dim() < 2) return normalize(w, 2, 0, eps);
  if (training) iterate(n_power_iterations);
  return w / dot(u, mv(matrix(w), v));
}

}  // namespace detail

// ---- LoRA

LoRALinear::LoRALinear(Linear base, LoRAOptions o)
    : base_layer(std::move(base)),
      lora_A(base_layer.in_features, o.r > 0 ? o.r : 1,
             {.bias = false, .dtype = base_layer.weight.dtype()}),
      lora_B(o.r > 0 ? o.r : 1, base_layer.out_features,
             {.bias = false, .dtype = base_layer.weight.dtype()}),
      options(o) {
  TD_CHECK(o.r > 0, Value, "LoRA expects a rank r > 0, got {}", o.r);
  TD_CHECK(o.dropout >= 0 && o.dropout < 1, Value, "LoRA expects a dropout in 0..1, got {}",
           o.dropout);
  lora_A.weight.assign_(
      init::kaiming_uniform(lora_A.weight.shape(), std::sqrt(5.0), lora_A.weight.dtype()));
  lora_B.weight.assign_(0.0);
  base_layer.requires_grad_(false);
  TD_REGISTER(base_layer, lora_A, lora_B);
}

Tensor LoRALinear::forward(Tensor x) {
  Tensor y = base_layer(x);
  if (merged_) return y;
  if (options.dropout > 0) x = dropout(std::move(x), options.dropout, is_training());
  return y + lora_B(lora_A(std::move(x))) * (options.alpha / static_cast<double>(options.r));
}

void LoRALinear::add_update(double sign) {
  NoGradGuard no_grad;
  double scale = sign * options.alpha / static_cast<double>(options.r);
  base_layer.weight.assign_(base_layer.weight.value() +
                            matmul(lora_B.weight, lora_A.weight) * scale);
}

void LoRALinear::merge() {
  TD_CHECK(!merged_, Value, "the update is already merged\nCall unmerge() first.");
  add_update(1);
  merged_ = true;
}
void LoRALinear::unmerge() {
  TD_CHECK(merged_, Value, "the update is not merged\nCall merge() first.");
  add_update(-1);
  merged_ = false;
}

}  // namespace tandem::nn
