// SPDX-License-Identifier: Apache-2.0
// StateDict: named tensors in insertion order. What Module::state_dict() returns, save() writes and
// load() returns.
#pragma once

#include <deque>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "tandem/tensor/tensor.h"

namespace tandem {

class TD_API StateDict {
 public:
  using Entry = std::pair<std::string, Tensor>;
  using const_iterator = std::deque<Entry>::const_iterator;

  StateDict() = default;
  /// Throws Value when a name appears twice.
  static StateDict of(std::vector<Entry> entries);

  /// The tensor of `name`; appends an empty one if there is none. References to tensors stay valid
  /// until an erase().
  Tensor& operator[](std::string_view name);
  /// The tensor of `name`; throws Value with the nearest names if there is none.
  const Tensor& at(std::string_view name) const;
  /// The tensor of `name`, or nullptr.
  const Tensor* find(std::string_view name) const;
  bool contains(std::string_view name) const { return find(name) != nullptr; }
  /// Remove `name`; false if it does not exist.
  bool erase(std::string_view name);

  size_t size() const { return entries_.size(); }
  bool empty() const { return entries_.empty(); }
  const_iterator begin() const { return entries_.begin(); }
  const_iterator end() const { return entries_.end(); }

 private:
  // A deque: `d["head"] = d.at("embedding")` adds an entry while it holds a reference to another.
  std::deque<Entry> entries_;
  std::unordered_map<std::string, size_t> index_;
};

/// One line per tensor: name, dtype, shape.
TD_API std::string to_string(const StateDict& d);

}  // namespace tandem
