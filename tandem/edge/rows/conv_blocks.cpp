// SPDX-License-Identifier: Apache-2.0
// Convolutions in pieces that stay near the processor. Blocks, of f32: 4 channels of the result at
// 16 positions, over taps that are gathered first, some channels of x at a time; a 1x1 convolution
// reads x itself. Planes: where every channel has its own taps and rows are short, a plane is
// copied with its padding, and a tap takes in all of it at once, rows with what lies between them.
#include <algorithm>

#include "tandem/edge/rows/conv_text_internal.h"

namespace tandem::edge {
namespace {

constexpr int64_t kPositions = 16;  // of a block

bool is_flat(const KernelCall& c, const ConvShape& s) {
  return s.in[0] == 1 && s.out[0] == 1 && s.k[0] == 1 && s.dense_taps() && s.dense_planes() &&
         (s.out[2] == 1 || s.y_at[4] == 1) && (s.in[2] == 1 || s.x_at[4] == 1) &&
         (s.in[1] == 1 || s.x_at[3] == s.in[2]) &&
         (c.in[0].dtype != DType::f32 || c.n_in < 3 || !c.in[2].present() || c.in[2].numel == 1 ||
          c.in[2].strides[0] == 1);
}

// "x2 + g * 8", or "" without a bias.
std::string bias_of(const KernelCall& c, const std::string& first) {
  if (c.n_in < 3 || !c.in[2].present()) return "";
  return plus_terms("x2", first);
}

// As many channels of x as a buffer of a moderate size holds.
int64_t channels_at_once(const ConvShape& s) {
  constexpr int64_t kMostTaps = 256;
  return std::clamp<int64_t>(kMostTaps * s.c_group / s.taps(), 1, s.c_group);
}

std::string geometry(const ConvShape& s) {
  return fmt::format("{}, {}, {}, {}, {}, {}, {}, {}, {}, {}, {}, {}", s.in[1], s.in[2], s.out[2],
                     s.k[1], s.k[2], s.stride[1], s.stride[2], s.pad[1], s.pad[2], s.dilation[1],
                     s.dilation[2], s.x_at[1]);
}

std::string of_group(const ConvShape& s, int64_t channels, int64_t stride) {
  return s.groups == 1 ? "0" : fmt::format("g * {}", channels * stride);
}

}  // namespace

bool conv_by_blocks(const KernelCall& c, const ConvShape& s, Lines& t) {
  constexpr int64_t kLeastChannels = 4;
  const int64_t positions = s.positions();
  if (c.out[0].dtype != DType::f32 || !is_flat(c, s) || s.o_group < kLeastChannels ||
      positions == 1)
    return false;
  const bool direct = s.k[1] * s.k[2] == 1 && s.out[1] == 1 && s.stride[2] == 1 && s.pad[2] == 0 &&
                      s.in[1] == 1 && s.in[2] == s.out[2] && positions >= kPositions;
  const int64_t taps = s.taps(), some = direct ? s.c_group : channels_at_once(s);
  const int64_t per_channel = taps / s.c_group;
  if (!direct) {
    t.line("static const int32_t shape[] = {{{}}};", geometry(s));
    t.line("float t[{}];", some * per_channel * kPositions);
  }
  t.loop("n", s.n);
  t.loop("g", s.groups);
  t.open("for (int32_t at = 0; at < {}; at += {})", positions, kPositions);
  if (positions > kPositions)
    t.line("const int32_t from = at < {0} ? at : {0};", positions - kPositions);
  else
    t.line("const int32_t from = 0;");
  const std::string many = std::to_string(std::min(positions, kPositions));
  const std::string x =
      plus_terms(of_group(s, s.c_group, s.x_at[1]), place({{"n", s.n, s.x_at[0]}}));
  const std::string y =
      plus_terms(of_group(s, s.o_group, s.y_at[1]), place({{"n", s.n, s.y_at[0]}}));
  const bool whole = some == s.c_group;
  std::string channels = std::to_string(some), from_channel = "0";
  if (!whole) {
    t.open("for (int32_t c = 0; c < {}; c += {})", s.c_group, some);
    if (s.c_group % some) {
      t.line("const int32_t some = c + {1} < {0} ? {1} : {0} - c;", s.c_group, some);
      channels = "some";
    }
    from_channel = fmt::format("c * {}", s.x_at[1]);
  }
  if (!direct)
    t.line("{}({}, shape, from, {}, {}, t);", kGatherTaps,
           plus_terms("x0", plus_terms(x, from_channel)), many, channels);
  const std::string w = plus_terms(of_group(s, s.o_group, s.w_at[0]),
                                   whole ? "0" : fmt::format("c * {}", per_channel));
  const std::string bias = bias_of(c, of_group(s, s.o_group, 1));
  t.line("{}({}, {}, {}, {}, {}, {}, {}, {}, {}, {}, {});", kConvBlock, plus_terms("x1", w),
         s.w_at[0], s.o_group, direct ? plus_terms(plus_terms("x0", x), "from") : "t",
         direct ? s.x_at[1] : kPositions,
         whole              ? std::to_string(taps)
         : per_channel == 1 ? channels
                            : fmt::format("{} * {}", channels, per_channel),
         bias.empty() ? "0" : bias, whole ? "0" : "c > 0", plus_terms(plus_terms("y0", y), "from"),
         s.y_at[1], many);
  if (!whole) t.close();
  t.close();
  t.end_loop(s.groups);
  t.end_loop(s.n);
  return true;
}

namespace {

// What a plane holds, and how it becomes sums and results.
struct PlaneTypes {
  const char *plane, *sums;
  std::string less_zero;  ///< " - x_zero" where codes have a zero point
  bool codes;
  std::string bias;  ///< place of the first value of a channel's sums
};

void write_plane(const ConvShape& s, const PlaneTypes& types, int64_t height, int64_t width,
                 Lines& t) {
  // Of x, what lies in the padded plane.
  const int64_t rows = std::min(s.in[1], height - s.pad[1]);
  const int64_t columns = std::min(s.in[2], width - s.pad[2]);
  t.open("for (int32_t h = 0; h < {}; ++h)", rows);
  t.line("const {} *row = x0 + {};", s.type,
         plus_terms(plus_terms(of_group(s, 1, s.x_at[1]), place({{"n", s.n, s.x_at[0]}})),
                    fmt::format("h * {}", s.in[2])));
  t.line("for (int32_t k = 0; k < {}; ++k) plane[h * {} + {} + k] = ({})(row[k]{});", columns,
         width, s.pad[1] * width + s.pad[2], types.plane, types.less_zero);
  t.close();
}

void write_plane_sums(const ConvShape& s, const PlaneTypes& types, int64_t width, int64_t sums,
                      Lines& t) {
  if (types.codes) {
    t.line("{}(plane, x1 + {}, shape, {}, sums);", kPlaneOfTaps, result_channel(s, s.w_at[0]),
           sums);
    return;
  }
  t.line("const {} *taps = x1 + {};", s.w_type, result_channel(s, s.w_at[0]));
  if (!types.bias.empty()) t.line("const {} first = {};", types.sums, types.bias);
  t.line("for (int32_t k = 0; k < {}; ++k) sums[k] = {};", sums,
         types.bias.empty() ? "0" : "first");
  t.open("for (int32_t kh = 0; kh < {}; ++kh)", s.k[1]);
  t.open("for (int32_t kw = 0; kw < {}; ++kw)", s.k[2]);
  t.line("const {} v = taps[kh * {} + kw], *in = plane + kh * {} + kw * {};", types.plane, s.k[2],
         s.dilation[1] * width, s.dilation[2]);
  t.line("for (int32_t k = 0; k < {}; ++k) sums[k] += v * in[k];", sums);
  t.close();
  t.close();
}

}  // namespace

bool conv_by_planes(const KernelCall& c, const ConvShape& s, const SumLoop* then,
                    const std::string& column, Lines& t) {
  constexpr int64_t kMostElements = 1024;  // of a plane with its padding
  constexpr int64_t kShortRow = 32;
  const int64_t height = s.out[1] + (s.k[1] - 1) * s.dilation[1];
  const int64_t width = s.out[2] + (s.k[2] - 1) * s.dilation[2];
  const bool codes = c.out[0].dtype == DType::i32;
  if ((!codes && c.out[0].dtype != DType::f32) || !is_flat(c, s) || s.c_group != 1 ||
      s.k[1] * s.k[2] == 1 || s.stride[1] != 1 || s.stride[2] != 1 || s.out[2] >= kShortRow ||
      s.out[1] == 1 || height * width > kMostElements || (codes && !zero_point(c, 3, "0").empty()))
    return false;
  const int64_t sums = (s.out[1] - 1) * width + s.out[2];
  const std::string zero = codes ? zero_point(c, 2, "0") : "";
  const std::string bias = codes ? "" : bias_of(c, result_channel(s, 1));
  const PlaneTypes types = {codes ? "int16_t" : "float", codes ? "int32_t" : "float",
                            zero.empty() ? "" : " - x_zero", codes,
                            bias.empty() ? "" : "*(" + bias + ")"};
  if (codes)
    t.line("static const int32_t shape[] = {{{}, {}, {}, {}}};", s.k[1], s.k[2],
           s.dilation[1] * width, s.dilation[2]);
  t.line("{} plane[{}];", types.plane, height * width);
  t.line("{} sums[{}];", types.sums, sums);
  if (!zero.empty()) t.line("const int32_t x_zero = {};", zero);
  t.line("for (int32_t k = 0; k < {}; ++k) plane[k] = 0;", height * width);
  t.loop("n", s.n);
  t.loop("g", s.groups);
  write_plane(s, types, height, width, t);
  t.loop("o", s.o_group);
  write_plane_sums(s, types, width, sums, t);
  t.open("for (int32_t h = 0; h < {}; ++h)", s.out[1]);
  t.open("for (int32_t k = 0; k < {}; ++k)", s.out[2]);
  const std::string sum = fmt::format("sums[h * {} + k]", width);
  const std::string y = then ? write_sum_loop(*then, sum, column, 1, t) : sum;
  t.line("y0[{}] = {};",
         plus_terms(plus_terms(result_channel(s, s.y_at[1]), place({{"n", s.n, s.y_at[0]}})),
                    fmt::format("h * {} + k", s.out[2])),
         y);
  t.close();
  t.close();
  t.end_loop(s.o_group);
  t.end_loop(s.groups);
  t.end_loop(s.n);
  return true;
}

}  // namespace tandem::edge
