// SPDX-License-Identifier: Apache-2.0
// The sets of integer tiles that this processor can run.
#pragma once

#include <vector>

#include "tandem/backend/cpu/gemm/integer_internal.h"
#include "tandem/base/processor.h"

namespace tandem::cpu_test {

inline std::vector<const detail::IntegerLoops*> all_integer_loops() {
  std::vector<const detail::IntegerLoops*> all{&detail::kIntegerBase};
  if (cpu_features().avx2) all.push_back(&detail::kIntegerAvx2);
  if (cpu_features().avx512) all.push_back(&detail::kIntegerAvx512);
  if (cpu_features().vnni) all.push_back(&detail::kIntegerVnni);
  if (const auto* amx = detail::integer_amx_loops()) all.push_back(amx);
  return all;
}

}  // namespace tandem::cpu_test
