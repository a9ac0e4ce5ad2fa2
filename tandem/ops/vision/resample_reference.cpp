// SPDX-License-Identifier: Apache-2.0
// The weights of every resize mode, and the plain loops of interpolate in f64, plane by plane.
#include <cmath>

#include "tandem/ops/rule_internal.h"
#include "tandem/ops/vision/resample_internal.h"

namespace tandem::detail {

bool AxisMap::identity() const {
  if (in != out || at.size() != static_cast<size_t>(out)) return false;
  for (size_t o = 0; o < at.size(); ++o)
    if (at[o] != static_cast<int64_t>(o) || weight[o] != 1) return false;
  return true;
}

AxisMap AxisMap::transposed() const {
  AxisMap t;
  t.in = out;
  t.out = in;
  t.first.assign(static_cast<size_t>(in) + 1, 0);
  for (int64_t i : at) ++t.first[static_cast<size_t>(i) + 1];
  for (size_t i = 0; i < static_cast<size_t>(in); ++i) t.first[i + 1] += t.first[i];
  t.at.resize(at.size());
  t.weight.resize(at.size());
  std::vector<int64_t> next(t.first.begin(), t.first.end() - 1);
  for (int64_t o = 0; o < out; ++o)
    for (int64_t k = first[static_cast<size_t>(o)]; k < first[static_cast<size_t>(o) + 1]; ++k) {
      auto from = static_cast<size_t>(k);
      auto to = static_cast<size_t>(next[static_cast<size_t>(at[from])]++);
      t.at[to] = o;
      t.weight[to] = weight[from];
    }
  return t;
}

namespace {

// Keys' cubic convolution at distance t >= 0.
double cubic(double t, double a) {
  if (t < 1) return ((a + 2) * t - (a + 3)) * t * t + 1;
  if (t < 2) return ((a * t - 5 * a) * t + 8 * a) * t - 4 * a;
  return 0;
}

struct Builder {
  AxisMap map;
  void add(int64_t i, double w) {
    map.at.push_back(std::clamp<int64_t>(i, 0, map.in - 1));
    map.weight.push_back(w);
  }
  void end() { map.first.push_back(static_cast<int64_t>(map.at.size())); }
};

// Input positions per output position.
double step_of(const ResampleAttrs& a, int i, int64_t in, int64_t out) {
  if (a.align_corners)
    return out > 1 ? static_cast<double>(in - 1) / static_cast<double>(out - 1) : 0;
  return a.scale(i) > 0 ? 1 / a.scale(i) : static_cast<double>(in) / static_cast<double>(out);
}

// PyTorch finds the nearest element in f32; any other type would round its product differently.
void nearest(Builder& b, const ResampleAttrs& a, int i, bool exact) {
  const float step = a.scale(i) > 0 ? static_cast<float>(1 / a.scale(i))
                                    : static_cast<float>(b.map.in) / static_cast<float>(b.map.out);
  for (int64_t o = 0; o < b.map.out; ++o) {
    const float at = std::floor((static_cast<float>(o) + (exact ? 0.5f : 0.f)) * step);
    b.add(static_cast<int64_t>(std::min(at, static_cast<float>(b.map.in))), 1);
    b.end();
  }
}

void linear(Builder& b, const ResampleAttrs& a, double step) {
  for (int64_t o = 0; o < b.map.out; ++o) {
    double at = static_cast<double>(o) * step;
    if (!a.align_corners) at = std::max((static_cast<double>(o) + 0.5) * step - 0.5, 0.0);
    at = std::min(at, static_cast<double>(b.map.in - 1));
    const double low = std::floor(at);
    const auto i = static_cast<int64_t>(low);
    if (i + 1 < b.map.in) {
      b.add(i, 1 - (at - low));
      b.add(i + 1, at - low);
    } else {
      b.add(i, 1);
    }
    b.end();
  }
}

void cubic_taps(Builder& b, const ResampleAttrs& a, double step) {
  const double far = static_cast<double>(b.map.in) + 4;
  for (int64_t o = 0; o < b.map.out; ++o) {
    double at = a.align_corners ? static_cast<double>(o) * step
                                : (static_cast<double>(o) + 0.5) * step - 0.5;
    at = std::clamp(at, -far, far);
    const double low = std::floor(at), t = at - low;
    for (int k = -1; k <= 2; ++k)
      b.add(static_cast<int64_t>(low) + k, cubic(std::abs(k - t), -0.75));
    b.end();
  }
}

// The filter is as wide as a step; its weights sum to 1 inside the input.
void antialiased(Builder& b, double step, bool is_cubic) {
  const double radius = is_cubic ? 2 : 1, wide = std::max(step, 1.0), support = radius * wide;
  const auto in = static_cast<double>(b.map.in);
  for (int64_t o = 0; o < b.map.out; ++o) {
    const double centre = step * (static_cast<double>(o) + 0.5);  // align_corners changes the step
    const auto lo = static_cast<int64_t>(std::clamp(centre - support + 0.5, 0.0, in));
    const auto hi = static_cast<int64_t>(std::clamp(centre + support + 0.5, 0.0, in));
    const size_t from = b.map.weight.size();
    double total = 0;
    for (int64_t k = lo; k < hi; ++k) {
      const double t = std::abs((static_cast<double>(k) - centre + 0.5) / wide);
      const double w = is_cubic ? cubic(t, -0.5) : std::max(0.0, 1 - t);
      b.add(k, w);
      total += w;
    }
    for (size_t k = from; total != 0 && k < b.map.weight.size(); ++k) b.map.weight[k] /= total;
    b.end();
  }
}

}  // namespace

AxisMap axis_map(const ResampleAttrs& a, int i, int64_t in, int64_t out) {
  Builder b;
  b.map.in = in;
  b.map.out = out;
  b.map.first.push_back(0);
  const auto mode = static_cast<ResampleMode>(a.mode);
  const double step = step_of(a, i, in, out);
  if (mode == ResampleMode::nearest || mode == ResampleMode::nearest_exact)
    nearest(b, a, i, mode == ResampleMode::nearest_exact);
  else if (a.antialias)
    antialiased(b, step, mode == ResampleMode::cubic);
  else if (mode == ResampleMode::linear)
    linear(b, a, step);
  else
    cubic_taps(b, a, step);
  return std::move(b.map);
}

std::vector<AxisMap> axis_maps(const KernelCall& c) {
  const auto& a = c.get_attrs<ResampleAttrs>();
  const bool backward = &c.op == &op::interpolate_backward;
  std::vector<AxisMap> maps;
  for (int i = 0; i + 2 < c.in[0].rank; ++i) {
    const int64_t from = c.in[0].shape[i + 2], to = c.out[0].shape[i + 2];
    maps.push_back(backward ? axis_map(a, i, to, from).transposed() : axis_map(a, i, from, to));
  }
  return maps;
}

void interpolate_reference(const KernelCall& c) {
  if (c.out[0].numel == 0) return;
  std::vector<AxisMap> maps = axis_maps(c);
  while (maps.size() < 3) maps.insert(maps.begin(), AxisMap{{0, 1}, {0}, {1}, 1, 1});
  const AxisMap &md = maps[0], &mh = maps[1], &mw = maps[2];
  const int64_t in_plane = md.in * mh.in * mw.in, out_plane = md.out * mh.out * mw.out;
  Dense<double> x(c.in[0]), y(c.out[0].numel);
  const int64_t planes = c.out[0].shape[0] * c.out[0].shape[1];
  // f(k) for the taps of output o.
  auto taps = [](const AxisMap& m, int64_t o, auto&& f) {
    for (int64_t k = m.first[static_cast<size_t>(o)]; k < m.first[static_cast<size_t>(o) + 1]; ++k)
      f(m.at[static_cast<size_t>(k)], m.weight[static_cast<size_t>(k)]);
  };
  parallel_for_rows(planes, out_plane * 8, [&](int64_t begin, int64_t end) {
    for (int64_t p = begin; p < end; ++p) {
      const double* in = x.get() + p * in_plane;
      double* out = y.get() + p * out_plane;
      for (int64_t d = 0; d < md.out; ++d)
        for (int64_t h = 0; h < mh.out; ++h)
          for (int64_t w = 0; w < mw.out; ++w) {
            double sum = 0;
            taps(md, d, [&](int64_t id, double wd) {
              taps(mh, h, [&](int64_t ih, double wh) {
                taps(mw, w, [&](int64_t iw, double ww) {
                  sum += wd * wh * ww * in[(id * mh.in + ih) * mw.in + iw];
                });
              });
            });
            *out++ = sum;
          }
    }
  });
  y.store(c.out[0]);
}

}  // namespace tandem::detail
