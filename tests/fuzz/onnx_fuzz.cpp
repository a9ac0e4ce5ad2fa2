// SPDX-License-Identifier: Apache-2.0
// libFuzzer: any bytes are read as a model, or rejected.
#include "tandem/onnx/onnx.h"
#include "tests/fuzz/fuzz.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  return tandem::fuzz::check([&] {
    tandem::onnx::OnnxModel::parse(std::string(reinterpret_cast<const char*>(data), size));
  });
}
