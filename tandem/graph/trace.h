// SPDX-License-Identifier: Apache-2.0
// trace() runs a function once on symbolic tensors and returns its Graph; run() walks a Graph's
// nodes through apply() again and is the oracle for every other way to execute one. A trace is a
// transaction: on an exception cells, gradients and the generator are unchanged.
#pragma once

#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

#include "tandem/base/function_ref.h"
#include "tandem/graph/cell.h"
#include "tandem/graph/context.h"

namespace tandem {
namespace detail {
struct SourceLink;
}

class TD_API Graph : public RefCounted {
 public:
  struct Capture {
    Tensor outer, inner;  ///< a captured value and its placeholder
  };
  struct CellUse {
    Ref<Cell> cell;
    Tensor entry;  ///< placeholder of the value at entry; undefined if only written
    Tensor exit;   ///< value to write back; undefined if only read
    /// While it is traced: `exit` is what rows have brought, for readers; it is not written back.
    bool brought = false;
  };
  /// From node `at` on, what reads `value` has it made again, so that nobody holds it in between.
  struct Drop {
    Tensor value;
    size_t at;
  };
  struct GradUse {
    Ref<GradSlot> slot;
    Tensor entry;           ///< placeholder of the gradient at entry, if there was one
    Tensor exit;            ///< gradient to store
    bool stored = false;    ///< exit is to be written (undefined empties the slot)
    bool read = false;      ///< the trace has read the gradient at entry
    bool consumed = false;  ///< an optimizer consumed it; nothing was stored since
  };
  /// An external flag (a module's training mode) that the trace has read.
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
  std::vector<Drop> drops;
  std::vector<std::shared_ptr<detail::SourceLink>> sources;  ///< of values that rows bring
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

/// Record `f` on placeholders of the given Specs. `requires_grad[i]` marks inputs that require
/// gradients. With `brings` false all cells are placeholders, those whose values rows could bring
/// too. Throws what f throws, and Unsupported if it reads a value.
TD_API Ref<Graph> trace(FunctionRef<std::vector<Tensor>(std::span<const Tensor>)> f,
                        std::span<const Spec> inputs, Captures captures,
                        std::span<const bool> requires_grad = {}, bool brings = true);

/// Execute by walking the nodes through apply(). Writes cells, gradients and the generator offset
/// back as the traced program would. `captures` replaces the captured values.
TD_API std::vector<Tensor> run(const Graph& g, std::span<const Tensor> inputs,
                               const std::vector<Tensor>* captures = nullptr);

/// Values for symbolic dimensions.
using Symbols = std::vector<std::pair<Dim, int64_t>>;
/// Throws Shape unless `inputs` match what `g` was traced for.
TD_API void check_inputs(const Graph& g, std::span<const Tensor> inputs);
/// Values of the symbols in the inputs' shapes; throws Shape where an equality that the trace left
/// open does not hold.
TD_API Symbols solve_symbols(const Graph& g, std::span<const Tensor> inputs);
/// `attrs` with symbols replaced by numbers.
TD_API AttrsHolder put_numbers(const AttrsHolder& attrs, const Symbols& symbols);

/// Whether this thread is inside a trace.
inline bool is_tracing() { return context().slow & kTracing; }
/// Whether it is one in which values cannot be read.
TD_API bool values_hidden();

// Rows for values that a run supplies (defined in ops/control.cpp).
namespace op {
extern TD_API const OpDef input, capture, cell_read, grad_read, identity;
}

/// The innermost enclosing trace in which cells are variables; nullptr if there is none.
TD_API Trace* cell_trace();

struct Call;
/// Receives the ops of a trace whose values may be read: reading one computes it (Control::eager).
class TD_API LazyRecorder {
 public:
  virtual ~LazyRecorder() = default;
  virtual void record(Call& k, Tensor* out) = 0;
  /// Another tensor with the value of t.
  virtual Tensor alias(const Tensor& t) = 0;
  virtual bool owns(const detail::TensorImpl& t) const = 0;
  /// Compute t in place; false if it does not belong to this recorder.
  virtual bool materialize(detail::TensorImpl& t, SourceLocation loc) = 0;
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
  /// For a running trace: cells and gradients are shadowed, ops go there, not into the graph.
  LazyRecorder* lazy = nullptr;
  /// What sources of values have recorded here, by keys of their own.
  std::unordered_map<const void*, Tensor> kept = {};
  bool brings = true;  ///< cells whose values rows can bring have them brought

  /// The value as this trace sees it: its own, or a placeholder for a captured one.
  Tensor bring_in(const Tensor& t, SourceLocation loc);
  Tensor read_cell(const Cell& cell);
  void assign_cell(Cell& cell, const Tensor& v, SourceLocation loc);
  /// What rows have brought for the cell is not what later reads give: they have it brought again.
  void forget_brought(const Cell& cell);
  Tensor read_grad(GradSlot& slot);
  void store_grad(GradSlot& slot, const Tensor& g);
  /// An optimizer has consumed the gradient: a compiled step need not store it.
  void consume_grad(GradSlot& slot);
  /// The trace depends on `*flag`, which lives as long as `owner`.
  void guard(RefCounted& owner, const bool& flag);
  /// A node without inputs for a value supplied at run time.
  Tensor placeholder(const OpDef& op, const Spec& spec, bool requires_grad);
  Graph::CellUse& use_of(Cell& cell);
  Graph::GradUse& use_of(GradSlot& slot);

 private:
  Tensor bring_by_rows(const Cell& cell);
  void set_exit(Cell& cell, const Tensor& v, bool brought, SourceLocation loc);
};

}  // namespace tandem
