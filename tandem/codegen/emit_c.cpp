// SPDX-License-Identifier: Apache-2.0
// Every step defines one variable of the loop's body. All loads stand first and all stores last, so
// an output may be the very memory of an input.
#include "tandem/codegen/emit_c.h"

#include <fmt/format.h>

#include <vector>

#include "tandem/base/error.h"
#include "tandem/codegen/prelude_text.h"
#include "tandem/graph/scalar_expr.h"

namespace tandem::codegen {
namespace {

char letter(Reg r) { return "fdib"[static_cast<int>(r)]; }

const char* type_of(Reg r) {
  static constexpr const char* kNames[] = {"float", "double", "tdm_i64", "tdm_b8"};
  return kNames[static_cast<int>(r)];
}

const char* type_of(DType t) {
  switch (t) {
    case DType::f16:
    case DType::bf16:
      return "tdm_u16";
    case DType::i32:
      return "__INT32_TYPE__";
    case DType::i16:
      return "__INT16_TYPE__";
    case DType::i8:
      return "__INT8_TYPE__";
    case DType::u8:
      return "__UINT8_TYPE__";
    default:
      return type_of(reg_of(t));
  }
}

bool is_math(ScalarOp op) {
  return (op >= ScalarOp::sqrt && op <= ScalarOp::digamma) ||
         (op >= ScalarOp::atan2 && op <= ScalarOp::gammaincc);
}

class Emitter {
 public:
  explicit Emitter(const TilePlan& plan)
      : plan_(plan), current_(static_cast<size_t>(plan.n_slots())) {}

  std::string function(std::string_view name) {
    for (size_t k = 0; k < plan_.steps.size(); ++k) step(static_cast<int>(k));
    std::string text = fmt::format("TDM_ENTRY int {}(void* const* s, tdm_i64 n) {{\n", name);
    text += head_;
    if (divides_) text += "  int bad = 0;\n";
    text += "  tdm_i64 i;\n  TDM_LOOP\n  for (i = 0; i < n; ++i) {\n";
    text += loads_ + body_ + stores_;
    text += divides_ ? "  }\n  return bad;\n}\n" : "  }\n  return 0;\n}\n";
    return text;
  }

 private:
  struct Known {
    std::string name;  // of the variable that holds what the slot holds
    std::string type;
  };

  // Operand j of a step: a value is read before the loop, an input at the top of its body.
  std::string operand(int slot, const char* type, bool value) {
    Known& known = current_[static_cast<size_t>(slot)];
    if (!known.name.empty() && known.type == type) return known.name;
    TD_ASSERT(known.name.empty());
    known.type = type;
    if (value) {
      known.name = fmt::format("v{}", slot);
      head_ += fmt::format("  const {0} v{1} = *(const {0}*)s[{1}];\n", type, slot);
      return known.name;
    }
    TD_ASSERT(slot < plan_.n_in);
    known.name = fmt::format("x{}", slot);
    head_ += fmt::format("  const {0}* p{1} = (const {0}*)s[{1}];\n", type, slot);
    loads_ += fmt::format("    const {0} x{1} = p{1}[i];\n", type, slot);
    return known.name;
  }

  void define(int k, int slot, const char* type, const std::string& expression) {
    const std::string name = fmt::format("t{}", k);
    body_ += fmt::format("    const {} {} = {};\n", type, name, expression);
    current_[static_cast<size_t>(slot)] = {name, type};
    if (!plan_.is_out(slot)) return;
    head_ += fmt::format("  {0}* o{1} = ({0}*)s[{1}];\n", type, slot);
    stores_ += fmt::format("    o{}[i] = {};\n", slot, name);
  }

  void step(int k) {
    const TileStep& s = plan_.steps[static_cast<size_t>(k)];
    const StepMeaning& m = plan_.meanings[static_cast<size_t>(k)];
    const int slots[] = {s.a, s.b, s.c, s.d};
    const auto arg = [&](int j, Reg r) { return operand(slots[j], type_of(r), m.values >> j & 1); };
    const char f = letter(m.type);
    switch (m.kind) {
      case StepMeaning::load:
        return load(k, s, m.dtype);
      case StepMeaning::store:
        return define(k, s.out, type_of(m.dtype), stored(arg(0, m.type), m.dtype));
      case StepMeaning::fill:
        return define(k, s.out, type_of(m.result), arg(0, m.type));
      case StepMeaning::convert:
        return define(k, s.out, type_of(m.result),
                      fmt::format("tdo_{}{}({})", f, letter(m.result), arg(0, m.type)));
      case StepMeaning::wrap:
        return define(k, s.out, type_of(Reg::i64), stored(arg(0, m.type), m.dtype));
      case StepMeaning::mul_add: {
        const std::string a = arg(0, m.type), b = arg(1, m.type), c = arg(2, m.type);
        return define(k, s.out, type_of(m.type), fmt::format("{} * {} + {}", a, b, c));
      }
      case StepMeaning::select_compare: {
        static constexpr const char* kNames[] = {"lt", "le", "gt", "ge"};
        const std::string a = arg(0, m.type), b = arg(1, m.type), c = arg(2, m.type),
                          d = arg(3, m.type);
        return define(k, s.out, type_of(m.type),
                      fmt::format("tdo_select_{1}(tdo_{0}_{1}({2}, {3}), {4}, {5})",
                                  kNames[static_cast<int>(m.compare)], f, a, b, c, d));
      }
      case StepMeaning::op:
        return op(k, s, m);
    }
  }

  void op(int k, const TileStep& s, const StepMeaning& m) {
    const int slots[] = {s.a, s.b, s.c}, n = arity_of(m.scalar);
    std::string args[3];
    for (int j = 0; j < n; ++j) {
      const Reg r = m.scalar == ScalarOp::select && j == 0 ? Reg::b8 : m.type;
      args[j] = operand(slots[j], type_of(r), m.values >> j & 1);
    }
    if (s.divides) {
      divides_ = true;
      body_ += fmt::format("    bad |= {} == 0;\n", args[1]);
    }
    define(k, s.out, type_of(m.result), call(m, args, n));
  }

  static std::string call(const StepMeaning& m, const std::string* args, int n) {
    const char* name = to_string(m.scalar);
    const bool pow = m.scalar == ScalarOp::pow && m.type != Reg::i64;
    std::string text = is_math(m.scalar) || pow
                           ? fmt::format("tdm_{}{}", name, m.type == Reg::f32 ? "f" : "")
                           : fmt::format("tdo_{}_{}", name, letter(m.type));
    for (int j = 0; j < n; ++j) text += (j ? ", " : "(") + args[j];
    return text + ")";
  }

  void load(int k, const TileStep& s, DType t) {
    const std::string x = operand(s.a, type_of(t), false);
    const char* reg = type_of(reg_of(t));
    if (t == DType::f16) return define(k, s.out, reg, fmt::format("tdo_from_f16({})", x));
    if (t == DType::bf16) return define(k, s.out, reg, fmt::format("tdo_from_bf16({})", x));
    define(k, s.out, reg, fmt::format("({}){}", reg, x));
  }

  static std::string stored(const std::string& x, DType t) {
    if (t == DType::f16) return fmt::format("tdo_to_f16({})", x);
    if (t == DType::bf16) return fmt::format("tdo_to_bf16({})", x);
    return fmt::format("({}){}", type_of(t), x);
  }

  const TilePlan& plan_;
  std::vector<Known> current_;
  std::string head_, loads_, body_, stores_;
  bool divides_ = false;
};

// Loops that stay scalar in the compilers that were looked at: calls, far branches, integer
// division.
bool stays_scalar(const StepMeaning& m) {
  if (m.kind != StepMeaning::op) return false;
  switch (m.scalar) {
    case ScalarOp::floor_div:
    case ScalarOp::remainder:
    case ScalarOp::fmod:
      return true;
    case ScalarOp::trunc_div:
    case ScalarOp::pow:
      return m.type == Reg::i64;
    case ScalarOp::sin:
    case ScalarOp::cos:
    case ScalarOp::tan:
      return m.type == Reg::f64;
    case ScalarOp::zeta:
    case ScalarOp::gammainc:
    case ScalarOp::gammaincc:
      return true;
    default:
      return false;
  }
}

}  // namespace

std::string emit_c(const TilePlan& plan, std::string_view name) {
  TD_ASSERT(plan.meanings.size() == plan.steps.size());
  return Emitter(plan).function(name);
}

std::string_view emit_preamble() { return kPreludeText; }

bool worth_compiling(const TilePlan& plan) {
  if (plan.steps.size() < 2) return false;
  for (const StepMeaning& m : plan.meanings) {
    if (stays_scalar(m)) return false;
  }
  return true;
}

}  // namespace tandem::codegen
