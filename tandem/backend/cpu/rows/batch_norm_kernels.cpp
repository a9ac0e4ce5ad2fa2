// SPDX-License-Identifier: Apache-2.0
// Batch normalisation of f32 arrays, channels-last or row-major, forward and backward. Statistics
// are computed per block of pixels (mean and squares around it) and combined in order, so they
// neither depend on the thread count nor lose accuracy with large means.
#include <algorithm>
#include <cmath>
#include <vector>

#include "tandem/backend/cpu/registry_internal.h"
#include "tandem/backend/cpu/rows/row_internal.h"
#include "tandem/base/math_prelude.h"
#include "tandem/base/parallel.h"
#include "tandem/graph/epilogue.h"
#include "tandem/ops/nn/norm.h"
#include "tandem/ops/view/strided_copy_internal.h"

namespace tandem::detail {
namespace {

constexpr int64_t kBlockRows = 128;          ///< pixels of a block, channels-last
constexpr int64_t kEpilogueElements = 8192;  ///< of one call: they fit the L1 cache

// An array [n, c, ...] as rows: pixels of c channels (last), or planes of n * c.
struct Geometry {
  bool last = false;
  int64_t n, c, pixels = 1;

  explicit Geometry(const Array& x) : n(x.shape[0]), c(x.shape[1]) {
    for (int d = 2; d < x.rank; ++d) pixels *= x.shape[d];
    last = x.rank == 2 || (!x.contiguous && is_channels_last(x));
  }
  int64_t rows() const { return n * pixels; }
  int64_t blocks() const { return last ? (rows() + kBlockRows - 1) / kBlockRows : n; }
  double count() const { return static_cast<double>(rows()); }
};

bool dense(const Array& x) {
  return x.dtype == DType::f32 && x.rank >= 2 && x.numel > 0 &&
         (x.contiguous || is_channels_last(x));
}
bool vector_or_absent(const KernelCall& c, int i) {
  return c.n_in <= i || !c.in[i].present() || (c.in[i].dtype == DType::f32 && c.in[i].contiguous);
}
const float* vector(const KernelCall& c, int i) {
  return c.n_in > i && c.in[i].present() ? c.in[i].as<float>() : nullptr;
}

bool same_layout(const KernelCall& c, int, Strides& s) {
  const Array& x = c.op.n_in == 5 && &c.op == &op::batch_norm_backward ? c.in[1] : c.in[0];
  if (x.contiguous || c.out[0].rank != x.rank) return false;
  return strides_like(x, s);
}
bool first_output_layout(const KernelCall& c, int output, Strides& s) {
  return output == 0 && same_layout(c, output, s);
}

struct StatsPlan : EpiloguePlan {
  size_t sums = 0, vectors = 0, copy = 0;
  bool reorder = false;  ///< of the gradient
};

StatsPlan plan_for(const Geometry& g, int n_vectors) {
  StatsPlan p;
  auto take = [&](int64_t floats) {
    const size_t at = p.workspace;
    p.workspace += whole_lines(static_cast<size_t>(floats) * sizeof(float));
    return at;
  };
  p.sums = take(2 * g.blocks() * g.c);
  p.vectors = take(n_vectors * g.c);
  return p;
}

float* at(const KernelCall& c, size_t offset) {
  return reinterpret_cast<float*>(static_cast<char*>(c.scratch) + offset);
}

int64_t size_of_block(const Geometry& g, int64_t block) {
  return g.last ? std::min(kBlockRows, g.rows() - block * kBlockRows) : g.pixels;
}

// mean and squares of every block: sums[block][2][c].
void block_stats(const Geometry& g, const float* x, float* sums) {
  const RowLoops& l = row_loops();
  if (!g.last) {
    parallel_for(0, g.n * g.c, 1 + 8192 / g.pixels, [&](int64_t first, int64_t last) {
      for (int64_t p = first; p < last; ++p) {
        const float* plane = x + p * g.pixels;
        float* to = sums + p / g.c * 2 * g.c + p % g.c;
        const float mean = l.sum(plane, g.pixels) / static_cast<float>(g.pixels);
        to[0] = mean;
        to[g.c] = l.square_sum(plane, mean, g.pixels);
      }
    });
    return;
  }
  parallel_for(0, g.blocks(), 1 + 64 / g.c, [&](int64_t first, int64_t last) {
    for (int64_t b = first; b < last; ++b) {
      const int64_t rows = size_of_block(g, b);
      const float* from = x + b * kBlockRows * g.c;
      float *mean = sums + b * 2 * g.c, *m2 = mean + g.c;
      std::fill_n(mean, 2 * g.c, 0.0f);
      for (int64_t r = 0; r < rows; ++r) l.add(mean, from + r * g.c, g.c);
      for (int64_t i = 0; i < g.c; ++i) mean[i] /= static_cast<float>(rows);
      for (int64_t r = 0; r < rows; ++r) l.add_squares(m2, from + r * g.c, mean, g.c);
    }
  });
}

// Combines the blocks of channels first..last-1 (Chan's formula).
void combine_stats(const Geometry& g, const float* sums, int64_t first, int64_t last, float* mean,
                   float* var) {
  for (int64_t c = first; c < last; ++c) {
    double n = 0, m = 0, m2 = 0;
    for (int64_t b = 0; b < g.blocks(); ++b) {
      const auto k = static_cast<double>(size_of_block(g, b));
      const double d = sums[b * 2 * g.c + c] - m, total = n + k;
      m += d * k / total;
      m2 += sums[b * 2 * g.c + g.c + c] + d * d * n * k / total;
      n = total;
    }
    mean[c] = static_cast<float>(m);
    var[c] = static_cast<float>(m2 / n);
  }
}

// f(k, size, c) for every row of the result: elements k..k+size-1, all channels of a pixel or all
// pixels of channel c. The epilogue follows on some of them at a time.
template <class F>
void each_row(const Geometry& g, const Epilogue* epilogue, const F& f) {
  const int64_t rows = g.last ? g.rows() : g.n * g.c, size = g.last ? g.c : g.pixels;
  const int64_t some = 1 + kEpilogueElements / size;
  parallel_for(0, rows, 1 + 8192 / size, [&](int64_t first, int64_t last) {
    for (int64_t from = first; from < last; from += some) {
      const int64_t to = std::min(from + some, last);
      for (int64_t r = from; r < to; ++r) f(r * size, size, r % g.c);
      if (epilogue) epilogue->run(*epilogue, from * size, to * size, 0, 1);
    }
  });
}

// y = (x - mean) * scale + shift per channel.
void affine(const Geometry& g, const float* x, const float* mean, const float* scale,
            const float* shift, float* y, const Epilogue* epilogue) {
  const RowLoops& l = row_loops();
  each_row(g, epilogue, [&](int64_t k, int64_t size, int64_t c) {
    if (g.last)
      l.channel_affine(y + k, x + k, mean, scale, shift, size);
    else
      l.affine(y + k, x + k, mean[c], scale[c], shift[c], size);
  });
}

// ---- training

bool train_supports(const KernelCall& c) {
  return dense(c.in[0]) && vector_or_absent(c, 1) && vector_or_absent(c, 2);
}

void train_with(const KernelCall& c, const Epilogue* epilogue);

std::shared_ptr<const Plan> train_prepare(const KernelCall& c) {
  auto plan = std::make_shared<StatsPlan>(plan_for(Geometry(c.in[0]), 2));
  plan->run_with = [](const KernelCall& call, const Epilogue& e) { train_with(call, &e); };
  return plan;
}
EpilogueKind by_ranges(const KernelCall&) { return EpilogueKind::ranges; }

void train_with(const KernelCall& c, const Epilogue* epilogue) {
  const auto& plan = *static_cast<const StatsPlan*>(c.plan);
  const auto eps = static_cast<float>(c.get_attrs<NormAttrs>().eps);
  Geometry g(c.in[0]);
  const float *x = c.in[0].as<float>(), *w = vector(c, 1), *b = vector(c, 2);
  float *mean = c.out[1].as<float>(), *var = c.out[2].as<float>(), *rstds = c.out[3].as<float>();
  float *sums = at(c, plan.sums), *scale = at(c, plan.vectors), *shift = scale + g.c;
  block_stats(g, x, sums);
  parallel_for(0, g.c, 1 + 4096 / g.blocks(), [&](int64_t first, int64_t last) {
    combine_stats(g, sums, first, last, mean, var);
    for (int64_t i = first; i < last; ++i) {
      const float rstd = tdm_rsqrtf(var[i] + eps);
      if (rstds) rstds[i] = rstd;
      scale[i] = w ? rstd * w[i] : rstd;
      shift[i] = b ? b[i] : 0.0f;
    }
  });
  affine(g, x, mean, scale, shift, c.out[0].as<float>(), epilogue);
}
void train_run(const KernelCall& c) { train_with(c, nullptr); }

// ---- inference

bool infer_supports(const KernelCall& c) {
  if (!dense(c.in[0])) return false;
  for (int i = 1; i < 5; ++i)
    if (!vector_or_absent(c, i)) return false;
  return true;
}

std::shared_ptr<const Plan> infer_prepare(const KernelCall& c) {
  auto plan = std::make_shared<StatsPlan>();
  plan->workspace = static_cast<size_t>(2 * c.in[0].shape[1]) * sizeof(float);
  return plan;
}

void infer_run(const KernelCall& c) {
  const auto eps = static_cast<float>(c.get_attrs<NormAttrs>().eps);
  Geometry g(c.in[0]);
  const float *mean = vector(c, 1), *var = vector(c, 2), *w = vector(c, 3), *b = vector(c, 4);
  float *scale = at(c, 0), *shift = scale + g.c;
  for (int64_t i = 0; i < g.c; ++i) {
    const float rstd = tdm_rsqrtf(var[i] + eps);
    scale[i] = w ? rstd * w[i] : rstd;
    shift[i] = b ? b[i] : 0.0f;
  }
  affine(g, c.in[0].as<float>(), mean, scale, shift, c.out[0].as<float>(), nullptr);
}

// ---- backward

bool backward_supports(const KernelCall& c) {
  if (!dense(c.in[1]) || c.in[0].dtype != DType::f32) return false;
  for (int i = 2; i < 5; ++i)
    if (!vector_or_absent(c, i)) return false;
  return true;
}

void backward_with(const KernelCall& c, const Epilogue* epilogue);

std::shared_ptr<const Plan> backward_prepare(const KernelCall& c) {
  Geometry g(c.in[1]);
  auto plan = std::make_shared<StatsPlan>(plan_for(g, 3));
  plan->run_with = [](const KernelCall& call, const Epilogue& e) { backward_with(call, &e); };
  const Array& gy = c.in[0];
  plan->reorder = g.last && gy.rank > 2 ? !is_channels_last(gy) : !gy.contiguous;
  plan->copy = plan->workspace;
  if (plan->reorder) plan->workspace += static_cast<size_t>(gy.numel) * sizeof(float);
  return plan;
}

// Sums of gy and gy * xhat of every block: sums[block][2][c].
void block_grads(const Geometry& g, const float* gy, const float* x, const float* mean,
                 const float* rstd, float* sums) {
  const RowLoops& l = row_loops();
  if (!g.last) {
    parallel_for(0, g.n * g.c, 1 + 8192 / g.pixels, [&](int64_t first, int64_t last) {
      for (int64_t p = first; p < last; ++p) {
        const int64_t c = p % g.c, from = p * g.pixels;
        float s[2];
        l.norm_sums(gy + from, x + from, nullptr, mean[c], rstd[c], g.pixels, s);
        float* to = sums + p / g.c * 2 * g.c + c;
        to[0] = s[0];
        to[g.c] = s[1];
      }
    });
    return;
  }
  parallel_for(0, g.blocks(), 1 + 64 / g.c, [&](int64_t first, int64_t last) {
    for (int64_t b = first; b < last; ++b) {
      float* to = sums + b * 2 * g.c;
      std::fill_n(to, 2 * g.c, 0.0f);
      for (int64_t r = 0; r < size_of_block(g, b); ++r) {
        const int64_t from = (b * kBlockRows + r) * g.c;
        l.channel_sums(to, to + g.c, gy + from, x + from, mean, rstd, g.c);
      }
    }
  });
}

void backward_with(const KernelCall& c, const Epilogue* epilogue) {
  const auto& a = c.get_attrs<NormBackwardAttrs>();
  const auto& plan = *static_cast<const StatsPlan*>(c.plan);
  Geometry g(c.in[1]);
  const float *gy = c.in[0].as<float>(), *x = c.in[1].as<float>();
  const float *mean = vector(c, 2), *rstd = vector(c, 3), *w = vector(c, 4);
  if (plan.reorder) {
    float* copy = at(c, plan.copy);
    const Array& from = c.in[0];
    if (g.last && from.rank > 2) {
      to_channels_last(from, copy);
    } else {
      Array to = c.in[1];
      to.data = copy;
      copy_array(to, from);
    }
    gy = copy;
  }
  float *sums = at(c, plan.sums), *sg = at(c, plan.vectors), *sx = sg + g.c, *scale = sx + g.c;
  block_grads(g, gy, x, mean, rstd, sums);
  const double n = g.count();
  parallel_for(0, g.c, 1 + 4096 / g.blocks(), [&](int64_t first, int64_t last) {
    for (int64_t i = first; i < last; ++i) {
      double s = 0, t = 0;
      for (int64_t b = 0; b < g.blocks(); ++b) {
        s += sums[b * 2 * g.c + i];
        t += sums[b * 2 * g.c + g.c + i];
      }
      if (a.weight) c.out[1].as<float>()[i] = static_cast<float>(t);
      if (a.bias) c.out[2].as<float>()[i] = static_cast<float>(s);
      sg[i] = static_cast<float>(s / n);
      sx[i] = static_cast<float>(t / n);
      scale[i] = w ? rstd[i] * w[i] : rstd[i];
    }
  });
  const RowLoops& l = row_loops();
  float* gx = c.out[0].as<float>();
  each_row(g, epilogue, [&](int64_t k, int64_t size, int64_t i) {
    if (g.last)
      l.channel_grad(gx + k, gy + k, x + k, mean, rstd, sg, sx, scale, size);
    else
      l.norm_grad(gx + k, gy + k, x + k, nullptr, mean[i], rstd[i], sg[i], sx[i], scale[i], size);
  });
}
void backward_run(const KernelCall& c) { backward_with(c, nullptr); }

}  // namespace

void register_batch_norm_kernels() {
  auto add = [](const OpDef& op, const Kernel& k) { register_kernel(DeviceKind::cpu, op, k); };
  register_epilogue(train_prepare, by_ranges);
  register_epilogue(backward_prepare, by_ranges);
  add(op::batch_norm_train, {train_supports, first_output_layout, train_prepare, train_run});
  add(op::batch_norm_infer, {infer_supports, first_output_layout, infer_prepare, infer_run});
  add(op::batch_norm_backward,
      {backward_supports, first_output_layout, backward_prepare, backward_run});
}

}  // namespace tandem::detail
