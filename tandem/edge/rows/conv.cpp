// SPDX-License-Identifier: Apache-2.0
// Convolutions of numbers. What has no other form (conv_blocks.cpp) is a loop over rows of the
// result: channel by channel and tap by tap a row takes in a multiple of a row of x, which
// compilers make vector code of. Each sum runs over channels, then taps, after the bias. Transposed
// ones add in the same walk to x.
#include "tandem/edge/rows/conv_text_internal.h"

namespace tandem::edge {

void emit_conv(const KernelCall& c, Body& to) {
  const ConvShape s(c.get_attrs<ConvAttrs>(), c.in[0], c.in[1], c.out[0]);
  if (conv_by_planes(c, s, nullptr, "", to.text) || conv_by_blocks(c, s, to.text)) return;
  const bool bias = c.n_in > 2 && c.in[2].present();
  Lines& t = to.text;
  open_rows(s, t);
  t.line("{} *row = y0 + {};", s.type, y_row(s));
  const std::string o = channel("g", s.o_group, "o", s.groups);
  const std::string first =
      bias ? fmt::format("x2[{}]", times(o, s.groups * s.o_group, c.in[2].strides[0])) : "0";
  t.line("for (int32_t j = 0; j < {}; ++j) row[{}] = {};", s.out[2], place_in_result(s), first);
  write_taps(s, fmt::format("const {} *in = x0", s.type),
             fmt::format("row[{}] += v * in[{}]", place_in_result(s), place_in_row(s)), t);
  close_rows(s, t);
}

void emit_transposed(const KernelCall& c, Body& to) {
  const ConvShape s(c.get_attrs<ConvAttrs>(), c.out[0], c.in[1], c.in[0]);
  Lines& t = to.text;
  t.line("for (int32_t j = 0; j < {}; ++j) y0[j] = 0;", c.out[0].numel);
  open_rows(s, t);
  t.line("const {} *row = x0 + {};", s.type, y_row(s));
  write_taps(s, fmt::format("{} *in = y0", s.type),
             fmt::format("in[{}] += v * row[{}]", place_in_row(s), place_in_result(s)), t);
  close_rows(s, t);
}

}  // namespace tandem::edge
