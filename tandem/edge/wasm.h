// SPDX-License-Identifier: Apache-2.0
// Models for browsers: the C99 file as one WebAssembly module, made by clang alone, and the script
// that calls it. `tandem compile --target wasm` writes these to a folder.
#pragma once

#include "tandem/edge/edge.h"

namespace tandem::edge {

/// What lies in the folder, by name.
struct WebNet {
  std::string module;  ///< net.wasm: weights are its data; it imports nothing
  std::string script;  ///< net.mjs: loads the module from an address or bytes, here or in a worker
  std::string types;   ///< net.d.mts: what net.mjs has, with the inputs and outputs of this net
  /// draw.html: a page on which a person draws what the net shall name, with everything in it. ""
  /// unless there is one f32 input of n x n elements, 8 <= n <= 64, and one f32 output.
  std::string page;
  size_t code_bytes = 0;  ///< of the module, beyond the weights
};

/// The model that write_c99 wrote under the same options. It computes the bits that the C file
/// computes elsewhere (but for the payload of NaNs). `labels` name the classes on the page. Throws
/// Unsupported where there is no clang with wasm-ld, naming the packages; Value with the compiler's
/// words where it fails.
TD_API WebNet write_wasm(const EdgeSource& net, const EdgeOptions& options = {},
                         std::span<const std::string> labels = {});

}  // namespace tandem::edge
