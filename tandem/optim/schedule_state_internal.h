// SPDX-License-Identifier: Apache-2.0
// Numbers of schedules in and out of their state. Not installed.
#pragma once

#include <string>
#include <unordered_set>
#include <vector>

#include "tandem/optim/scheduler.h"

namespace tandem::optim::detail {

/// The rates of all groups.
std::vector<double> rates(const Optimizer& o);
void put(StateDict& d, const std::string& name, double v);
/// The n numbers of `name`. Throws Value, Shape.
std::vector<double> get(const StateDict& d, const char* type, const std::string& name, size_t n);
/// Throws Value for a name that is not among `known`.
void check_names(const StateDict& d, const char* type,
                 const std::unordered_set<std::string>& known);
/// Throws Value: "StepLR expects step_size > 0, got 0".
void want(bool good, const char* type, const char* what, double got);
/// "momentum" or "beta1", whichever the optimizer has; throws Value where it has none.
const char* momentum_of(const Optimizer& o, const char* type);
/// From one number to another along half a cosine, or a line; `part` is 0..1.
double cosine(double from, double to, double part);
double linear(double from, double to, double part);

}  // namespace tandem::optim::detail
