// SPDX-License-Identifier: Apache-2.0
// libFuzzer: any bytes are read as an image of any of the formats, or rejected.
#include "tandem/io/image.h"

#include "tandem/tandem.h"
#include "tests/fuzz/fuzz.h"

using namespace tandem;

extern "C" int LLVMFuzzerInitialize(int*, char***) {
  const std::string to = fuzz::seeds();
  if (to.empty()) return 0;
  write_file(to + "gray.png", io::encode_png(arange(40).to(DType::u8).reshape({5, 8})));
  return 0;
}

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view bytes(reinterpret_cast<const char*>(data), size);
  return fuzz::check(
      [&] { io::decode_image(bytes, {.mode = io::ImageMode::unchanged, .limit = 1 << 18}); });
}
