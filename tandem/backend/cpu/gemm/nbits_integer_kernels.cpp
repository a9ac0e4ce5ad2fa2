// SPDX-License-Identifier: Apache-2.0
// The kernel of matmul_nbits at accuracy level 4. Threads share blocks of rows and of columns; each
// rounds the rows of a block once.
#include <algorithm>
#include <atomic>

#include "tandem/backend/cpu/gemm/nbits_integer_internal.h"
#include "tandem/backend/cpu/gemm/nbits_internal.h"
#include "tandem/backend/cpu/gemm/packed_internal.h"
#include "tandem/backend/cpu/registry_internal.h"
#include "tandem/base/half.h"
#include "tandem/ops/matmul/nbits.h"

namespace tandem::detail {
namespace {

constexpr int64_t kRoundedBytes = 128 << 10;  ///< of rounded rows, which are read for all columns
constexpr int64_t kLeastColumns = 64;         ///< of one unit of work
constexpr int64_t kMostInputs = 65536;        ///< of a group: sums of products fit in 32 bits
constexpr double kProductsPerWorker = 131072;

std::atomic<const NBitsIntegerLoops*> forced_nbits_integers{nullptr};

const NBitsIntegerLoops& nbits_integer_loops() {
  if (const auto* f = forced_nbits_integers.load(std::memory_order_relaxed)) return *f;
  static const NBitsIntegerLoops* best = [] {
    const CpuFeatures& f = cpu_features();
    return f.avx512 && f.vnni && kNBitsIntegerVnni.name ? &kNBitsIntegerVnni
           : f.avx2 && kNBitsIntegerAvx2.name           ? &kNBitsIntegerAvx2
                                                        : &kNBitsIntegerBase;
  }();
  return *best;
}

struct NBitsIntegerPlan : Plan {
  const NBitsIntegerLoops* loops = nullptr;
  int64_t bits = 4, m = 0, n = 0;
  NBitsIntegers call;
  int workers = 1;
  int64_t rows = 1, columns = 1;  ///< of a unit of work
  bool direct = true;             ///< the result is f32: it is written where it belongs
  /// Where in a worker's scratch there are: the block whose rows are rounded, their codes, scales
  /// and sums, a row of x in f32 and one of its codes, and, unless `direct`, a block of the result.
  size_t block = 0, x = 0, scales = 0, sums = 0, row = 0, plain = 0, y = 0;
  size_t part = 0;  ///< bytes of a worker's scratch
  size_t form() const { return bits == 2 ? 0 : bits == 4 ? 1 : 2; }
};

}  // namespace

std::shared_ptr<const Plan> prepare_nbits_integers(const KernelCall& c) {
  auto plan = std::make_shared<NBitsIntegerPlan>();
  NBitsIntegerPlan& p = *plan;
  const Array &x = c.in[0], &codes = c.in[1];
  p.loops = &nbits_integer_loops();
  p.bits = c.get_attrs<NBitsAttrs>().bits;
  p.n = codes.shape[0];
  p.direct = x.dtype == DType::f32;
  NBitsIntegers& call = p.call;
  call.k = x.shape[x.rank - 1];
  p.m = x.numel / call.k;
  call.groups = codes.shape[1];
  call.group_bytes = codes.shape[2];
  call.group = call.group_bytes * 8 / p.bits;
  call.row_bytes = call.groups * call.group_bytes;
  call.x_row = (call.row_bytes + kNBitsChunk - 1) / kNBitsChunk * kNBitsChunk * (8 / p.bits);
  call.x_groups = (call.groups + kNBitsGroupStep - 1) / kNBitsGroupStep * kNBitsGroupStep;
  call.zero_bytes = (call.groups * p.bits + 7) / 8;
  const double products = static_cast<double>(p.m) * static_cast<double>(p.n * call.k);
  p.workers =
      std::max(1, static_cast<int>(std::min<double>(num_threads(), products / kProductsPerWorker)));
  p.rows = std::min(p.m, std::max<int64_t>(kRoundedBytes / call.x_row, 1));
  const int64_t blocks = (p.m + p.rows - 1) / p.rows;
  const int64_t parts = p.workers == 1 ? 1 : std::max<int64_t>(1, 4 * p.workers / blocks);
  p.columns = std::max(kLeastColumns, (p.n + parts - 1) / parts);
  const auto room = [&p](int64_t count, size_t each) {
    return take_lines(p.part, static_cast<size_t>(count) * each);
  };
  p.block = room(1, sizeof(int64_t));
  p.x = room(p.rows * call.x_row, sizeof(int8_t));
  p.scales = room(p.rows * call.x_groups, sizeof(float));
  p.sums = room(p.rows * call.x_groups, sizeof(int32_t));
  p.row = room(call.k, sizeof(float));
  p.plain = room(call.x_row, sizeof(int8_t));
  if (!p.direct) p.y = room(p.rows * p.columns, sizeof(float));
  plan->workspace = p.part * static_cast<size_t>(p.workers);
  return plan;
}

namespace {

// Rows r0.. and columns j0.. of the result, with one worker's scratch.
void nbits_integer_unit(const KernelCall& c, const NBitsIntegerPlan& p, int64_t r0, int64_t j0,
                        char* scratch) {
  const int64_t rows = std::min(p.rows, p.m - r0), j1 = std::min(j0 + p.columns, p.n);
  auto* block = reinterpret_cast<int64_t*>(scratch + p.block);
  NBitsIntegers call = p.call;
  call.codes = c.in[1].as<uint8_t>();
  call.scale = c.in[2].as<float>();
  call.zero = c.n_in > 3 && c.in[3].present() ? c.in[3].as<uint8_t>() : nullptr;
  call.x = reinterpret_cast<int8_t*>(scratch + p.x);
  call.x_scale = reinterpret_cast<float*>(scratch + p.scales);
  call.x_sum = reinterpret_cast<int32_t*>(scratch + p.sums);
  auto* row = reinterpret_cast<float*>(scratch + p.row);
  auto* plain = reinterpret_cast<int8_t*>(scratch + p.plain);
  auto* own = reinterpret_cast<float*>(scratch + p.y);
  if (*block != r0)
    for (int64_t r = 0; r < rows; ++r)
      p.loops->round[p.form()](call, nbits_row(c.in[0], r0 + r, row), r, plain);
  *block = r0;
  call.y = p.direct ? c.out[0].as<float>() + r0 * p.n : own - j0;
  call.y_row = p.direct ? p.n : p.columns;
  p.loops->run[p.form()](call, rows, j0, j1);
  if (p.direct) return;
  for (int64_t r = 0; r < rows; ++r)
    for (int64_t j = j0; j < j1; ++j)
      c.out[0].as<uint16_t>()[(r0 + r) * p.n + j] =
          float_to_bfloat16_bits(own[r * p.columns + j - j0]);
}

}  // namespace

void run_nbits_integers(const KernelCall& c) {
  const auto& p = *static_cast<const NBitsIntegerPlan*>(c.plan);
  const int64_t across = (p.n + p.columns - 1) / p.columns;
  const int64_t blocks = (p.m + p.rows - 1) / p.rows;
  const auto scratch = [&](size_t w) { return static_cast<char*>(c.scratch) + w * p.part; };
  for (int w = 0; w < p.workers; ++w)
    *reinterpret_cast<int64_t*>(scratch(static_cast<size_t>(w)) + p.block) = -1;
  share_units(p.workers, blocks * across, [&](size_t w, int64_t u) {
    nbits_integer_unit(c, p, u / across * p.rows, u % across * p.columns, scratch(w));
  });
}

bool supports_nbits_integers(int64_t group, int64_t bytes) {
  return group <= kMostInputs &&
         (bytes % kNBitsChunk == 0 || bytes == 4 || bytes == 8 || bytes == 16);
}

void use_nbits_integer_loops(const NBitsIntegerLoops* loops) {
  forced_nbits_integers.store(loops, std::memory_order_relaxed);
}

}  // namespace tandem::detail
