// SPDX-License-Identifier: Apache-2.0
// IDX files, plain and gzip: round trips, every truncation and flip, false sizes, and bombs.
#include "tandem/io/idx.h"

#include "tandem/io/gzip.h"
#include "tests/io/io_helper.h"

namespace tandem {
namespace {

using io::gzip;
using io::load_idx;
using io::save_idx;

std::string bytes(std::initializer_list<int> list) {
  std::string s;
  for (const int b : list) s += static_cast<char>(b);
  return s;
}

TEST(Idx, KnownFile) {
  TempFolder folder;
  // Two i16 rows of three, big-endian, as the format's description has it.
  write_file(folder / "a", bytes({0, 0, 0x0B, 2, 0, 0, 0,    2,    0,    0, 0,    3,
                                  0, 1, 0,    2, 1, 0, 0xFF, 0xFF, 0x80, 0, 0x7F, 0xFF}));
  const Tensor x = load_idx(folder / "a");
  EXPECT_EQ(x.dtype(), int16);
  EXPECT_EQ(x.shape(), (Shape{2, 3}));
  EXPECT_EQ(x.to_vector<int16_t>(), (std::vector<int16_t>{1, 2, 256, -1, -32768, 32767}));
}

TEST(Idx, RoundTrips) {
  TempFolder folder;
  for (const DType t : {uint8, int8, int16, int32, float32, float64}) {
    const Tensor x = counting({3, 4, 2}, t, 1);
    save_idx(x, folder / "a");
    write_file(folder / "a.gz", gzip(read_file(folder / "a")));
    for (const char* name : {"a", "a.gz"}) {
      const Tensor y = load_idx(folder / name);
      EXPECT_EQ(y.dtype(), t);
      EXPECT_EQ(y.shape(), x.shape());
      EXPECT_EQ(y.to_vector<double>(), x.to_vector<double>());
    }
  }
  save_idx(counting({0, 28}, uint8), folder / "none");
  EXPECT_EQ(load_idx(folder / "none").shape(), (Shape{0, 28}));
}

TEST(Idx, EveryCutAndFlip) {
  TempFolder folder;
  save_idx(counting({2, 3}, int32), folder / "a");
  const std::string plain = read_file(folder / "a");
  auto read = [](const std::string& path) { load_idx(path); };
  expect_robust(plain, folder / "x", /*cuts_fail=*/true, read);
  expect_robust(gzip(plain), folder / "x", /*cuts_fail=*/true, read);
}

TEST(IdxMustFail, Files) {
  TempFolder folder;
  const std::string path = folder / "a";
  auto error = [&](const std::string& content) {
    write_file(path, content);
    return error_of([&] { load_idx(path); });
  };
  const std::string x = "Format: '" + path + "'";
  EXPECT_EQ(error(""), x + " is truncated: its head should have 4 bytes, 0 are there.");
  EXPECT_EQ(error("PNG!"), x + " is not an IDX file: it begins with 50 4e 47 21, not with 00 00.");
  EXPECT_EQ(error(bytes({0, 0, 7, 1, 0, 0, 0, 0})), x + ": IDX has no element type 0x07.");
  EXPECT_EQ(error(bytes({0, 0, 8, 0})), x + " has 0 dimensions, 1 to 8 are possible.");
  EXPECT_EQ(error(bytes({0, 0, 8, 9})), x + " has 9 dimensions, 1 to 8 are possible.");
  EXPECT_EQ(error(bytes({0, 0, 8, 2, 0, 0, 0, 1})),
            x + " is truncated: its list of sizes should have 8 bytes, 4 are there.");
  EXPECT_EQ(
      error(bytes({0, 0, 8, 1, 0, 0, 0, 3, 1, 2})),
      x + " is truncated: uint8 elements of shape [3] need 3 bytes, the file cannot hold them.");
  EXPECT_EQ(error(bytes({0, 0, 8, 1, 0, 0, 0, 1, 1, 2})),
            x + " has more data than its shape [1] needs.");
  EXPECT_EQ(error(bytes({0, 0, 14, 2, 255, 255, 255, 255, 255, 255, 255, 255})),
            x + " says it holds float64 elements of shape [4294967295, 4294967295], more than the "
                "8589934592 bytes allowed here.");
  EXPECT_EQ(
      error(gzip(bytes({0, 0, 8, 1, 0x7F, 0, 0, 0, 1}))),
      x + " is truncated: uint8 elements of shape [2130706432] need 2130706432 bytes, the file "
          "cannot hold them.");
  EXPECT_EQ(error(gzip(bytes({0, 0, 8, 1, 0, 0, 0, 3, 1, 2}))),
            x + " is truncated: its data should have 3 bytes, 2 are there.");
  EXPECT_EQ(error_of([] { load_idx(nullptr); }), "Io: no path was given (it is empty or null).");
  EXPECT_EQ(error_of([&] { load_idx(folder / "none"); }),
            "Io: cannot open '" + (folder / "none") +
                "': No such file or directory. Its folder has no name like it: check the path.");
}

TEST(IdxMustFail, ABombIsNotInflated) {
  TempFolder folder;
  // 64 MB of zeros in 65 KB, with a header that asks for 4 bytes.
  write_file(folder / "a", gzip(bytes({0, 0, 8, 1, 0, 0, 0, 4}) + std::string(64 << 20, '\0')));
  EXPECT_LT(read_file(folder / "a").size(), 100'000u);
  EXPECT_EQ(error_of([&] { load_idx(folder / "a"); }),
            "Format: '" + (folder / "a") + "' has more data than its shape [4] needs.");
}

TEST(IdxMustFail, Saving) {
  TempFolder folder;
  EXPECT_EQ(error_of([&] { save_idx(counting({2}, int64), folder / "a"); }),
            "DType: IDX holds uint8, int8, int16, int32, float32 and float64, got int64. Convert "
            "with to().");
  EXPECT_EQ(error_of([&] { save_idx(make_tensor({1}, {}, uint8), folder / "a"); }),
            "Shape: IDX needs at least one dimension, got a scalar.");
  EXPECT_TRUE(folder.names().empty());
}

}  // namespace
}  // namespace tandem
