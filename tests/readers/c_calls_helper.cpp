// SPDX-License-Identifier: Apache-2.0
// Calls of tandem_c.h as a reader: bytes say which functions are called with what.
#include "tandem/tandem_c.h"
#include "tests/capi/call_sequence.h"
#include "tests/capi/capi_net.h"
#include "tests/readers/readers.h"

namespace tandem::readers {
namespace {

tandem_status load_small_net(tandem_model** model) {
  static const std::string bytes = capi_net(-1);
  return tandem_load_memory(bytes.data(), bytes.size(), nullptr, model);
}

}  // namespace

// What a byte means is in call_sequence.h: load, run well, keep results, ask for them, free, run
// again; and a model of the bytes' own.
std::vector<std::string> c_call_seeds() {
  std::vector<std::string> out;
  Random random(3);
  for (size_t length : {40, 160, 400}) {
    std::string s = {'\0', '\0', '\0'};
    while (s.size() < length) s += static_cast<char>(random() % 4 ? random() % 64 : random());
    out.push_back(s);
  }
  out.push_back(std::string("\0\x0f", 2) + capi_net());
  return out;
}

void read_c_calls(std::string_view bytes) {
  const long succeeded = run_call_sequence(reinterpret_cast<const unsigned char*>(bytes.data()),
                                           bytes.size(), load_small_net);
  if (succeeded == 0) TD_FAIL(Format, "no call succeeded");
}

}  // namespace tandem::readers
