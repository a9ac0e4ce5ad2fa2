// SPDX-License-Identifier: Apache-2.0
// Truncated, hostile and wrong files, a full disk, too little memory: one clear error each, nothing
// half-written, no huge allocation.
#include <sys/resource.h>

#include <csignal>
#include <cstdlib>
#include <filesystem>

#include "tandem/base/files/file.h"
#include "tandem/data/sets/datasets.h"
#include "tandem/io/csv.h"
#include "tandem/io/gzip.h"
#include "tandem/io/idx.h"
#include "tandem/io/json.h"
#include "tandem/io/npy.h"
#include "tandem/tensor/allocator.h"
#include "tests/must_fail/must_fail_helper.h"
#include "tests/support/init.h"

namespace tandem::must_fail {
namespace {

namespace fs = std::filesystem;

struct Folder {
  fs::path path;
  Folder() {
    std::string text = (fs::temp_directory_path() / "must_fail_XXXXXX").string();
    path = mkdtemp(text.data());
  }
  ~Folder() { fs::remove_all(path); }
  std::string operator/(const char* name) const { return (path / name).string(); }
  size_t files() const {
    return static_cast<size_t>(
        std::distance(fs::directory_iterator(path), fs::directory_iterator()));
  }
};

// A safetensors file with this header and `data` bytes after it.
std::string with_header(const std::string& header, size_t data) {
  std::string s(8, '\0');
  uint64_t n = header.size();
  for (size_t i = 0; i < 8; ++i) s[i] = static_cast<char>(n >> (8 * i));
  return s + header + std::string(data, '\0');
}

// clang-format off
TEST(MustFail, Files) {
  Folder dir;
  StateDict state = StateDict::of({{"w", ones({4, 4})}, {"b", zeros({4})}});
  std::string good = dir / "good.safetensors";
  save(state, good);
  std::string bytes = read_file(good);
  auto file = [&](const std::string& content) {
    std::string path = dir / "bad";
    write_file(path, content);
    return path;
  };
  std::string idx = std::string("\0\0\x08\x01\0\0\0\x04", 8) + "abcd";
  std::string huge = std::string("\0\0\x08\x02\x7f\xff\xff\xff\x7f\xff\xff\xff", 12);
  check({
    FAILS_ANYWHERE(load_missing, Io, "no_such_file", load(dir / "no_such_file")),
    FAILS_ANYWHERE(load_folder, Io, "", load(dir.path.string())),
    FAILS_ANYWHERE(load_empty, Format, "bad", load(file(""))),
    FAILS_ANYWHERE(load_cut_header, Format, "bad", load(file(bytes.substr(0, 20)))),
    FAILS_ANYWHERE(load_cut_data, Format, "bad", load(file(bytes.substr(0, bytes.size() - 1)))),
    FAILS_ANYWHERE(load_extra_data, Format, "bad", load(file(bytes + "x"))),
    FAILS_ANYWHERE(load_text, Format, "bad", load(file("hello, this is not a weights file at all"))),
    FAILS_ANYWHERE(load_huge_header, Format, "bad", load(file(std::string(8, '\x7f') + "{}"))),
    FAILS_ANYWHERE(load_overlap, Format, "bad", load(file(with_header(R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]},"b":{"dtype":"F32","shape":[2],"data_offsets":[4,12]}})", 12)))),
    FAILS_ANYWHERE(load_offsets, Format, "bad", load(file(with_header(R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0,800]}})", 8)))),
    FAILS_ANYWHERE(load_shape, Format, "bad", load(file(with_header(R"({"a":{"dtype":"F32","shape":[4611686018427387904,4],"data_offsets":[0,8]}})", 8)))),
    FAILS_ANYWHERE(load_negative, Format, "bad", load(file(with_header(R"({"a":{"dtype":"F32","shape":[-2],"data_offsets":[0,8]}})", 8)))),
    FAILS_ANYWHERE(load_dtype, Format, "bad|Q7", load(file(with_header(R"({"a":{"dtype":"Q7","shape":[2],"data_offsets":[0,8]}})", 8)))),
    FAILS_ANYWHERE(load_deep, Format, "bad", load(file(with_header(std::string(100000, '['), 0)))),
    FAILS_ANYWHERE(save_nowhere, Io, "no/such/folder", save(state, dir / "no/such/folder/x")),
    FAILS_ANYWHERE(save_undefined, Value, "hole", save(StateDict::of({{"hole", Tensor()}}), dir / "x")),
    FAILS_ANYWHERE(idx_cut, Format, "bad", io::load_idx(file(idx.substr(0, 10)))),
    FAILS_ANYWHERE(idx_long, Format, "bad", io::load_idx(file(idx + "e"))),
    FAILS_ANYWHERE(idx_magic, Format, "bad", io::load_idx(file("not an idx file"))),
    FAILS_ANYWHERE(idx_huge, Format, "bad", io::load_idx(file(huge))),
    FAILS_ANYWHERE(gzip_cut, Format, "bad", io::load_idx(file(io::gzip(idx).substr(0, 18)))),
    FAILS_ANYWHERE(gzip_damaged, Format, "", io::gunzip(std::string("\x1f\x8b\x08\0\0\0\0\0\0\x03", 10) + "garbage", 1000)),
    FAILS_ANYWHERE(gzip_bomb, Format, "", io::gunzip(io::gzip(std::string(1 << 20, 'a')), 1000)),
    FAILS_ANYWHERE(csv_number, Format, "bad|line 3", data::CSVDataset(file("a,b\n1,2\nx,3\n"))),
    FAILS_ANYWHERE(csv_ragged, Format, "bad|line 3", data::CSVDataset(file("a,b\n1,2\n1,2,3\n"))),
    FAILS_ANYWHERE(csv_quote, Format, "bad", data::CSVDataset(file("a,b\n\"1,2\n"))),
    FAILS_ANYWHERE(csv_target, Index, "bad|7", data::CSVDataset(file("a,b\n1,2\n"), {.target = 7})),
    FAILS_ANYWHERE(json_cut, Format, "t.json", io::parse_json("{\"a\": [1, 2", "t.json")),
    FAILS_ANYWHERE(json_twice, Format, "a", io::parse_json("{\"a\": 1, \"a\": 2}", "t.json")),
    FAILS_ANYWHERE(json_deep, Format, "t.json", io::parse_json(std::string(1000, '['), "t.json")),
  });
}

// An .npy file with this header.
std::string npy(const std::string& dict) {
  std::string s("\x93NUMPY\1\0", 8);
  return s + static_cast<char>(dict.size()) + '\0' + dict + std::string(8, 'a');
}

TEST(MustFail, Arrays) {
  Folder dir;
  save(StateDict::of({{"w", ones({4})}}), dir / "w.safetensors");
  io::save_npz(StateDict::of({{"w", ones({4, 4})}}), dir / "good.npz");
  std::string zip = read_file(dir / "good.npz");
  auto file = [&](const std::string& content) {
    std::string path = dir / "bad";
    write_file(path, content);
    return path;
  };
  float numbers[8] = {};
  Tensor g = ones({2}).requires_grad_();
  check({
    FAILS_ANYWHERE(npy_missing, Io, "no_such_file", io::load_npy(dir / "no_such_file")),
    FAILS_ANYWHERE(npy_other, Format, "bad|NUMPY", io::load_npy(file("some text"))),
    FAILS_ANYWHERE(npy_of_npz, Format, "load_npz", io::load_npy(dir / "good.npz")),
    FAILS_ANYWHERE(npy_cut, Format, "truncated|[3]", io::load_npy(file(npy("{'descr': '<f4', 'fortran_order': False, 'shape': (3,)}")))),
    FAILS_ANYWHERE(npy_long, Format, "4 bytes after", io::load_npy(file(npy("{'descr': '<f4', 'fortran_order': False, 'shape': (1,)}")))),
    FAILS_ANYWHERE(npy_huge, Format, "more than a file", io::load_npy(file(npy("{'descr': '<f4', 'fortran_order': False, 'shape': (4294967296, 4294967296)}")))),
    FAILS_ANYWHERE(npy_objects, Format, "Python objects", io::load_npy(file(npy("{'descr': '|O', 'fortran_order': False, 'shape': (1,)}")))),
    FAILS_ANYWHERE(npy_type, Format, "<u4", io::load_npy(file(npy("{'descr': '<u4', 'fortran_order': False, 'shape': (2,)}")))),
    FAILS_ANYWHERE(npy_code, Format, "in quotes", io::load_npy(file(npy("{'descr': exit()}")))),
    FAILS_ANYWHERE(npy_bfloat16, DType, "bfloat16", io::save_npy(ones({2}, bfloat16), dir / "x.npy")),
    FAILS_ANYWHERE(npz_of_safetensors, Format, "not a zip file", io::load_npz(dir / "w.safetensors")),
    FAILS_ANYWHERE(npz_cut, Format, "bad", io::load_npz(file(zip.substr(0, zip.size() - 30)))),
    FAILS_ANYWHERE(npz_damaged, Format, "w.npy|checksum", zip[zip.find("PK\1\2") - 1] ^= 1, io::load_npz(file(zip))),
    FAILS_ANYWHERE(npz_bfloat16, DType, "'w'|bfloat16", io::save_npz(StateDict::of({{"w", ones({2}, bfloat16)}}), dir / "x.npz")),
    FAILS_ANYWHERE(dlpack_null, Value, "null", io::from_dlpack(static_cast<io::DLManagedTensor*>(nullptr))),
    FAILS_ANYWHERE(dlpack_gradient, Value, "to_dlpack|detach", io::to_dlpack(g)),
    FAILS_ANYWHERE(blob_strides, Shape, "from_blob|1 strides", from_blob(numbers, {2, 2}, {2})),
    FAILS_ANYWHERE(blob_negative, Shape, "from_blob|flip", from_blob(numbers, {2, 2}, {2, -1})),
    FAILS_ANYWHERE(blob_unaligned, Value, "multiple of 4", from_blob(reinterpret_cast<char*>(numbers) + 1, {2}, {1})),
  });
}

TEST(MustFail, FullDiskLeavesTheOldFile) {
  Folder dir;
  std::string path = dir / "weights.safetensors";
  save(StateDict::of({{"w", full({16}, 7.0f)}}), path);
  std::string before = read_file(path);
  size_t files = dir.files();
  // A limit on the size of files simulates a full disk.
  std::signal(SIGXFSZ, SIG_IGN);
  rlimit old{};
  ASSERT_EQ(getrlimit(RLIMIT_FSIZE, &old), 0);
  rlimit small = old;
  small.rlim_cur = 4096;
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &small), 0);
  Tensor big = ones({1 << 16});
  check({FAILS_ANYWHERE(full_disk, Io, "weights.safetensors", save(StateDict::of({{"w", big}}), path))});
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &old), 0);
  EXPECT_EQ(read_file(path), before);
  EXPECT_EQ(dir.files(), files) << "something was left beside the file";
  EXPECT_EQ(load(path).at("w").to_vector<float>(), std::vector<float>(16, 7));
}

TEST(MustFail, MemoryCap) {
  Tensor small = ones({8});
  set_allocator_cap(allocator_stats().reserved + (int64_t{64} << 20));
  check({
    FAILS(cap_zeros, Memory, "zeros|cap", zeros({int64_t{1} << 30}) + 0.0),
    FAILS(cap_op, Memory, "cap", matmul(ones({1 << 14, 1}), ones({1, 1 << 14}))),
  });
  EXPECT_EQ((small + 1.0).to_vector<float>(), std::vector<float>(8, 2));
  set_allocator_cap(0);
}
// clang-format on

}  // namespace
}  // namespace tandem::must_fail
