// SPDX-License-Identifier: Apache-2.0
// Cells: a value that somebody holds never changes; unshared cells are updated in place.
#include "tandem/graph/cell.h"

#include <gtest/gtest.h>

#include "tandem/tandem.h"
#include "tests/support/init.h"
#include "tests/support/values.h"

namespace tandem {
namespace {

TEST(Cell, HeldValuesNeverChange) {
  Param p{ones({2, 3})};
  Tensor held = p.value(), view = p.value().t();
  p.assign_(zeros({2, 3}));
  EXPECT_EQ(values(held), std::vector<float>(6, 1));
  EXPECT_EQ(values(view), std::vector<float>(6, 1));
  EXPECT_EQ(values(p.value()), std::vector<float>(6, 0));
}

TEST(Cell, UnsharedValuesAreWrittenInPlace) {
  Param p{zeros({64})};
  const void* before = p.value().data<float>();
  p.assign_(ones({64}));
  EXPECT_EQ(p.value().data<float>(), before);
  p.assign_(randn({64}));
  EXPECT_EQ(p.value().data<float>(), before);
}

TEST(Cell, UpdatesRunInPlaceAndSnapshotsSurvive) {
  Param p{ones({100})};
  optim::AdamW opt({p}, {.lr = 0.1});
  auto step = [&] {
    p.set_grad(ones({100}));
    opt.step();
  };
  step();
  const void* loc = p.value().data<float>();
  step();
  EXPECT_EQ(p.value().data<float>(), loc);
  Tensor held = p.value().detach();
  std::vector<float> before = values(held);
  step();
  EXPECT_EQ(values(held), before);
  EXPECT_NE(values(p.value()), before);
}

TEST(Cell, TheTapeKeepsOldValues) {
  Param w{full({3}, 2.0)};
  Tensor x = tensor({1.0f, 2.0f, 3.0f});
  Tensor loss = (w.value() * w.value() * x).sum();
  w.assign_(100.0);
  loss.backward();  // d/dw w^2 x = 2 w x with the w of the forward pass
  EXPECT_EQ(values(w.grad()), (std::vector<float>{4, 8, 12}));
}

TEST(Cell, GradientsAccumulateUntilZeroed) {
  Param w{ones({2})};
  for (int i = 0; i < 3; ++i) (w.value() * 2.0).sum().backward();
  EXPECT_EQ(values(w.grad()), (std::vector<float>{6, 6}));
  w.zero_grad();
  EXPECT_FALSE(w.grad().defined());
}

TEST(Cell, AssignIfKeepsTheOldValueWhereFalse) {
  Param p{ones({2})};
  optim::SGD opt({p}, {.lr = 1.0, .momentum = 0.9});
  for (bool yes : {false, true}) {
    p.set_grad(ones({2}));
    AssignIf guard(full({}, yes));
    opt.step();
    EXPECT_EQ(values(p.value())[0], yes ? 0.0f : 1.0f);
  }
  EXPECT_EQ(opt.step_count().item<double>(), 1.0);
}

TEST(Cell, BufferWritesAPart) {
  Buffer cache{zeros({4, 2})};
  const void* before = cache.value().data<float>();
  cache.write_(0, 1, full({2, 2}, 5.0));
  EXPECT_EQ(values(cache.value()), (std::vector<float>{0, 0, 5, 5, 5, 5, 0, 0}));
  EXPECT_EQ(cache.value().data<float>(), before);
  Tensor held = cache.value();
  cache.write_(0, tensor(int64_t{3}), full({1, 2}, 7.0));
  EXPECT_EQ(values(held)[6], 0.0f);
  EXPECT_EQ(values(cache.value())[6], 7.0f);
}

TEST(Cell, FailedUpdateChangesNothing) {
  Param p{ones({3})};
  optim::SGD opt({p}, {.lr = 1.0});
  p.set_grad(ones({2}));
  EXPECT_THROW(opt.step(), Error);
  EXPECT_EQ(values(p.value()), (std::vector<float>{1, 1, 1}));
  p.set_grad(ones({3}));
  opt.step();
  EXPECT_EQ(values(p.value()), (std::vector<float>{0, 0, 0}));
}

TEST(Cell, LentMemoryIsNeverWritten) {
  const float mine[4] = {1, 2, 3, 4};
  Param p{from_blob(mine, {4}, float32)};
  p.set_grad(ones({4}));
  optim::SGD opt({p}, {.lr = 1.0});
  opt.step();
  EXPECT_EQ(mine[0], 1.0f);
  EXPECT_EQ(values(p.value()), (std::vector<float>{0, 1, 2, 3}));
}

}  // namespace
}  // namespace tandem
