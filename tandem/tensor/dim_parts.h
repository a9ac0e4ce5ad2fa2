// SPDX-License-Identifier: Apache-2.0
// The parts of a symbolic size, for exporters that translate it into another language.
#pragma once

#include <string>
#include <vector>

#include "tandem/tensor/dim.h"

namespace tandem {

/// A symbol, or a quotient ('/', rounded down), remainder ('%'), minimum ('<') or maximum ('>') of
/// sizes.
struct DimAtom {
  char kind = 's';  ///< 's': the symbol `name`
  std::string name;
  std::vector<Dim> args;
};
/// A product: factor times all atoms.
struct DimTerm {
  int64_t factor = 1;
  std::vector<DimAtom> atoms;
};
/// The size as a sum of products, in normal form; a number is one term without atoms.
TD_API std::vector<DimTerm> terms_of(Dim d);

}  // namespace tandem
