// SPDX-License-Identifier: Apache-2.0
// Resized images: which elements a result reads, and how much of each, are constant tables of each
// dimension, or a division where each element is repeated.
#include "tandem/edge/rows_internal.h"
#include "tandem/ops/vision/resample_internal.h"

namespace tandem::edge {
namespace {

using detail::AxisMap;

bool is_one_each(const AxisMap& m) {
  for (size_t o = 0; o < static_cast<size_t>(m.out); ++o)
    if (m.first[o + 1] != m.first[o] + 1 || m.weight[o] != 1) return false;
  return true;
}
// Each element r times: r, else 0.
int64_t repeats_of(const AxisMap& m) {
  if (!is_one_each(m) || m.in == 0 || m.out % m.in != 0) return 0;
  const int64_t r = m.out / m.in;
  for (size_t o = 0; o < m.at.size(); ++o)
    if (m.at[o] != static_cast<int64_t>(o) / r) return 0;
  return r;
}

std::vector<std::string> as_text(const std::vector<int64_t>& values) {
  std::vector<std::string> out;
  for (const int64_t v : values) out.push_back(std::to_string(v));
  return out;
}

// The loop variable of a dimension of the result.
std::string position(const Array& y, int d) {
  return y.shape[d] == 1 ? "0" : fmt::format("i{}", d);
}

}  // namespace

void emit_interpolate(const KernelCall& c, Body& to) {
  const Array &x = c.in[0], &y = c.out[0];
  const DType t = x.dtype;
  const std::vector<AxisMap> maps = detail::axis_maps(c);
  Lines& out = to.text;
  // Of each dimension the place in x, and which have several elements to add.
  std::string from = place({{"i0", y.shape[0], x.strides[0]}, {"i1", y.shape[1], x.strides[1]}});
  std::string factor;
  std::vector<int> summed;
  for (size_t i = 0; i < maps.size(); ++i) {
    const AxisMap& m = maps[i];
    const int d = static_cast<int>(i) + 2;
    const std::string loop = position(y, d);
    std::string at;
    if (const int64_t r = repeats_of(m); r > 0) {
      at = r == 1 ? loop : fmt::format("{} / {}", loop, r);
    } else if (is_one_each(m)) {
      write_table("int32_t", fmt::format("at{}", d), as_text(m.at), out);
      at = fmt::format("at{}[{}]", d, loop);
    } else {
      write_table("int32_t", fmt::format("first{}", d), as_text(m.first), out);
      write_table("int32_t", fmt::format("at{}", d), as_text(m.at), out);
      std::vector<std::string> parts;
      for (const double v : m.weight) parts.push_back(number_literal(v, t));
      write_table(c_type(t), fmt::format("part{}", d), parts, out);
      at = fmt::format("at{0}[k{0}]", d);
      factor += fmt::format("part{0}[k{0}] * ", d);
      summed.push_back(d);
    }
    from += fmt::format(" + {} * {}", at, x.strides[d]);
  }
  std::string stored = "0";
  for (int d = 0; d < y.rank; ++d) {
    out.loop(fmt::format("i{}", d), y.shape[d]);
    if (y.shape[d] != 1) stored += fmt::format(" + i{} * {}", d, y.strides[d]);
  }
  if (summed.empty()) {
    out.line("y0[{}] = x0[{}];", stored, from);
  } else {
    out.open("");
    out.line("{} sum = 0;", c_type(t));
    for (const int d : summed)
      out.line("for (int32_t k{0} = first{0}[{1}]; k{0} < first{0}[{1} + 1]; ++k{0})", d,
               position(y, d));
    out.line("  sum += {}x0[{}];", factor, from);
    out.line("y0[{}] = sum;", stored);
    out.close();
  }
  for (int d = y.rank - 1; d >= 0; --d) out.end_loop(y.shape[d]);
}

}  // namespace tandem::edge
