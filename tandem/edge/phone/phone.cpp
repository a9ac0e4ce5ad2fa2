// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cctype>

#include "tandem/edge/phone/phone_internal.h"
#include "tandem/edge/text_internal.h"

namespace tandem::edge {

std::vector<PhonePort> phone_ports(const EdgeSource& net, std::set<std::string> taken) {
  std::vector<PhonePort> all;
  for (const auto* list : {&net.inputs, &net.outputs})
    for (const EdgePort& p : *list) {
      std::string name = identifier(p.name);
      while (!taken.insert(name).second) name += "_";
      all.push_back({name, p.spec, list == &net.inputs});
    }
  return all;
}

std::string without_arena(const EdgeSource& net, const PhoneOptions& options) {
  return fmt::format("#define {}_NO_ARENA\n{}", upper(options.name), net.source);
}

std::string class_name(const std::string& name) {
  std::string out;
  bool up = true;
  for (const char c : name) {
    if (c != '_') out += up ? static_cast<char>(std::toupper(static_cast<unsigned char>(c))) : c;
    up = c == '_';
  }
  return out.empty() ? "Net" : out;
}

std::string filled(std::string_view text,
                   const std::vector<std::pair<std::string, std::string>>& values) {
  std::string out;
  for (;;) {
    const size_t from = text.find('@');
    const size_t to = from == text.npos ? from : text.find('@', from + 1);
    if (to == text.npos) return out + std::string(text);
    const std::string_view key = text.substr(from + 1, to - from - 1);
    const auto at =
        std::find_if(values.begin(), values.end(), [&](const auto& v) { return v.first == key; });
    out += text.substr(0, at == values.end() ? to : from);
    if (at != values.end()) out += at->second;
    text.remove_prefix(at == values.end() ? to : to + 1);
  }
}

}  // namespace tandem::edge
