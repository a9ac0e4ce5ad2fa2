// SPDX-License-Identifier: Apache-2.0
// SentencePiece models against tests/golden/sentencepiece, trained by the library `sentencepiece`;
// then files that are truncated, changed or contradict themselves.
#include "tandem/text/sentencepiece.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>

#include "tandem/base/error.h"
#include "tandem/io/json.h"
#include "tandem/io/protobuf.h"

namespace tandem::text {
namespace {

std::string golden_path(const std::string& name) {
  const char* root = std::getenv("TANDEM_SOURCE_DIR");
  return std::string(root ? root : ".") + "/tests/golden/sentencepiece/" + name;
}

TEST(SentencePiece, GivesTheGoldenTokens) {
  const io::Json cases = io::parse_json(read_file(golden_path("cases.json")));
  ASSERT_EQ(cases.as_object()->size(), 2U);
  for (const auto& [kind, list] : *cases.as_object()) {
    const SentencePiece t = SentencePiece::from_file(golden_path(kind + ".model"));
    for (const io::Json& c : *list.as_array()) {
      const io::Json::Array& parts = *c.as_array();
      std::vector<int64_t> want;
      for (const io::Json& id : *parts[1].as_array()) want.push_back(*id.as_int());
      const std::string& text = *parts[0].as_string();
      EXPECT_EQ(t.encode(text), want) << kind << io::quote_json(text);
      EXPECT_EQ(t.decode(want), *parts[2].as_string()) << kind << io::quote_json(text);
    }
    EXPECT_EQ(t.piece_to_id("<unk>"), t.unk_id());
    EXPECT_EQ(t.id_to_piece(t.eos_id()), "</s>");
    EXPECT_FALSE(t.id_to_piece(t.vocab_size()));
  }
}

io::ProtoWriter piece(const std::string& text, float score, int kind) {
  io::ProtoWriter w;
  w.add_bytes(1, text);
  w.add_float(2, score);
  w.add_int(3, kind);
  return w;
}

TEST(SentencePiece, HostileFilesAreRefused) {
  const auto model = [](std::vector<io::ProtoWriter> pieces, int64_t type, int64_t unk,
                        const std::string& table = "", bool bytes = false) {
    io::ProtoWriter w, trainer, normalizer;
    for (const io::ProtoWriter& p : pieces) w.add_message(1, p);
    trainer.add_int(3, type);
    trainer.add_int(35, bytes);
    trainer.add_int(40, unk);
    trainer.add_int(41, -1);
    trainer.add_int(42, -1);
    normalizer.add_bytes(2, table);
    w.add_message(2, trainer);
    w.add_message(3, normalizer);
    return w.str();
  };
  const auto unk = piece("<unk>", 0, 2), a = piece("a", -1, 1);
  EXPECT_EQ(SentencePiece::from_bytes(model({unk, a}, 1, 0)).vocab_size(), 2);
  const std::string files[] = {
      "",
      "\x0a",
      "\x0a\xff\xff\xff\xff\x0f",
      std::string(100, '\xff'),
      model({}, 1, 0),
      model({a}, 1, 0),
      model({unk, a}, 1, 1),
      model({unk, a}, 1, 7),
      model({unk, a}, 1, -1),
      model({unk, a, a}, 1, 0),
      model({unk, piece("", 0, 1)}, 1, 0),
      model({unk, piece("\xff", 0, 1)}, 1, 0),
      model({unk, piece("b", INFINITY, 1)}, 1, 0),
      model({unk, piece("b", NAN, 1)}, 1, 0),
      model({unk, piece("b", 0, 9)}, 1, 0),
      model({unk, piece("b", 0, 0)}, 1, 0),
      model({unk, a}, 1, 0, "abc"),
      model({unk, a}, 1, 0, std::string("\xf0\xff\xff\xff\x00\x00\x00\x00", 8)),
      model({unk, a}, 1, 0, std::string("\x04\x00\x00\x00\x00\x00\x00\x00\xff", 9)),
      model({unk, a}, 2, 0, "", true),
  };
  for (const std::string& f : files) {
    try {
      SentencePiece::from_bytes(f, "it.model");
      ADD_FAILURE() << io::quote_json(f);
    } catch (const Error& e) {
      EXPECT_EQ(e.kind(), ErrorKind::Format) << e.what();
      EXPECT_NE(std::string(e.what()).find("it.model"), std::string::npos) << e.what();
    }
  }
}

TEST(SentencePiece, CutsAndFlipsSlow) {
  for (const char* kind : {"unigram.model", "bpe.model"}) {
    const std::string whole = read_file(golden_path(kind));
    const auto attempt = [&](const std::string& s) {
      try {
        const SentencePiece t = SentencePiece::from_bytes(s);
        t.decode(t.encode("The king's horse ran \xE6\xBC\xA2"));
      } catch (const Error& e) {
        EXPECT_TRUE(e.kind() == ErrorKind::Format || e.kind() == ErrorKind::Value ||
                    e.kind() == ErrorKind::Unsupported)
            << e.what();
      }
    };
    for (size_t n = 0; n < whole.size(); n += 97) attempt(whole.substr(0, n));
    for (size_t k = 0; k < 300; ++k) {
      std::string s = whole;
      s[(k * 7919 + 13) % s.size()] ^= static_cast<char>(1U << k % 8);
      attempt(s);
    }
  }
}

}  // namespace
}  // namespace tandem::text
