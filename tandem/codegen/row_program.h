// SPDX-License-Identifier: Apache-2.0
// Row programs: tile programs with a row stage and a column stage. Rows of a matrix are one
// parallel space; within a row, stages follow each other: each maps the row's elements and folds
// them to one value that later stages read again (softmax, norms); sums down the columns go through
// partial blocks of rows whose number depends on the shape alone (weight and bias gradients).
#pragma once

#include <memory>
#include <vector>

#include "tandem/codegen/tile_loop.h"
#include "tandem/graph/expression/scalar_expr.h"

namespace tandem::codegen {

/// How an array lies over the space: element [r, j], [j], [r], or a number.
enum class RowKind : uint8_t { matrix, columns, row, number };

struct RowSink {
  enum Kind : uint8_t { fold, store, matrix, row, columns } kind = fold;
  Fold op = Fold::add;  ///< of fold
  int index = 0;        ///< which fold, stored row or output
};

struct RowStage {
  ScalarProgram program;  ///< inputs numbered as in RowBuilder; one output per sink
  std::vector<RowSink> sinks;
  bool once = false;  ///< writes one value per row: run on one element
};

struct RowProgram {
  static constexpr int kIns = 10, kCount = kIns, kFolds = 6, kStored = 4;
  static constexpr int kFirstFold = kIns + 1, kFirstStored = kFirstFold + kFolds;
  static constexpr int kSlots = kFirstStored + kStored;

  DType compute = DType::f32;
  std::vector<RowKind> ins;
  std::vector<DType> in_types;
  std::vector<RowKind> outs;
  std::vector<DType> out_types;
  int n_folds = 0, n_stored = 0;
  std::vector<RowStage> stages;
};

/// Writes a RowProgram with scalar expressions. Operands are declared in the order of the arrays.
class RowBuilder {
 public:
  explicit RowBuilder(DType compute);

  E input(RowKind kind, DType dtype);
  void output(RowKind kind, DType dtype);
  /// Length of a row.
  E count() { return graph_.input(RowProgram::kCount); }
  /// A fold of `x` over the row, to be used in later stages.
  E fold(Fold op, const E& x);
  /// x kept for the rest of the row, to be used in later stages.
  E store(const E& x);
  /// Output k = x (matrix), one value a row (row), or the sum of x down the column (columns).
  void write(int k, const E& x);
  /// What comes now reads the folds and stored rows of what came before.
  void next_stage();
  RowProgram finish();

 private:
  void sink(const RowSink& s, const E& x, DType dtype);
  void add_row_stage(int k, const E& x);
  ScalarProgram lower_stage(const std::vector<E>& values, const std::vector<DType>& types);

  RowProgram p_;
  ScalarGraph graph_;
  std::vector<RowSink> sinks_;
  std::vector<E> values_;
  std::vector<DType> types_;
};

/// A program with its plans, kept for ever.
struct RowKernel {
  RowProgram program;
  std::vector<TilePlan> plans;
  JitSlot jit;  ///< all stages as one function
};
/// The kernel of variant `key`, made by `make` at first use (again for another kernel table).
const RowKernel& row_kernel(uint64_t key, RowProgram (*make)(uint64_t key));

/// All that were made so far; for tests.
std::vector<const RowKernel*> row_kernels();

/// Dimensions [first, last) of the leader array are the row, the others number the rows.
struct RowSpace {
  const Array* leader;
  int first, last;
};
/// Can the arrays of such a call be walked (the row's dimensions merge to one in each)? Absent
/// arrays are not asked.
bool rows_merge(const RowSpace& space, const Array* const* arrays, int n);
/// One call of a kernel, its arrays in the program's order.
struct RowCall {
  const RowKernel* kernel = nullptr;
  RowSpace space{};
  const Array* in[RowProgram::kIns] = {};
  const Array* out[kMaxPlanOuts] = {};
  Array number;  ///< what `in` points to for a number that the call itself provides
};
inline RowKind kind_of(const RowProgram& p, int k) {  ///< of inputs, then outputs
  const auto at = static_cast<size_t>(k);
  return at < p.ins.size() ? p.ins[at] : p.outs[at - p.ins.size()];
}
/// Where the rows of a call lie.
struct RowWalk {
  TileLoop rows;  ///< arrays: matrices and row values, inputs then outputs
  int64_t n_rows = 1, length = 1;
  int64_t stride[kMaxLoopArrays] = {};  ///< within a row, of inputs then outputs
};
RowWalk make_row_walk(const RowProgram& p, const RowSpace& s, const Array* const* in,
                      const Array* const* out);
/// Run the kernel. `in` and `out` are in the program's order.
void run_row_kernel(const RowKernel& kernel, const RowSpace& space, const Array* const* in,
                    const Array* const* out);

}  // namespace tandem::codegen
