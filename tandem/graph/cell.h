// SPDX-License-Identifier: Apache-2.0
// Cells: the only mutable objects. Reading a cell yields a value that never changes afterwards;
// writing it never changes a value that somebody holds. In a trace a cell is an SSA variable that
// is written back when the step ends. Param and Buffer are handles: a copy shares the cell.
#pragma once

#include <mutex>
#include <string>

#include "tandem/graph/cells/live_cells.h"
#include "tandem/graph/node.h"

namespace tandem {

namespace detail {
struct AwayCells;
struct ManyUpdates;
}  // namespace detail

class TD_API Cell : public RefCounted {
 public:
  Cell(Tensor value, bool requires_grad);
  ~Cell() override;

  /// The current value (a redirect of functional_call and a trace take precedence).
  Tensor read() const;
  /// Store `v` detached: in place if nobody holds the old value, else as a new value. Shape and
  /// dtype must match (the caller casts and broadcasts); throws Shape or DType.
  void assign(const Tensor& v, SourceLocation loc);
  /// Its value's shape and dtype, traces and redirects apart.
  Spec spec() const { return spec_of(value_); }
  /// Store a value of any shape and dtype (load, to(dtype)).
  void replace(Tensor v);
  /// Counts writes: part of the keys of caches derived from the value.
  uint64_t generation() const { return generation_; }
  bool requires_grad() const { return requires_grad_; }
  void set_requires_grad(bool on);
  const Ref<GradSlot>& slot() const { return slot_; }
  Tensor grad() const;
  void set_grad(Tensor g);
  void zero_grad() { set_grad(Tensor()); }

  std::string name;  ///< full path, set when a root module is walked

 private:
  friend struct Trace;
  friend class Graph;
  friend class Executable;            // compile/run/executable.cpp
  friend struct detail::AwayCells;    // graph/cells/absent.cpp
  friend struct detail::ManyUpdates;  // graph/cells/update.cpp
  void adopt(Tensor v);
  Tensor present() const;
  friend void update_(const OpDef&, const void*, std::span<Cell* const>, std::span<Operand>,
                      SourceLocation);

  Tensor value_;
  Ref<Node> leaf_;
  Ref<GradSlot> slot_;
  bool requires_grad_;
  uint64_t generation_ = 0;
  const detail::Moment made_ = detail::next_moment();
  mutable std::mutex lock_;
};

/// Run `row` and store its outputs in `cells`. Unshared cells are updated in place. The row's
/// inputs are the first cell, others[0], the other cells, the rest of `others` (an update's
/// parameter, gradient, moments, numbers). Nothing changes if its checks throw.
TD_API void update_(const OpDef& row, const void* attrs, std::span<Cell* const> cells,
                    std::span<Operand> others, SourceLocation loc);

namespace detail {
class TD_API CellHandle {
 public:
  bool defined() const { return static_cast<bool>(cell_); }
  Tensor value() const;
  operator Tensor() const { return value(); }
  const Shape& shape() const;
  Dim shape(int64_t d) const { return value().shape(d); }
  int64_t size(int64_t d) const { return value().size(d); }
  int dim() const { return value().dim(); }
  int64_t numel() const { return value().numel(); }
  DType dtype() const;
  Device device() const { return value().device(); }
  const std::string& name() const;
  const Ref<Cell>& cell() const { return cell_; }
  /// Replace the value; holders of the old one keep it.
  void assign_(const Operand& v, SourceLocation loc = SourceLocation::here()) const;
  // ---- the value's methods (ops/methods.cpp)
#include "tandem/tensor/methods.def"
  friend bool operator==(const CellHandle& a, const CellHandle& b) { return a.cell_ == b.cell_; }

 protected:
  CellHandle() = default;
  explicit CellHandle(Ref<Cell> cell) : cell_(std::move(cell)) {}
  Ref<Cell> cell_;
};
}  // namespace detail

/// A trainable value of a module: a handle to a cell with a gradient slot.
class TD_API Param : public detail::CellHandle {
 public:
  Param() = default;
  /// Floating dtype unless requires_grad is false.
  explicit Param(Tensor value, bool requires_grad = true);
  explicit Param(Ref<Cell> cell) : CellHandle(std::move(cell)) {}
  bool requires_grad() const;
  void requires_grad_(bool on) const;
  Tensor grad() const;
  void set_grad(Tensor g) const;
  void zero_grad() const;
};

/// A module's value that optimizers ignore (running statistics, caches).
class TD_API Buffer : public detail::CellHandle {
 public:
  Buffer() = default;
  explicit Buffer(Tensor value);
  explicit Buffer(Ref<Cell> cell) : CellHandle(std::move(cell)) {}
  /// Write `value` over rows [start, start + value.size(dim)) of dimension `dim`: in place unless
  /// somebody holds the current value.
  void write_(int64_t dim, const Operand& start, const Tensor& value,
              SourceLocation loc = SourceLocation::here()) const;
};

/// While it lives, assign_ on this thread stores where(pred, new, old) without reading pred on the
/// host: skip a step, update every k. `pred` is a bool tensor of one element.
class TD_API AssignIf {
 public:
  explicit AssignIf(Tensor pred);
  ~AssignIf();
  AssignIf(const AssignIf&) = delete;
  AssignIf& operator=(const AssignIf&) = delete;
};

}  // namespace tandem
