// SPDX-License-Identifier: Apache-2.0
// Loops of nonzero, one_hot and bincount.
#include <algorithm>
#include <vector>

#include "tandem/base/parallel.h"
#include "tandem/ops/function_internal.h"
#include "tandem/ops/index/index.h"
#include "tandem/ops/index/index_reference_internal.h"
#include "tandem/ops/view/strided_copy_internal.h"

namespace tandem::detail {
namespace {

constexpr int64_t kCountGrain = 16384, kCountBlock = 256;

// f(coordinates, offset of the first, how many) for the elements [begin, end) of x in row-major
// order, along the last dim; the coordinates are those of the first.
template <class F>
void each_line(const Array& x, int64_t begin, int64_t end, F&& f) {
  if (begin >= end) return;  // of a tensor without elements, whose dims may be 0
  const int last = x.rank - 1;
  int64_t at[kMaxRank], offset = 0;
  for (int64_t i = last, k = begin; i >= 0; --i) {
    at[i] = k % x.shape[i];
    k /= x.shape[i];
    offset += at[i] * x.strides[i];
  }
  while (begin < end) {
    const int64_t n = std::min(end - begin, x.shape[last] - at[last]);
    f(static_cast<const int64_t*>(at), offset, n);
    begin += n;
    offset += n * x.strides[last];
    at[last] += n;
    for (int i = last; i > 0 && at[i] == x.shape[i]; --i) {
      at[i] = 0;
      ++at[i - 1];
      offset += x.strides[i - 1] - x.shape[i] * x.strides[i];
    }
  }
}

// Positions of the nonzero elements among n; their number. No branch waits for a value.
template <class T>
int64_t nonzero_of(const T* x, int64_t step, int64_t n, int64_t* at) {
  int64_t m = 0;
  for (int64_t j = 0; j < n; ++j) {
    at[m] = j;
    m += is_nonzero(x[j * step]);
  }
  return m;
}

// f(coordinates of the first, positions from it along the last dim, how many) for the nonzero
// elements among [begin, end).
template <class T, class F>
void each_nonzero(const Array& x, int64_t begin, int64_t end, F&& f) {
  const int64_t step = x.strides[x.rank - 1];
  each_line(x, begin, end, [&](const int64_t* at, int64_t offset, int64_t n) {
    int64_t found[kCountBlock];
    for (int64_t j = 0; j < n; j += kCountBlock) {
      const T* block = x.as<T>() + offset + j * step;
      const int64_t m = nonzero_of(block, step, std::min(kCountBlock, n - j), found);
      for (int64_t k = 0; k < m; ++k) found[k] += j;
      f(at, found, m);
    }
  });
}

}  // namespace

// Chunks count what they have, then each knows where its rows begin.
void run_nonzero(const KernelCall& k) {
  const NonzeroAttrs& a = k.get_attrs<NonzeroAttrs>();
  const Array &x = k.in[0], &y = k.out[0];
  int64_t* out = y.as<int64_t>();
  int64_t rows = 0;
  if (x.rank > 0 && x.numel > 0) {
    const int64_t chunks = std::clamp<int64_t>(x.numel / kCountGrain, 1, 64);
    std::vector<int64_t> first(static_cast<size_t>(chunks) + 1);
    const auto begin = [&](int64_t c) { return x.numel * c / chunks; };
    visit_dtype(x.dtype, [&](auto tag) {
      using T = decltype(tag);
      parallel_for(0, chunks, 1, [&](int64_t b, int64_t e) {
        for (int64_t c = b; c < e; ++c)
          each_nonzero<T>(x, begin(c), begin(c + 1),
                          [&](const int64_t*, const int64_t*, int64_t n) {
                            first[static_cast<size_t>(c) + 1] += n;
                          });
      });
      for (size_t c = 1; c < first.size(); ++c) first[c] += first[c - 1];
      parallel_for(0, chunks, 1, [&](int64_t b, int64_t e) {
        for (int64_t c = b; c < e; ++c) {
          int64_t row = first[static_cast<size_t>(c)];
          each_nonzero<T>(x, begin(c), begin(c + 1),
                          [&](const int64_t* at, const int64_t* found, int64_t n) {
                            for (int64_t i = 0; i < n && row < a.size; ++i, ++row) {
                              int64_t* to = out + row * x.rank;
                              std::copy_n(at, x.rank - 1, to);
                              to[x.rank - 1] = at[x.rank - 1] + found[i];
                            }
                          });
        }
      });
    });
    rows = std::min(first.back(), a.size);
  }
  std::fill(out + rows * x.rank, out + a.size * x.rank, a.fill);
}

namespace {

// f(position, class) for the elements of x, which are classes below n; others are reported.
template <class F>
void each_class(const KernelCall& k, const Array& x, int64_t n, int64_t begin, int64_t end, F f) {
  const auto along = [&](auto* data) {
    int64_t position = begin;
    const int64_t step = x.rank ? x.strides[x.rank - 1] : 1;
    const auto line = [&](const int64_t*, int64_t offset, int64_t m) {
      // Copies: what f writes might be what is captured, as far as the compiler knows.
      const auto* const from = data + offset;
      const int64_t start = position, by = step;
      const auto classes = static_cast<uint64_t>(n);
      F own = f;
      for (int64_t j = 0; j < m; ++j) {
        const int64_t c = from[j * by];
        if (TD_LIKELY(static_cast<uint64_t>(c) < classes))
          own(start + j, c);
        else
          report_error(k, 1, c);
      }
      position += m;
    };
    if (x.rank)
      each_line(x, begin, end, line);
    else
      line(nullptr, 0, 1);
  };
  x.dtype == DType::i64 ? along(x.as<int64_t>()) : along(x.as<int32_t>());
}

}  // namespace

void run_one_hot(const KernelCall& k) {
  const Array &x = k.in[0], &y = k.out[0];
  const int64_t n = k.get_attrs<OneHotAttrs>().num_classes;
  zero_array(y);
  int64_t* out = y.as<int64_t>();
  parallel_for(0, x.numel, kCountGrain, [&](int64_t b, int64_t e) {
    each_class(k, x, n, b, e, [out, n](int64_t position, int64_t c) { out[position * n + c] = 1; });
  });
}

// Parts of x are counted apart where that is less work than adding their counts up.
void run_bincount(const KernelCall& k) {
  const Array &x = k.in[0], &y = k.out[0];
  const int64_t bins = k.get_attrs<BincountAttrs>().size;
  zero_array(y);
  int64_t* out = y.as<int64_t>();
  const auto count = [&](int64_t* to, int64_t begin, int64_t end) {
    each_class(k, x, bins, begin, end, [to](int64_t, int64_t c) { ++to[c]; });
  };
  const int64_t parts = std::min<int64_t>(16, x.numel / std::max<int64_t>(8 * bins, kCountGrain));
  if (parts < 2) return count(out, 0, x.numel);
  std::vector<int64_t> counts(static_cast<size_t>(parts * bins));
  parallel_for(0, parts, 1, [&](int64_t b, int64_t e) {
    for (int64_t p = b; p < e; ++p)
      count(counts.data() + p * bins, x.numel * p / parts, x.numel * (p + 1) / parts);
  });
  for (int64_t p = 0; p < parts; ++p)
    for (int64_t c = 0; c < bins; ++c) out[c] += counts[static_cast<size_t>(p * bins + c)];
}

}  // namespace tandem::detail
