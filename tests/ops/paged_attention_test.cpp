// SPDX-License-Identifier: Apache-2.0
// paged_attention against attention over each text by itself, in both forms of the kernel.
#include "tandem/ops/nn/paged_attention.h"

#include <gtest/gtest.h>

#include "tandem/tandem.h"
#include "tests/support/init.h"

namespace tandem {
namespace {

constexpr int64_t kBlock = 4, kHeads = 4, kKeyHeads = 2, kSize = 8;

/// Texts whose keys lie in shuffled blocks of one pool.
struct Pool {
  explicit Pool(const std::vector<int64_t>& lengths) {
    manual_seed(5);
    k = randn({20 * kBlock, kKeyHeads, kSize});
    v = randn({20 * kBlock, kKeyHeads, kSize});
    int64_t next = 0;
    std::vector<int64_t> all;
    for (const int64_t length : lengths) {
      std::vector<int64_t> own;
      for (int64_t b = 0; b < 4; ++b)
        own.push_back(b * kBlock < length ? (7 * ++next) % 20 : 0);  // 7 and 20 share no factor
      blocks.push_back(own);
      all.insert(all.end(), own.begin(), own.end());
    }
    table = tensor(all, Shape(static_cast<int64_t>(lengths.size()), int64_t{4}));
  }
  /// [heads, length, size] of a text's first tokens.
  Tensor text(const Tensor& pool, size_t i, int64_t length) const {
    std::vector<int64_t> slots;
    for (int64_t p = 0; p < length; ++p)
      slots.push_back(blocks[i][static_cast<size_t>(p / kBlock)] * kBlock + p % kBlock);
    return index_select(pool, 0, tensor(slots, Shape(length))).transpose(0, 1);
  }
  Tensor k, v, table;
  std::vector<std::vector<int64_t>> blocks;
};

// What query `row` of text i sees, by attention itself.
Tensor alone(const Pool& p, const Tensor& q, size_t i, int64_t row, int64_t at, int64_t window) {
  const int64_t from = window > 0 ? std::max<int64_t>(0, at - window + 1) : 0;
  const auto seen = [&](const Tensor& pool) {
    return p.text(pool, i, at + 1).narrow(1, from, at + 1 - from);
  };
  return scaled_dot_product_attention(q.select(0, static_cast<int64_t>(i)).narrow(1, row, 1),
                                      seen(p.k), seen(p.v), {}, 0, false, 0, true)
      .squeeze(1);
}

TEST(PagedAttention, IsAttentionOverEachText) {
  const std::vector<int64_t> lengths = {1, 6, 13, 16};
  const Pool p(lengths);
  for (const int64_t l : {1, 5})  // key by key, and by tiles
    for (const int64_t window : {0, 3}) {
      const Tensor q = randn({4, kHeads, l, kSize});
      std::vector<int64_t> at;
      for (const int64_t n : lengths)
        for (int64_t t = 0; t < l; ++t) at.push_back(n - l + t);  // below 0: padding
      const Tensor y = paged_attention(q, p.k, p.v, p.table, tensor(at, Shape(int64_t{4}, l)),
                                       {.block = kBlock, .window = window});
      for (size_t i = 0; i < lengths.size(); ++i)
        for (int64_t t = 0; t < l; ++t) {
          const Tensor own = y.select(0, static_cast<int64_t>(i)).select(1, t);
          const int64_t position = at[i * static_cast<size_t>(l) + static_cast<size_t>(t)];
          const Tensor want = position < 0 ? zeros_like(own) : alone(p, q, i, t, position, window);
          EXPECT_TRUE(allclose(own, want, 1e-5, 1e-6))
              << l << " " << window << " " << i << " " << t;
        }
    }
}

// bf16 is read as it lies, computed in f32 and rounded once.
TEST(PagedAttention, HalfIsRoundedOnce) {
  const Pool p({9, 16});
  const Tensor k = p.k.to(DType::bf16), v = p.v.to(DType::bf16);
  for (const int64_t l : {1, 5}) {
    const Tensor q = randn({2, kHeads, l, kSize}).to(DType::bf16),
                 at = stack({arange(9 - l, 9), arange(16 - l, 16)});
    const Tensor got = paged_attention(q, k, v, p.table, at, {.block = kBlock});
    const Tensor want = paged_attention(q.to(DType::f32), k.to(DType::f32), v.to(DType::f32),
                                        p.table, at, {.block = kBlock});
    EXPECT_EQ(got.contiguous().to_vector<float>(),
              want.to(DType::bf16).contiguous().to_vector<float>())
        << l;
  }
}

TEST(PagedAttention, ATextDoesNotDependOnThoseBeside) {
  const Pool p({9, 12, 3});
  const Tensor q = randn({3, kHeads, 1, kSize}), at = tensor({8, 11, 2}).reshape({3, 1});
  const Tensor all = paged_attention(q, p.k, p.v, p.table, at, {.block = kBlock});
  for (int64_t i = 0; i < 3; ++i) {
    const Tensor own = paged_attention(q.narrow(0, i, 1), p.k, p.v, p.table.narrow(0, i, 1),
                                       at.narrow(0, i, 1), {.block = kBlock});
    EXPECT_EQ(own.contiguous().to_vector<float>(),
              all.narrow(0, i, 1).contiguous().to_vector<float>());
  }
}

TEST(PagedAttention, SaysWhatDoesNotFit) {
  const Pool p({9});
  const Tensor q = randn({1, kHeads, 1, kSize});
  const auto text = [&](const Tensor& table, const Tensor& at, const Tensor& query) {
    try {
      paged_attention(query, p.k, p.v, table, at, {.block = kBlock});
    } catch (const Error& e) {
      return std::string(e.what());
    }
    return std::string("nothing");
  };
  const auto has = [](const std::string& s, const char* what) { return s.find(what) != s.npos; };
  const Tensor at = tensor({8}).reshape({1, 1});
  const auto table = [](int64_t block) {
    return tensor(std::vector<int64_t>{block, 1, 2, 3}).reshape({1, 4});
  };
  EXPECT_TRUE(has(text(table(20), at, q), "20 lies outside")) << text(table(20), at, q);
  EXPECT_TRUE(has(text(table(-1), at, q), "-1 lies outside"));
  EXPECT_TRUE(has(text(table(0), tensor({16}).reshape({1, 1}), q), "16 lies outside"));
  EXPECT_TRUE(has(text(table(0), at, randn({1, 3, 1, kSize})), "3 heads of the query"));
  EXPECT_TRUE(has(text(table(0), at, randn({1, kHeads, 1, 5})), "5 features"));
  EXPECT_TRUE(has(text(table(0).to(DType::f32), at, q), "table is float32"));
  EXPECT_TRUE(has(text(table(0), tensor({1, 2}).reshape({1, 2}), q), "positions [1, 2]"));
}

}  // namespace
}  // namespace tandem
