// SPDX-License-Identifier: Apache-2.0
// A recipe's samples as arrays: those that its pipeline gives, with what the model is compared
// with.
#include "tandem/recipe/data_arrays.h"

#include <gtest/gtest.h>

#include "tandem/tandem.h"
#include "tests/io/io_helper.h"
#include "tests/support/errors.h"

namespace tandem::recipe {
namespace {

Recipe recipe_of(const TempFolder& folder, const std::string& text) {
  write_file(folder / "r.yaml", text);
  return Recipe::load(folder / "r.yaml");
}

TEST(DataArrays, AreTheSamplesOfThePart) {
  init();
  const TempFolder folder;
  const Recipe r = recipe_of(folder,
                             "recipe: r\ndata: {type: digits, batch: 64}\n"
                             "model: {type: mlp, hidden: [8]}\nloss: {type: cross_entropy}\n"
                             "optim: {type: adamw, lr: 1e-3}\ntrainer: {epochs: 1}\n");
  const StateDict all = data_arrays(r), some = data_arrays(r, {.samples = 300});
  std::vector<Tensor> want;
  Tensor labels;
  with_recipe(r, Registry::standard(false), [&](RecipeParts& parts) {
    want = parts.data.test->fields(0);
    labels = parts.model.forward(want).second;
  });
  ASSERT_TRUE(all.find("x0") && all.find("labels"));
  EXPECT_EQ(some.find("x0")->size(0), 300);
  EXPECT_GT(all.find("x0")->size(0), 300);
  EXPECT_EQ(all.find("labels")->size(0), all.find("x0")->size(0));
  const auto same = [](const Tensor& a, const Tensor& b) {
    return a.shape() == b.shape() && (a == b).all().item<bool>();
  };
  const int64_t n = want[0].size(0);
  EXPECT_TRUE(same(all.find("x0")->narrow(0, 0, n), want[0]));
  EXPECT_TRUE(same(all.find("labels")->narrow(0, 0, n), labels));
  EXPECT_TRUE(same(some.find("x0")->narrow(0, 0, n), want[0]));
  EXPECT_TRUE(has(error_of([&] { data_arrays(r, {.part = "tests"}); }), "train, val and test"));
  EXPECT_TRUE(has(error_of([&] { data_arrays(r, {.samples = -1}); }), "0 (all) or more"));
}

}  // namespace
}  // namespace tandem::recipe
