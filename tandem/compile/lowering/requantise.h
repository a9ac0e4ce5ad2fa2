// SPDX-License-Identifier: Apache-2.0
// Which loops are of the form of graph/requantise.h, and what their operands are.
#pragma once

#include <optional>

#include "tandem/graph/expression/scalar_program.h"
#include "tandem/graph/kernel.h"
#include "tandem/graph/requantise.h"

namespace tandem::compiler {

struct RequantiseForm {
  /// An input of the program, or a constant.
  struct Number {
    int input = -1;
    double constant = 0;
  };
  struct Rounding {
    std::optional<Number> least, most;
    Number by, zero, away, step;
  };
  int sums = -1;  ///< inputs of the program
  Number scale;
  int bias = -1, residual = -1;
  Rounding rounding[2];
  bool hardswish = false, is_signed = false;
  int codes = -1, values = -1;  ///< outputs

  static std::optional<RequantiseForm> of(const ScalarProgram& p);
  /// With these arrays of the program, whose sums are a matrix of `rows` rows; nothing where they
  /// do not fit.
  std::optional<Requantise> with(const Array* arrays, int n_in, int64_t rows,
                                 int64_t columns) const;
};

}  // namespace tandem::compiler
