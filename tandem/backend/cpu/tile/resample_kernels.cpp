// SPDX-License-Identifier: Apache-2.0
// interpolate and its gradient for f32 and f64 arrays that are dense, row-major or channels-last:
// one pass per resized dimension, each a weighted sum of lines. The result takes the layout of x.
// Every element is summed in a fixed order.
#include <algorithm>

#include "tandem/backend/cpu/gemm/gemm_internal.h"
#include "tandem/backend/cpu/registry_internal.h"
#include "tandem/backend/cpu/tile/resample_internal.h"
#include "tandem/base/copy_bytes.h"
#include "tandem/base/parallel.h"
#include "tandem/ops/rule_internal.h"
#include "tandem/ops/vision/resample_internal.h"

namespace tandem::detail {
namespace {

// A map with weights of the element type.
template <class T>
struct Pass {
  explicit Pass(const AxisMap& m) : map(m), weight(m.weight.begin(), m.weight.end()) {}
  Taps<T> line(int64_t o) const {
    const int64_t from = map.first[static_cast<size_t>(o)];
    return {map.at.data() + from, weight.data() + from,
            map.first[static_cast<size_t>(o) + 1] - from};
  }
  const AxisMap& map;
  std::vector<T> weight;
};

const ResampleLoops& resample_loops() {
  const CpuFeatures& f = cpu_features();
  return f.avx512 ? kResampleAvx512 : f.avx2 ? kResampleAvx2 : kResampleBase;
}
template <class T>
bool is_copy(const Taps<T>& l) {
  return l.count == 1 && l.weight[0] == T(1);
}

// out[i] = sum of weight * in[at * n + i].
template <class T>
void combine(const Taps<T>& l, const T* in, T* out, int64_t n) {
  if (is_copy(l)) return copy_bytes(out, in + l.at[0] * n, static_cast<size_t>(n) * sizeof(T));
  if constexpr (sizeof(T) == sizeof(float))
    resample_loops().combine32(l, in, out, n);
  else
    resample_loops().combine64(l, in, out, n);
}
// One element, with the bits of combine().
template <class T>
T combined(const Taps<T>& l, const T* in) {
  const int64_t* at = l.at;
  const T* w = l.weight;
  if (is_copy(l)) return in[at[0]];
  if (l.count == 2) return w[0] * in[at[0]] + w[1] * in[at[1]];
  if (l.count == 4)
    return w[0] * in[at[0]] + w[1] * in[at[1]] + w[2] * in[at[2]] + w[3] * in[at[3]];
  T sum = 0;
  for (int64_t k = 0; k < l.count; ++k) sum += w[k] * in[at[k]];
  return sum;
}
// The last dimension of one row, element by element.
template <class T>
void combine_elements(const Pass<T>& p, const T* in, T* out) {
  for (int64_t o = 0; o < p.map.out; ++o) out[o] = combined(p.line(o), in);
}

// Rows that are resized together: transposed, so that they become lines of elements side by side.
template <class T>
class RowGroup {
 public:
  static constexpr int64_t kFewest = 8;
  explicit RowGroup(const Pass<T>& p)
      : p_(p),
        most_((p.map.in + p.map.out) * 32 * static_cast<int64_t>(sizeof(T)) <= 32 * 1024 ? 32 : 16),
        in_(p.map.in * most_ + 64),
        out_(p.map.out * most_ + 64) {}
  int64_t most() const { return most_; }
  void run(const T* in, T* out, int64_t rows) const {
    const AxisMap& m = p_.map;
    const MicroTable<T>& table = micro_table<T>();
    // Are less than half of the elements read that would be transposed?
    const bool sparse = 2 * static_cast<int64_t>(m.at.size()) < m.in;
    if (sparse || rows < kFewest || rows < table.width || m.out < table.width) {
      for (int64_t r = 0; r < rows; ++r) combine_elements(p_, in + r * m.in, out + r * m.out);
      return;
    }
    table.transpose(in_.get(), rows, in, m.in, rows, m.in);
    for (int64_t o = 0; o < m.out; ++o) combine(p_.line(o), in_.get(), out_.get() + o * rows, rows);
    table.transpose(out, m.out, out_.get(), rows, m.out, rows);
  }

 private:
  const Pass<T>& p_;
  int64_t most_;
  Dense<T> in_, out_;
};

// in [outer, map.in, inner] -> out [outer, map.out, inner]; `used`: outer positions to compute.
template <class T>
void run_pass(const Pass<T>& p, const T* in, T* out, int64_t outer, int64_t inner,
              const std::vector<char>* used) {
  const AxisMap& m = p.map;
  const auto wanted = [&](int64_t r) {
    return !used || (*used)[static_cast<size_t>(r) % used->size()];
  };
  if (inner == 1) {
    const int64_t grain = 1 + 32768 / (m.out * 4);
    parallel_for(0, outer, grain, [&](int64_t begin, int64_t end) {
      const RowGroup<T> group(p);
      for (int64_t r = begin; r < end;) {
        if (!wanted(r)) {
          ++r;
          continue;
        }
        const int64_t most = std::min(group.most(), end - r);
        int64_t rows = 1;
        while (rows < most && wanted(r + rows)) ++rows;
        group.run(in + r * m.in, out + r * m.out, rows);
        r += rows;
      }
    });
    return;
  }
  parallel_for(0, outer * m.out, 1 + 32768 / (inner * 2), [&](int64_t begin, int64_t end) {
    int64_t block = begin / m.out, o = begin % m.out;
    for (int64_t r = begin; r < end; ++r) {
      if (wanted(block)) combine(p.line(o), in + block * m.in * inner, out + r * inner, inner);
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
