// SPDX-License-Identifier: Apache-2.0
// Linear layers of 4096 x 4096 on one thread: weights in f32, bf16 and as codes of 8 and 4 bits,
// taking turns. Each call reads another copy of the weight, so that it comes from memory.
// `bench_nbits [ROWS ...]` prints microseconds, GB/s of weight and scales, and the ratio to f32.
#include <fmt/core.h>

#include <algorithm>
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

std::vector<Form> forms() {
  std::vector<Form> out;
  for (const DType t : {DType::f32, DType::bf16}) {
    Form f{t == DType::f32 ? "f32" : "bf16", kSize * kSize * static_cast<int64_t>(size_of(t)), {}};
    std::vector<Tensor> w;
    for (size_t i = 0; i < f.copies(); ++i) w.push_back(randn({kSize, kSize}).to(t));
    f.run = [w](const Tensor& x, size_t i) { return linear(x.to(w[i].dtype()), w[i]); };
    out.push_back(std::move(f));
  }
  for (const int64_t bits : {8, 4}) {
    Form f{bits == 8 ? "int8" : "int4", kSize * kSize * bits / 8 + kSize * kSize / kGroup * 4, {}};
    std::vector<PackedCodes> w;
    for (size_t i = 0; i < f.copies(); ++i)
      w.push_back({randint(0, 256, {kSize, kSize / kGroup, kGroup * bits / 8}).to(DType::u8),
                   rand({kSize, kSize / kGroup}),
                   {},
                   bits});
    f.run = [w](const Tensor& x, size_t i) { return matmul_nbits(x, w[i]); };
    out.push_back(std::move(f));
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
    fmt::print("  {:5} {:9.1f} us  {:6.2f} GB/s  {:7.1f} GFLOPS  {:.2f} x f32\n", f.name,
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
