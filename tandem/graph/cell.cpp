// SPDX-License-Identifier: Apache-2.0
// Cells in eager mode: reading returns the current value, writing reuses its bytes only if nobody
// else holds them. Inside a trace the trace decides.
#include "tandem/graph/cell.h"

#include "tandem/graph/apply_internal.h"
#include "tandem/graph/cells/absent.h"
#include "tandem/graph/cells/deferred.h"
#include "tandem/graph/dry_run.h"
#include "tandem/graph/trace.h"
#include "tandem/tensor/device_memory.h"
#include "tandem/tensor/lazy.h"

namespace tandem {

Cell::Cell(Tensor value, bool requires_grad) : requires_grad_(requires_grad) {
  TD_CHECK(value.defined(), Value, "a Param or Buffer expects a value, got an undefined tensor");
  TD_CHECK(!value.is_symbolic(), Unsupported,
           "a Param or Buffer cannot be made inside a trace\nMake it before and capture it.");
  TD_CHECK(!requires_grad || is_floating(value.dtype()), DType,
           "a Param that asks for gradients expects a floating dtype, got {}\n"
           "Use a Buffer, or Param(value, false).",
           to_string(value.dtype()));
  if (requires_grad) slot_ = make_ref<GradSlot>();
  adopt(std::move(value));
  detail::enter_cell(*this, made_);
}
Cell::~Cell() { detail::leave_cell(*this, made_); }

// Make `v` the value: with its own header, connected to the gradient slot.
void Cell::adopt(Tensor v) {
  if (!v.impl()->refs.unique() || v.impl()->node) v = detached_alias(v);
  v.impl()->flags &= static_cast<uint8_t>(~detail::kRequiresGrad);
  if (requires_grad_) {
    if (!leaf_) {
      leaf_ = Node::make_leaf(slot_);
      leaf_->flags |= kOfCell;
    }
    set_node(v, leaf_, 0);
    v.impl()->flags |= detail::kRequiresGrad;
  }
  value_ = std::move(v);
  ++generation_;
}

// The value; one that is elsewhere is brought here first, and one that is deferred is computed.
Tensor Cell::present() const {
  for (;;) {
    Tensor v;
    {
      std::lock_guard hold(lock_);
      if (TD_UNLIKELY(detail::any_absent()) && detail::is_deferred(value_) &&
          !(context().slow & kDeferred))
        detail::compute_in_place(*value_.impl());
      v = value_;
    }
    if (TD_LIKELY(!detail::any_absent()) || !detail::is_absent(v)) return v;
    detail::bring_value(*this, v);
  }
}

Tensor Cell::read() const {
  Context& c = context();
  if (TD_UNLIKELY(c.slow & (kTracing | kRedirect | kRecompute | kShadowed) || c.cell_log)) {
    if (c.redirect)
      for (auto& [cell, value] : *c.redirect)
        if (cell == this) return value;
    if (Trace* t = cell_trace()) return t->read_cell(*this);
    if (c.cell_log) {
      Tensor v = present();
      c.cell_log->emplace_back(Ref<RefCounted>::share(const_cast<Cell*>(this)), v);
      return v;
    }
  }
  return present();
}

void Cell::assign(const Tensor& v, SourceLocation loc) {
  Context& c = context();
  if (c.slow & kRecompute) return;
  TD_CHECK(v.defined(), Value, "assign_ got an undefined tensor");
  const Shape& want = value_.shape();
  TD_CHECK(v.shape() == want && v.dtype() == value_.dtype(), Shape,
           "assign_ to '{}' expects {} {}, got {} {}", name.empty() ? "cell" : name,
           to_string(value_.dtype()), want.to_string(), to_string(v.dtype()),
           v.shape().to_string());
  NoGradGuard no_grad;
  Tensor x = v.device() == value_.device() ? v : move_to(v, value_.device(), loc);
  for (const Tensor& pred : c.assign_if) {
    static const OpDef* select = find_op("where");
    // Numbers of an optimizer lie on the CPU, beside parameters on a device.
    const Tensor here = pred.device() == x.device() ? pred : move_to(pred, x.device(), loc);
    x = call(*select, nullptr, loc, here, x, read());
  }
  if (c.trace) {
    Trace* t = cell_trace();
    TD_CHECK(
        t == c.trace, Unsupported,
        "assign_ to '{}' inside vmap or a loop body\nReturn the value from the function (a loop "
        "carries it) and assign it outside.",
        name.empty() ? "cell" : name);
    t->assign_cell(*this, x, loc);
    return;
  }
  if (!x.impl()->refs.unique() || !x.impl()->donatable() || !x.is_contiguous())
    x = x.is_contiguous() && x.impl()->storage->writable ? x : call(op::copy, nullptr, loc, x);
  std::lock_guard hold(lock_);
  bool in_place = value_.impl()->donatable() && value_.is_contiguous() && x.is_contiguous() &&
                  !x.impl()->donatable();
  // Dry values have nothing to copy; a real value is not replaced by one that was never computed.
  const bool dry = TD_UNLIKELY(c.slow & kDryRun) && detail::is_dry(*x.impl());
  if (dry) in_place = in_place && detail::is_dry(*value_.impl());
  if (in_place) {
    if (!dry && !detail::is_dry(*value_.impl()))
      detail::copy_bytes(value_.impl()->data, value_.device(), x.impl()->data, x.device(),
                         static_cast<size_t>(x.numel()) * size_of(x.dtype()));
    ++generation_;
    return;
  }
  adopt(std::move(x));
}

void Cell::replace(Tensor v) {
  TD_CHECK(!is_tracing(), Unsupported, "a cell's shape or dtype cannot change inside a trace");
  std::lock_guard hold(lock_);
  adopt(std::move(v));
}

void Cell::set_requires_grad(bool on) {
  TD_CHECK(!is_tracing(), Unsupported, "requires_grad_ cannot change inside a trace");
  std::lock_guard hold(lock_);
  requires_grad_ = on;
  if (on && !slot_) slot_ = make_ref<GradSlot>();
  adopt(detached_alias(value_));
}

Tensor Cell::grad() const {
  if (!slot_) return Tensor();
  if (Trace* t = cell_trace()) return t->read_grad(*slot_);
  std::lock_guard hold(slot_->lock);
  return slot_->get();
}

void Cell::set_grad(Tensor g) {
  if (!slot_) return;
  if (Trace* t = cell_trace()) return t->store_grad(*slot_, g);
  std::lock_guard hold(slot_->lock);
  slot_->set(std::move(g));
}

// The row's inputs: first cell, first other, the other cells, the rest.
static void weave(std::vector<Tensor>& cells, std::span<Operand> others, SourceLocation loc,
                  std::vector<Operand>& in) {
  for (size_t i = 0; i < cells.size(); ++i) {
    in.emplace_back(std::move(cells[i]), loc);
    if (i == 0 && !others.empty()) in.push_back(std::move(others[0]));
  }
  for (size_t i = 1; i < others.size(); ++i) in.push_back(std::move(others[i]));
}

void update_(const OpDef& row, const void* attrs, std::span<Cell* const> cells,
             std::span<Operand> others, SourceLocation loc) {
  Context& c = context();
  if (c.slow & kRecompute) return;
  NoGradGuard no_grad;
  Tensor out[kMaxOpOuts];
  // The anomaly watch inspects results after they are written: it must not find them in the cells.
  bool plain = !c.trace && c.assign_if.empty() && !c.redirect && !(c.slow & kAnomaly);
  std::vector<Operand> in;
  in.reserve(cells.size() + others.size());
  if (!plain) {
    std::vector<Tensor> values;
    for (Cell* cell : cells) values.push_back(cell->read());
    weave(values, others, loc, in);
    apply(row, attrs, in, out, loc);
    for (size_t i = 0; i < cells.size(); ++i) cells[i]->assign(out[i], loc);
    return;
  }
  // Lend the cells' values to the row; a view keeps the bytes in case it throws before it runs.
  std::vector<Tensor> lent;
  for (Cell* cell : cells) {
    if (TD_UNLIKELY(detail::any_absent())) (void)cell->present();
    cell->lock_.lock();
    lent.push_back(std::move(cell->value_));
  }
  auto restore = [&](Tensor* from) {
    for (size_t i = 0; i < cells.size(); ++i) {
      cells[i]->adopt(std::move(from[i]));
      cells[i]->lock_.unlock();
    }
  };
  try {
    Call probe(row, attrs, loc, c, ApplyOptions{});
    auto see = [&](const Operand& o) {
      bool scalar = o.is_scalar();
      probe.infer.in.push_back(scalar || !o.tensor().defined() ? Spec() : spec_of(o.tensor()));
      probe.infer.present.push_back(scalar ? 2 : o.tensor().defined() ? 1 : 0);
      probe.infer.scalars.push_back(o.scalar());
    };
    for (size_t i = 0; i < lent.size(); ++i) {
      see(Operand(lent[i], loc));
      if (i == 0 && !others.empty()) see(others[0]);
    }
    for (size_t i = 1; i < others.size(); ++i) see(others[i]);
    if (row.infer_fn)
      row.infer_fn(probe.infer);
    else
      infer_pointwise(probe.infer);
    for (size_t i = 0; i < cells.size(); ++i) {
      probe.infer.out[i].device = lent[i].device();
      TD_CHECK(probe.infer.out[i] == spec_of(lent[i]), Shape,
               "the update of '{}' would change it from {} to {}", cells[i]->name,
               spec_of(lent[i]).to_string(), probe.infer.out[i].to_string());
    }
  } catch (const Error& e) {
    restore(lent.data());
    throw with_place(e, row.name, loc);
  } catch (...) {
    restore(lent.data());
    throw;
  }
  weave(lent, others, loc, in);
  try {
    apply(row, attrs, in, out, loc);
  } catch (...) {
    for (size_t i = 0; i < lent.size(); ++i)
      lent[i] = std::move(in[i == 0 || others.empty() ? i : i + 1].owned());
    restore(lent.data());
    throw;
  }
  restore(out);
}

namespace detail {

Tensor CellHandle::value() const {
  TD_CHECK(cell_, Value, "an empty Param or Buffer has no value");
  return cell_->read();
}
const Shape& CellHandle::shape() const { return value().ref()->shape; }
DType CellHandle::dtype() const { return value().dtype(); }
const std::string& CellHandle::name() const {
  TD_CHECK(cell_, Value, "an empty Param or Buffer has no name");
  return cell_->name;
}
void CellHandle::assign_(const Operand& v, SourceLocation loc) const try {
  TD_CHECK(cell_, Value, "assign_ to an empty Param or Buffer");
  NoGradGuard no_grad;
  Tensor old = cell_->read();
  Tensor x;
  if (v.is_scalar()) {
    FillAttrs a{old.shape(), v.scalar(), old.dtype()};
    x = call(op::fill, &a, loc);
  } else {
    x = v.tensor();
  }
  TD_CHECK(x.defined(), Value, "assign_ got an undefined tensor");
  if (x.dtype() != old.dtype()) {
    CastAttrs a{old.dtype()};
    x = call(op::cast, &a, loc, std::move(x));
  }
  old = Tensor();
  cell_->assign(x, loc);
} catch (const Error& e) {
  if (!e.op().empty() && e.loc().file) throw;
  throw with_place(e, nullptr, loc);
}

}  // namespace detail

Param::Param(Tensor value, bool requires_grad)
    : CellHandle(make_ref<Cell>(std::move(value), requires_grad)) {}
bool Param::requires_grad() const {
  if (!cell_) return false;
  if (Trace* t = cell_trace()) t->use_of(*cell_);  // the answer holds only for this trace
  return cell_->requires_grad();
}
void Param::requires_grad_(bool on) const { cell_->set_requires_grad(on); }
Tensor Param::grad() const { return cell_ ? cell_->grad() : Tensor(); }
void Param::set_grad(Tensor g) const { cell_->set_grad(std::move(g)); }
void Param::zero_grad() const { cell_->zero_grad(); }

Buffer::Buffer(Tensor value) : CellHandle(make_ref<Cell>(std::move(value), false)) {}

void Buffer::write_(int64_t dim, const Operand& start, const Tensor& value,
                    SourceLocation loc) const {
  static const OpDef* row = find_op("dynamic_update");
  TD_ASSERT(row != nullptr);
  ShapeAttrs a{{dim}};
  Cell* cells[] = {cell_.get()};
  Tensor position;
  if (start.is_scalar()) {
    const DeviceGuard beside_it(cell_->spec().device);
    FillAttrs f{Shape(), start.scalar().to_int(), DType::i64};
    position = call(op::fill, &f, loc);
  } else {
    position = start.tensor();
  }
  Operand others[] = {Operand(position, loc), Operand(value, loc)};
  update_(*row, &a, cells, others, loc);
}

AssignIf::AssignIf(Tensor pred) {
  TD_CHECK(pred.defined() && pred.dtype() == DType::b8 && pred.shape().numel() == Dim(1), Shape,
           "AssignIf expects a bool tensor of one element");
  context().assign_if.push_back(std::move(pred));
}
AssignIf::~AssignIf() { context().assign_if.pop_back(); }

}  // namespace tandem
