// SPDX-License-Identifier: Apache-2.0
#include "tandem/train/machine_kind_internal.h"

#include <fmt/format.h>

#include <fstream>
#include <set>
#include <sstream>

#include "tandem/base/parallel.h"

namespace tandem::train {

io::Json machine_kind() {
  static const auto found = [] {
    std::pair<std::string, std::string> r;  // processor, vectors
    std::ifstream f("/proc/cpuinfo");
    for (std::string line; std::getline(f, line) && (r.first.empty() || r.second.empty());) {
      const size_t colon = line.find(':');
      if (colon == line.npos || colon + 2 > line.size()) continue;
      const std::string rest = line.substr(std::min(colon + 2, line.size()));
      if (line.starts_with("model name") || line.starts_with("CPU part")) r.first = rest;
      if (!line.starts_with("flags") && !line.starts_with("Features")) continue;
      static const std::set<std::string> kVectors = {"avx2",        "fma",         "avx512f",
                                                     "avx512_bf16", "avx512_fp16", "amx_tile",
                                                     "asimd",       "sve",         "bf16"};
      std::istringstream words(rest);
      for (std::string word; words >> word;)
        if (kVectors.count(word)) r.second += (r.second.empty() ? "" : " ") + word;
    }
    return r;
  }();
  return io::Json::Object{
      {"processor", found.first}, {"vectors", found.second}, {"threads", num_threads()}};
}

std::string machine_difference(const io::Json& then, const io::Json& now) {
  std::string text;
  for (const char* key : {"processor", "vectors", "threads"}) {
    const io::Json *a = then.find(key), *b = now.find(key);
    if (a && b && a->dump() != b->dump())
      text += fmt::format("{}{} {}, then {}", text.empty() ? "" : "; ", key, b->dump(), a->dump());
  }
  return text;
}

}  // namespace tandem::train
