// SPDX-License-Identifier: Apache-2.0
// Weights on disk: the safetensors format (8 bytes of length, a JSON header, the data). Files are
// exchangeable with https://github.com/huggingface/safetensors
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "tandem/base/files/file.h"
#include "tandem/tensor/state_dict.h"

namespace tandem {

/// String pairs stored in the header under "__metadata__".
using Metadata = std::vector<std::pair<std::string, std::string>>;

/// Write `tensors` to `path`, all or nothing (temporary file, fsync, rename). Every name has
/// bytes of its own, also where tensors share theirs (tied weights): the format has no other way
/// that all readers know. Strided tensors are written row-major. Throws Io, Value (an undefined
/// tensor, a name that is not UTF-8), Unsupported (a value inside a trace).
TD_API void save(const StateDict& tensors, const FilePath& path, const Metadata& metadata = {});

/// Read a safetensors file. The tensors map the file (it is never written to; the first write
/// copies), unless their data is unaligned. Throws Io when it cannot be read, Format when it is
/// truncated, hostile or of another kind. `metadata` receives the header's pairs.
TD_API StateDict load(const FilePath& path, Metadata* metadata = nullptr);

}  // namespace tandem
