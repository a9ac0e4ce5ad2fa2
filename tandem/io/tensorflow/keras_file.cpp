// SPDX-License-Identifier: Apache-2.0
#include "tandem/io/tensorflow/keras_file.h"

#include <fmt/format.h>

#include "tandem/base/budget.h"
#include "tandem/base/error.h"
#include "tandem/io/zip_internal.h"

namespace tandem::io {
namespace {

constexpr std::string_view kConfig = "config.json", kWeights = "model.weights.h5";
constexpr int kMostGroups = 64;  ///< inside each other

std::string member_of(const ZipReader& zip, std::string_view name, const std::string& path) {
  for (const ZipMember& m : zip.members()) {
    if (m.name != name) continue;
    Budget::take(m.size);
    Budget::give_back(m.size);
    TD_CHECK(m.size <= zip.file()->size() * 1032 + 64, Format, "'{}': '{}' is impossibly large",
             path, name);
    std::string out(m.size, '\0');
    ZipStream in(zip, m);
    const size_t got = in.read(out.data(), out.size());
    TD_CHECK(got == out.size(), Format, "'{}': '{}' is truncated", path, name);
    return out;
  }
  TD_FAIL(Format, "'{}': there is no '{}' in this archive", path, name);
}

/// All datasets below a group.
void collect(const KerasFile& k, Hdf5File::Object group, const std::string& prefix, int depth,
             StateDict& out) {
  TD_CHECK(depth <= kMostGroups, Format, "'{}': groups are nested more than {} deep",
           k.weights->name(), kMostGroups);
  for (const auto& [name, object] : k.weights->links(group)) {
    Budget::count();
    Budget::check_time();
    if (!k.weights->is_dataset(object))
      collect(k, object, prefix + name + "/", depth + 1, out);
    else if (!k.weights->is_text(object))
      out[prefix + name] = k.weights->tensor(object);
  }
}

void collect_by_name(const KerasFile& k, StateDict& out) {
  const Hdf5File& f = *k.weights;
  for (const std::string& layer : keras_texts(f, k.group, "layer_names")) {
    Hdf5File::Object group = 0;
    TD_CHECK(f.find(k.group, layer, group), Format, "'{}': there is no layer '{}'", f.name(),
             layer);
    for (const std::string& name : keras_texts(f, group, "weight_names")) {
      Hdf5File::Object dataset = 0;
      TD_CHECK(f.find(group, name, dataset), Format, "'{}': there is no '{}' in the layer '{}'",
               f.name(), name, layer);
      // Paths may begin with the model's name.
      const size_t at = ("/" + name).find("/" + layer + "/");
      std::string key = at == std::string::npos ? layer + "/" + name : name.substr(at);
      if (key.ends_with(":0")) key.resize(key.size() - 2);
      TD_CHECK(!out.contains(key), Format, "'{}': there are two tensors '{}'", f.name(), key);
      out[key] = f.tensor(dataset);
    }
  }
}

}  // namespace

bool is_keras_archive(std::string_view content, const FilePath& path) {
  if (!content.starts_with("PK")) return false;
  const ZipReader zip(path);
  bool config = false, weights = false;
  for (const ZipMember& m : zip.members()) {
    config |= m.name == kConfig;
    weights |= m.name == kWeights;
  }
  return config && weights;
}

KerasFile open_keras_file(const FilePath& path) {
  KerasFile k;
  const auto file = make_ref<MappedFile>(path);
  if (file->view().starts_with("PK")) {
    const ZipReader zip(path);
    k.config = member_of(zip, kConfig, path.str());
    std::string bytes = member_of(zip, kWeights, path.str());
    Budget::add_given(bytes.size());
    k.weights =
        std::make_unique<Hdf5File>(std::move(bytes), fmt::format("{}: {}", path.str(), kWeights));
    k.group = k.weights->root();
    return k;
  }
  k.weights = std::make_unique<Hdf5File>(path);
  const Hdf5File& f = *k.weights;
  k.group = f.root();
  const std::vector<std::string> config = f.texts(k.group, "model_config");
  if (config.size() == 1) k.config = config[0];
  Hdf5File::Object inner = 0;
  if (f.find(k.group, "model_weights", inner)) k.group = inner;
  for (const std::string& a : f.attributes(k.group)) k.by_name |= a.starts_with("layer_names");
  return k;
}

std::vector<std::string> keras_texts(const Hdf5File& file, Hdf5File::Object o,
                                     const std::string& name) {
  std::vector<std::string> out = file.texts(o, name);
  if (!out.empty()) return out;
  for (int i = 0;; ++i) {
    const std::vector<std::string> part = file.texts(o, fmt::format("{}{}", name, i));
    if (part.empty()) return out;
    out.insert(out.end(), part.begin(), part.end());
  }
}

StateDict keras_tensors(const KerasFile& file) {
  StateDict out;
  if (file.by_name)
    collect_by_name(file, out);
  else
    collect(file, file.group, "", 0, out);
  return out;
}

}  // namespace tandem::io
