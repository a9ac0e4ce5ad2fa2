// SPDX-License-Identifier: Apache-2.0
// Vector loops over one contiguous f32 row, for softmax, norms, losses, attention and LSTM gates.
// One text (row_loops.inc) is compiled per instruction set; sums use 64 lanes and a tree without
// fused multiply-adds, so all give the same bits.
#pragma once

#include <cstdint>

#include "tandem/base/half.h"

namespace tandem::detail {

/// The numbers of one step of Adam or AdamW; products of plain numbers have been rounded once.
struct AdamNumbers {
  float keep;                                      ///< factor on p: 1 - lr * weight_decay (AdamW)
  float weight_decay;                              ///< of p in the gradient (Adam)
  float gradient, beta2, square, root, eps, rate;  ///< 1-b1, b2, 1-b2, sqrt(bias2), eps, -lr/bias1
};

/// Lines that are not contiguous but lie beside each other: element k of line p is at k * step + p.
struct Columns {
  int64_t n, step;  ///< elements of a line
  int64_t count;    ///< lines, at most kMostColumns
};
inline constexpr int64_t kMostColumns = 64;

struct RowLoops {
  float (*max)(const float* x, int64_t n);  ///< NaN if one is present, -inf for no elements
  float (*sum)(const float* x, int64_t n);
  float (*dot)(const float* x, const float* y, int64_t n);
  /// y[i] = exp(x[i] - shift); returns their sum.
  float (*exp)(float* y, const float* x, float shift, int64_t n);
  void (*log_add)(float* y, const float* top, const double* sum, int64_t n);  ///< top + log(sum)
  void (*scale)(float* y, const float* x, float f, int64_t n);                ///< y[i] = x[i] * f
  void (*log_softmax)(float* y, const float* x, float shift, float log_sum, int64_t n);
  /// gx[i] = (gy[i] - s) * y[i], and gy[i] - exp(y[i]) * s.
  void (*softmax_grad)(float* gx, const float* gy, const float* y, float s, int64_t n);
  void (*log_softmax_grad)(float* gx, const float* gy, const float* y, float s, int64_t n);

  /// Sum of (x[i] - mean)^2.
  float (*square_sum)(const float* x, float mean, int64_t n);
  /// y[i] = (x[i] - mean) * rstd * w[i] + b[i]; w and b may be nullptr.
  void (*normalise)(float* y, const float* x, float mean, float rstd, const float* w,
                    const float* b, int64_t n);
  /// sums[0] = sum of gy w, sums[1] = sum of gy w (x - mean) rstd.
  void (*norm_sums)(const float* gy, const float* x, const float* w, float mean, float rstd,
                    int64_t n, float* sums);
  /// gx[i] = (gy[i] w[i] - a - (x[i] - mean) * rstd * b) * scale.
  void (*norm_grad)(float* gx, const float* gy, const float* x, const float* w, float mean,
                    float rstd, float a, float b, float scale, int64_t n);
  /// y[i] = (x[i] - mean) * scale + shift
  void (*affine)(float* y, const float* x, float mean, float scale, float shift, int64_t n);
  /// gw[i] += gy[i] (x[i] - mean) rstd and gb[i] += gy[i]; either may be nullptr.
  void (*norm_columns)(float* gw, float* gb, const float* gy, const float* x, float mean,
                       float rstd, int64_t n);

  // ---- per channel, channels along the row
  void (*add)(float* sum, const float* x, int64_t n);                  ///< sum[i] += x[i]
  void (*add_scaled)(float* sum, const float* x, float f, int64_t n);  ///< sum[i] += x[i] * f
  /// m2[i] += (x[i] - mean[i])^2
  void (*add_squares)(float* m2, const float* x, const float* mean, int64_t n);
  /// y[i] = (x[i] - mean[i]) * scale[i] + shift[i]
  void (*channel_affine)(float* y, const float* x, const float* mean, const float* scale,
                         const float* shift, int64_t n);
  /// sg[i] += g[i], sx[i] += g[i] * (x[i] - mean[i]) * rstd[i]
  void (*channel_sums)(float* sg, float* sx, const float* g, const float* x, const float* mean,
                       const float* rstd, int64_t n);
  /// gx[i] = (g[i] - a[i] - (x[i] - mean[i]) * rstd[i] * b[i]) * scale[i]
  void (*channel_grad)(float* gx, const float* g, const float* x, const float* mean,
                       const float* rstd, const float* a, const float* b, const float* scale,
                       int64_t n);

  /// Elements of an Adam step; p, m, v may be updated in place.
  void (*adam)(float* p, float* m, float* v, const float* p0, const float* g, const float* m0,
               const float* v0, const AdamNumbers& a, bool decoupled, int64_t n);

  // ---- losses, attention, recurrent layers
  /// gx[i] = k * (sum * exp(x[i] - lse) - even * (w ? w[i] : 1))
  void (*cross_entropy_grad)(float* gx, const float* x, float lse, float k, float sum, float even,
                             const float* w, int64_t n);
  /// y[i] = (t[i] - 1) log(1 - x[i]) - t[i] log(x[i]), with logarithms of at least -100; whether
  /// all x[i] are probabilities.
  bool (*cross_entropy_of_two)(float* y, const float* x, const float* t, int64_t n);
  /// dp[i] = exp(s[i] - lse) * (dp[i] - shift) * scale, and s[i] = exp(s[i] - lse).
  void (*attention_grad)(float* s, float* dp, float lse, float shift, float scale, int64_t n);
  /// One sample's units: gates i, f, u, o (before activation) are `h` apart. saved may be
  /// nullptr.
  void (*lstm_cell)(const float* gates, const float* c, float* hy, float* cy, float* saved,
                    int64_t h, int64_t n);
  /// gh, gc, gs may be nullptr. gates receive the gradients, gp that of c.
  void (*lstm_cell_grad)(const float* gh, const float* gh2, const float* gc, const float* gs,
                         const float* saved, const float* c, float* gates, float* gp, int64_t h,
                         int64_t n);
  /// One sample's units of a GRU: r and z (sums of both products) and n (of x alone) are `h` apart
  /// in gates, q = the product of n's gate with the state, b its bias (or nullptr). before and
  /// after are the states; saved (r, z, n, q + b), or nullptr.
  void (*gru_cell)(const float* gates, const float* q, const float* b, const float* before,
                   float* after, float* saved, int64_t h, int64_t n);
  void (*tanh)(float* y, const float* x, int64_t n);
  /// y[j] = sqrt(sum over i < n of (x[i] - c[i, j])^2) for the 64 columns of c.
  void (*distances)(float* y, const float* x, const float* c, int64_t n);

  // ---- columns, with the bits of rows
  void (*column_softmax)(const Columns& c, float* y, const float* x);
  void (*column_log_softmax)(const Columns& c, float* y, const float* x);
  void (*column_softmax_grad)(const Columns& c, float* gx, const float* gy, const float* y);
  void (*column_log_softmax_grad)(const Columns& c, float* gx, const float* gy, const float* y);
  /// log(sum of exp(x)) of each line = top + log(sum).
  void (*column_sum_exp)(const Columns& c, const float* x, float* top, double* sum);
  /// gx = k[p] * (sum[p] * exp(x - lse[p]) - even * (w ? w[element] : 1))
  void (*column_cross_entropy_grad)(const Columns& c, float* gx, const float* x, const float* lse,
                                    const float* k, const float* sum, float even, const float* w);

  // ---- rounding to 16 bits
  void (*to_bf16)(BFloat16* y, const float* x, int64_t n);
  void (*to_half)(Half* y, const float* x, int64_t n);
};
extern const RowLoops kRowsBase, kRowsAvx2, kRowsAvx512;
/// The best loops for this processor.
const RowLoops& row_loops();

}  // namespace tandem::detail
