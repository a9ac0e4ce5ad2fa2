// SPDX-License-Identifier: Apache-2.0
// trace() runs a function once on symbolic tensors and gives its Graph; run() walks the nodes of a
// Graph through apply() again and is the oracle of every other way to execute one. A trace is a
// transaction: on an exception cells, gradients and the generator are as before.
#pragma once

#include <string>
#include <unordered_map>
#include <vector>

#include "tandem/base/function_ref.h"
#include "tandem/graph/cell.h"
#include "tandem/graph/context.h"

namespace tandem {

class TD_API Graph : public RefCounted {
 public:
  struct Capture {
    Tensor outer, inner;  ///< a value from outside and its placeholder
  };
  struct CellUse {
    Ref<Cell> cell;
    Tensor entry;  ///< placeholder of the value at entry; undefined if only written
    Tensor exit;   ///< value to write back; undefined if only read
  };
  struct GradUse {
    Ref<GradSlot> slot;
    Tensor entry;           ///< placeholder of the gradient at entry, if there was one
    Tensor exit;            ///< gradient to store
    bool stored = false;    ///< exit is to be written (undefined empties the slot)
    bool read = false;      ///< the trace asked for the gradient at entry
    bool consumed = false;  ///< an optimizer used it up; nothing was stored since
  };
  /// A flag outside (a module's training mode) whose value the trace has read.
  struct Guard {
    Ref<RefCounted> owner;
    const bool* flag;
    bool value;
  };

  std::vector<Ref<Node>> nodes;  ///< program order; placeholders first use order
  std::vector<Tensor> inputs;    ///< placeholders of the arguments
  std::vector<Tensor> outputs;
  std::vector<Capture> captures;
  std::vector<CellUse> cells;
  std::vector<GradUse> grads;
  std::vector<Guard> guards;
  DimChecks checks;
  uint32_t rng_draws = 0;

  ~Graph() override;
  /// One line per node: `%3 = add(%1, %2) : f32[8]`.
  std::string to_string() const;
};
TD_API std::string to_string(const Graph& g);

enum class Captures : uint8_t {
  as_inputs,  ///< vmap, calls: outer values and cells become inputs; cells may not be assigned
  refuse,     ///< a whole step: cells are variables; an outer plain tensor is an error
};

/// Record `f` on placeholders of the given Specs. `requires_grad[i]` marks inputs that ask for
/// gradients. Throws what f throws, and Unsupported for a value read inside.
TD_API Ref<Graph> trace(FunctionRef<std::vector<Tensor>(std::span<const Tensor>)> f,
                        std::span<const Spec> inputs, Captures captures,
                        std::span<const bool> requires_grad = {});

/// Execute by walking the nodes through apply(). Writes cells, gradients and the generator offset
/// back as the traced program would. `captures` replaces the captured outer values.
TD_API std::vector<Tensor> run(const Graph& g, std::span<const Tensor> inputs,
                               const std::vector<Tensor>* captures = nullptr);

/// Numbers for symbols of dimensions.
using Symbols = std::vector<std::pair<Dim, int64_t>>;
/// Throws Shape unless `inputs` are what `g` was traced for.
TD_API void check_inputs(const Graph& g, std::span<const Tensor> inputs);
/// Values of the symbols in the inputs' shapes; throws Shape where an equality that the trace left
/// open does not hold.
TD_API Symbols solve_symbols(const Graph& g, std::span<const Tensor> inputs);
/// `attrs` with numbers for symbols.
TD_API AttrsHolder put_numbers(const AttrsHolder& attrs, const Symbols& symbols);

/// Is this thread inside a trace?
inline bool is_tracing() { return context().slow & kTracing; }
/// Is it one in which values cannot be read?
TD_API bool values_hidden();

// Rows of values that a run puts in (defined in ops/control.cpp).
namespace op {
extern TD_API const OpDef input, capture, cell_read, grad_read, identity;
}

/// The trace, from the innermost out, in which cells are variables; nullptr if there is none.
TD_API Trace* cell_trace();

struct Call;
/// Takes the ops of a trace whose values may be read: reading one computes it (Control::eager).
class TD_API LazyRecorder {
 public:
  virtual ~LazyRecorder() = default;
  virtual void record(Call& k, Tensor* out) = 0;
  /// Another tensor with the value of t.
  virtual Tensor alias(const Tensor& t) = 0;
  virtual bool owns(const detail::TensorImpl& t) const = 0;
  /// Compute t in place; false if it is none of this recorder's.
  virtual bool materialize(detail::TensorImpl& t, Where where) = 0;
};

/// The state of a running trace.
struct TD_API Trace {
  Ref<Graph> graph;
  Captures policy;
  Trace* parent;
  uint32_t rng_entry = 0;
  std::unordered_map<const detail::TensorImpl*, size_t> captured;  ///< outer impl -> capture
  std::unordered_map<const Cell*, size_t> cell_index;
  std::unordered_map<const GradSlot*, size_t> grad_index;
  /// Of a trace that runs: cells and gradients are shadowed, ops go there and not into the graph.
  LazyRecorder* lazy = nullptr;

  /// The value as this trace sees it: its own, or a placeholder for an outer one.
  Tensor bring_in(const Tensor& t, Where where);
  Tensor read_cell(const Cell& cell);
  void assign_cell(Cell& cell, const Tensor& v, Where where);
  Tensor read_grad(GradSlot& slot);
  void store_grad(GradSlot& slot, const Tensor& g);
  /// An optimizer has used the gradient: a compiled step need not store it.
  void consume_grad(GradSlot& slot);
  /// The trace depends on `*flag`, which lives as long as `owner`.
  void guard(RefCounted& owner, const bool& flag);
  /// A node without inputs that stands for a value given at run time.
  Tensor placeholder(const OpDef& op, const Spec& spec, bool requires_grad);
  Graph::CellUse& use_of(Cell& cell);
  Graph::GradUse& use_of(GradSlot& slot);
};

}  // namespace tandem
