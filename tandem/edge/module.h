// SPDX-License-Identifier: Apache-2.0
// Models as C++ source for people: a header with an nn::Module whose layers are members and whose
// forward() calls the public functions, as it would be written by hand. It is written from the ops
// of a trace and the paths of the layers that called them, before anything is fused.
// recipe::write_cpp() adds what modules know and writes the files; docs/edge.md shows a result.
#pragma once

#include <string>
#include <vector>

#include "tandem/edge/edge.h"
#include "tandem/tensor/state_dict.h"

namespace tandem::edge {

/// What the caller knows of a module that ran in the trace.
struct KnownModule {
  std::string path, type;  ///< "layer1.0", "BasicBlock"
  /// Of a layer that does nothing outside training and whose forward hook returned
  /// identity(output): the arguments of its constructor, "0.5" of a Dropout.
  std::string arguments = "";
};

struct ModuleOptions {
  std::string name = "Net";        ///< of the class; the other classes get names of their own
  std::string name_space = "net";  ///< that they lie in
  std::string weights = "";        ///< the file of weights, for the comment at the top
  std::string model = "";          ///< where it came from, for the same comment
  StateDict names = {};            ///< what constants of the trace are called: found by their bytes
  std::vector<KnownModule> modules = {};
};

/// What was written.
struct ModuleSource {
  std::string header;                         ///< the text
  StateDict weights;                          ///< by the names that the module's state_dict() has
  size_t layers = 0, classes = 0, calls = 0;  ///< members that are layers; structs; other calls
};

/// The model as a module. Sizes of `inputs` that are symbols stay open. Calls of layers that nn has
/// become members of their types with the same parameters, and what modules did in the trace become
/// structs, one for all that differ in numbers alone; everything else is a call of a function.
/// Throws Unsupported, naming every op without a C++ form
/// and how often it is called, where there is one, and for a model that changes its own state;
/// Value for a name that is not a C++ identifier.
TD_API ModuleSource write_module(EdgeForward forward, std::span<const EdgePort> inputs,
                                 const ModuleOptions& options = {});

}  // namespace tandem::edge
