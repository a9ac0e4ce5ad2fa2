// SPDX-License-Identifier: Apache-2.0
// FlatBuffers written and read back; what is broken is refused. And FlexBuffers' maps.
#include "tandem/io/flatbuffer.h"

#include <gtest/gtest.h>

#include <functional>

#include "tandem/base/budget.h"
#include "tandem/base/error.h"
#include "tandem/io/bytes_internal.h"
#include "tandem/io/flexbuffer.h"

namespace tandem::io {
namespace {

FlatWriter two_levels() {
  FlatWriter inner, root;
  inner.add_text(0, "inner");
  inner.add<int64_t>(3, -7);
  root.add<uint8_t>(0, 200);
  root.add<float>(2, 0.5f);
  root.add_numbers<int32_t>(4, {1, -2, 3});
  root.add_bytes(5, "abc", 16);
  root.add_tables(6, {inner, FlatWriter(), inner});
  root.add_table(7, inner);
  root.add_numbers<int64_t>(8, {int64_t{1} << 40});
  return root;
}

TEST(Flatbuffer, ReadsWhatItWrites) {
  const std::string bytes = two_levels().finish("TEST");
  const FlatDocument d(bytes, "file");
  EXPECT_EQ(d.identifier(), "TEST");
  const FlatTable t = d.root();
  EXPECT_EQ(t.number<uint8_t>(0), 200);
  EXPECT_FALSE(t.has(1));
  EXPECT_EQ(t.number<int32_t>(1, 42), 42);
  EXPECT_EQ(t.number<float>(2), 0.5f);
  EXPECT_EQ(t.numbers<int32_t>(4), (std::vector<int32_t>{1, -2, 3}));
  EXPECT_EQ(t.bytes(5), "abc");
  EXPECT_EQ((t.bytes(5).data() - bytes.data()) % 16, 0);
  ASSERT_EQ(t.size(6), 3u);
  EXPECT_EQ(t.entry(6, 2).text(0), "inner");
  EXPECT_FALSE(t.entry(6, 1).has(0));
  EXPECT_EQ(t.table(7).number<int64_t>(3), -7);
  EXPECT_EQ(t.numbers<int64_t>(8), (std::vector<int64_t>{int64_t{1} << 40}));
  EXPECT_FALSE(t.table(20).exists());
  EXPECT_EQ(t.table(20).number<int32_t>(3, 5), 5);
  EXPECT_TRUE(t.table(20).numbers<float>(0).empty());
}

std::string flat_said(const std::function<void()>& f) {
  try {
    f();
  } catch (const Error& e) {
    EXPECT_EQ(e.kind(), ErrorKind::Format);
    return e.what();
  }
  return "";
}

TEST(Flatbuffer, RefusesWhatLeadsOutOfTheFile) {
  const std::string good = two_levels().finish("TEST");
  const auto root_at = [](const std::string& s) { return number_at<uint32_t>(s, 0); };
  const auto with = [&](uint64_t at, auto v) {
    std::string s = good;
    s.replace(at, sizeof v, reinterpret_cast<const char*>(&v), sizeof v);
    return s;
  };
  const auto root = [](const std::string& s) {
    return flat_said([&] { FlatDocument(s, "file").root().numbers<int32_t>(4); });
  };
  EXPECT_NE(root(with(0, uint32_t{0x7fffffff})).find("leads out of the file"), std::string::npos);
  EXPECT_NE(root(with(0, uint32_t{0})).find("leads out of the file"), std::string::npos);
  EXPECT_NE(
      root(with(root_at(good), int32_t{0x7fffffff})).find("list of fields is not in the file"),
      std::string::npos);
  const uint64_t vtable = root_at(good) - number_at<uint32_t>(good, root_at(good));
  EXPECT_NE(root(with(vtable, uint16_t{3})).find("impossible size"), std::string::npos);
  EXPECT_NE(root(with(vtable + 2, uint16_t{0xffff})).find("impossible size"), std::string::npos);
  EXPECT_NE(root(with(vtable + 4 + 2 * 4, uint16_t{0xfffe})).find("field 4 is not in its table"),
            std::string::npos);
  EXPECT_NE(flat_said([&] {
              FlatDocument(good, "file").root().numbers<int32_t>(4, 2);
            }).find("3 entries, at most 2"),
            std::string::npos);
  for (size_t n = 0; n < good.size(); ++n)  // whatever is cut: an error or a value, nothing else
    root(good.substr(0, n));
  EXPECT_NE(root("abc").find("not in the file"), std::string::npos);
}

// Lists that many fields share are charged each time.
TEST(Flatbuffer, SharedListsAreCharged) {
  FlatWriter root;
  root.add_numbers(0, std::vector<int64_t>(1 << 16));
  const std::string bytes = root.finish("TEST");
  const Budget budget("file", 0, {.bytes = 8 << 20});
  const FlatDocument d(bytes, "file");
  const FlatTable t = d.root();
  EXPECT_NE(flat_said([&] {
              for (int i = 0; i < 100; ++i) t.numbers<int64_t>(0);
            }).find("over the limit 'bytes'"),
            std::string::npos);
}

TEST(Flexbuffer, MapsOfNumbers) {
  // {"a": 3, "b": 0.5, "c": true, "n": -2} as the package flatbuffers writes it.
  constexpr char kMap[] =
      "\141\000\142\000\143\000\156\000\004\011\010\007\006\000\000\000\007\000\000\000\001\000"
      "\000\000\004\000\000\000\003\000\000\000\000\000\000\077\001\000\000\000\376\377\377\377"
      "\006\016\152\006\024\046\001";
  const std::string bytes(kMap, sizeof kMap - 1);
  const auto m = flexbuffer_numbers(bytes, "file");
  EXPECT_EQ(m, (std::map<std::string, double>{{"a", 3}, {"b", 0.5}, {"c", 1}, {"n", -2}}));
  EXPECT_NE(flat_said([] { flexbuffer_numbers("ab", "file"); }).find("not a map"),
            std::string::npos);
  for (size_t n = 0; n < bytes.size(); ++n)
    flat_said([&] { flexbuffer_numbers(bytes.substr(n), "file"); });
  for (size_t i = 0; i < bytes.size(); ++i) {
    std::string broken = bytes;
    broken[i] = '\xff';
    flat_said([&] { flexbuffer_numbers(broken, "file"); });
  }
}

}  // namespace
}  // namespace tandem::io
