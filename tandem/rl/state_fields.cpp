// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cmath>
#include <unordered_set>

#include "tandem/ops/view/view.h"
#include "tandem/rl/state_fields_internal.h"

namespace tandem::rl::detail {
namespace {

std::string text_of(const Tensor& t) {
  const std::vector<uint8_t> bytes = t.to_vector<uint8_t>();
  return {bytes.begin(), bytes.begin() + static_cast<int64_t>(std::min<size_t>(bytes.size(), 80))};
}

}  // namespace

std::vector<int64_t> StateFields::sizes(const Tensor& t) {
  std::vector<int64_t> out;
  for (int64_t i = 0; i < t.dim(); ++i) out.push_back(t.size(i));
  return out;
}

// Saves `now`; or loads the state's tensor of this name, checked against dtype and shape.
Tensor StateFields::entry(const std::string& name, const Tensor& now,
                          const std::vector<int64_t>& shape) {
  const std::string key = prefix_ + name;
  if (!from_) {
    given_[key] = now;
    return now;
  }
  known_.push_back(key);
  const Tensor* v = from_->find(key);
  TD_CHECK(v && v->defined(), Value, "load_training_state: the state has no '{}'", key);
  bool fits = v->dtype() == now.dtype() && v->dim() == static_cast<int64_t>(shape.size());
  for (size_t i = 0; fits && i < shape.size(); ++i)
    fits = shape[i] < 0 || v->size(static_cast<int64_t>(i)) == shape[i];
  if (!fits) {
    std::string want;
    for (const int64_t n : shape)
      want += (want.empty() ? "" : ", ") + (n < 0 ? "n" : std::to_string(n));
    TD_FAIL(Value, "load_training_state: '{}' is {} [{}] here, {} {} in the state", key,
            to_string(now.dtype()), want, to_string(v->dtype()), v->shape().to_string());
  }
  return *v;
}

void StateFields::require(bool ok, const std::string& name, double value) const {
  TD_CHECK(ok, Value, "load_training_state: '{}' cannot be {}", prefix_ + name, value);
}

void StateFields::then(std::function<void()> f) {
  if (from_) plan_.push_back(std::move(f));
}

void StateFields::take() {
  const std::unordered_set<std::string> known(known_.begin(), known_.end());
  for (const auto& [name, value] : *from_)
    TD_CHECK(known.count(name), Value,
             "load_training_state: the state holds '{}', which this agent has not", name);
  for (const auto& f : plan_) f();
}

void StateFields::param(const std::string& name, Param& value) {
  const Tensor now = value.value(), got = entry(name, now, sizes(now));
  then([&value, got] { value.assign_(got); });
}

void StateFields::same(const std::string& name, const std::string& value) {
  const Tensor got = entry(name, tensor(std::vector<uint8_t>(value.begin(), value.end())), {-1});
  TD_CHECK(text_of(got) == value, Value, "load_training_state: '{}' is {} here, {} in the state",
           prefix_ + name, value, text_of(got));
}

void StateFields::same(const std::string& name, int64_t value) {
  const int64_t got = entry(name, tensor(value), {}).item<int64_t>();
  TD_CHECK(got == value, Value, "load_training_state: '{}' is {} here, {} in the state",
           prefix_ + name, value, got);
}

int64_t StateFields::count(const std::string& name, int64_t now, int64_t low, int64_t high) {
  const int64_t got = entry(name, tensor(now), {}).item<int64_t>();
  require(got >= low && got <= high, name, static_cast<double>(got));
  return got;
}

void StateFields::number(const std::string& name, int64_t& value, int64_t low) {
  const int64_t got = count(name, value, low, std::numeric_limits<int64_t>::max());
  then([&value, got] { value = got; });
}

void StateFields::number(const std::string& name, uint64_t& value) {
  const int64_t got = entry(name, tensor(static_cast<int64_t>(value)), {}).item<int64_t>();
  then([&value, got] { value = static_cast<uint64_t>(got); });
}

void StateFields::number(const std::string& name, double& value) {
  const double got = entry(name, tensor(value, DType::f64), {}).item<double>();
  then([&value, got] { value = got; });
}

void StateFields::flag(const std::string& name, bool& value) {
  const int64_t got = count(name, value, 0, 1);
  then([&value, got] { value = got != 0; });
}

void StateFields::draws(const std::string& name, PhiloxStream& value) {
  const std::vector<int64_t> now = {
      static_cast<int64_t>(value.seed()), static_cast<int64_t>(value.offset()),
      static_cast<int64_t>(value.element()), static_cast<int64_t>(value.draw())};
  const auto set = [&value](const std::vector<int64_t>& v) {
    value = PhiloxStream(static_cast<uint64_t>(v[0]), static_cast<uint32_t>(v[1]),
                         static_cast<uint64_t>(v[2]), static_cast<uint32_t>(v[3]));
  };
  numbers<int64_t>(
      name, now, {4}, [](int64_t) { return true; }, set);
}

void StateFields::observations(const std::string& name, Tensor& value, int64_t rows, int64_t dims) {
  const Tensor got = entry(name, value.defined() ? value : zeros({0, dims}), {-1, dims});
  const int64_t n = got.size(0);
  require(n == 0 || n == rows, name, static_cast<double>(n));
  then([&value, got, n] { value = n > 0 ? got : Tensor(); });
}

void StateFields::rows(const std::string& name, std::vector<float>& storage, int64_t rows,
                       int64_t dims, int64_t choices) {
  const Tensor now =
      from_ ? zeros({0})
            : tensor(std::vector<float>(storage.begin(), storage.begin() + rows * dims),
                     Shape(rows, dims));
  const Tensor got = entry(name, now, {rows, dims});
  if (from_ && choices > 0)
    for (const float v : got.to_vector<float>())
      require(v >= 0 && v < static_cast<float>(choices) && v == std::floor(v), name,
              static_cast<double>(v));
  then([&storage, got] {
    const std::vector<float> v = got.to_vector<float>();
    std::copy(v.begin(), v.end(), storage.begin());
  });
}

}  // namespace tandem::rl::detail
