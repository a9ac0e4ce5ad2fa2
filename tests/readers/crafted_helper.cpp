// SPDX-License-Identifier: Apache-2.0
// Files that ask for far more than they are worth: each was once, or would be, a hang, gigabytes or
// a crash. table: a file each, its reader, and what is said of it.
#include <fmt/core.h>

#include "tandem/io/gzip.h"
#include "tandem/io/protobuf.h"
#include "tandem/io/tensorflow/tfrecord.h"
#include "tests/readers/readers.h"

namespace tandem::readers {
namespace {

std::string repeated(std::string_view s, uint64_t n) {
  std::string out;
  out.reserve(s.size() * n);
  for (uint64_t k = 0; k < n; ++k) out += s;
  return out;
}

// ---- weights, tables, texts

/// One tuple of arguments, and calls that share it.
std::string pickle_calls(size_t arguments, size_t calls) {
  std::string s = "\x80\x02((" + repeated("N", arguments) + "tq\x01";
  for (size_t k = 0; k < calls; ++k) s += k == 0 ? "cm\nf\nq\x02h\x01R" : "h\x02h\x01R";
  return s + "t.";
}
std::string pickle_mappings(size_t pairs, size_t calls) {
  std::string s = "\x80\x02](" + repeated("K\x01K\x02\x86", pairs) + "eq\x01(";
  for (size_t k = 0; k < calls; ++k)
    s += (k == 0 ? std::string("ccollections\nOrderedDict\nq\x02") : std::string("h\x02")) +
         "h\x01\x85R";
  return s + "t\x86.";
}
/// A value of a torch file: `body` leaves one value.
std::string torch_file(const std::string& body) {
  return zip({{"a/data.pkl", "\x80\x02" + body + "."}, {"a/version", "3\n"}});
}
std::string torch_texts() {
  const std::string text(1 << 20, 'x');
  return torch_file("](" + ("X" + little_endian({{text.size(), 4}}) + text) + "q\x01" +
                    repeated("h\x01", 200000) + "e");
}
std::string torch_names() {
  const std::string text(1 << 19, 'x');
  return torch_file("}X" + little_endian({{text.size(), 4}}) + text + "](" + repeated("]", 200000) +
                    "es");
}
/// Lists that each hold the one before twice.
std::string torch_shared() {
  std::string s = "(]q\x01";
  for (char k = 1; k < 60; ++k)
    s += std::string("](h") + k + 'h' + k + "eq" + static_cast<char>(k + 1);
  return torch_file(s + "t");
}
std::string npy_head(const std::string& shape) {
  std::string dict = "{'descr': '|u1', 'fortran_order': False, 'shape': (" + shape + "), }";
  dict.append(118 - dict.size() - 1, ' ');
  return "\x93NUMPY" + std::string("\1\0", 2) + little_endian({{dict.size() + 1, 2}}) + dict + "\n";
}
std::string npz_bomb(uint64_t mebibytes, int members) {
  std::vector<Member> all;
  for (int k = 0; k < members; ++k)
    all.push_back({fmt::format("a{}.npy", k), std::string(1 << 20, '\0'), true, mebibytes,
                   npy_head(fmt::format("{},", mebibytes << 20))});
  return zip(all);
}
std::string yaml_texts() {
  return "a: &a \"" + std::string(1 << 18, 'x') + "\"\nb: [*a" + repeated(", *a", 50000) + "]\n";
}
std::string yaml_bomb() {
  std::string s = "a: &a [x, x, x, x, x, x, x, x, x]\n";
  for (char c = 'b'; c < 'k'; ++c) {
    const char d = static_cast<char>(c - 1);
    s += fmt::format("{0}: &{0} [*{1}, *{1}, *{1}, *{1}, *{1}, *{1}, *{1}, *{1}, *{1}]\n", c, d);
  }
  return s;
}
std::string yaml_keys() {
  std::string s;
  for (int k = 0; k < 60000; ++k) s += fmt::format("k{}: 1\n", k);
  return s;
}
std::string csv_names(int columns) {
  std::string s;
  for (int k = 0; k < columns; ++k) s += fmt::format("{}{}", k ? "," : "", k);
  return s + "\n";
}

void add_files(std::vector<Crafted>& all) {
  const auto add = [&](const char* reader, const char* name, auto bytes, const char* says = "") {
    all.push_back({std::string(reader) + "/" + name, reader, std::move(bytes), says});
  };
#define ADD(reader, name, expression, ...) \
  add(                                     \
      reader, name, [] { return std::string(expression); }, ##__VA_ARGS__)
  ADD("pickle", "calls", pickle_calls(50000, 11000));
  ADD("pickle", "calls_more", pickle_calls(250000, 52000));
  ADD("pickle", "mappings", pickle_mappings(20000, 8000), "over the limit 'bytes'");
  ADD("pickle", "marks", std::string(1 << 20, '('));
  ADD("pickle", "values", repeated("N", 1 << 22));
  ADD("pickle", "memo", "N" + repeated("\x94", 1 << 20) + ".");
  ADD("torch", "texts", torch_texts(), "over the limit 'bytes'");
  ADD("torch", "names", torch_names());
  ADD("torch", "shared", torch_shared());
  ADD("torch", "bomb", zip({{"a/data.pkl", std::string(1 << 20, 'N'), true, 1024}}));
  ADD("npz", "zeros", npz_bomb(400, 1), "over the limit 'bytes'");
  ADD("npz", "many", npz_bomb(40, 10), "over the limit 'bytes'");
  ADD("npz", "claims", zip({{"a.npy", npy_head("4611686018427387904, 4"), true, 1}}));
  ADD("npz", "overlap", [] {
    const std::string one = zip({{"a.npy", npy_head("10,") + "0123456789", false, 1}});
    return one.substr(0, one.size() - 22) + one.substr(one.find("PK\x01\x02"));
  }());
  ADD("npy", "claims", npy_head("4611686018427387904, 4"));
  ADD("npy", "product", npy_head("4294967296, 4294967296, 4294967296"));
  ADD("npy", "nothing", npy_head("0, 9223372036854775807, 9223372036854775807"));
  ADD("npy", "header",
      "\x93NUMPY" + std::string("\2\0", 2) + little_endian({{0xffffffff, 4}}) + "{");
  ADD("npy", "deep",
      "\x93NUMPY" + std::string("\1\0", 2) + little_endian({{60000, 2}}) +
          "{'descr': '|u1', 'fortran_order': False, 'shape': " + std::string(59947, '('));
  ADD("idx", "zeros", gzip_bomb(std::string("\0\0\x08\x01\x19\0\0\0", 8), 400),
      "over the limit 'bytes'");
  ADD("idx", "claims", std::string("\0\0\x08\x02\x7f\xff\xff\xff\x7f\xff\xff\xff", 12));
  ADD("gzip", "zeros", gzip_bomb("", 400), "over the limit 'bytes'");
  ADD("csv", "zeros", gzip_bomb("a\n", 400), "over the limit 'bytes'");
  ADD("csv", "commas", gzip_bomb("", 60, ','), "over the limit 'bytes'");
  ADD("csv", "names", csv_names(300000));
  ADD("csv", "lines", repeated("1\n", 1 << 21));
#undef ADD
}

void add_texts(std::vector<Crafted>& all) {
  const auto add = [&](const char* reader, const char* name, auto bytes, const char* says = "") {
    all.push_back({std::string(reader) + "/" + name, reader, std::move(bytes), says});
  };
#define ADD(reader, name, expression, ...) \
  add(                                     \
      reader, name, [] { return std::string(expression); }, ##__VA_ARGS__)
  ADD("json", "deep", std::string(1 << 20, '['), "nested deeper");
  ADD("json", "lists", "[" + repeated("[],", 400000) + "1]");
  ADD("json", "keys", [] {
    std::string s = "{";
    for (int k = 0; k < 100000; ++k) s += fmt::format("\"{}\":0,", k);
    return s + "\"\":0}";
  }());
  ADD("json", "number", "1" + std::string(1 << 20, '0'));
  ADD("yaml", "bomb", yaml_bomb(), "over the limit");
  ADD("yaml", "texts", yaml_texts(), "over the limit 'bytes'");
  ADD("yaml", "keys", yaml_keys());
  ADD("yaml", "deep", std::string(1 << 16, '['), "nested deeper");
  ADD("yaml", "inside", "a: &a [*a]\n", "inside its own value");
  ADD("yaml", "flow", "[" + repeated("a,", 200000) + "]");
  ADD("safetensors", "header", little_endian({{99'999'999, 8}}) + "{}");
  ADD("safetensors", "deep", little_endian({{60000, 8}}) + "{\"a\":" + std::string(59996, '['));
  ADD("safetensors", "alias", [] {
    std::string h = "{\"__metadata__\":{";
    for (int k = 0; k < 50000; ++k)
      h += fmt::format("{}\"tandem.alias.{}\":\"w\"", k ? "," : "", k);
    h += "},\"w\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[0,1]}}";
    return little_endian({{h.size(), 8}}) + h + "x";
  }());
  ADD("tar", "size", [] {
    std::string s = tar_entry("a", "x");
    s.replace(124, 12, std::string("\x80\0\0\0\x7f\xff\xff\xff\xff\xff\xff\xff", 12));
    repair_tar(s);
    return s;
  }());
  ADD("tar", "pax",
      tar_entry("p", "40 size=99999999999999999999999999999\n", 'x') + tar_entry("a", "x"));
  ADD("tar", "names",
      repeated(tar_entry("p", std::string(3000, 'n'), 'L'), 2000) + tar_entry("a", "x"));
  ADD("tfrecord", "length", [] {
    std::string s = little_endian({{UINT64_MAX, 8}, {0, 8}});
    repair_tfrecord(s);
    return s;
  }());
  ADD("tfrecord", "lists", [] {
    const std::string inner = repeated(std::string("\x0a\0", 2), 1 << 20);
    io::ProtoWriter feature;
    io::ProtoWriter entry;
    io::ProtoWriter features;
    io::ProtoWriter example;
    feature.add_bytes(1, inner);
    entry.add_bytes(1, "k");
    entry.add_message(2, feature);
    features.add_message(1, entry);
    example.add_message(1, features);
    return io::tfrecord(example.str());
  }());
  ADD("protobuf", "groups", std::string(1 << 20, '\x0b'));
  ADD("protobuf", "messages", [] {
    std::string s;
    for (int k = 0; k < 500; ++k) {
      io::ProtoWriter w;
      w.add_bytes(2, s);
      s = w.str();
    }
    return s;
  }());
#undef ADD
}

// ---- images, sound, tokenizers

std::string tokenizer(const std::string& parts, const std::string& vocab = R"("<unk>":0,"a":1)") {
  return "{\"version\":\"1.0\"," + parts + R"(,"model":{"type":"WordLevel","vocab":{)" + vocab +
         R"(},"unk_token":"<unk>"}})";
}
/// Replacements in sequence, each making `n` of every character.
std::string replacements(const char* part, const char* parts, int steps, size_t n, bool regex) {
  std::string all;
  for (int k = 0; k < steps; ++k)
    all += fmt::format(R"({}{{"type":"Replace","pattern":{{"{}":"{}"}},"content":"{}"}})",
                       k ? "," : "", regex ? "Regex" : "String", regex ? "." : "a",
                       std::string(n, 'a'));
  return fmt::format(R"("{}":{{"type":"Sequence","{}":[{}]}})", part, parts, all);
}
std::string padded_tokenizer() {
  return tokenizer(R"("padding":{"strategy":{"Fixed":16777216},"pad_id":0})");
}
std::string template_tokenizer() {
  std::string ids, items;
  for (int k = 0; k < 20000; ++k) ids += k ? ",1" : "1";
  for (int k = 0; k < 2000; ++k) items += R"({"SpecialToken":{"id":"s","type_id":0}},)";
  return tokenizer(
      R"("post_processor":{"type":"TemplateProcessing","single":[)" + items +
      R"({"Sequence":{"id":"A","type_id":0}}],"pair":[],"special_tokens":{"s":{"id":"s","ids":[)" +
      ids + R"(],"tokens":["a"]}}})");
}
std::string added_tokenizer() {
  std::string list;
  for (int k = 0; k < 3000; ++k)
    list +=
        fmt::format(R"({}{{"id":{},"content":"a{}","normalized":true}})", k ? "," : "", k + 10, k);
  return tokenizer("\"added_tokens\":[" + list + "]," +
                   replacements("normalizer", "normalizers", 2, 400, false));
}

void add_media(std::vector<Crafted>& all) {
  const auto add = [&](const char* reader, const char* name, auto bytes, const char* says = "") {
    all.push_back({std::string(reader) + "/" + name, reader, std::move(bytes), says});
  };
#define ADD(reader, name, expression, ...) \
  add(                                     \
      reader, name, [] { return std::string(expression); }, ##__VA_ARGS__)
  ADD("png", "zeros", png(12000, 12000), "over the limit 'bytes'");
  ADD("png", "claims", [] {
    std::string s = png(1, 1);
    s.replace(16, 8, big_endian({{1000000, 4}, {1000000, 4}}));
    repair_png(s);
    return s;
  }());
  ADD("png", "text", [] {
    std::string s = png(8, 8);
    std::string data = "k" + std::string(2, '\0') + deflate(std::string(1 << 20, '\0'), 200);
    std::string chunk = big_endian({{data.size(), 4}}) + "zTXt" + data + std::string(4, '\0');
    s.insert(33, chunk);
    repair_png(s);
    return s;
  }());
  ADD("jpeg", "claims", jpeg(16000, 16000, 0));
  ADD("jpeg", "progressive", jpeg(16000, 16000, 2));
  ADD("jpeg", "scans", jpeg(8000, 8000, 600));
  ADD("jpeg", "widest", jpeg(65500, 65500, 1));
  ADD("webp", "claims",
      std::string(
          "RIFF\x1a\0\0\0WEBPVP8L\x0d\0\0\0\x2f\xff\xff\xff\x0f\x07\x10\x11\x11\x88\x88\xfe\x07\0",
          34));
  // A canvas of 16384 x 16384 with nothing on it; a lossy image of 16383 x 16383.
  ADD("webp", "canvas",
      std::string("RIFF\x16\0\0\0WEBPVP8X\x0a\0\0\0\x02\0\0\0\xff\x3f\0\xff\x3f\0", 30));
  ADD("webp", "widest",
      std::string("RIFF\x22\0\0\0WEBPVP8 \x16\0\0\0\x30\x01\0\x9d\x01\x2a\xff\x3f\xff\x3f\x0e\xc0"
                  "\xfe\x25\xa4\0\x03\x70\0\0\0\0",
                  42));
  ADD("tiff", "claims", tiff(16000, 16000, 1, "abcd"), "over the limit 'bytes'");
  ADD("tiff", "widest", tiff(0xffffffff, 0xffffffff, 5, "abcd"));
  ADD("tiff", "deflated", tiff(12000, 12000, 8, deflate(std::string(12000, '\0'), 12000)),
      "over the limit 'bytes'");
  ADD("jpeg2000", "claims", codestream(16000, 16000, 16000, 15), "over the limit 'bytes'");
  ADD("jpeg2000", "tiles", codestream(60000, 4000, 4, 15));
  ADD("jpeg2000", "precincts", codestream(4000, 4000, 4000, 0));
  ADD("plain_image", "claims", "P6 99999999 99999999 255\nabc");
  ADD("wav", "claims",
      "RIFF\xff\xff\xff\xffWAVEfmt " +
          little_endian({{16, 4}, {1, 2}, {1024, 2}, {8000, 4}, {0, 4}, {2048, 2}, {16, 2}}) +
          "data\xff\xff\xff\xff");
  ADD("flac", "silence", flac(1000), "over the limit 'bytes'");
  ADD("tokenizer", "four_replacements",
      tokenizer(replacements("normalizer", "normalizers", 4, 250, false)),
      "over the limit 'bytes'");
  ADD("tokenizer", "four_expressions",
      tokenizer(replacements("normalizer", "normalizers", 4, 250, true)), "over the limit 'bytes'");
  ADD("tokenizer", "decoder", tokenizer(replacements("decoder", "decoders", 4, 250, true)));
  ADD("tokenizer", "padding", padded_tokenizer(), "over the limit 'bytes'");
  ADD("tokenizer", "template", template_tokenizer(), "over the limit 'bytes'");
  ADD("tokenizer", "added", added_tokenizer());
  ADD("tokenizer", "expression",
      tokenizer(
          R"("normalizer":{"type":"Replace","pattern":{"Regex":"(?:(?:a|[^b])*)*c"},"content":"x"})"));
  // A length of 2^28 bytes before one literal; a copy that repeats a byte without end.
  ADD("snappy", "claims", std::string("\xff\xff\xff\x7f\0a", 6), "beyond what its bytes can hold");
  ADD("snappy", "long", std::string("\x80\x01\0a", 4) + repeated(std::string("\xfe\x01\0", 3), 4));
  ADD("hdf5", "nothing", std::string("\x89HDF\r\n\x1a\n", 8) + std::string(88, '\0'));
  ADD("hdf5", "far",
      std::string("\x89HDF\r\n\x1a\n", 8) + std::string("\x02\x08\x08\0", 4) +
          std::string(36, '\xff'),
      "is outside of the file");
  ADD("sentencepiece", "pieces", repeated(std::string("\x0a\x03\x0a\x01q", 5), 300000));
#undef ADD
}

}  // namespace

const std::vector<Crafted>& crafted_files() {
  static const std::vector<Crafted> all = [] {
    std::vector<Crafted> v;
    add_crafted_models(v);
    add_crafted_tensorflow(v);
    add_crafted_tflite(v);
    add_crafted_tfjs(v);
    add_files(v);
    add_texts(v);
    add_media(v);
    return v;
  }();
  return all;
}

}  // namespace tandem::readers
