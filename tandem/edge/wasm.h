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
  /// Pages with everything in them, by name: draw.html, on which a person draws what the net shall
  /// name, for one input of n x n elements (f32 0..1, or u8), 8 <= n <= 64, and one f32 output;
  /// camera.html for an input u8 [3, h, w] and scores, or boxes [k, 4] and scores [k, classes];
  /// listen.html for an input f32 [1, n] of a known rate and scores.
  std::vector<std::pair<std::string, std::string>> pages;
  size_t code_bytes = 0;  ///< of the module, beyond the weights
};

/// What pages say and do beyond the net's own ports.
struct WebFacts {
  std::vector<std::string> labels = {};  ///< names of the classes
  int64_t sample_rate = 0;               ///< of an input that is sound; 0: it is not
};

/// The model that write_c99 wrote under the same options. It computes the bits that the C file
/// computes elsewhere (but for the payload of NaNs). Throws Unsupported where there is no clang
/// with wasm-ld, naming the packages; Value with the compiler's words where it fails.
TD_API WebNet write_wasm(const EdgeSource& net, const EdgeOptions& options = {},
                         const WebFacts& facts = {});

}  // namespace tandem::edge
