// SPDX-License-Identifier: Apache-2.0
// HDF5 files that h5py wrote in the old and in the new format, with every storage that the reader
// knows, and damaged ones. tests/io/hdf5/make_golden.py wrote them.
#include "tandem/io/hdf5/hdf5.h"

#include <gtest/gtest.h>

#include "tandem/base/budget.h"
#include "tandem/io/tensorflow/keras_file.h"
#include "tests/io/io_helper.h"

namespace tandem::io {
namespace {

std::string golden_hdf5(const std::string& name) {
  const char* root = std::getenv("TANDEM_SOURCE_DIR");
  return std::string(root ? root : ".") + "/tests/io/hdf5/" + name;
}

class Hdf5 : public testing::TestWithParam<const char*> {
 protected:
  Hdf5File file{golden_hdf5(GetParam())};
  Tensor tensor(const std::string& path) {
    Hdf5File::Object o = 0;
    EXPECT_TRUE(file.find(file.root(), path, o)) << path;
    return file.tensor(o);
  }
  template <class T>
  std::vector<T> values(const std::string& path) {
    return to_vector<T>(tensor(path));
  }
  template <class T>
  static std::vector<T> to_vector(const Tensor& t) {
    std::vector<T> out(static_cast<size_t>(t.numel()));
    const T* data = static_cast<const T*>(t.impl()->data);
    out.assign(data, data + t.numel());
    return out;
  }
};
INSTANTIATE_TEST_SUITE_P(Files, Hdf5, testing::Values("old.h5", "new.h5"));

TEST_P(Hdf5, EveryStorageGivesTheSameNumbers) {
  std::vector<float> want(60);
  for (size_t i = 0; i < want.size(); ++i) want[i] = static_cast<float>(i);
  const bool fresh = std::string(GetParam()) == "new.h5";
  for (const char* name : {"plain", "chunked", "packed", "one_chunk"}) {
    // The new format keeps several chunks in an index that this reader leaves out.
    if (fresh && (std::string(name) == "chunked" || std::string(name) == "packed")) {
      EXPECT_NE(error_of([&] { tensor(name); }).find("h5py's default settings"), std::string::npos);
      continue;
    }
    EXPECT_EQ(tensor(name).shape(), Shape(5, 12)) << name;
    EXPECT_EQ(values<float>(name), want) << name;
  }
  EXPECT_EQ(values<double>("big_endian"), std::vector<double>(want.begin(), want.end()));
  EXPECT_EQ(tensor("half").dtype(), DType::f16);
}

TEST_P(Hdf5, TypesAndShapes) {
  EXPECT_EQ(tensor("flags").dtype(), DType::b8);
  EXPECT_EQ(values<bool>("flags")[2], true);
  EXPECT_EQ(values<int32_t>("u2"), (std::vector<int32_t>{1, 65535}));
  EXPECT_EQ(values<int64_t>("u4"), (std::vector<int64_t>{1, 4294967295}));
  EXPECT_EQ(values<int64_t>("i8"), (std::vector<int64_t>{-1, int64_t{1} << 40}));
  EXPECT_EQ(tensor("scalar").shape(), Shape());
  EXPECT_EQ(values<float>("scalar"), std::vector<float>{2.5f});
  EXPECT_EQ(tensor("nothing").shape(), Shape(0, 3));
  EXPECT_EQ(values<float>("unwritten"), std::vector<float>(6, 7));
  EXPECT_EQ(values<double>("deep/er/est"), std::vector<double>{3});
  Hdf5File::Object text = 0;
  ASSERT_TRUE(file.find(file.root(), "text", text));
  EXPECT_TRUE(file.is_text(text));
}

TEST_P(Hdf5, ManyLinksAndAttributes) {
  Hdf5File::Object many = 0;
  ASSERT_TRUE(file.find(file.root(), "many", many));
  EXPECT_EQ(file.links(many).size(), 16u);
  EXPECT_EQ(values<int32_t>("many/item_13"), std::vector<int32_t>{13});
  EXPECT_EQ(file.attributes(many).size(), 10u);
  EXPECT_EQ(file.texts(many, "attribute_07"), std::vector<std::string>{"value 7"});
  const Hdf5File::Object root = file.root();
  EXPECT_EQ(file.texts(root, "fixed"), std::vector<std::string>{"fixed text"});
  EXPECT_EQ(file.texts(root, "variable"), std::vector<std::string>{"variable text"});
  EXPECT_EQ(file.texts(root, "list"), (std::vector<std::string>{"a", "bcd", ""}));
  EXPECT_EQ(file.texts(root, "list_fixed"), (std::vector<std::string>{"x", "yz"}));
  EXPECT_TRUE(file.texts(root, "absent").empty());
  EXPECT_NE(error_of([&] { file.texts(root, "number"); }).find("no strings"), std::string::npos);
}

// Every truncation is an error or gives the whole; reading never leaves the file.
TEST_P(Hdf5, TruncatedFiles) {
  const std::string all = read_file(golden_hdf5(GetParam()));
  size_t refused = 0, tried = 0;
  for (size_t n = 0; n < all.size(); n += 61, ++tried) {
    try {
      const Budget budget("cut.h5", n);
      KerasFile k;
      k.weights = std::make_unique<Hdf5File>(all.substr(0, n), "cut.h5");
      k.group = k.weights->root();
      keras_tensors(k);
    } catch (const Error& e) {
      EXPECT_TRUE(e.kind() == ErrorKind::Format || e.kind() == ErrorKind::Unsupported) << e.what();
      ++refused;
    }
  }
  EXPECT_GT(refused, tried / 2);
}

}  // namespace
}  // namespace tandem::io
