// SPDX-License-Identifier: Apache-2.0
// What a call binds: arguments, cells, gradients and results, and their addresses.
#include "tandem/compile/run/frame.h"

#include <algorithm>
#include <map>

#include "tandem/compile/run/derived.h"
#include "tandem/graph/apply.h"
#include "tandem/graph/cells/absent.h"
#include "tandem/graph/dry_run.h"
#include "tandem/tensor/device_memory.h"

namespace tandem {

using namespace compiler;

Executable::Frame::~Frame() {
  if (arena && !dry) detail::deallocate(arena, bytes, device);
}

// Puts values back that were lent by cells and not replaced.
Executable::Bound::~Bound() {
  for (Cell* c : locked) c->lock_.unlock();
}

// The arena in the ledger of a dry run.
struct Executable::DryArena : RefCounted {
  explicit DryArena(size_t bytes)
      : ledger(Ref<DryMemory>::share(detail::dry_memory())),
        block(ledger->take(bytes, DryUse::arena)) {}
  ~DryArena() override { ledger->give_back(block); }
  Ref<DryMemory> ledger;
  int32_t block;
};

std::unique_ptr<Executable::Frame> Executable::acquire() {
  const bool dry = is_dry_run();
  if (!dry) {
    std::lock_guard hold(lock_);
    if (!idle_.empty()) {
      std::unique_ptr<Frame> f = std::move(idle_.back());
      idle_.pop_back();
      return f;
    }
  }
  auto f = std::make_unique<Frame>();
  f->bytes = std::max<size_t>(lowered_.arena_bytes, 64);
  f->dry = dry;
  if (dry) {
    f->arena = reinterpret_cast<void*>(uintptr_t{4096});
    if (!dry_arena_) dry_arena_ = make_ref<DryArena>(f->bytes);  // kept, as a real one is
  } else {
    f->device = program_.device;
    if (!is_host(f->device)) detail::allocating_op() = "a compiled program";
    f->arena = detail::allocate(f->bytes, f->device);
  }
  f->arrays.resize(n_arrays_);
  std::map<std::pair<Base, int>, size_t> sources;
  const auto source = [&](const Block& b) {
    const auto [at, is_new] = sources.try_emplace({b.base, b.index}, f->sources.size());
    if (is_new) f->sources.push_back({b.base, static_cast<size_t>(b.index), 0});
    size_t& bytes = f->sources[at->second].bytes;
    bytes = std::max(bytes, b.bytes);
    return at->second;
  };
  const auto set = [&](size_t at, int place) {
    const Place& q = lowered_.places[place];
    const Block& b = lowered_.buffers[q.buffer];
    Array& a = f->arrays[at];
    a.shape = q.shape.data();
    a.strides = q.strides.data();
    a.numel = q.shape.numel().value();
    a.dtype = q.dtype;
    a.rank = static_cast<uint8_t>(q.shape.rank());
    a.contiguous = q.contiguous;
    if (b.base == Base::arena)
      a.data = static_cast<char*>(f->arena) + b.offset + q.offset;
    else if (b.base == Base::constant)
      a.data = static_cast<char*>(lowered_.constants[b.index].impl()->data) + q.offset;
    else
      f->patches.push_back({at, source(b), q.offset});
  };
  for (size_t k = 0; k < lowered_.steps.size(); ++k) {
    const Step& s = lowered_.steps[k];
    size_t at = first_array_[k];
    for (const StepInput& x : s.in) {
      if (x.is_number) {
        f->arrays[at].is_scalar = true;
        f->arrays[at].scalar = x.number;
        f->arrays[at].dtype = x.number.dtype();
      } else if (x.place != kNone) {
        set(at, x.place);
      }
      ++at;
    }
    for (int o : s.out) {
      if (o != kNone) set(at, o);
      ++at;
    }
  }
  f->replays.device = f->device;
  f->replays.off = dry || !can_be_recorded();
  return f;
}

void Executable::release(std::unique_ptr<Frame> f) {
  if (f->dry) return;
  std::lock_guard hold(lock_);
  if (idle_.size() < 8) idle_.push_back(std::move(f));
}

namespace {
// As a program on `device` reads it.
Tensor row_major(const Tensor& t, Device device) {
  if (t.is_contiguous() && t.device() == device) return t;
  NoGradGuard no_grad;
  const Tensor there = t.to(device);
  return there.is_contiguous() ? there : call(op::copy, nullptr, SourceLocation{}, there);
}
// The same, but what lies on the host stays there until it is known how it is brought in.
Tensor as_read(const Tensor& t, Device device) {
  if (is_host(t.device()) && t.is_contiguous() && !is_dry_run()) return t;
  return row_major(t, device);
}
// Where the caller wants it.
void send(Tensor& t, Device device) {
  if (TD_LIKELY(!t.defined() || t.device() == device)) return;
  NoGradGuard no_grad;
  t = t.to(device);
}
// A new value for a cell of `home`. The host waits for it when it is read.
Tensor of_cell(Tensor made, Device home) {
  if (is_host(home) && !is_host(made.device()) && !is_dry_run())
    return detail::make_away(std::move(made));
  send(made, home);
  return made;
}
Tensor fresh(const Shape& shape, DType dtype, const Strides* strides, Device device) {
  const auto make = is_dry_run() ? detail::new_dry_tensor : detail::new_tensor;
  return Tensor(Ref<detail::TensorImpl>::adopt(make(shape, dtype, device, strides)));
}
}  // namespace

void Executable::bind(Bound& b, std::span<const Tensor> inputs, std::span<const Tensor> captures) {
  const Device device = program_.device;
  for (const Tensor& t : inputs) b.inputs.push_back(as_read(t, device));
  for (const Tensor& t : captures) b.captures.push_back(as_read(t, device));
  for (const auto& d : program_.derived)
    b.derived.push_back(is_dry_run() ? fresh(d->spec().shape, d->spec().dtype, nullptr, device)
                                     : as_read(d->value(), device));
  b.cells.resize(program_.cells.size());
  b.cells_new.resize(program_.cells.size());
  b.in_place.resize(program_.cells.size());
  b.written.resize(program_.cells.size());
  for (size_t i : write_order_) {
    Cell& c = *program_.cells[i].cell;
    c.lock_.lock();
    b.locked.push_back(&c);
    const Tensor* away = detail::away_value(c.value_);
    const Tensor& v = *(b.written[i] = away ? away : &c.value_);
    const Place& q = lowered_.places[lowered_.cell_exits[i]];
    b.in_place[i] = lowered_.cell_in_place[i] && v.impl()->donatable() && v.is_contiguous() &&
                    v.device() == device;
    if (!b.in_place[i]) b.cells_new[i] = fresh(q.shape, q.dtype, nullptr, device);
  }
  for (size_t i = 0; i < program_.cells.size(); ++i) {
    const Program::CellUse& u = program_.cells[i];
    if (lowered_.cell_exits[i] == kNone) {
      if (u.entry != kNone) b.cells[i] = as_read(u.cell->read(), device);
    } else if (!b.in_place[i] && u.entry != kNone) {
      b.cells[i] = as_read(*b.written[i], device);
    }
  }
  b.grads.resize(program_.grads.size());
  b.grads_new.resize(program_.grads.size());
  for (size_t i = 0; i < program_.grads.size(); ++i) {
    const Program::GradUse& u = program_.grads[i];
    if (u.entry != kNone) {
      std::lock_guard hold(u.slot->lock);
      b.grads[i] = as_read(u.slot->get(), device);
    }
    if (lowered_.grad_exits[i] == kNone) continue;
    const Place& q = lowered_.places[lowered_.grad_exits[i]];
    b.grads_new[i] = fresh(q.shape, q.dtype, nullptr, device);
  }
  for (int k : lowered_.outputs) {
    const Place& q = lowered_.places[k];
    const Block& buffer = lowered_.buffers[q.buffer];
    const auto size = static_cast<int64_t>(size_of(q.dtype));
    // A view of a larger value keeps that value's bytes.
    bool whole =
        q.offset == 0 && static_cast<size_t>(q.shape.numel().value() * size) == buffer.bytes;
    b.outputs.push_back(
        whole ? fresh(q.shape, q.dtype, &q.strides, device)
              : fresh(Shape(static_cast<int64_t>(buffer.bytes) / size), q.dtype, nullptr, device));
  }
}

// To the program's device, what is not there yet.
void Executable::bring(Bound& b) const {
  const Device device = program_.device;
  if (is_host(device)) return;
  for (std::vector<Tensor>* all : {&b.inputs, &b.captures, &b.derived, &b.cells, &b.grads})
    for (Tensor& t : *all)
      if (t.defined()) t = row_major(t, device);
}

const Tensor& Executable::bound(const Bound& b, Base base, size_t k) const {
  switch (base) {
    case Base::input:
      return b.inputs[k];
    case Base::capture:
      return b.captures[k];
    case Base::cell:
      return b.in_place[k] ? *b.written[k] : b.cells[k];
    case Base::cell_new:
      return b.in_place[k] ? *b.written[k] : b.cells_new[k];
    case Base::grad:
      return b.grads[k];
    case Base::grad_new:
      return b.grads_new[k];
    case Base::output:
      return b.outputs[k];
    default:
      return b.derived[k];
  }
}

// Where the sources lie; nullptr for what the host still has and the program's device has not.
const std::vector<char*>& Executable::addresses(Frame& f, const Bound& b) const {
  f.at.resize(f.sources.size());
  for (size_t i = 0; i < f.sources.size(); ++i) {
    const detail::TensorImpl& t = *bound(b, f.sources[i].base, f.sources[i].index).impl();
    f.at[i] = t.device == program_.device ? static_cast<char*>(t.data) : nullptr;
  }
  return f.at;
}

void Executable::point(Frame& f, const std::vector<char*>& at) const {
  for (const Frame::Patch& p : f.patches) f.arrays[p.array].data = at[p.source] + p.offset;
}

std::vector<Tensor> Executable::collect(Bound& b) {
  for (size_t i : write_order_) {
    Cell& c = *program_.cells[i].cell;
    if (b.in_place[i])
      ++c.generation_;
    else
      c.adopt(of_cell(std::move(b.cells_new[i]), c.value_.device()));
  }
  for (size_t i = 0; i < program_.grads.size(); ++i) {
    const Program::GradUse& u = program_.grads[i];
    if (!u.stored && !u.consumed) continue;
    if (b.grads_new[i].defined()) send(b.grads_new[i], u.device);
    std::lock_guard hold(u.slot->lock);
    u.slot->set(std::move(b.grads_new[i]));
    u.slot->consumed = u.consumed;
  }
  std::vector<Tensor> out;
  for (size_t i = 0; i < lowered_.outputs.size(); ++i) {
    const Place& q = lowered_.places[lowered_.outputs[i]];
    Tensor& t = b.outputs[i];
    if (q.offset != 0 || !(t.shape() == q.shape)) {
      char* data = static_cast<char*>(t.impl()->data) + q.offset;
      t = Tensor(Ref<detail::TensorImpl>::adopt(
          detail::new_view(*t.impl(), q.shape, q.strides, data, q.dtype)));
    }
    if (i < program_.output_devices.size()) send(t, program_.output_devices[i]);
    out.push_back(std::move(t));
  }
  return out;
}

}  // namespace tandem
