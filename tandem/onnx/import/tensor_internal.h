// SPDX-License-Identifier: Apache-2.0
// TensorProto to values: where its bytes may come from, and the functions the parser calls.
#pragma once

#include <map>
#include <string>

#include "tandem/base/files/file.h"
#include "tandem/io/protobuf.h"
#include "tandem/onnx/import/value.h"

namespace tandem::onnx {

/// The file a model was read from.
struct OnnxTensorSource {
  std::string what;
  Ref<MappedFile> file;  ///< its bytes, if they are mapped
  std::string folder;    ///< external data is below it; "": there is none
  std::map<std::string, Ref<MappedFile>> external;  ///< files already open
};

OnnxValue parse_tensor(io::ProtoReader r, OnnxTensorSource& source, std::string* name);
/// A SparseTensorProto as a dense tensor.
OnnxValue parse_sparse_tensor(io::ProtoReader r, OnnxTensorSource& source, std::string* name);

/// The bytes of a tensor in raw_data format, and a tensor from such bytes.
std::string raw_bytes(const OnnxValue& v);
OnnxValue from_raw_bytes(OnnxType type, const std::vector<int64_t>& dims, std::string_view raw);

/// Open `location` below `folder`: a plain file, reached without links or "..". Throws Format for
/// other paths, Io when it cannot be opened.
Ref<MappedFile> open_external(const std::string& folder, const std::string& location,
                              const std::string& what);

}  // namespace tandem::onnx
