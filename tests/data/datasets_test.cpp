// SPDX-License-Identifier: Apache-2.0
// Datasets: the embedded digits, MNIST files, CSV tables, and their errors.
#include "tandem/data/sets/datasets.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>

#include "tandem/io/idx.h"
#include "tandem/tandem.h"
#include "tests/support/errors.h"
#include "tests/support/init.h"

namespace tandem::data {
namespace {

// A temporary folder, removed by the test.
struct Folder {
  std::filesystem::path path;
  Folder() {
    std::string name = (std::filesystem::temp_directory_path() / "tandem_data_XXXXXX").string();
    path = mkdtemp(name.data());
  }
  ~Folder() { std::filesystem::remove_all(path); }
};

TEST(Digits, FoldsCoverAllRowsOnce) {
  int64_t test_rows = 0;
  for (int fold = 0; fold < 5; ++fold) {
    Digits train({.train = true, .fold = fold}), test({.train = false, .fold = fold});
    EXPECT_EQ(train.size() + test.size(), 1797);
    test_rows += test.size();
  }
  EXPECT_EQ(test_rows, 1797);
  Digits all({.folds = 0});
  EXPECT_EQ(all.size(), 1797);
  EXPECT_EQ(all.x().shape(), Shape(1797, 1, 8, 8));
  EXPECT_EQ(all.x().amax().item<float>(), 1.0f);
  EXPECT_EQ(all.x().amin().item<float>(), 0.0f);
  EXPECT_EQ(all.y().to_vector<int64_t>()[4], 4);  // the first ten rows are the digits 0 to 9
  EXPECT_EQ(all.get(9).y.item<int64_t>(), 9);
  thrown([&] { all.get(1797); }, ErrorKind::Index);
  thrown([] { Digits({.fold = 5}); }, ErrorKind::Value);
}

TEST(MNIST, ReadsPlainFiles) {
  Folder f;
  Tensor images = (arange(2 * 28 * 28) % 256).to(uint8).reshape({2, 28, 28});
  io::save_idx(images, f.path / "train-images-idx3-ubyte");
  io::save_idx(tensor({3, 7}).to(uint8), f.path / "train-labels-idx1-ubyte");
  MNIST set(f.path);
  EXPECT_EQ(set.size(), 2);
  Example e = set.get(1);
  EXPECT_EQ(e.x.shape(), Shape(1, 28, 28));
  EXPECT_EQ(e.x.dtype(), float32);
  EXPECT_EQ(e.y.item<int64_t>(), 7);
  EXPECT_EQ(set.get(0).x.to_vector<float>()[255], 1.0f);
  thrown([&] { MNIST(f.path, {.train = false}); }, ErrorKind::Io);
}

TEST(MNIST, Errors) {
  EXPECT_EQ(thrown([] { MNIST(nullptr); }, ErrorKind::Io),
            "MNIST got no folder. Give the folder of the IDX files.");
  EXPECT_EQ(thrown([] { MNIST("/no/such/folder"); }, ErrorKind::Io),
            "MNIST: there is no folder '/no/such/folder'.");
  Folder f;
  io::save_idx(zeros({2, 28, 28}, uint8), f.path / "train-images-idx3-ubyte");
  io::save_idx(zeros({3}, uint8), f.path / "train-labels-idx1-ubyte");
  EXPECT_NE(thrown([&] { MNIST(f.path); }, ErrorKind::Format).find("do not match"),
            std::string::npos);
}

TEST(MNIST, RealFiles) {
  const char* data = std::getenv("TANDEM_DATA");
  if (!data) GTEST_SKIP() << "TANDEM_DATA is not set";
  MNIST train(std::string(data) + "/mnist"), test(std::string(data) + "/mnist", {.train = false});
  EXPECT_EQ(train.size(), 60000);
  EXPECT_EQ(test.size(), 10000);
  EXPECT_EQ(train.get(0).y.item<int64_t>(), 5);
}

TEST(CSVDataset, SplitsColumns) {
  Folder f;
  write_file(f.path / "t.csv", "a,b,label\n1,2.5,0\n3,4,1\n");
  CSVDataset set(f.path / "t.csv");
  EXPECT_EQ(set.size(), 2);
  EXPECT_EQ(set.get(0).x.to_vector<float>(), (std::vector<float>{1, 2.5}));
  EXPECT_EQ(set.get(1).y.item<int64_t>(), 1);
  CSVDataset middle(f.path / "t.csv", {.target = 1, .target_dtype = float32});
  EXPECT_EQ(middle.get(1).x.to_vector<float>(), (std::vector<float>{3, 1}));
  thrown([&] { CSVDataset(f.path / "t.csv", {.target = 3}); }, ErrorKind::Index);
  write_file(f.path / "bad.csv", "a,b\n1,x\n");
  thrown([&] { CSVDataset(f.path / "bad.csv"); }, ErrorKind::Format);
}

TEST(TensorDataset, Rows) {
  TensorDataset set(arange(6).reshape({3, 2}), tensor({1, 2, 3}));
  EXPECT_EQ(set.get(2).x.to_vector<int64_t>(), (std::vector<int64_t>{4, 5}));
  thrown([] { TensorDataset(zeros({3}), zeros({2})); }, ErrorKind::Shape);
  thrown([&] { set.get(-1); }, ErrorKind::Index);
}

}  // namespace
}  // namespace tandem::data
