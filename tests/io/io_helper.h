// SPDX-License-Identifier: Apache-2.0
// For the tests of files: a temporary folder, tensors from lists, and the check that every
// truncation and every flipped byte of a file is either read as something valid or rejected.
#pragma once

#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <stdexcept>
#include <string>
#include <vector>

#include "tandem/base/error.h"
#include "tandem/base/files/file.h"
#include "tandem/tensor/strided.h"
#include "tandem/tensor/tensor.h"
#include "tests/support/errors.h"

namespace tandem {

/// A fresh folder in the system's directory for temporary files.
class TempFolder {
 public:
  TempFolder() {
    std::string text = (std::filesystem::temp_directory_path() / "tandem-test-XXXXXX").string();
    if (!mkdtemp(text.data())) throw std::runtime_error("no temporary folder");
    path_ = text;
  }
  ~TempFolder() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  std::string operator/(const std::string& name) const { return (path_ / name).string(); }
  std::vector<std::string> names() const {
    std::vector<std::string> out;
    for (const auto& e : std::filesystem::directory_iterator(path_))
      out.push_back(e.path().filename().string());
    std::sort(out.begin(), out.end());
    return out;
  }
  const std::filesystem::path& path() const { return path_; }

 private:
  std::filesystem::path path_;
};

inline Tensor make_tensor(const std::vector<double>& values, const Shape& shape, DType dtype) {
  Tensor t(Ref<detail::TensorImpl>::adopt(detail::new_tensor(shape, dtype, cpu)));
  EXPECT_EQ(static_cast<int64_t>(values.size()), t.numel());
  detail::convert_elements(values.data(), DType::f64, t.impl()->data, dtype, t.numel());
  return t;
}

/// A tensor that counts up from `first`.
inline Tensor counting(const Shape& shape, DType dtype, double first = 0) {
  std::vector<double> v(static_cast<size_t>(shape.numel().value()));
  for (size_t i = 0; i < v.size(); ++i) v[i] = first + static_cast<double>(i);
  return make_tensor(v, shape, dtype);
}

/// `read(bytes)` either works or throws Format or Io, for every prefix of `content` (which must be
/// rejected when `cuts_fail`) and with every byte changed in several ways.
template <class Read>
void expect_robust(const std::string& content, bool cuts_fail, Read read) {
  auto outcome = [&](const std::string& bytes) {
    const std::string text = error_of([&] { read(bytes); });
    return text == "no error" || text.starts_with("Format: ") || text.starts_with("Io: ")
               ? text
               : "BAD " + text;
  };
  ASSERT_EQ(outcome(content), "no error");
  for (size_t n = 0; n < content.size(); ++n) {
    const std::string got = outcome(content.substr(0, n));
    EXPECT_FALSE(got.starts_with("BAD")) << "cut to " << n << ": " << got;
    if (cuts_fail) {
      EXPECT_NE(got, "no error") << "cut to " << n;
    }
  }
  for (size_t i = 0; i < content.size(); ++i) {
    for (const unsigned flip : {0x01u, 0x10u, 0x80u, 0xFFu}) {
      std::string changed = content;
      changed[i] = static_cast<char>(static_cast<unsigned char>(changed[i]) ^ flip);
      const std::string got = outcome(changed);
      EXPECT_FALSE(got.starts_with("BAD")) << "byte " << i << " ^ " << flip << ": " << got;
    }
  }
}
/// The same where `read` takes the path of a file.
template <class Read>
void expect_robust(const std::string& content, const std::string& path, bool cuts_fail, Read read) {
  expect_robust(content, cuts_fail, [&](const std::string& bytes) {
    std::ofstream(path, std::ios::binary)
        << bytes;  // without write_file's fsync: thousands of files
    read(path);
  });
}

}  // namespace tandem
