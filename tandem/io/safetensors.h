// SPDX-License-Identifier: Apache-2.0
// Weights on disk: the safetensors format (8 bytes of length, a JSON header, the data).
// https://github.com/huggingface/safetensors - files go both ways between here and there.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "tandem/base/file.h"
#include "tandem/tensor/state_dict.h"

namespace tandem {

/// Text pairs kept in the header under "__metadata__".
using Metadata = std::vector<std::pair<std::string, std::string>>;

/// Write `tensors` to `path`, all or nothing (beside, fsync, rename). Tensors that show the same
/// bytes in the same way are written once: the other names go to the metadata as
/// "tandem.alias.<name>" and come back in load(). Strided tensors are written row-major. Throws Io,
/// Value (an undefined tensor, a name that is no UTF-8), Unsupported (a value of a trace).
TD_API void save(const StateDict& tensors, const FilePath& path, const Metadata& metadata = {});

/// Read a safetensors file. The tensors show the mapped file (never written in place; the first
/// write copies), unless their data is not aligned. Throws Io when it cannot be read, Format when
/// it is cut, hostile or of another kind. `metadata` receives the header's pairs.
TD_API StateDict load(const FilePath& path, Metadata* metadata = nullptr);

}  // namespace tandem
