// SPDX-License-Identifier: Apache-2.0
// Every step defines one variable of the loop's body. All loads stand first and all stores last, so
// an output may be the very memory of an input. An integer variable has 32 bits where they do
// (narrow_integers.h); C converts between both widths.
#include "tandem/codegen/emit_c.h"

#include <fmt/format.h>

#include <vector>

#include "tandem/base/error.h"
#include "tandem/codegen/narrow_integers.h"
#include "tandem/codegen/prelude_text.h"
#include "tandem/codegen/row_program.h"
#include "tandem/graph/expression/scalar_expr.h"

namespace tandem::codegen {
namespace {

char type_char(Reg r) { return "fdib"[static_cast<int>(r)]; }

const char* type_of(Reg r) {
  static constexpr const char* kNames[] = {"float", "double", "tdm_i64", "tdm_b8"};
  return kNames[static_cast<int>(r)];
}

// The names for a register in a step that may compute in 32 bits.
char type_char(Reg r, bool narrow) { return narrow && r == Reg::i64 ? 'n' : type_char(r); }
const char* type_of(Reg r, bool narrow) { return narrow && r == Reg::i64 ? "tdm_i32" : type_of(r); }
bool is_float(Reg r) { return r == Reg::f32 || r == Reg::f64; }
bool is_integer(std::string_view type) { return type == "tdm_i64" || type == "tdm_i32"; }

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

std::string loaded(const std::string& x, DType t, bool narrow = false) {
  if (t == DType::f16) return fmt::format("tdo_from_f16({})", x);
  if (t == DType::bf16) return fmt::format("tdo_from_bf16({})", x);
  return fmt::format("({}){}", type_of(reg_of(t), narrow), x);
}

// Writes steps as definitions of variables. Who derives says where inputs come from and where
// outputs go.
class StepWriter {
 public:
  virtual ~StepWriter() = default;

 protected:
  /// `own_flags`: the compiler is called by jit_compiler.cpp, which lets comparisons be selects.
  StepWriter(const TilePlan& plan, std::string prefix, bool own_flags)
      : plan_(plan),
        prefix_(std::move(prefix)),
        own_flags_(own_flags),
        current_(static_cast<size_t>(plan.n_slots())) {}

  /// The name of a variable that holds what `slot` holds at its first use.
  virtual std::string first_use(int slot, const char* type, bool value) = 0;
  virtual void result(int slot, const char* type, const std::string& name) = 0;

  void write(const std::vector<TileStep>& steps, const std::vector<StepMeaning>& meanings,
             std::string& to) {
    TD_ASSERT(steps.size() == meanings.size());
    text_ = &to;
    for (size_t k = 0; k < steps.size(); ++k) step(steps[k], meanings[k]);
  }
  /// The steps of the plan's loop.
  void write_loop(std::string& to) {
    const std::vector<StepNote> notes = narrow_integers(plan_);
    text_ = &to;
    for (size_t k = 0; k < plan_.steps.size(); ++k) {
      note_ = notes[k];
      step(plan_.steps[k], plan_.meanings[k]);
    }
  }
  bool divides() const { return divides_; }

  const TilePlan& plan_;

 private:
  struct Known {
    std::string name, type;  // of the variable that holds what the slot holds
  };

  std::string operand(int slot, const char* type, bool value) {
    Known& known = current_[static_cast<size_t>(slot)];
    if (known.name.empty()) known = {first_use(slot, type, value), type};
    TD_ASSERT(known.type == type || (is_integer(known.type) && is_integer(type)));
    return known.name;
  }

  void define(int slot, const char* type, const std::string& expression) {
    const std::string name = fmt::format("{}t{}", prefix_, count_++);
    *text_ += fmt::format("    const {} {} = {};\n", type, name, expression);
    current_[static_cast<size_t>(slot)] = {name, type};
    if (plan_.is_out(slot)) result(slot, type, name);
  }

  void step(const TileStep& s, const StepMeaning& m) {
    const int slots[] = {s.a, s.b, s.c, s.d};
    const auto arg = [&](int j, Reg r) { return operand(slots[j], type_of(r), m.values >> j & 1); };
    const char f = type_char(m.type, note_.narrow);
    const char* type = type_of(m.result, note_.narrow);
    if (note_.same) return define(s.out, type, arg(0, m.type));
    switch (m.kind) {
      case StepMeaning::load:
        return load(s, m.dtype);
      case StepMeaning::store:
        return define(s.out, type_of(m.dtype), stored(arg(0, m.type), m.dtype));
      case StepMeaning::fill:
        return define(s.out, type_of(m.result), arg(0, m.type));
      case StepMeaning::convert:
        return define(s.out, type,
                      fmt::format("tdo_{}{}{}({})", note_.narrow && note_.inside ? "inside_" : "",
                                  f, type_char(m.result, note_.narrow), arg(0, m.type)));
      case StepMeaning::wrap:
        return define(s.out, type, loaded(stored(arg(0, m.type), m.dtype), m.dtype, note_.narrow));
      case StepMeaning::mul_add: {
        const std::string a = arg(0, m.type), b = arg(1, m.type), c = arg(2, m.type);
        return define(s.out, type_of(m.type), fmt::format("{} * {} + {}", a, b, c));
      }
      case StepMeaning::select_compare: {
        static constexpr const char* kNames[] = {"lt", "le", "gt", "ge"};
        static constexpr const char* kSymbols[] = {"<", "<=", ">", ">="};
        const std::string a = arg(0, m.type), b = arg(1, m.type), c = arg(2, m.type),
                          d = arg(3, m.type);
        if (own_flags_ && is_float(m.type) && a == d && b == c)
          return define(
              s.out, type_of(m.type),
              fmt::format("{0} {2} {1} ? {1} : {0}", a, b, kSymbols[static_cast<int>(m.compare)]));
        return define(s.out, type_of(m.type),
                      fmt::format("tdo_select_{1}(tdo_{0}_{1}({2}, {3}), {4}, {5})",
                                  kNames[static_cast<int>(m.compare)], f, a, b, c, d));
      }
      case StepMeaning::op:
        return op(s, m);
    }
  }

  void op(const TileStep& s, const StepMeaning& m) {
    const int slots[] = {s.a, s.b, s.c}, n = arity_of(m.scalar);
    std::string args[3];
    for (int j = 0; j < n; ++j) {
      const Reg r = m.scalar == ScalarOp::select && j == 0 ? Reg::b8 : m.type;
      args[j] = operand(slots[j], type_of(r), m.values >> j & 1);
    }
    if (s.divides) {
      divides_ = true;
      *text_ += fmt::format("    bad |= {} == 0;\n", args[1]);
    }
    define(s.out, type_of(m.result, note_.narrow), call(m, args, n));
  }

  // Extremes of floats are written as compilers know them: MAXPS and MINPS give the second operand
  // where one is NaN, too.
  std::string call(const StepMeaning& m, const std::string* args, int n) const {
    if (own_flags_ && is_float(m.type) &&
        (m.scalar == ScalarOp::max || m.scalar == ScalarOp::min)) {
      const std::string most = fmt::format("({1} {2} {0} ? {1} : {0})", args[0], args[1],
                                           m.scalar == ScalarOp::max ? ">" : "<");
      return note_.number ? most : fmt::format("{0} != {0} ? {0} : {1}", args[1], most);
    }
    const char* name = to_string(m.scalar);
    const bool pow = m.scalar == ScalarOp::pow && m.type != Reg::i64;
    std::string text = is_math(m.scalar) || pow
                           ? fmt::format("tdm_{}{}", name, m.type == Reg::f32 ? "f" : "")
                           : fmt::format("tdo_{}{}_{}", name, note_.number ? "_number" : "",
                                         type_char(m.type, note_.narrow));
    for (int j = 0; j < n; ++j) text += (j ? ", " : "(") + args[j];
    return text + ")";
  }

  void load(const TileStep& s, DType t) {
    const std::string x = operand(s.a, type_of(t), false);
    define(s.out, type_of(reg_of(t), note_.narrow), loaded(x, t, note_.narrow));
  }

  static std::string stored(const std::string& x, DType t) {
    if (t == DType::f16) return fmt::format("tdo_to_f16({})", x);
    if (t == DType::bf16) return fmt::format("tdo_to_bf16({})", x);
    return fmt::format("({}){}", type_of(t), x);
  }

  const std::string prefix_;
  const bool own_flags_;
  std::vector<Known> current_;
  std::string* text_ = nullptr;
  int count_ = 0;
  bool divides_ = false;
  StepNote note_;  ///< of the step that is written
};

// A value is read before the loop, an input at the top of its body, outputs are stored at its end.
class TileWriter : StepWriter {
 public:
  explicit TileWriter(const TilePlan& plan) : StepWriter(plan, "", true) {}

  std::string function(std::string_view name) {
    write_loop(body_);
    std::string text = fmt::format("TDM_ENTRY int {}(void* const* s, tdm_i64 n) {{\n", name);
    text += head_;
    if (divides()) text += "  int bad = 0;\n";
    text += "  tdm_i64 i;\n  TDM_LOOP\n  for (i = 0; i < n; ++i) {\n";
    text += loads_ + body_ + stores_;
    text += divides() ? "  }\n  return bad;\n}\n" : "  }\n  return 0;\n}\n";
    return text;
  }

 private:
  std::string first_use(int slot, const char* type, bool value) override {
    if (value) {
      head_ += fmt::format("  const {0} v{1} = *(const {0}*)s[{1}];\n", type, slot);
      return fmt::format("v{}", slot);
    }
    TD_ASSERT(slot < plan_.n_in);
    head_ += fmt::format("  const {0}* p{1} = (const {0}*)s[{1}];\n", type, slot);
    loads_ += fmt::format("    const {0} x{1} = p{1}[i];\n", type, slot);
    return fmt::format("x{}", slot);
  }
  void result(int slot, const char* type, const std::string& name) override {
    head_ += fmt::format("  {0}* o{1} = ({0}*)s[{1}];\n", type, slot);
    stores_ += fmt::format("    o{}[i] = {};\n", slot, name);
  }

  std::string head_, loads_, body_, stores_;
};

// One stage of a row program: what is the same for the row first, then the loop over the row in
// pieces of 256, after each of which the folds take their elements in.
class StageWriter : StepWriter {
 public:
  StageWriter(const RowKernel& kernel, size_t stage)
      : StepWriter(kernel.plans[stage], fmt::format("a{}", stage), true),
        p_(kernel.program),
        stage_(p_.stages[stage]),
        compute_(type_of(p_.compute)) {}

  std::string block() {
    write(plan_.value_steps, plan_.value_meanings, scalars_);
    write(plan_.row_steps, plan_.row_meanings, scalars_);
    std::string body;
    write_loop(body);
    TD_ASSERT(!divides());
    std::string text = "  {\n" + pointers_, ends;
    std::string start, take;
    const char f = type_char(reg_of(p_.compute));
    for (const RowSink& sink : stage_.sinks) {
      if (sink.kind != RowSink::fold) continue;
      static constexpr const char* kNames[] = {"add", "mul", "max", "min"};
      static constexpr const char* kFirst[] = {"0", "1", "-__builtin_inf()", "__builtin_inf()"};
      const auto op = static_cast<int>(sink.op);
      text += fmt::format("    {0} l{1}[64], m{1}[256];\n", compute_, sink.index);
      start +=
          fmt::format("    tdo_start_{}_{}(l{}, {});\n", kNames[op], f, sink.index, kFirst[op]);
      take += fmt::format("      tdo_lanes_{0}_{1}(l{2}, m{2}, len);\n", kNames[op], f, sink.index);
      ends += fmt::format("    f{2} = tdo_tree_{0}_{1}(l{2}, n);\n", kNames[op], f, sink.index);
    }
    text += scalars_ + start;
    const bool one = stage_.once, pieces = !take.empty();
    const char* length = one ? "1" : pieces ? "len" : "n";
    text += pieces ? "    for (at = 0; at < n; at += 256) {\n"
                     "    const tdm_i64 len = n - at < 256 ? n - at : 256;\n"
                   : "    at = 0;\n";
    text += fmt::format("    TDM_LOOP\n    for (i = 0; i < {}; ++i) {{\n", length);
    text += loads_ + body + stores_ + "    }\n" + take;
    return text + (pieces ? "    }\n" : "") + ends + "  }\n";
  }

 private:
  int n_ins() const { return static_cast<int>(p_.ins.size()); }

  void pointer(const std::string& name, const char* type, int slot) {
    pointers_ += fmt::format("    {0}* {1} = ({0}*)s[{2}];\n", type, name, slot);
  }

  std::string first_use(int slot, const char* type, bool value) override {
    if (slot >= plan_.first_value()) return constant(slot, type);
    TD_ASSERT(slot < plan_.n_in);
    if (slot < n_ins()) return input(slot, type);
    if (slot == RowProgram::kCount) return "((double)n)";
    if (slot < RowProgram::kFirstStored) return fmt::format("f{}", slot - RowProgram::kFirstFold);
    TD_ASSERT(!value);
    const int k = slot - RowProgram::kFirstStored;
    const std::string p = fmt::format("h{}", k), x = fmt::format("x{}", slot);
    pointer(p, type, n_ins() + static_cast<int>(p_.outs.size()) + k);
    loads_ += fmt::format("      const {} {} = {}[at + i];\n", type, x, p);
    return x;
  }

  std::string input(int slot, const char* type) {
    const std::string p = fmt::format("p{}", slot), x = fmt::format("x{}", slot);
    const auto at = static_cast<size_t>(slot);
    switch (p_.ins[at]) {
      case RowKind::number:
        scalars_ += fmt::format("    const {0} {1} = *(const {0}*)s[{2}];\n", type, x, slot);
        break;
      case RowKind::row:
        scalars_ +=
            fmt::format("    const {} {} = {};\n", type, x,
                        loaded(fmt::format("*(const {}*)s[{}]", type_of(p_.in_types[at]), slot),
                               p_.in_types[at]));
        break;
      default:
        pointer(p, type, slot);
        loads_ += fmt::format("      const {} {} = {}[at + i];\n", type, x, p);
    }
    return x;
  }

  std::string constant(int slot, const std::string& type) {
    for (const auto& c : plan_.constants) {
      if (c.first != slot) continue;
      const auto bits = static_cast<uint64_t>(c.second);
      if (type == "float") return fmt::format("tdmi_float(0x{:x}u)", bits & 0xffffffffu);
      if (type == "double") return fmt::format("tdmi_double(0x{:x}ull)", bits);
      return fmt::format("(({})0x{:x}ull)", type, bits);
    }
    TD_ASSERT(false);  // every other value was computed by a step
    return "";
  }

  void result(int slot, const char* type, const std::string& name) override {
    const RowSink& sink = stage_.sinks[static_cast<size_t>(slot - plan_.n_in)];
    const int k = sink.index, at = n_ins() + k;
    switch (sink.kind) {
      case RowSink::fold:
        stores_ += fmt::format("      m{}[i] = {};\n", k, name);
        return;
      case RowSink::store:
        pointer(fmt::format("h{}", k), type, n_ins() + static_cast<int>(p_.outs.size()) + k);
        stores_ += fmt::format("      h{}[at + i] = {};\n", k, name);
        return;
      case RowSink::columns:
        pointer(fmt::format("o{}", k), type, at);
        stores_ += fmt::format("      o{0}[at + i] = o{0}[at + i] + {1};\n", k, name);
        return;
      default:
        pointer(fmt::format("o{}", k), type, at);
        stores_ += fmt::format("      o{}[at + i] = {};\n", k, name);
    }
  }

  const RowProgram& p_;
  const RowStage& stage_;
  const char* compute_;
  std::string pointers_, scalars_, loads_, stores_;
};

// Steps between names that somebody else gives.
class NamedWriter : StepWriter {
 public:
  NamedWriter(const TilePlan& plan, std::string prefix, BlockNames& names)
      : StepWriter(plan, std::move(prefix), false), names_(names) {}

  BlockText text() {
    BlockText t;
    write(plan_.row_steps, plan_.row_meanings, t.row);
    write(plan_.steps, plan_.meanings, t.body);
    t.divides = divides();
    return t;
  }

 private:
  std::string first_use(int slot, const char* type, bool /*value*/) override {
    return names_.input(slot, type);
  }
  void result(int slot, const char* type, const std::string& name) override {
    names_.output(slot - plan_.n_in, type, name);
  }

  BlockNames& names_;
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
  return TileWriter(plan).function(name);
}

std::string emit_row_c(const RowKernel& kernel, std::string_view name) {
  const RowProgram& p = kernel.program;
  std::string text = fmt::format("TDM_ENTRY int {}(void* const* s, tdm_i64 n) {{\n", name);
  text += "  tdm_i64 i, at;\n";
  for (int k = 0; k < p.n_folds; ++k) text += fmt::format("  {} f{};\n", type_of(p.compute), k);
  for (size_t k = 0; k < p.stages.size(); ++k) text += StageWriter(kernel, k).block();
  return text + "  return 0;\n}\n";
}

BlockText emit_block(const TilePlan& plan, std::string_view prefix, BlockNames& names) {
  return NamedWriter(plan, std::string(prefix), names).text();
}

std::string_view emit_preamble() { return kPreludeText; }

namespace {
bool has_vector_loop(const TilePlan& plan) {
  for (const StepMeaning& m : plan.meanings) {
    if (stays_scalar(m)) return false;
  }
  return true;
}
}  // namespace

bool worth_compiling(const TilePlan& plan) {
  return plan.steps.size() >= 2 && has_vector_loop(plan);
}

bool worth_compiling(const RowKernel& kernel) {
  for (const TilePlan& plan : kernel.plans) {
    if (!has_vector_loop(plan)) return false;
  }
  return true;
}

}  // namespace tandem::codegen
