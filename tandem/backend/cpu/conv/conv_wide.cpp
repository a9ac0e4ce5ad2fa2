// SPDX-License-Identifier: Apache-2.0
// Own f32 convolution, and its derivative with respect to the input at stride 1, for large weights
// and few pixels, where rearranging the weight would cost as much as the matmuls. So a thread owns
// panels of output channels, brings a block of the weight into tile order right before use, within
// its own cache, and processes all pixels with it. Patches are gathered once for all threads.
// Blocks are determined by the shape: bits do not depend on the thread count.
#include <algorithm>
#include <cstring>

#include "tandem/backend/cpu/conv/conv_internal.h"
#include "tandem/backend/cpu/gemm/gemm_internal.h"
#include "tandem/backend/cpu/registry_internal.h"
#include "tandem/base/parallel.h"
#include "tandem/ops/conv/conv.h"

namespace tandem::detail {
namespace {

constexpr int64_t kPatchBytes = 160 << 10;  ///< of one block: patches and weight stay in cache
constexpr int64_t kWeightsPerPixel = 4000;  ///< from here on the weight is large
constexpr int64_t kFewestWeights = 1 << 19;
constexpr int64_t kFewestChannels = 32;

// The matmul: y[pixel][column] = sum over taps and channels of patch * weight, in blocks of
// channels. Forward the channels are those of x; backward those of gy, under flipped taps.
struct Wide {
  ConvSizes s;  ///< of the convolution whose patches are gathered
  bool backward;
  int64_t pixels, channels, columns, block, blocks, panel, panels, tiles;

  Wide(const ConvSizes& sizes, bool back) : s(back ? turned(sizes) : sizes), backward(back) {
    pixels = s.n * s.pixels;
    channels = s.c;
    columns = s.o;
    const int64_t most = kPatchBytes / (4 * std::max<int64_t>(pixels * s.taps, 1)) / 16 * 16;
    block = std::clamp<int64_t>(most, 16, channels);
    blocks = (channels + block - 1) / block;
    const MicroTable<float>& t = micro_table<float>();
    panel = t.panel();
    panels = t.panels(columns);
    tiles = (pixels + t.rows - 1) / t.rows;
  }
  int64_t size(int64_t b) const { return std::min(block, channels - b * block); }
  int64_t first_pixel(int64_t tile) const { return pixels * tile / tiles; }
  /// Elements of a tile of patches: [tap][channel of the block][pixel], plus one spare vector.
  int64_t tile_size() const { return micro_table<float>().rows * s.taps * block + 16; }
  float* patches(float* all, int64_t b, int64_t tile) const {
    return all + (b * tiles + tile) * tile_size();
  }

 private:
  // gx as a convolution of gy.
  static ConvSizes turned(ConvSizes s) {
    std::swap(s.c, s.o);
    std::swap(s.pixels, s.in_pixels);
    for (ConvSizes::Axis& a : s.axis) {
      std::swap(a.in, a.out);
      a.padding = a.dilation * (a.kernel - 1) - a.padding;
    }
    return s;
  }
};

struct WidePlan : ConvPlan {
  size_t patches = 0;
};

bool large(const KernelCall& c, const ConvSizes& s, int64_t pixels) {
  const Array& w = c.in[1];
  return s.groups == 1 && w.contiguous && w.numel >= kFewestWeights && s.taps <= 16 &&
         w.shape[0] >= kFewestChannels && w.shape[1] >= kFewestChannels &&
         w.numel >= kWeightsPerPixel * s.n * pixels;
}

bool forward_supports(const KernelCall& c) {
  if (!conv_supports_f32(c)) return false;
  const ConvSizes s(c.get_attrs<ConvAttrs>(), c.in[0], c.in[1], c.out[0]);
  return large(c, s, s.pixels);
}
bool input_supports(const KernelCall& c) {
  if (!conv_supports_f32(c)) return false;
  const ConvSizes s(c.get_attrs<ConvAttrs>(), c.out[0], c.in[1], c.in[0]);
  for (const ConvSizes::Axis& a : s.axis)
    if (a.stride != 1 || a.padding > a.dilation * (a.kernel - 1)) return false;
  return large(c, s, s.in_pixels);
}

std::shared_ptr<const Plan> prepare(const KernelCall& c, const Wide& d) {
  auto plan = std::make_shared<WidePlan>();
  plan->first = plan->activation(c.in[0]);
  plan->second = plan->activation(c.out[0]);
  plan->patches = plan->take(conv_bytes(d.blocks * d.tiles * d.tile_size()));
  plan->workers = num_threads();
  plan->worker_bytes = conv_bytes(std::max(d.s.taps * d.block * d.panel, d.tile_size()) + 16);
  plan->workers_at = plan->take(plan->worker_bytes * static_cast<size_t>(plan->workers));
  return plan;
}

void gather(const KernelCall& c, const Wide& d, const float* x, float* all) {
  const auto& plan = *static_cast<const WidePlan*>(c.plan);
  const int64_t pieces = d.blocks * d.tiles, taps = d.s.taps;
  parallel_for(0, plan.workers, 1, [&](int64_t first, int64_t last) {
    for (int64_t w = first; w < last; ++w) {
      auto* rows = reinterpret_cast<float*>(
          conv_scratch(c, plan.workers_at + static_cast<size_t>(w) * plan.worker_bytes));
      for (int64_t k = pieces * w / plan.workers; k < pieces * (w + 1) / plan.workers; ++k) {
        const int64_t b = k / d.tiles, tile = k % d.tiles, size = d.size(b), row = taps * size;
        const int64_t p0 = d.first_pixel(tile), p1 = d.first_pixel(tile + 1);
        for (int64_t tap = 0; tap < taps; ++tap)
          gather_patches(d.s, x, 0, p0, p1, tap * d.channels + b * d.block, size, rows + tap * size,
                         row);
        micro_table<float>().transpose(d.patches(all, b, tile), p1 - p0, rows, row, p1 - p0, row);
      }
    }
  });
}

// Block b of the weight for columns j0.. of y: forward [channel][tap][column], backward
// [tap][channel][column].
void pack(const Wide& d, const float* w, int64_t b, int64_t j0, int64_t width, float* to) {
  const MicroTable<float>& t = micro_table<float>();
  const int64_t k0 = b * d.block, size = d.size(b), taps = d.s.taps;
  if (!d.backward) {
    const int64_t row = d.channels * taps;
    t.transpose(to, d.panel, w + j0 * row + k0 * taps, row, width, size * taps);
    return;
  }
  for (int64_t k = 0; k < size; ++k) {
    const float* from = w + ((k0 + k) * d.columns + j0) * taps;
    if (taps == 1)
      std::memcpy(to + k * d.panel, from, static_cast<size_t>(width) * sizeof(float));
    else
      t.transpose(to + k * d.panel, size * d.panel, from, taps, width, taps);
  }
}

// Columns j0.. of y, block b of the channels.
void multiply(const Wide& d, float* patches, const float* w, const float* bias, int64_t b,
              int64_t j0, int64_t width, float* y) {
  const MicroTable<float>& t = micro_table<float>();
  const int64_t size = d.size(b), taps = d.s.taps;
  MicroCall<float> m;
  m.k = size;
  m.segments = taps;
  m.am = 1;
  m.b = d.backward ? w + (taps - 1) * size * d.panel : w;
  m.b_row = d.backward ? d.panel : taps * d.panel;
  m.b_segment = d.backward ? -size * d.panel : d.panel;
  m.c_row = d.columns;
  m.columns = static_cast<int>(width);
  m.bias = bias ? bias + j0 : nullptr;
  m.accumulate = b > 0;
  for (int64_t tile = 0; tile < d.tiles; ++tile) {
    const int64_t p0 = d.first_pixel(tile), rows = d.first_pixel(tile + 1) - p0;
    m.a = d.patches(patches, b, tile);
    m.ak = rows;
    m.a_segment = rows * size;
    m.c = y + p0 * d.columns + j0;
    t.run(rows, m);
  }
}

void run(const KernelCall& c, const Wide& d) {
  const auto& plan = *static_cast<const WidePlan*>(c.plan);
  auto* patches = reinterpret_cast<float*>(conv_scratch(c, plan.patches));
  gather(c, d, conv_read(c, 0, plan.first), patches);
  float* y = conv_written(c, plan.second);
  const float* w = c.in[1].as<float>();
  const float* bias =
      !d.backward && c.n_in > 2 && c.in[2].present() ? c.in[2].as<float>() : nullptr;
  parallel_for(0, plan.workers, 1, [&](int64_t first, int64_t last) {
    for (int64_t k = first; k < last; ++k) {
      auto* packed = reinterpret_cast<float*>(
          conv_scratch(c, plan.workers_at + static_cast<size_t>(k) * plan.worker_bytes));
      for (int64_t b = 0; b < d.blocks; ++b)
        for (int64_t p = d.panels * k / plan.workers; p < d.panels * (k + 1) / plan.workers; ++p) {
          const int64_t j0 = p * d.panel, width = std::min(d.panel, d.columns - j0);
          pack(d, w, b, j0, width, packed);
          multiply(d, patches, packed, bias, b, j0, width, y);
        }
    }
  });
  conv_store(c, plan.second);
}

Wide forward_of(const KernelCall& c) {
  return Wide(ConvSizes(c.get_attrs<ConvAttrs>(), c.in[0], c.in[1], c.out[0]), false);
}
Wide input_of(const KernelCall& c) {
  return Wide(ConvSizes(c.get_attrs<ConvAttrs>(), c.out[0], c.in[1], c.in[0]), true);
}

std::shared_ptr<const Plan> forward_prepare(const KernelCall& c) {
  return prepare(c, forward_of(c));
}
std::shared_ptr<const Plan> input_prepare(const KernelCall& c) { return prepare(c, input_of(c)); }
void forward_run(const KernelCall& c) { run(c, forward_of(c)); }
void input_run(const KernelCall& c) { run(c, input_of(c)); }

}  // namespace

void register_wide_conv_kernels() {
  auto add = [](const OpDef& op, const Kernel& k) { register_kernel(DeviceKind::cpu, op, k); };
  add(op::conv, {forward_supports, conv_layout, forward_prepare, forward_run});
  add(op::conv_backward_input, {input_supports, conv_layout, input_prepare, input_run});
}

}  // namespace tandem::detail
