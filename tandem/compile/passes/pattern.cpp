// SPDX-License-Identifier: Apache-2.0
#include "tandem/compile/passes/pattern.h"

#include <algorithm>
#include <cstring>

namespace tandem::compiler {

bool Pattern::takes(const OpDef& op) const {
  if (!ops.empty()) return std::find(ops.begin(), ops.end(), &op) != ops.end();
  return flags ? (op.flags & flags) != 0 : op.family == family;
}
Pattern Pattern::as(const char* its_name) && {
  name = its_name;
  return std::move(*this);
}
Pattern Pattern::read(int times) && {
  readings = times;
  return std::move(*this);
}
Pattern Pattern::any_order() && {
  swaps = true;
  return std::move(*this);
}

namespace {
Pattern of_kind(Pattern::Kind kind, const char* name) {
  Pattern p;
  p.kind = kind;
  p.name = name;
  return p;
}
}  // namespace

Pattern any(const char* name) { return of_kind(Pattern::Kind::any, name); }
Pattern maybe(const char* name) { return of_kind(Pattern::Kind::maybe, name); }
Pattern number(const char* name) { return of_kind(Pattern::Kind::number, name); }

Pattern row(const OpDef& op, std::vector<Pattern> in) { return one_of({&op}, std::move(in)); }
Pattern one_of(std::initializer_list<const OpDef*> ops, std::vector<Pattern> in) {
  Pattern p = of_kind(Pattern::Kind::instr, nullptr);
  p.ops = ops;
  p.in = std::move(in);
  return p;
}
Pattern of_family(Family family, std::vector<Pattern> in) {
  Pattern p = one_of({}, std::move(in));
  p.family = family;
  return p;
}

Pattern with_flag(uint32_t flags, std::vector<Pattern> in) {
  Pattern p = one_of({}, std::move(in));
  p.flags = flags;
  return p;
}

std::vector<Pattern> orders_of(const Pattern& p) {
  std::vector<Pattern> all{p};
  all[0].in.clear();
  // Every choice for the operands so far with every one for the next.
  for (const Pattern& operand : p.in) {
    std::vector<Pattern> longer;
    for (const Pattern& each : all)
      for (Pattern& order : orders_of(operand)) {
        longer.push_back(each);
        longer.back().in.push_back(std::move(order));
      }
    all = std::move(longer);
  }
  if (!p.swaps || p.in.size() < 2) return all;
  const size_t n = all.size();
  for (size_t k = 0; k < n; ++k) {
    Pattern turned = all[k];
    std::swap(turned.in[0], turned.in[1]);
    all.push_back(std::move(turned));
  }
  return all;
}

const Bindings::Entry* Bindings::find(const char* name) const {
  for (const Entry& e : all_)
    if (std::strcmp(e.name, name) == 0) return &e;
  return nullptr;
}
const Arg& Bindings::arg(const char* name) const {
  const Entry* e = find(name);
  TD_CHECK(e, Internal, "the pattern captures nothing as '{}'", name);
  return e->arg;
}

}  // namespace tandem::compiler
