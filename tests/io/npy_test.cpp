// SPDX-License-Identifier: Apache-2.0
// .npy and .npz against files written by NumPy (tests/golden/make_golden_numpy.py), round trips,
// every truncation and flip, false sizes, and bombs.
#include "tandem/io/npy.h"

#include <cmath>

#include "tandem/base/half.h"
#include "tests/io/io_helper.h"

namespace tandem {
namespace {

using io::load_npy;
using io::load_npz;
using io::save_npy;
using io::save_npz;

std::string golden(const std::string& name) {
  const char* root = std::getenv("TANDEM_SOURCE_DIR");
  return std::string(root ? root : ".") + "/tests/golden/numpy/" + name;
}

/// The value that make_golden_numpy.py puts at row-major position i.
double golden_value(DType t, int64_t i) {
  if (t == DType::b8) return i % 3 == 0;
  const double v = static_cast<double>(7 * i % 11 - 5) / 2 + (t == DType::u8 ? 3 : 0);
  return is_floating(t) ? v : std::trunc(v);
}

void expect_golden(const Tensor& x, DType dtype, const Shape& shape, const std::string& name) {
  ASSERT_EQ(x.dtype(), dtype) << name;
  ASSERT_EQ(x.shape(), shape) << name;
  std::vector<double> v(static_cast<size_t>(x.numel()));
  detail::copy_row_major(*x.impl(), v.data(), DType::f64);
  for (size_t i = 0; i < v.size(); ++i)
    EXPECT_EQ(v[i], golden_value(dtype, static_cast<int64_t>(i))) << name << " at " << i;
}

struct Named {
  const char* name;
  DType dtype;
  Shape shape;
};
const std::vector<Named>& files() {
  static const std::vector<Named> all = {{"c_f8", float64, {2, 3}},
                                         {"c_f4", float32, {2, 3}},
                                         {"c_f2", float16, {2, 3}},
                                         {"c_i8", int64, {2, 3}},
                                         {"c_i4", int32, {2, 3}},
                                         {"c_i2", int16, {2, 3}},
                                         {"c_i1", int8, {2, 3}},
                                         {"c_u1", uint8, {2, 3}},
                                         {"c_b1", boolean, {2, 3}},
                                         {"big_f4", float32, {3, 2}},
                                         {"big_i8", int64, {3, 2}},
                                         {"big_i2", int16, {3, 2}},
                                         {"big_f2", float16, {3, 2}},
                                         {"fortran", float32, {2, 3, 4}},
                                         {"fortran_b1", boolean, {3, 4}},
                                         {"fortran_big", float64, {3, 4}},
                                         {"scalar", float32, Shape()},
                                         {"vector", int32, {5}},
                                         {"empty", float32, {0}},
                                         {"empty_3d", int16, {2, 0, 3}},
                                         {"version_2", float32, {2, 2}},
                                         {"version_3", float32, {2, 2}},
                                         {"eight_dims", uint8, {1, 2, 1, 2, 1, 2, 1, 2}}};
  return all;
}

TEST(Npy, ReadsWhatNumPyWrote) {
  for (const Named& f : files())
    expect_golden(load_npy(golden(f.name + std::string(".npy"))), f.dtype, f.shape, f.name);
}

TEST(Npy, WritesTheBytesThatNumPyWrites) {
  TempFolder folder;
  for (const Named& f : files()) {
    const std::string name = f.name;
    if (name.starts_with("big") || name.starts_with("fortran") || name.starts_with("version"))
      continue;
    const std::string path = golden(name + ".npy");
    save_npy(load_npy(path), folder / "x.npy");
    EXPECT_EQ(read_file(folder / "x.npy"), read_file(path)) << name;
  }
}

TEST(Npy, FortranOrderIsAViewOfTheFile) {
  const Tensor x = load_npy(golden("fortran.npy"));
  EXPECT_EQ(x.stride(0), 1);
  EXPECT_EQ(x.stride(1), 2);
  EXPECT_EQ(x.stride(2), 6);
  EXPECT_FALSE(x.is_contiguous());
  TempFolder folder;
  save_npy(x, folder / "x.npy");
  const Tensor y = load_npy(folder / "x.npy");
  EXPECT_TRUE(y.is_contiguous());
  EXPECT_EQ(y.to_vector<float>(), x.to_vector<float>());
}

TEST(Npy, TheFileIsNeverWrittenThroughATensor) {
  TempFolder folder;
  save_npy(counting({64}, float32), folder / "x.npy");
  const std::string before = read_file(folder / "x.npy");
  Tensor x = load_npy(folder / "x.npy");
  x.mutable_data<float>()[0] = 7;
  EXPECT_EQ(x.data<float>()[0], 7);
  EXPECT_EQ(read_file(folder / "x.npy"), before);
}

TEST(Npy, RefusesWhatItCannotHold) {
  const std::pair<const char*, const char*> cases[] = {
      {"refused_u4", "\"<u4\""},     {"refused_c8", "\"<c8\""},
      {"refused_text", "<U2"},       {"refused_object", "Python objects"},
      {"refused_record", "records"}, {"refused_nine_dims", "more than 8 dimensions"},
      {"refused_date", "M8"}};
  for (const auto& [name, text] : cases) {
    const std::string path = golden(name + std::string(".npy"));
    const std::string error = error_of([&] { load_npy(path); });
    EXPECT_TRUE(error.starts_with("Format: ")) << error;
    EXPECT_NE(error.find(text), std::string::npos) << error;
    EXPECT_NE(error.find(name), std::string::npos) << error;
  }
}

std::string npy(const std::string& dict, const std::string& data = "", int major = 1) {
  std::string s = "\x93NUMPY";
  s += static_cast<char>(major);
  s += '\0';
  const size_t n = dict.size();
  for (int i = 0; i < (major == 1 ? 2 : 4); ++i) s += static_cast<char>(n >> (8 * i));
  return s + dict + data;
}

TEST(Npy, HostileHeaders) {
  TempFolder folder;
  const std::string good = "{'descr': '<f4', 'fortran_order': False, 'shape': (2,), }";
  auto outcome = [&](const std::string& bytes) {
    write_file(folder / "x.npy", bytes);
    return error_of([&] { load_npy(folder / "x.npy"); });
  };
  EXPECT_EQ(outcome(npy(good, std::string(8, 'a'))), "no error");
  const std::pair<std::string, const char*> cases[] = {
      {"", "does not begin with"},
      {"PK\x03\x04 and more of a zip", "load_npz"},
      {npy(good, std::string(7, 'a')), "truncated"},
      {npy(good, std::string(9, 'a')), "1 bytes after the data"},
      {npy(good, "", 4), "version 4.0"},
      {npy(good).substr(0, 30), "truncated"},
      {npy("{'descr': '<f4', 'fortran_order': False, 'shape': (4611686018427387904,), }"), "size"},
      {npy("{'descr': '<f4', 'fortran_order': False, 'shape': (99999999999999999999,), }"), "size"},
      {npy("{'descr': '<f4', 'fortran_order': True, 'shape': (1099511627776, 1099511627776), }"),
       "more than a file can hold"},
      {npy("{'descr': '<f4', 'fortran_order': False, 'shape': (1000000000,), }"), "truncated"},
      {npy("{'descr': '<f4', 'fortran_order': False, 'shape': (-1,), }"), "not a number"},
      {npy("{'descr': '<f4', 'fortran_order': False, 'shape': (2, 'a'), }"), "not a number"},
      {npy("{'descr': '<f4', 'fortran_order': False, 'shape': 2, }"), "'('"},
      {npy("{'descr': '<f4', 'fortran_order': 0, 'shape': (2,), }"), "True or False"},
      {npy("{'descr': '<f4', 'shape': (2,), }"), "has no fortran_order"},
      {npy("{'descr': '<f4', 'descr': '<f8', 'fortran_order': False, 'shape': (2,)}"), "twice"},
      {npy("{'descr': '<f4', 'fortran_order': False, 'shape': (2,), 'more': 1}"), "\"more\""},
      {npy(good + "x"), "continues"},
      {npy("{'descr': '<f4"), "is never closed"},
      {npy("{"), "a key"},
      {npy("hello"), "'{'"},
      {npy(std::string(5000, '(')), "'{'"},
      {npy("{'descr': __import__('os').system('ls')}"), "in quotes"},
      {npy("{'descr': '|b1', 'fortran_order': False, 'shape': (2,)}", "\x01\x02"), "byte 2"},
      {std::string("\x93NUMPY\2\0\xff\xff\xff\xff", 12) + "{}", "4294967295"}};
  for (const auto& [bytes, text] : cases) {
    const std::string got = outcome(bytes);
    EXPECT_TRUE(got.starts_with("Format: ")) << got;
    EXPECT_NE(got.find(text), std::string::npos) << "wanted " << text << ", got " << got;
  }
}

TEST(Npy, CutsAndFlips) {
  TempFolder folder;
  for (const char* name : {"version_2.npy", "c_b1.npy"})
    expect_robust(read_file(golden(name)), folder / "x.npy", true,
                  [](const std::string& path) { load_npy(path); });
}

TEST(Npy, SavingRefuses) {
  TempFolder folder;
  EXPECT_EQ(error_of([&] { save_npy(counting({2}, bfloat16), folder / "x.npy"); }),
            "DType: save_npy: NumPy has no bfloat16. Convert it with to(float32), or save() a "
            "safetensors file.");
  EXPECT_TRUE(error_of([&] { save_npy(Tensor(), folder / "x.npy"); }).starts_with("Value: "));
  EXPECT_TRUE(
      error_of([&] { save_npy(counting({2}, float32), folder / "no/x.npy"); }).starts_with("Io: "));
  EXPECT_TRUE(folder.names().empty());
}

void expect_same(const StateDict& a, const StateDict& b) {
  ASSERT_EQ(a.size(), b.size());
  auto at = b.begin();
  for (const auto& [name, x] : a) {
    EXPECT_EQ(name, at->first);
    EXPECT_EQ(x.dtype(), at->second.dtype()) << name;
    EXPECT_EQ(x.shape(), at->second.shape()) << name;
    EXPECT_EQ(x.to_vector<double>(), at->second.to_vector<double>()) << name;
    ++at;
  }
}

TEST(Npz, ReadsWhatNumPyWrote) {
  for (const char* name : {"stored.npz", "deflated.npz"}) {
    const StateDict d = load_npz(golden(name));
    ASSERT_EQ(d.size(), 6u) << name;
    expect_golden(d.at("w"), float32, {3, 4}, name);
    expect_golden(d.at("layer.bias"), float64, {3}, name);
    expect_golden(d.at("mask"), boolean, {2, 2}, name);
    expect_golden(d.at("order"), int32, {3, 4}, name);
    expect_golden(d.at("none"), float16, {0, 2}, name);
    expect_golden(d.at("zahlen_\u00e4"), int64, {4}, name);
    EXPECT_EQ(d.begin()->first, "w");
  }
}

TEST(Npz, RoundTrips) {
  TempFolder folder;
  StateDict d;
  for (const DType t : {float64, float32, float16, int64, int32, int16, int8, uint8})
    d[std::string("x.") + to_string(t)] = counting({3, 5}, t);
  d["mask"] = make_tensor({1, 0, 1}, {3}, boolean);
  d["big"] = counting({300, 1000}, float32);
  d["empty"] = counting({0}, float32);
  for (const bool compressed : {false, true}) {
    save_npz(d, folder / "a.npz", {.compressed = compressed});
    save_npz(d, folder / "b.npz", {.compressed = compressed});
    EXPECT_EQ(read_file(folder / "a.npz"), read_file(folder / "b.npz"));
    expect_same(load_npz(folder / "a.npz"), d);
  }
  EXPECT_EQ(folder.names(), (std::vector<std::string>{"a.npz", "b.npz"}));
  save_npz({}, folder / "none.npz");
  EXPECT_EQ(load_npz(folder / "none.npz").size(), 0u);
}

// Its length stands in the end record's last two bytes.
TEST(Npz, ReadsAFileWithAComment) {
  TempFolder folder;
  StateDict d;
  d["x"] = counting({3, 5}, float32);
  save_npz(d, folder / "a.npz");
  std::string bytes = read_file(folder / "a.npz");
  const std::string comment = "made by hand";
  bytes[bytes.size() - 2] = static_cast<char>(comment.size());
  write_file(folder / "b.npz", bytes + comment);
  expect_same(load_npz(folder / "b.npz"), d);
}

TEST(Npz, StoredMembersAreMapped) {
  TempFolder folder;
  StateDict d;
  d["a"] = counting({3}, uint8);
  d["b"] = counting({100}, float64);
  save_npz(d, folder / "a.npz");
  const StateDict e = load_npz(folder / "a.npz");
  for (const auto& [name, x] : e) {
    EXPECT_FALSE(x.impl()->storage->writable) << name;
    EXPECT_EQ(reinterpret_cast<uintptr_t>(x.impl()->data) % 64, 0u) << name;
  }
}

TEST(Npz, CutsAndFlips) {
  TempFolder folder;
  StateDict d;
  d["a"] = counting({5}, float32);
  for (const bool compressed : {false, true}) {
    save_npz(d, folder / "good.npz", {.compressed = compressed});
    expect_robust(read_file(folder / "good.npz"), folder / "x.npz", true,
                  [](const std::string& path) { load_npz(path); });
  }
}

/// A zip of one member whose directory entry is changed by `f`.
std::string changed(const std::string& zip, size_t offset, uint32_t value) {
  std::string s = zip;
  const size_t at = s.find("PK\x01\x02");
  for (size_t i = 0; i < 4; ++i) s[at + offset + i] = static_cast<char>(value >> (8 * i));
  return s;
}

TEST(Npz, HostileArchives) {
  TempFolder folder;
  StateDict d;
  d["a"] = counting({64}, float32);
  save_npz(d, folder / "a.npz", {.compressed = true});
  const std::string zip = read_file(folder / "a.npz");
  auto outcome = [&](const std::string& bytes) {
    write_file(folder / "x.npz", bytes);
    return error_of([&] { load_npz(folder / "x.npz"); });
  };
  const std::pair<std::string, const char*> cases[] = {
      {"", "too few"},
      {std::string(100, 'x'), "not a zip file"},
      {changed(zip, 16, 1), "checksum"},
      {changed(zip, 24, 4'000'000'000u), "cannot hold"},
      {changed(zip, 24, 200), "truncated"},
      {changed(zip, 24, 390), "after the data"},
      {changed(zip, 20, 1 << 20), "truncated"},
      {changed(zip, 42, 1 << 20), "not at byte"},
      {changed(zip, 8, 1), "encrypted"},
      {changed(zip, 8, 12u << 16), "method 12"}};
  for (const auto& [bytes, text] : cases) {
    const std::string got = outcome(bytes);
    EXPECT_TRUE(got.starts_with("Format: ")) << got;
    EXPECT_NE(got.find(text), std::string::npos) << "wanted " << text << ", got " << got;
  }
}

TEST(Npz, OneMemberListedManyTimesIsRefused) {
  TempFolder folder;
  StateDict d;
  d["a"] = counting({64}, float32);
  save_npz(d, folder / "a.npz");
  const std::string zip = read_file(folder / "a.npz");
  const size_t begin = zip.find("PK\x01\x02"), end = zip.find("PK\x05\x06");
  const std::string entry = zip.substr(begin, end - begin);
  std::string tail = zip.substr(end);
  tail[8] = tail[10] = 2;
  const auto bytes = static_cast<uint32_t>(2 * entry.size());
  for (size_t i = 0; i < 4; ++i) tail[12 + i] = static_cast<char>(bytes >> (8 * i));
  write_file(folder / "x.npz", zip.substr(0, begin) + entry + entry + tail);
  const std::string got = error_of([&] { load_npz(folder / "x.npz"); });
  EXPECT_NE(got.find("overlap"), std::string::npos) << got;
}

}  // namespace
}  // namespace tandem
