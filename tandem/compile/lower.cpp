// SPDX-License-Identifier: Apache-2.0
// What eager decides at each call - kernel, layout, copies, plan - is decided here once.
#include "tandem/compile/lower.h"

#include <algorithm>
#include <map>
#include <mutex>
#include <unordered_map>

#include "tandem/codegen/pointwise.h"
#include "tandem/compile/loop_builder.h"
#include "tandem/graph/apply_internal.h"
#include "tandem/graph/dry_run.h"
#include "tandem/graph/epilogue.h"
#include "tandem/graph/infer.h"

namespace tandem::compiler {
namespace {

size_t idx(int k) { return static_cast<size_t>(k); }

// Programs live for ever, so that plans made of them may be kept.
const ScalarProgram* interned(const ScalarProgram& p) {
  std::string key;
  const auto put = [&](const auto& v) { key.append(reinterpret_cast<const char*>(&v), sizeof v); };
  // The lengths keep an output of register 0 apart from inputs.
  put(p.code.size());
  put(p.in.size());
  for (const ScalarInstr& i : p.code) append_key(key, i);
  for (DType t : p.in) put(t);
  for (const ScalarProgram::Out& o : p.out) {
    put(o.reg);
    put(o.dtype);
  }
  static std::mutex* lock = new std::mutex;
  static auto* table = new std::unordered_map<std::string, std::unique_ptr<ScalarProgram>>;
  std::lock_guard hold(*lock);
  std::unique_ptr<ScalarProgram>& at = (*table)[key];
  if (!at) at = std::make_unique<ScalarProgram>(p);
  return at.get();
}

class Lowering {
 public:
  explicit Lowering(const Program& p) : p_(p), place_of_(p.values.size(), kNone) {}

  Lowered run() {
    bind_placeholders();
    early_copies();
    for (const Instr& i : p_.instrs) {
      lower(i);
      join_to_product();
    }
    bind_results();
    lifetimes();
    reuse();
    check_cells();
    group_loops();
    plan_memory(l_);
    return std::move(l_);
  }

 private:
  // ---- places

  int add_buffer(Base base, int index, size_t bytes) {
    Block b;
    b.base = base;
    b.index = index;
    b.bytes = bytes;
    l_.buffers.push_back(b);
    return static_cast<int>(l_.buffers.size()) - 1;
  }
  int add_place(int buffer, const Spec& s, const Strides* strides = nullptr) {
    Place place;
    place.buffer = buffer;
    place.shape = s.shape;
    place.dtype = s.dtype;
    place.strides = strides ? *strides : contiguous_strides(s.shape);
    place.contiguous = !strides || is_row_major(s.shape, *strides);
    l_.places.push_back(place);
    return static_cast<int>(l_.places.size()) - 1;
  }
  static bool same_strides(const Shape& shape, const Strides& a, const Strides& b) {
    for (int d = 0; d < shape.rank(); ++d)
      if (shape[d].value() != 1 && a[d] != b[d]) return false;
    return true;
  }
  static bool is_row_major(const Shape& shape, const Strides& strides) {
    return same_strides(shape, strides, contiguous_strides(shape));
  }
  static size_t bytes_of(const Spec& s) {
    return static_cast<size_t>(s.shape.numel().value()) * size_of(s.dtype);
  }
  int fresh(const Spec& s, const Strides* strides = nullptr) {
    return add_place(add_buffer(Base::arena, kNone, bytes_of(s)), s, strides);
  }
  const Spec& spec(int v) const { return p_.values[idx(v)].spec; }
  Place& place(int k) { return l_.places[idx(k)]; }

  void bind_placeholders() {
    const auto bind = [&](int v, Base base, size_t index) {
      if (v == kNone) return;
      place_of_[idx(v)] =
          add_place(add_buffer(base, static_cast<int>(index), bytes_of(spec(v))), spec(v));
    };
    for (size_t i = 0; i < p_.inputs.size(); ++i) bind(p_.inputs[i], Base::input, i);
    for (size_t i = 0; i < p_.captures.size(); ++i) bind(p_.captures[i], Base::capture, i);
    for (size_t i = 0; i < p_.cells.size(); ++i) bind(p_.cells[i].entry, Base::cell, i);
    for (size_t i = 0; i < p_.grads.size(); ++i) bind(p_.grads[i].entry, Base::grad, i);
    l_.constants = p_.constants;
    for (size_t v = 0; v < p_.values.size(); ++v)
      if (p_.values[v].origin == Origin::constant) {
        size_t k = idx(p_.values[v].index);
        if (!l_.constants[k].defined()) continue;  // nobody reads it
        if (!l_.constants[k].is_contiguous()) {
          NoGradGuard no_grad;
          l_.constants[k] = call(op::copy, nullptr, Where{}, l_.constants[k]);
        }
        bind(static_cast<int>(v), Base::constant, k);
      } else if (p_.values[v].origin == Origin::derived) {
        bind(static_cast<int>(v), Base::derived, idx(p_.values[v].index));
      }
  }

  // ---- steps

  Array array_of_place(int k) const {
    Array a;
    const Place& q = l_.places[idx(k)];
    a.data = reinterpret_cast<void*>(uintptr_t{64});  // of a kernel that only asks for presence
    a.shape = q.shape.data();
    a.strides = q.strides.data();
    a.numel = q.shape.numel().value();
    a.dtype = q.dtype;
    a.rank = static_cast<uint8_t>(q.shape.rank());
    a.contiguous = q.contiguous;
    return a;
  }

  Step& add_step(const OpDef* op, const Instr* from) {
    Step s;
    s.op = op;
    if (from) {
      s.where = from->where;
      s.scope = from->scope;
      s.rng = from->rng;
    }
    s.name = op ? op->name : "fused";
    l_.steps.push_back(std::move(s));
    return l_.steps.back();
  }

  // Copies place `k` to one of these dense strides (nullptr: row-major).
  int copy(int k, const Instr* from, const Strides* strides = nullptr) {
    Spec s(place(k).dtype, place(k).shape);
    StepInput x{k, false, {}};
    int to = fresh(s, strides);
    Step& step = add_step(&op::copy, from);
    step.in.push_back(x);
    step.out.push_back(to);
    prepare(step);
    return to;
  }

  void lower(const Instr& i) {
    if (i.op && i.op->family == Family::view) return lower_view(i);
    Step s;
    s.op = i.op;
    s.attrs = i.attrs;
    s.rng = i.rng;
    s.scope = i.scope;
    s.where = i.where;
    s.again = i.again;
    s.name = i.op ? i.op->name : i.fused_names;
    for (const Arg& a : i.in)
      s.in.push_back({a.value == kNone ? kNone : place_of_[idx(a.value)], a.is_number, a.number});
    if (!i.op || i.op->family == Family::pointwise) align_operands(i, s);
    if (!i.op) {
      s.program = interned(*i.fused);
      loop_outputs(i, s);
    } else {
      choose_kernel(i, s);
      kernel_outputs(i, s);
    }
    for (size_t o = 0; o < i.out.size(); ++o)
      if (i.out[o] != kNone) place_of_[idx(i.out[o])] = s.out[o];
    if (i.op && is_loop(s)) {
      Arrays a = arrays_of(s);
      s.program = interned(program_of(call_of(s, a)));
      s.op = nullptr;
    }
    l_.steps.push_back(std::move(s));
    if (i.op) prepare(l_.steps.back());
  }

  // A pointwise instruction that the family's kernel runs is a loop like the fused ones.
  bool is_loop(const Step& s) const {
    if (s.op->family != Family::pointwise || !s.kernel || s.op->error_texts[0]) return false;
    for (int o : s.out)
      if (o == kNone) return false;
    return s.kernel->run == codegen::pointwise_kernel().run;
  }

  void lower_view(const Instr& i) {
    int from = place_of_[idx(i.in[0].value)];
    Shape shape = spec(i.out[0]).shape;
    Strides strides;
    int64_t offset = 0;
    bool ok = i.op->view_fn(i.attrs.get(), place(from).shape, place(from).strides, shape, strides,
                            offset);
    if (!ok) {
      from = copy(from, &i);
      ok = i.op->view_fn(i.attrs.get(), place(from).shape, place(from).strides, shape, strides,
                         offset);
      TD_ASSERT(ok);
    }
    int v = add_place(place(from).buffer, spec(i.out[0]), &strides);
    place(v).offset =
        place(from).offset + offset * static_cast<int64_t>(size_of(place(from).dtype));
    place_of_[idx(i.out[0])] = v;
  }

  // Channels last stays channels last: the layout of the first operand of the same shape.
  bool layout_like_inputs(const Step& s, const Shape& shape, Strides& strides) const {
    for (const StepInput& x : s.in) {
      if (x.place == kNone) continue;
      const Place& q = l_.places[idx(x.place)];
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
  void align_operands(const Instr& i, Step& s) {
    constexpr int64_t kFewest = 16384;
    const Shape shape = spec(i.out[0]).shape;
    if (shape.numel().value() < kFewest) return;
    const auto whole = [&](const StepInput& x) {
      return x.place != kNone && place(x.place).shape == shape &&
             is_dense(shape, place(x.place).strides);
    };
    const auto other = std::find_if(s.in.begin(), s.in.end(), [&](const StepInput& x) {
      return whole(x) && !place(x.place).contiguous;
    });
    if (other == s.in.end()) return;
    const Strides wanted = place(other->place).strides;
    for (StepInput& x : s.in)
      if (whole(x) && !same_strides(shape, place(x.place).strides, wanted))
        x.place = copy(x.place, &i, &wanted);
  }
  void loop_outputs(const Instr& i, Step& s) {
    Strides strides;
    bool own = layout_like_inputs(s, spec(i.out[0]).shape, strides);
    for (int v : i.out) s.out.push_back(fresh(spec(v), own ? &strides : nullptr));
  }

  // ---- kernels

  struct Arrays {
    SmallVec<Array, 8> in;
    Array out[kMaxOpOuts];
  };
  Arrays arrays_of(const Step& s) const {
    Arrays a;
    for (const StepInput& x : s.in) {
      Array y;
      if (x.is_number) {
        y.is_scalar = true;
        y.scalar = x.number;
        y.dtype = x.number.dtype();
      } else if (x.place != kNone) {
        y = array_of_place(x.place);
      }
      a.in.push_back(y);
    }
    for (size_t o = 0; o < s.out.size(); ++o)
      if (s.out[o] != kNone) a.out[o] = array_of_place(s.out[o]);
    return a;
  }
  static KernelCall call_of(const Step& s, Arrays& a) {
    return KernelCall{*s.op, s.attrs.get(), a.in.data(), static_cast<int>(a.in.size()),
                      a.out, s.op->n_out};
  }

  // Before the outputs have a layout.
  void set_out_shapes(const Instr& i, Arrays& a) const {
    for (size_t o = 0; o < i.out.size(); ++o) {
      if (i.out[o] == kNone) continue;
      const Spec& y = spec(i.out[o]);
      a.out[o].shape = y.shape.data();
      a.out[o].rank = static_cast<uint8_t>(y.rank());
      a.out[o].dtype = y.dtype;
    }
  }

  void choose_kernel(const Instr& i, Step& s) {
    Arrays a = arrays_of(s);
    set_out_shapes(i, a);
    KernelCall call = call_of(s, a);
    s.kernel = find_kernel(call, DeviceKind::cpu);
    if (s.kernel || s.op == &op::copy) return;
    // One that wants row-major operands gets copies, as in eager.
    std::vector<int> strided;
    Strides row_major[64];
    for (size_t k = 0; k < s.in.size() && k < 64; ++k) {
      if (s.in[k].place == kNone || a.in[k].contiguous) continue;
      strided.push_back(static_cast<int>(k));
      row_major[k] = contiguous_strides(place(s.in[k].place).shape);
      a.in[k].strides = row_major[k].data();
      a.in[k].contiguous = true;
    }
    if (strided.empty()) return;
    s.kernel = find_kernel(call, DeviceKind::cpu);
    if (!s.kernel) return;
    for (int k : strided) s.in[k].place = copy(s.in[k].place, &i);
  }

  void kernel_outputs(const Instr& i, Step& s) {
    TD_CHECK(s.kernel || i.op->reference_fn || is_dry_run_of_any_device(), Unsupported,
             "no kernel and no reference for {}", i.op->name);
    Arrays a = arrays_of(s);
    set_out_shapes(i, a);
    KernelCall call = call_of(s, a);
    for (size_t o = 0; o < i.out.size(); ++o) {
      if (i.out[o] == kNone) {
        s.out.push_back(kNone);
        continue;
      }
      const Spec& y = spec(i.out[o]);
      Strides strides;
      bool own =
          s.kernel && s.kernel->layout && s.kernel->layout(call, static_cast<int>(o), strides);
      if (!own && i.op->family == Family::pointwise) own = layout_like_inputs(s, y.shape, strides);
      s.out.push_back(fresh(y, own ? &strides : nullptr));
      a.out[o] = array_of_place(s.out.back());
    }
    // Kernels ask for hidden outputs by number, also where none is made.
    while (s.out.size() < i.op->n_out) s.out.push_back(kNone);
  }

  void prepare(Step& s) {
    if (s.op && !s.kernel && s.op == &op::copy) {
      Arrays a = arrays_of(s);
      KernelCall call = call_of(s, a);
      s.kernel = find_kernel(call, DeviceKind::cpu);
    }
    if (!s.op || !s.kernel || !s.kernel->prepare) return;
    if (is_dry_run_of_any_device() && s.op->family != Family::control) return;
    Arrays a = arrays_of(s);
    KernelCall call = call_of(s, a);
    // Plans of ops with graphs in their attributes belong to one program, the others to all.
    s.plan = s.op->family == Family::control ? s.kernel->prepare(call) : plan_of(*s.kernel, call);
    if (s.plan && s.plan->workspace) s.scratch = add_buffer(Base::arena, kNone, s.plan->workspace);
  }

  // ---- epilogues

  // Can the step made last, a loop, run on each block of the result of the one before it?
  void join_to_product() {
    if (l_.steps.size() < 2) return;
    Step &loop = l_.steps.back(), &product = l_.steps[l_.steps.size() - 2];
    if (loop.op || !product.kernel || !product.plan || product.inside) return;
    const int v = product.out[0];
    bool reads_it = false;
    for (const StepInput& x : loop.in) reads_it = reads_it || x.place == v;
    if (!reads_it || place(v).shape.rank() < 2) return;
    Arrays a = arrays_of(product);
    const EpilogueKind kind = epilogue_kind(*product.kernel, call_of(product, a));
    const bool ranges = kind == EpilogueKind::ranges;
    if (kind == EpilogueKind::none || (ranges ? !lies_alike(loop, v) : !are_matrices(loop, v)))
      return;
    for (int o : loop.out) {
      // The product reads its operands until the last block is done.
      for (const StepInput& x : product.in)
        if (x.place != kNone && place(x.place).buffer == place(o).buffer) return;
    }
    loop.inside = true;
    loop.ranges = ranges;
  }
  // Is every operand of the loop a matrix of the rows and columns of place v, or a part of one?
  bool are_matrices(const Step& loop, int v) const {
    const Shape& whole = l_.places[idx(v)].shape;
    const int64_t columns = whole[whole.rank() - 1].value(), n = whole.numel().value();
    int64_t row, column;
    for (const StepInput& x : loop.in)
      if (x.place != kNone && !as_matrix(array_of_place(x.place), n / std::max<int64_t>(columns, 1),
                                         columns, row, column))
        return false;
    for (int o : loop.out)
      if (l_.places[idx(o)].shape.numel().value() != n || !l_.places[idx(o)].contiguous)
        return false;
    return true;
  }
  // Does everything of more than one element lie in memory as the dense place v does?
  bool lies_alike(const Step& loop, int v) const {
    const Place& whole = l_.places[idx(v)];
    const auto alike = [&](int k) {
      const Place& q = l_.places[idx(k)];
      return q.shape == whole.shape && same_strides(q.shape, q.strides, whole.strides);
    };
    if (!is_dense(whole.shape, whole.strides)) return false;
    for (const StepInput& x : loop.in)
      if (x.place != kNone && l_.places[idx(x.place)].shape.numel().value() != 1 && !alike(x.place))
        return false;
    return std::all_of(loop.out.begin(), loop.out.end(), alike);
  }
  bool has_epilogue(size_t k) const { return k + 1 < l_.steps.size() && l_.steps[k + 1].inside; }

  // ---- results

  // An output or exit that is a placeholder's own bytes is copied before anything is overwritten.
  void early_copies() {
    const auto base_of = [&](int v) {
      return place_of_[idx(v)] == kNone ? Base::arena
                                        : l_.buffers[idx(place(place_of_[idx(v)]).buffer)].base;
    };
    for (int v : p_.results())
      if (base_of(v) != Base::arena && !early_.count(v))
        early_[v] = copy(place_of_[idx(v)], nullptr);
  }

  // The place that leaves the program for value v: a buffer of its own, row-major where `whole`.
  int claim(int v, Base base, int index, bool whole) {
    int k = place_of_[idx(v)];
    if (auto at = early_.find(v); at != early_.end() && !claimed_.count(place(at->second).buffer))
      k = at->second;
    const Block& b = l_.buffers[idx(place(k).buffer)];
    bool own = b.base == Base::arena && !claimed_.count(place(k).buffer);
    if (whole)
      own = own && place(k).contiguous && place(k).offset == 0 && b.bytes == bytes_of(spec(v));
    if (!own) k = copy(k, nullptr);
    claimed_[place(k).buffer] = true;
    l_.buffers[idx(place(k).buffer)].base = base;
    l_.buffers[idx(place(k).buffer)].index = index;
    return k;
  }

  void bind_results() {
    l_.cell_exits.assign(p_.cells.size(), kNone);
    l_.grad_exits.assign(p_.grads.size(), kNone);
    for (size_t i = 0; i < p_.cells.size(); ++i)
      if (p_.cells[i].exit != kNone)
        l_.cell_exits[i] = claim(p_.cells[i].exit, Base::cell_new, static_cast<int>(i), true);
    for (size_t i = 0; i < p_.outputs.size(); ++i)
      l_.outputs.push_back(claim(p_.outputs[i], Base::output, static_cast<int>(i), false));
    for (size_t i = 0; i < p_.grads.size(); ++i)
      if (p_.grads[i].exit != kNone)
        l_.grad_exits[i] = claim(p_.grads[i].exit, Base::grad_new, static_cast<int>(i), true);
  }

  // ---- lifetimes

  void lifetimes() {
    const auto touch = [&](int buffer, int step) {
      Block& b = l_.buffers[idx(buffer)];
      if (b.first == kNone || b.first > step) b.first = step;
      b.last = std::max(b.last, step);
    };
    for (size_t k = 0; k < l_.steps.size(); ++k) {
      const Step& s = l_.steps[k];
      int at = static_cast<int>(k);
      // A product and its epilogue are one step: all that they use is alive in both.
      const int from = s.inside ? at - 1 : at, to = has_epilogue(k) ? at + 1 : at;
      const auto both = [&](int buffer) {
        touch(buffer, from);
        touch(buffer, to);
      };
      for (const StepInput& x : s.in)
        if (x.place != kNone) both(place(x.place).buffer);
      for (int o : s.out)
        if (o != kNone) both(place(o).buffer);
      if (s.scratch != kNone) both(s.scratch);
    }
  }

  // Does the step read element e of input `x` only to make element e of `y`?
  bool aligned(const Step& s, int x, int y) const {
    const Place &a = l_.places[idx(x)], &b = l_.places[idx(y)];
    if (s.op && s.op->family != Family::pointwise &&
        !(s.op->has(kReuseFirst) && s.out[0] == y && s.in[0].place == x))
      return false;
    if (!(a.shape == b.shape) || a.dtype != b.dtype) return false;
    return same_strides(a.shape, a.strides, b.strides) && is_dense(a.shape, a.strides);
  }

  int root(int buffer) const {
    while (l_.buffers[idx(buffer)].same_as != kNone) buffer = l_.buffers[idx(buffer)].same_as;
    return buffer;
  }

  // An output takes over the buffer of an operand that is read for the last time.
  void reuse() {
    for (size_t k = 0; k < l_.steps.size(); ++k) {
      Step& s = l_.steps[k];
      for (int o : s.out) {
        if (o == kNone) continue;
        Block& to = l_.buffers[idx(place(o).buffer)];
        const int first = static_cast<int>(k) - (s.inside ? 1 : 0);
        if (to.base != Base::arena || to.first != first || to.same_as != kNone) continue;
        for (const StepInput& x : s.in) {
          if (x.place == kNone || place(x.place).offset != 0) continue;
          int from = root(place(x.place).buffer);
          Block& b = l_.buffers[idx(from)];
          if (b.base != Base::arena || b.bytes != to.bytes || b.last != static_cast<int>(k) ||
              !aligned(s, x.place, o) || reads(s, from) > 1)
            continue;
          if (s.inside && reads(l_.steps[k - 1], from) > 0) continue;
          to.same_as = from;
          b.last = to.last;
          break;
        }
      }
    }
  }
  int reads(const Step& s, int buffer) const {
    int n = 0;
    for (const StepInput& x : s.in)
      n += x.place != kNone && root(l_.places[idx(x.place)].buffer) == buffer;
    return n;
  }

  // A cell's new value may be written over the old one if the old one is not read afterwards.
  void check_cells() {
    l_.cell_in_place.assign(p_.cells.size(), 0);
    for (size_t i = 0; i < p_.cells.size(); ++i) {
      if (l_.cell_exits[i] == kNone) continue;
      int exit = l_.cell_exits[i];
      int write = l_.buffers[idx(place(exit).buffer)].first;
      bool ok = true;
      for (size_t k = idx(write); k < l_.steps.size() && ok; ++k) {
        const int at = static_cast<int>(k) - (l_.steps[k].inside ? 1 : 0);
        for (const StepInput& x : l_.steps[k].in) {
          if (x.place == kNone) continue;
          const Block& b = l_.buffers[idx(place(x.place).buffer)];
          if (b.base != Base::cell || b.index != static_cast<int>(i)) continue;
          ok = ok && at == write && aligned(l_.steps[k], x.place, exit);
        }
      }
      l_.cell_in_place[i] = ok;
    }
  }

  // ---- loops of one region

  bool flat(const Step& s) const {
    if (s.op || s.inside) return false;
    int64_t n = l_.places[idx(s.out[0])].shape.numel().value();
    for (int o : s.out)
      if (!l_.places[idx(o)].contiguous || l_.places[idx(o)].shape.numel().value() != n)
        return false;
    for (const StepInput& x : s.in) {
      if (x.place == kNone) continue;
      const Place& q = l_.places[idx(x.place)];
      int64_t m = q.shape.numel().value();
      if (m != 1 && (m != n || !q.contiguous)) return false;
    }
    return true;
  }
  // Buffers that step k writes and others that it reads; do two steps meet?
  bool meet(const Step& a, const Step& b) const {
    const auto touches = [&](const Step& s, int buffer) {
      for (const StepInput& x : s.in)
        if (x.place != kNone && same_bytes(l_.places[idx(x.place)].buffer, buffer)) return true;
      for (int o : s.out)
        if (o != kNone && same_bytes(l_.places[idx(o)].buffer, buffer)) return true;
      return false;
    };
    for (int o : a.out)
      if (o != kNone && touches(b, l_.places[idx(o)].buffer)) return true;
    for (int o : b.out)
      if (o != kNone && touches(a, l_.places[idx(o)].buffer)) return true;
    return false;
  }
  bool same_bytes(int a, int b) const {
    const Block &x = l_.buffers[idx(root(a))], &y = l_.buffers[idx(root(b))];
    if (root(a) == root(b)) return true;
    const auto is_cell = [](Base base) { return base == Base::cell || base == Base::cell_new; };
    return is_cell(x.base) && is_cell(y.base) && x.index == y.index;
  }

  void group_loops() {
    for (size_t k = 0; k < l_.steps.size();) {
      size_t end = k + 1;
      if (flat(l_.steps[k])) {
        for (; end < l_.steps.size() && flat(l_.steps[end]); ++end) {
          bool apart = true;
          for (size_t j = k; j < end && apart; ++j) apart = !meet(l_.steps[j], l_.steps[end]);
          if (!apart) break;
        }
        l_.steps[k].together = static_cast<int>(end - k);
      }
      // Their buffers live as long as the whole region: parts run in any order.
      for (size_t j = k; j < end && end - k > 1; ++j) {
        for (const StepInput& x : l_.steps[j].in)
          if (x.place != kNone)
            extend(place(x.place).buffer, static_cast<int>(k), static_cast<int>(end) - 1);
        for (int o : l_.steps[j].out)
          extend(place(o).buffer, static_cast<int>(k), static_cast<int>(end) - 1);
      }
      k = end;
    }
  }
  void extend(int buffer, int from, int to) {
    Block& b = l_.buffers[idx(root(buffer))];
    b.first = std::min(b.first, from);
    b.last = std::max(b.last, to);
  }

  const Program& p_;
  Lowered l_;
  std::vector<int> place_of_;
  std::unordered_map<int, int> early_;
  std::unordered_map<int, bool> claimed_;
};

}  // namespace

bool as_matrix(const Array& a, int64_t rows, int64_t columns, int64_t& row, int64_t& column) {
  row = column = 0;
  if (a.is_scalar || a.numel == 1) return true;
  if (!a.contiguous) return false;
  if (a.numel == rows * columns) {
    row = columns;
    column = 1;
    return a.rank > 0 && a.shape[a.rank - 1] == columns;
  }
  if (a.numel == columns && a.shape[a.rank - 1] == columns) {
    column = 1;
    return true;
  }
  if (a.numel == rows && a.shape[a.rank - 1] == 1) {
    row = 1;
    return true;
  }
  return false;
}

std::vector<const Block*> alive_at_peak(const Lowered& l) {
  std::vector<const Block*> alive;
  for (const Block& b : l.buffers)
    if (b.base == Base::arena && b.same_as == kNone && b.first != kNone && b.first <= l.peak_step &&
        b.last >= l.peak_step)
      alive.push_back(&b);
  std::sort(alive.begin(), alive.end(),
            [](const Block* a, const Block* b) { return a->bytes > b->bytes; });
  return alive;
}

Lowered lower_program(const Program& p) { return Lowering(p).run(); }

}  // namespace tandem::compiler
