// SPDX-License-Identifier: Apache-2.0
// Lowering: an untyped ScalarGraph becomes a typed program. Each node is requested in the type that
// its user needs, so conversions appear where types meet and unused values are never computed.
#include "tandem/graph/expression/scalar_program.h"

#include <array>

#include "tandem/graph/expression/scalar_eval.h"
#include "tandem/graph/expression/scalar_expr.h"
#include "tandem/graph/kernel.h"

namespace tandem {
namespace {

// The class in which a node is requested. A node's own class is the one without conversion.
enum Class : uint8_t {
  kElement,  // the compute type
  kNumber,   // the same for all elements: f64 if elements are floats, else the compute type
  kIndex,    // i64
  kTruth,    // b8
  kClasses
};

bool is_truth_op(ScalarOp op) {
  switch (op) {
    case ScalarOp::isnan:
    case ScalarOp::isinf:
    case ScalarOp::isfinite:
    case ScalarOp::logical_not:
    case ScalarOp::logical_and:
    case ScalarOp::logical_or:
    case ScalarOp::logical_xor:
      return true;
    default:
      return op >= ScalarOp::eq && op <= ScalarOp::ge;
  }
}
bool takes_truth(ScalarOp op) {
  return op == ScalarOp::logical_not || op == ScalarOp::logical_and || op == ScalarOp::logical_or ||
         op == ScalarOp::logical_xor;
}

// Whether the result can leave the range of a narrow integer dtype that contains the operands.
bool may_overflow(ScalarOp op, DType t) {
  switch (op) {
    case ScalarOp::neg:
    case ScalarOp::abs:
    case ScalarOp::add:
    case ScalarOp::sub:
    case ScalarOp::mul:
    case ScalarOp::pow:
    case ScalarOp::shl:
    case ScalarOp::floor_div:
    case ScalarOp::trunc_div:
      return true;
    case ScalarOp::bit_not:
      return t == DType::u8;
    default:
      return false;
  }
}

int bits_of(DType t) { return static_cast<int>(size_of(t)) * 8; }

// On bool the arithmetic ops are logical ones, and no-ops are eliminated.
ScalarOp op_on_bool(ScalarOp op) {
  switch (op) {
    case ScalarOp::add:
    case ScalarOp::max:
    case ScalarOp::fmax:
    case ScalarOp::bit_or:
      return ScalarOp::logical_or;
    case ScalarOp::mul:
    case ScalarOp::min:
    case ScalarOp::fmin:
    case ScalarOp::bit_and:
      return ScalarOp::logical_and;
    case ScalarOp::sub:
    case ScalarOp::bit_xor:
      return ScalarOp::logical_xor;
    case ScalarOp::bit_not:
      return ScalarOp::logical_not;
    default:
      return op;
  }
}

bool is_identity_on(ScalarOp op, Reg r) {
  if (op >= ScalarOp::floor && op <= ScalarOp::trunc) return r == Reg::i64 || r == Reg::b8;
  return r == Reg::b8 && (op == ScalarOp::abs || op == ScalarOp::sign || op == ScalarOp::neg);
}

class Lowering {
 public:
  Lowering(const ScalarGraph& g, std::span<const DType> in, DType compute,
           std::span<const InputKind> kinds)
      : g_(g), compute_(compute), made_(g.nodes.size()) {
    p_.in.assign(in.begin(), in.end());
    for (auto& m : made_) m.fill(-1);
    reg_[kElement] = reg_of(compute);
    reg_[kNumber] = is_floating(compute) ? Reg::f64 : reg_of(compute);
    reg_[kIndex] = Reg::i64;
    reg_[kTruth] = Reg::b8;
    for (size_t i = 0; i < p_.in.size(); ++i) {
      kind_.push_back(i < kinds.size() ? kinds[i] : InputKind::element);
    }
    classify();
  }

  ScalarProgram run(std::span<const DType> out) {
    for (size_t o = 0; o < g_.outputs.size(); ++o)
      p_.out.push_back({output(g_.outputs[o], out[o]), out[o]});
    TD_ASSERT(p_.code.size() < 32000);
    return std::move(p_);
  }

 private:
  // ---- classes

  // A constant has no class: it takes its user's.
  bool is_constant(int id) const { return g_.nodes[id].op == ScalarOp::constant; }

  void classify() {
    class_.resize(g_.nodes.size());
    for (size_t k = 0; k < g_.nodes.size(); ++k) {
      const ScalarNode& n = g_.nodes[k];
      Class c = kNumber;
      if (n.op == ScalarOp::input) {
        const InputKind kind = kind_[n.input];
        c = kind == InputKind::number ? kNumber : kind == InputKind::index ? kIndex : kElement;
      } else if (is_truth_op(n.op)) {
        c = kTruth;
      } else if (n.op != ScalarOp::constant) {
        c = n.op == ScalarOp::select ? join(n.b, n.c) : join(n.a, n.b);
        // A number selected by elements is one per element.
        if (n.op == ScalarOp::select && c == kNumber && !uniform_[n.a]) c = kElement;
      }
      bool same = n.op != ScalarOp::input || kind_[n.input] == InputKind::number;
      for (int o : {n.a, n.b, n.c}) same = same && (o < 0 || uniform_[o]);
      uniform_.push_back(same);
      class_[k] = c;
    }
  }
  // The class in which two operands meet; truth values count as numbers 0 and 1.
  Class join(int a, int b) const {
    auto own = [&](int id) {
      if (id < 0 || is_constant(id)) return kNumber;
      return class_[id] == kTruth ? (uniform_[id] ? kNumber : kElement) : class_[id];
    };
    const Class x = own(a), y = own(b);
    if (x == kElement || y == kElement) return kElement;
    if (x == kIndex || y == kIndex) return kIndex;
    return kNumber;
  }

  // ---- instructions

  int16_t emit(ScalarOp op, Reg type, Reg result, int a = -1, int b = -1, int c = -1) {
    ScalarInstr i;
    i.op = op;
    i.type = type;
    i.result = result;
    i.a = static_cast<int16_t>(a);
    i.b = static_cast<int16_t>(b);
    i.c = static_cast<int16_t>(c);
    p_.code.push_back(i);
    return static_cast<int16_t>(p_.code.size() - 1);
  }
  int16_t constant(const Scalar& v, Reg r) {
    const int16_t k = emit(ScalarOp::constant, r, r);
    Scalar& imm = p_.code.back().imm;
    switch (r) {
      case Reg::f32:
        imm = static_cast<double>(static_cast<float>(v.to_double()));
        break;
      case Reg::f64:
        imm = v.to_double();
        break;
      default: {
        const Value x = to_value(v, r);
        imm = r == Reg::b8 ? Scalar(x.b8) : Scalar(x.i64);
      }
    }
    return k;
  }
  int16_t wrap(int16_t a, DType t) {
    const int16_t k = emit(ScalarOp::wrap, Reg::i64, Reg::i64, a);
    p_.code.back().narrow = t;
    return k;
  }
  bool is_narrow(Class c) const {
    return c == kElement && is_integral(compute_) && compute_ != DType::i64;
  }

  // Register `a` of type `from` as class `to`.
  int16_t convert(int16_t a, Reg from, Class to) {
    const Reg r = reg_[to];
    if (from != r) a = emit(ScalarOp::convert, from, r, a);
    return a;
  }
  // Floats become integers of `t`: saturated to its range.
  int16_t saturate(int16_t a, DType t) {
    if (t == DType::i64) return a;
    const int64_t span = int64_t{1} << (bits_of(t) - 1);
    const int64_t low = t == DType::u8 ? 0 : -span, high = t == DType::u8 ? 255 : span - 1;
    a = emit(ScalarOp::max, Reg::i64, Reg::i64, a, constant(low, Reg::i64));
    return emit(ScalarOp::min, Reg::i64, Reg::i64, a, constant(high, Reg::i64));
  }

  // ---- nodes

  // The register of node `id` as class `want`.
  int16_t get(int id, Class want) {
    int16_t& done = made_[id][want];
    if (done >= 0) return done;
    int16_t r;
    if (is_constant(id)) {
      r = constant(g_.nodes[id].imm, reg_[want]);
      if (is_narrow(want)) p_.code[r].imm = Scalar(wrapped(p_.code[r].imm.i, compute_));
    } else if (want == class_[id]) {
      r = make(id);
    } else if (g_.nodes[id].op == ScalarOp::input) {
      r = from_input(id, want);
    } else {
      const Class own = class_[id];
      r = convert(get(id, own), reg_[own], want);
      if (is_narrow(want) && own != kTruth) r = wrap(r, compute_);
    }
    return made_[id][want] = r;
  }
  static int64_t wrapped(int64_t v, DType t) {
    ScalarInstr i;
    i.op = ScalarOp::wrap;
    i.narrow = t;
    Value x;
    x.i64 = v;
    return evaluate_one(i, x, x, x, nullptr).i64;
  }

  // An input is loaded once and converted directly to each requested type.
  int16_t from_input(int id, Class want) {
    const int input = g_.nodes[id].input;
    int16_t& loaded = loaded_[input];
    const DType stored = p_.in[input];
    const Reg r = reg_of(stored);
    if (loaded < 0) {
      loaded = emit(ScalarOp::input, r, r);
      p_.code.back().input = static_cast<int16_t>(input);
    }
    const int16_t k = convert(loaded, r, want);
    if (!is_narrow(want) || stored == compute_ || stored == DType::b8) return k;
    if (r != Reg::i64) return saturate(k, compute_);
    const bool fits = size_of(stored) < size_of(compute_) && compute_ != DType::u8;
    return fits ? k : wrap(k, compute_);
  }

  // The register of a node in its own class.
  int16_t make(int id) {
    const ScalarNode& n = g_.nodes[id];
    const Class own = class_[id];
    if (n.op == ScalarOp::input) return from_input(id, own);
    if (n.op == ScalarOp::select) {
      const int16_t c = get(n.a, kTruth), a = get(n.b, own), b = get(n.c, own);
      return emit(ScalarOp::select, reg_[own], reg_[own], c, a, b);
    }
    if (takes_truth(n.op)) {
      const int16_t a = get(n.a, kTruth), b = n.b < 0 ? int16_t{-1} : get(n.b, kTruth);
      return emit(n.op, Reg::b8, Reg::b8, a, b);
    }
    const Class operand = own == kTruth ? join(n.a, n.b) : own;
    return arithmetic(n, operand, own);
  }

  int16_t arithmetic(const ScalarNode& n, Class operand, Class own) {
    Reg r = reg_[operand];
    int16_t a = get(n.a, operand), b = n.b < 0 ? int16_t{-1} : get(n.b, operand);
    if (is_identity_on(n.op, r)) return a;
    if (own == kTruth) return test(n.op, r, a, b);
    if (r == Reg::b8) {
      const ScalarOp op = op_on_bool(n.op);
      if (op != n.op) return emit(op, r, r, a, b);
      return through(n.op, Reg::i64, r, a, b);  // no bool form: via integers
    }
    if (r == Reg::i64 && !has_integer_form(n.op)) {
      const int16_t k = through(n.op, Reg::f64, r, a, b);
      return is_narrow(operand) ? saturate(k, compute_) : k;
    }
    ScalarOp op = n.op;
    if (r == Reg::i64 && op == ScalarOp::fmax) op = ScalarOp::max;
    if (r == Reg::i64 && op == ScalarOp::fmin) op = ScalarOp::min;
    int16_t k = emit(op, r, r, a, b);
    if (!is_narrow(operand)) return k;
    if (op == ScalarOp::shr) return shift_limit(k, b);
    return may_overflow(op, compute_) ? wrap(k, compute_) : k;
  }

  int16_t test(ScalarOp op, Reg r, int16_t a, int16_t b) {
    const bool real = r == Reg::f32 || r == Reg::f64;
    if (!real && (op == ScalarOp::isnan || op == ScalarOp::isinf)) return constant(false, Reg::b8);
    if (!real && op == ScalarOp::isfinite) return constant(true, Reg::b8);
    return emit(op, r, Reg::b8, a, b);
  }

  // Runs the op in another register type and converts the result back.
  int16_t through(ScalarOp op, Reg by, Reg r, int16_t a, int16_t b) {
    if (by == Reg::i64 && !has_integer_form(op)) by = Reg::f64;
    a = emit(ScalarOp::convert, r, by, a);
    if (b >= 0) b = emit(ScalarOp::convert, r, by, b);
    const int16_t k = emit(op, by, by, a, b);
    return emit(ScalarOp::convert, by, r, k);
  }

  // A shift by the width or more gives 0; the 64-bit shift itself only handles 64.
  int16_t shift_limit(int16_t shifted, int16_t count) {
    const int16_t width = constant(static_cast<int64_t>(bits_of(compute_)), Reg::i64);
    const int16_t small = emit(ScalarOp::lt, Reg::i64, Reg::b8, count, width);
    return emit(ScalarOp::select, Reg::i64, Reg::i64, small, shifted,
                constant(int64_t{0}, Reg::i64));
  }

  int16_t output(int id, DType t) {
    const Reg r = reg_of(t);
    if (r == Reg::b8) return get(id, kTruth);
    Class c = is_constant(id) ? kElement : class_[id];
    if (c == kTruth || c == kNumber) c = kElement;
    const int16_t k = get(id, c);
    if (reg_[c] == r) return k;
    const bool real = reg_[c] == Reg::f32 || reg_[c] == Reg::f64;
    const int16_t converted = emit(ScalarOp::convert, reg_[c], r, k);
    return real && r == Reg::i64 ? saturate(converted, t) : converted;
  }

  const ScalarGraph& g_;
  DType compute_;
  Reg reg_[kClasses];
  std::vector<std::array<int16_t, kClasses>> made_;
  std::array<int16_t, 64> loaded_ = [] {
    std::array<int16_t, 64> a;
    a.fill(-1);
    return a;
  }();
  std::vector<InputKind> kind_;
  std::vector<Class> class_;
  std::vector<char> uniform_;
  ScalarProgram p_;
};

}  // namespace

ScalarProgram lower(const ScalarGraph& graph, std::span<const DType> in, DType compute,
                    std::span<const DType> out, std::span<const InputKind> kinds) {
  TD_ASSERT(static_cast<int>(in.size()) == graph.n_in && graph.n_in <= 64);
  TD_ASSERT(out.size() == graph.outputs.size());
  return Lowering(graph, in, compute, kinds).run(out);
}

// ---- printing

std::string ScalarProgram::to_string() const {
  static constexpr const char* kReg[] = {"f32", "f64", "i64", "b8"};
  std::string text;
  for (size_t k = 0; k < code.size(); ++k) {
    const ScalarInstr& i = code[k];
    text += fmt::format("r{} = {}", k, tandem::to_string(i.op));
    if (i.op == ScalarOp::input) text += fmt::format(" {}", i.input);
    if (i.op == ScalarOp::constant) {
      if (i.imm.kind == 2)
        text += fmt::format(" {}", i.imm.f);
      else
        text += fmt::format(" {}", i.imm.i);
    }
    for (int16_t r : {i.a, i.b, i.c})
      if (r >= 0) text += fmt::format(" r{}", r);
    if (i.op == ScalarOp::wrap) text += fmt::format(" to {}", tandem::to_string(i.narrow));
    text += fmt::format(" : {}", kReg[static_cast<int>(i.result)]);
    if (i.type != i.result) text += fmt::format(" of {}", kReg[static_cast<int>(i.type)]);
    text += '\n';
  }
  text += "return";
  for (const Out& o : out) text += fmt::format(" r{} : {}", o.reg, tandem::to_string(o.dtype));
  return text;
}

// ---- programs of rows, kept forever

struct ProgramEntry {
  std::array<uint64_t, 3> key;
  ScalarProgram program;
  const ProgramEntry* older;
};

namespace {

using Key = std::array<uint64_t, 3>;

Key key_of(std::span<const OperandType> in, DType compute, std::span<const DType> out) {
  Key key{};
  int bit = 0;
  auto put = [&](uint64_t v, int bits) {
    if (bit / 64 != (bit + bits - 1) / 64) bit = (bit / 64 + 1) * 64;
    key[bit / 64] |= v << (bit % 64);
    bit += bits;
  };
  for (const OperandType& t : in)
    put(static_cast<uint64_t>(t.dtype) * 4 + static_cast<uint64_t>(t.kind), 6);
  bit = 128;
  put(in.size(), 8);
  put(static_cast<uint64_t>(compute), 4);
  for (DType t : out) put(static_cast<uint64_t>(t), 4);
  return key;
}

ScalarProgram lower_row(const OpDef& op, std::span<const OperandType> in, DType compute,
                        std::span<const DType> out) {
  DType dtypes[kMaxOpIns];
  InputKind kinds[kMaxOpIns];
  for (size_t i = 0; i < in.size(); ++i) {
    const DType t = in[i].dtype;
    // "lr$" is numeric, also as a 0-d tensor (which is read as stored).
    const bool zero_dim_number =
        in[i].kind == OperandType::zero_dim && OpDef::last_char(op.in_names[i]) == '$';
    const bool number = in[i].kind == OperandType::number;
    dtypes[i] = !number ? t : is_floating(t) ? DType::f64 : is_integral(t) ? DType::i64 : DType::b8;
    kinds[i] = number || zero_dim_number ? InputKind::number : InputKind::element;
  }
  return lower(expr_of(op), {dtypes, in.size()}, compute, out, {kinds, in.size()});
}

}  // namespace

const ScalarProgram& program_of(const OpDef& op, std::span<const OperandType> in,
                                std::span<const DType> out) {
  OpRuntime& r = runtime_of(op);
  bool all_f32 = op.types != Types::custom;
  for (const OperandType& t : in)
    all_f32 = all_f32 && t.kind == OperandType::tensor && t.dtype == DType::f32;
  for (DType t : out) all_f32 = all_f32 && t == DType::f32;
  if (all_f32) {
    if (const ScalarProgram* p = r.program.load(std::memory_order_acquire)) return *p;
  }
  TD_ASSERT(in.size() == op.n_in && out.size() == op.n_out);
  const DType compute = compute_dtype(op, in, out);
  const Key key = key_of(in, compute, out);
  const ProgramEntry* head = r.programs.load(std::memory_order_acquire);
  for (const ProgramEntry* e = head; e; e = e->older)
    if (e->key == key) return e->program;
  // Two threads may add the same program: equal, and both stay valid.
  auto* fresh = new ProgramEntry{key, lower_row(op, in, compute, out), head};
  while (!r.programs.compare_exchange_weak(fresh->older, fresh, std::memory_order_acq_rel)) {}
  if (all_f32) r.program.store(&fresh->program, std::memory_order_release);
  return fresh->program;
}

const ScalarProgram& program_of(const OpDef& op, std::span<const DType> in,
                                std::span<const DType> out) {
  OperandType types[kMaxOpIns];
  TD_ASSERT(in.size() <= kMaxOpIns);
  for (size_t i = 0; i < in.size(); ++i) types[i] = {OperandType::tensor, in[i]};
  return program_of(op, std::span<const OperandType>(types, in.size()), out);
}

const ScalarProgram& program_of(const KernelCall& call) {
  OperandType in[kMaxOpIns];
  DType out[kMaxOpOuts];
  for (int i = 0; i < call.n_in; ++i) {
    const Array& a = call.in[i];
    in[i].kind = a.is_scalar   ? OperandType::number
                 : a.rank == 0 ? OperandType::zero_dim
                               : OperandType::tensor;
    in[i].dtype = a.is_scalar ? a.scalar.dtype() : a.dtype;
  }
  for (int o = 0; o < call.n_out; ++o) out[o] = call.out[o].dtype;
  return program_of(call.op, std::span<const OperandType>(in, call.n_in),
                    std::span<const DType>(out, call.n_out));
}

}  // namespace tandem
