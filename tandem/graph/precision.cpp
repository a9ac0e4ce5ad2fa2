// SPDX-License-Identifier: Apache-2.0
#include "tandem/graph/precision.h"

#include <atomic>

namespace tandem {
namespace {
std::atomic<MatmulPrecision> float32_precision{MatmulPrecision::strict};
}

void set_float32_matmul_precision(MatmulPrecision precision) { float32_precision = precision; }
MatmulPrecision float32_matmul_precision() { return float32_precision; }

}  // namespace tandem
