// SPDX-License-Identifier: Apache-2.0
// The dialect: each kernel gives the bits of plain C++ on every driver.
#include <algorithm>
#include <cmath>
#include <random>

#include "tests/gpu/drivers_helper.h"

namespace tandem::gpu {
namespace {

class Dialect : public OverDrivers {
 protected:
  // f64 or not.
  bool has(DType type) const { return type != DType::f64 || device_->context->info().f64; }
};
TD_OVER_DRIVERS(Dialect);

template <class T>
std::vector<T> random_values(size_t n, unsigned seed) {
  std::mt19937 random(seed);
  std::vector<T> v(n);
  for (T& x : v) {
    if constexpr (std::is_floating_point_v<T>) {
      x = static_cast<T>(std::ldexp(static_cast<double>(random()) / 4294967296.0 - 0.5,
                                    static_cast<int>(random() % 24) - 12));
    } else {
      x = static_cast<T>(random() % 200);
    }
  }
  return v;
}

template <class T>
void expect_bits(const std::vector<T>& got, const std::vector<T>& want, const std::string& what) {
  ASSERT_EQ(got.size(), want.size());
  for (size_t i = 0; i < got.size(); ++i) {
    ASSERT_EQ(std::memcmp(&got[i], &want[i], sizeof(T)), 0)
        << what << " [" << i << "]: " << +got[i] << ", not " << +want[i];
  }
}

// Sizes around the size of a block.
constexpr int64_t kSizes[] = {1, 127, 128, 129, 5000};

template <class T>
void check_fill_and_axpy(Device& d) {
  for (const int64_t n : kSizes) {
    const size_t count = static_cast<size_t>(n), bytes = count * sizeof(T);
    const std::vector<T> x = random_values<T>(count, 1), y = random_values<T>(count, 2);
    const Address ax = d.put(x), ay = d.put(y);
    const T a = static_cast<T>(3);
    ASSERT_OK(d.launch(kernel_name("axpy", dtype_of<T>), n,
                       Arguments().address(ay, bytes).address(ax, bytes).value(a).value(n)));
    std::vector<T> want(count);
    for (size_t i = 0; i < count; ++i) {
      const T product = a * x[i];
      want[i] = product + y[i];
    }
    expect_bits(d.get<T>(ay, count), want, "axpy");
    ASSERT_OK(d.launch(kernel_name("fill", dtype_of<T>), n,
                       Arguments().address(ay, bytes).value(a).value(n)));
    expect_bits(d.get<T>(ay, count), std::vector<T>(count, a), "fill");
    ASSERT_OK(d.context->release(ax));
    ASSERT_OK(d.context->release(ay));
  }
}

TEST_P(Dialect, FillAndAxpy) {
  check_fill_and_axpy<float>(*device_);
  check_fill_and_axpy<int32_t>(*device_);
  if (has(DType::f64)) check_fill_and_axpy<double>(*device_);
}

// The order of kernels.h.
template <class T>
std::vector<T> sums_of(const std::vector<T>& x) {
  std::vector<T> sums;
  for (size_t first = 0; first < x.size(); first += kSumTile) {
    T partial[kSumThreads];
    for (size_t t = 0; t < kSumThreads; ++t) {
      partial[t] = 0;
      for (size_t i = first + t * 4; i < first + t * 4 + 4 && i < x.size(); ++i) {
        partial[t] += x[i];
      }
    }
    for (size_t half = kSumThreads / 2; half > 0; half /= 2) {
      for (size_t t = 0; t < half; ++t) partial[t] += partial[t + half];
    }
    sums.push_back(partial[0]);
  }
  return sums;
}

template <class T>
void check_block_sum(Device& d) {
  for (const int64_t n : {int64_t{1}, int64_t{511}, kSumTile, 7 * kSumTile + 3}) {
    const std::vector<T> x = random_values<T>(static_cast<size_t>(n), 3);
    const std::vector<T> want = sums_of(x);
    const Address ax = d.put(x), ay = d.allocate(want.size() * sizeof(T));
    ASSERT_OK(d.context->launch(
        d.kernel(kernel_name("block_sum", dtype_of<T>)), blocks_for(n, kSumTile), {kSumThreads},
        Arguments().address(ay, want.size() * sizeof(T)).address(ax, x.size() * sizeof(T)).value(n),
        d.stream));
    expect_bits(d.get<T>(ay, want.size()), want, "block_sum");
  }
}

TEST_P(Dialect, SumsOfBlocksWithABarrier) {
  check_block_sum<float>(*device_);
  check_block_sum<int32_t>(*device_);
  if (has(DType::f64)) check_block_sum<double>(*device_);
}

// Loads and stores of 16 bytes.
template <class T>
void check_reversed_lines(Device& d) {
  constexpr size_t kLine = 16 / sizeof(T);
  for (const int64_t n : kSizes) {
    const std::vector<T> x = random_values<T>(static_cast<size_t>(n) * kLine, 7);
    std::vector<T> want = x;
    for (size_t i = 0; i < want.size(); i += kLine) {
      std::reverse(want.begin() + static_cast<std::ptrdiff_t>(i),
                   want.begin() + static_cast<std::ptrdiff_t>(i + kLine));
    }
    const size_t bytes = x.size() * sizeof(T);
    const Address ax = d.put(x), ay = d.allocate(bytes);
    ASSERT_OK(d.launch(kernel_name("reversed_lines", dtype_of<T>), n,
                       Arguments().address(ay, bytes).address(ax, bytes).value(n)));
    expect_bits(d.get<T>(ay, want.size()), want, "reversed_lines");
    ASSERT_OK(d.context->release(ax));
    ASSERT_OK(d.context->release(ay));
  }
}

TEST_P(Dialect, LinesOf16Bytes) {
  check_reversed_lines<uint8_t>(*device_);
  check_reversed_lines<int32_t>(*device_);
  check_reversed_lines<float>(*device_);
  if (has(DType::f64)) check_reversed_lines<double>(*device_);
}

template <class T>
void check_strided_copy(Device& d) {
  struct Case {
    int64_t n[3], s[3], first;
  };
  const Case cases[] = {
      {{4, 5, 6}, {30, 6, 1}, 0},       // row-major
      {{6, 5, 4}, {1, 6, 30}, 0},       // transposed
      {{3, 7, 2}, {0, 5, 2}, 1},        // one axis repeated
      {{2, 3, 50}, {-50, 100, 1}, 50},  // one backwards
  };
  const std::vector<T> x = random_values<T>(512, 4);
  const Address ax = d.put(x);
  for (const Case& k : cases) {
    const int64_t count = k.n[0] * k.n[1] * k.n[2];
    std::vector<T> want;
    for (int64_t i = 0; i < count; ++i) {
      const int64_t at = k.first + i / (k.n[1] * k.n[2]) * k.s[0] + i / k.n[2] % k.n[1] * k.s[1] +
                         i % k.n[2] * k.s[2];
      want.push_back(x[static_cast<size_t>(at)]);
    }
    const size_t bytes = want.size() * sizeof(T),
                 skipped = static_cast<size_t>(k.first) * sizeof(T);
    const Address ay = d.allocate(bytes);
    Arguments a;
    a.address(ay, bytes).address(ax + skipped, 512 * sizeof(T) - skipped);
    for (const int64_t n : k.n) a.value(n);
    for (const int64_t s : k.s) a.value(s);
    ASSERT_OK(d.launch(kernel_name("strided_copy", dtype_of<T>), count, a));
    expect_bits(d.get<T>(ay, want.size()), want, "strided_copy");
  }
}

TEST_P(Dialect, StridedCopies) {
  check_strided_copy<float>(*device_);
  check_strided_copy<uint8_t>(*device_);
  if (has(DType::f64)) check_strided_copy<double>(*device_);
}

template <class T>
void check_arithmetic(Device& d) {
  const size_t n = 20000;
  std::vector<T> a = random_values<T>(n, 5), b = random_values<T>(n, 6), c = random_values<T>(n, 7);
  for (T& v : a) v = std::abs(v);
  std::vector<T> want(6 * n);
  for (size_t i = 0; i < n; ++i) {
    const T product = a[i] * b[i];
    want[i] = product + c[i];
    want[n + i] = std::fma(a[i], b[i], c[i]);
    want[2 * n + i] = a[i] / b[i];
    want[3 * n + i] = a[i] - b[i];
    want[4 * n + i] = std::sqrt(a[i]);
    want[5 * n + i] = static_cast<T>(i);
  }
  const size_t bytes = n * sizeof(T);
  const Address y = d.allocate(6 * bytes);
  ASSERT_OK(d.launch(kernel_name("arithmetic", dtype_of<T>), n,
                     Arguments()
                         .address(y, 6 * bytes)
                         .address(d.put(a), bytes)
                         .address(d.put(b), bytes)
                         .address(d.put(c), bytes)
                         .value(static_cast<int64_t>(n))));
  expect_bits(d.get<T>(y, 6 * n), want, "arithmetic");
}

TEST_P(Dialect, ArithmeticGivesTheHostsBits) {
  check_arithmetic<float>(*device_);
  if (has(DType::f64)) check_arithmetic<double>(*device_);
}

TEST_P(Dialect, GridsOfThreeAxes) {
  KernelSource k{"where_am_i", {{Parameter::out, DType::i32, "y"}}, {}, R"td_text(
    const td_u32 block = (td_block(z) * td_blocks(y) + td_block(y)) * td_blocks(x) + td_block(x);
    const td_u32 thread = (td_thread(z) * td_threads(y) + td_thread(y)) * td_threads(x) + td_thread(x);
    y[block * td_threads(x) * td_threads(y) * td_threads(z) + thread] = block * 1000 + thread;
  )td_text"};
  ModuleRef module = nullptr;
  ASSERT_OK(device_->context->build({&k, 1}, module));
  KernelRef kernel = nullptr;
  ASSERT_OK(device_->context->find(module, k.name, kernel));
  const Extent blocks{3, 2, 5}, threads{4, 3, 2};
  const auto count = static_cast<size_t>(blocks.count() * threads.count());
  const Address y = device_->allocate(count * 4);
  ASSERT_OK(device_->context->launch(kernel, blocks, threads, Arguments().address(y, count * 4),
                                     device_->stream));
  const std::vector<uint32_t> got = device_->get<uint32_t>(y, count);
  const auto per_block = static_cast<uint32_t>(threads.count());
  for (uint32_t i = 0; i < count; ++i) {
    ASSERT_EQ(got[i], i / per_block * 1000 + i % per_block) << i;
  }
}

}  // namespace
}  // namespace tandem::gpu
