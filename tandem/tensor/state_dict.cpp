// SPDX-License-Identifier: Apache-2.0
#include "tandem/tensor/state_dict.h"

#include "tandem/base/nearest.h"

namespace tandem {

StateDict StateDict::of(std::vector<Entry> entries) {
  StateDict d;
  for (Entry& e : entries) {
    TD_CHECK(!d.contains(e.first), Value, "the name '{}' comes twice", e.first);
    d[e.first] = std::move(e.second);
  }
  return d;
}

Tensor& StateDict::operator[](std::string_view name) {
  auto [at, fresh] = index_.try_emplace(std::string(name), entries_.size());
  if (fresh) entries_.emplace_back(name, Tensor());
  return entries_[at->second].second;
}

const Tensor* StateDict::find(std::string_view name) const {
  auto at = index_.find(std::string(name));
  return at == index_.end() ? nullptr : &entries_[at->second].second;
}

const Tensor& StateDict::at(std::string_view name) const {
  if (const Tensor* t = find(name)) return *t;
  const Entry* nearest = nullptr;
  size_t least = name.size() / 2 + 2;
  for (const Entry& e : entries_) {
    const size_t d = edit_distance(name.substr(0, 200), std::string_view(e.first).substr(0, 200));
    if (d < least) {
      least = d;
      nearest = &e;
    }
  }
  TD_CHECK(nearest == nullptr, Value, "there is no tensor '{}' among {}\nDid you mean '{}'?", name,
           entries_.size(), nearest ? nearest->first : "");
  TD_FAIL(Value, "there is no tensor '{}' among {}", name, entries_.size());
}

bool StateDict::erase(std::string_view name) {
  auto at = index_.find(std::string(name));
  if (at == index_.end()) return false;
  const size_t i = at->second;
  index_.erase(at);
  entries_.erase(entries_.begin() + static_cast<std::ptrdiff_t>(i));
  for (auto& [key, place] : index_)
    if (place > i) --place;
  return true;
}

std::string to_string(const StateDict& d) {
  std::string text;
  for (const auto& [name, t] : d) {
    if (!text.empty()) text += '\n';
    text += name + ": " +
            (t.defined() ? std::string(to_string(t.dtype())) + " " + t.shape().to_string()
                         : "undefined");
  }
  return text;
}

}  // namespace tandem
