// SPDX-License-Identifier: Apache-2.0
// Common subexpressions: instructions with the same op, attributes and operands are one. Random
// ops and effects are not touched. A table of what was seen, not a rule about one instruction.
#include <string>
#include <unordered_map>

#include "tandem/compile/passes/passes.h"

namespace tandem::compiler {
namespace {

std::string key_of(const Instr& i) {
  std::string key;
  const auto put = [&](const auto& v) { key.append(reinterpret_cast<const char*>(&v), sizeof v); };
  put(i.op);
  for (const Arg& a : i.in) {
    put(a.value);
    if (!a.is_number) continue;
    put(a.number.kind);
    put(a.number.i);
  }
  for (ValueId v : i.out) put(static_cast<char>(v != kNone));
  if (i.attrs.get()) append_attr_bytes(i.attrs.type(), i.attrs.get(), key);
  return key;
}

}  // namespace

void merge_common(Program& p) {
  PerValue<ValueId> now(p.values.size());  // kNone: itself
  std::unordered_map<std::string, InstrId> seen;
  PerInstr<Instr> kept;
  kept.reserve(p.instrs.size());
  for (Instr& i : p.instrs) {
    for (Arg& a : i.in)
      if (a.value != kNone && now[a.value] != kNone) a.value = now[a.value];
    if (!i.op || has_effect(i) || i.op->has(kRandom)) {
      kept.push_back(std::move(i));
      continue;
    }
    auto [at, fresh] = seen.emplace(key_of(i), InstrId(kept.size()));
    if (fresh) {
      kept.push_back(std::move(i));
      continue;
    }
    const Instr& same = kept[at->second];
    for (size_t o = 0; o < i.out.size(); ++o)
      if (i.out[o] != kNone) now[i.out[o]] = same.out[o];
  }
  p.instrs = std::move(kept);
  p.replace_uses(now);
}

}  // namespace tandem::compiler
