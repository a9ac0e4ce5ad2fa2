// SPDX-License-Identifier: Apache-2.0
// The instruction sets that kernels may use.
#pragma once

#include <string_view>

#include "tandem/base/export.h"

namespace tandem {

/// Instruction sets of the processor, less those that TANDEM_ISA leaves out.
struct CpuFeatures {
  bool ssse3 = false;
  bool avx2 = false;      ///< with FMA
  bool avx512 = false;    ///< F, DQ, BW, VL
  bool bf16 = false;      ///< AVX-512 BF16
  bool vnni = false;      ///< AVX-512 VNNI
  bool f16 = false;       ///< AVX-512 FP16
  bool amx = false;       ///< tiles with bf16
  bool amx_int8 = false;  ///< tiles with bytes
};

/// What TANDEM_ISA allows: `base` is what every processor of the architecture has, `avx512` is the
/// four sets of CpuFeatures::avx512 alone, `vnni` has VNNI and BF16 besides (Zen 4, Cooper Lake),
/// `native`, the default, is everything.
enum class CpuLimit { base, avx2, avx512, vnni, native };

/// The limit that `name` stands for, the empty text for `native`. Throws Error for other names.
TD_API CpuLimit cpu_limit_of(std::string_view name);
/// The limit of this process: TANDEM_ISA when it was first asked for. Throws Error as above.
TD_API CpuLimit cpu_limit();
/// What kernels of this process may use.
TD_API const CpuFeatures& cpu_features();

namespace detail {
/// The processor's features within `limit`.
TD_API CpuFeatures find_cpu_features(CpuLimit limit);
}  // namespace detail

}  // namespace tandem
