// SPDX-License-Identifier: Apache-2.0
// Loops of the grid_sample rows over arrays of any strides. The taps of a block of points are
// computed once and used for every channel. f32 and f64 run in their own type, 16-bit floats in
// f64. Every sum has a fixed order, whatever the number of threads.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <memory>
#include <type_traits>
#include <vector>

#include "tandem/ops/rule_internal.h"
#include "tandem/ops/view/strided_copy_internal.h"
#include "tandem/ops/vision/resample_internal.h"

namespace tandem::detail {
namespace {

constexpr int kBlock = 64, kMaxTaps = 16;

// Offsets of the points first, first + 1, ... of a space of three dimensions with strides s.
void walk_points(const int64_t (&size)[3], const int64_t (&s)[3], int64_t start, int64_t first,
                 int count, int64_t* to) {
  int64_t w = first % size[2], h = first / size[2] % size[1], d = first / (size[2] * size[1]);
  for (int p = 0; p < count; ++p) {
    to[p] = start + d * s[0] + h * s[1] + w * s[2];
    if (++w < size[2]) continue;
    w = 0;
    if (++h == size[1]) h = 0, ++d;
  }
}

// Elements of type T with three spatial strides; missing dimensions come first.
template <class T>
struct SampledPlanes {
  T* data = nullptr;
  int64_t n = 0, c = 0, s[3] = {0, 0, 0}, size[3] = {1, 1, 1};
  int64_t step_n = 0, step_c = 0;

  SampledPlanes(T* p, const int64_t* shape, const int64_t* strides, int rank)
      : data(p), n(shape[0]), c(shape[1]), step_n(strides[0]), step_c(strides[1]) {
    for (int i = 0; i < rank - 2; ++i) {
      s[5 - rank + i] = strides[i + 2];
      size[5 - rank + i] = shape[i + 2];
    }
  }
  int64_t points() const { return size[0] * size[1] * size[2]; }
  /// Offsets of the points first, first + 1, ... in a plane.
  void places(int64_t first, int count, int64_t* to) const {
    walk_points(size, s, 0, first, count, to);
  }
  T* plane(int64_t i, int64_t channel) const { return data + i * step_n + channel * step_c; }
};

// An array as T: the array itself, or a dense copy that is stored back at the end.
template <class T>
class Held {
 public:
  explicit Held(const Array& a, bool out = false)
      : array_(a), own_(a.dtype != dtype_of<T>), dense_(own_ ? a.numel : 0) {
    if (!own_) return;
    strides_ = contiguous_strides(Shape(std::span<const int64_t>(a.shape, a.rank)));
    if (!out && a.numel) read_dense(a, dense_.get());
  }
  T* data() const { return own_ ? dense_.get() : array_.as<T>(); }
  const int64_t* strides() const { return own_ ? strides_.data() : array_.strides; }
  SampledPlanes<T> planes() const {
    return SampledPlanes<T>(data(), array_.shape, strides(), array_.rank);
  }
  void store() const {
    if (own_) dense_.store(array_);
  }

 private:
  const Array& array_;
  bool own_;
  Dense<T> dense_;
  Strides strides_;
};

// Positions in one sample's grid.
template <class T>
struct Grid {
  T* data;
  const int64_t* strides;
  int d;  ///< spatial dimensions
  /// Offsets of the points first, first + 1, ... of sample n; `points` has the output's sizes.
  template <class P>
  void places(const P& points, int64_t n, int64_t first, int count, int64_t* to) const {
    int64_t s[3] = {0, 0, 0};
    for (int i = 0; i < d; ++i) s[3 - d + i] = strides[i + 1];
    walk_points(points.size, s, n * strides[0], first, count, to);
  }
  /// The position of a point at `place` in x's spatial dimension `axis`: the first one is stored
  /// last.
  T& operator()(int64_t place, int axis) const {
    return data[place + (d - 1 - axis) * strides[d + 1]];
  }
};

// The elements a point reads in one dimension: index -1 is outside.
struct AxisTaps {
  int64_t index[4];
  double weight[4], derivative[4];
};

double reflect(double at, double lo, double hi, double& sign) {
  if (hi <= lo) {
    sign = 0;
    return 0;
  }
  const double from = std::abs(at - lo), span = hi - lo;
  sign = at < lo ? -1 : 1;
  const double turns = std::floor(from / span), rest = from - turns * span;
  if (std::fmod(turns, 2) == 0) return rest + lo;
  sign = -sign;
  return hi - rest;
}

// `at` as an integer if it fits, else one outside every input.
int64_t whole(double at) { return at > -1e15 && at < 1e15 ? static_cast<int64_t>(at) : -100; }

// std::floor, without a call where the number fits an integer.
double floor_of(double at) {
  if (!(at > -1e15 && at < 1e15)) return std::floor(at);
  const auto down = static_cast<double>(static_cast<int64_t>(at));
  return down > at ? down - 1 : down;
}

struct Sampler {
  ResampleMode mode;
  GridPadding padding;
  bool align;
  int taps;

  explicit Sampler(const GridSampleAttrs& a)
      : mode(static_cast<ResampleMode>(a.mode)),
        padding(static_cast<GridPadding>(a.padding)),
        align(a.align_corners),
        taps(mode == ResampleMode::nearest  ? 1
             : mode == ResampleMode::linear ? 2
                                            : 4) {}

  double low() const { return align ? 0 : -0.5; }
  double high(double size) const { return align ? size - 1 : size - 0.5; }

  // The padded position and the factor on its derivative.
  double padded(double at, double size, double& derivative) const {
    if (padding == GridPadding::zeros) return at;
    double sign = 1;
    if (padding == GridPadding::reflection) at = reflect(at, low(), high(size), sign);
    if (!(at > 0 && at < size - 1)) sign = 0;
    derivative *= sign;
    return at < 0 ? 0 : at > size - 1 ? size - 1 : at;
  }
  int64_t inside(double at, int64_t size) const {
    double none = 1;
    const int64_t i = whole(std::floor(padded(at, static_cast<double>(size), none) + 0.0));
    return i >= 0 && i < size ? i : -1;
  }
  void cubic(double at, double derivative, int64_t size, AxisTaps& r) const {
    constexpr double a = -0.75;
    const double floor = floor_of(at), t = at - floor;
    const bool finite = at > -1e15 && at < 1e15;
    for (int k = 0; k < 4; ++k) {
      const double d = std::abs(t - (k - 1)), sign = t < k - 1 ? -1 : 1;
      const bool near = k == 1 || k == 2;
      r.weight[k] =
          near ? ((a + 2) * d - (a + 3)) * d * d + 1 : ((a * d - 5 * a) * d + 8 * a) * d - 4 * a;
      r.derivative[k] =
          derivative * sign *
          (near ? (3 * (a + 2) * d - 2 * (a + 3)) * d : (3 * a * d - 10 * a) * d + 8 * a);
      r.index[k] = finite ? inside(floor + k - 1, size) : -1;
    }
  }
  void operator()(double g, int64_t n, AxisTaps& r) const {
    const auto size = static_cast<double>(n);
    double derivative = align ? (size - 1) / 2 : size / 2;
    double at = align ? (g + 1) * derivative : (g + 1) * derivative - 0.5;
    if (mode == ResampleMode::cubic) return cubic(at, derivative, n, r);
    at = padded(at, size, derivative);
    if (mode == ResampleMode::nearest) {
      const int64_t i = whole(std::nearbyint(at));
      r.index[0] = i >= 0 && i < n ? i : -1;
      r.weight[0] = 1;
      r.derivative[0] = 0;
      return;
    }
    const double floor = floor_of(at);
    const int64_t i = whole(floor);
    r.index[0] = i >= 0 && i < n ? i : -1;
    r.index[1] = i + 1 >= 0 && i + 1 < n ? i + 1 : -1;
    r.weight[0] = 1 - (at - floor);
    r.weight[1] = at - floor;
    r.derivative[0] = -derivative;
    r.derivative[1] = derivative;
  }
};

// The taps of up to kBlock points in one dimension, each number of theirs beside the next point's.
struct AxisBlock {
  int64_t index[4][kBlock];
  double weight[4][kBlock], derivative[4][kBlock];

  /// g[p]: the positions of the grid.
  void fill(const Sampler& s, const double* g, int points, int64_t size) {
    if (s.mode == ResampleMode::linear && s.padding == GridPadding::zeros)
      return linear(s, g, points, size);
    for (int p = 0; p < points; ++p) {
      AxisTaps one;
      s(g[p], size, one);
      for (int k = 0; k < s.taps; ++k) {
        index[k][p] = one.index[k];
        weight[k][p] = one.weight[k];
        derivative[k][p] = one.derivative[k];
      }
    }
  }

 private:
  // Sampler's numbers, without its decisions at every point.
  void linear(const Sampler& s, const double* g, int points, int64_t n) {
    const auto size = static_cast<double>(n);
    const double slope = s.align ? (size - 1) / 2 : size / 2, shift = s.align ? 0.0 : 0.5;
    for (int p = 0; p < points; ++p) {
      const double at = (g[p] + 1) * slope - shift;
      const bool fits = at > -1e15 && at < 1e15;
      const auto cut = static_cast<int64_t>(fits ? at : 0.0);
      const int64_t down = cut - (static_cast<double>(cut) > at);
      const int64_t i = fits ? down : -100;
      const double rest = at - (fits ? static_cast<double>(down) : std::floor(at));
      index[0][p] = static_cast<uint64_t>(i) < static_cast<uint64_t>(n) ? i : -1;
      index[1][p] = static_cast<uint64_t>(i + 1) < static_cast<uint64_t>(n) ? i + 1 : -1;
      weight[0][p] = 1 - rest;
      weight[1][p] = rest;
      derivative[0][p] = -slope;
      derivative[1][p] = slope;
    }
  }
};

// The taps of up to kBlock points: offset (-1: outside), weight and its derivative by position.
template <class T>
struct Block {
  int64_t offset[kMaxTaps][kBlock];
  T weight[kMaxTaps][kBlock];
  T derivative[3][kMaxTaps][kBlock];
  int taps = 1, points = 0;

  void fill(const Sampler& s, const Grid<T>& grid, const SampledPlanes<T>& out,
            const SampledPlanes<T>& x, int64_t n, int64_t first, int64_t last, bool derivatives) {
    points = static_cast<int>(last - first);
    int64_t place[kBlock];
    grid.places(out, n, first, points, place);
    taps = 1;
    AxisBlock axis[3];
    for (int i = 0; i < grid.d; ++i) {
      double at[kBlock];
      for (int p = 0; p < points; ++p) at[p] = static_cast<double>(grid(place[p], i));
      axis[i].fill(s, at, points, x.size[3 - grid.d + i]);
      taps *= s.taps;
    }
    for (int k = 0; k < taps; ++k) tap(s, grid.d, axis, x, k, derivatives);
  }

 private:
  void tap(const Sampler& s, int d, const AxisBlock* axis, const SampledPlanes<T>& x, int k,
           bool derivatives) {
    int at[3], rest = k;
    int64_t loc[kBlock] = {}, outside[kBlock] = {};  // outside: negative
    double w[kBlock];
    std::fill_n(w, points, 1.0);
    for (int i = d - 1; i >= 0; --i, rest /= s.taps) {
      at[i] = rest % s.taps;
      const int64_t *index = axis[i].index[at[i]], step = x.s[3 - d + i];
      const double* factor = axis[i].weight[at[i]];
      for (int p = 0; p < points; ++p) {
        outside[p] |= index[p];
        loc[p] += index[p] * step;
        w[p] *= factor[p];
      }
    }
    for (int p = 0; p < points; ++p) {
      offset[k][p] = outside[p] < 0 ? -1 : loc[p];
      weight[k][p] =
          outside[p] < 0 ? T(0) : static_cast<T>(w[p]);  // a NaN position has a NaN weight
    }
    for (int j = 0; derivatives && j < d; ++j) {
      std::fill_n(w, points, 1.0);
      for (int i = 0; i < d; ++i) {
        const double* factor = i == j ? axis[i].derivative[at[i]] : axis[i].weight[at[i]];
        for (int p = 0; p < points; ++p) w[p] *= factor[p];
      }
      for (int p = 0; p < points; ++p)
        derivative[j][k][p] = outside[p] < 0 ? T(0) : static_cast<T>(w[p]);
    }
  }
};

// f(std::integral_constant<int, K>) for K taps.
template <class F>
void with_taps(int taps, F&& f) {
  switch (taps) {
    case 1:
      return f(std::integral_constant<int, 1>());
    case 4:
      return f(std::integral_constant<int, 4>());
    case 8:
      return f(std::integral_constant<int, 8>());
    default:
      return f(std::integral_constant<int, kMaxTaps>());
  }
}

// An element, or 0 where the tap is outside; the load is always inside.
template <class T>
inline T load(const T* in, int64_t offset) {
  const T v = in[offset < 0 ? 0 : offset];
  return offset < 0 ? T(0) : v;
}

// sum[i] += w * v[i], 16 bytes at a time.
template <class T>
inline void add_scaled(T* sum, const T* v, T w, int64_t n) {
  typedef T Part __attribute__((vector_size(16)));
  constexpr int64_t kPart = 16 / static_cast<int64_t>(sizeof(T));
  int64_t i = 0;
  for (; i + kPart <= n; i += kPart) {
    Part a, b;
    std::memcpy(&a, sum + i, sizeof a);
    std::memcpy(&b, v + i, sizeof b);
    a += b * w;
    std::memcpy(static_cast<void*>(sum + i), &a, sizeof a);
  }
  for (; i < n; ++i) sum[i] += w * v[i];
}

constexpr int64_t kManyChannels = 8;

// The elements of x with the channels of a point beside each other: x itself or a copy.
template <class T>
class ChannelsLast {
 public:
  explicit ChannelsLast(const SampledPlanes<T>& x)
      : copy_(x.step_c == 1 ? 0 : x.n * x.c * x.points()), planes_(x) {
    if (x.step_c == 1) return;
    const int64_t shape[] = {x.n, x.size[0], x.size[1], x.size[2], x.c};
    const int64_t from[] = {x.step_n, x.s[0], x.s[1], x.s[2], x.step_c};
    const int64_t to[] = {x.c * x.points(), x.c * x.size[1] * x.size[2], x.c * x.size[2], x.c, 1};
    strided_copy(copy_.get(), to, x.data, from, shape, 5, sizeof(T));
    planes_.data = copy_.get();
    planes_.step_n = to[0];
    planes_.step_c = 1;
    std::copy_n(to + 1, 3, planes_.s);
  }
  const SampledPlanes<T>& planes() const { return planes_; }

 private:
  Dense<T> copy_;
  SampledPlanes<T> planes_;
};

// Whether a copy of x is less work than what its layout saves.
template <class T>
bool favours_channels_last(const SampledPlanes<T>& x, const SampledPlanes<T>& points) {
  return x.c >= kManyChannels && 4 * points.points() >= x.points();
}

// The sum of a[i] * b[i], in the lanes of 16 bytes.
template <class T>
inline T dot(const T* a, const T* b, int64_t n) {
  typedef T Part __attribute__((vector_size(16)));
  constexpr int64_t kPart = 16 / static_cast<int64_t>(sizeof(T));
  Part sums{};
  int64_t i = 0;
  for (; i + kPart <= n; i += kPart) {
    Part x, y;
    std::memcpy(&x, a + i, sizeof x);
    std::memcpy(&y, b + i, sizeof y);
    sums += x * y;
  }
  T sum = 0;
  for (int64_t j = 0; j < kPart; ++j) sum += sums[j];
  for (; i < n; ++i) sum += a[i] * b[i];
  return sum;
}

// Point by point: vectors of channels. The sums are those of one channel after the other.
template <class T>
void sample_channels_last(const Sampler& s, const Grid<T>& grid, const SampledPlanes<T>& in,
                          const SampledPlanes<T>& y) {
  const ChannelsLast<T> beside(in);
  const SampledPlanes<T>& x = beside.planes();
  const int64_t points = y.points(), blocks = (points + kBlock - 1) / kBlock;
  parallel_for_rows(x.n * blocks, kBlock * x.c * 8, [&](int64_t begin, int64_t end) {
    Block<T> b;
    std::vector<T> sums(static_cast<size_t>(kBlock * x.c));
    for (int64_t u = begin; u < end; ++u) {
      const int64_t n = u / blocks, first = u % blocks * kBlock;
      b.fill(s, grid, y, x, n, first, std::min(first + kBlock, points), false);
      std::fill(sums.begin(), sums.end(), T(0));
      for (int p = 0; p < b.points; ++p)
        for (int k = 0; k < b.taps; ++k)
          if (b.offset[k][p] >= 0)
            add_scaled(sums.data() + p * x.c, x.plane(n, 0) + b.offset[k][p], b.weight[k][p], x.c);
      int64_t to[kBlock];
      y.places(first, b.points, to);
      for (int64_t ch = 0; ch < x.c; ++ch) {
        T* out = y.plane(n, ch);
        for (int p = 0; p < b.points; ++p) out[to[p]] = sums[static_cast<size_t>(p * x.c + ch)];
      }
    }
  });
}

template <class T>
void sample(const KernelCall& c) {
  const Held<T> hx(c.in[0]), hg(c.in[1]), hy(c.out[0], true);
  const SampledPlanes<T> x = hx.planes(), y = hy.planes();
  const Sampler s(c.get_attrs<GridSampleAttrs>());
  const Grid<T> grid{hg.data(), hg.strides(), c.in[0].rank - 2};
  if (favours_channels_last(x, y)) {
    sample_channels_last(s, grid, x, y);
    return hy.store();
  }
  const int64_t points = y.points(), blocks = (points + kBlock - 1) / kBlock;
  parallel_for_rows(x.n * blocks, kBlock * x.c * 8, [&](int64_t begin, int64_t end) {
    Block<T> b;
    for (int64_t u = begin; u < end; ++u) {
      const int64_t n = u / blocks, first = u % blocks * kBlock;
      b.fill(s, grid, y, x, n, first, std::min(first + kBlock, points), false);
      int64_t to[kBlock];
      y.places(first, b.points, to);
      with_taps(b.taps, [&](auto taps) {
        for (int64_t ch = 0; ch < x.c; ++ch) {
          const T* in = x.plane(n, ch);
          T* out = y.plane(n, ch);
          for (int p = 0; p < b.points; ++p) {
            T sum = 0;
            for (int k = 0; k < taps(); ++k) sum += b.weight[k][p] * load(in, b.offset[k][p]);
            out[to[p]] = sum;
          }
        }
      });
    }
  });
  hy.store();
}

// Each unit owns some channels of a sample and adds to them point by point.
template <class T>
void send_back(const KernelCall& c) {
  constexpr int64_t kChannels = 16;
  const Held<T> hg(c.in[0]), hgrid(c.in[1]), hx(c.out[0], true);
  const SampledPlanes<T> g = hg.planes(), x = hx.planes();
  const Sampler s(c.get_attrs<GridSampleAttrs>());
  const Grid<T> grid{hgrid.data(), hgrid.strides(), c.in[0].rank - 2};
  const int64_t points = g.points(), parts = (x.c + kChannels - 1) / kChannels;
  SampledPlanes<T> near = x;  // kChannels of a sample, channels beside each other
  near.s[2] = kChannels;
  near.s[1] = kChannels * x.size[2];
  near.s[0] = near.s[1] * x.size[1];
  parallel_for_rows(x.n * parts, (points + x.points()) * 32, [&](int64_t begin, int64_t end) {
    Block<T> b;
    std::vector<T> sums(static_cast<size_t>(kChannels * x.points()));
    T gradient[kBlock * kChannels];
    for (int64_t u = begin; u < end; ++u) {
      const int64_t n = u / parts, c0 = u % parts * kChannels, c1 = std::min(c0 + kChannels, x.c);
      // The channels of a point lie beside each other here, so that they are added as vectors.
      const int64_t width = c1 - c0;
      std::fill(sums.begin(), sums.end(), T(0));
      for (int64_t first = 0; first < points; first += kBlock) {
        b.fill(s, grid, g, near, n, first, std::min(first + kBlock, points), false);
        int64_t from[kBlock];
        g.places(first, b.points, from);
        for (int64_t ch = 0; ch < width; ++ch) {
          const T* in = g.plane(n, c0 + ch);
          for (int p = 0; p < b.points; ++p) gradient[p * kChannels + ch] = in[from[p]];
        }
        for (int p = 0; p < b.points; ++p)
          for (int k = 0; k < b.taps; ++k)
            if (b.offset[k][p] >= 0)
              add_scaled(sums.data() + b.offset[k][p], gradient + p * kChannels, b.weight[k][p],
                         width);
      }
      const int64_t shape[] = {width, x.size[0], x.size[1], x.size[2]};
      const int64_t from[] = {1, near.s[0], near.s[1], near.s[2]};
      const int64_t to[] = {x.step_c, x.s[0], x.s[1], x.s[2]};
      strided_copy(x.plane(n, c0), to, sums.data(), from, shape, 4, sizeof(T));
    }
  });
  hx.store();
}

template <class T>
void grid_gradient(const KernelCall& c) {
  const Held<T> hg(c.in[0]), hx(c.in[1]), hgrid(c.in[2]), hout(c.out[0], true);
  const SampledPlanes<T> g = hg.planes(), in = hx.planes();
  const bool many = favours_channels_last(in, g);
  const std::unique_ptr<const ChannelsLast<T>> beside(many ? new ChannelsLast<T>(in) : nullptr);
  const SampledPlanes<T>& x = many ? beside->planes() : in;
  const Sampler s(c.get_attrs<GridSampleAttrs>());
  const int d = c.in[1].rank - 2;
  const Grid<T> grid{hgrid.data(), hgrid.strides(), d}, out{hout.data(), hout.strides(), d};
  const int64_t points = g.points(), blocks = (points + kBlock - 1) / kBlock;
  parallel_for_rows(x.n * blocks, kBlock * x.c * 16, [&](int64_t begin, int64_t end) {
    Block<T> b;
    std::vector<T> gradient(static_cast<size_t>(many ? kBlock * x.c : 0));
    for (int64_t u = begin; u < end; ++u) {
      const int64_t n = u / blocks, first = u % blocks * kBlock;
      b.fill(s, grid, g, x, n, first, std::min(first + kBlock, points), true);
      int64_t from[kBlock];
      g.places(first, b.points, from);
      // The factor on a tap's derivative: the sum over channels of gradient times element.
      T product[kMaxTaps][kBlock] = {};
      if (beside) {
        const int64_t channels = x.c;
        for (int64_t ch = 0; ch < channels; ++ch) {
          const T* gy = g.plane(n, ch);
          for (int p = 0; p < b.points; ++p) gradient[p * channels + ch] = gy[from[p]];
        }
        for (int p = 0; p < b.points; ++p)
          for (int k = 0; k < b.taps; ++k)
            if (b.offset[k][p] >= 0)
              product[k][p] =
                  dot(gradient.data() + p * channels, x.plane(n, 0) + b.offset[k][p], channels);
      }
      with_taps(b.taps, [&](auto taps) {
        for (int64_t ch = 0; ch < x.c && !beside; ++ch) {
          const T *in = x.plane(n, ch), *gy = g.plane(n, ch);
          for (int p = 0; p < b.points; ++p) {
            const T v = gy[from[p]];
            for (int k = 0; k < taps(); ++k) product[k][p] += v * load(in, b.offset[k][p]);
          }
        }
      });
      int64_t place[kBlock];
      out.places(g, n, first, b.points, place);
      for (int p = 0; p < b.points; ++p)
        for (int j = 0; j < d; ++j) {
          T sum = 0;
          for (int k = 0; k < b.taps; ++k) sum += product[k][p] * b.derivative[j][k][p];
          out(place[p], j) = sum;
        }
    }
  });
  hout.store();
}

}  // namespace

#define TD_GRID_ROW(name, loops)      \
  void name(const KernelCall& c) {    \
    if (c.out[0].numel == 0) return;  \
    if (c.out[0].dtype == DType::f32) \
      loops<float>(c);                \
    else                              \
      loops<double>(c);               \
  }
TD_GRID_ROW(grid_sample_reference, sample)
TD_GRID_ROW(grid_sample_backward_input_reference, send_back)
TD_GRID_ROW(grid_sample_backward_grid_loops, grid_gradient)
#undef TD_GRID_ROW

}  // namespace tandem::detail
