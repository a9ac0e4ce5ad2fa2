// SPDX-License-Identifier: Apache-2.0
// Own f32 derivative of a convolution with respect to a large weight: gw[o][c][tap] = sum over
// pixels of gy[pixel][o] x[pixel + tap][c]. gy is packed once for the tile kernels; a unit of work
// is a panel of input channels under all taps, whose result is rearranged into the weight's order
// while it is still in cache. Every element is one chain over all pixels: its bits do not depend on
// threads.
#include <algorithm>
#include <cstring>

#include "tandem/backend/cpu/conv/conv_internal.h"
#include "tandem/backend/cpu/gemm/gemm_internal.h"
#include "tandem/backend/cpu/registry_internal.h"
#include "tandem/base/parallel.h"
#include "tandem/ops/conv/conv.h"

namespace tandem::detail {
namespace {

constexpr int64_t kDepth = 256;          ///< pixels summed in one chain
constexpr int64_t kMostOutputs = 256;    ///< of one unit: its result stays in cache
constexpr int64_t kFewestChannels = 16;  ///< of a group
constexpr int64_t kFewestWeights =
    65536;  ///< below this, parts of the samples are the better units

// The units: panels of channels of every group, times blocks of outputs.
struct Units {
  int64_t panel, panels, blocks, groups, outputs;

  Units(const ConvSizes& s, int workers)
      : panel(micro_table<float>().panel()),
        panels(micro_table<float>().panels(s.group_in())),
        groups(s.groups),
        outputs(s.group_out()) {
    const int64_t wanted = (2 * workers + panels * groups - 1) / (panels * groups);
    blocks = std::max(std::min(wanted, outputs / 64), (outputs + kMostOutputs - 1) / kMostOutputs);
  }
  int64_t count() const { return groups * panels * blocks; }
  int64_t first_output(int64_t b) const { return outputs * b / blocks; }
  int64_t most_outputs() const { return (outputs + blocks - 1) / blocks; }
  int64_t tiles(int64_t b) const {
    const int64_t rows = micro_table<float>().rows;
    return (first_output(b + 1) - first_output(b) + rows - 1) / rows;
  }
};

struct WeightPlan : ConvPlan {
  size_t packed = 0, patches = 0, result = 0;  ///< the last two are in a worker's bytes
};

bool supports(const KernelCall& c) {
  if (!conv_supports_f32(c)) return false;
  const Array& gw = c.out[0];
  const int64_t groups = c.get_attrs<ConvAttrs>().groups;
  int64_t elements = 1;
  for (int d = 0; d < gw.rank; ++d) elements *= gw.shape[d];
  return elements >= kFewestWeights && gw.shape[1] >= kFewestChannels &&
         gw.shape[0] / groups >= micro_table<float>().rows;
}

std::shared_ptr<const Plan> prepare(const KernelCall& c) {
  auto plan = std::make_shared<WeightPlan>();
  const ConvSizes s(c.get_attrs<ConvAttrs>(), c.in[0], c.out[0], c.in[1]);
  plan->workers = num_threads();
  const Units u(s, plan->workers);
  plan->first = plan->activation(c.in[0]);
  plan->second = plan->activation(c.in[1]);
  plan->packed = plan->take(conv_bytes(s.n * s.pixels * s.o + 32));
  plan->patches = conv_bytes(s.taps * u.panel + 32);
  plan->result = plan->patches + conv_bytes(kDepth * u.panel + 32);
  plan->worker_bytes = plan->result + conv_bytes(u.most_outputs() * s.taps * u.panel);
  plan->workers_at = plan->take(plan->worker_bytes * static_cast<size_t>(plan->workers));
  return plan;
}

// packed[chain][group][block][tile][pixel][outputs of the tile]
void pack(const ConvSizes& s, const Units& u, const float* gy, float* packed) {
  const int64_t total = s.n * s.pixels, chains = (total + kDepth - 1) / kDepth;
  const int64_t pieces = u.groups * u.blocks;
  parallel_for(0, chains * pieces, 1, [&](int64_t first, int64_t last) {
    for (int64_t k = first; k < last; ++k) {
      const int64_t p = k / pieces * kDepth, depth = std::min(kDepth, total - p);
      const int64_t g = k % pieces / u.blocks, b = k % u.blocks;
      const int64_t o0 = u.first_output(b), n = u.first_output(b + 1) - o0, tiles = u.tiles(b);
      const int64_t column = g * u.outputs + o0;
      for (int64_t i = 0; i < tiles; ++i) {
        const int64_t r0 = n * i / tiles, r1 = n * (i + 1) / tiles;
        micro_table<float>().pack(packed + p * s.o + (column + r0) * depth,
                                  gy + p * s.o + column + r0, s.o, r1 - r0, depth);
      }
    }
  });
}

// result[output][tap][panel] of unit k.
void sum_unit(const ConvSizes& s, const Units& u, int64_t k, const float* x, const float* packed,
              float* patches, float* result) {
  const MicroTable<float>& t = micro_table<float>();
  const int64_t b = k % u.blocks, g = k / u.blocks / u.panels,
                c0 = k / u.blocks % u.panels * u.panel;
  const int64_t width = std::min(u.panel, s.group_in() - c0), total = s.n * s.pixels;
  const int64_t o0 = u.first_output(b), n = u.first_output(b + 1) - o0, tiles = u.tiles(b);
  MicroCall<float> m;
  m.am = 1;
  m.b = patches;
  m.b_row = u.panel;
  m.c_row = s.taps * u.panel;
  m.columns = static_cast<int>(width);
  for (int64_t p = 0; p < total; p += kDepth) {
    m.k = std::min(kDepth, total - p);
    m.accumulate = p > 0;
    for (int64_t tap = 0; tap < s.taps; ++tap) {
      gather_patches(s, x, g, p, p + m.k, tap * s.group_in() + c0, width, patches, u.panel);
      for (int64_t i = 0; i < tiles; ++i) {
        const int64_t r0 = n * i / tiles, r1 = n * (i + 1) / tiles;
        m.a = packed + p * s.o + (g * u.outputs + o0 + r0) * m.k;
        m.ak = r1 - r0;
        m.c = result + r0 * m.c_row + tap * u.panel;
        t.run(r1 - r0, m);
      }
    }
  }
}

// gw[o][c0..][tap] from result[o][tap][..].
void store_unit(const ConvSizes& s, const Units& u, int64_t k, const float* result, float* row,
                float* gw) {
  const int64_t b = k % u.blocks, g = k / u.blocks / u.panels,
                c0 = k / u.blocks % u.panels * u.panel;
  const int64_t width = std::min(u.panel, s.group_in() - c0), step = s.taps * u.panel;
  for (int64_t o = u.first_output(b); o < u.first_output(b + 1); ++o, result += step) {
    float* to = gw + ((g * u.outputs + o) * s.group_in() + c0) * s.taps;
    const float* from = result;
    if (s.taps > 1) {
      micro_table<float>().transpose(row, s.taps, result, u.panel, s.taps, width);
      from = row;
    }
    std::memcpy(to, from, static_cast<size_t>(width * s.taps) * sizeof(float));
  }
}

void run(const KernelCall& c) {
  const auto& plan = *static_cast<const WeightPlan*>(c.plan);
  const ConvSizes s(c.get_attrs<ConvAttrs>(), c.in[0], c.out[0], c.in[1]);
  const Units u(s, plan.workers);
  const float* x = conv_read(c, 0, plan.first);
  auto* packed = reinterpret_cast<float*>(conv_scratch(c, plan.packed));
  pack(s, u, conv_read(c, 1, plan.second), packed);
  parallel_for(0, plan.workers, 1, [&](int64_t first, int64_t last) {
    for (int64_t w = first; w < last; ++w) {
      char* own = conv_scratch(c, plan.workers_at + static_cast<size_t>(w) * plan.worker_bytes);
      auto* row = reinterpret_cast<float*>(own);
      auto* patches = reinterpret_cast<float*>(own + plan.patches);
      auto* result = reinterpret_cast<float*>(own + plan.result);
      for (int64_t k = u.count() * w / plan.workers; k < u.count() * (w + 1) / plan.workers; ++k) {
        sum_unit(s, u, k, x, packed, patches, result);
        store_unit(s, u, k, result, row, c.out[0].as<float>());
      }
    }
  });
}

}  // namespace

void register_conv_weight_kernels() {
  register_kernel(DeviceKind::cpu, op::conv_backward_weight, {supports, nullptr, prepare, run});
}

}  // namespace tandem::detail
