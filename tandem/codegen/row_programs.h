// SPDX-License-Identifier: Apache-2.0
// The row programs of softmax, log_softmax, layer_norm, rms_norm and their backward passes. The cpu
// backend calls them from the kernels of those rows. 16-bit elements compute in f32.
#pragma once

#include "tandem/codegen/row_program.h"

namespace tandem::codegen {

/// y = softmax or log_softmax of x along `dim`; any strides.
void run_softmax(const Array& x, const Array& y, int dim, bool log);
/// gx from gy and the result y of (log_)softmax.
void run_softmax_backward(const Array& gy, const Array& y, const Array& gx, int dim, bool log);

// Each run_ function below makes a RowCall, which other devices run themselves, and runs it.
void make_softmax(const Array& x, const Array& y, int dim, bool log, RowCall& call);
void make_softmax_backward(const Array& gy, const Array& y, const Array& gx, int dim, bool log,
                           RowCall& call);

/// What layer_norm and rms_norm read and write; arrays that are not there have no shape. `dims` is
/// how many dimensions at the end the statistics run over.
struct NormArrays {
  const Array *x = nullptr, *gy = nullptr, *mean = nullptr, *rstd = nullptr, *w = nullptr,
              *b = nullptr;
  const Array *y = nullptr, *gx = nullptr, *gw = nullptr, *gb = nullptr;
  int dims = 1;
  double eps = 0;
  bool centred = true;  ///< layer_norm; false: rms_norm
};
/// The operands of a call of layer_norm (centred) or rms_norm, and of their backward rows.
NormArrays norm_arrays(const KernelCall& c, bool centred, int dims, double eps);
NormArrays norm_backward_arrays(const KernelCall& c, bool centred, int dims);
/// Do the last dimensions of every matrix merge, and are w, b, gw, gb dense?
bool norm_supported(const NormArrays& a);
/// x, w, b -> y, mean, rstd (the last two may be absent).
void run_norm(const NormArrays& a);
void make_norm(const NormArrays& a, RowCall& call);
/// gy, x, mean, rstd, w -> gx, gw, gb (the last two may be absent or empty).
void run_norm_backward(const NormArrays& a);
void make_norm_backward(const NormArrays& a, RowCall& call);

}  // namespace tandem::codegen
