// SPDX-License-Identifier: Apache-2.0
// What load_model() says of a file, a folder or a name that is no model.
#include <gtest/gtest.h>

#include <filesystem>

#include "tandem/recipe/loaded_model.h"
#include "tandem/tandem.h"
#include "tandem/weights/weights.h"
#include "tests/io/io_helper.h"
#include "tests/support/errors.h"

namespace tandem::recipe {
namespace {

TEST(NoModel, IsNamedByWhatItIs) {
  init();
  const TempFolder folder;
  const auto at = [&](const char* name) { return folder / std::string(name); };
  write_file(at("notes.txt"), "hello \"world\"\n");
  write_file(at("empty.bin"), "");
  weights::save_weights(StateDict::of({{"w", ones({2})}}), at("w.safetensors"));
  std::filesystem::create_directories(at("some.folder"));
  struct Case {
    std::string model, want;
  };
  const std::vector<Case> cases = {
      {at("notes.txt"),
       "is not a model: it is a file of 14 bytes that begins with \"hello \\\"world\\\""},
      {at("empty.bin"), "is not a model: it is an empty file"},
      {at("w.safetensors"), "is not a model: it is a file of weights (safetensors)"},
      {at("some.folder"), "is a folder without a model"},
      {at("gone.tflite"), "there is no file or folder"},
  };
  for (const Case& c : cases) {
    const std::string said = error_of([&] { load_model({.model = c.model}); });
    EXPECT_NE(said.find(c.want), said.npos) << said;
    EXPECT_NE(said.find("'" + c.model + "'"), said.npos) << said;
    for (const char* read : {"ONNX", "TFLite", "recipe.yaml", "tandem inspect --list"})
      EXPECT_NE(said.find(read), said.npos) << said;
  }
  const std::string said = error_of([] { load_model({.model = "resnt18"}); });
  EXPECT_NE(said.find("Did you mean 'resnet18'?"), said.npos) << said;
}

TEST(NoModel, FilesDoNotHideNames) {
  namespace fs = std::filesystem;
  init();
  const TempFolder folder;
  fs::create_directories(folder / "lenet");
  const fs::path before = fs::current_path();
  fs::current_path(folder.path());
  const std::string said = error_of([] { load_model({.model = "lenet"}); });
  fs::current_path(before);
  EXPECT_EQ(said, "no error");
}

}  // namespace
}  // namespace tandem::recipe
