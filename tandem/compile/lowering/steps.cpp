// SPDX-License-Identifier: Apache-2.0
// Instructions become steps: what eager decides at each call - kernel, layout, copies, plan - is
// decided here once.
#include <algorithm>

#include "tandem/codegen/pointwise.h"
#include "tandem/compile/lowering/stages.h"
#include "tandem/graph/apply_internal.h"
#include "tandem/graph/backend.h"
#include "tandem/graph/dry_run.h"
#include "tandem/graph/infer.h"
#include "tandem/graph/run/kernel_choice.h"

namespace tandem::compiler {
namespace {

// Channels last stays channels last: the layout of the first operand of the same shape.
bool layout_like_inputs(const Lowering& at, const Step& s, const Shape& shape, Strides& strides) {
  for (const StepInput& x : s.in) {
    if (x.place == kNone) continue;
    const Place& q = at.place(x.place);
    if (!(q.shape == shape)) continue;
    if (q.contiguous) return false;
    if (!is_dense(q.shape, q.strides)) continue;
    strides = q.strides;
    return true;
  }
  return false;
}

// Large operands of a loop that lie in different orders are brought to one, that of the first
// that is not row-major: a loop would gather them element by element, a copy moves blocks.
void align_operands(Lowering& at, const Instr& i, Step& s) {
  constexpr int64_t kFewest = 16384;
  const Shape shape = at.spec(i.out[0]).shape;
  if (shape.numel().value() < kFewest) return;
  const auto whole = [&](const StepInput& x) {
    return x.place != kNone && at.place(x.place).shape == shape &&
           is_dense(shape, at.place(x.place).strides);
  };
  const auto other = std::find_if(s.in.begin(), s.in.end(), [&](const StepInput& x) {
    return whole(x) && !at.place(x.place).contiguous;
  });
  if (other == s.in.end()) return;
  const Strides wanted = at.place(other->place).strides;
  for (StepInput& x : s.in)
    if (whole(x) && !same_strides(shape, at.place(x.place).strides, wanted))
      x.place = copy_place(at, x.place, &i, &wanted);
}

void loop_outputs(Lowering& at, const Instr& i, Step& s) {
  Strides strides;
  const bool own = layout_like_inputs(at, s, at.spec(i.out[0]).shape, strides);
  for (ValueId v : i.out) s.out.push_back(at.fresh(at.spec(v), own ? &strides : nullptr));
}

// Before the outputs have a layout.
void set_out_shapes(const Lowering& at, const Instr& i, Arrays& a) {
  for (size_t o = 0; o < i.out.size(); ++o) {
    if (i.out[o] == kNone) continue;
    const Spec& y = at.spec(i.out[o]);
    a.out[o].shape = y.shape.data();
    a.out[o].rank = static_cast<uint8_t>(y.rank());
    a.out[o].dtype = y.dtype;
  }
}

void find_kernel_of(Lowering& at, const Instr& i, Step& s) {
  if (at.text) return;
  Arrays a = arrays_of(at.l, s);
  set_out_shapes(at, i, a);
  KernelCall call = call_of(at.l, s, a);
  const KernelChoice choice = choose_kernel(call);
  s.kernel = choice.kernel;
  s.on_host = choice.on_host;
  for (size_t k = 0; k < s.in.size() && k < 64; ++k)
    if (choice.row_major >> k & 1) s.in[k].place = copy_place(at, s.in[k].place, &i);
}

void kernel_outputs(Lowering& at, const Instr& i, Step& s) {
  TD_CHECK(at.text || s.kernel || i.op->reference_fn || is_dry_run_of_any_device(), Unsupported,
           "no kernel and no reference for {}", i.op->name);
  Arrays a = arrays_of(at.l, s);
  set_out_shapes(at, i, a);
  KernelCall call = call_of(at.l, s, a);
  for (size_t o = 0; o < i.out.size(); ++o) {
    if (i.out[o] == kNone) {
      s.out.push_back(kNone);
      continue;
    }
    const Spec& y = at.spec(i.out[o]);
    Strides strides;
    bool own = s.kernel && s.kernel->layout && s.kernel->layout(call, static_cast<int>(o), strides);
    if (!own && i.op->family == Family::pointwise)
      own = layout_like_inputs(at, s, y.shape, strides);
    s.out.push_back(at.fresh(y, own ? &strides : nullptr));
    a.out[o] = array_of_place(at.l, s.out.back());
  }
  // Kernels ask for hidden outputs by number, also where none is made.
  while (s.out.size() < i.op->n_out) s.out.push_back(kNone);
}

void prepare(Lowering& at, Step& s) {
  if (at.text) return;
  if (s.op && !s.kernel && s.op == &op::copy) {
    Arrays a = arrays_of(at.l, s);
    const KernelChoice choice = choose_kernel(call_of(at.l, s, a));
    s.kernel = choice.kernel;
    s.on_host = choice.on_host;
  }
  if (!s.op || !s.kernel || !s.kernel->prepare) return;
  if (is_dry_run_of_any_device() && s.op->family != Family::control) return;
  Arrays a = arrays_of(at.l, s);
  KernelCall call = call_of(at.l, s, a);
  // Plans of ops with graphs in their attributes belong to one program, the others to all.
  s.plan = s.op->family == Family::control ? s.kernel->prepare(call) : plan_of(*s.kernel, call);
  if (s.plan && s.plan->workspace && !s.on_host)
    s.scratch = at.add_buffer(Base::arena, kNone, s.plan->workspace);
}

void lower_view(Lowering& at, const Instr& i) {
  int from = at.place_of[i.in[0].value];
  const Shape shape = at.spec(i.out[0]).shape;
  Strides strides;
  int64_t offset = 0;
  const auto view = [&] {
    return i.op->view_fn(i.attrs.get(), at.place(from).shape, at.place(from).strides, shape,
                         strides, offset);
  };
  bool ok = view();
  if (!ok) {
    from = copy_place(at, from, &i);
    ok = view();
    TD_ASSERT(ok);
  }
  const int v = at.add_place(at.place(from).buffer, at.spec(i.out[0]), &strides);
  at.place(v).offset =
      at.place(from).offset + offset * static_cast<int64_t>(size_of(at.place(from).dtype));
  at.place_of[i.out[0]] = v;
}

// A pointwise instruction that the family's kernel runs, or that the device can run as a loop, is
// one like the fused ones.
bool is_loop(const Lowering& at, const Step& s) {
  if (at.text) return s.op->family == Family::pointwise && s.op->expr_fn;
  const Lowered& l = at.l;
  if (s.op->family != Family::pointwise || !s.kernel || s.op->error_texts[0]) return false;
  for (int o : s.out)
    if (o == kNone) return false;
  return s.kernel->run == codegen::pointwise_kernel().run && (!s.on_host || runs_loops(l.device));
}

}  // namespace

int copy_place(Lowering& at, int k, const Instr* from, const Strides* strides) {
  const int to = at.fresh(Spec(at.place(k).dtype, at.place(k).shape), strides);
  copy_to(at, k, to, from);
  return to;
}

void copy_to(Lowering& at, int k, int to, const Instr* from) {
  Step s;
  s.op = &op::copy;
  s.name = s.op->name;
  if (from) {
    s.loc = from->loc;
    s.scope = from->scope;
    s.rng = from->rng;
  }
  s.in.push_back({k, false, {}});
  s.out.push_back(to);
  at.l.steps.push_back(std::move(s));
  prepare(at, at.l.steps.back());
}

void lower_instr(Lowering& at, const Instr& i) {
  if (i.op && i.op->family == Family::view) return lower_view(at, i);
  if (lower_concatenation(at, i)) return;
  Step s;
  s.op = i.op;
  s.attrs = i.attrs;
  s.rng = i.rng;
  s.scope = i.scope;
  s.loc = i.loc;
  s.recomputed = i.recomputed;
  s.name = i.op ? i.op->name : i.fused_names;
  for (const Arg& a : i.in)
    s.in.push_back({a.value == kNone ? kNone : at.place_of[a.value], a.is_number, a.number});
  if (!at.text && (!i.op || i.op->family == Family::pointwise)) align_operands(at, i, s);
  if (!i.op) {
    s.program = interned(*i.fused);
    loop_outputs(at, i, s);
  } else {
    find_kernel_of(at, i, s);
    kernel_outputs(at, i, s);
  }
  for (size_t o = 0; o < i.out.size(); ++o)
    if (i.out[o] != kNone) at.place_of[i.out[o]] = s.out[o];
  if (i.op && is_loop(at, s)) {
    Arrays a = arrays_of(at.l, s);
    s.program = interned(program_of(call_of(at.l, s, a)));
    s.op = nullptr;
    s.on_host = false;
  }
  at.l.steps.push_back(std::move(s));
  if (i.op) prepare(at, at.l.steps.back());
}

}  // namespace tandem::compiler
