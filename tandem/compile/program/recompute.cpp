// SPDX-License-Identifier: Apache-2.0
#include "tandem/compile/program/recompute.h"

#include <algorithm>
#include <set>

#include "tandem/compile/passes/passes.h"
#include "tandem/compile/program/min_cut.h"
#include "tandem/compile/program/use_def.h"
#include "tandem/graph/expression/scalar_expr.h"
#include "tandem/graph/infer.h"
#include "tandem/graph/profiler.h"

namespace tandem::compiler {
namespace {

// Only their ratio matters: what the machine is likely to reach.
constexpr double kFlopsPerSecond = 4e10, kBytesPerSecond = 1e10, kStepSeconds = 5e-7;
constexpr double kUnit = 1e12;  // capacities count picoseconds

int64_t bytes_of_value(const Program& p, ValueId v) {
  return static_cast<int64_t>(bytes_of(p.values[v].spec));
}

bool is_view(const Instr& i) { return i.op && i.op->family == Family::view; }
bool is_pointwise(const Instr& i) { return i.op && i.op->family == Family::pointwise; }

bool may_recompute(const Instr& i) {
  return i.op && !i.op->has(kEffect) && !i.op->has(kDataSized) && i.op->family != Family::control;
}

// A pointwise instruction is part of some loop and moves no bytes of its own.
double seconds_of(const Program& p, const Instr& i) {
  if (is_view(i)) return 0;
  InferCall c(*i.op, i.attrs.get());
  c.out.clear();
  for (const Arg& a : i.in) {
    c.in.push_back(a.value == kNone ? Spec() : p.values[a.value].spec);
    c.present.push_back(a.is_number ? 2 : a.value == kNone ? 0 : 1);
    c.scalars.push_back(a.number);
  }
  for (ValueId v : i.out)
    c.out.push_back(v == kNone ? Spec(DType::f32, Shape(0)) : p.values[v].spec);
  double flops = flops_of(c);
  if (!is_pointwise(i))
    return kStepSeconds + std::max(flops / kFlopsPerSecond, bytes_of(c) / kBytesPerSecond);
  if (i.op->expr_fn) flops *= static_cast<double>(expr_of(*i.op).nodes.size());
  return flops / kFlopsPerSecond;
}

struct Range {
  int low = -1, high = -1;
  void add(int k) {
    low = low < 0 ? k : std::min(low, k);
    high = std::max(high, k);
  }
  void add(const Range& r) {
    if (r.low >= 0) add(r.low), add(r.high);
  }
};

class Cut {
 public:
  Cut(const Program& p, const PerInstr<char>& first, const std::vector<ValueId>& free_values)
      : p_(p),
        first_(first),
        needed_(p.values.size()),
        free_(p.values.size()),
        made_(p.values.size()),
        seconds_(p.instrs.size()) {
    for (ValueId v : free_values) free_[v] = 1;
    for (InstrId k : p.instrs.ids()) {
      for (ValueId v : p.instrs[k].out)
        if (v != kNone && first[k]) made_[v] = 1;
      if (first[k] && may_recompute(p.instrs[k])) seconds_[k] = seconds_of(p, p.instrs[k]);
      if (first[k]) continue;
      for (const Arg& a : p.instrs[k].in)
        if (a.value != kNone) needed_[a.value] = 1;
    }
    for (ValueId v : p.results()) needed_[v] = 1;
  }

  Choice choose(const CutOptions& o) {
    find_pieces(o.pieces);
    MinCut cut(2);
    PerValue<int> node(p_.values.size(), kNone);
    PerInstr<int> run(p_.instrs.size(), kNone);
    for (InstrId k : p_.instrs.ids()) {
      if (!first_[k]) continue;
      const Instr& i = p_.instrs[k];
      run[k] = cut.add_node();
      bool allowed = may_recompute(i) && !leaves_piece(k) &&
                     (!o.only_pointwise || is_pointwise(i) || is_view(i) || i.in.empty());
      if (!is_view(i)) cut.edge(kSource, run[k], allowed ? units(seconds_[k]) : MinCut::kForever);
      for (const Arg& a : i.in)
        if (a.value != kNone && made_[a.value]) cut.edge(node[a.value], run[k], MinCut::kForever);
      for (ValueId v : i.out) {
        if (v == kNone) continue;
        node[v] = cut.add_node();
        cut.edge(run[k], node[v], keeping(i, v, o.seconds_per_byte));
        if (needed_[v] && !free_[v]) cut.edge(node[v], kSink, MinCut::kForever);
      }
    }
    std::vector<char> side = cut.sink_side(kSource, kSink);
    Choice c;
    c.recomputed.resize(p_.instrs.size());
    for (InstrId k : p_.instrs.ids())
      if (run[k] != kNone && side[static_cast<size_t>(run[k])]) {
        c.recomputed[k] = 1;
        c.seconds += seconds_[k];
      }
    return c;
  }

 private:
  static constexpr int kSource = 0, kSink = 1;
  static int64_t units(double seconds) { return static_cast<int64_t>(seconds * kUnit) + 1; }

  // A view is not a value of its own: it is recomputed where its base is.
  int64_t keeping(const Instr& i, ValueId v, double seconds_per_byte) const {
    if (free_[v]) return 0;
    if (is_view(i)) return MinCut::kForever;
    return static_cast<int64_t>(static_cast<double>(bytes_of_value(p_, v)) * seconds_per_byte *
                                kUnit);
  }

  // Pieces hold about equally many bytes that the second part needs; they end where few bytes
  // cross.
  void find_pieces(int n) {
    piece_.assign(p_.instrs.size(), 0);
    readers_.assign(p_.values.size(), Range());
    if (n <= 1) return;
    std::vector<InstrId> order;
    std::vector<int64_t> kept, crossing;
    PerValue<int64_t> until(p_.values.size(), -1);
    for (InstrId k : p_.instrs.ids()) {
      if (!first_[k]) continue;
      for (const Arg& a : p_.instrs[k].in)
        if (a.value != kNone && made_[a.value]) until[a.value] = static_cast<int64_t>(order.size());
      order.push_back(k);
    }
    std::vector<int64_t> change(order.size() + 1);
    int64_t sum = 0;
    for (size_t at = 0; at < order.size(); ++at) {
      const Instr& i = p_.instrs[order[at]];
      for (ValueId v : i.out) {
        if (v == kNone || is_view(i)) continue;
        if (needed_[v]) sum += bytes_of_value(p_, v);
        if (until[v] <= static_cast<int64_t>(at)) continue;
        change[at] += bytes_of_value(p_, v);
        change[static_cast<size_t>(until[v])] -= bytes_of_value(p_, v);
      }
      kept.push_back(sum);
    }
    int64_t now = 0;
    for (size_t at = 0; at < order.size(); ++at) crossing.push_back(now += change[at]);
    size_t begin = 0;
    int piece = 0;
    for (int part = 1; part <= n; ++part) {
      const size_t end = part == n ? order.size() : cut_point(kept, crossing, begin, part, n);
      for (; begin < end; ++begin) piece_[order[begin]] = piece;
      ++piece;
    }
    for (size_t at = order.size(); at-- > 0;) {
      const Instr& i = p_.instrs[order[at]];
      for (const Arg& a : i.in) {
        if (a.value == kNone || !made_[a.value]) continue;
        if (is_view(i))
          readers_[a.value].add(readers_[i.out[0]]);
        else
          readers_[a.value].add(piece_[order[at]]);
      }
    }
  }
  // The end of piece `part`: near its share of the bytes, where least is alive.
  static size_t cut_point(const std::vector<int64_t>& kept, const std::vector<int64_t>& crossing,
                          size_t begin, int part, int n) {
    const auto position = [&](double share) {
      const auto bytes = static_cast<int64_t>(share * static_cast<double>(kept.back()));
      return static_cast<size_t>(std::lower_bound(kept.begin(), kept.end(), bytes) - kept.begin());
    };
    const size_t low = std::max(begin, position((part - 0.4) / n));
    const size_t high = std::min(kept.size() - 1, std::max(low, position((part + 0.4) / n)));
    size_t best = low;
    for (size_t at = low; at <= high; ++at)
      if (crossing[at] < crossing[best]) best = at;
    return std::min(best + 1, kept.size());
  }
  bool leaves_piece(InstrId k) const {
    const Instr& i = p_.instrs[k];
    if (is_view(i) || i.in.empty()) return false;
    const int own = piece_[k];
    for (ValueId v : i.out)
      if (v != kNone && readers_[v].low >= 0 && (readers_[v].low != own || readers_[v].high != own))
        return true;
    return false;
  }

  const Program& p_;
  const PerInstr<char>& first_;
  PerValue<char> needed_, free_, made_;
  PerInstr<double> seconds_;
  PerInstr<int> piece_;
  PerValue<Range> readers_;  ///< pieces that read a value
};

// Writes the program in which the second part has its own copies.
class Rematerialiser {
 public:
  Rematerialiser(const Program& p, const PerInstr<char>& first, const Choice& choice)
      : p_(p), first_(first), choice_(choice), out_(p), uses_(p), copy_(p.values.size()) {}

  Program run() {
    out_.instrs.clear();
    for (InstrId k : p_.instrs.ids()) {
      Instr i = p_.instrs[k];
      if (!first_[k]) read_copies(i);
      out_.instrs.push_back(std::move(i));
    }
    remove_dead(out_);
    return std::move(out_);
  }

 private:
  bool is_recomputed(ValueId v) const {
    const InstrId k = uses_.maker(v);
    return k != kNone && choice_.recomputed[k] && !uses_.leaves(v);
  }

  void read_copies(Instr& i) {
    for (Arg& a : i.in)
      if (is_recomputed(a.value)) a.value = copy_of(a.value);
  }

  // The copy of value v, made here if it is not there yet, after those of its operands.
  ValueId copy_of(ValueId v) {
    std::vector<ValueId> open{v};
    while (!open.empty()) {
      const InstrId k = uses_.maker(open.back());
      if (copy_[open.back()] != kNone) {
        open.pop_back();
        continue;
      }
      bool ready = true;
      for (const Arg& a : p_.instrs[k].in)
        if (is_recomputed(a.value) && copy_[a.value] == kNone) {
          open.push_back(a.value);
          ready = false;
        }
      if (!ready) continue;
      make_copy(k);
      open.pop_back();
    }
    return copy_[v];
  }

  void make_copy(InstrId k) {
    Instr i = p_.instrs[k];
    for (Arg& a : i.in)
      if (is_recomputed(a.value)) a.value = copy_[a.value];
    size_t bytes = 0;
    for (ValueId& v : i.out) {
      if (v == kNone) continue;
      const Value& old = p_.values[v];
      copy_[v] = out_.add_value(old.spec, old.origin, old.index);
      bytes += static_cast<size_t>(bytes_of_value(p_, v));
      v = copy_[v];
    }
    i.recomputed = true;
    if (!is_view(i)) out_.recomputed.push_back({i.op->name, i.scope, bytes});
    out_.instrs.push_back(std::move(i));
  }

  const Program& p_;
  const PerInstr<char>& first_;
  const Choice& choice_;
  Program out_;
  UseDef uses_;
  PerValue<ValueId> copy_;
};

}  // namespace

Choice choose(const Program& p, const PerInstr<char>& first,
              const std::vector<ValueId>& free_values, const CutOptions& options) {
  return Cut(p, first, free_values).choose(options);
}

std::vector<Choice> choices(const Program& p, const PerInstr<char>& first,
                            const std::vector<ValueId>& free_values) {
  static constexpr double kWeights[] = {2e-11, 2e-10, 1e-9, 5e-9, 3e-8, 1e-6};
  static constexpr int kPieces[] = {1, 2, 3, 4, 5, 6, 8, 10, 12, 16, 20, 24, 32};
  Cut cut(p, first, free_values);
  std::vector<Choice> all;
  std::set<std::vector<char>> seen{std::vector<char>(p.instrs.size())};
  for (int pieces : kPieces)
    for (double weight : kWeights) {
      Choice c = cut.choose({weight, pieces});
      if (seen.insert(c.recomputed.vector()).second) all.push_back(std::move(c));
    }
  std::stable_sort(all.begin(), all.end(),
                   [](const Choice& a, const Choice& b) { return a.seconds < b.seconds; });
  return all;
}

Program recompute(const Program& p, const PerInstr<char>& first, const Choice& choice) {
  return Rematerialiser(p, first, choice).run();
}

PerInstr<char> until_widest(const Program& p) {
  // Views keep their base alive.
  PerValue<ValueId> base(p.values.size());
  PerValue<InstrId> last(p.values.size());
  for (ValueId v : p.values.ids()) base[v] = v;
  for (InstrId k : p.instrs.ids()) {
    const Instr& i = p.instrs[k];
    if (is_view(i)) base[i.out[0]] = base[i.in[0].value];
    for (const Arg& a : i.in)
      if (a.value != kNone) last[base[a.value]] = k;
  }
  PerInstr<int64_t> change(p.instrs.size());
  for (InstrId k : p.instrs.ids()) {
    if (is_view(p.instrs[k])) continue;
    for (ValueId v : p.instrs[k].out) {
      if (v == kNone || last[v] <= k) continue;
      change[k] += bytes_of_value(p, v);
      change[last[v]] -= bytes_of_value(p, v);
    }
  }
  InstrId widest;
  int64_t now = 0, most = -1;
  for (InstrId k : p.instrs.ids()) {
    now += change[k];
    if (now > most) most = now, widest = k;
  }
  PerInstr<char> first(p.instrs.size());
  for (InstrId k : p.instrs.ids()) first[k] = k <= widest;
  return first;
}

}  // namespace tandem::compiler
