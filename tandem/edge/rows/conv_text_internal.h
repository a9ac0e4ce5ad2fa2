// SPDX-License-Identifier: Apache-2.0
// The shape of a convolution and the loops over it, as text. What all forms of convolutions share.
#pragma once

#include <utility>

#include "tandem/edge/rows_internal.h"
#include "tandem/ops/conv/conv.h"

namespace tandem::edge {

// A convolution with three spatial dimensions, those in front of size 1.
struct ConvShape {
  int64_t n, groups, c_group, o_group;
  int64_t in[3], out[3], k[3], stride[3], pad[3], dilation[3];
  int64_t x_at[5], y_at[5], w_at[5];  ///< strides of x, y [n, c, d, h, w] and w [o, c, d, h, w]
  const char *type, *w_type;
  const char* sum_type;  ///< of products and their sums

  // Planes become rows of up to `most` pixels where a tap reads pixel by pixel.
  ConvShape(const ConvAttrs& a, const Array& x, const Array& w, const Array& y,
            int64_t most = INT32_MAX)
      : n(x.shape[0]),
        groups(a.groups),
        c_group(w.shape[1]),
        o_group(w.shape[0] / a.groups),
        type(c_type(x.dtype)),
        w_type(c_type(w.dtype)),
        sum_type(c_type(y.dtype)) {
    const int lead = 3 - a.stride.rank();
    for (int i = 0; i < 3; ++i) {
      const bool has = i >= lead;
      const int d = i - lead;
      in[i] = has ? x.shape[d + 2] : 1;
      out[i] = has ? y.shape[d + 2] : 1;
      k[i] = has ? w.shape[d + 2] : 1;
      stride[i] = has ? a.stride[d].value() : 1;
      pad[i] = has ? a.padding[d].value() : 0;
      dilation[i] = has ? a.dilation[d].value() : 1;
    }
    set_places(x, lead, x_at);
    set_places(w, lead, w_at);
    set_places(y, lead, y_at);
    merge_pixels(most);
  }

  bool inside(int i) const {
    return pad[i] == 0 && (out[i] - 1) * stride[i] + (k[i] - 1) * dilation[i] < in[i];
  }
  int64_t taps() const { return c_group * k[0] * k[1] * k[2]; }  ///< that one sum takes in
  int64_t positions() const { return out[0] * out[1] * out[2]; }
  // Does a weight of one channel of the result lie in one piece, and do planes of the result?
  bool dense_taps() const {
    return (k[2] == 1 || w_at[4] == 1) && (k[1] == 1 || w_at[3] == k[2]) &&
           (k[0] == 1 || w_at[2] == k[1] * k[2]) && (c_group == 1 || w_at[1] == k[0] * k[1] * k[2]);
  }
  bool dense_planes() const {
    return (out[1] == 1 || y_at[3] == out[2] * y_at[4]) &&
           (out[0] == 1 || y_at[2] == out[1] * out[2] * y_at[4]);
  }

 private:
  static void set_places(const Array& a, int lead, int64_t* at) {
    for (int i = 0; i < 5; ++i)
      at[i] = i < 2 ? a.strides[i] : i - 2 >= lead ? a.strides[i - lead] : 0;
  }
  // One tap, all pixels: the planes are one row.
  void merge_pixels(int64_t most) {
    for (int i = 1; i >= 0; --i) {
      bool plain = true;
      for (int j : {i, 2})
        plain = plain && k[j] == 1 && stride[j] == 1 && pad[j] == 0 && in[j] == out[j];
      if (!plain || x_at[2 + i] != x_at[4] * in[2] || y_at[2 + i] != y_at[4] * out[2] ||
          out[2] * out[i] > most)
        return;
      in[2] *= std::exchange(in[i], 1);
      out[2] *= std::exchange(out[i], 1);
    }
  }
};

constexpr const char* kOf[] = {"d", "h", "w"};

/// `i<d>` is the position in x of output position `o<d>` under tap `k<d>`; those outside are
/// skipped.
void position_in_x(const ConvShape& s, int i, Lines& t);
/// Loops over the taps of the first dimensions (d and h) with their positions in x; `continue` may
/// leave them.
void open_taps(const ConvShape& s, Lines& t, int dimensions = 2);
void close_taps(const ConvShape& s, Lines& t, int dimensions = 2);
/// "j * 2 + kw - 1": the place in a row of x, times its stride.
std::string place_in_row(const ConvShape& s);
std::string place_in_result(const ConvShape& s);

/// Channel `in_group` of a group, and terms of an index; "0" is left out.
std::string channel(const char* group, int64_t size, const char* in_group, int64_t groups);
std::string plus_terms(std::string first, const std::string& terms);
std::string times(const std::string& v, int64_t size, int64_t stride);
/// Channel `o` of the result, and `c` of x, times a stride.
std::string result_channel(const ConvShape& s, int64_t stride);
std::string x_channel(const ConvShape& s, int64_t stride);
/// Offsets of the row of x and of the result that the loops stand at.
std::string x_row(const ConvShape& s);
std::string y_row(const ConvShape& s);

/// The loops over rows of y.
void open_rows(const ConvShape& s, Lines& t);
void close_rows(const ConvShape& s, Lines& t);
/// `update` for every channel, tap and position j of a row, with the tap's weight in v. `x`
/// declares `in`; `w_zero` is " - z" where a zero point is taken off the weight.
void write_taps(const ConvShape& s, const std::string& x, const std::string& update, Lines& t,
                const char* w_zero = "");

/// Blocks of 4 channels and 16 positions (f32), and planes of one channel with their padding (f32,
/// codes). false: the shape is another one, and nothing was written.
bool conv_by_blocks(const KernelCall& c, const ConvShape& s, Lines& t);
bool conv_by_planes(const KernelCall& c, const ConvShape& s, const SumLoop* then,
                    const std::string& column, Lines& t);

}  // namespace tandem::edge
