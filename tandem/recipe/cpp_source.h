// SPDX-License-Identifier: Apache-2.0
// Models written as C++ source: a header with an nn::Module and its weights beside it.
#pragma once

#include <string>

#include "tandem/edge/module.h"
#include "tandem/recipe/model_files.h"

namespace tandem::recipe {

struct CppFile {
  std::string header, weights;                ///< the files
  size_t layers = 0, classes = 0, calls = 0;  ///< as in edge::ModuleSource
  bool random_weights = false;  ///< no weights were given: the values are initial ones
};

/// `net`, which is called as `forward`, as a module. Its classes keep the names that they have, and
/// dropout is part of it. Throws as edge::write_module().
TD_API edge::ModuleSource cpp_source(nn::Module& net, edge::EdgeForward forward,
                                     std::span<const edge::EdgePort> inputs,
                                     edge::ModuleOptions options = {});
/// The model as the header `out` ("net.h") and net.safetensors beside it: namespace `net`, class
/// `Net`. Sizes stay open as in write_onnx(); an ONNX file's are those of its own inputs. Throws
/// Value for a name that does not end in .h or whose weights may be those of the model, and as
/// edge::write_module().
TD_API CppFile write_cpp(const ModelSource& source, const std::string& out,
                         const OnnxFileOptions& options = {});

}  // namespace tandem::recipe
