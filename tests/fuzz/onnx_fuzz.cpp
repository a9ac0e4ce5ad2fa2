// SPDX-License-Identifier: Apache-2.0
// libFuzzer: any bytes are read as a model, or refused.
#include "tandem/interop/onnx.h"
#include "tests/fuzz/fuzz.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  return tandem::fuzz::check([&] {
    tandem::interop::OnnxModel::parse(std::string(reinterpret_cast<const char*>(data), size));
  });
}
