// SPDX-License-Identifier: Apache-2.0
// A composite is one instruction as long as a kernel claims it; else its body takes its place,
// recorded on symbolic values of the same shapes.
#include "tandem/compile/passes/passes.h"
#include "tandem/graph/dry_run.h"
#include "tandem/graph/epilogue.h"
#include "tandem/graph/infer.h"

namespace tandem::compiler {
namespace {

Array symbolic_array(const Spec& s, const Strides& strides) {
  Array a;
  a.shape = s.shape.data();
  a.strides = strides.data();
  a.numel = s.shape.numel().value();
  a.dtype = s.dtype;
  a.rank = static_cast<uint8_t>(s.rank());
  a.contiguous = true;
  return a;
}

}  // namespace

KernelChoice row_major_kernel(const Program& p, const Instr& i, EpilogueKind& epilogue) {
  Array in[64], out[kMaxOpOuts];
  Strides strides[64 + kMaxOpOuts];
  epilogue = EpilogueKind::none;
  if (i.in.size() > 64) return {.way = KernelChoice::body};
  for (size_t k = 0; k < i.in.size(); ++k) {
    const Arg& a = i.in[k];
    if (a.is_number) {
      in[k].is_scalar = true;
      in[k].scalar = a.number;
      in[k].dtype = a.number.dtype();
    } else if (a.value != kNone) {
      const Spec& s = p.values[a.value].spec;
      strides[k] = contiguous_strides(s.shape);
      in[k] = symbolic_array(s, strides[k]);
    }
  }
  for (size_t o = 0; o < i.out.size(); ++o) {
    if (i.out[o] == kNone) continue;
    const Spec& s = p.values[i.out[o]].spec;
    strides[64 + o] = contiguous_strides(s.shape);
    out[o] = symbolic_array(s, strides[64 + o]);
    out[o].strides = nullptr;
  }
  KernelCall call{*i.op, i.attrs.get(), in, static_cast<int>(i.in.size()), out, i.op->n_out};
  call.device = p.device;
  const KernelChoice choice = choose_kernel(call);
  for (size_t o = 0; o < i.out.size(); ++o) out[o].strides = strides[64 + o].data();
  if (choice.kernel && !choice.on_host) epilogue = epilogue_kind(*choice.kernel, call);
  return choice;
}

namespace {

bool claimed(const Program& p, const Instr& i) {
  if (i.op->infer_fn && is_dry_run_of_any_device()) return true;
  EpilogueKind epilogue;
  return row_major_kernel(p, i, epilogue).way != KernelChoice::body;
}

Ref<Graph> trace_body(const Program& p, const Instr& i, std::vector<ValueId>& args) {
  std::vector<Spec> specs;
  for (const Arg& a : i.in)
    if (a.value != kNone) {
      specs.push_back(p.values[a.value].spec);
      args.push_back(a.value);
    }
  NoGradGuard no_grad;
  const auto body = [&](std::span<const Tensor> x) {
    std::vector<Tensor> in;
    std::vector<Scalar> numbers;
    size_t at = 0;
    for (const Arg& a : i.in) {
      in.push_back(a.value != kNone ? x[at++] : Tensor());
      numbers.push_back(a.number);
    }
    BodyCall b{*i.op, i.attrs.get(), in, numbers, {}, i.makes_hidden()};
    i.op->body_fn(b);
    std::vector<Tensor> out;
    for (size_t o = 0; o < i.out.size(); ++o)
      if (i.out[o] != kNone) out.push_back(b.out[o]);
    return out;
  };
  return trace(body, specs, Captures::as_inputs);
}

}  // namespace

void expand_composites(Program& p) {
  expand_composites(p, [&](const Instr& i) { return claimed(p, i); });
}

void expand_composites(Program& p, FunctionRef<bool(const Instr&)> whole) {
  // A body may hold composites again: until nothing changes.
  for (bool changed = true; changed;) {
    changed = false;
    PerInstr<Instr> old = std::exchange(p.instrs, {});
    std::vector<std::pair<ValueId, ValueId>> renamed;
    for (Instr& i : old) {
      if (!i.op || !i.op->body_fn || whole(i)) {
        p.instrs.push_back(std::move(i));
        continue;
      }
      std::vector<ValueId> args;
      Ref<Graph> body = trace_body(p, i, args);
      std::vector<ValueId> made = inline_graph(p, *body, args, i.scope, i.loc);
      size_t at = 0;
      for (ValueId v : i.out)
        if (v != kNone) renamed.emplace_back(v, made[at++]);
      changed = true;
    }
    p.rename(renamed);
  }
}

}  // namespace tandem::compiler
