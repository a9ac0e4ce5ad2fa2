// SPDX-License-Identifier: Apache-2.0
// integer_depthwise_conv: rows of codes are multiplied as they are; what the zero point of x
// contributes is one number for each channel, since what lies outside is a row of it. Workers share
// blocks of output rows. Kernels of 3 x 3 and 5 x 5 whose weights fit 8 bits multiply bytes where
// the processor does, and then may make codes of their sums by themselves.
#include <algorithm>
#include <optional>

#include "tandem/backend/cpu/conv/integer_depthwise_internal.h"
#include "tandem/backend/cpu/gemm/packed_internal.h"
#include "tandem/backend/cpu/gemm/requantise_internal.h"
#include "tandem/backend/cpu/registry_internal.h"
#include "tandem/base/parallel.h"
#include "tandem/base/processor.h"
#include "tandem/ops/matmul/integer.h"
#include "tandem/ops/matmul/integer_depthwise.h"

namespace tandem::detail {
namespace {

constexpr int64_t kRows = kIntegerDepthwiseRows + 1;  ///< of a kernel, in pairs
constexpr int64_t kUnitElements = 16384;  ///< of the result, between two calls of an epilogue

struct CodesPlan : EpiloguePlan {
  int workers = 1;
  int64_t blocks = 1;                                ///< of a sample's output rows: a unit each
  size_t ones = 0, bias = 0, sums = 0, of_unit = 0;  ///< where they begin; bytes of a unit's sums
  size_t bytes = 0, numbers = 0;                     ///< where weights and numbers are arranged
};

int64_t arranged_channels(int64_t c) {
  return (c + kIntegerDepthwiseBlock - 1) / kIntegerDepthwiseBlock * kIntegerDepthwiseBlock;
}
// The loop for this call, if its weights fit.
void (*bytes_loop(const KernelCall& c))(const IntegerDepthwiseBytes&) {
  const IntegerDepthwiseByteLoops* loops = integer_depthwise_byte_loops();
  const auto& a = c.get_attrs<PackedAttrs>();
  const int64_t kernel = a.kernel[0].value(), stride = a.stride[0].value();
  if (!loops || a.kernel[1].value() != kernel || (kernel != 3 && kernel != 5) || stride > 2)
    return nullptr;
  return loops->row[kernel == 5][stride - 1][c.in[0].dtype == DType::i8];
}

void run_with(const KernelCall& c, const Epilogue& e);

std::shared_ptr<const Plan> prepare(const KernelCall& c) {
  auto plan = std::make_shared<CodesPlan>();
  const Array &x = c.in[0], &y = c.out[0];
  const int64_t h = y.shape[1], row = y.shape[2] * y.shape[3];
  const int64_t rows = std::clamp<int64_t>(kUnitElements / row, 1, h);
  plan->blocks = (h + rows - 1) / rows;
  plan->workers = static_cast<int>(std::min<int64_t>(num_threads(), y.shape[0] * plan->blocks));
  if (y.shape[0] * plan->blocks % plan->workers != 0)
    plan->blocks = std::min(even_units(plan->blocks, plan->workers), h);
  const auto bytes = [](int64_t n, size_t size) { return static_cast<size_t>(n) * size; };
  (void)take_lines(plan->workspace, bytes(x.shape[2] * x.shape[3], 1));
  plan->ones = take_lines(plan->workspace, bytes(x.shape[3], 1));
  plan->bias = take_lines(plan->workspace, bytes(2 * x.shape[3], sizeof(int32_t)));
  if (bytes_loop(c)) {
    const auto& a = c.get_attrs<PackedAttrs>();
    constexpr int64_t kTaps = 4, kKinds = 3;
    const int64_t channels = arranged_channels(x.shape[3]),
                  taps = (a.kernel[0].value() + kTaps - 1) / kTaps * kTaps * a.kernel[1].value();
    plan->bytes = take_lines(plan->workspace, bytes(channels * taps, 1));
    plan->numbers = take_lines(plan->workspace, bytes(kKinds * channels, sizeof(float)));
  }
  plan->of_unit = whole_lines(bytes((h + plan->blocks - 1) / plan->blocks * row, sizeof(int32_t)));
  plan->sums = take_lines(plan->workspace, bytes(plan->workers, plan->of_unit));
  plan->run_with = run_with;
  return plan;
}

// What all rows have in common.
IntegerDepthwiseRow row_of(const KernelCall& c) {
  const auto& a = c.get_attrs<PackedAttrs>();
  IntegerDepthwiseRow r;
  r.weight = c.in[1].as<int16_t>();
  r.c = c.in[0].shape[3];
  r.in_w = c.in[0].shape[2];
  r.w = c.out[0].shape[2];
  r.left = a.padding[1].value();
  r.kernel_h = static_cast<int>(a.kernel[0].value());
  r.kernel_w = static_cast<int>(a.kernel[1].value());
  r.stride = static_cast<int>(a.stride[0].value());
  return r;
}

// bias[j] less what the zero point of x contributes to channel j; bias has room for twice as many.
void take_zero(const KernelCall& c, int32_t zero, uint8_t* ones, int32_t* bias) {
  IntegerDepthwiseRow r = row_of(c);
  std::fill_n(bias, 2 * r.c, 0);
  if (zero != 0) {  // an output whose taps all lie outside, where all codes are 1
    const uint8_t* rows[kRows] = {};
    std::fill_n(ones, r.c, uint8_t(1));
    r.rows = rows;
    r.outside = ones;
    r.in_w = r.left = 0;
    r.w = 1;
    r.bias = bias + r.c;  // blocks overlap: what they add must not be what they write
    r.y = bias;
    integer_depthwise_loops()->row_u8(r);
  }
  const Array* b = c.n_in > 3 && c.in[3].present() ? &c.in[3] : nullptr;
  for (int64_t j = 0; j < r.c; ++j) {  // wraps
    const uint32_t given =
        b ? static_cast<uint32_t>(b->as<int32_t>()[j * b->strides[b->rank - 1]]) : 0;
    bias[j] =
        static_cast<int32_t>(given - static_cast<uint32_t>(zero) * static_cast<uint32_t>(bias[j]));
  }
}

// What all rows have in common, with weights and numbers arranged in scratch. Nothing where there
// is no loop of bytes, or a weight does not fit.
std::optional<IntegerDepthwiseBytes> bytes_of(const KernelCall& c, const CodesPlan& plan,
                                              const Requantise* codes, int32_t zero) {
  const IntegerDepthwiseByteLoops* loops = integer_depthwise_byte_loops();
  if (!bytes_loop(c)) return {};
  const auto& a = c.get_attrs<PackedAttrs>();
  const int64_t channels = c.in[0].shape[3], arranged = arranged_channels(channels);
  auto* scratch = static_cast<char*>(c.scratch);
  auto* bias = reinterpret_cast<int32_t*>(scratch + plan.numbers);
  auto* scale = reinterpret_cast<float*>(bias + arranged);
  auto* add = scale + arranged;
  auto* given = reinterpret_cast<int32_t*>(scratch + plan.bias);  // [channels], then arranged sums
  auto* weight = reinterpret_cast<int8_t*>(scratch + plan.bytes);
  if (!loops->arrange(c.in[1].as<int16_t>(), channels, static_cast<int>(a.kernel[0].value()),
                      static_cast<int>(a.kernel[1].value()), weight, bias))
    return {};
  // Codes of i8 are read as those of u8 that are greater by 128.
  const auto centre =
      static_cast<uint32_t>(zero) + (c.in[0].dtype == DType::i8 ? uint32_t{128} : uint32_t{0});
  const Array* b = c.n_in > 3 && c.in[3].present() ? &c.in[3] : nullptr;
  for (int64_t j = 0; j < channels; ++j)
    given[j] = b ? b->as<int32_t>()[j * b->strides[b->rank - 1]] : 0;
  auto* ordered = reinterpret_cast<int32_t*>(scale);  // until there are scales
  loops->arrange_numbers(given, channels, ordered);
  for (int64_t j = 0; j < arranged; ++j)  // wraps
    bias[j] = static_cast<int32_t>(static_cast<uint32_t>(ordered[j]) -
                                   centre * static_cast<uint32_t>(bias[j]));
  IntegerDepthwiseBytes r;
  r.weight = weight;
  r.bias = bias;
  r.scale = scale;
  r.c = channels;
  r.in_w = c.in[0].shape[2];
  r.w = c.out[0].shape[2];
  r.left = a.padding[1].value();
  if (!codes) return r;
  const RoundingNumbers n(codes->rounding[0], false);
  r.hardswish = codes->hardswish;
  r.by = n.by, r.low = n.low, r.high = n.high, r.zero = n.zero;
  if (codes->scale)
    loops->arrange_numbers(codes->scale, channels, scale);
  else
    std::fill_n(scale, arranged, codes->one_scale);
  if (!codes->bias) return r;
  loops->arrange_numbers(codes->bias, channels, add);
  r.add = add;
  return r;
}

void run_depthwise(const KernelCall& c, const Epilogue* e) {
  const auto& plan = *static_cast<const CodesPlan*>(c.plan);
  const IntegerDepthwiseLoops& loops = *integer_depthwise_loops();
  const auto& a = c.get_attrs<PackedAttrs>();
  const Array &x = c.in[0], &y = c.out[0];
  const int64_t in_h = x.shape[1], h = y.shape[1], w = y.shape[2], columns = y.shape[3];
  auto* scratch = static_cast<uint8_t*>(c.scratch);
  auto* bias = reinterpret_cast<int32_t*>(scratch + plan.bias);
  const int32_t zero = integer_zero(c.n_in > 2 && c.in[2].present() ? &c.in[2] : nullptr, 0);
  const Requantise* codes = codes_of(e);
  if (codes && (codes->residual || codes->values || codes->is_signed)) codes = nullptr;
  const auto bytes = bytes_of(c, plan, codes, zero);
  if (!bytes) {
    codes = nullptr;
    take_zero(c, zero, scratch + plan.ones, bias);
  }
  const int64_t in_row = x.shape[2] * columns;
  std::fill_n(scratch, in_row, static_cast<uint8_t>(zero));
  const auto run_bytes = bytes_loop(c);
  const auto run_row = x.dtype == DType::i8 ? loops.row_i8 : loops.row_u8;
  share_units(plan.workers, x.shape[0] * plan.blocks, [&](size_t worker, int64_t u) {
    const uint8_t* rows[kRows];
    IntegerDepthwiseRow r = row_of(c);
    r.rows = rows;
    r.outside = scratch;
    r.bias = bias;
    const int64_t n = u / plan.blocks, b = u % plan.blocks;
    const int64_t h0 = h * b / plan.blocks, h1 = h * (b + 1) / plan.blocks;
    auto* own = reinterpret_cast<int32_t*>(scratch + plan.sums + worker * plan.of_unit);
    int32_t* sums = e && e->run_at ? own : y.as<int32_t>() + (n * h + h0) * w * columns;
    for (int64_t o = h0; o < h1; ++o) {
      for (int k = 0; k < r.kernel_h; ++k) {
        const int64_t at = o * r.stride - a.padding[0].value() + k;
        rows[k] = at < 0 || at >= in_h ? scratch : x.as<uint8_t>() + (n * in_h + at) * in_row;
      }
      if (bytes) {
        IntegerDepthwiseBytes own_row = *bytes;
        own_row.rows = rows;
        own_row.outside = scratch;
        own_row.y = sums + (o - h0) * w * columns;
        if (codes)
          own_row.codes = static_cast<uint8_t*>(codes->codes) + ((n * h) + o) * w * columns;
        run_bytes(own_row);
        continue;
      }
      if (r.kernel_h % 2 != 0) rows[r.kernel_h] = rows[r.kernel_h - 1];
      r.y = sums + (o - h0) * w * columns;
      run_row(r);
    }
    if (e && !codes) e->run_block(sums, (n * h + h0) * w, (n * h + h1) * w, columns);
  });
}
void run_with(const KernelCall& c, const Epilogue& e) { run_depthwise(c, &e); }
void run(const KernelCall& c) { run_depthwise(c, nullptr); }

bool supports(const KernelCall& c) {
  const auto& a = c.get_attrs<PackedAttrs>();
  for (int i = 0; i < c.n_in; ++i)
    if (c.in[i].present() && (c.in[i].is_scalar || c.in[i].numel == 0)) return false;
  return c.in[0].contiguous && c.in[1].contiguous && a.kernel[0].value() <= kIntegerDepthwiseRows &&
         a.stride[0].value() == a.stride[1].value();
}
EpilogueKind blocks(const KernelCall&) { return EpilogueKind::blocks; }

}  // namespace

const IntegerDepthwiseLoops* integer_depthwise_loops() {
  return cpu_features().avx2 && kIntegerDepthwiseAvx2.row_u8 ? &kIntegerDepthwiseAvx2 : nullptr;
}

const IntegerDepthwiseByteLoops* integer_depthwise_byte_loops() {
  return cpu_features().vnni && kIntegerDepthwiseVnni.arrange ? &kIntegerDepthwiseVnni : nullptr;
}

void register_integer_depthwise() {
  runtime_of(op::pack_integer_depthwise);
  if (!integer_depthwise_loops()) return;
  register_epilogue(prepare, blocks);
  register_kernel(DeviceKind::cpu, op::integer_depthwise_conv, {supports, nullptr, prepare, run});
}

}  // namespace tandem::detail
