// SPDX-License-Identifier: Apache-2.0
// Permutations from channels-last after packed convolutions move down through pointwise
// instructions, reductions over the image, pooling, resizing, padding and concatenations of
// channels, until they meet the permutation to channels-last before the next convolution, and both
// are eliminated. What lies between then works on dense channels-last values. Lines [n, c, l] are
// images [n, c, l, 1]: their convolutions stand between views. This is a walk that carries a layout
// along with each value, not a list of rules.
#include <unordered_map>

#include "tandem/compile/passes/emit.h"
#include "tandem/compile/passes/passes.h"
#include "tandem/graph/apply.h"
#include "tandem/graph/reduce_attrs.h"
#include "tandem/ops/conv/pool.h"
#include "tandem/ops/matmul/packed.h"
#include "tandem/ops/reduce/reduce.h"
#include "tandem/ops/view/view.h"

namespace tandem::compiler {
namespace {

bool permutes(const Instr& i, std::initializer_list<int64_t> dims) {
  if (i.op != &op::permute) return false;
  const auto& a = *static_cast<const PermuteAttrs*>(i.attrs.get());
  size_t k = 0;
  if (a.dims.size() != dims.size()) return false;
  for (int64_t d : dims)
    if (a.dims[static_cast<int>(k++)].value() != d) return false;
  return true;
}
bool to_channels_last(const Instr& i) { return permutes(i, {0, 2, 3, 1}); }
bool from_channels_last(const Instr& i) { return permutes(i, {0, 3, 1, 2}); }

class ChannelsLast {
 public:
  explicit ChannelsLast(Program& p) : p_(p), e_(p) {}

  void run() {
    PerInstr<Instr> old = std::exchange(p_.instrs, {});
    for (Instr& i : old) {
      for (Arg& a : i.in) a.value = now(a.value);
      e_.at(i);
      if (to_channels_last(i) && last(i.in[0].value) != kNone) {
        now_[i.out[0]] = last(i.in[0].value);
        continue;
      }
      if (view(i) || pointwise(i) || reduction(i) || concatenation(i) || padding(i)) continue;
      const bool from = from_channels_last(i), pool = pools(i);
      const ValueId x = operand(i, 0);
      const std::vector<ValueId> out(i.out.begin(), i.out.end());
      p_.instrs.push_back(std::move(i));
      if (from) last_[out[0]] = x;
      if (pool)
        last_[out[0]] = e_.permute(e_.view(out[0], image(spec(out[0]).shape)), {0, 2, 3, 1});
    }
    for (ValueId& v : p_.outputs) v = now(v);
    for (Program::CellUse& u : p_.cells) u.exit = now(u.exit);
    remove_dead(p_);
  }

 private:
  ValueId now(ValueId v) const {
    const auto at = now_.find(v);
    return at == now_.end() ? v : at->second;
  }
  /// The channels-last value whose permutation v is, or kNone.
  ValueId last(ValueId v) const {
    const auto at = v == kNone ? last_.end() : last_.find(v);
    return at == last_.end() ? ValueId() : at->second;
  }
  const Spec& spec(ValueId v) const { return p_.values[v].spec; }

  // The image that a value of an image's or a line's rank is.
  static Shape image(const Shape& s) { return s.rank() == 3 ? Shape(s[0], s[1], s[2], Dim(1)) : s; }
  bool has_image_rank(ValueId v) const { return spec(v).rank() == 3 || spec(v).rank() == 4; }

  // Beside a value of that rank: v [n, c, 1, 1], [1, c, 1, 1] or [c, 1, 1], of lines [n, c, 1],
  // [1, c, 1] or [c, 1]: a view brings it to channels-last.
  bool per_channel(ValueId v, int rank) const {
    const Shape& s = spec(v).shape;
    if (s.rank() < rank - 1 || s.rank() > rank) return false;
    for (int d = s.rank() - (rank - 2); d < s.rank(); ++d)
      if (s[d].value() != 1) return false;
    return true;
  }
  ValueId bring(ValueId v, int rank) {
    if (last(v) != kNone) return last(v);
    const Shape s = spec(v).shape;
    if (s.rank() < rank)
      v = e_.view(v, Shape(Dim(1), s[0], Dim(1), Dim(1)));
    else if (rank == 3)
      v = e_.view(v, image(s));
    return e_.permute(v, {0, 2, 3, 1});
  }

  void put(Instr&& i, ValueId out, const Shape& shape) {
    const ValueId v =
        p_.add_value(Spec(spec(out).dtype, shape, spec(out).device), Origin::instr, 0);
    i.out.clear();
    i.out.push_back(v);
    p_.instrs.push_back(std::move(i));
    ValueId back = e_.permute(v, {0, 3, 1, 2});
    last_[back] = v;
    if (spec(out).rank() == 3) {
      back = e_.view(back, spec(out).shape);
      last_[back] = v;
    }
    now_[out] = back;
  }
  static Shape turned(const Shape& line_or_image) {
    const Shape s = image(line_or_image);
    return Shape(s[0], s[2], s[3], s[1]);
  }

  // From a line to its image, or back.
  bool view(Instr& i) {
    if (i.op != &op::view || i.out[0] == kNone || last(i.in[0].value) == kNone ||
        !has_image_rank(i.out[0]) ||
        image(spec(i.out[0]).shape) != image(spec(i.in[0].value).shape))
      return false;
    last_[i.out[0]] = last(i.in[0].value);
    p_.instrs.push_back(std::move(i));
    return true;
  }

  bool pointwise(Instr& i) {
    if (!i.op || i.op->family != Family::pointwise || i.out.size() != 1 || i.out[0] == kNone ||
        !has_image_rank(i.out[0]) || i.op->has(kEffect) || i.op->has(kRandom))
      return false;
    const Shape whole = spec(i.out[0]).shape;
    const int rank = whole.rank();
    bool any = false;
    for (const Arg& a : i.in) {
      if (a.value == kNone) continue;
      if (last(a.value) != kNone && spec(a.value).shape == whole) any = true;
      const bool fits =
          last(a.value) != kNone ? spec(a.value).rank() == rank : per_channel(a.value, rank);
      if (!fits && spec(a.value).rank() != 0) return false;
    }
    if (!any) return false;
    for (Arg& a : i.in)
      if (a.value != kNone && spec(a.value).rank() != 0) a.value = bring(a.value, rank);
    put(std::move(i), i.out[0], turned(whole));
    return true;
  }

  bool reduction(Instr& i) {
    // The rows share one AttrsType; with GCC each file that calls fields() has one of its own.
    if (!i.op || i.op->family != Family::reduce || i.op->attrs != op::mean.attrs ||
        i.out.size() != 1 || i.out[0] == kNone || i.in.empty() || last(i.in[0].value) == kNone)
      return false;
    ReduceAttrs a = *static_cast<const ReduceAttrs*>(i.attrs.get());
    // The largest and the smallest element are the same in any order.
    if ((i.op == &op::amax || i.op == &op::amin) && !a.keepdim && spec(i.out[0]).rank() == 0) {
      i.in[0].value = last(i.in[0].value);
      p_.instrs.push_back(std::move(i));
      return true;
    }
    const int rank = spec(i.in[0].value).rank();
    bool over[4] = {false, false, false, rank == 3};
    for (int d = 0; d < static_cast<int>(a.dims.size()); ++d)
      over[(a.dims[d].value() + rank) % rank] = true;
    if (over[0] || over[1] || !over[2] || !over[3]) return false;
    a.dims = IntList{1, 2};
    i.attrs = AttrsHolder(fields<ReduceAttrs>(), &a);
    i.in[0].value = last(i.in[0].value);
    const ValueId out = i.out[0];
    if (a.keepdim)
      put(std::move(i), out, turned(spec(out).shape));
    else
      p_.instrs.push_back(std::move(i));
    return true;
  }

  bool concatenation(Instr& i) {
    if (i.op != &op::cat || i.out[0] == kNone || !has_image_rank(i.out[0])) return false;
    if (static_cast<const DimAttrs*>(i.attrs.get())->dim != 1) return false;
    for (const Arg& a : i.in)
      if (last(a.value) == kNone) return false;
    DimAttrs a;
    a.dim = 3;
    i.attrs = AttrsHolder(fields<DimAttrs>(), &a);
    for (Arg& x : i.in) x.value = last(x.value);
    const ValueId out = i.out[0];
    put(std::move(i), out, turned(spec(out).shape));
    return true;
  }

  bool padding(Instr& i) {
    if (i.op != &op::pad || !has_image_rank(i.out[0]) || last(i.in[0].value) == kNone) return false;
    PadAttrs a = *static_cast<const PadAttrs*>(i.attrs.get());
    for (IntList* side : {&a.before, &a.after}) {
      if (side->rank() == 3) side->push_back(Dim(0));
      *side = turned(*side);
    }
    i.attrs = AttrsHolder(fields<PadAttrs>(), &a);
    i.in[0].value = last(i.in[0].value);
    const ValueId out = i.out[0];
    put(std::move(i), out, turned(spec(out).shape));
    return true;
  }

  // Pooling and resizing take the layout of their input.
  bool pools(const Instr& i) const {
    return i.op && i.op->has(kFollowsLayout) && has_image_rank(i.out[0]) &&
           last(i.in[0].value) != kNone;
  }

  Program& p_;
  Emitter e_;
  std::unordered_map<ValueId, ValueId> now_, last_;
};

}  // namespace

void channels_last(Program& p) {
  for (const Instr& i : p.instrs)
    if (i.op && i.op->has(kChannelsLast)) return ChannelsLast(p).run();
}

}  // namespace tandem::compiler
