// SPDX-License-Identifier: Apache-2.0
// libFuzzer: any bytes pass through the wire codec or are rejected.
#include "tandem/io/protobuf.h"
#include "tests/fuzz/fuzz.h"

namespace {

using tandem::io::ProtoReader;
using tandem::io::ProtoType;

// The field's number decides how its value is read.
void walk(ProtoReader r) {
  while (r.next()) {
    std::vector<int64_t> ints;
    std::vector<float> floats;
    std::vector<double> doubles;
    switch (r.field() % 8) {
      case 0:
        r.unsigned_value();
        break;
      case 1:
        r.float_value();
        break;
      case 2:
        walk(r.message());
        break;
      case 3:
        r.bytes();
        break;
      case 4:
        r.append(ints);
        break;
      case 5:
        r.append(floats);
        break;
      case 6:
        r.append(doubles);
        break;
      default:  // skipped
        break;
    }
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  return tandem::fuzz::check([&] {
    tandem::io::ProtoDocument document({reinterpret_cast<const char*>(data), size}, "fuzz");
    walk(document.reader());
  });
}
