// SPDX-License-Identifier: Apache-2.0
// The wire codec: what is written reads back; false lengths, depths and numbers are rejected with
// Format and allocate nothing.
#include "tandem/io/protobuf.h"

#include <gtest/gtest.h>

#include <random>

#include "tests/io/io_helper.h"

namespace tandem {
namespace {

using io::ProtoDocument;
using io::ProtoReader;
using io::ProtoType;
using io::ProtoWriter;

TEST(Protobuf, WritesWhatItReads) {
  ProtoWriter inner, w;
  inner.add_int(1, -5);
  inner.add_bytes(2, "text");
  w.add_varint(1, ~uint64_t{0});
  w.add_float(2, 1.5f);
  w.add_double(3, -2.25);
  w.add_message(4, inner);
  w.add_packed(5, std::vector<int64_t>{1, -1, 300});
  w.add_packed(6, std::vector<float>{0.5f, 2});
  w.add_int(5, 7);
  w.add_float(6, 3);
  w.add_varint((1U << 29) - 1, 1);
  ProtoDocument document(w.str(), "test");
  ProtoReader r = document.reader();
  std::vector<int64_t> ints;
  std::vector<float> floats;
  int inner_fields = 0;
  while (r.next()) {
    switch (r.field()) {
      case 1:
        EXPECT_EQ(r.unsigned_value(), ~uint64_t{0});
        break;
      case 2:
        EXPECT_EQ(r.float_value(), 1.5f);
        break;
      case 3:
        EXPECT_EQ(r.double_value(), -2.25);
        break;
      case 4: {
        ProtoReader m = r.message();
        while (m.next()) {
          ++inner_fields;
          if (m.field() == 1) {
            EXPECT_EQ(m.int_value(), -5);
          } else {
            EXPECT_EQ(m.text(), "text");
          }
        }
        break;
      }
      case 5:
        r.append(ints);
        break;
      case 6:
        r.append(floats);
        break;
      default:
        EXPECT_EQ(r.field(), (1U << 29) - 1);
    }
  }
  EXPECT_EQ(inner_fields, 2);
  EXPECT_EQ(ints, (std::vector<int64_t>{1, -1, 300, 7}));
  EXPECT_EQ(floats, (std::vector<float>{0.5f, 2, 3}));
}

// Reads every field of every nested message.
void walk(ProtoReader r, int depth = 0) {
  while (r.next()) {
    if (r.type() == ProtoType::bytes && depth < 200 && r.field() % 2 == 1)
      walk(r.message(), depth + 1);
  }
}
std::string walk_all(const std::string& bytes, io::ProtoLimits limits = {}) {
  return error_of([&] {
    ProtoDocument document(bytes, "bad.onnx", limits);
    walk(document.reader());
  });
}

TEST(Protobuf, RefusesHostileBytes) {
  struct Case {
    const char* what;
    std::string bytes, says;
  };
  std::string deep;
  for (int i = 0; i < 150; ++i) {
    ProtoWriter w;
    w.add_bytes(1, deep);
    deep = w.str();
  }
  const Case cases[] = {
      {"cut key", "\x80", "truncated"},
      {"field 0", std::string("\0\0", 2), "no field 0"},
      {"wire type 7", "\x0F", "wire type 7"},
      {"end of no group", "\x0C", "wire type 4"},
      {"endless number", std::string("\x08") + std::string(12, '\xFF'), "more than 64 bits"},
      {"65 bits", std::string("\x08") + std::string(9, '\xFF') + "\x02", "more than 64 bits"},
      {"claims 4 GB", std::string("\x12\xFF\xFF\xFF\xFF\x0F"), "claims 4294967295 bytes"},
      {"claims 2^63", std::string("\x12") + std::string(9, '\x80') + "\x01", "claims"},
      {"cut float", std::string("\x15\0\0", 3), "truncated"},
      {"cut double", std::string("\x11\0\0\0\0", 5), "truncated"},
      {"deep", deep, "messages are nested more than"},
      {"open group", "\x0B", "truncated"},
      {"wrong group", "\x0B\x14", "never opened"},
      {"deep groups", std::string(400, '\x0B'), "too deep"},
  };
  for (const Case& c : cases) {
    const std::string got = walk_all(c.bytes);
    EXPECT_EQ(got.rfind("Format: ", 0), 0u) << c.what << ": " << got;
    EXPECT_NE(got.find(c.says), std::string::npos) << c.what << ": " << got;
    EXPECT_NE(got.find("bad.onnx"), std::string::npos) << c.what;
  }
  EXPECT_EQ(walk_all("\x0B\x10\x01\x13\x14\x0C"), "no error") << "groups are skipped";
}

TEST(Protobuf, CountsFields) {
  std::string many;
  for (int i = 0; i < 1000; ++i) many += "\x08\x01";
  EXPECT_EQ(walk_all(many), "no error");
  EXPECT_NE(walk_all(many, {100, 500}).find("500 fields"), std::string::npos);
}

TEST(Protobuf, WrongTypesAreNamed) {
  ProtoWriter w;
  w.add_int(3, 1);
  ProtoDocument document(w.str(), "x");
  ProtoReader r = document.reader();
  ASSERT_TRUE(r.next());
  EXPECT_NE(error_of([&] { r.bytes(); }).find("field 3 has the wire type 0, not 2"),
            std::string::npos);
}

TEST(Protobuf, RandomBytesGiveFormatErrors) {
  std::mt19937 random(1);
  for (int i = 0; i < 20000; ++i) {
    std::string bytes(random() % 64, '\0');
    for (char& c : bytes) c = static_cast<char>(random());
    const std::string got = walk_all(bytes);
    EXPECT_TRUE(got == "no error" || got.rfind("Format: ", 0) == 0) << got;
  }
}

}  // namespace
}  // namespace tandem
