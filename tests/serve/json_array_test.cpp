// SPDX-License-Identifier: Apache-2.0
// Numbers of JSON as tensors: the value nearest to the text, whichever way it is found.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstdlib>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include "tandem/base/error.h"
#include "tandem/serve/json_cursor.h"
#include "tandem/tensor/tensor.h"

namespace tandem::serve {
namespace {

// Texts of numbers that are printed and that are hard to round: any bits, few and many digits, and
// the middle of two floats with a digit more or less.
std::vector<std::string> number_texts() {
  std::mt19937_64 draw(3);
  std::vector<std::string> out = {"0",
                                  "-0",
                                  "0.0",
                                  "1e0",
                                  "1E+2",
                                  "-1.5e-3",
                                  "16777217",
                                  "1e-46",
                                  "1e-45",
                                  "3.4028235e38",
                                  "1e-40",
                                  "9007199254740993",
                                  "0.1",
                                  "1e22",
                                  "1e23",
                                  "123456789012345678901234567890e-20",
                                  "0.000000000000000000000000000001",
                                  "8.5e-38"};
  for (int i = 0; i < 20000; ++i) {
    const auto f = std::bit_cast<float>(static_cast<uint32_t>(draw()));
    if (!std::isfinite(f)) continue;
    out.push_back(fmt::format("{}", f));
    out.push_back(fmt::format("{:.{}e}", f, draw() % 12));
    out.push_back(fmt::format("{}", static_cast<double>(f) * 0.9));
    out.push_back(
        fmt::format("{:.{}f}", std::ldexp(static_cast<double>(draw() >> 11), -50), draw() % 20));
    const double middle =
        (static_cast<double>(f) +
         static_cast<double>(std::nextafter(f, std::numeric_limits<float>::infinity()))) /
        2;
    if (std::abs(f) < 1e30F) out.push_back(fmt::format("{:.{}e}", middle, 14 + draw() % 20));
  }
  return out;
}

TEST(JsonArray, NumbersAreTheNearestOnes) {
  const std::vector<std::string> texts = number_texts();
  std::string list = "[";
  for (const std::string& t : texts) list += (list.size() > 1 ? ", " : "") + t;
  list += "]";
  const auto floats = read_array(list, DType::f32, "x").to_vector<float>();
  const auto doubles = read_array(list, DType::f64, "x").to_vector<double>();
  ASSERT_EQ(floats.size(), texts.size());
  for (size_t i = 0; i < texts.size(); ++i) {
    EXPECT_EQ(std::bit_cast<uint32_t>(floats[i]),
              std::bit_cast<uint32_t>(std::strtof(texts[i].c_str(), nullptr)))
        << texts[i];
    EXPECT_EQ(std::bit_cast<uint64_t>(doubles[i]),
              std::bit_cast<uint64_t>(std::strtod(texts[i].c_str(), nullptr)))
        << texts[i];
  }
}

TEST(JsonArray, ListsAreReadAtOnceOrNotAtAll) {
  const auto read = [](const std::string& text, DType dtype) {
    JsonCursor json(text);
    const Tensor t = read_list(json, dtype);
    EXPECT_EQ(json.at(), t.defined() ? text.find(']') + 1 : 0U) << text;
    return t;
  };
  EXPECT_EQ(read("[1, 2.5,-3e1 ]", DType::f32).to_vector<float>(),
            (std::vector<float>{1, 2.5F, -30}));
  EXPECT_EQ(read("[7]", DType::i64).to_vector<int64_t>(), std::vector<int64_t>{7});
  for (const char* text : {"[]", "[[1]]", "[1,[2]]", "[1,null]", "[NaN]", "[1e300]", "3"})
    EXPECT_FALSE(read(text, DType::f32).defined()) << text;
  EXPECT_FALSE(read("[1.5]", DType::i64).defined());
  EXPECT_FALSE(read("[-9223372036854775808,1]", DType::i64).defined());
  EXPECT_FALSE(read("[1]", DType::u8).defined());
  for (const char* text : {"[1,]", "[1,2", "[1 2]"}) {
    JsonCursor json(text);
    EXPECT_THROW(read_list(json, DType::f32), Error) << text;
  }
}

TEST(JsonArray, WholeNumbersOfAnySize) {
  const Tensor t =
      read_array("[9223372036854775807, -9223372036854775808, 0, -7, 2e3, 100000000000000000]",
                 DType::i64, "x");
  EXPECT_EQ(t.to_vector<int64_t>(), (std::vector<int64_t>{std::numeric_limits<int64_t>::max(),
                                                          std::numeric_limits<int64_t>::min(), 0,
                                                          -7, 2000, 100000000000000000}));
  EXPECT_THROW(read_array("[9223372036854775808]", DType::i64, "x"), Error);
  EXPECT_THROW(read_array("[1.5]", DType::i64, "x"), Error);
}

TEST(JsonArray, WhatIsNoNumberIsRefused) {
  for (const char* text :
       {"[01]", "[1.]", "[.5]", "[+1]", "[1e]", "[1e+]", "[-]", "[1x]", "[1 2]", "[1,]", "[0x10]",
        "[1e5.0]", "[--1]", "[1,,2]", "[NaN]", "[-Infinity]", "[tru]", "[1"})
    EXPECT_THROW(read_array(text, DType::f32, "x"), Error) << text;
  EXPECT_THROW(read_array("[1e39]", DType::f32, "x"), Error);
  EXPECT_TRUE(std::isnan(read_array("[NaN]", DType::f32, "x", true).to_vector<float>()[0]));
  EXPECT_EQ(read_array("[-Infinity]", DType::f64, "x", true).to_vector<double>()[0],
            -std::numeric_limits<double>::infinity());
}

}  // namespace
}  // namespace tandem::serve
