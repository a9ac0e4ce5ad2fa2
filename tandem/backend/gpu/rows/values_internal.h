// SPDX-License-Identifier: Apache-2.0
// What the steps of a plan read that is the same for all elements (codegen/plan_values.h), as
// arguments of a kernel: the host computes it once a launch.
#pragma once

#include <string>
#include <vector>

#include "tandem/backend/gpu/arguments.h"
#include "tandem/backend/gpu/kernel_source.h"
#include "tandem/codegen/emit_c.h"
#include "tandem/codegen/plan_values.h"

namespace tandem::gpu {

using codegen::PlanValues;
using codegen::register_named;

/// A value that a kernel's text reads, as a parameter.
struct ValueParameter {
  int slot = 0;
  Reg type = Reg::f32;
};
/// `bits` of that register as text.
std::string literal_of(Reg type, int64_t bits);
/// As an argument.
void argue_value(Arguments& a, Reg type, int64_t bits);
/// As a parameter "v<slot>" with a prefix.
Parameter parameter_of(const ValueParameter& v, const std::string& prefix);

/// Inputs of a block by name, constants as literals, results collected: for plans whose inputs are
/// all elements.
class BlockOfElements : public codegen::BlockNames {
 public:
  BlockOfElements(const codegen::TilePlan& plan, std::vector<std::string> inputs);
  std::string input(int slot, const char* type) override;
  void output(int k, const char* type, const std::string& name) override;
  /// Names of the outputs, after emit_block().
  std::vector<std::string> outputs;

 private:
  const codegen::TilePlan& plan_;
  std::vector<std::string> inputs_;
  PlanValues values_;
};

}  // namespace tandem::gpu
