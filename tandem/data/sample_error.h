// SPDX-License-Identifier: Apache-2.0
// Errors of a user's code on a sample name the sample and where it comes from, whichever thread it
// ran on. DataLoader and Pipeline run every get(), map and predicate through at_sample().
#pragma once

#include <string>
#include <typeinfo>

#include "tandem/base/export.h"

namespace tandem::data::detail {

/// Call while an exception is handled: throws it again as an Error that begins with "sample 7 of
/// MNIST: ". An Error keeps its kind, hint and place. Another std::exception becomes Value, memory
/// that ran out Memory, and std::rethrow_if_nested() gives the original; what is not an exception
/// passes unchanged.
[[noreturn]] TD_API void rethrow_at_sample(const std::string& sample);

/// fn(), whose errors name the sample; `name()` gives "sample 7 of MNIST" and is called for an
/// error alone.
template <class F, class Name>
decltype(auto) at_sample(F&& fn, Name&& name) {
  try {
    return fn();
  } catch (...) {
    rethrow_at_sample(name());
  }
}

/// The last name of a type, without its namespaces.
TD_API std::string short_type_name(const std::type_info& type);

/// What messages call a dataset: its kName, else its type.
template <class D>
std::string source_name() {
  if constexpr (requires { D::kName; })
    return D::kName;
  else
    return short_type_name(typeid(D));
}

}  // namespace tandem::data::detail
