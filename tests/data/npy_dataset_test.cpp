// SPDX-License-Identifier: Apache-2.0
// NumPy arrays as samples: images, numbers, Keras's layouts, and mistakes.
#include <gtest/gtest.h>

#include "tandem/data/sets/npy_dataset.h"
#include "tandem/io/npy.h"
#include "tandem/tandem.h"
#include "tests/io/io_helper.h"

namespace tandem::data {
namespace {

TEST(NpyDataset, ImagesAsKerasHasThem) {
  TempFolder f;
  const Tensor x = counting({3, 2, 2, 3}, DType::u8, 10), y = counting({3, 1}, DType::u8);
  StateDict arrays;
  arrays["x_train"] = x;
  arrays["y_train"] = y;
  io::save_npz(arrays, f / "a.npz");
  NpyDataset d(f / "a.npz", {.x = "x_train", .y = "y_train", .channels_last = true});
  ASSERT_EQ(d.size(), 3);
  const Example e = d.get(1);
  EXPECT_EQ(e.x.shape(), Shape(3, 2, 2));
  EXPECT_EQ(e.x[2][0][1].item<float>(), 27.0F / 255.0F);  // row 1, pixel (0, 1), blue
  EXPECT_EQ(e.y.dim(), 0);
  EXPECT_EQ(e.y.dtype(), DType::i64);
  EXPECT_EQ(e.y.item<int64_t>(), 1);
  const Example both = d.get_many(std::vector<int64_t>{2, 1});
  EXPECT_TRUE(equal(both.x, stack({d.get(2).x, e.x})));
  EXPECT_TRUE(equal(both.y, stack({d.get(2).y, e.y})));

  EXPECT_EQ(error_of([&] { NpyDataset(f / "a.npz", {.x = "x_trian", .y = "y_train"}); }),
            "Value: '" + (f / "a.npz") +
                "' has no array 'x_trian', did you mean 'x_train'? It has x_train, y_train.");
}

TEST(NpyDataset, FilesOfAFolder) {
  TempFolder f;
  io::save_npy(counting({4, 3}, DType::f64), f / "x.npy");
  io::save_npy(counting({4}, DType::f32, 0.5), f / "y.npy");
  NpyDataset d(f.path());
  EXPECT_EQ(d.get(2).x.dtype(), DType::f32);
  EXPECT_EQ(d.get(2).x.to_vector<float>(), (std::vector<float>{6, 7, 8}));
  EXPECT_EQ(d.get(2).y.item<float>(), 2.5F);
  io::save_npy(counting({4, 5, 6}, DType::u8), f / "x.npy");
  EXPECT_EQ(NpyDataset(f.path()).get(0).x.shape(), Shape(1, 5, 6));
  EXPECT_EQ(error_of([&] { NpyDataset(f.path(), {.channels_last = true}); }),
            "Shape: NpyDataset: channels_last expects 'x' [n, h, w, c], got [4, 5, 6].");
  io::save_npy(counting({3}, DType::f32), f / "y.npy");
  EXPECT_TRUE(error_of([&] { NpyDataset d2(f.path()); }).starts_with("Shape: ")) << "4 rows and 3";
  EXPECT_TRUE(error_of([&] { NpyDataset(f / "no.npz"); }).starts_with("Io: "));
}

}  // namespace
}  // namespace tandem::data
