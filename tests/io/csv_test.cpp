// SPDX-License-Identifier: Apache-2.0
// CSV tables: quoting, line ends, numbers, and messages with line and column.
#include "tandem/io/csv.h"

#include <cmath>

#include "tandem/io/gzip.h"
#include "tests/io/io_helper.h"

namespace tandem {
namespace {

using io::Csv;

TEST(Csv, HeaderAndNumbers) {
  const Csv t = Csv::parse("x,y , label\n1,2.5,3\r\n-4e2, +0.5 ,255\n");
  EXPECT_EQ(t.rows(), 2u);
  EXPECT_EQ(t.columns(), 3u);
  EXPECT_EQ(t.names(), (std::vector<std::string>{"x", "y", "label"}));
  EXPECT_EQ(t.column("x", float32).to_vector<float>(), (std::vector<float>{1, -400}));
  EXPECT_EQ(t.column("label", uint8).to_vector<uint8_t>(), (std::vector<uint8_t>{3, 255}));
  const Tensor both = t.table(0, 2, float64);
  EXPECT_EQ(both.shape(), (Shape{2, 2}));
  EXPECT_EQ(both.to_vector<double>(), (std::vector<double>{1, 2.5, -400, 0.5}));
  EXPECT_EQ(t.field(1, 1), " +0.5 ");
}

TEST(Csv, QuotesAfterRfc4180) {
  const Csv t = Csv::parse("name,text\n\"a\",\"say \"\"hi\"\"\"\n\"two\nlines\",\"x,y\"\n\"\",\n");
  EXPECT_EQ(t.rows(), 3u);
  EXPECT_EQ(t.field(0, 1), "say \"hi\"");
  EXPECT_EQ(t.field(1, 0), "two\nlines");
  EXPECT_EQ(t.field(1, 1), "x,y");
  EXPECT_EQ(t.field(2, 0), "");
  EXPECT_EQ(t.field(2, 1), "");
}

TEST(Csv, LineEndsBlanksMarksAndDelimiters) {
  const Csv a = Csv::parse(
      "\xEF\xBB\xBF"
      "1;2\r\n\r\n3;4",
      {.delimiter = ';', .header = false});
  EXPECT_TRUE(a.names().empty());
  EXPECT_EQ(a.table(0, 2, int64).to_vector<int64_t>(), (std::vector<int64_t>{1, 2, 3, 4}));
  const Csv one = Csv::parse("v\n1\n\n\"\"\n", {});
  EXPECT_EQ(one.rows(), 2u) << "an empty line is not a row, a quoted empty field is one";
  EXPECT_EQ(Csv::parse("a,b\n").rows(), 0u);
  EXPECT_EQ(Csv::parse("a,b\n").table(0, 2, float32).shape(), (Shape{0, 2}));
  EXPECT_EQ(Csv::parse("", {.header = false}).rows(), 0u);
}

TEST(Csv, DTypes) {
  const Csv t = Csv::parse("b,n\ntrue,inf\n0,nan\nFALSE,-inf\n1,1e-3\n");
  EXPECT_EQ(t.column("b", boolean).to_vector<int32_t>(), (std::vector<int32_t>{1, 0, 0, 1}));
  const std::vector<double> n = t.column("n", float64).to_vector<double>();
  EXPECT_TRUE(std::isinf(n[0]) && std::isnan(n[1]) && n[2] < 0 && n[3] == 1e-3);
}

TEST(Csv, GzipFile) {
  TempFolder folder;
  const std::string text = "a,b\n1,2\n3,4\n";
  write_file(folder / "t.csv.gz", io::gzip(text));
  write_file(folder / "t.csv", text);
  for (const char* name : {"t.csv", "t.csv.gz"})
    EXPECT_EQ(Csv::read(folder / name).column("b", int32).to_vector<int32_t>(),
              (std::vector<int32_t>{2, 4}));
}

TEST(Csv, EveryCutAndFlip) {
  TempFolder folder;
  const std::string text = "a,\"b\"\n1,\"2\"\n\"3\"\"\",4\r\n";
  auto read = [](const std::string& path) {
    const Csv t = Csv::read(path);
    for (size_t c = 0; c < t.columns(); ++c) t.column(c, float32);
  };
  // The third row holds no number, so a good file is made of the first two.
  expect_robust(text.substr(0, 12), folder / "x", /*cuts_fail=*/false, read);
  auto only_split = [](const std::string& path) { Csv::read(path); };
  expect_robust(text, folder / "x", /*cuts_fail=*/false, only_split);
  expect_robust(io::gzip(text), folder / "x", /*cuts_fail=*/false, only_split);
}

TEST(CsvMustFail, Tables) {
  auto error = [](const std::string& text) {
    return error_of([&] { Csv::parse(text, {}, "t.csv"); });
  };
  EXPECT_EQ(error(""), "Format: 't.csv' is empty: expected a line with the column names.");
  EXPECT_EQ(error("a,b\n1,2\n3\n"), "Format: 't.csv' line 3: 1 field, the first line has 2.");
  EXPECT_EQ(error("a,b\n1,2,3\n"), "Format: 't.csv' line 2: 3 fields, the first line has 2.");
  EXPECT_EQ(error("a,b\n1,\"2\n3,4\n"),
            "Format: 't.csv' line 2, column 2: the quote is never closed.");
  EXPECT_EQ(error("a,b\n\"1\"x,2\n"),
            "Format: 't.csv' line 2, column 1: there is text after the closing quote.");
  EXPECT_EQ(error("a,b\n1,2\"3\n"),
            "Format: 't.csv' line 2, column 2: a quote inside a field that is not quoted.");
  EXPECT_EQ(error(std::string("a\n1\0\n", 5)), "Format: 't.csv' line 2, column 1: a zero byte.");
  EXPECT_EQ(error("a\r1\n"), "Format: 't.csv' line 1: a carriage return without a line feed.");
  EXPECT_EQ(error("a,b,a\n"), "Format: 't.csv': columns 1 and 3 are both named 'a'.");
  EXPECT_EQ(error_of([] { Csv::parse("a", {.delimiter = '"'}); }),
            "Value: CSV: a quote, a line break or a zero byte cannot be the delimiter.");
}

TEST(CsvMustFail, Numbers) {
  const Csv t = Csv::parse("a,b\n1,\"x\ny\"\n2,300\n3.5,1e999\n", {}, "t.csv");
  auto error = [&](const char* name, DType d) { return error_of([&] { t.column(name, d); }); };
  EXPECT_EQ(error("b", float32),
            "Format: 't.csv' line 2, column 2 ('b'): 'x?y' is not a valid number.");
  EXPECT_EQ(error("a", int32),
            "Format: 't.csv' line 5, column 1 ('a'): '3.5' is not a valid int32 number.");
  EXPECT_EQ(error("a", boolean),
            "Format: 't.csv' line 4, column 1 ('a'): '2' is not a valid bool number.");
  const Csv u = Csv::parse("300\n-1\n", {.header = false}, "t.csv");
  EXPECT_EQ(error_of([&] { u.column(0, uint8); }),
            "Format: 't.csv' line 1, column 1: '300' is not a valid uint8 number.");
  EXPECT_EQ(error_of([&] { Csv::parse("a\n\n1\n+-2\n").column(0, float32); }),
            "Format: 'CSV' line 4, column 1 ('a'): '+-2' is not a valid number.");
  EXPECT_EQ(error("c", float32), "Value: 't.csv' has no column 'c'. It has: a, b.");
  EXPECT_EQ(error_of([&] { u.column("c", uint8); }),
            "Value: 't.csv' has no column 'c'. It was read without a header.");
  EXPECT_EQ(error_of([&] { t.column(2, float32); }),
            "Index: 't.csv' has 2 columns; 1 from column 2 on were requested (from 0).");
  EXPECT_EQ(error_of([&] { t.field(3, 0); }),
            "Index: 't.csv' has 3 rows and 2 columns; row 3, column 0 was requested (from 0).");
}

TEST(CsvMustFail, Io) {
  TempFolder folder;
  EXPECT_EQ(error_of([&] { Csv::read(folder / "none"); }),
            "Io: cannot open '" + (folder / "none") +
                "': No such file or directory. Its folder has no name like it: check the path.");
  write_file(folder / "bomb.gz", io::gzip(std::string(10'000'000, 'a')));
  EXPECT_EQ(error_of([&] { Csv::read(folder / "bomb.gz", {.limit = 1000}); }),
            "Format: '" + (folder / "bomb.gz") +
                "' holds more than the 1000 bytes that are allowed here.");
}

}  // namespace
}  // namespace tandem
