// SPDX-License-Identifier: Apache-2.0
// What the steps of a plan read that is the same for all elements: numbers among the operands,
// constants, and what is computed from them alone. The host computes it once a launch, in the
// precision that the row asks for, and passes it as arguments.
#pragma once

#include <string>
#include <vector>

#include "tandem/backend/gpu/arguments.h"
#include "tandem/backend/gpu/kernel_source.h"
#include "tandem/codegen/emit_c.h"

namespace tandem::gpu {

/// The registers of class value of one plan; bits by slot.
class PlanValues {
 public:
  explicit PlanValues(const codegen::TilePlan& plan);
  /// Input `slot` is the number whose register this is.
  void set(int slot, int64_t bits) { bits_[static_cast<size_t>(slot)] = bits; }
  /// After the inputs were set.
  void compute();
  int64_t bits(int slot) const { return bits_[static_cast<size_t>(slot)]; }

 private:
  const codegen::TilePlan& plan_;
  std::vector<int64_t> bits_;
};

/// A value that a kernel's text reads, as a parameter.
struct ValueParameter {
  int slot = 0;
  Reg type = Reg::f32;
};
/// The register of C type `type` (codegen's names).
Reg register_named(const char* type);
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
