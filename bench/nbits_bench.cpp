// SPDX-License-Identifier: Apache-2.0
// Linear layers of 4096 x 4096 on one thread: weights in f32, bf16 and as codes of 8 and 4 bits, at
// accuracy level 4 too, taking turns. Each call reads another copy of the weight, so that it comes
// from memory. `bench_nbits [ROWS ...]` prints microseconds, GB/s of weight and scales, the ratio
// to f32, and how long the bytes of the 4-bit weight alone take to be read.
#include <fmt/core.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdlib>
#include <functional>
#include <vector>

#include "tandem/ops/matmul/nbits.h"
#include "tandem/tandem.h"

namespace tandem::bench {
namespace {

constexpr int64_t kSize = 4096, kGroup = 128, kBytes = int64_t{128} << 20;  // of all copies
constexpr int kRounds = 15;

double seconds_of(const std::function<void()>& f) {
  const auto t = std::chrono::steady_clock::now();
  f();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - t).count();
}

struct Form {
  const char* name;
  int64_t bytes;  ///< of one copy
  std::function<Tensor(const Tensor& x, size_t copy)> run;
  size_t copies() const { return static_cast<size_t>(std::max<int64_t>(2, kBytes / bytes)); }
  double best = 1e30;
};

struct Codes {
  const char* name;
  int64_t bits, level;
};

std::atomic<uint64_t> read_sum = 0;
// The sum of a tensor's words, so that all of it is read.
uint64_t read_all(const Tensor& t) {
  const auto* p = reinterpret_cast<const uint64_t*>(t.data_ptr());
  const int64_t words = t.numel() * static_cast<int64_t>(size_of(t.dtype())) / 8;
  uint64_t sum[4] = {};
  for (int64_t i = 0; i + 4 <= words; i += 4)
    for (int64_t j = 0; j < 4; ++j) sum[j] += p[i + j];
  return sum[0] + sum[1] + sum[2] + sum[3];
}

std::vector<Form> forms() {
  std::vector<Form> out;
  for (const DType t : {DType::f32, DType::bf16}) {
    Form f{t == DType::f32 ? "f32" : "bf16", kSize * kSize * static_cast<int64_t>(size_of(t)), {}};
    std::vector<Tensor> w;
    for (size_t i = 0; i < f.copies(); ++i) w.push_back(randn({kSize, kSize}).to(t));
    f.run = [w](const Tensor& x, size_t i) { return linear(x.to(w[i].dtype()), w[i]); };
    out.push_back(std::move(f));
  }
  for (const auto& [name, bits, level] :
       {Codes{"int8", 8, 0}, Codes{"int4", 4, 0}, Codes{"int8, x int8", 8, 4},
        Codes{"int4, x int8", 4, 4}}) {
    Form f{name, kSize * kSize * bits / 8 + kSize * kSize / kGroup * 4, {}};
    std::vector<PackedCodes> w;
    for (size_t i = 0; i < f.copies(); ++i)
      w.push_back({randint(0, 256, {kSize, kSize / kGroup, kGroup * bits / 8}).to(DType::u8),
                   rand({kSize, kSize / kGroup}),
                   {},
                   bits,
                   level});
    f.run = [w](const Tensor& x, size_t i) { return matmul_nbits(x, w[i]); };
    out.push_back(std::move(f));
    if (level != 4 || bits != 4) continue;
    Form read{"read int4", out.back().bytes, {}};
    read.run = [w](const Tensor& x, size_t i) {
      read_sum += read_all(w[i].codes) + read_all(w[i].scale);
      return x;
    };
    out.push_back(std::move(read));
  }
  return out;
}

void measure(int64_t rows, std::vector<Form> all) {
  const Tensor x = randn({rows, kSize});
  size_t at = 0;
  for (int r = 0; r < kRounds; ++r)
    for (Form& f : all)
      for (int i = 0; i < 4; ++i, ++at)
        f.best = std::min(f.best, seconds_of([&] { f.run(x, at % f.copies()); }));
  fmt::print("{} rows\n", rows);
  for (const Form& f : all) {
    const double rate = static_cast<double>(f.bytes) / f.best * 1e-9;
    fmt::print("  {:12} {:9.1f} us  {:6.2f} GB/s  {:7.1f} GFLOPS  {:.2f} x f32\n", f.name,
               f.best * 1e6, rate, 2e-9 * static_cast<double>(rows * kSize * kSize) / f.best,
               all[0].best / f.best);
  }
}

}  // namespace
}  // namespace tandem::bench

int main(int argc, char** argv) {
  using namespace tandem;
  init();
  set_num_threads(1);
  manual_seed(1);
  const NoGradGuard no_grad;
  std::vector<int64_t> rows;
  for (int i = 1; i < argc; ++i) rows.push_back(std::atoll(argv[i]));
  if (rows.empty()) rows = {1, 4, 64};
  const auto all = bench::forms();
  for (const int64_t r : rows) bench::measure(r, all);
}
