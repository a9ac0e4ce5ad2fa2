// SPDX-License-Identifier: Apache-2.0
#include "tandem/serve/deploy/models_internal.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>

#include "tandem/base/error.h"
#include "tandem/base/files/file.h"
#include "tandem/base/files/folder.h"
#include "tandem/onnx/external.h"
#include "tandem/recipe/loaded_model.h"
#include "tandem/recipe/open_run.h"
#include "tandem/serve/model/folder_internal.h"
#include "tandem/serve/model/repository.h"
#include "tandem/serve/text/text_steps_internal.h"

namespace tandem::serve {
namespace {

namespace fs = std::filesystem;

/// Collects the files of one model's version.
class ModelFiles {
 public:
  ModelFiles(DeployedModels& out, std::string root, bool links)
      : out_(out), root_(std::move(root)), links_(links) {}

  void add(const std::string& from, const std::string& to) {
    std::error_code error;
    const std::string real = fs::canonical(from, error).string();
    TD_CHECK(!error, Io, "'{}': {}", from, error.message());
    TD_CHECK(links_ || real == root_ || real.starts_with(root_ + "/"), Value,
             "the link '{}' leads out of the folder of models\nGive --set links=true if that is "
             "meant.",
             from);
    out_.file_bytes += fs::file_size(real, error);
    out_.files.push_back({.name = to, .source = real});
  }
  /// What lies in a folder; `wanted` says of a name below it whether it is.
  template <class Wanted>
  void add_folder(const std::string& from, const std::string& to, const Wanted& wanted) {
    std::error_code error;
    for (const std::string& name : list_folder(from)) {
      const std::string path = from + "/" + name;
      if (name[0] == '.' || !wanted(name)) continue;
      if (fs::is_directory(path, error))
        add_folder(path, to + "/" + name, wanted);
      else if (fs::is_regular_file(path, error))
        add(path, to + "/" + name);
    }
  }

 private:
  DeployedModels& out_;
  std::string root_;
  bool links_;
};

// A run's folder: what opens it does not read its checkpoints, unless the best is wanted, nor what
// it wrote for people.
void add_run(ModelFiles& files, const std::string& from, const std::string& to, bool best) {
  files.add_folder(from, to, [best](const std::string& name) {
    return (name != "checkpoints" || best) && name != "report.html" && name != "LOCK" &&
           !name.starts_with("events.out.tfevents");
  });
}

// An ONNX file with the files that it names.
void add_onnx(ModelFiles& files, const std::string& from, const std::string& to) {
  files.add(from, to);
  if (!recipe::is_onnx(from)) return;
  const fs::path there = fs::path(from).parent_path(), here = fs::path(to).parent_path();
  for (const fs::path location : onnx::external_locations(from)) {
    std::error_code error;
    if (location.is_relative() && fs::is_regular_file(there / location, error))
      files.add((there / location).string(), (here / location).lexically_normal().string());
  }
}

void add_version(ModelFiles& files, const std::string& from, const std::string& to, bool best) {
  if (recipe::is_run(from)) return add_run(files, from, to, best);
  std::error_code error;
  if (fs::is_directory(from, error))
    return files.add_folder(from, to, [](const std::string&) { return true; });
  add_onnx(files, from, to + "/" + fs::path(from).filename().string());
}

// What one version takes: weights, and memory of a run on the largest batch. `load` is not cheap;
// nothing is computed.
void add_memory(DeployedModels& out, const std::string& path, const ModelSettings& s) {
  recipe::LoadedModel model = recipe::is_run(path) ? recipe::load_run(path, s.weights)
                                                   : recipe::load_model({.model = path});
  const double narrow = s.dtype == "bf16" && model.pretrained ? 0.5 : 1;
  double weights = static_cast<double>(model.weight_bytes);
  if (weights == 0)
    for (const auto& [name, value] : model.state)
      weights += static_cast<double>(value.numel()) * static_cast<double>(size_of(value.dtype()));
  out.weights += weights * narrow;
  const bool writes =
      model.pretrained && (model.pretrained->is_causal() || models::paged_pair(*model.pretrained));
  if (writes && s.text) {
    out.texts = true;
    out.cache +=
        narrow * bytes_of_cache(*model.pretrained,
                                {.streams = s.streams,
                                 .length = s.length,
                                 .cache_bytes = static_cast<int64_t>(s.cache_mb * 1048576)});
  }
  for (recipe::ModelPort& port : model.inputs)
    if (!port.shape.empty() && port.shape[0] < 0) port.shape[0] = s.max_batch;
  recipe::set_shapes(model, s.shapes);
  out.arena +=
      static_cast<double>(recipe::figures_of(model).peak_bytes) * static_cast<double>(s.instances);
}

// Memory of this process that no file is behind.
double anonymous_bytes() {
  const std::string status = read_file("/proc/self/status", size_t{1} << 20);
  const size_t at = status.find("RssAnon:");
  return at == std::string::npos ? 0 : 1024 * std::strtod(status.c_str() + at + 8, nullptr);
}

// Loads every model as the server will: one that cannot be served is an error here already. What
// they take then, with weights in the forms that kernels want, comes back.
double load_once(const std::string& models, ModelSettings defaults, bool links) {
  defaults.warm_seconds = 0;
  const double before = anonymous_bytes();
  Repository repository({.folder = models, .defaults = defaults, .links = links});
  repository.load_all();
  for (const IndexEntry& e : repository.index())
    TD_CHECK(e.ready, Value, "'{}' cannot be served: {}", e.name, e.reason);
  repository.wait_for_warm_up();
  return std::max(anonymous_bytes() - before, 0.0);
}

}  // namespace

DeployedModels find_models(const std::string& models, const ModelSettings& defaults, bool links) {
  const ModelFolder folder(models, links);
  DeployedModels out{.names = folder.names()};
  TD_CHECK(!out.names.empty(), Format, "'{}' holds no models", models);
  std::string name = fs::path(folder.root()).filename().string();
  for (const std::string_view ending : {".onnx", ".tflite"})
    if (name.ends_with(ending)) name.resize(name.size() - ending.size());
  out.name = name;
  std::error_code error;
  const std::string root = fs::is_directory(folder.root(), error)
                               ? folder.root()
                               : fs::path(folder.root()).parent_path().string();
  out.loaded = load_once(models, defaults, links);  // first: freed memory would be used again
  ModelFiles files(out, root, links);
  for (const std::string& model : out.names) {
    const ModelSettings settings = folder.settings(model, defaults);
    const std::string place = "models/" + model;
    out.cache += settings.response_cache_mb * 1048576;
    for (const auto& [version, path] : folder.chosen(model, settings)) {
      add_version(files, path, fmt::format("{}/{}", place, version), settings.weights == "best");
      try {
        add_memory(out, path, settings);
      } catch (const Error& e) {
        // A size that depends on values cannot be planned; what cannot be opened is an error.
        if (e.kind() != ErrorKind::Unsupported) throw;
        out.notes.push_back(fmt::format("{}: {}", model, e.message()));
      }
    }
    if (const std::string file = folder.settings_file(model); !file.empty())
      files.add(file, place + "/serve.yaml");
    std::vector<std::string> others;
    for (const TextAdapter& a : folder.adapters(model, settings)) others.push_back(a.folder);
    if (!settings.draft.empty() && settings.draft != "prompt")
      others.push_back(folder.below(model, settings.draft));
    for (const std::string& path : others)
      files.add_folder(path,
                       (fs::path(place) / fs::path(path).lexically_relative(folder.path_of(model)))
                           .lexically_normal()
                           .string(),
                       [](const std::string&) { return true; });
  }
  std::sort(out.files.begin(), out.files.end(),
            [](const LayerFile& a, const LayerFile& b) { return a.name < b.name; });
  out.files.erase(
      std::unique(out.files.begin(), out.files.end(),
                  [](const LayerFile& a, const LayerFile& b) { return a.name == b.name; }),
      out.files.end());
  return out;
}

}  // namespace tandem::serve
