// SPDX-License-Identifier: Apache-2.0
// Own f32 convolution of stride 1 over channels-last rows. A row of output pixels is a matmul whose
// operand is the input itself: the taps of one kernel row and their channels are adjacent, the
// kernel rows are the segments of the tile kernels. Nothing is gathered; padding is a copy of the
// rows that a unit of work reads. The derivative with respect to the input is the same matmul with
// the flipped weight. Sums do not depend on the thread count.
#include <algorithm>
#include <cstring>

#include "tandem/backend/cpu/conv/conv_internal.h"
#include "tandem/backend/cpu/gemm/gemm_internal.h"
#include "tandem/backend/cpu/registry_internal.h"
#include "tandem/base/copy_bytes.h"
#include "tandem/base/parallel.h"
#include "tandem/ops/conv/conv.h"

namespace tandem::detail {
namespace {

constexpr int64_t kFewestWidth = 8;   ///< shorter rows leave the tiles empty
constexpr int64_t kFewestDepth = 32;  ///< kernel width * channels
constexpr int64_t kUnitFlops = 2000000;

// y [n, h, w, o] from x [n, in_h, in_w, c] padded at top and left; bottom and right follow.
struct Direct {
  int64_t n, c, in_h, in_w, o, h, w, kernel_h, kernel_w, top, left;

  int64_t wide() const { return w + kernel_w - 1; }  ///< of a padded row
  int64_t depth() const { return kernel_w * c; }     ///< of one segment
  bool padded() const { return top || left || h + kernel_h - 1 != in_h || wide() != in_w; }
  int64_t panels() const { return micro_table<float>().panels(o); }
  static int64_t panel() { return micro_table<float>().panel(); }
  int64_t weight_size() const { return panels() * kernel_h * depth() * panel(); }
  /// Output rows per unit of work: enough to amortise its cost, with units for many threads.
  int64_t rows() const {
    const int64_t flops = 2 * w * o * kernel_h * depth();
    return std::clamp<int64_t>(kUnitFlops / std::max<int64_t>(flops, 1), 1, h);
  }
};

bool one(int64_t a, int64_t b) { return a == 1 && b == 1; }

bool suits(const ConvSizes& s) {
  const ConvSizes::Axis &d = s.axis[0], &h = s.axis[1], &w = s.axis[2];
  return s.groups == 1 && one(d.in, d.kernel) && d.padding == 0 && one(h.stride, h.dilation) &&
         one(w.stride, w.dilation) && h.padding < h.kernel && w.padding < w.kernel;
}

// Rows r0..r1-1 of sample n of the padded x, at `to` or in place.
const float* padded_rows(const Direct& d, const float* x, int64_t n, int64_t r0, int64_t r1,
                         float* to) {
  const int64_t row = d.in_w * d.c, wide = d.wide() * d.c;
  const float* from = x + n * d.in_h * row;
  if (!d.padded()) return from + r0 * row;
  const int64_t count = std::min(d.in_w, d.wide() - d.left) * d.c, left = d.left * d.c;
  for (int64_t r = r0; r < r1; ++r, to += wide) {
    const int64_t at = r - d.top;
    if (at < 0 || at >= d.in_h) {
      std::fill_n(to, wide, 0.0f);
      continue;
    }
    std::fill_n(to, left, 0.0f);
    copy_bytes(to + left, from + at * row, static_cast<size_t>(count) * sizeof(float));
    std::fill_n(to + left + count, wide - left - count, 0.0f);
  }
  return to - (r1 - r0) * wide;
}

// Panels of 2 * width outputs: to[panel][tap][channel][column].
void pack_forward(const Direct& d, const float* w, float* to) {  // w [o][tap][c]
  const int64_t depth = d.kernel_h * d.depth(), panel = Direct::panel();
  parallel_for(0, d.panels(), 1 + 32768 / (depth * panel), [&](int64_t first, int64_t last) {
    for (int64_t p = first; p < last; ++p)
      micro_table<float>().transpose(to + p * depth * panel, panel, w + p * panel * depth, depth,
                                     std::min(panel, d.o - p * panel), depth);
  });
}
// The flipped weight: its columns are the channels of x, its depth the outputs.
void pack_backward(const Direct& d, const float* w, float* to) {  // w [d.c][tap][d.o]
  const int64_t taps = d.kernel_h * d.kernel_w, panel = Direct::panel();
  parallel_for(0, d.panels(), 1, [&](int64_t first, int64_t last) {
    for (int64_t p = first; p < last; ++p) {
      float* row = to + p * taps * d.c * panel;
      const auto bytes = static_cast<size_t>(std::min(panel, d.o - p * panel)) * sizeof(float);
      for (int64_t t = taps - 1; t >= 0; --t)
        for (int64_t k = 0; k < d.c; ++k, row += panel)
          std::memcpy(row, w + (k * taps + t) * d.o + p * panel, bytes);
    }
  });
}

struct DirectPlan : ConvPlan {
  Direct d{};
  size_t packed = 0;
  int64_t rows = 0;
};

std::shared_ptr<const Plan> prepare(const KernelCall& c, const Direct& d, const Array& read,
                                    const Array& w) {
  auto plan = std::make_shared<DirectPlan>();
  plan->d = d;
  plan->first = plan->activation(read);
  plan->second = plan->activation(c.out[0]);
  plan->weight = plan->take(conv_bytes(w.numel + 16));
  plan->packed = plan->take(conv_bytes(d.weight_size() + 64));
  plan->rows = d.rows();
  plan->workers = num_threads();
  plan->worker_bytes = d.padded() ? conv_bytes((plan->rows + d.kernel_h - 1) * d.wide() * d.c) : 0;
  plan->workers_at = plan->take(plan->worker_bytes * static_cast<size_t>(plan->workers));
  return plan;
}

// Output rows h0..h1-1 of a sample; x is the first padded row that they read.
void multiply(const Direct& d, const float* x, const float* weight, const float* bias, int64_t rows,
              float* y) {
  const MicroTable<float>& t = micro_table<float>();
  const int64_t panel = Direct::panel(), tiles = (d.w + t.rows - 1) / t.rows;
  MicroCall<float> m;
  m.k = d.depth();
  m.segments = d.kernel_h;
  m.am = d.c;
  m.ak = 1;
  m.a_segment = d.wide() * d.c;
  m.b_row = panel;
  m.b_segment = d.depth() * panel;
  m.c_row = d.o;
  for (int64_t p = 0; p < d.panels(); ++p) {
    m.b = weight + p * d.kernel_h * m.b_segment;
    m.columns = static_cast<int>(std::min(panel, d.o - p * panel));
    m.bias = bias ? bias + p * panel : nullptr;
    for (int64_t r = 0; r < rows; ++r)
      for (int64_t i = 0; i < tiles; ++i) {
        const int64_t w0 = d.w * i / tiles, w1 = d.w * (i + 1) / tiles;
        m.a = x + (r * d.wide() + w0) * d.c;
        m.c = y + (r * d.w + w0) * d.o + p * panel;
        t.run(w1 - w0, m);
      }
  }
}

void run(const KernelCall& c, bool backward) {
  const auto& plan = *static_cast<const DirectPlan*>(c.plan);
  const Direct& d = plan.d;
  const float* x = conv_read(c, 0, plan.first);
  auto* weight = reinterpret_cast<float*>(conv_scratch(c, plan.weight));
  auto* packed = reinterpret_cast<float*>(conv_scratch(c, plan.packed));
  conv_pack_weight(c.in[1], weight);
  backward ? pack_backward(d, weight, packed) : pack_forward(d, weight, packed);
  float* y = conv_written(c, plan.second);
  const float* bias = !backward && c.n_in > 2 && c.in[2].present() ? c.in[2].as<float>() : nullptr;
  const int64_t blocks = (d.h + plan.rows - 1) / plan.rows, units = d.n * blocks;
  parallel_for(0, plan.workers, 1, [&](int64_t first, int64_t last) {
    for (int64_t k = first; k < last; ++k) {
      auto* buffer = reinterpret_cast<float*>(
          conv_scratch(c, plan.workers_at + static_cast<size_t>(k) * plan.worker_bytes));
      for (int64_t u = units * k / plan.workers; u < units * (k + 1) / plan.workers; ++u) {
        const int64_t n = u / blocks, b = u % blocks;
        const int64_t h0 = d.h * b / blocks, h1 = d.h * (b + 1) / blocks;
        const float* rows = padded_rows(d, x, n, h0, h1 + d.kernel_h - 1, buffer);
        multiply(d, rows, packed, bias, h1 - h0, y + (n * d.h + h0) * d.w * d.o);
      }
    }
  });
  conv_store(c, plan.second);
}

// ---- forward

Direct forward_sizes(const ConvSizes& s) {
  const ConvSizes::Axis &h = s.axis[1], &w = s.axis[2];
  return {s.n, s.c, h.in, w.in, s.o, h.out, w.out, h.kernel, w.kernel, h.padding, w.padding};
}
// gx from gy: padded so that every tap that touched x touches it again.
Direct backward_sizes(const ConvSizes& s) {
  const ConvSizes::Axis &h = s.axis[1], &w = s.axis[2];
  return {s.n,
          s.o,
          h.out,
          w.out,
          s.c,
          h.in,
          w.in,
          h.kernel,
          w.kernel,
          h.kernel - 1 - h.padding,
          w.kernel - 1 - w.padding};
}

bool wants(const Direct& d) {
  return d.w >= kFewestWidth && d.depth() >= kFewestDepth && d.o >= micro_table<float>().width;
}

bool forward_supports(const KernelCall& c) {
  if (!conv_supports_f32(c)) return false;
  const ConvSizes s(c.get_attrs<ConvAttrs>(), c.in[0], c.in[1], c.out[0]);
  return suits(s) && wants(forward_sizes(s));
}
std::shared_ptr<const Plan> forward_prepare(const KernelCall& c) {
  const ConvSizes s(c.get_attrs<ConvAttrs>(), c.in[0], c.in[1], c.out[0]);
  return prepare(c, forward_sizes(s), c.in[0], c.in[1]);
}
void forward_run(const KernelCall& c) { run(c, false); }

bool input_supports(const KernelCall& c) {
  if (!conv_supports_f32(c)) return false;
  const ConvSizes s(c.get_attrs<ConvAttrs>(), c.out[0], c.in[1], c.in[0]);
  return suits(s) && wants(backward_sizes(s));
}
std::shared_ptr<const Plan> input_prepare(const KernelCall& c) {
  const ConvSizes s(c.get_attrs<ConvAttrs>(), c.out[0], c.in[1], c.in[0]);
  return prepare(c, backward_sizes(s), c.in[0], c.in[1]);
}
void input_run(const KernelCall& c) { run(c, true); }

// ---- derivative with respect to the weight: gw[o][tap][c] = sum over pixels of gy[pixel][o]
// x[pixel + tap][c]

constexpr int64_t kMostParts = 16;

bool weight_supports(const KernelCall& c) {
  if (!conv_supports_f32(c)) return false;
  const ConvSizes s(c.get_attrs<ConvAttrs>(), c.in[0], c.out[0], c.in[1]);
  return suits(s) && wants(forward_sizes(s));
}

std::shared_ptr<const Plan> weight_prepare(const KernelCall& c) {
  auto plan = std::make_shared<DirectPlan>();
  const ConvSizes s(c.get_attrs<ConvAttrs>(), c.in[0], c.out[0], c.in[1]);
  plan->d = forward_sizes(s);
  const Direct& d = plan->d;
  plan->first = plan->activation(c.in[0]);
  plan->second = plan->activation(c.in[1]);
  plan->parts = std::min(d.n, kMostParts);
  plan->parts_at = plan->take(conv_bytes(plan->parts * s.o * s.patch()));
  plan->workers = num_threads();
  plan->worker_bytes =
      std::max(conv_bytes(s.patch() + 16),
               d.padded() ? conv_bytes((d.h + d.kernel_h - 1) * d.wide() * d.c) : 0);
  plan->workers_at = plan->take(plan->worker_bytes * static_cast<size_t>(plan->workers));
  return plan;
}

// One sample, added to (or stored in) partial [o][kernel_h][kernel_w * c].
void weight_sample(const Direct& d, const float* x, const float* gy, bool add, float* partial) {
  const MicroTable<float>& t = micro_table<float>();
  const int64_t panel = Direct::panel(), tiles = (d.o + t.rows - 1) / t.rows, depth = d.depth();
  MicroCall<float> m;
  m.k = d.w;
  m.segments = d.h;
  m.am = 1;
  m.ak = d.o;
  m.a_segment = d.w * d.o;
  m.b_row = d.c;
  m.b_segment = d.wide() * d.c;
  m.c_row = d.kernel_h * depth;
  m.accumulate = add;
  for (int64_t r = 0; r < d.kernel_h; ++r)
    for (int64_t j = 0; j < depth; j += panel) {
      m.columns = static_cast<int>(std::min(panel, depth - j));
      m.b = x + r * m.b_segment + j;
      for (int64_t i = 0; i < tiles; ++i) {
        const int64_t o0 = d.o * i / tiles, o1 = d.o * (i + 1) / tiles;
        m.a = gy + o0;
        m.c = partial + o0 * m.c_row + r * depth + j;
        t.run(o1 - o0, m);
      }
    }
}

void weight_run(const KernelCall& c) {
  const auto& plan = *static_cast<const DirectPlan*>(c.plan);
  const Direct& d = plan.d;
  const ConvSizes s(c.get_attrs<ConvAttrs>(), c.in[0], c.out[0], c.in[1]);
  const float* x = conv_read(c, 0, plan.first);
  const float* gy = conv_read(c, 1, plan.second);
  auto* partial = reinterpret_cast<float*>(conv_scratch(c, plan.parts_at));
  const int64_t size = s.o * s.patch();
  auto buffer_of = [&](int64_t k) {
    return reinterpret_cast<float*>(
        conv_scratch(c, plan.workers_at + static_cast<size_t>(k) * plan.worker_bytes));
  };
  parallel_for(0, plan.workers, 1, [&](int64_t first, int64_t last) {
    for (int64_t k = first; k < last; ++k)
      for (int64_t p = plan.parts * k / plan.workers; p < plan.parts * (k + 1) / plan.workers;
           ++p) {
        const int64_t n0 = d.n * p / plan.parts, n1 = d.n * (p + 1) / plan.parts;
        for (int64_t n = n0; n < n1; ++n) {
          const float* rows = padded_rows(d, x, n, 0, d.h + d.kernel_h - 1, buffer_of(k));
          weight_sample(d, rows, gy + n * d.h * d.w * d.o, n > n0, partial + p * size);
        }
      }
  });
  parallel_for(0, plan.workers, 1, [&](int64_t first, int64_t last) {
    for (int64_t k = first; k < last; ++k)
      add_weight_parts(s, partial, plan.parts, buffer_of(k), s.o * k / plan.workers,
                       s.o * (k + 1) / plan.workers, c.out[0].as<float>());
  });
}

}  // namespace

void register_direct_conv_kernels() {
  auto add = [](const OpDef& op, const Kernel& k) { register_kernel(DeviceKind::cpu, op, k); };
  add(op::conv, {forward_supports, conv_layout, forward_prepare, forward_run});
  add(op::conv_backward_input, {input_supports, conv_layout, input_prepare, input_run});
}
// Registered before oneDNN's, whose kernels over channels-last rows take a quarter more time.
void register_direct_conv_weight_kernel() {
  register_kernel(DeviceKind::cpu, op::conv_backward_weight,
                  {weight_supports, nullptr, weight_prepare, weight_run});
}

}  // namespace tandem::detail
