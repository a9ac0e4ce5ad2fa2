// SPDX-License-Identifier: Apache-2.0
// Bias, residual and activation behind a product or convolution with a packed weight go into it:
// they are done on a tile that was just computed. The instruction then stands where the last one
// that it took in stood. What has no place there becomes an epilogue as for other products.
#include <cmath>
#include <optional>

#include "tandem/compile/emit.h"
#include "tandem/compile/passes.h"
#include "tandem/ops/packed.h"
#include "tandem/ops/pointwise.h"

namespace tandem::compiler {
namespace {

size_t idx(int k) { return static_cast<size_t>(k); }

class Tails {
 public:
  explicit Tails(Program& p) : p_(p), readers_(p.values.size()), gone_(p.instrs.size()) {
    for (size_t k = 0; k < p.instrs.size(); ++k)
      for (const Arg& a : p.instrs[k].in)
        if (a.value != kNone) readers_[idx(a.value)].push_back(static_cast<int>(k));
    for (int v : p.results()) readers_[idx(v)].push_back(kNone);
  }

  void run() {
    for (size_t k = 0; k < p_.instrs.size(); ++k) {
      if (gone_[k] || !is_packed(p_.instrs[k])) continue;
      int at = static_cast<int>(k);
      while (take(at)) {}
    }
    std::vector<Instr> kept;
    for (size_t k = 0; k < p_.instrs.size(); ++k)
      if (!gone_[k]) kept.push_back(std::move(p_.instrs[k]));
    p_.instrs = std::move(kept);
  }

 private:
  static bool is_packed(const Instr& i) {
    return i.op == &op::packed_product || i.op == &op::packed_conv || i.op == &op::depthwise_conv ||
           i.op == &op::winograd_conv || i.op == &op::packed_product_bf16;
  }
  static PackedAttrs attrs(const Instr& i) {
    return *static_cast<const PackedAttrs*>(i.attrs.get());
  }
  const Spec& spec(int v) const { return p_.values[idx(v)].spec; }
  const std::vector<int>& readers(int v) const { return readers_[idx(v)]; }

  // The number that an operand is: given as such, or a constant of one element.
  std::optional<double> number(const Arg& a) const {
    if (a.is_number) return a.number.to_double();
    if (a.value == kNone) return {};
    const Value& v = p_.values[idx(a.value)];
    if (v.origin != Origin::constant || v.spec.shape.numel().value() != 1) return {};
    return p_.constants[idx(v.index)].to_vector<double>()[0];
  }
  // The other operand of a two-operand instruction that reads y.
  static const Arg& other(const Instr& i, int y) { return i.in[i.in[0].value == y ? 1 : 0]; }
  static bool reads_once(const Instr& i, int y) {
    int n = 0;
    for (const Arg& a : i.in) n += a.value == y;
    return n == 1;
  }

  // Move the packed instruction from `at` to where `last` stands; it makes what that made.
  void move(int& at, int last, PackedAttrs a) {
    Instr i = std::move(p_.instrs[idx(at)]);
    i.attrs = AttrsHolder(fields<PackedAttrs>(), &a);
    i.out = p_.instrs[idx(last)].out;
    gone_[idx(at)] = 1;
    for (Arg& x : i.in)  // it is read later now
      if (x.value != kNone)
        for (int& r : readers_[idx(x.value)])
          if (r == at) r = last;
    p_.instrs[idx(last)] = std::move(i);
    at = last;
  }
  void set_operand(int at, size_t k, int v) {
    Instr& i = p_.instrs[idx(at)];
    while (i.in.size() <= k) i.in.push_back({});
    i.in[k].value = v;
  }
  bool has_operand(const Instr& i, size_t k) const { return k < i.in.size() && i.in[k].present(); }

  bool take(int& at) {
    const Instr& i = p_.instrs[idx(at)];
    const int y = i.out[0];
    const std::vector<int>& r = readers(y);
    if (r.empty() || r.front() == kNone || r.back() == kNone) return false;
    const PackedAttrs a = attrs(i);
    if (r.size() == 1 && reads_once(p_.instrs[idx(r[0])], y)) return take_one(at, r[0], y, a);
    if (r.size() == 2 && a.tail == 0) return take_two(at, r[0], r[1], y, a);
    return false;
  }

  bool take_one(int& at, int k, int y, PackedAttrs a) {
    const Instr& i = p_.instrs[idx(at)];
    const Instr& next = p_.instrs[idx(k)];
    if (!next.op || next.out.size() != 1 || !(spec(next.out[0]) == spec(y))) return false;
    if (next.op == &op::add && a.tail == 0 && !has_operand(i, 3)) return take_sum(at, k, y, a);
    if (next.op == &op::relu) return clamp(at, k, a, 0.0, {});
    if (next.op == &op::relu6) return clamp(at, k, a, 0.0, 6.0);
    if (next.op == &op::maximum) return bounded(at, k, a, number(other(next, y)), true);
    if (next.op == &op::minimum) return bounded(at, k, a, number(other(next, y)), false);
    if (next.op == &op::clamp_min && next.in[0].value == y)
      return bounded(at, k, a, number(next.in[1]), true);
    if (next.op == &op::clamp_max && next.in[0].value == y)
      return bounded(at, k, a, number(next.in[1]), false);
    if (next.op == &op::clamp && next.in[0].value == y) {
      const auto low = number(next.in[1]), high = number(next.in[2]);
      return low && high && *low <= *high && clamp(at, k, a, low, high);
    }
    if (a.tail != 0) return false;
    if (next.op == &op::sigmoid) return finish(at, k, a, PackedTail::sigmoid);
    if (next.op == &op::silu) return finish(at, k, a, PackedTail::silu);
    if (next.op == &op::gelu) return finish(at, k, a, PackedTail::gelu);
    return false;
  }

  bool finish(int& at, int k, PackedAttrs a, PackedTail tail) {
    a.tail = static_cast<int64_t>(tail);
    move(at, k, a);
    return true;
  }

  // Maximum with `low`, then minimum with `high`.
  bool clamp(int& at, int k, PackedAttrs a, std::optional<double> low, std::optional<double> high) {
    if (a.tail != 0 && a.tail != static_cast<int64_t>(PackedTail::clamp)) return false;
    if (a.tail == 0) {
      a.low = -INFINITY;
      a.high = INFINITY;
    }
    if (low) {
      a.low = std::max(a.low, *low);
      a.high = std::max(a.high, *low);
    }
    if (high) {
      a.low = std::min(a.low, *high);
      a.high = std::min(a.high, *high);
    }
    return finish(at, k, a, PackedTail::clamp);
  }
  bool bounded(int& at, int k, PackedAttrs a, std::optional<double> n, bool low) {
    if (!n || std::isnan(*n)) return false;
    return low ? clamp(at, k, a, n, {}) : clamp(at, k, a, {}, n);
  }

  bool take_sum(int& at, int k, int y, PackedAttrs a) {
    const Arg add = other(p_.instrs[idx(k)], y);
    if (add.value == kNone || spec(add.value).dtype != spec(y).dtype) return false;
    const Shape& s = spec(add.value).shape;
    const int64_t columns = spec(y).shape[spec(y).rank() - 1].value();
    const bool row =
        s.rank() > 0 && s.numel().value() == columns && s[s.rank() - 1].value() == columns;
    if (row && !has_operand(p_.instrs[idx(at)], 2))
      set_operand(at, 2, add.value);
    else if (s == spec(y).shape)
      set_operand(at, 3, add.value);
    else
      return false;
    for (int& r : readers_[idx(add.value)])
      if (r == k) r = at;  // move() makes it k again
    move(at, k, a);
    return true;
  }

  // The one instruction of that row that reads v, and nobody else does.
  int only(int v, const OpDef& row) const {
    if (readers(v).size() != 1 || readers(v)[0] == kNone) return kNone;
    const Instr& i = p_.instrs[idx(readers(v)[0])];
    return i.op == &row && reads_once(i, v) ? readers(v)[0] : kNone;
  }

  bool take_two(int& at, int first, int second, int y, const PackedAttrs& a) {
    for (int k : {first, second}) {
      const int rest = k == first ? second : first;
      const Instr& i = p_.instrs[idx(k)];
      if (k == rest || !i.op || i.out.size() != 1 || !reads_once(i, y) ||
          !reads_once(p_.instrs[idx(rest)], y))
        continue;
      // y * sigmoid(y)
      if (i.op == &op::sigmoid && only(i.out[0], op::mul) == rest) {
        gone_[idx(k)] = 1;
        return finish(at, rest, a, PackedTail::silu);
      }
      if (int last = erf_form(k, rest, y); last != kNone)
        return finish(at, last, a, PackedTail::gelu);
    }
    return false;
  }

  static bool about(std::optional<double> n, double want) {
    return n && std::abs(*n - want) < 1e-6 * want;
  }

  // ((erf(y / sqrt 2) + 1) * y) * 0.5, as exporters write gelu: the last instruction, or kNone.
  int erf_form(int k, int rest, int y) {
    const Instr& scaled = p_.instrs[idx(k)];
    const bool div = scaled.op == &op::div && scaled.in[0].value == y;
    if (!(div && about(number(scaled.in[1]), std::sqrt(2.0))) &&
        !(scaled.op == &op::mul && about(number(other(scaled, y)), std::sqrt(0.5))))
      return kNone;
    const int erf = only(scaled.out[0], op::erf);
    if (erf == kNone) return kNone;
    const int e = p_.instrs[idx(erf)].out[0], sum = only(e, op::add);
    if (sum == kNone || !about(number(other(p_.instrs[idx(sum)], e)), 1.0)) return kNone;
    const int one = p_.instrs[idx(sum)].out[0];
    if (only(one, op::mul) != rest) return kNone;
    const int whole = p_.instrs[idx(rest)].out[0], last = only(whole, op::mul);
    if (last == kNone || !about(number(other(p_.instrs[idx(last)], whole)), 0.5)) return kNone;
    for (int gone : {k, erf, sum, rest}) gone_[idx(gone)] = 1;
    return last;
  }

  Program& p_;
  std::vector<std::vector<int>> readers_;
  std::vector<char> gone_;
};

}  // namespace

void take_tails(Program& p) {
  if (p.inference) Tails(p).run();
}

}  // namespace tandem::compiler
