// SPDX-License-Identifier: Apache-2.0
// The parts of the HDF5 reader: bytes of the file with every access checked (Hdf5Bytes), object
// headers as lists of messages, the two kinds of trees and heaps. Not installed.
#pragma once

#include <fmt/format.h>

#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "tandem/base/budget.h"
#include "tandem/base/error.h"
#include "tandem/base/files/file.h"
#include "tandem/base/function_ref.h"
#include "tandem/tensor/tensor.h"

namespace tandem::io {

constexpr uint64_t kNoHdf5Address = ~uint64_t{0};
constexpr int kMostHdf5Depth = 32;  ///< levels of a tree, continuations of a header

/// The bytes of a file and the widths of its numbers.
struct Hdf5Bytes {
  Ref<MappedFile> file;  ///< or
  std::string own;
  std::string_view all;  ///< from the superblock on
  std::string name;
  int offset_size = 8, length_size = 8;
  uint64_t root = 0;

  [[noreturn]] void fail(const std::string& why) const { TD_FAIL(Format, "'{}': {}", name, why); }
  [[noreturn]] void lacks(const std::string& what) const {
    TD_FAIL(Unsupported, "'{}': {} is not supported\nWrite it again with h5py's default settings.",
            name, what);
  }
  /// The `size` bytes at an address.
  std::string_view at(uint64_t address, uint64_t size, const char* what) const {
    if (address > all.size() || size > all.size() - address)
      fail(fmt::format("{} at {} is outside of the file's {} bytes", what, address, all.size()));
    return all.substr(address, size);
  }
};

/// Reads numbers of a block from front to back.
class Hdf5Cursor {
 public:
  Hdf5Cursor(const Hdf5Bytes& f, std::string_view block, const char* what)
      : f_(f), in_(block), what_(what) {}

  /// A little-endian number of 1 to 8 bytes.
  uint64_t number(int bytes) {
    const std::string_view b = bytes_of(static_cast<uint64_t>(bytes));
    uint64_t v = 0;
    for (int i = 0; i < bytes; ++i)
      v |= uint64_t{static_cast<unsigned char>(b[static_cast<size_t>(i)])} << (8 * i);
    return v;
  }
  uint64_t byte() { return number(1); }
  /// An address; one whose bits are all set is kNoHdf5Address.
  uint64_t address() {
    const uint64_t v = number(f_.offset_size);
    const bool none = f_.offset_size < 8 && v == (uint64_t{1} << (8 * f_.offset_size)) - 1;
    return none ? kNoHdf5Address : v;
  }
  uint64_t length() { return number(f_.length_size); }
  std::string_view bytes_of(uint64_t n) {
    if (n > in_.size()) f_.fail(fmt::format("{} is truncated", what_));
    const std::string_view b = in_.substr(0, n);
    in_.remove_prefix(n);
    return b;
  }
  void skip(uint64_t n) { bytes_of(n); }
  void signature(std::string_view wanted) {
    if (bytes_of(wanted.size()) != wanted)
      f_.fail(fmt::format("{} does not begin with '{}'", what_, wanted));
  }
  size_t left() const { return in_.size(); }
  std::string_view rest() const { return in_; }
  const Hdf5Bytes& file() const { return f_; }

 private:
  const Hdf5Bytes& f_;
  std::string_view in_;
  const char* what_;
};

/// A message of an object header.
struct Hdf5Message {
  int type = 0;
  std::string_view data;
};
/// All of an object's, continuations included.
std::vector<Hdf5Message> hdf5_messages(const Hdf5Bytes& f, uint64_t header);
const Hdf5Message* find_hdf5_message(const std::vector<Hdf5Message>& all, int type);

// ---- groups (group.cpp)
/// Calls f(name, address of the header) for every hard link of a group.
void each_hdf5_link(const Hdf5Bytes& f, const std::vector<Hdf5Message>& messages,
                    FunctionRef<void(std::string, uint64_t)> found);
/// Calls f for every object of a fractal heap that the tree at `tree` lists; `skip` bytes of a
/// record precede the object's id.
void each_hdf5_heap_object(const Hdf5Bytes& f, uint64_t heap, uint64_t tree,
                           FunctionRef<void(std::string_view)> found);

// ---- types and data (data.cpp)
struct Hdf5Type {
  enum class Kind : uint8_t { integer, floating, boolean, text, variable_text, other };
  Kind kind = Kind::other;
  uint64_t size = 0;
  bool is_signed = false, big_endian = false;
  int exponent = 0, mantissa = 0;  ///< bits, of a floating type
};
Hdf5Type hdf5_type(const Hdf5Bytes& f, std::string_view data);
/// The sizes of a dataspace; one that is null has a size of 0.
Shape hdf5_shape(const Hdf5Bytes& f, std::string_view data);
/// The strings that `bytes` hold or refer to.
std::vector<std::string> hdf5_texts(const Hdf5Bytes& f, const Hdf5Type& type, uint64_t count,
                                    std::string_view bytes);
/// Elements of a shape; throws Format where they are too many.
uint64_t hdf5_count(const Hdf5Bytes& f, const Shape& shape);
/// A dataset's elements from the messages of its header.
Tensor read_hdf5_dataset(const Hdf5Bytes& f, const std::vector<Hdf5Message>& messages);

struct Hdf5Attribute {
  std::string name;
  Hdf5Type type;
  Shape shape;
  std::string_view data;
};
void each_hdf5_attribute(const Hdf5Bytes& f, const std::vector<Hdf5Message>& messages,
                         FunctionRef<void(const Hdf5Attribute&)> found);

}  // namespace tandem::io
