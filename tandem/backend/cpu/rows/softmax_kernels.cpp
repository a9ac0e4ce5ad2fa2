// SPDX-License-Identifier: Apache-2.0
// softmax and log_softmax of f32 lines along any dimension, forward and backward. All have the same
// bits: where many lines lie beside each other they are computed as columns, other lines that are
// not contiguous are transposed in blocks and computed as rows are; short rows are transposed and
// computed as columns in the forward pass.
// Other dtypes are row programs (row_kernels.cpp).
#include <algorithm>
#include <vector>

#include "tandem/backend/cpu/gemm/gemm_internal.h"
#include "tandem/backend/cpu/registry_internal.h"
#include "tandem/backend/cpu/rows/short_rows_internal.h"
#include "tandem/base/math_prelude.h"
#include "tandem/base/parallel.h"
#include "tandem/ops/nn/softmax.h"

namespace tandem::detail {
namespace {

constexpr int64_t kBlockFloats = 32 * 1024;  ///< of a transposed block: stays in the cache
constexpr int64_t kLeastLines = 16, kMostLines = 128;
constexpr int64_t kFewestColumns = 8;

bool lines_supported(const KernelCall& c) {
  for (int i = 0; i < c.n_in; ++i)
    if (c.in[i].dtype != DType::f32 || !c.in[i].contiguous || c.in[i].is_scalar) return false;
  return c.in[0].rank > 0 && c.in[0].numel > 0;
}

// The inputs' and the result's pointers to one line of n elements.
template <int kIns>
struct Line {
  const float* in[kIns];
  float* out;
  int64_t n;
};

// f(Line) for the lines of arrays [outer, n, inner], which are `inner` apart, `count` at a time.
template <int kIns, class F>
void for_transposed(const KernelCall& c, int64_t outer, int64_t n, int64_t inner, F&& f) {
  const MicroTable<float>& table = micro_table<float>();
  const int64_t most = std::clamp(kBlockFloats / n, kLeastLines, kMostLines);
  const int64_t pieces = (inner + most - 1) / most, size = most * n + 64;  // see transpose()
  parallel_for(0, outer * pieces, 1 + 4096 / (most * n), [&](int64_t first, int64_t last) {
    std::vector<float> memory(static_cast<size_t>((kIns + 1) * size));
    float* result = memory.data() + kIns * size;
    for (int64_t u = first; u < last; ++u) {
      const int64_t begin = u % pieces * most, count = std::min(most, inner - begin);
      const int64_t at = u / pieces * n * inner + begin;
      for (int i = 0; i < kIns; ++i)
        table.transpose(memory.data() + i * size, n, c.in[i].as<float>() + at, inner, n, count);
      for (int64_t k = 0; k < count; ++k) {
        Line<kIns> line{{}, result + k * n, n};
        for (int i = 0; i < kIns; ++i) line.in[i] = memory.data() + i * size + k * n;
        f(line);
      }
      float* y = c.out[0].as<float>() + at;
      if (count >= table.width)
        table.transpose(y, inner, result, n, count, n);
      else
        for (int64_t r = 0; r < n; ++r)
          for (int64_t k = 0; k < count; ++k) y[r * inner + k] = result[k * n + r];
    }
  });
}

// g(Columns, their result and inputs) for the lines of arrays [outer, n, inner].
template <int kIns, class G>
void for_columns(const KernelCall& c, int64_t outer, int64_t n, int64_t inner, G&& g) {
  const int64_t pieces = (inner + kMostColumns - 1) / kMostColumns;
  parallel_for(0, outer * pieces, 1 + 4096 / (kMostColumns * n), [&](int64_t first, int64_t last) {
    for (int64_t u = first; u < last; ++u) {
      const int64_t begin = u % pieces * kMostColumns, at = u / pieces * n * inner + begin;
      const float* in[kIns];
      for (int i = 0; i < kIns; ++i) in[i] = c.in[i].as<float>() + at;
      g(Columns{n, inner, std::min(kMostColumns, inner - begin)}, c.out[0].as<float>() + at, in);
    }
  });
}

// The same for short rows of n elements.
template <class G>
void for_short_rows(const KernelCall& c, int64_t rows, int64_t n, G&& g) {
  const int64_t blocks = (rows + kMostColumns - 1) / kMostColumns;
  parallel_for(0, blocks, 1 + 8192 / (kMostColumns * n), [&](int64_t first, int64_t last) {
    alignas(64) float x[kShortRows], y[kShortRows];
    for (int64_t u = first; u < last; ++u) {
      const int64_t begin = u * kMostColumns, count = std::min(kMostColumns, rows - begin);
      const Columns columns = turn_rows(x, c.in[0].as<float>() + begin * n, n, count);
      const float* const in[] = {x};
      g(columns, y, in);
      turn_columns(c.out[0].as<float>() + begin * n, y, columns);
    }
  });
}

// f(Line) for lines along the call's dimension, or g(Columns, result, inputs).
template <int kIns, class F, class G>
void for_lines(const KernelCall& c, F&& f, G&& g) {
  const Array& x = c.in[0];
  const auto dim = static_cast<int>(c.get_attrs<SoftmaxAttrs>().dim);
  const int64_t n = x.shape[dim];
  int64_t inner = 1;
  for (int d = dim + 1; d < x.rank; ++d) inner *= x.shape[d];
  const int64_t lines = x.numel / n;
  if (inner >= kFewestColumns) return for_columns<kIns>(c, lines / inner, n, inner, g);
  if (inner > 1) return for_transposed<kIns>(c, lines / inner, n, inner, f);
  if constexpr (kIns == 1)
    if (n < kShortRow && lines >= kLeastLines) return for_short_rows(c, lines, n, g);
  parallel_for(0, lines, std::max<int64_t>(1, 8192 / n), [&](int64_t first, int64_t last) {
    for (int64_t r = first; r < last; ++r) {
      Line<kIns> line{{}, c.out[0].as<float>() + r * n, n};
      for (int i = 0; i < kIns; ++i) line.in[i] = c.in[i].as<float>() + r * n;
      f(line);
    }
  });
}

void softmax_lines(const KernelCall& c) {
  const RowLoops& l = row_loops();
  for_lines<1>(
      c,
      [&](const Line<1>& v) {
        const float sum = l.exp(v.out, v.in[0], l.max(v.in[0], v.n), v.n);
        l.scale(v.out, v.out, 1.0f / sum, v.n);
      },
      [&](const Columns& v, float* y, const float* const* in) { l.column_softmax(v, y, in[0]); });
}

void log_softmax_lines(const KernelCall& c) {
  const RowLoops& l = row_loops();
  for_lines<1>(
      c,
      [&](const Line<1>& v) {
        const float top = l.max(v.in[0], v.n);
        const float sum = l.exp(v.out, v.in[0], top, v.n);
        l.log_softmax(v.out, v.in[0], top, tdm_logf(sum), v.n);
      },
      [&](const Columns& v, float* y, const float* const* in) {
        l.column_log_softmax(v, y, in[0]);
      });
}

void softmax_backward_lines(const KernelCall& c) {
  const RowLoops& l = row_loops();
  for_lines<2>(
      c,
      [&](const Line<2>& v) {
        l.softmax_grad(v.out, v.in[0], v.in[1], l.dot(v.in[0], v.in[1], v.n), v.n);
      },
      [&](const Columns& v, float* gx, const float* const* in) {
        l.column_softmax_grad(v, gx, in[0], in[1]);
      });
}

void log_softmax_backward_lines(const KernelCall& c) {
  const RowLoops& l = row_loops();
  for_lines<2>(
      c,
      [&](const Line<2>& v) {
        l.log_softmax_grad(v.out, v.in[0], v.in[1], l.sum(v.in[0], v.n), v.n);
      },
      [&](const Columns& v, float* gx, const float* const* in) {
        l.column_log_softmax_grad(v, gx, in[0], in[1]);
      });
}

}  // namespace

void register_softmax_kernels() {
  auto add = [](const OpDef& op, void (*run)(const KernelCall&)) {
    register_kernel(DeviceKind::cpu, op, {lines_supported, nullptr, nullptr, run});
  };
  add(op::softmax, softmax_lines);
  add(op::log_softmax, log_softmax_lines);
  add(op::softmax_backward, softmax_backward_lines);
  add(op::log_softmax_backward, log_softmax_backward_lines);
}

}  // namespace tandem::detail
