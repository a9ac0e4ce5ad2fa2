// SPDX-License-Identifier: Apache-2.0
#include "tandem/base/mismatch.h"

#include <fmt/format.h>

#include <algorithm>

#include "tandem/base/nearest.h"

namespace tandem {
namespace {

constexpr size_t kShown = 8;

bool behind_prefix(const std::string& full, const std::string& name) {
  return full.size() > name.size() && full.ends_with(name) &&
         full[full.size() - name.size() - 1] == '.';
}

template <class Show>
void add_list(std::string& out, const std::vector<std::string>& names, const char* what,
              const char* between, Show show) {
  if (names.empty()) return;
  out += fmt::format("{}{} {} (", out.empty() ? "" : ", ", names.size(), what);
  const size_t shown = std::min(names.size(), kShown);
  for (size_t i = 0; i < shown; ++i) out += (i ? between : "") + show(names[i]);
  if (names.size() > shown) out += fmt::format("{}{} more", between, names.size() - shown);
  out += ")";
}

}  // namespace

std::string Mismatch::likely(const std::string& name) const {
  for (const std::string& u : unexpected)
    if (behind_prefix(u, name) || behind_prefix(name, u)) return u;
  return nearest_word(name, unexpected);
}

std::string Mismatch::text() const {
  std::string out;
  const auto same = [](const std::string& name) { return name; };
  add_list(out, missing, "missing", "; ", [&](const std::string& name) {
    const std::string near = likely(name);
    return near.empty() ? name : name + ": there is " + near;
  });
  add_list(out, unexpected, "unexpected", "; ", same);
  add_list(out, differing, "of another shape or type", "; ", same);
  return out;
}

}  // namespace tandem
