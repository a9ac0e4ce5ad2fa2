// SPDX-License-Identifier: Apache-2.0
#include "tandem/base/nearest.h"

#include <algorithm>
#include <utility>

namespace tandem {

size_t edit_distance(std::string_view a, std::string_view b) {
  std::vector<size_t> row(b.size() + 1);
  for (size_t j = 0; j <= b.size(); ++j) row[j] = j;
  for (size_t i = 1; i <= a.size(); ++i) {
    size_t corner = std::exchange(row[0], i);
    for (size_t j = 1; j <= b.size(); ++j) {
      const size_t best = std::min({row[j] + 1, row[j - 1] + 1, corner + (a[i - 1] != b[j - 1])});
      corner = std::exchange(row[j], best);
    }
  }
  return row[b.size()];
}

std::string nearest_word(std::string_view word, const std::vector<std::string>& known) {
  const std::string* best = nullptr;
  size_t limit = word.size() / 2 + 2;
  for (const std::string& k : known) {
    const size_t apart = k.size() > word.size() ? k.size() - word.size() : word.size() - k.size();
    if (apart >= limit) continue;
    const size_t d = edit_distance(word.substr(0, 200), std::string_view(k).substr(0, 200));
    if (d < limit) {
      limit = d;
      best = &k;
    }
  }
  return best ? *best : "";
}

}  // namespace tandem
