// SPDX-License-Identifier: Apache-2.0
#include "tandem/compile/passes/loop_builder.h"

#include <optional>

#include "tandem/codegen/tile_kernels.h"
#include "tandem/graph/apply.h"
#include "tandem/ops/pointwise/pointwise.h"

namespace tandem::compiler {

const ScalarProgram& scalar_program_of(const Program& p, const Instr& i) {
  if (i.fused) return *i.fused;
  OperandType in[kMaxOpIns];
  DType out[kMaxOpOuts];
  for (size_t k = 0; k < i.in.size(); ++k) {
    const Arg& a = i.in[k];
    if (a.is_number) {
      in[k] = {OperandType::number, a.number.dtype()};
    } else if (a.value != kNone) {
      const Spec& s = p.values[a.value].spec;
      in[k] = {s.rank() == 0 ? OperandType::zero_dim : OperandType::tensor, s.dtype};
    }
  }
  for (size_t o = 0; o < i.out.size(); ++o) out[o] = p.values[i.out[o]].spec.dtype;
  return program_of(*i.op, std::span<const OperandType>(in, i.in.size()),
                    std::span<const DType>(out, i.out.size()));
}

bool LoopBuilder::fusable(const Instr& i) {
  for (ValueId v : i.out)
    if (v == kNone) return false;
  if (!i.op) return i.fused != nullptr;
  if (i.op->has(kEffect) || i.op->has(kRandom)) return false;
  if (i.op == &op::fill) return true;
  if (i.op->family != Family::pointwise || i.in.size() != i.op->n_in) return false;
  for (const Arg& a : i.in)
    if (!a.present()) return false;
  for (const char* text : i.op->error_texts)
    if (text) return false;  // it reports by itself
  return true;
}

void append_key(std::string& key, const ScalarInstr& i) {
  const auto put = [&](const auto& v) { key.append(reinterpret_cast<const char*>(&v), sizeof v); };
  put(i.op);
  put(i.type);
  put(i.result);
  put(i.a);
  put(i.b);
  put(i.c);
  put(i.input);
  put(i.narrow);
  put(i.imm.kind);
  put(i.imm.i);
}

int16_t LoopBuilder::emit(const ScalarInstr& i) {
  std::string key;
  append_key(key, i);
  auto [at, fresh] = seen_.emplace(std::move(key), static_cast<int16_t>(program_.code.size()));
  if (fresh) program_.code.push_back(i);
  return at->second;
}

// The register as a store and a load would leave it.
int16_t LoopBuilder::as_stored(int16_t reg, DType t) {
  if (codegen::stored_as_reg(t)) return reg;
  const ScalarInstr& from = program_.code[static_cast<size_t>(reg)];
  if (from.op == ScalarOp::wrap && from.narrow == t) return reg;
  if (from.op == ScalarOp::input && program_.in[static_cast<size_t>(from.input)] == t) return reg;
  ScalarInstr i;
  i.op = ScalarOp::wrap;
  i.type = i.result = reg_of(t);
  i.a = reg;
  i.narrow = t;
  return emit(i);
}

int16_t LoopBuilder::input(const Arg& a, DType stored) {
  int k = static_cast<int>(program_.in.size());
  if (!a.is_number) {
    auto [at, fresh] = inputs_.emplace(a.value, k);
    k = at->second;
    if (fresh) {
      program_.in.push_back(stored);
      args_.push_back(a);
    }
  } else {
    for (size_t n = 0; n < args_.size(); ++n)
      if (args_[n].is_number && args_[n].number.kind == a.number.kind &&
          args_[n].number.i == a.number.i && program_.in[n] == stored)
        k = static_cast<int>(n);
    if (k == static_cast<int>(program_.in.size())) {
      program_.in.push_back(stored);
      args_.push_back(a);
    }
  }
  ScalarInstr i;
  i.op = ScalarOp::input;
  i.input = static_cast<int16_t>(k);
  i.type = i.result = reg_of(stored);
  return emit(i);
}

namespace {

// The number that instruction `k` of a clamp's program rounds to f32. In a loop it is a constant,
// not an input: codegen/narrow_integers.h then knows where the result lies.
std::optional<double> rounded_bound(const Instr& i, const ScalarProgram& own, size_t k) {
  const ScalarInstr& c = own.code[k];
  if (i.op != &op::clamp || c.op != ScalarOp::convert || c.type != Reg::f64 || c.result != Reg::f32)
    return {};
  const ScalarInstr& from = own.code[static_cast<size_t>(c.a)];
  if (from.op != ScalarOp::input || !i.in[static_cast<size_t>(from.input)].is_number) return {};
  return static_cast<double>(
      static_cast<float>(i.in[static_cast<size_t>(from.input)].number.to_double()));
}

// Whether nothing else reads an input of that program.
bool only_rounded(const Instr& i, const ScalarProgram& own, size_t input) {
  bool read = false;
  for (size_t k = 0; k < own.code.size(); ++k)
    for (const int16_t r : {own.code[k].a, own.code[k].b, own.code[k].c}) {
      if (r != static_cast<int16_t>(input)) continue;
      if (!rounded_bound(i, own, k)) return false;
      read = true;
    }
  return read;
}

}  // namespace

void LoopBuilder::add(const Instr& i) {
  names_ += (names_.empty() ? "" : " ") + (i.op ? std::string(i.op->name) : i.fused_names);
  if (i.op == &op::fill) {
    const auto& a = *static_cast<const FillAttrs*>(i.attrs.get());
    ScalarInstr c;
    c.op = ScalarOp::constant;
    c.imm = a.value;
    c.type = c.result = reg_of(a.dtype);
    // As it would be stored: rounded to the dtype.
    if (a.dtype == DType::f32)
      c.imm = Scalar(static_cast<double>(static_cast<float>(a.value.to_double())));
    registers_[i.out[0]] = as_stored(emit(c), a.dtype);
    return;
  }
  const ScalarProgram& own = scalar_program_of(p_, i);
  std::vector<int16_t> now(own.code.size());
  for (size_t k = 0; k < own.code.size(); ++k) {
    ScalarInstr c = own.code[k];
    if (c.op == ScalarOp::input) {
      if (only_rounded(i, own, k)) continue;
      const Arg& a = i.in[static_cast<size_t>(c.input)];
      const DType stored = own.in[static_cast<size_t>(c.input)];
      auto at = a.is_number ? registers_.end() : registers_.find(a.value);
      now[k] = at != registers_.end() ? at->second : input(a, stored);
      continue;
    }
    if (const std::optional<double> bound = rounded_bound(i, own, k)) {
      c = {};
      c.op = ScalarOp::constant;
      c.type = c.result = Reg::f32;
      c.imm = Scalar(*bound);
    }
    for (int16_t* r : {&c.a, &c.b, &c.c})
      if (*r >= 0) *r = now[static_cast<size_t>(*r)];
    now[k] = emit(c);
  }
  for (size_t o = 0; o < i.out.size(); ++o)
    registers_[i.out[o]] = as_stored(now[static_cast<size_t>(own.out[o].reg)], own.out[o].dtype);
}

Instr LoopBuilder::finish(const std::vector<ValueId>& results) {
  Instr loop;
  for (ValueId v : results) {
    program_.out.push_back({registers_.at(v), p_.values[v].spec.dtype});
    loop.out.push_back(v);
  }
  loop.in = std::move(args_);
  loop.fused = std::make_shared<const ScalarProgram>(std::move(program_));
  loop.fused_names = std::move(names_);
  return loop;
}

}  // namespace tandem::compiler
