// SPDX-License-Identifier: Apache-2.0
#include "tandem/interop/weights.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <map>
#include <optional>
#include <set>

#include "tandem/base/nearest.h"
#include "tandem/interop/torch_file.h"
#include "tandem/io/json.h"
#include "tandem/io/npy.h"
#include "tandem/io/safetensors.h"
#include "tandem/io/zip_internal.h"

namespace tandem::interop {
namespace {

namespace fs = std::filesystem;
constexpr size_t kMostIndex = size_t{100} << 20;

/// The shard `name` beside the index. Its name has no folder in it, so it lies in the index's; it
/// may be a link (Hugging Face's cache consists of links), but only to a plain file.
std::string shard_path(const std::string& index, const std::string& name) {
  TD_CHECK(!name.empty() && name.size() < 256 && name != "." && name != ".." &&
               name.find_first_of(std::string_view("/\\\0", 3)) == std::string::npos,
           Format, "'{}': the shard {} is no plain file name", index, io::quote_json(name));
  const fs::path path = fs::path(index).parent_path() / name;
  std::error_code error;
  TD_CHECK(fs::is_regular_file(path, error), Format, "'{}': the shard {} is not there", index,
           io::quote_json(name));
  return path.string();
}

StateDict load_index(const std::string& path) {
  const io::Json json = io::parse_json(read_file(path, kMostIndex), path, {.depth = 8});
  const io::Json* map = json.find("weight_map");
  TD_CHECK(map && map->as_object(), Format, "'{}': there is no object weight_map", path);
  if (const io::Json* meta = json.find("metadata"))
    if (const io::Json* size = meta->find("total_size"))
      TD_CHECK((size->as_int() && *size->as_int() >= 0) || size->as_double(), Format,
               "'{}': total_size is {}", path, size->dump());
  std::map<std::string, StateDict> shards;
  std::map<std::string, std::string> place;
  for (const auto& [name, file] : *map->as_object()) {
    TD_CHECK(file.as_string(), Format, "'{}': the shard of {} is {}", path, io::quote_json(name),
             file.kind());
    place[name] = *file.as_string();
    auto [at, fresh] = shards.try_emplace(*file.as_string());
    if (!fresh) continue;
    const std::string shard = shard_path(path, *file.as_string());
    TD_CHECK(weights_format(shard) != WeightsFormat::safetensors_index, Format,
             "'{}': the shard {} is an index again", path, io::quote_json(at->first));
    at->second = load_weights(shard);
  }
  for (const auto& [file, tensors] : shards)
    for (const auto& [name, t] : tensors) {
      const auto at = place.find(name);
      TD_CHECK(at != place.end() && at->second == file, Format,
               "'{}': the shard {} holds {}, which the index {}", path, io::quote_json(file),
               io::quote_json(name),
               at == place.end() ? "does not name" : "places in another shard");
    }
  StateDict out;
  for (const auto& [name, file] : *map->as_object()) {
    const Tensor* t = shards[*file.as_string()].find(name);
    TD_CHECK(t, Format, "'{}': the shard {} does not hold {}", path,
             io::quote_json(*file.as_string()), io::quote_json(name));
    out[name] = *t;
  }
  return out;
}

std::string file_in(const std::string& folder) {
  for (const char* name : {"model.safetensors.index.json", "model.safetensors",
                           "pytorch_model.bin.index.json", "pytorch_model.bin"}) {
    const std::string path = (fs::path(folder) / name).string();
    if (file_exists(path)) return path;
  }
  TD_FAIL(Io, "'{}': there is no model.safetensors and no pytorch_model.bin in this folder",
          folder);
}

}  // namespace

const char* to_string(WeightsFormat f) {
  constexpr const char* kNames[] = {"safetensors", "safetensors index", "PyTorch", "NumPy npz"};
  return kNames[static_cast<int>(f)];
}

WeightsFormat weights_format(const FilePath& path) {
  const auto file = make_ref<MappedFile>(path);
  const std::string_view all = file->view();
  if (all.starts_with("PK")) {
    const io::ZipReader zip(path);
    for (const io::ZipMember& m : zip.members())
      if (m.name == "data.pkl" || m.name.ends_with("/data.pkl")) return WeightsFormat::torch;
    return WeightsFormat::npz;
  }
  if (all.starts_with("\x80\x02")) return WeightsFormat::torch;
  TD_CHECK(!all.starts_with("\x93NUMPY"), Format,
           "'{}': this is one array without a name\nPut it into an .npz file under the name that "
           "the model wants.",
           path.str());
  const size_t first = all.find_first_not_of(" \t\r\n");
  if (first != std::string_view::npos && all[first] == '{') return WeightsFormat::safetensors_index;
  TD_CHECK(all.size() > 8 && all[8] == '{', Format,
           "'{}': this is no file of weights: neither safetensors, nor PyTorch's, nor .npz",
           path.str());
  return WeightsFormat::safetensors;
}

StateDict load_weights(const FilePath& path) {
  std::error_code error;
  if (fs::is_directory(path.str(), error)) return load_weights(file_in(path.str()));
  switch (weights_format(path)) {
    case WeightsFormat::safetensors:
      return load(path);
    case WeightsFormat::safetensors_index:
      return load_index(path.str());
    case WeightsFormat::torch:
      return load_torch_state(path);
    case WeightsFormat::npz:
      return io::load_npz(path);
  }
  __builtin_unreachable();
}

void save_weights(const StateDict& tensors, const FilePath& path) {
  const std::string ending = fs::path(path.str()).extension().string();
  if (ending == ".safetensors") return save(tensors, path);
  if (ending == ".npz") return io::save_npz(tensors, path);
  if (ending == ".pth" || ending == ".pt" || ending == ".bin")
    return save_torch(TorchValue(tensors), path);
  TD_FAIL(Value,
          "'{}': the ending says the format: .safetensors, .pth, .pt, .bin or .npz, not '{}'",
          path.str(), ending);
}

// ---- into a model

namespace {

/// `text` with every `from` replaced, or nothing where there is none.
std::optional<std::string> replaced(const std::string& text, std::string_view from,
                                    std::string_view to) {
  const size_t at = text.find(from);
  if (at == std::string::npos) return {};
  return text.substr(0, at) + std::string(to) + text.substr(at + from.size());
}

/// The name in the model that a name of a file stands for, or nothing.
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

std::string lines(const char* title, const std::vector<std::string>& names) {
  constexpr size_t kShown = 10;
  if (names.empty()) return "";
  std::string out = fmt::format("{} {}:", names.size(), title);
  for (size_t i = 0; i < std::min(names.size(), kShown); ++i) out += "\n  " + names[i];
  if (names.size() > kShown) out += fmt::format("\n  and {} more", names.size() - kShown);
  return out + "\n";
}

}  // namespace

std::string WeightsReport::to_string() const {
  std::vector<std::string> wanted;
  for (const std::string& name : missing) {
    const std::string near = nearest_word(name, unexpected);
    wanted.push_back(near.empty() ? name : name + "  (the file has " + near + ")");
  }
  std::vector<std::string> shapes;
  for (const Shapes& s : misshaped)
    shapes.push_back(fmt::format("{}: {} in the model, {} in the file", s.name, s.model, s.file));
  return fmt::format("{} loaded\n", loaded) + lines("missing", wanted) +
         lines("unexpected", unexpected) + lines("of another shape", shapes);
}

WeightsReport load_into(nn::Module& m, const StateDict& values, LoadIntoOptions options) {
  // state_dict() names tied cells under every name; parameters() once. The former is what files
  // hold.
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

}  // namespace tandem::interop
