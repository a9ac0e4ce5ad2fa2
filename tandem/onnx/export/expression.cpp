// SPDX-License-Identifier: Apache-2.0
// Pointwise rows by their expressions: the typed program of the row, one ONNX node (or a few) per
// instruction. Known values are folded.
#include <cmath>
#include <limits>

#include "tandem/graph/expression/scalar_eval.h"
#include "tandem/graph/expression/scalar_expr.h"
#include "tandem/graph/infer.h"
#include "tandem/onnx/import/build_internal.h"
#include "tandem/ops/ops.h"

namespace tandem::onnx {
namespace {

constexpr double kLn2 = 0.69314718055994530942, kLn10 = 2.30258509299404568402,
                 kPi = 3.14159265358979323846;

DType dtype_of(Reg r) {
  return r == Reg::f32   ? DType::f32
         : r == Reg::f64 ? DType::f64
         : r == Reg::i64 ? DType::i64
                         : DType::b8;
}

// Ops that are one node of ONNX.
struct NodeOf {
  ScalarOp op;
  const char* name;
};
constexpr NodeOf kNodes[] = {
    {ScalarOp::neg, "Neg"},         {ScalarOp::abs, "Abs"},         {ScalarOp::sign, "Sign"},
    {ScalarOp::floor, "Floor"},     {ScalarOp::ceil, "Ceil"},       {ScalarOp::round, "Round"},
    {ScalarOp::sqrt, "Sqrt"},       {ScalarOp::exp, "Exp"},         {ScalarOp::log, "Log"},
    {ScalarOp::sin, "Sin"},         {ScalarOp::cos, "Cos"},         {ScalarOp::tan, "Tan"},
    {ScalarOp::asin, "Asin"},       {ScalarOp::acos, "Acos"},       {ScalarOp::atan, "Atan"},
    {ScalarOp::sinh, "Sinh"},       {ScalarOp::cosh, "Cosh"},       {ScalarOp::tanh, "Tanh"},
    {ScalarOp::asinh, "Asinh"},     {ScalarOp::acosh, "Acosh"},     {ScalarOp::atanh, "Atanh"},
    {ScalarOp::erf, "Erf"},         {ScalarOp::sigmoid, "Sigmoid"}, {ScalarOp::isnan, "IsNaN"},
    {ScalarOp::logical_not, "Not"}, {ScalarOp::add, "Add"},         {ScalarOp::sub, "Sub"},
    {ScalarOp::mul, "Mul"},         {ScalarOp::div, "Div"},         {ScalarOp::pow, "Pow"},
    {ScalarOp::max, "Max"},         {ScalarOp::min, "Min"},         {ScalarOp::eq, "Equal"},
    {ScalarOp::logical_and, "And"}, {ScalarOp::logical_or, "Or"},   {ScalarOp::logical_xor, "Xor"},
};
const char* node_of(ScalarOp op) {
  for (const NodeOf& node : kNodes)
    if (node.op == op) return node.name;
  return nullptr;
}

class Expression {
 public:
  Expression(OnnxExportCall& c, const ScalarProgram& p) : c_(c), b_(c.b), p_(p) {
    regs_.resize(p.code.size());
  }

  bool run() {
    for (size_t k = 0; k < p_.code.size(); ++k)
      if (!make(k)) return false;
    for (size_t o = 0; o < p_.out.size(); ++o) {
      if (!c_.wanted(o)) continue;
      const auto r = static_cast<size_t>(p_.out[o].reg);
      std::string y = b_.cast(name(r), dtype_of(p_.code[r].result), p_.out[o].dtype);
      if (!(regs_[r].shape == c_.out[o].shape)) y = b_.expand(y, c_.out[o].shape);
      c_.set(o, y);
    }
    return true;
  }

 private:
  struct Register {
    std::string name;
    bool known = false;
    Value value;
    Shape shape;
  };

  std::string name(size_t k) {
    Register& r = regs_[k];
    if (r.name.empty()) r.name = number(r.value, p_.code[k].result);
    return r.name;
  }
  std::string number(Value v, Reg r) {
    switch (r) {
      case Reg::f32:
        return b_.number(static_cast<double>(v.f32), DType::f32);
      case Reg::f64:
        return b_.number(v.f64, DType::f64);
      case Reg::i64:
        return b_.number(v.i64, DType::i64);
      default:
        return b_.number(v.b8, DType::b8);
    }
  }
  std::string number(double v) { return b_.number(v, dtype_of(type_)); }
  std::string whole(int64_t v) { return b_.number(v, DType::i64); }
  std::string n(const char* op, Names in) { return b_.node(op, std::move(in)); }

  bool make(size_t k) {
    const ScalarInstr& i = p_.code[k];
    Register& r = regs_[k];
    if (i.op == ScalarOp::constant) {
      r.known = true;
      r.value = to_value(i.imm, i.result);
      return true;
    }
    if (i.op == ScalarOp::input) {
      const auto& in = c_.in[static_cast<size_t>(i.input)];
      if (in.is_number) {
        r.known = true;
        r.value = to_value(in.number, i.result);
      } else {
        r.name = b_.cast(in.name, in.spec.dtype, dtype_of(i.result));
        r.shape = in.spec.shape;
      }
      return true;
    }
    bool known = true;
    for (const int16_t o : {i.a, i.b, i.c}) {
      if (o < 0) continue;
      known = known && regs_[static_cast<size_t>(o)].known;
      r.shape = broadcast_shapes(r.shape, regs_[static_cast<size_t>(o)].shape);
    }
    if (known) {
      const auto at = [&](int16_t o) {
        return o < 0 ? Value{} : regs_[static_cast<size_t>(o)].value;
      };
      ErrorWord error;
      r.value = evaluate_one(i, at(i.a), at(i.b), at(i.c), &error);
      r.known = true;
      return true;
    }
    type_ = i.type;
    if (i.op == ScalarOp::select && regs_[static_cast<size_t>(i.a)].known) {
      const auto taken = static_cast<size_t>(regs_[static_cast<size_t>(i.a)].value.b8 ? i.b : i.c);
      r = regs_[taken];
      return true;
    }
    const std::string a = name(static_cast<size_t>(i.a)),
                      b = i.b < 0 ? "" : name(static_cast<size_t>(i.b)),
                      c = i.c < 0 ? "" : name(static_cast<size_t>(i.c));
    r.name = emit(i, a, b, c);
    return !r.name.empty();
  }

  bool real() const { return type_ == Reg::f32 || type_ == Reg::f64; }

  // The nodes of one instruction; "" if it has none.
  std::string emit(const ScalarInstr& i, const std::string& a, const std::string& b,
                   const std::string& c) {
    if (const char* node = node_of(i.op))
      return arity_of(i.op) == 1 ? n(node, {a}) : n(node, {a, b});
    switch (i.op) {
      case ScalarOp::convert:
        return b_.cast(a, dtype_of(i.type), dtype_of(i.result));
      case ScalarOp::wrap:
        return b_.cast(b_.cast(a, dtype_of(i.type), i.narrow), i.narrow, dtype_of(i.type));
      case ScalarOp::trunc:
        return trunc(a);
      case ScalarOp::rsqrt:
        return n("Reciprocal", {n("Sqrt", {a})});
      case ScalarOp::exp2:
        return n("Pow", {number(2), a});
      case ScalarOp::expm1:  // tanh(a / 2) (e^a + 1): exact near 0
        return n("Mul",
                 {n("Tanh", {n("Mul", {a, number(0.5)})}), n("Add", {n("Exp", {a}), number(1)})});
      case ScalarOp::log2:
        return n("Mul", {n("Log", {a}), number(1 / kLn2)});
      case ScalarOp::log10:
        return n("Mul", {n("Log", {a}), number(1 / kLn10)});
      case ScalarOp::log1p:
        return log1p(a);
      case ScalarOp::isinf:
        return n("Equal", {n("Abs", {a}), number(INFINITY)});
      case ScalarOp::isfinite:
        return n("Less", {n("Abs", {a}), number(INFINITY)});
      case ScalarOp::bit_not:
        return n("Sub", {whole(-1), a});
      case ScalarOp::floor_div:
        return real() ? n("Floor", {n("Div", {a, b})}) : floor_div(a, b);
      case ScalarOp::trunc_div:
        return real() ? trunc(n("Div", {a, b})) : n("Div", {a, b});
      case ScalarOp::remainder:
        return real() ? remainder(a, b) : n("Mod", {a, b});
      case ScalarOp::fmod:
        return b_.node("Mod", {a, b}, {onnx_int("fmod", 1)});
      case ScalarOp::atan2:
        return atan2(a, b);
      case ScalarOp::fmax:
      case ScalarOp::fmin:
        return n(
            "Where",
            {n("IsNaN", {a}), b,
             n("Where", {n("IsNaN", {b}), a, n(i.op == ScalarOp::fmax ? "Max" : "Min", {a, b})})});
      case ScalarOp::ne:
        return n("Not", {n("Equal", {a, b})});
      case ScalarOp::lt:
      case ScalarOp::le:
      case ScalarOp::gt:
      case ScalarOp::ge:
        return order(i.op, a, b);
      case ScalarOp::bit_and:
      case ScalarOp::bit_or:
      case ScalarOp::bit_xor:
        TD_CHECK(b_.opset() >= 18, Unsupported, "bitwise ops need ONNX opset 18, this is {}",
                 b_.opset());
        return n(i.op == ScalarOp::bit_and  ? "BitwiseAnd"
                 : i.op == ScalarOp::bit_or ? "BitwiseOr"
                                            : "BitwiseXor",
                 {a, b});
      case ScalarOp::shl:
      case ScalarOp::shr:
        return shift(i.op == ScalarOp::shl, a, b);
      case ScalarOp::select:
        if (type_ == Reg::b8) return n("Or", {n("And", {a, b}), n("And", {n("Not", {a}), c})});
        return n("Where", {a, b, c});
      default:
        return "";
    }
  }

  std::string trunc(const std::string& a) {
    return n("Where", {n("Less", {a, number(0)}), n("Ceil", {a}), n("Floor", {a})});
  }
  // u = 1 + a rounded; log(u) a / (u - 1) compensates the rounding.
  std::string log1p(const std::string& a) {
    const std::string u = n("Add", {a, number(1)}), l = n("Log", {u});
    const std::string k = n("Mul", {l, n("Div", {a, n("Sub", {u, number(1)})})});
    return n("Where", {n("Equal", {u, number(1)}), a, n("Where", {n("Equal", {u, a}), l, k})});
  }
  std::string floor_div(const std::string& a, const std::string& b) {
    return n("Div", {n("Sub", {a, n("Mod", {a, b})}), b});
  }
  std::string remainder(const std::string& a, const std::string& b) {
    const std::string m = b_.node("Mod", {a, b}, {onnx_int("fmod", 1)});
    const std::string turned = n("Xor", {n("Less", {m, number(0)}), n("Less", {b, number(0)})});
    const std::string off = n("And", {turned, n("Not", {n("Equal", {m, number(0)})})});
    return n("Where", {off, n("Add", {m, b}), m});
  }
  // The angle of (b, a) from the ratio a / b, shifted by pi on the left; a = 0 by its sign, 1 / a.
  std::string atan2(const std::string& a, const std::string& b) {
    const std::string zero = number(0);
    const std::string angle = n("Atan", {n("Div", {a, b})});
    const std::string below =
        n("Less", {n("Where", {n("Equal", {a, zero}), n("Reciprocal", {a}), a}), zero});
    const std::string half = n("Where", {below, number(-kPi), number(kPi)});
    const std::string left =
        n("Less", {n("Where", {n("Equal", {b, zero}), n("Reciprocal", {b}), b}), zero});
    const std::string moved = n("Where", {left, n("Add", {angle, half}), angle});
    const std::string origin = n("And", {n("Equal", {a, zero}), n("Equal", {b, zero})});
    // On the axes Div gives NaN for 0 / 0: the result is a or +-pi.
    return n("Where", {origin, n("Where", {left, half, a}), moved});
  }
  std::string order(ScalarOp op, std::string a, std::string b) {
    if (type_ == Reg::b8) {
      a = b_.cast(a, DType::b8, DType::i64);
      b = b_.cast(b, DType::b8, DType::i64);
    }
    return n(op == ScalarOp::lt   ? "Less"
             : op == ScalarOp::le ? "LessOrEqual"
             : op == ScalarOp::gt ? "Greater"
                                  : "GreaterOrEqual",
             {a, b});
  }
  // BitShift requires unsigned numbers; a shift by 64 or more gives 0 (to the right: the sign).
  std::string shift(bool left, const std::string& a, const std::string& b) {
    const std::string most = n("Min", {b, whole(63)}), far = n("Less", {whole(63), b});
    const auto to = [&](const std::string& v, OnnxType t) {
      return b_.node("Cast", {v}, {onnx_int("to", static_cast<int64_t>(t))});
    };
    const auto move = [&](const std::string& v) {
      const std::string y = b_.node("BitShift", {to(v, OnnxType::u64), to(most, OnnxType::u64)},
                                    {onnx_text("direction", left ? "LEFT" : "RIGHT")});
      return to(y, OnnxType::i64);
    };
    if (left) return n("Where", {far, whole(0), move(a)});
    // Arithmetic shift: for a negative number shift its complement.
    const std::string negative = n("Less", {a, whole(0)});
    const std::string plain = n("Where", {negative, n("Sub", {whole(-1), a}), a});
    const std::string moved = move(plain);
    const std::string y = n("Where", {negative, n("Sub", {whole(-1), moved}), moved});
    return n("Where", {far, whole(0), y});
  }

  OnnxExportCall& c_;
  OnnxBuilder& b_;
  const ScalarProgram& p_;
  std::vector<Register> regs_;
  Reg type_ = Reg::f32;
};

}  // namespace

bool export_expression(OnnxExportCall& c) {
  if (c.op.family != Family::pointwise) return false;
  std::vector<OperandType> in;
  std::vector<DType> out;
  for (const auto& v : c.in) {
    if (!v.present()) return false;
    in.push_back(v.is_number
                     ? OperandType{OperandType::number, v.number.dtype()}
                     : OperandType{v.spec.rank() == 0 ? OperandType::zero_dim : OperandType::tensor,
                                   v.spec.dtype});
  }
  if (in.size() != c.op.n_in || c.out.size() != c.op.n_out) return false;
  for (const Spec& s : c.out) out.push_back(s.dtype);
  const ScalarProgram& p =
      program_of(c.op, std::span<const OperandType>(in), std::span<const DType>(out));
  // All or nothing: one function without an ONNX form makes the whole row a custom node.
  for (const ScalarInstr& i : p.code) switch (i.op) {
      case ScalarOp::erfc:
      case ScalarOp::erfinv:
      case ScalarOp::erfcx:
      case ScalarOp::ndtri:
      case ScalarOp::i0e:
      case ScalarOp::i1e:
      case ScalarOp::lgamma:
      case ScalarOp::digamma:
      case ScalarOp::zeta:
      case ScalarOp::gammainc:
      case ScalarOp::gammaincc:
        return false;
      default:
        break;
    }
  return Expression(c, p).run();
}

}  // namespace tandem::onnx
