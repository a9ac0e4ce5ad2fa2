// SPDX-License-Identifier: Apache-2.0
// TensorFlow's checkpoints (tensor bundles, as tf.train.Checkpoint and SavedModel write them): a
// sorted table NAME.index, whose blocks may be compressed with snappy, and the tensors' bytes in
// NAME.data-00000-of-00001. All checksums are verified before a byte is used.
// tensorflow/core/util/tensor_bundle, tensorflow/core/lib/io/table_format.txt
#pragma once

#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "tandem/base/files/file.h"
#include "tandem/tensor/state_dict.h"

namespace tandem::io {

/// How an element type of TensorFlow is read; the numbers are those of types.proto.
struct TfTypeInfo {
  int number;
  const char* name;   ///< "float32"
  uint8_t bytes;      ///< of an element in a file; 0: it has none of its own
  DType carrier;      ///< what holds its values; uint64 keeps its bits in i64
  uint8_t onnx;       ///< its number in ONNX's TensorProto.DataType; 0: none
  bool native;        ///< the carrier is the type itself
  const char* proto;  ///< its name in types.proto
  uint8_t values;     ///< the field of a TensorProto with single values; 0: not read
};
/// nullptr for a number that is not a type, or one of TensorFlow's reference types.
TD_API const TfTypeInfo* find_tf_type(int64_t number);
/// The type that is `dtype` itself: there is one for each.
TD_API const TfTypeInfo& tf_type_of(DType dtype);

/// A tensor from an element type's little-endian bytes; throws Format unless they are as many as
/// the shape needs, Unsupported for types without numbers. `what` names it in errors.
TD_API Tensor tensor_of_tf_bytes(const TfTypeInfo& type, const Shape& shape, std::string_view bytes,
                                 const std::string& what);

class TD_API TensorBundle {
 public:
  struct Entry {
    const TfTypeInfo* type = nullptr;
    Shape shape;
    int64_t shard = 0;
    uint64_t offset = 0, size = 0;
    uint32_t crc = 0;
    bool sliced = false;  ///< stored in parts, as partitioned variables are
  };

  /// Whether bytes are a sorted table, by their last ones.
  static bool is_index(std::string_view content);
  /// `index` is the path of the table, with or without ".index". Throws Io, or Format.
  explicit TensorBundle(const FilePath& index);

  const std::map<std::string, Entry>& entries() const { return entries_; }
  /// nullptr if there is none.
  const Entry* find(const std::string& name) const;
  /// A tensor of numbers: maps the file where its bytes are aligned. Throws Value for an unknown
  /// name, Format where it is damaged, Unsupported for strings, variants and sliced tensors.
  Tensor tensor(const std::string& name) const;
  /// A tensor of strings, in row-major order.
  std::vector<std::string> strings(const std::string& name) const;
  const std::string& path() const { return path_; }

 private:
  const Entry& entry(const std::string& name) const;
  std::string_view bytes_of(const std::string& name, const Entry& e) const;

  std::string path_;
  std::map<std::string, Entry> entries_;
  std::vector<Ref<MappedFile>> shards_;
};

}  // namespace tandem::io
