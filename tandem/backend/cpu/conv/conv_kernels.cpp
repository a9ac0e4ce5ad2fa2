// SPDX-License-Identifier: Apache-2.0
// Own f32 convolution by patches and matmuls. The derivative with respect to the weight serves
// every build: its sums are split into parts determined by the shape, so its bits do not depend on
// the thread count (oneDNN's do). The other two rows serve builds without oneDNN, and all three,
// widened, 16-bit arrays on processors without 16-bit matmuls.
#include <algorithm>
#include <cstring>

#include "tandem/backend/cpu/conv/conv_internal.h"
#include "tandem/backend/cpu/gemm/gemm_internal.h"
#include "tandem/backend/cpu/registry_internal.h"
#include "tandem/backend/cpu/widened_internal.h"
#include "tandem/base/parallel.h"
#include "tandem/ops/conv/conv.h"

namespace tandem::detail {
namespace {

constexpr int64_t kDepth = 256;  ///< pixels summed in one chain
constexpr int64_t kUnits = 16;   ///< about how many pieces of work a derivative is split into

// ---- derivative with respect to the weight: gw[o][m] = sum over pixels of gy[pixel][o] *
// patch[pixel][m]

// Parts of the pixels and columns of patches per unit of work, determined by the shape alone.
void cut(const ConvSizes& s, int64_t& parts, int64_t& columns) {
  const int64_t panel = micro_table<float>().panel();
  const int64_t panels = micro_table<float>().panels(s.patch());
  const int64_t blocks = (s.n * s.pixels + kDepth - 1) / kDepth;
  parts = std::clamp<int64_t>(kUnits / (panels * s.groups), 1, std::max<int64_t>(blocks / 8, 1));
  const int64_t pieces = std::max<int64_t>(kUnits / (parts * s.groups), 1);
  columns = std::min((panels + pieces - 1) / pieces, int64_t{16}) * panel;
}

std::shared_ptr<const Plan> weight_prepare(const KernelCall& c) {
  auto plan = std::make_shared<ConvPlan>();
  ConvSizes s(c.get_attrs<ConvAttrs>(), c.in[0], c.out[0], c.in[1]);
  plan->first = plan->activation(c.in[0]);
  plan->second = plan->activation(c.in[1]);
  cut(s, plan->parts, plan->columns);
  plan->parts_at = plan->take(conv_bytes(plan->parts * s.o * s.patch()));
  plan->workers = num_threads();
  const int64_t row = s.patch() + 16;
  plan->worker_bytes = conv_bytes(kDepth * plan->columns + 16) +
                       conv_bytes(kDepth * (s.group_out() + 16)) + conv_bytes(row);
  plan->workers_at = plan->take(plan->worker_bytes * static_cast<size_t>(plan->workers));
  return plan;
}

// Adds the pixels of one part to columns m0..m1 of partial [o][patch].
class WeightUnit {
 public:
  WeightUnit(const ConvSizes& s, const float* x, const float* gy, char* buffer, int64_t columns)
      : s_(s),
        x_(x),
        gy_(gy),
        b_(reinterpret_cast<float*>(buffer)),
        a_(reinterpret_cast<float*>(buffer + conv_bytes(kDepth * columns + 16))) {
    pack_a_ = s.o * 4 % 1024 == 0 && s.pixels * s.n > 16;
  }

  void run(int64_t group, int64_t p0, int64_t p1, int64_t m0, int64_t m1, float* partial) {
    const MicroTable<float>& t = micro_table<float>();
    const int64_t panel = t.panel(), rows = s_.group_out();
    const int64_t tiles = (rows + t.rows - 1) / t.rows;
    for (int64_t p = p0; p < p1; p += kDepth) {
      const int64_t depth = std::min(kDepth, p1 - p);
      const float* gy = gy_ + p * s_.o + group * rows;
      if (pack_a_) copy_rows(gy, depth, rows, tiles);
      for (int64_t m = m0; m < m1; m += panel) {
        const int64_t width = std::min(panel, m1 - m);
        gather_patches(s_, x_, group, p, p + depth, m, width, b_, panel);
        MicroCall<float> c;
        c.k = depth;
        c.b = b_;
        c.b_row = panel;
        c.c_row = s_.patch();
        c.columns = static_cast<int>(width);
        c.accumulate = p > p0;
        c.am = 1;
        for (int64_t i = 0; i < tiles; ++i) {
          const int64_t r0 = rows * i / tiles, r1 = rows * (i + 1) / tiles;
          c.a = pack_a_ ? a_ + r0 * depth : gy + r0;
          c.ak = pack_a_ ? r1 - r0 : s_.o;
          c.c = partial + (group * rows + r0) * c.c_row + m;
          t.run(r1 - r0, c);
        }
      }
    }
  }

 private:
  // a_[tile][pixel][rows of the tile]
  void copy_rows(const float* gy, int64_t depth, int64_t rows, int64_t tiles) {
    for (int64_t i = 0; i < tiles; ++i) {
      const int64_t r0 = rows * i / tiles, n = rows * (i + 1) / tiles - r0;
      float* to = a_ + r0 * depth;
      for (int64_t k = 0; k < depth; ++k)
        for (int64_t r = 0; r < n; ++r) to[k * n + r] = gy[k * s_.o + r0 + r];
    }
  }

  const ConvSizes& s_;
  const float *x_, *gy_;
  float *b_, *a_;
  bool pack_a_;
};

void weight_run(const KernelCall& c) {
  const auto& plan = *static_cast<const ConvPlan*>(c.plan);
  ConvSizes s(c.get_attrs<ConvAttrs>(), c.in[0], c.out[0], c.in[1]);
  const float* x = conv_read(c, 0, plan.first);
  const float* gy = conv_read(c, 1, plan.second);
  auto* partial = reinterpret_cast<float*>(conv_scratch(c, plan.parts_at));
  const int64_t blocks = (s.patch() + plan.columns - 1) / plan.columns;
  const int64_t units = plan.parts * s.groups * blocks, total = s.n * s.pixels;
  const int64_t chains = (total + kDepth - 1) / kDepth;
  parallel_for(0, plan.workers, 1, [&](int64_t first, int64_t last) {
    for (int64_t w = first; w < last; ++w) {
      char* buffer = conv_scratch(c, plan.workers_at + static_cast<size_t>(w) * plan.worker_bytes);
      WeightUnit unit(s, x, gy, buffer, plan.columns);
      for (int64_t u = units * w / plan.workers; u < units * (w + 1) / plan.workers; ++u) {
        const int64_t part = u / (s.groups * blocks), group = u / blocks % s.groups;
        const int64_t m0 = u % blocks * plan.columns;
        const int64_t p0 = chains * part / plan.parts * kDepth;
        const int64_t p1 = std::min(chains * (part + 1) / plan.parts * kDepth, total);
        unit.run(group, p0, p1, m0, std::min(m0 + plan.columns, s.patch()),
                 partial + part * s.o * s.patch());
      }
    }
  });
  parallel_for(0, plan.workers, 1, [&](int64_t first, int64_t last) {
    for (int64_t w = first; w < last; ++w) {
      char* buffer = conv_scratch(c, plan.workers_at + static_cast<size_t>(w) * plan.worker_bytes);
      add_weight_parts(s, partial, plan.parts, reinterpret_cast<float*>(buffer),
                       s.o * w / plan.workers, s.o * (w + 1) / plan.workers, c.out[0].as<float>());
    }
  });
}

// ---- forward: y[pixel][o] = bias[o] + patch[pixel][:] . w[o][:]

constexpr int64_t kPixels = 56;  ///< of one matmul

std::shared_ptr<const Plan> forward_prepare(const KernelCall& c) {
  auto plan = std::make_shared<ConvPlan>();
  const Array &x = c.in[0], &w = c.in[1], &y = c.out[0];
  ConvSizes s(c.get_attrs<ConvAttrs>(), x, w, y);
  plan->first = plan->activation(x);
  plan->second = plan->activation(y);
  plan->weight = plan->take(conv_bytes(w.numel));
  plan->workers = num_threads();
  plan->worker_bytes = conv_bytes(kPixels * s.patch()) +
                       whole_lines(gemm_scratch<float>(kPixels, s.group_out(), s.patch()));
  plan->workers_at = plan->take(plan->worker_bytes * static_cast<size_t>(plan->workers));
  return plan;
}

void forward_run(const KernelCall& c) {
  const auto& plan = *static_cast<const ConvPlan*>(c.plan);
  ConvSizes s(c.get_attrs<ConvAttrs>(), c.in[0], c.in[1], c.out[0]);
  const float* x = conv_read(c, 0, plan.first);
  auto* weight = reinterpret_cast<float*>(conv_scratch(c, plan.weight));
  conv_pack_weight(c.in[1], weight);
  float* y = conv_written(c, plan.second);
  const float* bias = c.n_in > 2 && c.in[2].present() ? c.in[2].as<float>() : nullptr;
  const int64_t total = s.n * s.pixels, units = (total + kPixels - 1) / kPixels;
  parallel_for(0, plan.workers, 1, [&](int64_t first, int64_t last) {
    for (int64_t wk = first; wk < last; ++wk) {
      char* buffer = conv_scratch(c, plan.workers_at + static_cast<size_t>(wk) * plan.worker_bytes);
      auto* patches = reinterpret_cast<float*>(buffer);
      for (int64_t u = units * wk / plan.workers; u < units * (wk + 1) / plan.workers; ++u) {
        const int64_t p0 = u * kPixels, p1 = std::min(p0 + kPixels, total);
        for (int64_t g = 0; g < s.groups; ++g) {
          gather_patches(s, x, g, p0, p1, 0, s.patch(), patches, s.patch());
          Gemm<float> m;
          m.m = p1 - p0;
          m.n = s.group_out();
          m.k = s.patch();
          m.a = patches;
          m.am = s.patch();
          m.ak = 1;
          m.b = weight + g * m.n * m.k;
          m.bk = 1;
          m.bn = m.k;
          m.c = y + p0 * s.o + g * m.n;
          m.c_row = s.o;
          m.bias = bias ? bias + g * m.n : nullptr;
          gemm_serial(m, buffer + conv_bytes(kPixels * s.patch()));
        }
      }
    }
  });
  conv_store(c, plan.second);
}

// ---- derivative with respect to the input: patches = gy[pixel][:] w[:][m], added back into place

std::shared_ptr<const Plan> input_prepare(const KernelCall& c) {
  auto plan = std::make_shared<ConvPlan>();
  const Array &gy = c.in[0], &w = c.in[1], &gx = c.out[0];
  ConvSizes s(c.get_attrs<ConvAttrs>(), gx, w, gy);
  plan->first = plan->activation(gy);
  plan->second = plan->activation(gx);
  plan->weight = plan->take(conv_bytes(w.numel));
  plan->workers = num_threads();
  plan->worker_bytes = conv_bytes(kPixels * s.patch()) +
                       whole_lines(gemm_scratch<float>(kPixels, s.patch(), s.group_out()));
  plan->workers_at = plan->take(plan->worker_bytes * static_cast<size_t>(plan->workers));
  return plan;
}

void input_run(const KernelCall& c) {
  const auto& plan = *static_cast<const ConvPlan*>(c.plan);
  ConvSizes s(c.get_attrs<ConvAttrs>(), c.out[0], c.in[1], c.in[0]);
  const float* gy = conv_read(c, 0, plan.first);
  auto* weight = reinterpret_cast<float*>(conv_scratch(c, plan.weight));
  conv_pack_weight(c.in[1], weight);
  float* gx = conv_written(c, plan.second);
  parallel_for(0, plan.workers, 1, [&](int64_t first, int64_t last) {
    for (int64_t wk = first; wk < last; ++wk) {
      char* buffer = conv_scratch(c, plan.workers_at + static_cast<size_t>(wk) * plan.worker_bytes);
      auto* patches = reinterpret_cast<float*>(buffer);
      for (int64_t n = s.n * wk / plan.workers; n < s.n * (wk + 1) / plan.workers; ++n) {
        const int64_t size = s.in_pixels * s.c;
        std::memset(gx + n * size, 0, static_cast<size_t>(size) * sizeof(float));
        for (int64_t p0 = n * s.pixels; p0 < (n + 1) * s.pixels; p0 += kPixels) {
          const int64_t p1 = std::min(p0 + kPixels, (n + 1) * s.pixels);
          for (int64_t g = 0; g < s.groups; ++g) {
            Gemm<float> m;
            m.m = p1 - p0;
            m.n = s.patch();
            m.k = s.group_out();
            m.a = gy + p0 * s.o + g * m.k;
            m.am = s.o;
            m.ak = 1;
            m.b = weight + g * m.k * m.n;
            m.bk = m.n;
            m.bn = 1;
            m.c = patches;
            m.c_row = m.n;
            gemm_serial(m, buffer + conv_bytes(kPixels * s.patch()));
            scatter_patches(s, patches, m.n, g, p0, p1, gx);
          }
        }
      }
    }
  });
  conv_store(c, plan.second);
}

constexpr Kernel kForward{conv_supports_f32, conv_layout, forward_prepare, forward_run};
constexpr Kernel kInput{conv_supports_f32, conv_layout, input_prepare, input_run};
constexpr Kernel kWeight{conv_supports_f32, nullptr, weight_prepare, weight_run};

}  // namespace

std::shared_ptr<const Plan> own_conv_backward_weight_prepare(const KernelCall& c) {
  return conv_supports_f32(c) ? weight_prepare(c) : nullptr;
}
void own_conv_backward_weight_run(const KernelCall& c) { weight_run(c); }

void register_conv_kernels() {
  register_kernel(DeviceKind::cpu, op::conv, kWidened);
  register_kernel(DeviceKind::cpu, op::conv, kForward);
  register_kernel(DeviceKind::cpu, op::conv_backward_input, kWidened);
  register_kernel(DeviceKind::cpu, op::conv_backward_input, kInput);
  register_kernel(DeviceKind::cpu, op::conv_backward_weight, kWidened);
  register_kernel(DeviceKind::cpu, op::conv_backward_weight, kWeight);
}

}  // namespace tandem::detail
