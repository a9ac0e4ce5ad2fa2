// SPDX-License-Identifier: Apache-2.0
#include "tandem/weights/weights.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>

#include "tandem/weights/formats.h"

namespace tandem::weights {
namespace {

namespace fs = std::filesystem;

std::string file_in(const std::string& folder) {
  for (const char* name :
       {"model.safetensors.index.json", "model.safetensors", "pytorch_model.bin.index.json",
        "pytorch_model.bin", "variables/variables.index"}) {
    const std::string path = (fs::path(folder) / name).string();
    if (file_exists(path)) return path;
  }
  TD_FAIL(Io,
          "'{}': there is no model.safetensors, no pytorch_model.bin and no "
          "variables/variables.index in this folder",
          folder);
}

// ".pth, .pt, .bin, .npz or .safetensors"
std::string endings() {
  std::vector<std::string> all;
  for (const WeightsFormat* f : weights_formats().rows())
    if (f->write)
      for (std::string& ending : words_of(f->endings)) all.push_back(std::move(ending));
  std::string out;
  for (size_t i = 0; i < all.size(); ++i)
    out += (i == 0 ? "" : i + 1 == all.size() ? " or " : ", ") + all[i];
  return out;
}

}  // namespace

const char* to_string(const WeightsFormat& f) { return f.title; }

const WeightsFormat& weights_format(const FilePath& path) {
  const auto file = make_ref<MappedFile>(path);
  const std::string_view content = file->view();
  TD_CHECK(!content.starts_with("\x93NUMPY"), Format,
           "'{}': this is one array without a name\nPut it into an .npz file under the name that "
           "the model expects.",
           path.str());
  std::string titles;
  for (const WeightsFormat* f : weights_formats().rows()) {
    if (f->holds(content, path)) return *f;
    titles += fmt::format("{}{}", titles.empty() ? "" : ", ", f->title);
  }
  TD_FAIL(Format, "'{}': this is not a weights file: none of {}", path.str(), titles);
}

StateDict load_weights(const FilePath& path) {
  std::error_code error;
  if (fs::is_directory(path.str(), error)) return load_weights(file_in(path.str()));
  // TensorFlow names a checkpoint without the ending of its index.
  if (!fs::exists(path.str(), error) && fs::exists(path.str() + ".index", error))
    return load_weights(path.str() + ".index");
  return weights_format(path).read(path);
}

void save_weights(const StateDict& tensors, const FilePath& path) {
  const std::string ending = fs::path(path.str()).extension().string();
  for (const WeightsFormat* f : weights_formats().rows()) {
    const std::vector<std::string> own = words_of(f->endings);
    if (f->write && std::find(own.begin(), own.end(), ending) != own.end())
      return f->write(tensors, path);
  }
  TD_FAIL(Value, "'{}': the extension selects the format: {}, not '{}'", path.str(), endings(),
          ending);
}

}  // namespace tandem::weights
