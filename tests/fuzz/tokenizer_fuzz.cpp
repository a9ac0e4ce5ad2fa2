// SPDX-License-Identifier: Apache-2.0
// libFuzzer: any bytes are read as tokenizer.json, or rejected; a valid one tokenizes a text, where
// a pattern may still take too long.
#include "tandem/io/json.h"
#include "tandem/text/tokenizer.h"
#include "tests/fuzz/fuzz.h"

using namespace tandem;

extern "C" int LLVMFuzzerInitialize(int*, char***) {
  const std::string to = fuzz::seeds();
  const char* root = std::getenv("TANDEM_SOURCE_DIR");
  if (to.empty()) return 0;
  const io::Json golden = io::parse_json(
      read_file(std::string(root ? root : ".") + "/tests/golden/tokenizers.json"), "golden");
  for (const auto& [kind, entry] : *golden.as_object()) {
    const std::string text = entry.find("tokenizer")->dump();
    if (text.size() < 65536) write_file(to + kind, text);
  }
  return 0;
}

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  return fuzz::check([&] {
    const auto t = text::Tokenizer::from_json({reinterpret_cast<const char*>(data), size}, "fuzz");
    try {
      t.decode(t.encode("A caf\u00e9, 3 words\n and\t\xff more.").ids);
    } catch (const Error& e) {
      if (e.kind() != ErrorKind::Value) throw;
    }
  });
}
