// SPDX-License-Identifier: Apache-2.0
// Dtypes: the promotion lattice against PyTorch's table, names, sizes, host conversion.
#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>
#include <limits>

#include "tandem/base/files/file.h"
#include "tandem/io/json.h"
#include "tandem/tensor/strided.h"
#include "tandem/tensor/tensor.h"

namespace tandem {
namespace {

TEST(DType, PromotionEqualsPyTorch) {
  const char* root = std::getenv("TANDEM_SOURCE_DIR");
  const std::string path = std::string(root ? root : ".") + "/tests/golden/promotion.json";
  const io::Json table = io::parse_json(read_file(path), path);
  const io::Json::Array& names = *table.find("dtypes")->as_array();
  const io::Json& rows = *table.find("binary")->find("add")->find("tensor_tensor");
  ASSERT_EQ(names.size(), size_t{kDTypeCount});
  for (int i = 0; i < kDTypeCount; ++i) {
    EXPECT_EQ(*names[static_cast<size_t>(i)].as_string(), to_string(static_cast<DType>(i)));
    const io::Json::Array& row = *(*rows.as_array())[static_cast<size_t>(i)].as_array();
    for (int j = 0; j < kDTypeCount; ++j)
      EXPECT_EQ(to_string(promote(static_cast<DType>(i), static_cast<DType>(j))),
                *row[static_cast<size_t>(j)].as_string())
          << to_string(static_cast<DType>(i)) << " and " << to_string(static_cast<DType>(j));
  }
}

TEST(DType, SizesMatchStorage) {
  for (int i = 0; i < kDTypeCount; ++i) {
    const DType t = static_cast<DType>(i);
    visit_dtype(t, [&](auto v) {
      EXPECT_EQ(sizeof v, size_of(t));
      EXPECT_EQ(dtype_of<decltype(v)>, t);
    });
    EXPECT_EQ(is_floating(t) + is_integral(t) + is_bool(t), 1);
  }
}

TEST(DType, Devices) {
  EXPECT_EQ(to_string(cpu), "cpu");
  EXPECT_EQ(to_string(Device{DeviceKind::cuda, 3}), "cuda:3");
}

TEST(Convert, EveryPairKeepsSmallNumbers) {
  for (int i = 0; i < kDTypeCount; ++i) {
    for (int j = 0; j < kDTypeCount; ++j) {
      const DType from = static_cast<DType>(i), to = static_cast<DType>(j);
      const double values[] = {0, 1, 1, 0};
      char a[32], b[32];
      double back[4];
      detail::convert_elements(values, DType::f64, a, from, 4);
      detail::convert_elements(a, from, b, to, 4);
      detail::convert_elements(b, to, back, DType::f64, 4);
      for (int k = 0; k < 4; ++k) EXPECT_EQ(back[k], values[k]) << i << " " << j;
    }
  }
}

TEST(Convert, EdgesAreDefined) {
  const double in[] = {NAN, INFINITY, -INFINITY, 1e30, -1.9, 300.7, 1e-50, -0.0};
  int64_t wide[8];
  detail::convert_elements(in, DType::f64, wide, DType::i64, 8);
  const int64_t low = std::numeric_limits<int64_t>::min();
  EXPECT_EQ(std::vector<int64_t>(wide, wide + 8),
            (std::vector<int64_t>{low, low, low, low, -1, 300, 0, 0}));
  uint8_t narrow[8];
  detail::convert_elements(in, DType::f64, narrow, DType::u8, 8);
  EXPECT_EQ(std::vector<int>(narrow, narrow + 8), (std::vector<int>{0, 0, 0, 0, 255, 44, 0, 0}));
  bool truth[8];
  detail::convert_elements(in, DType::f64, truth, DType::b8, 8);
  EXPECT_EQ(std::vector<int>(truth, truth + 8), (std::vector<int>{1, 1, 1, 1, 1, 1, 1, 0}));
}

}  // namespace
}  // namespace tandem
