// SPDX-License-Identifier: Apache-2.0
// HDF5 files, as far as Keras's weights and h5py's files need them: groups of both styles,
// attributes, datasets of numbers, booleans and strings, contiguous, compact or chunked (deflate,
// shuffle, Fletcher's checksum). A reader of our own: hostile files are common for this format, and
// every address here is compared with the file before a byte is read.
// https://support.hdfgroup.org/documentation/hdf5/latest/_f_m_t3.html
#pragma once

#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "tandem/base/files/file.h"
#include "tandem/tensor/tensor.h"

namespace tandem::io {

/// An open file. Objects (groups and datasets) are named by the address of their header. Everything
/// throws Format where the file is truncated, hostile or damaged, and Unsupported, naming the
/// feature, for what this reader leaves out.
class TD_API Hdf5File {
 public:
  using Object = uint64_t;

  /// Whether bytes begin an HDF5 file; its signature may follow a block of the user's.
  static bool is_hdf5(std::string_view content);
  /// Throws Io, or Format.
  explicit Hdf5File(const FilePath& path);
  /// The same from memory; `name` is used in errors.
  Hdf5File(std::string bytes, const std::string& name);
  ~Hdf5File();
  Hdf5File(const Hdf5File&) = delete;
  Hdf5File& operator=(const Hdf5File&) = delete;

  Object root() const;
  bool is_dataset(Object o) const;
  /// What a group holds, by name: hard links only. Empty for a dataset.
  std::map<std::string, Object> links(Object group) const;
  /// The object at a path like "a/b" below a group; false if there is none.
  bool find(Object group, std::string_view path, Object& found) const;

  /// Names of an object's attributes, sorted.
  std::vector<std::string> attributes(Object o) const;
  /// The strings of an attribute (one for a scalar); nothing if there is no such attribute. Throws
  /// Format if it holds no strings.
  std::vector<std::string> texts(Object o, const std::string& attribute) const;

  /// A dataset of numbers; bits wider than their type is known for keep their values: uint16 as
  /// i32, uint32 as i64, uint64 as i64 (throws Format above 2^63 - 1).
  Tensor tensor(Object dataset) const;
  /// True if a dataset holds strings.
  bool is_text(Object dataset) const;
  const std::string& name() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace tandem::io
