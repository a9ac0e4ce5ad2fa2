// SPDX-License-Identifier: Apache-2.0
// Concatenations whose pieces are made in their places: the bits of eager code, and how many pieces
// are still copied.
#include <gtest/gtest.h>

#include "tests/compile/helpers.h"

namespace tandem {
namespace {

using namespace test;

struct Case {
  const char* name;
  int copies;                                               ///< steps that copy or concatenate
  std::function<Out(const Tensor& x, const Tensor& w)> fn;  ///< of [32, 16] and [16, 16]
};

// Reads its operand once more than the concatenation, so that nothing is fused into the latter.
Tensor sums(const Tensor& x) { return x.sum(std::vector<int64_t>{1}); }

TEST(Pieces, AreMadeInTheirPlaces) {
  const Case cases[] = {
      {"matmuls", 0,
       [](const Tensor& x, const Tensor& w) {
         return Out{tanh(cat({matmul(x, w), matmul(x, w * 2)}, 0))};
       }},
      {"loops and sums, flattened", 0,
       [](const Tensor& x, const Tensor& w) {
         return Out{cat({exp(x).reshape({-1}), sums(x), matmul(w, w).reshape({-1})}, 0) * 2};
       }},
      {"what leaves the program", 0,
       [](const Tensor& x, const Tensor& w) {
         return Out{cat({matmul(x, w), exp(x)}, 0)};
       }},
      {"a concatenation of concatenations", 0,
       [](const Tensor& x, const Tensor& w) {
         const Tensor two = cat({matmul(x, w), exp(x)}, 0);
         return Out{cat({two, matmul(x, w * 2)}, 0) + 1};
       }},
      {"read again afterwards, while the whole is written over", 0,
       [](const Tensor& x, const Tensor& w) {
         const Tensor a = matmul(x, w), all = cat({a, matmul(x, w * 3)}, 0);
         return Out{tanh(all) + 1, matmul(a, w)};
       }},
      {"an argument", 1,
       [](const Tensor& x, const Tensor& w) {
         return Out{cat({x, matmul(x, w)}, 0) * 2};
       }},
      {"a value that stands twice", 1,
       [](const Tensor& x, const Tensor& w) {
         const Tensor a = matmul(x, w);
         return Out{cat({a, a}, 0) * 2};
       }},
      {"read before", 1,
       [](const Tensor& x, const Tensor& w) {
         const Tensor a = matmul(x, w);
         return Out{cat({a, matmul(a, w)}, 0) * 2};
       }},
      {"places that kernels do not like", 1,
       [](const Tensor& x, const Tensor& w) {
         const Tensor few = matmul(x, w).slice(0, 0, 31).sum(std::vector<int64_t>{1});
         return Out{cat({few, matmul(x, w).reshape({-1})}, 0) * 2};
       }},
      {"columns", 1,
       [](const Tensor& x, const Tensor& w) {
         return Out{cat({matmul(x, w), matmul(x, w * 2)}, 1) * 2};
       }},
      {"small beside what is copied", 1,
       [](const Tensor& x, const Tensor& w) {
         return Out{cat({x, matmul(w, w)}, 0) * 2};
       }},
  };
  manual_seed(5);
  const Tensor x = randn({32, 16}), w = randn({16, 16});
  for (const Case& c : cases) {
    auto f = compile([&](Tensor a, Tensor b) { return c.fn(a, b); });
    const Out want = c.fn(x, w);
    for (int call = 0; call < 2; ++call) {
      const Out got = f(x, w);
      ASSERT_EQ(got.size(), want.size()) << c.name;
      for (size_t i = 0; i < want.size(); ++i)
        EXPECT_TRUE(same_bits(got[i], want[i])) << c.name << ", result " << i;
    }
    int copies = 0;
    for (const compiler::Step& s : f.executable()->lowered().steps)
      copies += s.op == &op::copy || s.op == &op::cat;
    EXPECT_EQ(copies, c.copies) << c.name << "\n" << f.executable()->to_string();
  }
}

}  // namespace
}  // namespace tandem
