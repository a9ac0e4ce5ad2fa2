// SPDX-License-Identifier: Apache-2.0
#include "tandem/base/processor_name.h"

#include <fstream>
#include <initializer_list>
#include <string_view>

namespace tandem {
namespace {

// Lines of the first processor that begin with one of these.
std::string lines_of(std::initializer_list<std::string_view> fields) {
  std::ifstream f("/proc/cpuinfo");
  std::string all;
  for (std::string s; std::getline(f, s) && !s.empty();)
    for (const std::string_view field : fields)
      if (s.rfind(field, 0) == 0) all += s + "\n";
  return all;
}

}  // namespace

std::string processor_name() {
  const std::string line = lines_of({"model name"});
  const size_t colon = line.find(": ");
  return colon == line.npos ? "unknown" : line.substr(colon + 2, line.size() - colon - 3);
}

std::string processor_identity() {
  return lines_of({"model name", "flags", "cpu family", "stepping", "Features", "model\t"});
}

}  // namespace tandem
