// SPDX-License-Identifier: Apache-2.0
// interpolate and its gradient for f32 and f64 arrays that are dense, row-major or channels-last:
// one pass per resized dimension, each a weighted sum of lines. The result takes the layout of x.
// Every element is summed in a fixed order.
#include <algorithm>
#include <cstring>

#include "tandem/backend/cpu/registry_internal.h"
#include "tandem/base/copy_bytes.h"
#include "tandem/base/parallel.h"
#include "tandem/ops/rule_internal.h"
#include "tandem/ops/vision/resample_internal.h"

namespace tandem::detail {
namespace {

// The taps of one output: `count` inputs from `at`, weights from `weight`.
template <class T>
struct Line {
  const int64_t* at;
  const T* weight;
  int64_t count;
};

// A map with weights of the element type.
template <class T>
struct Pass {
  explicit Pass(const AxisMap& m) : map(m), weight(m.weight.begin(), m.weight.end()) {}
  Line<T> line(int64_t o) const {
    const int64_t from = map.first[static_cast<size_t>(o)];
    return {map.at.data() + from, weight.data() + from,
            map.first[static_cast<size_t>(o) + 1] - from};
  }
  const AxisMap& map;
  std::vector<T> weight;
};

// out[i] = sum of weight * in[at * inner + i].
template <class T>
void combine(const Line<T>& l, const T* in, T* out, int64_t inner) {
  const int64_t* at = l.at;
  const T* w = l.weight;
  if (l.count == 1 && w[0] == T(1)) {
    copy_bytes(out, in + at[0] * inner, static_cast<size_t>(inner) * sizeof(T));
  } else if (l.count == 2) {
    const T *a = in + at[0] * inner, *b = in + at[1] * inner;
    for (int64_t i = 0; i < inner; ++i) out[i] = w[0] * a[i] + w[1] * b[i];
  } else if (l.count == 4) {
    const T *a = in + at[0] * inner, *b = in + at[1] * inner;
    const T *c = in + at[2] * inner, *d = in + at[3] * inner;
    for (int64_t i = 0; i < inner; ++i)
      out[i] = w[0] * a[i] + w[1] * b[i] + w[2] * c[i] + w[3] * d[i];
  } else {
    std::memset(static_cast<void*>(out), 0, static_cast<size_t>(inner) * sizeof(T));
    for (int64_t k = 0; k < l.count; ++k) {
      const T* a = in + at[k] * inner;
      for (int64_t i = 0; i < inner; ++i) out[i] += w[k] * a[i];
    }
  }
}

// One element per output: a line of single elements.
template <class T>
void combine_elements(const Pass<T>& p, const T* in, T* out) {
  const AxisMap& m = p.map;
  const int64_t* at = m.at.data();
  const T* w = p.weight.data();
  if (m.at.size() == static_cast<size_t>(m.out) * 2) {
    bool pairs = true;
    for (int64_t o = 0; o < m.out; ++o) pairs &= m.first[static_cast<size_t>(o)] == 2 * o;
    if (pairs) {
      for (int64_t o = 0; o < m.out; ++o)
        out[o] = w[2 * o] * in[at[2 * o]] + w[2 * o + 1] * in[at[2 * o + 1]];
      return;
    }
  }
  for (int64_t o = 0; o < m.out; ++o) {
    const Line<T> l = p.line(o);
    T sum = 0;
    for (int64_t k = 0; k < l.count; ++k) sum += l.weight[k] * in[l.at[k]];
    out[o] = sum;
  }
}

// in [outer, map.in, inner] -> out [outer, map.out, inner]; `used`: outer positions to compute.
template <class T>
void run_pass(const Pass<T>& p, const T* in, T* out, int64_t outer, int64_t inner,
              const std::vector<char>* used) {
  const AxisMap& m = p.map;
  if (inner == 1) {
    const int64_t grain = 1 + 32768 / (m.out * 4);
    parallel_for(0, outer, grain, [&](int64_t begin, int64_t end) {
      for (int64_t r = begin; r < end; ++r)
        if (!used || (*used)[static_cast<size_t>(r) % used->size()])
          combine_elements(p, in + r * m.in, out + r * m.out);
    });
    return;
  }
  parallel_for(0, outer * m.out, 1 + 32768 / (inner * 2), [&](int64_t begin, int64_t end) {
    int64_t block = begin / m.out, o = begin % m.out;
    for (int64_t r = begin; r < end; ++r) {
      if (!used || (*used)[static_cast<size_t>(block) % used->size()])
        combine(p.line(o), in + block * m.in * inner, out + r * inner, inner);
      if (++o == m.out) o = 0, ++block;
    }
  });
}

template <class T>
struct Resize {
  std::vector<AxisMap> maps;
  std::vector<Pass<T>> passes;
  std::vector<char> rows;  ///< of dimension 1 of 3: those read by a later pass
  int64_t inner = 1;       ///< channels, if they are innermost
  int64_t in_unit = 1, out_unit = 1;

  explicit Resize(const KernelCall& c, int64_t inner) : maps(axis_maps(c)), inner(inner) {
    while (maps.size() < 3) maps.insert(maps.begin(), AxisMap{{0, 1}, {0}, {1}, 1, 1});
    for (const AxisMap& m : maps) {
      passes.emplace_back(m);
      in_unit *= m.in;
      out_unit *= m.out;
    }
    in_unit *= inner;
    out_unit *= inner;
    rows.assign(static_cast<size_t>(maps[1].in), 0);
    for (int64_t i : maps[1].at) rows[static_cast<size_t>(i)] = 1;
  }
  int64_t scratch() const {
    const AxisMap &d = maps[0], &h = maps[1], &w = maps[2];
    return (d.in * h.in * w.out + d.in * h.out * w.out) * inner;
  }
  // One plane (or one sample of channels-last arrays): last dimension first.
  void run(const T* in, T* out, T* scratch) const {
    const AxisMap &d = maps[0], &h = maps[1], &w = maps[2];
    struct Step {
      int axis;
      int64_t outer, inner;
    };
    const Step all[3] = {
        {2, d.in * h.in, inner}, {1, d.in, w.out * inner}, {0, 1, h.out * w.out * inner}};
    int last = -1;
    for (int i = 0; i < 3; ++i)
      if (!maps[static_cast<size_t>(all[i].axis)].identity()) last = i;
    if (last < 0) {
      copy_bytes(out, in, static_cast<size_t>(in_unit) * sizeof(T));
      return;
    }
    T* to[2] = {scratch, scratch + d.in * h.in * w.out * inner};
    for (int i = 0; i <= last; ++i) {
      const Step& s = all[i];
      if (maps[static_cast<size_t>(s.axis)].identity()) continue;
      T* target = i == last ? out : to[i];
      const bool sparse = s.axis == 2 && last > 0;
      run_pass(passes[static_cast<size_t>(s.axis)], in, target, s.outer, s.inner,
               sparse ? &rows : nullptr);
      in = target;
    }
  }
};

template <class T>
void resize(const KernelCall& c) {
  const Array &x = c.in[0], &y = c.out[0];
  const bool last = !x.contiguous;
  const int64_t channels = x.shape[1], units = last ? x.shape[0] : x.shape[0] * channels;
  const Resize<T> r(c, last ? channels : 1);
  const int64_t grain = 1 + 32768 / (r.in_unit + r.out_unit);
  parallel_for(0, units, grain, [&](int64_t begin, int64_t end) {
    const Dense<T> scratch(r.scratch());
    for (int64_t u = begin; u < end; ++u)
      r.run(x.as<T>() + u * r.in_unit, y.as<T>() + u * r.out_unit, scratch.get());
  });
}

bool supports(const KernelCall& c) {
  const Array& x = c.in[0];
  return (x.dtype == DType::f32 || x.dtype == DType::f64) && (x.contiguous || is_channels_last(x));
}

bool layout(const KernelCall& c, int output, Strides& strides) {
  if (c.in[0].contiguous) return false;
  strides = channels_last_strides(c.out[output].shape, c.out[output].rank);
  return true;
}

void run(const KernelCall& c) {
  if (c.out[0].numel == 0) return;
  if (c.in[0].dtype == DType::f32)
    resize<float>(c);
  else
    resize<double>(c);
}

}  // namespace

void register_resample_kernels() {
  const Kernel resize{supports, layout, nullptr, run};
  register_kernel(DeviceKind::cpu, op::interpolate, resize);
  register_kernel(DeviceKind::cpu, op::interpolate_backward, resize);
  const Kernel grid{nullptr, nullptr, nullptr, grid_sample_backward_grid_loops};
  register_kernel(DeviceKind::cpu, op::grid_sample_backward_grid, grid);
}

}  // namespace tandem::detail
