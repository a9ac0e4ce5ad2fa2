// SPDX-License-Identifier: Apache-2.0
// Shapes: broadcasting, strides, counts and dimension numbers, with their messages.
#include "tandem/tensor/shape.h"

#include <gtest/gtest.h>

#include "tests/support/errors.h"

namespace tandem {
namespace {

TEST(Shape, Broadcast) {
  EXPECT_EQ(broadcast_shapes({2, 3}, {3}), (Shape{2, 3}));
  EXPECT_EQ(broadcast_shapes({3}, {2, 1}), (Shape{2, 3}));
  EXPECT_EQ(broadcast_shapes({4, 1, 5}, {3, 1}), (Shape{4, 3, 5}));
  EXPECT_EQ(broadcast_shapes({}, {2, 0}), (Shape{2, 0}));
  EXPECT_EQ(broadcast_shapes({1}, {0}), (Shape{0}));
  EXPECT_EQ(broadcast_shapes({}, {}), (Shape{}));
}

TEST(Shape, BroadcastOfSymbols) {
  const Dim n = Dim::symbol("n");
  EXPECT_EQ(broadcast_shapes({n, 3}, {1, 3}), (Shape{n, 3}));
  EXPECT_EQ(broadcast_shapes({n, 3}, {n, 1}), (Shape{n, 3}));
  EXPECT_EQ(error_of([&] { broadcast_shapes({n}, {5}); }),
            "Shape: shapes [n] and [5] do not broadcast: dimension 0 is n and 5. Sizes, counted "
            "from the right, must be equal or 1.");
  DimChecks checks;
  current_dim_checks() = &checks;
  EXPECT_EQ(broadcast_shapes({n, 3}, {5, 3}), (Shape{5, 3}));
  EXPECT_EQ(broadcast_shapes({5, 3}, {n, 3}), (Shape{5, 3}));
  current_dim_checks() = nullptr;
  EXPECT_EQ(checks.equal.size(), 2u) << "a symbol is never assumed to be 1";
}

TEST(Shape, StridesAndCounts) {
  const Strides s = contiguous_strides({2, 3, 4});
  EXPECT_EQ((std::vector<int64_t>{s[0], s[1], s[2]}), (std::vector<int64_t>{12, 4, 1}));
  const Strides z = contiguous_strides({2, 0, 4});
  EXPECT_EQ((std::vector<int64_t>{z[0], z[1], z[2]}), (std::vector<int64_t>{4, 4, 1}));
  EXPECT_EQ((Shape{2, 3, 4}).numel(), Dim(24));
  EXPECT_EQ((Shape{}).numel(), Dim(1));
  EXPECT_EQ((Shape{int64_t{1} << 61, int64_t{1} << 61, 0}).numel(), Dim(0));
  const Dim n = Dim::symbol("n");
  EXPECT_EQ((Shape{n, 3, n}).numel(), 3 * n * n);
}

TEST(Shape, Editing) {
  Shape s{2, 3};
  s.insert(1, 7);
  EXPECT_EQ(s.to_string(), "[2, 7, 3]");
  s.erase(0);
  EXPECT_EQ(s.to_string(), "[7, 3]");
  s.resize(3);
  EXPECT_EQ(s.to_string(), "[7, 3, 1]");
  EXPECT_EQ(fmt::format("{}", Shape(std::vector<int64_t>{1, 2}).to_string()), "[1, 2]");
  EXPECT_EQ(Shape(std::vector<int>{1, 2}), Shape(std::vector<Dim>{1, 2}));
}

TEST(Shape, DimensionNumbers) {
  EXPECT_EQ(normalize_dim(-1, 3), 2);
  EXPECT_EQ(normalize_dim(0, 3), 0);
  EXPECT_EQ(normalize_dims({-1, 0}, 3), (Shape{2, 0}));
  EXPECT_EQ(normalize_dims({}, 3), (Shape{0, 1, 2}));
  EXPECT_EQ(normalize_dims({}, 0), (Shape{}));
}

TEST(ShapeMustFail, Messages) {
  EXPECT_EQ(error_of([] {
              broadcast_shapes({2, 3}, {4});
            }),
            "Shape: shapes [2, 3] and [4] do not broadcast: dimension 1 is 3 and 4. Sizes, counted "
            "from the right, must be equal or 1.");
  EXPECT_EQ(error_of([] {
              broadcast_shapes({4}, {2, 3});
            }),
            "Shape: shapes [4] and [2, 3] do not broadcast: dimension 1 is 4 and 3. Sizes, counted "
            "from the right, must be equal or 1.");
  EXPECT_EQ(error_of([] { normalize_dim(2, 2); }),
            "Index: dimension 2 is out of range: a tensor of 2 dimensions takes -2 to 1.");
  EXPECT_EQ(error_of([] { normalize_dim(-2, 1); }),
            "Index: dimension -2 is out of range: a tensor of 1 dimension takes -1 to 0.");
  EXPECT_EQ(error_of([] { normalize_dim(0, 0); }),
            "Index: dimension 0 was asked, but the tensor is a scalar (0 dimensions).");
  EXPECT_EQ(error_of([] {
              normalize_dims({1, -1}, 2);
            }),
            "Value: dimension 1 appears twice in [1, -1].");
  EXPECT_EQ(error_of([] {
              Shape s{1, 1, 1, 1, 1, 1, 1, 1};
              s.push_back(1);
            }),
            "Shape: a tensor has at most 8 dimensions.");
  EXPECT_EQ(error_of([] {
              (Shape{int64_t{1} << 40, int64_t{1} << 40}).numel();
            }),
            "Value: shape [1099511627776, 1099511627776] has more elements than 63 bits can "
            "count.");
}

}  // namespace
}  // namespace tandem
