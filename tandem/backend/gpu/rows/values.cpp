// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <cstring>
#include <utility>

#include "tandem/backend/gpu/arguments.h"
#include "tandem/backend/gpu/rows/values_internal.h"
#include "tandem/base/error.h"
#include "tandem/codegen/reduce_program.h"

namespace tandem::gpu {

using codegen::TilePlan;

std::string literal_of(Reg type, int64_t bits) {
  const auto b = static_cast<uint64_t>(bits);
  switch (type) {
    case Reg::f32:
      return fmt::format("tdmi_float(0x{:x}u)", b & 0xffffffffu);
    case Reg::f64:
      return fmt::format("tdmi_double((tdm_u64)0x{:x}u)", b);
    case Reg::i64:
      return fmt::format("((tdm_i64)0x{:x}u)", b);
    default:
      return fmt::format("((tdm_b8){})", b & 0xff);
  }
}

void argue_value(Arguments& a, Reg type, int64_t bits) {
  float f;
  double d;
  switch (type) {
    case Reg::f32:
      std::memcpy(&f, &bits, sizeof f);
      a.value(f);
      return;
    case Reg::f64:
      std::memcpy(&d, &bits, sizeof d);
      a.value(d);
      return;
    case Reg::i64:
      a.value(bits);
      return;
    default:
      a.value(static_cast<uint8_t>(bits));
  }
}

Parameter parameter_of(const ValueParameter& v, const std::string& prefix) {
  const DType t = v.type == Reg::b8 ? DType::u8 : codegen::dtype_of_reg(v.type);
  return {Parameter::value, t, fmt::format("{}v{}", prefix, v.slot)};
}

BlockOfElements::BlockOfElements(const TilePlan& plan, std::vector<std::string> inputs)
    : outputs(static_cast<size_t>(plan.n_out)),
      plan_(plan),
      inputs_(std::move(inputs)),
      values_(plan) {
  values_.compute();
}

std::string BlockOfElements::input(int slot, const char* type) {
  if (slot < plan_.n_in) return inputs_[static_cast<size_t>(slot)];
  TD_ASSERT(slot >= plan_.first_value());
  return literal_of(register_named(type), values_.bits(slot));
}

void BlockOfElements::output(int k, const char*, const std::string& name) {
  outputs[static_cast<size_t>(k)] = name;
}

}  // namespace tandem::gpu
