// SPDX-License-Identifier: Apache-2.0
// What the writers for phones share: names in languages other than C, and texts with gaps.
#pragma once

#include <set>
#include <string_view>

#include "tandem/edge/phone.h"

namespace tandem::edge {

/// An input or output in the wrapper's language.
struct PhonePort {
  std::string name;  ///< of a parameter or field
  Spec spec;
  bool in = false;
  int64_t count() const { return std::max<int64_t>(spec.shape.numel().value(), 1); }
};
/// Inputs, then outputs, with names that differ from each other and from `taken`.
std::vector<PhonePort> phone_ports(const EdgeSource& net, std::set<std::string> taken);

/// The C file without a static arena: objects of the wrappers have one each.
std::string without_arena(const EdgeSource& net, const PhoneOptions& options);

/// "MyNet" of "my_net".
std::string class_name(const std::string& name);

/// `text` with each @KEY@ replaced by its value.
std::string filled(std::string_view text,
                   const std::vector<std::pair<std::string, std::string>>& values);

}  // namespace tandem::edge
