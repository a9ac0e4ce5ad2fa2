// SPDX-License-Identifier: Apache-2.0
#include "tandem/nn/prune.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "tandem/nn/fine_tune.h"
#include "tandem/nn/parametrize.h"
#include "tandem/nn/wrapper.h"
#include "tandem/ops/pointwise/pointwise.h"
#include "tandem/ops/random/random.h"
#include "tandem/ops/reduce/reduce.h"
#include "tandem/ops/view/create.h"
#include "tandem/ops/view/view.h"

namespace tandem::nn::prune {
namespace {

constexpr const char* kMask = "_mask";

class WeightMask : public Wrapper {
 public:
  WeightMask(std::string name, Tensor mask) : name(std::move(name)), mask(std::move(mask)) {}
  Tensor forward(Module& layer, Tensor x, const Next& next) override {
    Param& p = nn::detail::member_param(layer, name);
    const nn::detail::Substitute masked(p, where(mask.value(), p.value(), 0.0));
    return next(std::move(x));
  }
  void visit(MemberVisitor& v) override { v.buffer(name + kMask, mask); }
  std::shared_ptr<Wrapper> copy() const override { return std::make_shared<WeightMask>(*this); }
  std::string name;
  Buffer mask;  ///< bool: true is kept
};

std::shared_ptr<WeightMask> mask_of(Module& layer, const std::string& name) {
  for (const std::shared_ptr<Wrapper>& w : wrappers(layer))
    if (auto m = std::dynamic_pointer_cast<WeightMask>(w); m && m->name == name) return m;
  return {};
}
std::shared_ptr<WeightMask> need_mask(Module& layer, const std::string& name) {
  if (auto m = mask_of(layer, name)) return m;
  const Tensor w = nn::detail::member_param(layer, name);
  auto m = std::make_shared<WeightMask>(name, ones(w.shape(), DType::b8).to(w.device()));
  wrap(layer, m);
  return m;
}

/// What there is to choose from: scores of entries or slices, some of them pruned already.
struct Choice {
  std::vector<double> score;
  std::vector<char> kept;

  size_t count(double amount) const {
    const auto left = std::count(kept.begin(), kept.end(), 1);
    return static_cast<size_t>(std::llround(amount * static_cast<double>(left)));
  }
  // The share of those that are left with the least scores; the first of equal ones.
  void drop(double amount) {
    std::vector<size_t> left;
    for (size_t i = 0; i < kept.size(); ++i)
      if (kept[i]) left.push_back(i);
    const size_t n = count(amount);
    std::stable_sort(left.begin(), left.end(),
                     [&](size_t a, size_t b) { return score[a] < score[b]; });
    for (size_t i = 0; i < n; ++i) kept[left[i]] = 0;
  }
};

void check_amount(double amount) {
  TD_CHECK(amount >= 0 && amount <= 1, Value,
           "the share {} is to be pruned, expected a number from 0 to 1", amount);
}
std::vector<char> bytes_of(const Tensor& mask) {
  const std::vector<uint8_t> v = mask.to(DType::u8).to_vector<uint8_t>();
  return {v.begin(), v.end()};
}
Tensor mask_like(const std::vector<char>& kept, const Tensor& mask) {
  return tensor(std::vector<uint8_t>(kept.begin(), kept.end()))
      .reshape(mask.shape())
      .to(DType::b8)
      .to(mask.device());
}
Tensor magnitudes(const Tensor& w) { return abs(w.to(DType::f64)); }

// Entries of one parameter by the scores that `f` gives for it.
template <class F>
void drop_entries(Module& layer, const std::string& name, double amount, F f) {
  const NoGradGuard no_grad;
  check_amount(amount);
  const Tensor w = nn::detail::member_param(layer, name);
  const auto m = need_mask(layer, name);
  Choice c{{}, bytes_of(m->mask)};
  if (c.count(amount) == 0) return;  // and no numbers are drawn
  c.score = f(w).template to_vector<double>();
  c.drop(amount);
  m->mask.assign_(mask_like(c.kept, m->mask));
}

}  // namespace

void l1_unstructured(Module& layer, const std::string& name, double amount) {
  drop_entries(layer, name, amount, magnitudes);
}

void random_unstructured(Module& layer, const std::string& name, double amount) {
  drop_entries(layer, name, amount, [](const Tensor& w) { return rand(w.shape(), DType::f64); });
}

void ln_structured(Module& layer, const std::string& name, double amount, double n, int64_t dim) {
  const NoGradGuard no_grad;
  check_amount(amount);
  TD_CHECK(n > 0, Value, "slices by a norm of order {} were asked for, expected more than 0", n);
  const Tensor w = nn::detail::member_param(layer, name);
  const auto m = need_mask(layer, name);
  const int d = normalize_dim(dim, w.dim());
  const auto slices = [&](const Tensor& t) {
    return movedim(t, {d}, {0}).reshape({w.size(d), -1});
  };
  const Tensor size = slices(where(m->mask.value(), magnitudes(w), 0.0));
  const Tensor norms = std::isinf(n) ? amax(size, {1}) : sum(pow(size, n), {1});
  Choice c{norms.to_vector<double>(), bytes_of(amax(slices(m->mask.value().to(DType::u8)), {1}))};
  c.drop(amount);
  Shape along;
  for (int i = 0; i < w.dim(); ++i) along.push_back(i == d ? w.shape(i) : Dim(1));
  const Tensor kept = tensor(std::vector<uint8_t>(c.kept.begin(), c.kept.end()));
  m->mask.assign_(logical_and(m->mask.value(), kept.to(DType::b8).to(w.device()).reshape(along)));
}

void global_unstructured(const std::vector<std::pair<Module*, std::string>>& parameters,
                         double amount) {
  const NoGradGuard no_grad;
  check_amount(amount);
  Choice c;
  std::vector<std::shared_ptr<WeightMask>> masks;
  for (const auto& [layer, name] : parameters) {
    masks.push_back(need_mask(*layer, name));
    const auto score = magnitudes(nn::detail::member_param(*layer, name)).to_vector<double>();
    const std::vector<char> kept = bytes_of(masks.back()->mask);
    c.score.insert(c.score.end(), score.begin(), score.end());
    c.kept.insert(c.kept.end(), kept.begin(), kept.end());
  }
  c.drop(amount);
  auto at = c.kept.begin();
  for (const auto& m : masks) {
    const auto end = at + m->mask.numel();
    m->mask.assign_(mask_like({at, end}, m->mask));
    at = end;
  }
}

void semi_structured(Module& layer, const std::string& name, int64_t n, int64_t m) {
  const NoGradGuard no_grad;
  TD_CHECK(n >= 0 && m > 0 && n <= m, Value,
           "{} of {} entries are to be kept, expected 0 <= n <= m", n, m);
  const Tensor w = nn::detail::member_param(layer, name);
  TD_CHECK(w.dim() >= 2 && w.size(1) % m == 0, Shape,
           "'{}' is {}: to keep {} of {} in a row, dimension 1 must be a multiple of {}", name,
           w.shape().to_string(), n, m, m);
  const auto mask = need_mask(layer, name);
  const Tensor inputs_last = movedim(magnitudes(w), {1}, {-1});
  const std::vector<double> score = inputs_last.contiguous().to_vector<double>();
  const auto all = bytes_of(movedim(mask->mask.value(), {1}, {-1}).contiguous());
  std::vector<char> kept;
  for (size_t at = 0; at < score.size(); at += static_cast<size_t>(m)) {
    const auto end = at + static_cast<size_t>(m);
    std::vector<size_t> order(end - at);
    std::iota(order.begin(), order.end(), at);
    std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) {
      return all[a] != all[b] ? all[a] > all[b] : score[a] > score[b];
    });
    order.resize(static_cast<size_t>(n));
    kept.resize(end, 0);
    for (const size_t k : order) kept[k] = all[k];
  }
  mask->mask.assign_(movedim(mask_like(kept, inputs_last.to(w.device())), {-1}, {1}));
}

void custom_from_mask(Module& layer, const std::string& name, const Tensor& mask) {
  const NoGradGuard no_grad;
  const auto m = need_mask(layer, name);
  TD_CHECK(mask.shape() == m->mask.shape(), Shape, "the mask of '{}' is {}, expected {}", name,
           mask.shape().to_string(), m->mask.shape().to_string());
  m->mask.assign_(logical_and(m->mask.value(), (mask != 0).to(m->mask.device())));
}

void remove(Module& layer, const std::string& name) {
  const NoGradGuard no_grad;
  const auto m = mask_of(layer, name);
  TD_CHECK(m, Value, "'{}' is not pruned", name);
  const Param& p = nn::detail::member_param(layer, name);
  p.assign_(where(m->mask.value(), p.value(), 0.0));
  unwrap(layer, *m);
}

bool is_pruned(Module& net) {
  const auto modules = net.named_modules();
  return std::any_of(modules.begin(), modules.end(),
                     [](const auto& m) { return wrapper_of<WeightMask>(*m.second) != nullptr; });
}

double sparsity(Module& net) {
  int64_t all = 0, kept = 0;
  for (const auto& [path, module] : net.named_modules())
    for (const std::shared_ptr<Wrapper>& w : wrappers(*module))
      if (const auto* m = dynamic_cast<WeightMask*>(w.get())) {
        all += m->mask.numel();
        kept += sum(m->mask.value().to(DType::i64)).item<int64_t>();
      }
  return all > 0 ? 1.0 - static_cast<double>(kept) / static_cast<double>(all) : 0.0;
}

StateDict plain_state(StateDict state) {
  const NoGradGuard no_grad;
  StateDict out;
  for (const auto& [name, t] : state) {
    const std::string mask = name + kMask;
    const bool is_mask = name.ends_with(kMask) && t.dtype() == DType::b8 &&
                         state.find(name.substr(0, name.size() - std::string(kMask).size()));
    if (is_mask) continue;
    const Tensor* m = state.find(mask);
    out[name] = m && m->dtype() == DType::b8 ? where(*m, t, 0.0) : t;
  }
  return out;
}

// ---- the schedule

namespace {

std::vector<std::pair<Module*, std::string>> pruned_layers(Module& net) {
  std::vector<std::pair<Module*, std::string>> out;
  for (const auto& [path, m] : net.named_modules())
    if (wrapper_of<WeightMask>(*m)) out.emplace_back(m, "weight");
  return out;
}

double wanted_sparsity(const ScheduleOptions& o, int64_t step) {
  if (step >= o.to) return o.final_sparsity;
  const double left = 1.0 - static_cast<double>(step - o.from) / static_cast<double>(o.to - o.from);
  return o.final_sparsity * (1.0 - left * left * left);
}

// The share of what is left that brings a mask from one sparsity to another.
double share(double now, double wanted) {
  return now < 1 ? std::clamp((wanted - now) / (1.0 - now), 0.0, 1.0) : 0.0;
}

void prune_layer(Module& layer, const ScheduleOptions& o, double amount) {
  switch (o.method) {
    case Method::random_unstructured:
      return random_unstructured(layer, "weight", amount);
    case Method::ln_structured:
      return ln_structured(layer, "weight", amount, o.n, o.dim);
    case Method::semi_structured:
      return semi_structured(layer, "weight");
    default:
      return l1_unstructured(layer, "weight", amount);
  }
}

}  // namespace

void prepare(Module& net, const ScheduleOptions& o) {
  check_fields(any_fields(o), "prune");
  TD_CHECK(o.to >= o.from, Value, "weights are pruned from update {} to update {}", o.from, o.to);
  std::vector<char> used(o.on.size());
  bool any = false;
  for (const auto& [path, m] : net.named_modules()) {
    const std::string& type = m->type();
    if (type != "Linear" && !type.starts_with("Conv")) continue;
    any = true;
    bool chosen = false;
    for (size_t i = 0; i < used.size(); ++i)
      if (name_matches(o.on[i], path)) {
        used[i] = 1;
        chosen = true;
      }
    if (chosen) need_mask(*m, "weight");
  }
  TD_CHECK(any && !o.on.empty(), Value,
           "the model has no Linear layer and no convolution that is to be pruned");
  for (size_t i = 0; i < used.size(); ++i)
    TD_CHECK(used[i], Value, "'{}' matches no Linear or convolution of the model", o.on[i]);
}

void set_step(Module& net, const ScheduleOptions& o, int64_t step) {
  const bool due =
      step == o.to || (step >= o.from && step < o.to && (step - o.from) % o.every == 0);
  if (!due || (o.method == Method::semi_structured && step != o.to)) return;
  const double wanted = wanted_sparsity(o, step);
  const auto layers = pruned_layers(net);
  if (o.method == Method::global_unstructured)
    return global_unstructured(layers, share(sparsity(net), wanted));
  for (const auto& [layer, name] : layers) prune_layer(*layer, o, share(sparsity(*layer), wanted));
}

}  // namespace tandem::nn::prune
