// SPDX-License-Identifier: Apache-2.0
// Shared by the functions of control flow and their rows: bodies traced as graphs, and results of
// one dtype concatenated.
#pragma once

#include "tandem/grad/control_flow.h"
#include "tandem/graph/rng.h"
#include "tandem/graph/trace.h"

namespace tandem::control {

inline const Graph& graph_of(const Ref<RefCounted>& r) {
  return *static_cast<const Graph*>(r.get());
}
inline std::span<const Tensor> part(std::span<const Tensor> all, size_t from, size_t n) {
  return all.subspan(from, n);
}

/// A function as a graph without captures: captured values become its last inputs.
struct Body {
  Ref<Graph> graph;
  Tensors captured;
};
Body trace_body(TensorFn f, std::span<const Spec> specs);
/// Throws Shape unless the outputs have the carry's specs.
void check_carry(const char* op, std::span<const Spec> carry, std::span<const Tensor> out);

/// Where the results of a row lie in its outputs.
struct Layout {
  struct Piece {
    Spec spec;
    int group;
    Dim start;
  };
  std::vector<Piece> pieces;
  std::vector<Spec> groups;  ///< flat
};
Layout layout_of(std::span<const Spec> results);
/// Specs of the results of a call with inputs of these shapes.
std::vector<Spec> results_of(const OpDef& op, const ControlAttrs& a, std::span<const Shape> in);
/// Result k of the groups; undefined where the group is.
Tensor unpack(const Layout& l, size_t k, std::span<const Tensor> groups, SourceLocation loc);
/// Run the row and unpack its results.
Tensors call_row(const OpDef& op, const ControlAttrs& a, std::span<const Tensor> in,
                 SourceLocation loc, const RngKey* replay = nullptr);
/// Whether the node, or a body inside it, draws random numbers.
bool draws(const Node& n);
bool draws(const Graph& g);

// The three functions. Each advances the generator by one, and its bodies draw from generators
// derived from that key and the step number; with `replay`, the key of the first run, they repeat
// its draws and the generator does not advance.
Tensors scan(TensorFn f, std::span<const Tensor> carry, std::span<const Tensor> xs,
             ScanOptions options, SourceLocation loc, const RngKey* replay);
Tensors while_loop(TensorFn cond_fn, TensorFn body_fn, std::span<const Tensor> carry,
                   WhileOptions options, SourceLocation loc, const RngKey* replay);
Tensors cond(const Tensor& pred, TensorFn true_fn, TensorFn false_fn,
             std::span<const Tensor> operands, SourceLocation loc, const RngKey* replay);
/// Runs f as step `step` of the op with this key.
Tensors run_inside(RngKey key, int64_t step, TensorFn f, std::span<const Tensor> x);

void scan_vjp(VjpCall& c);
void while_vjp(VjpCall& c);
void cond_vjp(VjpCall& c);
void scan_batch(BatchCall& c);
void while_batch(BatchCall& c);
void cond_batch(BatchCall& c);

/// while_loop as a scan of max_steps steps, each of which may be a no-op.
Tensors bounded_loop(TensorFn cond_fn, TensorFn body_fn, std::span<const Tensor> carry,
                     int64_t max_steps, SourceLocation loc, const RngKey* replay);

}  // namespace tandem::control
