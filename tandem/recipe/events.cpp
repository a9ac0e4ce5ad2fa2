// SPDX-License-Identifier: Apache-2.0
#include "tandem/recipe/events_internal.h"

#include <algorithm>

namespace tandem::recipe {
namespace {

runs::HParam setting_of(const io::Yaml& y) {
  if (y.kind == io::Yaml::Kind::list) {
    std::string all;
    for (const io::Yaml& item : y.items)
      all += (all.empty() ? "" : ", ") + (item.kind == io::Yaml::Kind::scalar ? item.text : "...");
    return "[" + all + "]";
  }
  if (y.quoted) return y.text;
  if (const auto flag = y.as_bool()) return *flag;
  if (const auto number = y.as_double()) return *number;
  return y.text;
}

void collect(const io::Yaml& y, const std::string& path, runs::HParams& out) {
  for (size_t i = 0; i < y.keys.size(); ++i) {
    const std::string name = path.empty() ? y.keys[i] : path + "." + y.keys[i];
    if (y.items[i].kind == io::Yaml::Kind::map)
      collect(y.items[i], name, out);
    else if (y.items[i].kind != io::Yaml::Kind::null)
      out.emplace_back(name, setting_of(y.items[i]));
  }
}

}  // namespace

runs::HParams recipe_hparams(const io::Yaml& resolved) {
  runs::HParams all, out;
  collect(resolved, "", all);
  for (auto& entry : all) {
    const std::string head = entry.first.substr(0, entry.first.find('.'));
    if (head != "recipe" && head != "note" && head != "expect" && head != "search" &&
        head != "tune")
      out.push_back(std::move(entry));
  }
  return out;
}

std::shared_ptr<train::TensorBoard> recipe_events(const std::string& folder,
                                                  const io::Yaml& resolved,
                                                  const std::string& recipe, int64_t histograms) {
  std::string text;  // as a block of code in Markdown
  for (size_t at = 0, end; at < recipe.size(); at = end + 1) {
    end = std::min(recipe.find('\n', at), recipe.size());
    text += "    " + recipe.substr(at, end - at) + "\n";
  }
  return std::make_shared<train::TensorBoard>(
      folder, train::TensorBoardOptions{.histogram_freq = histograms,
                                        .hparams = recipe_hparams(resolved),
                                        .texts = {{"recipe", std::move(text)}}});
}

}  // namespace tandem::recipe
