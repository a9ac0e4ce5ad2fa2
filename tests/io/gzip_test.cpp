// SPDX-License-Identifier: Apache-2.0
#include "tandem/io/gzip.h"

#include "tests/io/io_helper.h"

namespace tandem {
namespace {

using io::gunzip;
using io::gzip;
using io::InputFile;

TEST(Gzip, RoundTrips) {
  std::string mixed;
  for (unsigned i = 0; i < 300'000; ++i) mixed += static_cast<char>(i * i >> 7);
  for (const std::string& text :
       {std::string(), std::string("a"), std::string(500'000, 'z'), mixed})
    for (const int level : {0, 1, 6, 9}) EXPECT_EQ(gunzip(gzip(text, level), text.size()), text);
  EXPECT_EQ(gzip(mixed), gzip(mixed));
}

TEST(Gzip, MembersAndPadding) {
  EXPECT_EQ(gunzip(gzip("one ") + gzip("two") + std::string(512, '\0'), 100), "one two");
}

TEST(Gzip, InputFileReadsInPieces) {
  TempFolder folder;
  write_file(folder / "plain", "hello world");
  write_file(folder / "packed", gzip("hello ") + gzip("world"));
  for (const char* name : {"plain", "packed"}) {
    InputFile in(folder / name);
    EXPECT_EQ(in.compressed(), name == std::string("packed"));
    char piece[4];
    std::string text;
    for (size_t n; (n = in.read(piece, 4)) > 0;) {
      text.append(piece, n);
      EXPECT_TRUE(n == 4 || text.size() == 11) << "short only at the end";
    }
    EXPECT_EQ(text, "hello world");
    EXPECT_EQ(in.read(piece, 4), 0u);
  }
  EXPECT_EQ(InputFile(folder / "packed").read_rest(11), "hello world");
}

TEST(GzipMustFail, DamagedAndCut) {
  TempFolder folder;
  const std::string good = gzip("some text that is long enough to be packed, packed, packed");
  EXPECT_EQ(error_of([&] { gunzip("plain", 100); }),
            "Format: this is not gzip data: it does not begin with 1f 8b.");
  EXPECT_EQ(error_of([&] { gunzip(good.substr(0, 20), 100); }),
            "Format: 'gzip data': the gzip data ends early, after 20 bytes of the file.");
  std::string wrong_sum = good;
  wrong_sum[wrong_sum.size() - 6] ^= 1;
  EXPECT_EQ(error_of([&] { gunzip(wrong_sum, 100); }),
            "Format: 'gzip data': the gzip data is damaged (incorrect data check).");
  EXPECT_EQ(error_of([&] { gunzip(good + "tail", 100); }),
            "Format: 'gzip data': unexpected bytes after the gzip data, at byte " +
                std::to_string(good.size()) + ".");
  EXPECT_EQ(error_of([&] { gunzip(gzip(std::string(50'000'000, '\0')), 1000); }),
            "Format: the gzip data holds more than the 1000 bytes allowed here.");
  write_file(folder / "bomb", gzip(std::string(50'000'000, '\0')));
  EXPECT_EQ(error_of([&] { InputFile(folder / "bomb").read_rest(1000); }),
            "Format: '" + (folder / "bomb") +
                "' holds more than the 1000 bytes that are allowed "
                "here.");
  EXPECT_EQ(error_of([&] { gzip("x", 10); }), "Value: gzip: the level must be 0 to 9, got 10.");
  expect_robust(good, folder / "x", /*cuts_fail=*/false,
                [](const std::string& path) { InputFile(path).read_rest(1 << 20); });
}

}  // namespace
}  // namespace tandem
