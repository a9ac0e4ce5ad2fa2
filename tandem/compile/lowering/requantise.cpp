// SPDX-License-Identifier: Apache-2.0
// The form is read from the end of the program, register by register.
#include "tandem/compile/lowering/requantise.h"

#include <cmath>
#include <limits>

namespace tandem::compiler {
namespace {

using Number = RequantiseForm::Number;

constexpr int64_t kLeast[2] = {0, -128}, kMost[2] = {255, 127};  // of u8 and i8

class FormReader {
 public:
  explicit FormReader(const ScalarProgram& p) : p_(p) {}

  std::optional<RequantiseForm> read() {
    RequantiseForm f;
    int code = -1;
    for (size_t k = 0; k < p_.out.size(); ++k) {
      const ScalarProgram::Out& o = p_.out[k];
      int from = o.reg;
      int& place = o.dtype == DType::f32 ? f.values : f.codes;
      if (place >= 0) return {};
      place = static_cast<int>(k);
      RequantiseForm::Rounding& last = f.rounding[0];
      if (o.dtype == DType::f32 && !value(o.reg, last, from)) return {};
      if (code >= 0 && from != code) return {};
      code = from;
    }
    int v = -1;
    if (code < 0 || !rounded(code, f.rounding[0], f.is_signed, v)) return {};
    if (f.codes >= 0 && p_.out[static_cast<size_t>(f.codes)].dtype != dtype(f.is_signed)) return {};
    if (scaled(v, f)) return f;
    // A residual has been added to what another rounding left.
    f.rounding[1] = f.rounding[0];
    f.rounding[0] = {};
    const ScalarInstr& i = at(v);
    if (i.op != ScalarOp::add || i.result != Reg::f32) return {};
    int inner = -1;
    bool is_signed = false;
    for (const auto& [sum, other] : {std::pair{i.a, i.b}, std::pair{i.b, i.a}}) {
      if (!is_array(other) || !value(sum, f.rounding[0], inner)) continue;
      f.residual = at(other).input;
      if (rounded(inner, f.rounding[0], is_signed, v) && is_signed == f.is_signed && scaled(v, f))
        return f;
      return {};
    }
    return {};
  }

 private:
  const ScalarInstr& at(int reg) const { return p_.code[static_cast<size_t>(reg)]; }
  static DType dtype(bool is_signed) { return is_signed ? DType::i8 : DType::u8; }
  bool is_array(int reg) const {
    const ScalarInstr& i = at(reg);
    return i.op == ScalarOp::input && p_.in[static_cast<size_t>(i.input)] == DType::f32;
  }
  bool is_constant(int reg, double value) const {
    return at(reg).op == ScalarOp::constant && at(reg).imm.to_double() == value;
  }

  // The same for all elements; the size of an array is known later.
  std::optional<Number> number(int reg) const {
    const ScalarInstr& i = at(reg);
    if (i.result != Reg::f32) return {};
    if (i.op == ScalarOp::constant) return Number{-1, i.imm.to_double()};
    if (is_array(reg)) return Number{i.input, 0};
    // Numbers are passed as f64 or i64.
    const ScalarInstr* from = &i;
    while (from->op == ScalarOp::convert && (from->type == Reg::f64 || from->type == Reg::i64))
      from = &at(from->a);
    if (from->op != ScalarOp::input) return {};
    const DType t = p_.in[static_cast<size_t>(from->input)];
    if (t != DType::f64 && t != DType::i64) return {};
    return Number{from->input, 0};
  }
  // reg = op(x, number), in either order where that is the same.
  bool with_number(int reg, ScalarOp op, int& x, Number& n) const {
    const ScalarInstr& i = at(reg);
    if (i.op != op || i.result != Reg::f32 || i.type != Reg::f32) return false;
    if (const auto b = number(i.b)) {
      x = i.a, n = *b;
      return true;
    }
    const auto a = number(i.a);
    if (!a || op == ScalarOp::sub) return false;
    x = i.b, n = *a;
    return true;
  }
  // reg = min(max(x, least), most)
  bool held(int reg, Reg type, int64_t least, int64_t most, int& x) const {
    const ScalarInstr& i = at(reg);
    if (i.op != ScalarOp::min || i.result != type || !is_constant(i.b, static_cast<double>(most)))
      return false;
    const ScalarInstr& j = at(i.a);
    if (j.op != ScalarOp::max || !is_constant(j.b, static_cast<double>(least))) return false;
    x = j.a;
    return true;
  }

  // (code - away) * step
  bool value(int reg, RequantiseForm::Rounding& r, int& code) const {
    int x = -1;
    if (!with_number(reg, ScalarOp::mul, x, r.step)) return false;
    r.away = {};
    if (at(x).op == ScalarOp::sub && !with_number(x, ScalarOp::sub, x, r.away)) return false;
    const ScalarInstr& i = at(x);
    if (i.op != ScalarOp::convert || i.result != Reg::f32 || i.type != Reg::i64) return false;
    code = i.a;
    return at(code).op == ScalarOp::wrap;
  }

  // The code of round(v * by) + zero, where v was held between bounds.
  bool rounded(int code, RequantiseForm::Rounding& r, bool& is_signed, int& v) const {
    const ScalarInstr& w = at(code);
    if (w.op != ScalarOp::wrap || (w.narrow != DType::u8 && w.narrow != DType::i8)) return false;
    is_signed = w.narrow == DType::i8;
    const int64_t least = kLeast[is_signed], most = kMost[is_signed];
    int x = -1;
    if (!held(w.a, Reg::i64, least, most, x)) return false;
    const ScalarInstr& c = at(x);
    if (c.op != ScalarOp::convert || c.type != Reg::f32 || !held(c.a, Reg::f32, least, most, x))
      return false;
    r.zero = {};
    if (at(x).op == ScalarOp::add && !with_number(x, ScalarOp::add, x, r.zero)) return false;
    if (at(x).op != ScalarOp::round || at(x).result != Reg::f32) return false;
    if (!with_number(at(x).a, ScalarOp::mul, v, r.by)) return false;
    bounds(v, r);
    return true;
  }

  void bounds(int& v, RequantiseForm::Rounding& r) const {
    const ScalarInstr& i = at(v);
    if (i.op == ScalarOp::select && at(i.a).op == ScalarOp::lt && at(i.a).a == i.c &&
        is_constant(at(i.a).b, 0) && is_constant(i.b, 0)) {
      r.least = Number{};
      v = i.c;
      return;
    }
    Number n;
    if (with_number(v, ScalarOp::min, v, n)) r.most = n;
    if (with_number(v, ScalarOp::max, v, n)) r.least = n;
  }

  // v * min(max(v + 3, 0), 6) / 6
  bool hardswish(int& v) const {
    constexpr double kThree = 3, kSix = 6;
    const ScalarInstr& i = at(v);
    if (i.op != ScalarOp::div || i.result != Reg::f32 || !is_constant(i.b, kSix)) return false;
    const ScalarInstr& j = at(i.a);
    int sum = -1;
    if (j.op != ScalarOp::mul || !held(j.b, Reg::f32, 0, static_cast<int64_t>(kSix), sum))
      return false;
    const ScalarInstr& k = at(sum);
    if (k.op != ScalarOp::add || k.a != j.a || !is_constant(k.b, kThree)) return false;
    v = j.a;
    return true;
  }

  // sums * scale, and a bias
  bool scaled(int v, RequantiseForm& f) const {
    f.hardswish = hardswish(v);
    const auto product = [&](int reg) {
      int x = -1;
      if (!with_number(reg, ScalarOp::mul, x, f.scale)) return false;
      const ScalarInstr& c = at(x);
      if (c.op != ScalarOp::convert || c.type != Reg::i64 || at(c.a).op != ScalarOp::input)
        return false;
      f.sums = at(c.a).input;
      return p_.in[static_cast<size_t>(f.sums)] == DType::i32;
    };
    const ScalarInstr& i = at(v);
    if (i.op != ScalarOp::add || i.result != Reg::f32) return product(v);
    for (const auto& [sum, other] : {std::pair{i.a, i.b}, std::pair{i.b, i.a}})
      if (is_array(other) && product(sum)) {
        f.bias = at(other).input;
        return true;
      }
    return false;
  }

  const ScalarProgram& p_;
};

}  // namespace

std::optional<RequantiseForm> RequantiseForm::of(const ScalarProgram& p) {
  if (p.out.empty() || p.out.size() > 2) return {};
  return FormReader(p).read();
}

std::optional<Requantise> RequantiseForm::with(const Array* arrays, int n_in, int64_t rows,
                                               int64_t columns) const {
  bool fits = true;
  const auto number = [&](const Number& n) {
    if (n.input < 0) return static_cast<float>(n.constant);
    const Array& a = arrays[n.input];
    constexpr double kExact = 1LL << 53;
    if (a.is_scalar && std::abs(a.scalar.to_double()) < kExact)
      return static_cast<float>(a.scalar.to_double());
    if (!a.is_scalar && a.numel == 1 && a.dtype == DType::f32) return *a.as<float>();
    fits = false;
    return 0.0F;
  };
  const auto array = [&](int input, int64_t n) -> const float* {
    const Array& a = arrays[input];
    fits = fits && !a.is_scalar && a.contiguous && a.numel == n && a.rank > 0 &&
           a.shape[a.rank - 1] == columns;
    return a.as<float>();
  };
  Requantise r;
  r.columns = columns;
  r.is_signed = is_signed;
  r.hardswish = hardswish;
  const bool one =
      scale.input < 0 || arrays[scale.input].is_scalar || arrays[scale.input].numel == 1;
  if (one)
    r.one_scale = number(scale);
  else
    r.scale = array(scale.input, columns);
  if (bias >= 0) r.bias = array(bias, columns);
  if (residual >= 0) r.residual = array(residual, rows * columns);
  constexpr float kAny = std::numeric_limits<float>::infinity();
  for (int k = 0; k < (residual >= 0 ? 2 : 1); ++k) {
    const Rounding& from = rounding[k];
    Requantise::Rounding& to = r.rounding[k];
    to.least = from.least ? number(*from.least) : -kAny;
    to.most = from.most ? number(*from.most) : kAny;
    to.by = number(from.by);
    const float zero = number(from.zero);
    to.away = number(from.away);
    to.step = number(from.step);
    const auto is_code = [&](float z) {
      return std::nearbyint(z) == z && z >= static_cast<float>(kLeast[1]) &&
             z <= static_cast<float>(kMost[0]);
    };
    if (!(to.least <= to.most) || !(to.by > 0) || !std::isfinite(to.by) || !is_code(zero) ||
        !is_code(to.away))
      return {};
    to.zero = static_cast<int32_t>(zero);
  }
  if (!fits) return {};
  if (codes >= 0) r.codes = arrays[n_in + codes].data;
  if (values >= 0) r.values = arrays[n_in + values].as<float>();
  return r;
}

}  // namespace tandem::compiler
