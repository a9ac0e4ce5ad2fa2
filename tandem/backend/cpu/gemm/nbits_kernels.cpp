// SPDX-License-Identifier: Apache-2.0
// The kernel of matmul_nbits. Threads share blocks of rows and of columns; each arranges its rows
// of x for the loops. Zero points other than the middle code are one more sum for each element,
// over the sums of x in each group.
#include <algorithm>
#include <atomic>
#include <cstring>

#include "tandem/backend/cpu/gemm/nbits_internal.h"
#include "tandem/backend/cpu/gemm/packed_internal.h"
#include "tandem/backend/cpu/registry_internal.h"
#include "tandem/base/half.h"
#include "tandem/ops/matmul/nbits.h"

namespace tandem::detail {
namespace {

constexpr int64_t kBlockBytes = 512 << 10;  ///< of arranged rows, which are read for all columns
constexpr int64_t kFewColumns = 64;         ///< of one unit of work
constexpr double kProductsPerThread = 65536;

std::atomic<const NBitsLoops*> forced_nbits{nullptr};

const NBitsLoops& nbits_loops() {
  if (const NBitsLoops* f = forced_nbits.load(std::memory_order_relaxed)) return *f;
  static const NBitsLoops* best = [] {
    const CpuFeatures& f = cpu_features();
    return f.avx512 && kNBitsAvx512.lanes ? &kNBitsAvx512
           : f.avx2 && kNBitsAvx2.lanes   ? &kNBitsAvx2
                                          : &kNBitsBase;
  }();
  return *best;
}

struct NBitsPlan : Plan {
  const NBitsLoops* loops = nullptr;
  int64_t bits = 4, m = 0, n = 0, k = 0, group = 1;
  NBitsCall call;
  int workers = 1;
  int64_t rows = 1, columns = 1;                                ///< of a unit of work
  size_t x_size = 0, sums = 0, shifts = 0, decoded = 0, y = 0;  ///< floats of a worker's scratch
  int64_t chunk() const { return 32 / bits * loops->lanes; }
  size_t part() const { return x_size + sums + shifts + decoded + y; }
};

size_t whole_line(int64_t floats) { return static_cast<size_t>((floats + 15) / 16 * 16); }

bool is_integer(const KernelCall& c) {
  return c.get_attrs<NBitsAttrs>().accuracy_level == kCodesOfInputs;
}

std::shared_ptr<const Plan> prepare_nbits(const KernelCall& c) {
  if (is_integer(c)) return prepare_nbits_integers(c);
  auto plan = std::make_shared<NBitsPlan>();
  NBitsPlan& p = *plan;
  const Array &x = c.in[0], &codes = c.in[1];
  p.loops = &nbits_loops();
  p.bits = c.get_attrs<NBitsAttrs>().bits;
  p.k = x.shape[x.rank - 1];
  p.m = x.numel / p.k;
  p.n = codes.shape[0];
  p.group = codes.shape[2] * 8 / p.bits;
  NBitsCall& call = p.call;
  call.groups = codes.shape[1];
  call.row_bytes = codes.shape[1] * codes.shape[2];
  call.chunks = (p.k + p.chunk() - 1) / p.chunk();
  call.group_chunks = p.group / p.chunk();
  call.chunk_groups = std::max<int64_t>(1, p.chunk() / p.group);
  const double products = static_cast<double>(p.m) * static_cast<double>(p.n * p.k);
  p.workers =
      std::max(1, static_cast<int>(std::min<double>(num_threads(), products / kProductsPerThread)));
  const int64_t row = call.chunks * p.chunk();
  p.rows = std::min(p.m, std::max<int64_t>(kBlockBytes / (4 * row) / 3 * 3, 3));
  const int64_t blocks = (p.m + p.rows - 1) / p.rows;
  const int64_t parts = p.workers == 1 ? 1 : std::max<int64_t>(1, 4 * p.workers / blocks);
  p.columns = std::max(kFewColumns, (p.n + parts - 1) / parts + 3) / 4 * 4;
  p.x_size = whole_line(p.rows * row);
  p.sums = c.n_in > 3 && c.in[3].present() ? whole_line(p.rows * call.groups) : 0;
  p.shifts = p.sums ? whole_line(call.groups) : 0;
  p.decoded = p.rows >= kNBitsDecoded ? whole_line(kNBitsColumns * row) : 0;
  p.y = x.dtype == DType::f32 ? 0 : whole_line(p.rows * p.columns);
  plan->workspace = p.part() * sizeof(float) * static_cast<size_t>(p.workers);
  return plan;
}

// Where row `r` of an array's last dimension begins.
int64_t row_start(const Array& a, int64_t r) {
  int64_t at = 0;
  for (int d = a.rank - 1; d-- > 0; r /= a.shape[d]) at += r % a.shape[d] * a.strides[d];
  return at;
}

// Row `r` of x to `to` in the loops' order, zeros after it; its sum in each group to `sums`.
void arrange(const NBitsPlan& p, const Array& x, int64_t r, float* to, float* sums) {
  const int64_t steps = 32 / p.bits, lanes = p.loops->lanes, step = x.strides[x.rank - 1];
  const int64_t start = row_start(x, r);
  const auto value = [&](int64_t i) {
    const int64_t at = start + i * step;
    return x.dtype == DType::f32 ? x.as<float>()[at] : bfloat16_bits_to_float(x.as<uint16_t>()[at]);
  };
  if (p.k % p.chunk() != 0) std::fill_n(to + (p.call.chunks - 1) * p.chunk(), p.chunk(), 0.0f);
  for (int64_t i = 0; i < p.k; i += steps) {
    const int64_t lane = i / steps, n = std::min(steps, p.k - i);
    float* at = to + lane / lanes * p.chunk() + lane % lanes;
    for (int64_t s = 0; s < n; ++s) at[s * lanes] = value(i + s);
  }
  if (!sums) return;
  for (int64_t g = 0; g < p.call.groups; ++g) {
    float sum = 0;
    for (int64_t i = g * p.group; i < std::min(p.k, (g + 1) * p.group); ++i) sum += value(i);
    sums[g] = sum;
  }
}

// y[r, j] += the sum over groups of scale * (middle - zero point) * sum of x.
void add_zero_points(const NBitsPlan& p, const NBitsCall& call, const uint8_t* zero, int64_t rows,
                     int64_t j0, int64_t j1, const float* sums, float* shift) {
  constexpr int kLanes = 16;
  const int64_t groups = call.groups, bytes = (groups * p.bits + 7) / 8, each = 8 / p.bits;
  const int middle = 1 << (p.bits - 1), mask = (1 << p.bits) - 1;
  for (int64_t j = j0; j < j1; ++j) {
    const uint8_t* z = zero + j * bytes;
    const float* scale = call.scale + j * groups;
    for (int64_t g = 0; g < groups; ++g) {
      const int code = z[g / each] >> (p.bits * (g % each)) & mask;
      shift[g] = scale[g] * static_cast<float>(middle - code);
    }
    for (int64_t r = 0; r < rows; ++r) {
      float lane[kLanes] = {};
      const float* s = sums + r * groups;
      int64_t g = 0;
      for (; g + kLanes <= groups; g += kLanes)
        for (int i = 0; i < kLanes; ++i) lane[i] += shift[g + i] * s[g + i];
      for (int i = 0; g < groups; ++g, ++i) lane[i] += shift[g] * s[g];
      for (int half = kLanes / 2; half > 0; half /= 2)
        for (int i = 0; i < half; ++i) lane[i] += lane[i + half];
      call.y[r * call.y_row + j] += lane[0];
    }
  }
}

// Rows r0.. and columns j0.. of the result, with one worker's scratch.
void nbits_unit(const KernelCall& c, const NBitsPlan& p, int64_t r0, int64_t j0, float* scratch) {
  const int64_t rows = std::min(p.rows, p.m - r0), j1 = std::min(j0 + p.columns, p.n);
  float *sums = scratch + p.x_size, *shift = sums + p.sums, *decoded = shift + p.shifts;
  NBitsCall call = p.call;
  call.codes = c.in[1].as<uint8_t>();
  call.scale = c.in[2].as<float>();
  call.x = scratch;
  call.decoded = p.decoded ? decoded : nullptr;
  for (int64_t r = 0; r < rows; ++r)
    arrange(p, c.in[0], r0 + r, scratch + r * call.chunks * p.chunk(),
            p.sums ? sums + r * call.groups : nullptr);
  const bool direct = p.y == 0;
  float* own = decoded + p.decoded;
  call.y = direct ? c.out[0].as<float>() + r0 * p.n : own - j0;
  call.y_row = direct ? p.n : p.columns;
  p.loops->run[p.bits == 2 ? 0 : p.bits == 4 ? 1 : 2](call, 0, rows, j0, j1);
  if (p.sums) add_zero_points(p, call, c.in[3].as<uint8_t>(), rows, j0, j1, sums, shift);
  if (direct) return;
  for (int64_t r = 0; r < rows; ++r)
    for (int64_t j = j0; j < j1; ++j)
      c.out[0].as<uint16_t>()[(r0 + r) * p.n + j] =
          float_to_bfloat16_bits(own[r * p.columns + j - j0]);
}

void run_nbits(const KernelCall& c) {
  if (is_integer(c)) return run_nbits_integers(c);
  const auto& p = *static_cast<const NBitsPlan*>(c.plan);
  const int64_t across = (p.n + p.columns - 1) / p.columns;
  const int64_t blocks = (p.m + p.rows - 1) / p.rows;
  share_units(p.workers, blocks * across, [&](size_t w, int64_t u) {
    nbits_unit(c, p, u / across * p.rows, u % across * p.columns,
               static_cast<float*>(c.scratch) + w * p.part());
  });
}

bool supports_nbits(const KernelCall& c) {
  const Array &x = c.in[0], &codes = c.in[1];
  if (x.dtype != DType::f32 && x.dtype != DType::bf16) return false;
  if (c.in[2].dtype != DType::f32 || x.is_scalar || x.numel == 0 || codes.numel == 0) return false;
  for (int i = 1; i < c.n_in; ++i)
    if (c.in[i].present() && !c.in[i].contiguous) return false;
  const int64_t bits = c.get_attrs<NBitsAttrs>().bits;
  if (is_integer(c)) return supports_nbits_integers(codes.shape[2] * 8 / bits, codes.shape[2]);
  const int64_t group = codes.shape[2] * 8 / bits, chunk = 32 / bits * nbits_loops().lanes;
  return group % chunk == 0 || (chunk % group == 0 && group % (32 / bits) == 0);
}

}  // namespace

const float* nbits_row(const Array& x, int64_t r, float* room) {
  const int64_t k = x.shape[x.rank - 1], step = x.strides[x.rank - 1], start = row_start(x, r);
  if (x.dtype == DType::f32) {
    const float* from = x.as<float>() + start;
    if (step == 1) return from;
    for (int64_t i = 0; i < k; ++i) room[i] = from[i * step];
  } else {
    const uint16_t* from = x.as<uint16_t>() + start;
    for (int64_t i = 0; i < k; ++i) room[i] = bfloat16_bits_to_float(from[i * step]);
  }
  return room;
}

void use_nbits_loops(const NBitsLoops* loops) {
  forced_nbits.store(loops, std::memory_order_relaxed);
}

void register_nbits_kernels() {
  register_kernel(DeviceKind::cpu, op::matmul_nbits,
                  {supports_nbits, nullptr, prepare_nbits, run_nbits});
}

}  // namespace tandem::detail
