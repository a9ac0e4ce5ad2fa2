// SPDX-License-Identifier: Apache-2.0
// A specialisation of a compiled function: one trace, for arguments of certain dtypes and shapes in
// a certain mode, and the programs that were planned from it, one per set of sizes.
#pragma once

#include "tandem/compile/compile.h"
#include "tandem/compile/lowering/fit_memory.h"
#include "tandem/compile/run/second_look.h"
#include "tandem/compile/run/stack_watch.h"
#include "tandem/graph/precision.h"

namespace tandem::detail {

/// What besides arguments a specialisation was made for.
struct Mode {
  bool grad;
  uint32_t slow;
  DType autocast;
  int threads;
  Device device;  ///< of what is made from nothing
  MatmulPrecision precision;
  bool operator==(const Mode&) const = default;
};
Mode present_mode();

/// What the derivative of a function that gradients go through is with respect to: an argument, or
/// a cell of the graph.
struct GradTarget {
  bool is_cell;
  size_t index;
};

struct Specialisation {
  struct Argument {
    Spec spec;
    bool requires_grad;
  };
  struct Sized {
    std::vector<int64_t> sizes;
    Ref<Executable> executable;
    Ref<Executable> backward;  ///< of a function that gradients go through
    std::vector<compiler::Saved> saved;
    uint64_t used = 0;
  };

  Mode mode;
  std::string key;  ///< of the arguments that are not tensors
  std::vector<Argument> args;
  Ref<Graph> graph;
  std::string result_key;
  /// Gradients go through it, and rows could bring values of cells: it was traced without them.
  bool needs_cells = false;
  /// Of a function that gradients go through: its own outputs and those that have a gradient.
  size_t n_out = 0;
  std::vector<size_t> grad_outputs;
  std::vector<GradTarget> targets;
  std::vector<Sized> sized;
  std::vector<char> cell_requires_grad, grad_present, grad_matters;
  /// When the trace is compared with a new one.
  compiler::LookSchedule looks;
  compiler::StackWatch watch;

  bool differentiable() const { return !targets.empty(); }
  /// Was it made for arguments such as these?
  bool fits(const CallParts& args, const Mode& mode) const;
  /// Is everything else that the trace has seen, plain numbers apart, as it was? Throws when a
  /// gradient is read that a compiled step has consumed.
  bool guards_hold() const;
  /// What these arguments have as symbolic dimensions.
  std::vector<int64_t> sizes_of(const CallParts& args) const;
};

/// Runs the user's function on symbolic tensors. Throws what it throws, and Unsupported where it
/// does what a trace cannot follow.
std::unique_ptr<Specialisation> trace_specialisation(const CallParts& args, const Mode& mode,
                                                     const CompileOptions& options,
                                                     CompiledCore::Body body);

/// Passes and lowering for the sizes of these arguments.
Specialisation::Sized plan_sizes(const Specialisation& s, const CallParts& args,
                                 const CompileOptions& options);

}  // namespace tandem::detail
