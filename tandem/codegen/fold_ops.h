// SPDX-License-Identifier: Apache-2.0
// Folds of emitted row functions, pasted after scalar_ops.h: 64 lanes, four elements of a lane
// combined first where there are 256, lanes combined pairwise. The order is that of fold_lanes and
// fold_tree in tile_kernels.inc, so bits are equal. C99 that is also C++.
#ifndef TDM_FOLD_OPS_H
#define TDM_FOLD_OPS_H

#include "tandem/codegen/scalar_ops.h"

#if defined(__clang__)
#define TDM_LOOP _Pragma("clang loop vectorize(assume_safety)")
#else
#define TDM_LOOP _Pragma("GCC ivdep")
#endif
#define TDM_ENTRY __attribute__((visibility("default")))

// lanes takes up to 256 elements in; only the last piece of a row is shorter.
#define TDM_FOLD(op, f, T)                                                                        \
  TDM_FN void tdo_start_##op##_##f(T* l, T first) {                                               \
    int k;                                                                                        \
    TDM_LOOP for (k = 0; k < 64; ++k) l[k] = first;                                               \
  }                                                                                               \
  TDM_FN void tdo_lanes_##op##_##f(T* l, const T* x, tdm_i64 n) {                                 \
    tdm_i64 i, k;                                                                                 \
    if (n == 256) {                                                                               \
      TDM_LOOP for (k = 0; k < 64; ++k) {                                                         \
        const T low = tdo_##op##_##f(x[k], x[k + 64]);                                            \
        l[k] = tdo_##op##_##f(l[k], tdo_##op##_##f(low, tdo_##op##_##f(x[k + 128], x[k + 192]))); \
      }                                                                                           \
      return;                                                                                     \
    }                                                                                             \
    for (i = 0; i + 64 <= n; i += 64) {                                                           \
      TDM_LOOP for (k = 0; k < 64; ++k) l[k] = tdo_##op##_##f(l[k], x[i + k]);                    \
    }                                                                                             \
    n -= i;                                                                                       \
    TDM_LOOP for (k = 0; k < n; ++k) l[k] = tdo_##op##_##f(l[k], x[i + k]);                       \
  }                                                                                               \
  TDM_FN T tdo_tree_##op##_##f(T* l, tdm_i64 n) {                                                 \
    tdm_i64 step, k;                                                                              \
    if (n >= 64) {                                                                                \
      TDM_LOOP for (k = 0; k < 32; ++k) l[k] = tdo_##op##_##f(l[k], l[k + 32]);                   \
      TDM_LOOP for (k = 0; k < 16; ++k) l[k] = tdo_##op##_##f(l[k], l[k + 16]);                   \
      TDM_LOOP for (k = 0; k < 8; ++k) l[k] = tdo_##op##_##f(l[k], l[k + 8]);                     \
      TDM_LOOP for (k = 0; k < 4; ++k) l[k] = tdo_##op##_##f(l[k], l[k + 4]);                     \
      return tdo_##op##_##f(tdo_##op##_##f(l[0], l[2]), tdo_##op##_##f(l[1], l[3]));              \
    }                                                                                             \
    for (step = 32; step > 0; step /= 2) {                                                        \
      const tdm_i64 pairs = n - step < step ? n - step : step;                                    \
      TDM_LOOP for (k = 0; k < pairs; ++k) l[k] = tdo_##op##_##f(l[k], l[k + step]);              \
      n = n < step ? n : step;                                                                    \
    }                                                                                             \
    return l[0];                                                                                  \
  }
TDM_FOLD(add, f, float)
TDM_FOLD(add, d, double)
TDM_FOLD(mul, f, float)
TDM_FOLD(mul, d, double)
TDM_FOLD(max, f, float)
TDM_FOLD(max, d, double)
TDM_FOLD(min, f, float)
TDM_FOLD(min, d, double)

#endif
