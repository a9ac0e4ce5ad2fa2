// SPDX-License-Identifier: Apache-2.0
// The text of a row program (codegen/row_program.h): lines of a matrix, each by a power of two of
// threads. A line that fits is read once and stays in registers, with what stages keep of it; a
// longer one is read by each stage, which computes what earlier ones would have kept.
#pragma once

#include <string>
#include <vector>

#include "tandem/backend/gpu/rows/call_internal.h"
#include "tandem/backend/gpu/rows/values_internal.h"
#include "tandem/codegen/row_program.h"

namespace tandem::gpu {

/// How the lines of a call are dealt to threads: by its shape, strides and dtypes, and `aligned` by
/// its addresses.
struct RowCut {
  int threads = 128;    ///< of a block
  int lanes = 1;        ///< threads of a line
  int group = 1;        ///< neighbouring elements that a thread takes at once
  int groups = 0;       ///< of a thread, all of which it keeps; 0: it keeps none
  bool aligned = true;  ///< a group is one load
  bool across = false;  ///< neighbouring threads have neighbouring lines
  bool warps = false;   ///< folds exchange values within warps
  int64_t blocks = 0;   ///< of the launch

  int lines() const { return threads / lanes; }  ///< of a block at once
  uint64_t key() const;
};
RowCut make_row_cut(const codegen::RowCall& c, const codegen::RowWalk& w, bool warps);

/// A number that a stage reads, as an argument.
struct StageValue {
  size_t stage = 0;
  ValueParameter value;
};

class RowText {
 public:
  RowText(const codegen::RowKernel& kernel, const Walk& rows, const RowCut& cut)
      : plans_(kernel.plans), p_(kernel.program), rows_(rows), cut_(cut) {}

  /// Parameters: outputs, inputs that are arrays, values, the walk, row_size, along<array> of each
  /// matrix. An output of class columns is a part of each block: [blocks, row_size].
  KernelSource source();
  std::vector<StageValue> values;  ///< after source()

 private:
  struct Names;

  int n_ins() const { return static_cast<int>(p_.ins.size()); }
  bool keeps() const { return cut_.groups > 0; }
  std::string compute() const { return td_type(p_.compute); }
  bool sums_columns() const;

  std::string input(Names& names, int slot, const char* type);
  std::string kept_element(Names& names, int k);
  std::string value(size_t stage, int slot, Reg type);

  std::string moved(bool load, const std::string& line, const std::string& pointer,
                    int array) const;
  std::string of_groups(const std::string& each_group) const;
  std::string heads() const;
  std::string loads() const;
  std::string stage(size_t s);
  std::string sinks(size_t s, Names& names, std::string& stores, std::string& lines,
                    std::vector<int>& folds);
  std::string combined(const std::vector<int>& folds, size_t s) const;
  std::string column_parts() const;
  void declare(KernelSource& k) const;

  const std::vector<codegen::TilePlan>& plans_;
  const codegen::RowProgram& p_;
  const Walk& rows_;
  const RowCut& cut_;
};

/// y[j] = the sum of part[b, j] over b < blocks, for j < y.numel; parts are of type `sum`.
void add_parts(const KernelCall& c, Address part, DType sum, int64_t blocks, const Array& y);

}  // namespace tandem::gpu
