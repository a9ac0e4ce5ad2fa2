// SPDX-License-Identifier: Apache-2.0
// libFuzzer: any bytes are read as a model, or refused with Format or Unsupported.
#include "tandem/init.h"
#include "tandem/interop/onnx.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static const bool ready = (tandem::init(), true);
  (void)ready;
  try {
    tandem::interop::OnnxModel::parse(std::string(reinterpret_cast<const char*>(data), size));
  } catch (const tandem::Error& e) {
    const bool fits =
        e.kind() == tandem::ErrorKind::Format || e.kind() == tandem::ErrorKind::Unsupported;
    if (!fits) __builtin_trap();
  }
  return 0;
}
