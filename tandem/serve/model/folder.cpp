// SPDX-License-Identifier: Apache-2.0
#include <filesystem>

#include "tandem/base/error.h"
#include "tandem/base/files/folder.h"
#include "tandem/base/files/private_folder.h"
#include "tandem/base/log.h"
#include "tandem/onnx/external.h"
#include "tandem/recipe/fields.h"
#include "tandem/recipe/loaded_model.h"
#include "tandem/recipe/open_run.h"
#include "tandem/serve/http/message.h"
#include "tandem/serve/model/folder_internal.h"
#include "tandem/serve/model/foreign_text_internal.h"
#include "tandem/serve/model/repository.h"

namespace tandem::serve {
namespace {

namespace fs = std::filesystem;

// "12" but not "012": a version's folder.
int64_t version_of(const std::string& name) {
  const auto v = parse_digits(name, uint64_t{1} << 53);
  return v && *v > 0 && name[0] != '0' ? static_cast<int64_t>(*v) : 0;
}

// Files that are models by themselves.
std::string without_ending(const std::string& name) {
  for (const std::string_view ending : {".onnx", ".tflite"})
    if (name.ends_with(ending)) return name.substr(0, name.size() - ending.size());
  return name;
}
bool is_model_file(const std::string& name) { return without_ending(name) != name; }

}  // namespace

std::string model_at(const std::string& path) {
  std::error_code error;
  if (recipe::is_run(path) || recipe::is_graph_file(path)) return path;
  if (!fs::is_directory(path, error)) return "";
  if (fs::is_regular_file(path + "/config.json", error) ||
      fs::is_regular_file(path + "/modules.json", error))
    return path;
  std::string found;
  for (const std::string& name : list_folder(path)) {
    if (!is_model_file(name) || name[0] == '.') continue;
    if (without_ending(name) == "model") return path + "/" + name;
    if (!found.empty()) return "";
    found = path + "/" + name;
  }
  return found;
}

bool is_model_name(std::string_view name) {
  constexpr size_t kLongest = 128;
  if (name.empty() || name.size() > kLongest || name[0] == '.') return false;
  for (const char c : name)
    if (!((c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' ||
          c == '-' || c == '.'))
      return false;
  return true;
}

ModelFolder::ModelFolder(std::string root, bool links, const std::string& from)
    : root_(std::move(root)), links_(links) {
  if (!from.empty()) {
    foreign_ = open_foreign(from, root_);
    root_ = fs::canonical(root_).string();
    return;
  }
  std::error_code error;
  const fs::path real = fs::canonical(root_, error);
  TD_CHECK(!error, Io, "'{}': {}", root_, error.message());
  root_ = real.string();
  if (model_at(root_).empty()) {
    TD_CHECK(fs::is_directory(real), Format, "'{}' is neither a model nor a folder of models",
             root_);
    return;
  }
  // A folder that holds one ONNX file is a folder of models, too; a run is one model.
  if (fs::is_directory(real) && model_at(root_) != root_) return;
  own_name_ = without_ending(real.filename().string());
  TD_CHECK(is_model_name(own_name_), Value,
           "'{}' cannot be a model's name\nRename it: letters, digits, '_', '-' and '.'.",
           own_name_);
}

std::vector<std::string> ModelFolder::names() const {
  if (foreign_) return foreign_->names();
  if (!own_name_.empty()) return {own_name_};
  std::vector<std::string> out;
  std::error_code error;
  for (const std::string& entry : list_folder(root_)) {
    const std::string name = without_ending(entry);
    const bool folder = fs::is_directory(root_ + "/" + entry, error);
    if (!is_model_name(name) || (name == entry && !folder)) continue;
    if (std::find(out.begin(), out.end(), name) == out.end()) out.push_back(name);
  }
  return out;
}

void ModelFolder::check_inside(const std::string& path, const std::string& root) const {
  if (links_) return;
  std::error_code error;
  const std::string real = fs::canonical(path, error).string();
  TD_CHECK(!error && (real == root || real.starts_with(root + "/")), Value,
           "a path leads out of the folder of models");
}

// What lies in a model's folder, too. A folder that was named as the one model may be made of
// links, as caches are.
void ModelFolder::check_all_inside(const std::string& path, const std::string& root) const {
  check_inside(path, root);
  std::error_code error;
  if (links_ || path == root_ || !fs::is_directory(path, error)) return;
  for (fs::recursive_directory_iterator at(path, error), end; !error && at != end;
       at.increment(error))
    if (std::error_code none; at->is_symlink(none) && fs::exists(at->path(), none))
      check_inside(at->path().string(), root);
}

// Only what the folder lists is looked at: no name that a client sent becomes part of a path.
std::string ModelFolder::path_of(const std::string& name) const {
  TD_CHECK(is_model_name(name), Value, "that is not the name of a model");
  if (foreign_) return foreign_->model(name, {}).folder;
  if (name == own_name_) return root_;
  if (own_name_.empty())
    for (const std::string& entry : list_folder(root_))
      if (entry == name || (is_model_file(entry) && without_ending(entry) == name)) {
        const std::string path = root_ + "/" + entry;
        check_inside(path);
        return path;
      }
  TD_FAIL(Value, "there is no model '{}'", name);
}

std::map<int64_t, std::string> ModelFolder::versions(const std::string& name) const {
  std::map<int64_t, std::string> out;
  if (foreign_) {
    const ForeignModel model = foreign_->model(name, {});
    for (const auto& [version, path] : model.versions) check_all_inside(path, model.folder);
    TD_CHECK(!model.versions.empty(), Format,
             "'{}' holds no model in folders 1, 2 ...: ONNX files and SavedModels are read", name);
    return model.versions;
  }
  const std::string path = path_of(name);
  if (const std::string found = model_at(path); !found.empty()) {
    check_all_inside(found);
    out[1] = found;
    return out;
  }
  for (const std::string& entry : list_folder(path)) {
    const int64_t version = version_of(entry);
    if (version == 0) continue;
    const std::string found = model_at(path + "/" + entry);
    if (found.empty()) continue;
    check_all_inside(found);
    out[version] = found;
  }
  TD_CHECK(!out.empty(), Format,
           "'{}' holds no model\nPut a model.onnx, a run's folder or a Hugging Face folder there, "
           "or folders 1, 2 ... with one each.",
           name);
  return out;
}

std::map<int64_t, std::string> ModelFolder::chosen(const std::string& name,
                                                   const ModelSettings& s) const {
  if (!s.ensemble.empty()) return {};
  std::map<int64_t, std::string> all = versions(name), out;
  const auto take = [&](int64_t v) {
    const auto at = all.find(v);
    TD_CHECK(at != all.end() || out.count(v), Value,
             "'{}' has no version {}, which its settings name", name, v);
    if (at != all.end()) out.insert(all.extract(at));
  };
  // Those that are tried come besides those that the policy chooses.
  for (const int64_t v : {s.canary.version, s.shadow})
    if (v > 0) take(v);
  TD_CHECK(out.empty() || !all.empty(), Value,
           "'{}' has no version besides those that its settings try", name);
  if (!s.versions.empty()) {
    for (const int64_t v : s.versions) take(v);
    return out;
  }
  while (s.latest > 0 && all.size() > static_cast<size_t>(s.latest)) all.erase(all.begin());
  all.merge(out);
  return all;
}

std::string ModelFolder::settings_file(const std::string& name) const {
  std::string file = path_of(name) + "/serve.yaml";
  return file_exists(file) ? file : "";
}

ModelStamps ModelFolder::stamps(const std::string& name, FolderLook& files) const {
  ModelStamps out{.there = true};
  std::map<int64_t, std::string> all;
  std::string path;
  if (foreign_) {
    ForeignModel model = foreign_->model(name, {});
    path = model.folder;
    std::vector<std::string> homes = {path};
    for (const std::string& file : foreign_->configuration(name)) {
      homes.push_back(fs::path(file).parent_path().string());
      files.file(file, out.settings);
    }
    for (const std::string& home : homes) {
      files.pass(home);
      for (const auto& [version, at] : version_folders(home)) files.pass(at);  // empty ones, too
    }
    all = std::move(model.versions);
  } else {
    path = path_of(name);
    try {
      all = versions(name);
    } catch (const Error&) {  // nothing that could be one yet
      all.clear();
    }
  }
  std::vector<std::string> apart;  // where versions lie
  for (const auto& [number, at] : all) {
    const std::string beside = fs::path(at).parent_path().string();
    const bool folder = fs::is_directory(at), alone = beside != root_ && at != path;
    files.version(at, alone, out.versions[number]);
    apart.push_back(folder || !alone ? at : beside);
  }
  const auto of_version = [&apart](const std::string& at) {
    return std::find(apart.begin(), apart.end(), at) != apart.end();
  };
  if (!foreign_ && fs::is_directory(path) && !of_version(path))
    files.folder(path, out.settings, of_version);
  return out;
}

ModelSettings ModelFolder::settings(const std::string& name, const ModelSettings& defaults,
                                    bool quiet) const {
  if (foreign_) {
    ForeignModel model = foreign_->model(name, defaults);
    for (const std::string& note : model.notes)
      if (!quiet) log_warning("'{}': {}", name, note);
    return std::move(model.settings);
  }
  const std::string file = settings_file(name);
  ModelSettings s = defaults;
  if (file.empty()) return s;
  const io::Yaml root = io::parse_yaml(read_file(file, size_t{1} << 20), name + "/serve.yaml");
  recipe::Options o(&root, "", name + "/serve.yaml");
  recipe::read_fields(o, s);
  o.finish();
  return s;
}

std::string ModelFolder::below(const std::string& name, const std::string& path) const {
  std::error_code error;
  const fs::path at = fs::canonical(fs::path(path_of(name)) / path, error);
  TD_CHECK(!error && fs::is_directory(at, error), Value, "'{}' has no folder '{}'", name, path);
  check_inside(at.string());
  return at.string();
}

std::vector<TextAdapter> ModelFolder::adapters(const std::string& name,
                                               const ModelSettings& s) const {
  std::vector<TextAdapter> out;
  for (const std::string& entry : s.adapters) {
    const size_t is = entry.find('=');
    TD_CHECK(is != entry.npos && is_model_name(entry.substr(0, is)) && is + 1 < entry.size(), Value,
             "'adapters' of '{}' expects entries as sql=adapters/sql, got '{}'", name, entry);
    TextAdapter next{entry.substr(0, is), entry.substr(is + 1)};
    TD_CHECK(next.name != name, Value, "an adapter of '{}' has the model's name", name);
    for (const TextAdapter& other : out)
      TD_CHECK(other.name != next.name, Value, "'{}' has two adapters '{}'", name, next.name);
    next.folder = below(name, next.folder);
    out.push_back(std::move(next));
  }
  return out;
}

namespace {

// A plain file below `folder` that no link leads to. What reads the copy refuses all others.
bool is_plain_below(const fs::path& folder, const fs::path& location) {
  if (location.empty() || location.is_absolute()) return false;
  fs::path at = folder;
  for (const fs::path& part : location) {
    if (part == ".." || part == ".") return false;
    at /= part;
    std::error_code error;
    if (fs::is_symlink(fs::symlink_status(at, error))) return false;
  }
  std::error_code error;
  return fs::is_regular_file(at, error);
}

// A file, and where it is an ONNX file those in which its weights lie.
std::error_code copy_with_data(const fs::path& from, const fs::path& to) {
  std::error_code error;
  fs::copy_file(from, to / from.filename(), error);
  if (error || from.extension() != ".onnx") return error;
  for (const fs::path location : onnx::external_locations(from.string())) {
    if (!is_plain_below(from.parent_path(), location)) continue;
    fs::create_directories((to / location).parent_path(), error);
    if (!error) fs::copy_file(from.parent_path() / location, to / location, error);
    if (error) return error;
  }
  return error;
}

}  // namespace

PrivateCopy::PrivateCopy(const std::string& path, bool copy) : path_(path) {
  if (!copy || recipe::is_run(path)) return;
  const PrivateFolder folder = PrivateFolder::temporary("serve");
  TD_CHECK(static_cast<bool>(folder), Io, "no folder for a copy of '{}': {}\nSet copy: false.",
           path, folder.problem());
  folder_ = folder.path();
  const fs::path from(path);
  std::error_code error;
  if (fs::is_directory(from))
    fs::copy(from, folder_, fs::copy_options::recursive, error);
  else
    error = copy_with_data(from, folder_);
  if (error) {
    remove_folder(folder_);
    TD_FAIL(Io, "'{}' cannot be copied: {}\nSet copy: false, or make room in $TMPDIR.", path,
            error.message());
  }
  path_ = fs::is_directory(from) ? folder_ : folder_ + "/" + from.filename().string();
}

PrivateCopy::~PrivateCopy() {
  if (folder_.empty()) return;
  try {
    remove_folder(folder_);
  } catch (const Error&) {  // it stays, in the user's temporary files
    return;
  }
}

}  // namespace tandem::serve
