// SPDX-License-Identifier: Apache-2.0
// Cells: a value that somebody holds never changes; unshared cells are updated in place; initial
// values may be made when they are needed.
#include "tandem/graph/cell.h"

#include <gtest/gtest.h>

#include <functional>

#include "tandem/graph/cells/absent.h"
#include "tandem/tandem.h"
#include "tests/support/bits.h"
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

// Every way of making a large value, and what may be done to it before anybody reads it.
TEST(DeferredInit, ValuesHaveTheBitsThatTheyWouldHaveHad) {
  namespace in = nn::init;
  const Shape s{48, 40};
  struct Row {
    const char* name;
    std::function<Tensor()> make;
    bool waits = true;
  };
  const std::vector<Row> rows = {
      {"zeros", [&] { return zeros(s); }},
      {"uniform", [&] { return in::uniform(s, -1, 1); }},
      {"normal", [&] { return in::normal(s); }},
      {"normal in bf16",
       [&] {
         return in::normal({96, 40}, 0, 1, bfloat16);
       }},
      {"trunc_normal", [&] { return in::trunc_normal(s); }},
      {"kaiming_normal", [&] { return in::kaiming_normal(s); }},
      {"orthogonal", [&] { return in::orthogonal(s); }, false},
      {"sparse", [&] { return in::sparse(s, 0.5); }},
      {"randperm", [] { return randperm(1000); }},
      {"bernoulli", [&] { return bernoulli(full(s, 0.5)); }},
      {"scaled", [&] { return in::normal(s) * 0.5 + 1.0; }},
      {"a row of zeros", [&] { return in::zero_row(in::normal(s), 3); }},
      {"a view", [&] { return in::normal(s).t(); }},
      {"cast", [&] { return in::normal(s).to(float64); }},
      {"by a small one", [&] { return in::normal(s) + in::normal({40}); }},
      {"by its own mean", [&] { return [](const Tensor& x) { return x - x.mean(); }(randn(s)); }},
      {"a small one", [&] { return in::normal(s).sum({0}); }, false},
      {"read", [&] { return tensor(in::normal(s).to_vector<float>(), s); }, false},
      {"by data", [&] { return in::normal(s) * tensor(std::vector<float>(1920, 2), s); }, false},
      {"assigned",
       [&] {
         Param p{in::normal(s)};
         p.assign_(in::uniform(p.shape(), 0, 1) + p.value());
         return p.value();
       }},
  };
  for (const Row& r : rows) {
    manual_seed(3);
    const Tensor want = r.make(), next = rand({3});
    manual_seed(3);
    const Tensor got = deferred_init(r.make), next_too = rand({3});
    EXPECT_EQ(detail::is_deferred(got), r.waits) << r.name;
    EXPECT_EQ(got.shape(), want.shape()) << r.name;
    EXPECT_TRUE(same_bits(got, want)) << r.name;
    EXPECT_TRUE(same_bits(next, next_too)) << r.name;
  }
  EXPECT_FALSE(detail::any_absent());
}

TEST(DeferredInit, ANetHasNoElementsUntilSomebodyReadsThem) {
  manual_seed(4);
  const nn::Linear want(2048, 2048);
  manual_seed(4);
  const size_t before = allocator_stats().in_use;
  nn::Linear net = deferred_init([] { return nn::Linear(2048, 2048); });
  EXPECT_LT(allocator_stats().in_use, before + (1 << 16));
  const Ref<Cell>& cell = net.weight.cell();
  EXPECT_EQ(cell->spec().shape, Shape({2048, 2048}));
  const uint64_t generation = cell->generation();
  const float* data = net.weight.value().data<float>();
  EXPECT_EQ(net.weight.value().data<float>(), data) << "computed once";
  EXPECT_EQ(cell->generation(), generation);
  EXPECT_TRUE(same_bits(net.weight.value(), want.weight.value()));
  EXPECT_TRUE(net.weight.requires_grad());
  net(ones({1, 2048})).sum().backward();
  EXPECT_EQ(net.bias.grad().sum().item<float>(), 2048.0f);
}

// In every way that elements are read.
TEST(DeferredInit, ReadersOfElements) {
  const auto make = [] { return full({64, 64}, 2.0); };
  const auto fresh = [&] { return deferred_init(make); };
  EXPECT_EQ(fresh()[3][5].item<float>(), 2.0f);
  EXPECT_EQ(fresh().data<float>()[77], 2.0f);
  EXPECT_EQ(fresh().to_vector<float>().back(), 2.0f);
  EXPECT_NE(fmt::format("{}", fresh()).find("2"), std::string::npos);
  EXPECT_EQ((fresh() + 1.0).sum().item<float>(), 3.0f * 4096);
  const std::string file = ::testing::TempDir() + "deferred.safetensors";
  StateDict saved;
  saved["x"] = fresh();
  save(saved, file);
  EXPECT_TRUE(same_bits(*load(file).find("x"), make()));
  Tensor t = fresh();
  t.mutable_data<float>()[0] = 7;
  EXPECT_EQ(t.sum().item<float>(), 2.0f * 4096 + 5);
  auto step = compile([w = Buffer(fresh())](const Tensor& x) { return x + w.value(); });
  EXPECT_EQ(step(ones({64, 64})).sum().item<float>(), 3.0f * 4096);
  const Tensor captured = fresh();
  EXPECT_EQ(
      vmap([&](const Tensor& x) { return x + captured; })(ones({2, 64, 64})).sum().item<float>(),
      3.0f * 8192);
}

}  // namespace
}  // namespace tandem
