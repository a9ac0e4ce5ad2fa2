// SPDX-License-Identifier: Apache-2.0
// quantize_file() of small runs: what the report says of their tables, and data that does not fit.
#include <gtest/gtest.h>

#include "tandem/recipe/quantize.h"
#include "tandem/recipe/train.h"
#include "tandem/tandem.h"
#include "tests/io/io_helper.h"
#include "tests/support/errors.h"

namespace tandem::recipe {
namespace {

std::string small_run(const TempFolder& folder, const std::string& data, const std::string& model) {
  init();
  write_file(folder / "recipe.yaml",
             "recipe: r\nseed: 0\ndata: " + data + "\nmodel: " + model +
                 "\nloss: {type: cross_entropy}\noptim: {type: sgd, lr: 0.01}\n"
                 "trainer: {max_steps: 3, report: false, metrics: []}\n");
  return train(Recipe::load(folder / "recipe.yaml"), {.folder = folder / "run", .progress = false})
      .folder;
}

TEST(QuantizeData, TablesHaveAStepForEachColumnOrOne) {
  const TempFolder folder;
  std::string lines;
  for (int i = 0; i < 24; ++i)
    lines += i % 2 ? "place:city Where is the river ?\n" : "person:name Who wrote this book ?\n";
  write_file(folder / "lines", lines);
  const std::string run = small_run(folder,
                                    "{type: sentences, root: " + folder.path().string() +
                                        ", train: lines, test: lines, val_part: 0, batch: 4}",
                                    "{type: text_cnn, width: 4, filters: 3, windows: [2, 3]}");
  for (const bool each : {true, false}) {
    QuantizeFileOptions options;
    options.quant.per_channel = each;
    const QuantizeReport r = quantize_file({.model = run}, folder / "q.onnx", options);
    EXPECT_EQ(r.table_steps, (std::vector<int64_t>{each ? 4 : 1}));
    const std::string text = r.to_string();
    EXPECT_EQ(text.find("a step for each column") != text.npos, each) << text;
    EXPECT_EQ(text.find("one step") != text.npos, !each) << text;
  }
}

TEST(QuantizeData, OfMoreDimensionsThanTheModelIsRefused) {
  const TempFolder folder;
  std::string rows = "a,y\n";
  for (int i = 0; i < 20; ++i) rows += fmt::format("{},{}\n", i, i % 3);
  write_file(folder / "rows.csv", rows);
  const std::string file = folder / "rows.csv";
  const std::string run =
      small_run(folder, "{type: csv, root: " + file + ", test: " + file + "}", "{type: mlp}");
  write_file(folder / "images.yaml",
             "recipe: images\nseed: 0\ndata: {type: digits, batch: 8}\nmodel: {type: mlp}\n"
             "loss: {type: cross_entropy}\noptim: {type: sgd, lr: 0.01}\n"
             "trainer: {max_steps: 3, report: false, metrics: []}\n");
  QuantizeFileOptions options;
  options.data = folder / "images.yaml";
  const std::string said =
      error_of([&] { quantize_file({.model = run}, folder / "q.onnx", options); });
  EXPECT_EQ(said.find("Shape: the data has 4 dimensions"), 0U) << said;
}

}  // namespace
}  // namespace tandem::recipe
