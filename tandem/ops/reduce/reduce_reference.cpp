// SPDX-License-Identifier: Apache-2.0
// References of reductions and scans: each line of x is read into a vector of f64 (floats) or i64
// (integers and bools) and reduced by the simplest possible loop.
#include <cmath>
#include <cstring>
#include <limits>
#include <vector>

#include "tandem/ops/reduce/reduce_internal.h"

namespace tandem::detail {
namespace {

template <class T>
using Line = std::vector<T>;

// ---- what each row does with a line: value(line, scalar) and, for picks, index(line)

template <class T>
bool is_nan(T x) {
  return x != x;
}

struct Sum {
  template <class T>
  static T value(const Line<T>& x, double) {
    if constexpr (std::is_integral_v<T>) {
      uint64_t s = 0;
      for (T v : x) s += static_cast<uint64_t>(v);
      return static_cast<T>(s);
    } else {
      long double s = 0;
      for (T v : x) s += v;
      return static_cast<T>(s);
    }
  }
};
struct Mean {
  static double value(const Line<double>& x, double s) {
    return Sum::value(x, s) / static_cast<double>(x.size());
  }
};
struct Prod {
  template <class T>
  static T value(const Line<T>& x, double) {
    if constexpr (std::is_integral_v<T>) {
      uint64_t p = 1;
      for (T v : x) p *= static_cast<uint64_t>(v);
      return static_cast<T>(p);
    } else {
      T p = 1;
      for (T v : x) p *= v;
      return p;
    }
  }
};
struct CountNonzero {
  template <class T>
  static int64_t value(const Line<T>& x, double) {
    int64_t n = 0;
    for (T v : x) n += v != 0;
    return n;
  }
};
template <bool largest>
struct Pick {
  // The first NaN, else the first extreme.
  template <class T>
  static int64_t index(const Line<T>& x) {
    size_t best = 0;
    for (size_t i = 1; i < x.size(); ++i) {
      if (is_nan(x[best])) break;
      if (is_nan(x[i]) || (largest ? x[i] > x[best] : x[i] < x[best])) best = i;
    }
    return static_cast<int64_t>(best);
  }
  template <class T>
  static T value(const Line<T>& x, double) {
    return x[static_cast<size_t>(index(x))];
  }
};
template <bool largest>
struct PickIndex {
  template <class T>
  static int64_t value(const Line<T>& x, double) {
    return Pick<largest>::index(x);
  }
};
struct Any {
  template <class T>
  static int64_t value(const Line<T>& x, double) {
    for (T v : x) {
      if (v != 0) return 1;
    }
    return 0;
  }
};
struct All {
  template <class T>
  static int64_t value(const Line<T>& x, double) {
    for (T v : x) {
      if (v == 0) return 0;
    }
    return 1;
  }
};
struct Var {
  static double value(const Line<double>& x, double correction) {
    const double mean = Mean::value(x, 0);
    double s = 0;
    for (double v : x) s += (v - mean) * (v - mean);
    return s / std::fmax(static_cast<double>(x.size()) - correction, 0);
  }
};
struct LogSumExp {
  static double value(const Line<double>& x, double) {
    if (x.empty()) return -std::numeric_limits<double>::infinity();
    const double top = Pick<true>::value(x, 0);
    if (std::isinf(top)) return top;
    double s = 0;
    for (double v : x) s += std::exp(v - top);
    return top + std::log(s);
  }
};
struct Norm {
  static double value(const Line<double>& x, double) {
    double s = 0;
    for (double v : x) s += v * v;
    return std::sqrt(s);
  }
};

// ---- reading and writing

template <class T>
T read(const Array& a, int64_t offset) {
  T v{};
  visit_dtype(a.dtype, [&](auto tag) { v = static_cast<T>(a.as<decltype(tag)>()[offset]); });
  return v;
}
template <class V>
void write(const Array& a, int64_t offset, V v) {
  visit_dtype(a.dtype, [&](auto tag) {
    using T = decltype(tag);
    T& to = a.as<T>()[offset];
    if constexpr (std::is_same_v<T, Half> || std::is_same_v<T, BFloat16>)
      to = T(static_cast<float>(v));
    else if constexpr (std::is_same_v<T, bool>)
      to = v != 0;
    else
      to = static_cast<T>(v);
  });
}

// Row-major walk over some dims of a shape.
struct Walk {
  std::vector<int> dims;
  int64_t count(const int64_t* shape) const {
    int64_t n = 1;
    for (int d : dims) n *= shape[d];
    return n;
  }
  // Index of position i in dims, put into `index`.
  void at(int64_t i, const int64_t* shape, int64_t* index) const {
    for (size_t k = dims.size(); k-- > 0;) {
      index[dims[k]] = i % shape[dims[k]];
      i /= shape[dims[k]];
    }
  }
};
int64_t offset_of(const Array& a, const int64_t* index) {
  int64_t o = 0;
  for (int d = 0; d < a.rank; ++d) o += index[d] * a.strides[d];
  return o;
}

// Calls body(line, index of the kept dims) for every kept position.
template <class T, class Body>
void for_lines(const Array& x, uint32_t mask, Body body) {
  Walk kept, reduced;
  for (int d = 0; d < x.rank; ++d) (mask >> d & 1 ? reduced : kept).dims.push_back(d);
  const int64_t n = reduced.count(x.shape);
  Line<T> line(static_cast<size_t>(n));
  int64_t index[kMaxRank] = {};
  for (int64_t k = 0; k < kept.count(x.shape); ++k) {
    kept.at(k, x.shape, index);
    for (int64_t i = 0; i < n; ++i) {
      reduced.at(i, x.shape, index);
      line[static_cast<size_t>(i)] = read<T>(x, offset_of(x, index));
    }
    body(line, index);
  }
}

// Offset in y for a kept position of x.
int64_t out_offset(const Array& x, const Array& y, uint32_t mask, const int64_t* index) {
  int64_t o = 0;
  for (int d = 0, e = 0; d < x.rank; ++d) {
    const bool reduced = mask >> d & 1;
    if (!reduced) o += index[d] * y.strides[e];
    if (!reduced || y.rank == x.rank) ++e;
  }
  return o;
}

template <class Row, class T>
constexpr bool kTakes = requires(const Line<T>& x) {
  Row::value(x, 0.0);
};

template <class Row, class T>
void reduce_as(const KernelCall& call, uint32_t mask) {
  const Array& x = call.in[0];
  const double scalar = call.n_in > 1 ? call.in[1].scalar.to_double() : 0;
  for_lines<T>(x, mask, [&](const Line<T>& line, const int64_t* index) {
    write(call.out[0], out_offset(x, call.out[0], mask, index), Row::value(line, scalar));
    if constexpr (requires { Row::index(line); }) {
      if (call.n_out > 1) {
        write(call.out[1], out_offset(x, call.out[1], mask, index), Row::index(line));
      }
    }
  });
}

template <class Row>
void reduce_reference(const KernelCall& call) {
  const Array& x = call.in[0];
  uint32_t mask = 0;
  for (Dim d : reduced_dims(call.get_attrs<ReduceAttrs>().dims, x.rank)) mask |= 1u << d.raw();
  if constexpr (kTakes<Row, int64_t>) {
    if (!is_floating(x.dtype)) return reduce_as<Row, int64_t>(call, mask);
  }
  reduce_as<Row, double>(call, mask);
}

// sum_to: y is treated as having leading ones, so the reduced dims are those of size 1.
void sum_to_loops(const KernelCall& call) {
  const Array &x = call.in[0], &y = call.out[0];
  const int lead = x.rank - y.rank;
  uint32_t mask = 0;
  for (int d = 0; d < x.rank; ++d) {
    if (d < lead || (y.shape[d - lead] == 1 && x.shape[d] != 1)) mask |= 1u << d;
  }
  const auto run = [&](auto tag) {
    using T = decltype(tag);
    for_lines<T>(x, mask, [&](const Line<T>& line, const int64_t* index) {
      int64_t o = 0;
      for (int d = lead; d < x.rank; ++d) {
        if (!(mask >> d & 1)) o += index[d] * y.strides[d - lead];
      }
      write(y, o, Sum::value(line, 0));
    });
  };
  is_floating(x.dtype) ? run(double{}) : run(int64_t{});
}

// ---- scans: next(x) returns the value so far; index() where it came from
template <class T>
struct CumSum {
  T sum = 0;
  T next(T x) {
    if constexpr (std::is_integral_v<T>)
      return sum = static_cast<T>(static_cast<uint64_t>(sum) + static_cast<uint64_t>(x));
    else
      return sum += x;
  }
};
template <class T>
struct CumProd {
  T product = 1;
  T next(T x) {
    if constexpr (std::is_integral_v<T>)
      return product = static_cast<T>(static_cast<uint64_t>(product) * static_cast<uint64_t>(x));
    else
      return product *= x;
  }
};
template <class T>
struct LogCumSumExp {
  double top = -std::numeric_limits<double>::infinity(), sum = 0;
  double next(double x) {
    if (is_nan(x) || is_nan(top)) return top = std::nan("");
    if (x == top) {
      sum += 1;
    } else if (x > top) {
      sum = sum * std::exp(top - x) + 1;
      top = x;
    } else {
      sum += std::exp(x - top);
    }
    return std::isinf(top) ? top : top + std::log(sum);
  }
};
template <class T, bool largest>
struct CumPick {
  int64_t at = -1, best = 0;
  T value = 0;
  // The last of equal ones; after a NaN, the last NaN.
  T next(T x) {
    ++at;
    const bool better = largest ? x >= value : x <= value;
    if (at == 0 || is_nan(x) || (better && !is_nan(value))) {
      value = x;
      best = at;
    }
    return value;
  }
  int64_t index() const { return best; }
};
template <class T>
using CumMax = CumPick<T, true>;
template <class T>
using CumMin = CumPick<T, false>;

template <template <class> class Row, class T>
void scan_as(const KernelCall& call, int dim) {
  const Array& x = call.in[0];
  for_lines<T>(x, x.rank ? 1u << dim : 0, [&](const Line<T>& line, const int64_t* index) {
    int64_t at[kMaxRank];
    std::memcpy(at, index, sizeof at);
    Row<T> row;
    for (size_t i = 0; i < line.size(); ++i) {
      at[dim] = static_cast<int64_t>(i);
      write(call.out[0], offset_of(call.out[0], at), row.next(line[i]));
      if constexpr (requires { row.index(); }) {
        write(call.out[1], offset_of(call.out[1], at), row.index());
      }
    }
  });
}
template <template <class> class Row>
void scan_reference(const KernelCall& call) {
  const Array& x = call.in[0];
  const int dim = x.rank ? normalize_dim(call.get_attrs<ScanAttrs>().dim, x.rank) : 0;
  is_floating(x.dtype) ? scan_as<Row, double>(call, dim) : scan_as<Row, int64_t>(call, dim);
}

}  // namespace

#define TD_REDUCE(name, Row) \
  void name##_reference(const KernelCall& call) { reduce_reference<Row>(call); }
#define TD_SCAN(name, Row) \
  void name##_reference(const KernelCall& call) { scan_reference<Row>(call); }
TD_REDUCE(sum, Sum)
TD_REDUCE(mean, Mean)
TD_REDUCE(prod, Prod)
TD_REDUCE(count_nonzero, CountNonzero)
TD_REDUCE(max, Pick<true>)
TD_REDUCE(min, Pick<false>)
TD_REDUCE(argmax, PickIndex<true>)
TD_REDUCE(argmin, PickIndex<false>)
TD_REDUCE(any, Any)
TD_REDUCE(all, All)
TD_REDUCE(var, Var)
TD_REDUCE(logsumexp, LogSumExp)
TD_REDUCE(norm, Norm)
TD_SCAN(cumsum, CumSum)
TD_SCAN(cumprod, CumProd)
TD_SCAN(logcumsumexp, LogCumSumExp)
TD_SCAN(cummax, CumMax)
TD_SCAN(cummin, CumMin)
#undef TD_REDUCE
#undef TD_SCAN
void sum_to_reference(const KernelCall& call) { sum_to_loops(call); }

}  // namespace tandem::detail
