// SPDX-License-Identifier: Apache-2.0
// Calls of an engine against what they should give, for every engine and every way to start ranks.
#pragma once

#include <gtest/gtest.h>

#include <cstring>
#include <vector>

#include "tandem/dist/engine.h"

namespace tandem::distributed {

// Element i of rank r: small whole numbers, exact in every dtype.
template <class T>
std::vector<T> values_of(int rank, int64_t n) {
  std::vector<T> v;
  for (int64_t i = 0; i < n; ++i)
    v.push_back(static_cast<T>(static_cast<float>((i * 7 + rank * 3) % 11)));
  return v;
}
template <class T>
Array array_of(std::vector<T>& v) {
  return {v.data(), static_cast<int64_t>(v.size()), dtype_of<T>};
}

template <class T>
void check_calls(Engine& e, int64_t n) {
  const int ranks = e.size(), rank = e.rank();
  const auto all = static_cast<size_t>(ranks);
  for (const ReduceOp op : {ReduceOp::sum, ReduceOp::min, ReduceOp::max}) {
    std::vector<T> x = values_of<T>(rank, n), want = values_of<T>(0, n);
    for (int r = 1; r < ranks; ++r) {
      const std::vector<T> y = values_of<T>(r, n);
      for (size_t i = 0; i < y.size(); ++i) {
        const auto a = static_cast<double>(want[i]), b = static_cast<double>(y[i]);
        want[i] = static_cast<T>(static_cast<float>(op == ReduceOp::sum   ? a + b
                                                    : op == ReduceOp::min ? std::min(a, b)
                                                                          : std::max(a, b)));
      }
    }
    e.all_reduce(array_of(x), op, {"x"}).wait();
    EXPECT_EQ(std::memcmp(x.data(), want.data(), x.size() * sizeof(T)), 0) << to_string(op);
    // The same through reduce_scatter, where the array has a part for each.
    if (n % ranks != 0) continue;
    std::vector<T> whole = values_of<T>(rank, n), part(static_cast<size_t>(n) / all);
    e.reduce_scatter(array_of(whole), array_of(part), op).wait();
    EXPECT_EQ(std::memcmp(part.data(), want.data() + static_cast<size_t>(rank) * part.size(),
                          part.size() * sizeof(T)),
              0);
  }
  std::vector<T> own = values_of<T>(rank, n), gathered(static_cast<size_t>(n) * all);
  e.all_gather(array_of(own), array_of(gathered)).wait();
  for (int r = 0; r < ranks; ++r) {
    const std::vector<T> want = values_of<T>(r, n);
    EXPECT_EQ(std::memcmp(gathered.data() + static_cast<size_t>(r) * want.size(), want.data(),
                          want.size() * sizeof(T)),
              0);
  }
  for (int root = 0; root < ranks; ++root) {
    std::vector<T> x = values_of<T>(rank, n);
    const std::vector<T> want = values_of<T>(root, n);
    e.broadcast(array_of(x), root).wait();
    EXPECT_EQ(std::memcmp(x.data(), want.data(), want.size() * sizeof(T)), 0);
  }
  std::vector<T> out(static_cast<size_t>(n) * all), in;
  for (int r = 0; r < ranks; ++r) {  // for rank r: the numbers of rank * ranks + r
    const std::vector<T> part = values_of<T>(rank * ranks + r, n);
    in.insert(in.end(), part.begin(), part.end());
  }
  e.all_to_all(array_of(in), array_of(out)).wait();
  for (int r = 0; r < ranks; ++r) {
    const std::vector<T> want = values_of<T>(r * ranks + rank, n);
    EXPECT_EQ(std::memcmp(out.data() + static_cast<size_t>(r) * want.size(), want.data(),
                          want.size() * sizeof(T)),
              0);
  }
}

/// Every kind of call, every dtype, sizes around the limits.
inline void check_all_calls(Engine& e) {
  for (const int64_t n : {0, 1, 60, 61, 4096, 4103, 4200, 30000}) {
    check_calls<float>(e, n);
    e.barrier().wait();
  }
  for (const int64_t n : {60, 16800}) {  // few bytes and many
    check_calls<double>(e, n);
    check_calls<Half>(e, n);
    check_calls<BFloat16>(e, n);
    check_calls<int64_t>(e, n);
    check_calls<int32_t>(e, n);
    check_calls<int16_t>(e, n);
    check_calls<int8_t>(e, n);
    check_calls<uint8_t>(e, n);
  }
  check_calls<float>(e, 300000);  // more than sockets hold
}

}  // namespace tandem::distributed
