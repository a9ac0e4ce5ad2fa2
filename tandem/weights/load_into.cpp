// SPDX-License-Identifier: Apache-2.0
// Weights into a model: names of older and wrapped files, and the report on what does not fit.
#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <set>

#include "tandem/base/mismatch.h"
#include "tandem/weights/weights.h"

namespace tandem::weights {

namespace {

/// `text` with every `from` replaced; nothing if it does not occur.
std::optional<std::string> replaced(const std::string& text, std::string_view from,
                                    std::string_view to) {
  const size_t at = text.find(from);
  if (at == std::string::npos) return {};
  return text.substr(0, at) + std::string(to) + text.substr(at + from.size());
}

/// The model's name for a name in a file, or nothing.
std::optional<std::string> known_as(const std::string& name, const std::set<std::string>& model) {
  if (model.count(name)) return name;
  for (const char* prefix : {"module.", "_orig_mod.", "model."})
    if (name.starts_with(prefix)) {
      std::optional<std::string> inner =
          known_as(name.substr(std::string_view(prefix).size()), model);
      if (inner) return inner;
    }
  // torchvision's ViT files of 2022; DenseNet files written before PyTorch 0.4.
  constexpr std::pair<std::string_view, std::string_view> kOld[] = {
      {".mlp.linear_1.", ".mlp.0."}, {".mlp.linear_2.", ".mlp.3."}, {".norm.1.", ".norm1."},
      {".norm.2.", ".norm2."},       {".conv.1.", ".conv1."},       {".conv.2.", ".conv2."}};
  for (const auto& [from, to] : kOld)
    if (std::optional<std::string> now = replaced(name, from, to); now && model.count(*now))
      return now;
  return {};
}

constexpr size_t kShown = 10;

std::string lines(const char* title, const std::vector<std::string>& names) {
  if (names.empty()) return "";
  std::string out = fmt::format("{} {}:", names.size(), title);
  for (size_t i = 0; i < std::min(names.size(), kShown); ++i) out += "\n  " + names[i];
  if (names.size() > kShown) out += fmt::format("\n  and {} more", names.size() - kShown);
  return out + "\n";
}

}  // namespace

std::string WeightsReport::to_string() const {
  std::vector<std::string> wanted;
  const Mismatch names{missing, unexpected};
  for (const std::string& name : missing) {
    const std::string near = wanted.size() < kShown ? names.likely(name) : "";
    wanted.push_back(near.empty() ? name : name + "  (the file has " + near + ")");
  }
  std::vector<std::string> shapes;
  for (const Shapes& s : misshaped)
    shapes.push_back(fmt::format("{}: {} in the model, {} in the file", s.name, s.model, s.file));
  return fmt::format("{} loaded\n", loaded) + lines("missing", wanted) +
         lines("unexpected", unexpected) + lines("of another shape", shapes);
}

WeightsReport load_into(nn::Module& m, const StateDict& values, LoadIntoOptions options) {
  // state_dict() lists tied cells under every name, parameters() only once. Files contain the
  // former.
  const StateDict have = m.state_dict();
  std::set<std::string> names;
  for (const auto& [name, t] : have) names.insert(name);
  WeightsReport report;
  StateDict fitting;
  for (const auto& [name, value] : values) {
    const std::optional<std::string> own = known_as(name, names);
    if (!own || fitting.contains(*own)) {
      report.unexpected.push_back(name);
      continue;
    }
    if (*own != name) report.renamed.emplace_back(name, *own);
    const Shape &want = have.at(*own).shape(), &got = value.shape();
    names.erase(*own);
    if (want == got)
      fitting[*own] = value;
    else
      report.misshaped.push_back({*own, want.to_string(), got.to_string()});
  }
  for (const auto& [name, t] : have)
    if (names.count(name) && !name.ends_with("num_batches_tracked")) report.missing.push_back(name);
  report.loaded = fitting.size();
  TD_CHECK(!options.strict || report.ok(), Value,
           "the weights do not fit the model: {}Pass strict = false to load what fits.",
           report.to_string());
  m.load_state_dict(fitting, /*strict=*/false);
  return report;
}

}  // namespace tandem::weights
