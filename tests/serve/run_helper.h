// SPDX-License-Identifier: Apache-2.0
// For tests that serve runs: small ones, trained for three steps.
#pragma once

#include <string>

#include "tandem/recipe/train.h"
#include "tests/io/io_helper.h"

namespace tandem::serve {

/// Into the folder "models" of `t`; gives the run's.
inline std::string trained_run(const TempFolder& t, const std::string& name,
                               const std::string& data, const std::string& model) {
  const std::string file = t / (name + ".yaml");
  write_file(file, "recipe: r\nseed: 0\ndata: " + data + "\nmodel: " + model +
                       "\nloss: {type: cross_entropy}\noptim: {type: sgd, lr: 0.01}\n"
                       "trainer: {max_steps: 3, report: false, metrics: []}\n");
  return recipe::train(recipe::Recipe::load(file),
                       {.folder = t / ("models/" + name), .progress = false})
      .folder;
}

/// One over sentences that ask for a place or a person: "texts".
inline std::string trained_texts(const TempFolder& t) {
  std::string lines;
  for (int i = 0; i < 24; ++i)
    lines += i % 2 ? "place:city Where is the river ?\n" : "person:name Who wrote this book ?\n";
  write_file(t / "train", lines);
  write_file(t / "test", "person:name Who is unknown here ?\nplace:city Where ?\n");
  return trained_run(t, "texts",
                     "{type: sentences, root: " + t.path().string() +
                         ", train: train, test: test, val_part: 0, batch: 4}",
                     "{type: text_cnn, width: 4, filters: 3, windows: [2, 3]}");
}

}  // namespace tandem::serve
