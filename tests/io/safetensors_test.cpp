// SPDX-License-Identifier: Apache-2.0
// save() and load(): round trips, tied tensors, mapped data, and everything a file can do wrong.
#include "tandem/io/safetensors.h"

#include <cstring>
#include <set>

#include "tandem/io/json.h"
#include "tests/io/io_helper.h"

namespace tandem {
namespace {

bool same_bits(const Tensor& a, const Tensor& b) {
  if (a.dtype() != b.dtype() || !(a.shape() == b.shape())) return false;
  const size_t bytes = static_cast<size_t>(a.numel()) * size_of(a.dtype());
  std::vector<char> x(bytes), y(bytes);
  detail::copy_row_major(*a.impl(), x.data(), a.dtype());
  detail::copy_row_major(*b.impl(), y.data(), b.dtype());
  return x == y;
}

/// A file from a header text and data, as a hostile writer would make it.
std::string file_of(const std::string& header, const std::string& data) {
  const uint64_t n = header.size();
  std::string file(8, '\0');
  std::memcpy(file.data(), &n, 8);
  return file + header + data;
}

/// The error of load() on such a file, without the path.
std::string load_error(const std::string& content) {
  TempFolder folder;
  const std::string path = folder / "x";
  write_file(path, content);
  std::string text = error_of([&] { load(path); });
  for (size_t at; (at = text.find(path)) != text.npos;) text.replace(at, path.size(), "x");
  return text;
}
std::string header_error(const std::string& header, const std::string& data = "") {
  return load_error(file_of(header, data));
}

TEST(Safetensors, RoundTripOfEveryDType) {
  TempFolder folder;
  StateDict d;
  for (int i = 0; i < kDTypeCount; ++i) {
    const DType t = static_cast<DType>(i);
    d[std::string("odd.") + to_string(t)] =
        is_bool(t) ? make_tensor({1, 0, 1}, {3}, t) : counting({3}, t, 1);
    d[std::string("matrix.") + to_string(t)] =
        is_bool(t) ? make_tensor({1, 0, 0, 1}, {2, 2}, t) : counting({2, 3, 2}, t);
  }
  d["scalar"] = make_tensor({-2.5}, {}, float32);
  d["empty"] = make_tensor({}, {0, 3}, int64);
  d["name with \"quotes\" \n and \xC3\xA9"] = counting({5}, float64);
  save(d, folder / "w.safetensors", {{"format", "pt"}, {"epoch", "3"}});
  Metadata metadata;
  const StateDict back = load(folder / "w.safetensors", &metadata);
  ASSERT_EQ(back.size(), d.size());
  auto at = back.begin();
  for (const auto& [name, t] : d) {
    EXPECT_EQ(at->first, name);
    EXPECT_TRUE(same_bits(at->second, t)) << name;
    ++at;
  }
  EXPECT_EQ(metadata, (Metadata{{"format", "pt"}, {"epoch", "3"}}));
  EXPECT_EQ(folder.names(), std::vector<std::string>{"w.safetensors"});
}

TEST(Safetensors, SameInputGivesSameBytes) {
  TempFolder folder;
  StateDict d;
  d["a"] = counting({4}, float32);
  save(d, folder / "1");
  save(d, folder / "2");
  const std::string bytes = read_file(folder / "1");
  EXPECT_EQ(bytes, read_file(folder / "2"));
  EXPECT_EQ((bytes.size() - 16) % 64, 0u) << "the data begins at a multiple of 64";
}

TEST(Safetensors, LoadedTensorsAreMappedAndNeverWritten) {
  TempFolder folder;
  StateDict d;
  d["w"] = counting({16}, float32);
  save(d, folder / "w");
  StateDict back = load(folder / "w");
  EXPECT_FALSE(back["w"].impl()->storage->writable);
  EXPECT_FALSE(back["w"].impl()->donatable());
  Tensor w = back["w"];
  w.mutable_data<float>()[0] = 100;
  EXPECT_EQ(w.data<float>()[0], 100);
  EXPECT_EQ(back["w"].data<float>()[0], 0);
  // Replacing the file leaves the loaded values as they were.
  StateDict other;
  other["w"] = counting({16}, float32, 50);
  save(other, folder / "w");
  EXPECT_EQ(back["w"].data<float>()[3], 3);
  EXPECT_EQ(load(folder / "w")["w"].data<float>()[3], 53);
}

// So that readers which know nothing of tied weights find them.
TEST(Safetensors, TiedTensorsHaveBytesOfTheirOwn) {
  TempFolder folder;
  StateDict d;
  d["embedding"] = counting({100, 4}, float32);
  d["bias"] = counting({4}, float32);
  d["head"] = d.at("embedding");
  d["again"] = d.at("embedding");
  save(d, folder / "tied", {{"k", "v"}});
  const std::string bytes = read_file(folder / "tied");
  uint64_t length = 0;
  std::memcpy(&length, bytes.data(), sizeof length);
  const io::Json header = io::parse_json(std::string_view(bytes).substr(8, length), "tied");
  std::set<std::pair<int64_t, int64_t>> places;
  for (const auto& [name, t] : d) {
    ASSERT_TRUE(header.find(name)) << name;
    const io::Json::Array& ends = *header.find(name)->find("data_offsets")->as_array();
    places.emplace(*ends[0].as_int(), *ends[1].as_int());
  }
  int64_t at = 0;  // without gaps and overlaps, as the format wants it
  for (const auto& [begin, end] : places) {
    EXPECT_EQ(begin, at);
    at = end;
  }
  EXPECT_EQ(bytes.size(), 8 + length + static_cast<uint64_t>(at));
  EXPECT_EQ(header.find("__metadata__")->as_object()->size(), 1u);
  const StateDict back = load(folder / "tied");
  for (const auto& [name, t] : d)
    EXPECT_EQ(back.at(name).to_vector<float>(), t.to_vector<float>()) << name;
}

// Files of earlier versions have the others' names in the metadata.
TEST(Safetensors, AliasesAreRead) {
  TempFolder folder;
  StateDict d;
  d["a"] = counting({3}, float32);
  save(d, folder / "x", {{"k", "tandem!alias!b"}});
  std::string bytes = read_file(folder / "x");
  const std::string from = R"("k":"tandem!alias!b")", to = R"("tandem.alias.b":"a")";
  const size_t at = bytes.find(from);
  ASSERT_NE(at, bytes.npos);
  write_file(folder / "x", bytes.replace(at, from.size(), to));
  Metadata metadata;
  const StateDict back = load(folder / "x", &metadata);
  EXPECT_EQ(back.at("b").impl()->data, back.at("a").impl()->data);
  EXPECT_TRUE(metadata.empty());
}

TEST(Safetensors, StridedAndPartialViewsAreWrittenDense) {
  TempFolder folder;
  const Tensor base = counting({2, 3}, float32);
  Strides s;
  s[0] = 1;
  s[1] = 3;
  StateDict d;
  d["base"] = base;
  d["t"] = Tensor(Ref<detail::TensorImpl>::adopt(
      detail::new_view(*base.impl(), {3, 2}, s, base.impl()->data, float32)));
  save(d, folder / "w");
  const StateDict back = load(folder / "w");
  EXPECT_EQ(back.at("t").to_vector<float>(), (std::vector<float>{0, 3, 1, 4, 2, 5}));
  EXPECT_EQ(back.at("base").to_vector<float>(), (std::vector<float>{0, 1, 2, 3, 4, 5}));
}

TEST(Safetensors, EmptyDictionary) {
  TempFolder folder;
  save({}, folder / "w");
  EXPECT_EQ(load(folder / "w").size(), 0u);
}

TEST(Safetensors, UnalignedDataIsCopied) {
  TempFolder folder;
  std::string data(9, '\1');
  const float f = 2.5f;
  std::memcpy(data.data() + 1, &f, 4);
  std::memcpy(data.data() + 5, &f, 4);
  write_file(folder / "w", file_of(R"({"b":{"dtype":"U8","shape":[1],"data_offsets":[0,1]},)"
                                   R"("f":{"dtype":"F32","shape":[2],"data_offsets":[1,9]}})",
                                   data));
  const StateDict d = load(folder / "w");
  EXPECT_EQ(d.at("f").to_vector<float>(), (std::vector<float>{2.5f, 2.5f}));
  EXPECT_EQ(reinterpret_cast<uintptr_t>(d.at("f").data<float>()) % 4, 0u);
}

TEST(Safetensors, EveryCutAndFlip) {
  TempFolder folder;
  StateDict d;
  d["weight"] = counting({2, 3}, float32);
  d["mask"] = make_tensor({1, 0, 1}, {3}, boolean);
  d["tied"] = d.at("weight");
  d["none"] = make_tensor({}, {0}, int32);
  save(d, folder / "good", {{"k", "v"}});
  expect_robust(read_file(folder / "good"), folder / "bad", /*cuts_fail=*/true,
                [](const std::string& path) {
                  for (const auto& [name, t] : load(path)) t.to_vector<double>();
                });
}

TEST(SafetensorsMustFail, TheFileItself) {
  EXPECT_EQ(load_error(""), "Format: 'x': this is not a safetensors file: 0 bytes are too few.");
  EXPECT_EQ(load_error("1234567"),
            "Format: 'x': this is not a safetensors file: 7 bytes are too few.");
  EXPECT_EQ(load_error(std::string("PK\x03\x04", 4) + std::string(20, 'z')),
            "Format: 'x': this is a zip file (PyTorch's own format?), not safetensors.");
  EXPECT_EQ(load_error(std::string(8, '\xFF') + "{}"),
            "Format: 'x': this is not a safetensors file: its first 8 bytes give a header of "
            "18446744073709551615 bytes, the limit is 100000000.");
  EXPECT_EQ(load_error(std::string("\x10\0\0\0\0\0\0\0", 8) + "{}"),
            "Format: 'x': the file is truncated: its header has 16 bytes, 2 are there.");
  EXPECT_EQ(header_error("[]"),
            "Format: 'x': this is not a safetensors file: the header is not a JSON object.");
  EXPECT_EQ(header_error(""),
            "Format: 'x': this is not a safetensors file: the header is not a JSON object.");
  EXPECT_TRUE(header_error("{\"a\":").starts_with("Format: 'x': header: invalid JSON at byte 6:"));
  EXPECT_EQ(header_error("{}", "abc"),
            "Format: 'x': bytes 0 to 3 of the data belong to no tensor.");
}

TEST(SafetensorsMustFail, Io) {
  TempFolder folder;
  EXPECT_EQ(error_of([] { load(nullptr); }), "Io: no path was given (it is empty or null).");
  EXPECT_EQ(error_of([&] { load(folder / "none"); }),
            "Io: cannot open '" + (folder / "none") +
                "': No such file or directory. Its folder has no name like it: check the path.");
  EXPECT_EQ(error_of([&] { load(folder.path()); }),
            "Io: cannot open '" + folder.path().string() + "': Is a directory.");
}

TEST(SafetensorsMustFail, Entries) {
  const std::string d4(4, '\0'), d8(8, '\0');
  EXPECT_EQ(header_error(R"({"a":3})"),
            "Format: 'x': the entry \"a\" is integer, expected an object.");
  EXPECT_EQ(header_error(R"({"a":{}})"), "Format: 'x': tensor \"a\" has no dtype.");
  EXPECT_EQ(header_error(R"({"a":{"dtype":"F33","shape":[],"data_offsets":[0,4]}})", d4),
            "Format: 'x': tensor \"a\" has the unknown dtype \"F33\".");
  for (const char* name : {"U16", "U32", "U64", "F8_E4M3", "F8_E5M2"})
    EXPECT_EQ(header_error(std::string(R"({"a":{"dtype":")") + name +
                               R"(","shape":[],"data_offsets":[0,4]}})",
                           d4),
              std::string("Format: 'x': tensor \"a\" is ") + name +
                  ", which is not supported in this version.");
  EXPECT_EQ(header_error(R"({"a":{"dtype":"F32","data_offsets":[0,4]}})", d4),
            "Format: 'x': tensor \"a\" has no shape.");
  EXPECT_EQ(header_error(R"({"a":{"dtype":"F32","shape":[-1],"data_offsets":[0,4]}})", d4),
            "Format: 'x': tensor \"a\" has the size -1.");
  EXPECT_EQ(header_error(R"({"a":{"dtype":"F32","shape":[1.0],"data_offsets":[0,4]}})", d4),
            "Format: 'x': tensor \"a\" has the size 1.");
  EXPECT_EQ(
      header_error(R"({"a":{"dtype":"F32","shape":[1,1,1,1,1,1,1,1,1],"data_offsets":[0,4]}})", d4),
      "Format: 'x': tensor \"a\" has 9 dimensions, at most 8 are possible.");
  EXPECT_EQ(header_error(R"({"a":{"dtype":"F32","shape":[1]}})", d4),
            "Format: 'x': tensor \"a\" has no data_offsets of two integers.");
  EXPECT_EQ(header_error(R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[0]}})", d4),
            "Format: 'x': tensor \"a\" has no data_offsets of two integers.");
  EXPECT_EQ(header_error(R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[0,8]}})", d4),
            "Format: 'x': tensor \"a\" has the data_offsets [0, 8], the file has 4 bytes of data.");
  EXPECT_EQ(header_error(R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[4,0]}})", d4),
            "Format: 'x': tensor \"a\" has the data_offsets [4, 0], the file has 4 bytes of data.");
  EXPECT_EQ(header_error(R"({"a":{"dtype":"F32","shape":[3],"data_offsets":[0,4]}})", d4),
            "Format: 'x': tensor \"a\" of shape [3] and dtype float32 does not fit its 4 bytes of "
            "data.");
  EXPECT_EQ(
      header_error(R"({"a":{"dtype":"F32","shape":[4294967296,4294967296],"data_offsets":[0,0]}})"),
      "Format: 'x': tensor \"a\" of shape [4294967296, 4294967296] and dtype float32 does not fit "
      "its 0 bytes of data.");
  EXPECT_EQ(header_error(R"({"a":{"dtype":"F32","shape":[99999999999999999999],)"
                         R"("data_offsets":[0,4]}})",
                         d4),
            "Format: 'x': tensor \"a\" has the size 1e+20.");
  EXPECT_EQ(header_error(R"({"a":{"dtype":"BOOL","shape":[4],"data_offsets":[0,4]}})",
                         std::string("\0\1\2\0", 4)),
            "Format: 'x': tensor \"a\" is bool, but element 2 is the byte 2.");
}

TEST(SafetensorsMustFail, Layout) {
  const std::string d8(8, '\0');
  const std::string a = R"("a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]})";
  EXPECT_EQ(header_error("{" + a + R"(,"b":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}})",
                         d8.substr(4)),
            "Format: 'x': the data of tensor \"b\" overlaps another's, at byte 0.");
  EXPECT_EQ(header_error("{" + a + R"(,"b":{"dtype":"F16","shape":[1],"data_offsets":[6,8]}})", d8),
            "Format: 'x': bytes 4 to 6 of the data belong to no tensor.");
  EXPECT_EQ(header_error("{" + a + "}", d8),
            "Format: 'x': bytes 4 to 8 of the data belong to no tensor.");
  EXPECT_EQ(header_error("{" + a + "," + a + "}", d8),
            "Format: 'x': header: this JSON is rejected: the key \"a\" appears twice.");
  EXPECT_EQ(header_error(R"({"a":{"dtype":"F32","shape":[[[[]]]],"data_offsets":[0,4]}})"),
            "Format: 'x': header: this JSON is rejected: it is nested deeper than 3 levels.");
  EXPECT_EQ(header_error(std::string(1000000, '[')),
            "Format: 'x': this is not a safetensors file: the header is not a JSON object.");
  EXPECT_EQ(header_error("{\"a\":" + std::string(1000000, '[')),
            "Format: 'x': header: this JSON is rejected: it is nested deeper than 3 levels.");
}

TEST(SafetensorsMustFail, Metadata) {
  EXPECT_EQ(header_error(R"({"__metadata__":3})"),
            "Format: 'x': __metadata__ is integer, expected an object.");
  EXPECT_EQ(header_error(R"({"__metadata__":{"k":3}})"),
            "Format: 'x': __metadata__ \"k\" is integer, expected a string.");
  EXPECT_EQ(header_error(R"({"__metadata__":{"tandem.alias.b":"a"}})"),
            "Format: 'x': \"b\" is an alias of \"a\", which is not there.");
  EXPECT_EQ(header_error(R"({"__metadata__":{"tandem.alias.a":"a"},)"
                         R"("a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]}})",
                         "z"),
            "Format: 'x': \"a\" is both a tensor and an alias.");
}

TEST(SafetensorsMustFail, Saving) {
  TempFolder folder;
  const std::string path = folder / "w";
  write_file(path, "old");
  auto error = [&](const StateDict& d, const Metadata& m = {}) {
    return error_of([&] { save(d, path, m); });
  };
  StateDict undefined;
  undefined["a"];
  EXPECT_EQ(error(undefined), "Value: save: the tensor 'a' was never given a value.");
  StateDict traced;
  traced["a"] = Tensor(Ref<detail::TensorImpl>::adopt(detail::new_symbolic({2}, float32, cpu)));
  EXPECT_EQ(error(traced), "Unsupported: save: 'a' is a value inside a trace. Save outside it.");
  StateDict bad_name;
  bad_name["__metadata__"] = counting({1}, float32);
  EXPECT_EQ(error(bad_name), "Value: save: a tensor must not be named '__metadata__'.");
  StateDict no_utf8;
  no_utf8["a\xFF"] = counting({1}, float32);
  EXPECT_EQ(error(no_utf8), "Value: save: the name \"a\xEF\xBF\xBD\" is not UTF-8.");
  StateDict good;
  good["a"] = counting({1}, float32);
  EXPECT_EQ(error(good, {{"tandem.alias.x", "a"}}),
            "Value: save: metadata keys that begin with 'tandem.alias.' are reserved, got "
            "'tandem.alias.x'.");
  EXPECT_EQ(error(good, {{"k", "1"}, {"k", "2"}}),
            "Value: save: the metadata key 'k' appears twice.");
  EXPECT_EQ(error_of([&] { save(good, nullptr); }), "Io: no path was given (it is empty or null).");
  EXPECT_EQ(error_of([&] { save(good, folder / "no" + "/w"); }),
            "Io: cannot write '" + (folder / "no") +
                "/w': No such file or directory. Nothing was "
                "changed.");
  EXPECT_EQ(read_file(path), "old");
  EXPECT_EQ(folder.names(), std::vector<std::string>{"w"});
}

}  // namespace
}  // namespace tandem
