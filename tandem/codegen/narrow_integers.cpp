// SPDX-License-Identifier: Apache-2.0
// Forwards: the range of each integer, and of each f32 that is bounded. Backwards: which of them
// are read as a whole, and which floats become integers that are bounded at once, so that 32 bits
// may saturate before.
#include "tandem/codegen/narrow_integers.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <initializer_list>
#include <limits>
#include <utility>

#include "tandem/graph/expression/scalar_expr.h"

namespace tandem::codegen {
namespace {

struct Range {
  int64_t low = std::numeric_limits<int64_t>::min(), high = std::numeric_limits<int64_t>::max();
  bool inside(Range r) const { return low >= r.low && high <= r.high; }
};
constexpr Range kWord{std::numeric_limits<int32_t>::min(), std::numeric_limits<int32_t>::max()};
constexpr int64_t kWordBytes = 4;

// Of an f32.
struct FloatRange {
  float low = -std::numeric_limits<float>::infinity(),
        high = std::numeric_limits<float>::infinity();
  bool nan = true;
  bool inside_word() const { return low >= -0x1p31f && high < 0x1p31f; }
  static FloatRange of_bits(int64_t bits) {
    float x;
    const auto low_bits = static_cast<uint32_t>(bits);
    std::memcpy(&x, &low_bits, sizeof x);
    return std::isnan(x) ? FloatRange() : FloatRange{x, x, false};
  }
};

// Of an integer dtype.
Range range_of(DType t) {
  const auto bits = static_cast<int>(8 * size_of(t));
  if (bits >= 64) return {};
  if (t == DType::u8) return {0, 255};
  return {-(int64_t{1} << (bits - 1)), (int64_t{1} << (bits - 1)) - 1};
}

// The range of op(a, b) for one of add, sub and mul; any value where it may leave 64 bits.
Range arithmetic(ScalarOp op, Range a, Range b) {
  Range r{std::numeric_limits<int64_t>::max(), std::numeric_limits<int64_t>::min()};
  for (const int64_t x : {a.low, a.high})
    for (const int64_t y : {b.low, b.high}) {
      int64_t v = 0;
      const bool wraps = op == ScalarOp::add   ? __builtin_add_overflow(x, y, &v)
                         : op == ScalarOp::sub ? __builtin_sub_overflow(x, y, &v)
                                               : __builtin_mul_overflow(x, y, &v);
      if (wraps) return {};
      r = {std::min(r.low, v), std::max(r.high, v)};
    }
  return r;
}

bool is_extreme(ScalarOp op) {
  return op == ScalarOp::max || op == ScalarOp::min || op == ScalarOp::fmax || op == ScalarOp::fmin;
}
bool is_comparison(ScalarOp op) { return op >= ScalarOp::eq && op <= ScalarOp::ge; }

// Ops whose low bits follow from the low bits of their operands.
bool keeps_low_bits(ScalarOp op) {
  switch (op) {
    case ScalarOp::neg:
    case ScalarOp::add:
    case ScalarOp::sub:
    case ScalarOp::mul:
    case ScalarOp::bit_not:
    case ScalarOp::bit_and:
    case ScalarOp::bit_or:
    case ScalarOp::bit_xor:
    case ScalarOp::select:
      return true;
    default:
      return false;
  }
}

class Narrowing {
 public:
  explicit Narrowing(const TilePlan& plan)
      : plan_(plan),
        ranges_(static_cast<size_t>(plan.n_slots())),
        floats_(static_cast<size_t>(plan.n_slots())) {
    for (const auto& [slot, bits] : plan.constants) {
      ranges_[at(slot)] = {bits, bits};  // read as what the steps say
      floats_[at(slot)] = FloatRange::of_bits(bits);
    }
  }

  std::vector<StepNote> run() {
    std::vector<int> maker(ranges_.size(), -1);  // the step whose result a slot holds
    for (size_t k = 0; k < plan_.steps.size(); ++k) {
      const TileStep& s = plan_.steps[k];
      uses_.push_back(use_of(s, plan_.meanings[k]));
      for (Operand& o : uses_.back().integers) o.maker = maker[at(o.slot)];
      maker[at(s.out)] = static_cast<int>(k);
      notes_.push_back(note_of(s, plan_.meanings[k]));
      ranges_[at(s.out)] = uses_.back().result;
      floats_[at(s.out)] = float_of(s, plan_.meanings[k]);
    }
    const std::vector<bool> saturated = find_saturated();
    std::vector<bool> whole(uses_.size());
    for (size_t k = uses_.size(); k-- > 0;) {
      notes_[k].narrow = saturated[k] || is_narrow(k, whole[k]);
      if (reads_low_bits(k, notes_[k].narrow)) continue;
      for (const Operand& o : uses_[k].integers)
        if (o.maker >= 0) whole[static_cast<size_t>(o.maker)] = true;
    }
    return std::move(notes_);
  }

 private:
  struct Operand {
    int slot;
    Range range;
    int maker = -1;
  };
  struct Use {
    std::vector<Operand> integers;
    Range result;  ///< of an integer result
  };

  static size_t at(int slot) { return static_cast<size_t>(slot); }
  static bool makes_integer(const StepMeaning& m) {
    return m.kind != StepMeaning::store && m.result == Reg::i64;
  }

  Use use_of(const TileStep& s, const StepMeaning& m) const {
    Use u;
    const int slots[] = {s.a, s.b, s.c};
    int n = 0;
    if (m.kind == StepMeaning::op) n = arity_of(m.scalar);
    if (m.kind == StepMeaning::convert || m.kind == StepMeaning::wrap ||
        m.kind == StepMeaning::store || m.kind == StepMeaning::fill)
      n = 1;
    const bool select = m.kind == StepMeaning::op && m.scalar == ScalarOp::select;
    for (int j = 0; m.type == Reg::i64 && j < n; ++j)
      if (!select || j > 0) u.integers.push_back({slots[j], ranges_[at(slots[j])]});
    if (makes_integer(m))
      u.result = converts_near(s, m) ? trunc(floats_[at(s.a)]) : result_of(m, u);
    return u;
  }

  bool converts_near(const TileStep& s, const StepMeaning& m) const {
    return m.kind == StepMeaning::convert && m.type == Reg::f32 && makes_integer(m) &&
           floats_[at(s.a)].inside_word();
  }
  // NaN becomes 0.
  static Range trunc(FloatRange x) {
    const Range r{static_cast<int64_t>(x.low), static_cast<int64_t>(x.high)};
    return x.nan ? Range{std::min<int64_t>(r.low, 0), std::max<int64_t>(r.high, 0)} : r;
  }
  static bool is_float_bound(const StepMeaning& m) {
    return m.kind == StepMeaning::op && m.type == Reg::f32 &&
           (m.scalar == ScalarOp::max || m.scalar == ScalarOp::min);
  }
  FloatRange float_of(const TileStep& s, const StepMeaning& m) const {
    if (!is_float_bound(m)) return {};
    const FloatRange a = floats_[at(s.a)], b = floats_[at(s.b)];
    const bool nan = a.nan || b.nan;
    if (m.scalar == ScalarOp::max) return {std::max(a.low, b.low), std::max(a.high, b.high), nan};
    return {std::min(a.low, b.low), std::min(a.high, b.high), nan};
  }

  // Reads the ranges of the operands, before that of the result takes the place of one.
  StepNote note_of(const TileStep& s, const StepMeaning& m) const {
    StepNote n;
    n.inside = converts_near(s, m);
    n.number = is_float_bound(m) && !floats_[at(s.b)].nan;
    const std::vector<Operand>& in = uses_.back().integers;
    if (!makes_integer(m) || in.empty()) return n;
    const Range a = in[0].range, b = in.back().range;
    if (m.kind == StepMeaning::wrap) n.same = a.inside(range_of(m.dtype));
    if (m.kind == StepMeaning::op && is_extreme(m.scalar)) {
      const bool largest = m.scalar == ScalarOp::max || m.scalar == ScalarOp::fmax;
      n.same = largest ? a.low >= b.high : a.high <= b.low;
    }
    return n;
  }

  static Range result_of(const StepMeaning& m, const Use& u) {
    switch (m.kind) {
      case StepMeaning::load:
        return range_of(m.dtype);
      case StepMeaning::wrap: {
        const Range all = range_of(m.dtype);
        return u.integers[0].range.inside(all) ? u.integers[0].range : all;
      }
      case StepMeaning::convert:
        return m.type == Reg::b8 ? Range{0, 1} : m.type == Reg::i64 ? u.integers[0].range : Range();
      case StepMeaning::fill:
        return u.integers[0].range;
      default:
        return result_of_op(m.scalar, u.integers);
    }
  }

  static Range result_of_op(ScalarOp op, const std::vector<Operand>& in) {
    const Range a = in[0].range, b = in.back().range;
    switch (op) {
      case ScalarOp::add:
      case ScalarOp::sub:
      case ScalarOp::mul:
        return arithmetic(op, a, b);
      case ScalarOp::neg:
        return arithmetic(ScalarOp::sub, {0, 0}, a);
      case ScalarOp::sign:
        return {-1, 1};
      case ScalarOp::bit_not:
      case ScalarOp::bit_and:
      case ScalarOp::bit_or:
      case ScalarOp::bit_xor:
        return a.inside(kWord) && b.inside(kWord) ? kWord : Range();
      case ScalarOp::select:
        return {std::min(a.low, b.low), std::max(a.high, b.high)};
      case ScalarOp::max:
      case ScalarOp::fmax:
        return {std::max(a.low, b.low), std::max(a.high, b.high)};
      case ScalarOp::min:
      case ScalarOp::fmin:
        return {std::min(a.low, b.low), std::min(a.high, b.high)};
      default:
        return {};
    }
  }

  bool fits(size_t k) const { return uses_[k].result.inside(kWord); }
  auto wide_operands(size_t k) const {
    const auto& in = uses_[k].integers;
    return std::count_if(in.begin(), in.end(),
                         [](const Operand& o) { return !o.range.inside(kWord); });
  }
  bool is_out(size_t k) const { return plan_.is_out(plan_.steps[k].out); }
  bool bounds(size_t k) const {
    const StepMeaning& m = plan_.meanings[k];
    return m.kind == StepMeaning::op && makes_integer(m) && is_extreme(m.scalar) &&
           wide_operands(k) <= 1;
  }
  bool converts_float(size_t k) const {
    const StepMeaning& m = plan_.meanings[k];
    return m.kind == StepMeaning::convert && makes_integer(m) &&
           (m.type == Reg::f32 || m.type == Reg::f64);
  }

  // The steps that may work on values saturated to 32 bits: conversions whose readers all bound
  // them, and those bounds. Where the result fits, saturation changed nothing.
  std::vector<bool> find_saturated() const {
    std::vector<bool> out(uses_.size(), true);
    for (size_t k = uses_.size(); k-- > 0;) {
      out[k] = (converts_float(k) || bounds(k)) && !is_out(k) && (out[k] || fits(k));
      for (const Operand& o : uses_[k].integers)
        if (o.maker >= 0 && !out[k]) out[at(o.maker)] = false;
    }
    for (size_t k = 0; k < uses_.size(); ++k)
      for (const Operand& o : uses_[k].integers)
        if (!o.range.inside(kWord) && (o.maker < 0 || !out[at(o.maker)])) out[k] = false;
    return out;
  }

  bool is_narrow(size_t k, bool whole) const {
    const StepMeaning& m = plan_.meanings[k];
    if (m.kind == StepMeaning::store || m.kind == StepMeaning::fill) return false;
    if (!makes_integer(m)) {
      const bool known =
          m.kind == StepMeaning::convert || (m.kind == StepMeaning::op && is_comparison(m.scalar));
      return m.type == Reg::i64 && known && wide_operands(k) == 0;
    }
    if (is_out(k)) return false;  // an output is stored as it is
    if (converts_float(k)) return fits(k);
    if (m.kind != StepMeaning::op || keeps_low_bits(m.scalar)) return !whole || fits(k);
    return (is_extreme(m.scalar) || m.scalar == ScalarOp::sign) && wide_operands(k) == 0;
  }

  // Are the upper bits of its operands of no consequence?
  bool reads_low_bits(size_t k, bool narrow) const {
    const StepMeaning& m = plan_.meanings[k];
    if (m.kind == StepMeaning::store || m.kind == StepMeaning::wrap)
      return static_cast<int64_t>(size_of(m.dtype)) <= kWordBytes || narrow;
    if (!narrow || !makes_integer(m)) return false;
    return m.kind == StepMeaning::convert || keeps_low_bits(m.scalar);
  }

  const TilePlan& plan_;
  std::vector<Range> ranges_;       ///< of the integer that each slot holds
  std::vector<FloatRange> floats_;  ///< of the f32 that it holds
  std::vector<Use> uses_;
  std::vector<StepNote> notes_;
};

}  // namespace

std::vector<StepNote> narrow_integers(const TilePlan& plan) { return Narrowing(plan).run(); }

}  // namespace tandem::codegen
