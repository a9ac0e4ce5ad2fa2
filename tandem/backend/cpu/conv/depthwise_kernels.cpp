// SPDX-License-Identifier: Apache-2.0
// Own depthwise convolution and its derivatives over channels-last rows, in f32; 16-bit arrays are
// widened row by row. With respect to the weight, gw[c][tap] = sum over pixels of
// gy[pixel][c] x[pixel + tap][c]: rows of outputs are split into parts determined by the shape,
// each with sums [tap][c] of its own that are added in order, so bits do not depend on threads. Of
// the other two, every row of y and of gx is a unit; the derivative with respect to the input is,
// of stride 1, a convolution with the flipped weight, else products are added where they belong.
#include <algorithm>

#include "tandem/backend/cpu/conv/channel_loops.h"
#include "tandem/backend/cpu/conv/conv_internal.h"
#include "tandem/backend/cpu/conv/wide_rows_internal.h"
#include "tandem/backend/cpu/registry_internal.h"
#include "tandem/backend/cpu/widened_internal.h"
#include "tandem/base/parallel.h"
#include "tandem/ops/conv/conv.h"

namespace tandem::detail {
namespace {

constexpr int64_t kMostParts = 16;
constexpr int64_t kPartProducts = 1 << 17;  ///< at least, of one part

// Whether each channel of x and y has a kernel of its own.
bool is_depthwise(const KernelCall& c, const Array& x, const Array& y) {
  const int64_t groups = c.get_attrs<ConvAttrs>().groups;
  return groups > 1 && x.shape[1] == groups && y.shape[1] == groups;
}

DepthwiseGradRow grad_row(const ConvSizes& s) {
  const ConvSizes::Axis& w = s.axis[2];
  DepthwiseGradRow r{};
  r.c = s.c;
  r.in_w = w.in;
  r.w = w.out;
  r.left = w.padding;
  r.stride = w.stride;
  r.dilation = w.dilation;
  r.kernel_w = static_cast<int>(w.kernel);
  return r;
}

// ---- with respect to the weight

bool weight_supports(const KernelCall& c) {
  return conv_supports_floats(c) && is_depthwise(c, c.in[0], c.in[1]);
}

std::shared_ptr<const Plan> weight_prepare(const KernelCall& c) {
  auto plan = std::make_shared<ConvPlan>();
  const ConvSizes s(c.get_attrs<ConvAttrs>(), c.in[0], c.out[0], c.in[1]);
  plan->first = plan->activation(c.in[0]);
  plan->second = plan->activation(c.in[1]);
  const int64_t rows = s.n * s.axis[0].out * s.axis[1].out;
  const int64_t products = s.n * s.pixels * s.taps * s.c;
  plan->parts = std::clamp<int64_t>(products / kPartProducts, 1, std::min(kMostParts, rows));
  plan->parts_at = plan->take(conv_bytes(plan->parts * s.taps * s.c));
  return plan;
}

// Adds output row `row`, counted over samples and depth, to sum [tap][c].
void add_row(const ConvSizes& s, WideRows& x, WideRows& gy, int64_t row, float* sum) {
  const ConvSizes::Axis &d = s.axis[0], &h = s.axis[1], &w = s.axis[2];
  const int64_t n = row / (d.out * h.out), od = row / h.out % d.out, oh = row % h.out;
  DepthwiseGradRow r = grad_row(s);
  r.gy = gy.at(row);
  for (int64_t kd = 0; kd < d.kernel; ++kd)
    for (int64_t kh = 0; kh < h.kernel; ++kh) {
      const int64_t id = d.at(od, kd), ih = h.at(oh, kh);
      if (id < 0 || id >= d.in || ih < 0 || ih >= h.in) continue;
      r.from = x.at((n * d.in + id) * h.in + ih);
      r.to = sum + (kd * h.kernel + kh) * w.kernel * s.c;
      channel_loops().depthwise_weight(r);
    }
}

// Rows of x that outputs of neighbouring rows share.
int rows_kept(const ConvSizes& s) {
  const ConvSizes::Axis &d = s.axis[0], &h = s.axis[1];
  return static_cast<int>(std::min<int64_t>(d.kernel * ((h.kernel - 1) * h.dilation + 1), 32));
}

void weight_run(const KernelCall& c) {
  const auto& plan = *static_cast<const ConvPlan*>(c.plan);
  const ConvSizes s(c.get_attrs<ConvAttrs>(), c.in[0], c.out[0], c.in[1]);
  const void *all_x = conv_read_any(c, 0, plan.first), *all_gy = conv_read_any(c, 1, plan.second);
  auto* partial = reinterpret_cast<float*>(conv_scratch(c, plan.parts_at));
  const int64_t size = s.taps * s.c, rows = s.n * s.axis[0].out * s.axis[1].out;
  parallel_for(0, plan.parts, 1, [&](int64_t first, int64_t last) {
    WideRows x(all_x, c.in[0].dtype, s.axis[2].in * s.c, rows_kept(s));
    WideRows gy(all_gy, c.in[1].dtype, s.axis[2].out * s.c, 1);
    for (int64_t p = first; p < last; ++p) {
      float* sum = partial + p * size;
      std::fill_n(sum, size, 0.0f);
      for (int64_t r = rows * p / plan.parts; r < rows * (p + 1) / plan.parts; ++r)
        add_row(s, x, gy, r, sum);
    }
  });
  NarrowRows result(c.out[0].data, c.out[0].dtype, size);
  float* gw = result.begin(0);
  parallel_for(0, s.c, 1 + 8192 / s.taps, [&](int64_t first, int64_t last) {
    for (int64_t t = 0; t < s.taps; ++t) {
      float* sum = partial + t * s.c;
      for (int64_t p = 1; p < plan.parts; ++p)
        for (int64_t i = first; i < last; ++i) sum[i] += sum[p * size + i];
      for (int64_t i = first; i < last; ++i) gw[i * s.taps + t] = sum[i];
    }
  });
  result.done(0);
}

// ---- forward, and with respect to the input

constexpr int64_t kMostRows = 16;  ///< rows of taps

bool forward_supports(const KernelCall& c) {
  if (!conv_supports_floats(c) || !is_depthwise(c, c.in[0], c.out[0])) return false;
  const ConvSizes s(c.get_attrs<ConvAttrs>(), c.in[0], c.in[1], c.out[0]);
  return s.axis[0].kernel * s.axis[1].kernel <= kMostRows && s.axis[2].dilation == 1 &&
         s.axis[2].padding >= 0;
}

// Scratch of both: the activations, the weight as [tap][c] and as [c][tap], a row of zeros.
std::shared_ptr<const Plan> rows_prepare(const ConvSizes& s, const Array& read,
                                         const Array& written) {
  auto plan = std::make_shared<ConvPlan>();
  plan->first = plan->activation(read);
  plan->second = plan->activation(written);
  plan->weight = plan->take(conv_bytes(s.taps * s.c));
  plan->workers_at = plan->take(conv_bytes(s.taps * s.c));
  plan->parts_at = plan->take(conv_bytes(std::max(s.axis[2].in, s.axis[2].out) * s.c));
  return plan;
}

const float* turned_weight(const KernelCall& c, const ConvPlan& plan, const ConvSizes& s,
                           bool flipped) {
  auto* weight = reinterpret_cast<float*>(conv_scratch(c, plan.weight));
  auto* w = reinterpret_cast<float*>(conv_scratch(c, plan.workers_at));
  c.in[1].dtype == DType::f32 ? conv_pack_weight(c.in[1], w) : widen_dense(c.in[1], w);
  for (int64_t i = 0; i < s.c; ++i)
    for (int64_t t = 0; t < s.taps; ++t)
      weight[(flipped ? s.taps - 1 - t : t) * s.c + i] = w[i * s.taps + t];
  return weight;
}
const float* row_of_zeros(const KernelCall& c, const ConvPlan& plan, const ConvSizes& s) {
  auto* zeros = reinterpret_cast<float*>(conv_scratch(c, plan.parts_at));
  std::fill_n(zeros, std::max(s.axis[2].in, s.axis[2].out) * s.c, 0.0f);
  return zeros;
}

std::shared_ptr<const Plan> forward_prepare(const KernelCall& c) {
  const ConvSizes s(c.get_attrs<ConvAttrs>(), c.in[0], c.in[1], c.out[0]);
  return rows_prepare(s, c.in[0], c.out[0]);
}

// The bias as f32, or nullptr; written over the weight as [c][tap].
const float* wide_bias(const KernelCall& c, const ConvPlan& plan) {
  if (c.n_in <= 2 || !c.in[2].present()) return nullptr;
  if (c.in[2].dtype == DType::f32) return c.in[2].as<float>();
  auto* bias = reinterpret_cast<float*>(conv_scratch(c, plan.workers_at));
  widen_dense(c.in[2], bias);
  return bias;
}

void forward_run(const KernelCall& c) {
  const auto& plan = *static_cast<const ConvPlan*>(c.plan);
  const ConvSizes s(c.get_attrs<ConvAttrs>(), c.in[0], c.in[1], c.out[0]);
  const ConvSizes::Axis &d = s.axis[0], &h = s.axis[1], &w = s.axis[2];
  const void* all_x = conv_read_any(c, 0, plan.first);
  void* all_y = conv_written_any(c, plan.second);
  const float* zeros = row_of_zeros(c, plan, s);
  DepthwiseRow all{};
  all.weight = turned_weight(c, plan, s, false);
  all.bias = wide_bias(c, plan);
  all.c = s.c;
  all.in_w = w.in;
  all.w = w.out;
  all.left = w.padding;
  all.kernel_h = static_cast<int>(d.kernel * h.kernel);
  all.kernel_w = static_cast<int>(w.kernel);
  all.stride = static_cast<int>(w.stride);
  const int64_t width = w.out * s.c, rows = s.n * d.out * h.out;
  parallel_for(0, rows, 1 + 32768 / (width * s.taps), [&](int64_t first, int64_t last) {
    const float* taps[kMostRows];
    WideRows x(all_x, c.in[0].dtype, w.in * s.c, all.kernel_h);
    NarrowRows y(all_y, c.out[0].dtype, width);
    DepthwiseRow r = all;
    r.rows = taps;
    for (int64_t row = first; row < last; ++row) {
      const int64_t n = row / (d.out * h.out), od = row / h.out % d.out, oh = row % h.out;
      int count = 0;
      for (int64_t kd = 0; kd < d.kernel; ++kd)
        for (int64_t kh = 0; kh < h.kernel; ++kh) {
          const int64_t id = d.at(od, kd), ih = h.at(oh, kh);
          const bool inside = id >= 0 && id < d.in && ih >= 0 && ih < h.in;
          taps[count++] = inside ? x.at((n * d.in + id) * h.in + ih) : zeros;
        }
      r.y = y.begin(row);
      channel_loops().depthwise(r);
      y.done(row);
    }
  });
  conv_store(c, plan.second);
}

bool input_supports(const KernelCall& c) {
  if (!conv_supports_floats(c) || !is_depthwise(c, c.in[0], c.out[0])) return false;
  const ConvSizes s(c.get_attrs<ConvAttrs>(), c.out[0], c.in[1], c.in[0]);
  return s.axis[0].kernel * s.axis[1].kernel <= kMostRows;
}

std::shared_ptr<const Plan> input_prepare(const KernelCall& c) {
  const ConvSizes s(c.get_attrs<ConvAttrs>(), c.out[0], c.in[1], c.in[0]);
  return rows_prepare(s, c.in[0], c.out[0]);
}

// Row `row` of gx, counted over samples and depth; weight [tap][c] is flipped for stride 1.
class InputRow {
 public:
  InputRow(const ConvSizes& s, WideRows& gy, const float* weight, const float* zeros)
      : s_(s), gy_(gy), weight_(weight), zeros_(zeros) {}

  static bool flips(const ConvSizes& s) {
    const auto plain = [](const ConvSizes::Axis& a) { return a.stride == 1 && a.dilation == 1; };
    return plain(s.axis[0]) && plain(s.axis[1]) && plain(s.axis[2]) &&
           s.axis[2].padding < s.axis[2].kernel;
  }

  void run(int64_t row, bool flipped, float* gx) const {
    const ConvSizes::Axis &d = s_.axis[0], &h = s_.axis[1];
    const int64_t n = row / (d.in * h.in), id = row / h.in % d.in, ih = row % h.in;
    const float* rows[kMostRows];
    int count = 0;
    for (int64_t kd = 0; kd < d.kernel; ++kd)
      for (int64_t kh = 0; kh < h.kernel; ++kh, ++count) {
        const int64_t od = output(d, id, kd), oh = output(h, ih, kh);
        const bool inside = od >= 0 && oh >= 0;
        rows[count] = inside ? gy_.at((n * d.out + od) * h.out + oh) : nullptr;
      }
    flipped ? convolve(rows, count, gx) : add(rows, count, gx);
  }

 private:
  // The output that reads input `at` by tap k, or -1.
  static int64_t output(const ConvSizes::Axis& a, int64_t at, int64_t k) {
    const int64_t o = at + a.padding - k * a.dilation;
    return o < 0 || o % a.stride != 0 || o / a.stride >= a.out ? -1 : o / a.stride;
  }

  void convolve(const float** rows, int count, float* gx) const {
    std::reverse(rows, rows + count);
    for (int k = 0; k < count; ++k)
      if (!rows[k]) rows[k] = zeros_;
    const ConvSizes::Axis& w = s_.axis[2];
    DepthwiseRow r{};
    r.rows = rows;
    r.weight = weight_;
    r.y = gx;
    r.c = s_.c;
    r.in_w = w.out;
    r.w = w.in;
    r.left = w.kernel - 1 - w.padding;
    r.kernel_h = count;
    r.kernel_w = static_cast<int>(w.kernel);
    r.stride = 1;
    channel_loops().depthwise(r);
  }

  void add(const float* const* rows, int count, float* gx) const {
    const ConvSizes::Axis& w = s_.axis[2];
    std::fill_n(gx, w.in * s_.c, 0.0f);
    DepthwiseGradRow r = grad_row(s_);
    r.to = gx;
    for (int k = 0; k < count; ++k) {
      if (!rows[k]) continue;
      r.gy = rows[k];
      r.from = weight_ + k * w.kernel * s_.c;
      channel_loops().depthwise_input(r);
    }
  }

  const ConvSizes& s_;
  WideRows& gy_;
  const float *weight_, *zeros_;
};

void input_run(const KernelCall& c) {
  const auto& plan = *static_cast<const ConvPlan*>(c.plan);
  const ConvSizes s(c.get_attrs<ConvAttrs>(), c.out[0], c.in[1], c.in[0]);
  const void* all_gy = conv_read_any(c, 0, plan.first);
  const bool flipped = InputRow::flips(s);
  const float *weight = turned_weight(c, plan, s, flipped), *zeros = row_of_zeros(c, plan, s);
  void* all_gx = conv_written_any(c, plan.second);
  const int64_t width = s.axis[2].in * s.c, rows = s.n * s.axis[0].in * s.axis[1].in;
  const int kept = static_cast<int>(s.axis[0].kernel * s.axis[1].kernel);
  parallel_for(0, rows, 1 + 32768 / (width * s.taps), [&](int64_t first, int64_t last) {
    WideRows gy(all_gy, c.in[0].dtype, s.axis[2].out * s.c, kept);
    NarrowRows gx(all_gx, c.out[0].dtype, width);
    const InputRow row(s, gy, weight, zeros);
    for (int64_t r = first; r < last; ++r) {
      row.run(r, flipped, gx.begin(r));
      gx.done(r);
    }
  });
  conv_store(c, plan.second);
}

constexpr Kernel kForward{forward_supports, conv_layout, forward_prepare, forward_run};
constexpr Kernel kWeight{weight_supports, nullptr, weight_prepare, weight_run};
constexpr Kernel kInput{input_supports, conv_layout, input_prepare, input_run};

}  // namespace

// Rows of 16-bit floats are widened as they are read. Where the convolutions beside them compute in
// f32, programs keep f32 between them.
void register_depthwise_kernels() {
  const auto add = [](const OpDef& op, Kernel kernel) {
    kernel.widens = !cpu_features().bf16;
    register_kernel(DeviceKind::cpu, op, kernel);
  };
  add(op::conv, kForward);
  add(op::conv_backward_weight, kWeight);
  add(op::conv_backward_input, kInput);
}

}  // namespace tandem::detail
