// SPDX-License-Identifier: Apache-2.0
// Shards that an index names, as Hugging Face writes them.
#include <fmt/format.h>

#include <filesystem>
#include <map>

#include "tandem/base/error.h"
#include "tandem/io/json.h"
#include "tandem/weights/formats.h"
#include "tandem/weights/weights.h"

namespace tandem::weights {
namespace {

namespace fs = std::filesystem;
constexpr size_t kMostIndex = size_t{100} << 20;

StateDict load_index(const FilePath& file);

/// The shard `name` in the index's folder: the name may not contain a folder. It may be a link
/// (Hugging Face's cache consists of links), but only to a regular file.
std::string shard_path(const std::string& index, const std::string& name) {
  TD_CHECK(!name.empty() && name.size() < 256 && name != "." && name != ".." &&
               name.find_first_of(std::string_view("/\\\0", 3)) == std::string::npos,
           Format, "'{}': the shard {} is not a plain file name", index, io::quote_json(name));
  const fs::path path = fs::path(index).parent_path() / name;
  std::error_code error;
  TD_CHECK(fs::is_regular_file(path, error), Format, "'{}': the shard {} does not exist", index,
           io::quote_json(name));
  return path.string();
}

StateDict load_index(const FilePath& file_path) {
  const std::string path = file_path.str();
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
    TD_CHECK(weights_format(shard).read != load_index, Format,
             "'{}': the shard {} is itself an index", path, io::quote_json(at->first));
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

bool holds_index(std::string_view content, const FilePath&) {
  const size_t first = content.find_first_not_of(" \t\r\n");
  return first != std::string_view::npos && content[first] == '{';
}

}  // namespace

namespace format_rows {
constinit const WeightsFormat safetensors_index = {
    {"safetensors_index", "JSON that names the shard of each tensor.",
     "model.safetensors.index.json"},
    "safetensors index",
    "",
    holds_index,
    load_index};
}  // namespace format_rows

}  // namespace tandem::weights
