// SPDX-License-Identifier: Apache-2.0
#include "tandem/serve/deploy/deploy.h"

#include <fmt/format.h>
#include <sys/stat.h>

#include <algorithm>
#include <cmath>
#include <filesystem>

#include "tandem/base/error.h"
#include "tandem/base/files/folder.h"
#include "tandem/base/nearest.h"
#include "tandem/io/yaml.h"
#include "tandem/serve/deploy/targets_internal.h"

namespace tandem::serve {
namespace {

namespace fs = std::filesystem;

// The process itself with its libraries.
constexpr double kProcessBytes = 160.0 * 1048576;
constexpr double kMargin = 1.25;

const DeployTarget& target_of(const std::string& name) {
  std::vector<std::string> names;
  for (const DeployTarget& t : deploy_table()) {
    if (t.name == name) return t;
    names.emplace_back(t.name);
  }
  const std::string near = nearest_word(name, names);
  TD_FAIL(Value, "there is no target '{}'{}\nTargets: {}.", name,
          near.empty() ? "" : fmt::format(", did you mean '{}'?", near), fmt::join(names, ", "));
}

// Images and units have names of lower-case letters, digits and '-'.
std::string plain_name(const std::string& text) {
  std::string out;
  for (char c : text) {
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
    const bool plain = (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9');
    if (plain) out += c;
    if (!plain && !out.empty() && out.back() != '-') out += '-';
  }
  constexpr size_t kLongest = 40;  // names in a cluster have 63
  out.resize(std::min(out.size(), kLongest));
  while (!out.empty() && out.back() == '-') out.pop_back();
  return out.empty() ? "models" : out;
}

// The text of the settings, which a server reads: the target's, then the caller's.
std::string config_text(const std::vector<std::string>& changes) {
  io::Yaml root;
  root.kind = io::Yaml::Kind::map;
  for (const std::string& change : changes) {
    const size_t is = change.find('=');
    TD_CHECK(is != std::string::npos && is > 0, Value, "'{}' is not a KEY=VALUE", change);
    io::set_yaml(root, change.substr(0, is), change.substr(is + 1));
  }
  return "# Settings of tandem serve: docs/serving.md\n" + root.dump();
}

// The program, what it is linked with, and its settings.
ImageLayer program_layer(const Deployment& d) {
  ImageLayer layer{.comment = "tandem and the libraries that it needs"};
  layer.folders = {{"tmp", 01777}, {"models", 0755}};
  layer.files.push_back({.name = "usr/bin/tandem", .source = d.program.program, .mode = 0755});
  layer.files.push_back(
      {.name = d.program.interpreter.substr(1), .source = d.program.interpreter, .mode = 0755});
  for (const auto& [name, path] : d.program.libraries)
    layer.files.push_back(
        {.name = d.program.folder.substr(1) + "/" + name, .source = path, .mode = 0755});
  layer.files.push_back(
      {.name = "etc/passwd", .text = "tandem:x:65532:65532:tandem:/tmp:/usr/sbin/nologin\n"});
  layer.files.push_back({.name = "etc/group", .text = "tandem:x:65532:\n"});
  return layer;
}

void write_container(Deployment& d, const DeployTarget& target, DeployReport& report) {
  ImageLayer settings{.comment = "settings"};
  settings.files.push_back({.name = std::string(kConfigInImage).substr(1), .text = d.config});
  ImageLayer models{.comment = "models", .files = d.models.files};
  models.files.insert(models.files.end(), settings.files.begin(), settings.files.end());
  ImageOptions o{
      .name = d.name,
      .tag = d.options.tag,
      .entrypoint = target.entrypoint,
      .arguments = target.arguments,
      .environment = {"PATH=/usr/bin", std::string(kConfigVariable) + "=" + kConfigInImage},
      .port = d.settings.port,
      .machine = read_elf(d.program.program).machine};
  o.labels = {{"org.opencontainers.image.title", d.name},
              {"org.opencontainers.image.version", TANDEM_VERSION}};
  const WrittenImage image =
      write_image(d.options.folder + "/image", {program_layer(d), models}, o);
  d.layers = image.layers;
  report.digest = image.digest;
  report.image_bytes = static_cast<double>(image.bytes);
  report.files.emplace_back("image/");
}

// The files of the tree that systemd's target copies.
std::vector<LayerFile> tree_files(const Deployment& d) {
  std::vector<LayerFile> out = {
      {.name = "bin/tandem", .source = d.program.program, .mode = 0755},
      {.name = "lib/" + fs::path(d.program.interpreter).filename().string(),
       .source = d.program.interpreter,
       .mode = 0755}};
  for (const auto& [name, path] : d.program.libraries)
    out.push_back({.name = "lib/" + name, .source = path, .mode = 0755});
  out.insert(out.end(), d.models.files.begin(), d.models.files.end());
  return out;
}

void write_tree(const Deployment& d, DeployReport& report) {
  const fs::path root = d.options.folder;
  const auto copy = [&root](const std::string& from, const std::string& to) {
    make_folders((root / to).parent_path().string());
    std::error_code error;
    fs::copy_file(from, root / to, error);
    TD_CHECK(!error, Io, "'{}' cannot be copied to '{}': {}", from, (root / to).string(),
             error.message());
  };
  for (const LayerFile& f : tree_files(d)) copy(f.source, f.name);
  write_file((root / "serve.yaml").string(), d.config);
  for (const char* name : {"bin/", "lib/", "models/", "serve.yaml"})
    report.files.emplace_back(name);
}

void write_tree_package(Deployment& d, DeployReport& report) {
  ImageLayer layer{.comment = "", .files = tree_files(d)};
  layer.files.push_back({.name = "serve.yaml", .text = d.config});
  for (const TextFile& f : unit_files(d))
    layer.files.push_back({.name = f.name, .text = f.text, .mode = f.mode});
  const std::string name = d.name + ".tar.gz", path = d.options.folder + "/" + name;
  d.layers = {write_package(path, layer)};
  report.digest = "sha256:" + d.layers[0];
  report.image_bytes = static_cast<double>(fs::file_size(path));
  report.files.push_back(name);
}

}  // namespace

std::string mebibytes(double bytes) {
  constexpr double kStep = 32.0 * 1048576;
  return fmt::format("{:.0f}Mi", std::ceil(bytes / kStep) * 32);
}

std::vector<std::string> deploy_targets() {
  std::vector<std::string> out;
  for (const DeployTarget& t : deploy_table()) out.emplace_back(t.name);
  return out;
}

DeployReport deploy(const DeployOptions& o) {
  const DeployTarget& target = target_of(o.target);
  std::error_code error;
  TD_CHECK(!fs::exists(o.folder, error) || fs::is_empty(o.folder, error), Value,
           "'{}' is there and holds something\nGive the name of a new folder.", o.folder);
  // The caller's settings, checked as the server checks them.
  std::vector<std::string> changes = target.settings(o);
  changes.insert(changes.end(), o.settings.begin(), o.settings.end());
  const ServerSettings settings = read_server_settings("", changes);
  TD_CHECK(settings.from.empty(), Unsupported,
           "folders of other servers are not deployed\nPut the models into a folder of your own: "
           "docs/serving.md shows it.");
  const DeployedModels models = find_models(o.models, settings.defaults, settings.links);
  if (models.names.size() == 1 && settings.default_model.empty())
    changes.push_back("default_model=" + models.names[0]);
  if (!o.keys.empty()) ApiKeys::parse(read_file(o.keys, 1 << 20), o.keys);
  const ProgramFiles program = files_of_program(o.program);
  Deployment d{.options = o,
               .models = models,
               .program = program,
               .settings = settings,
               .name = plain_name(o.name.empty() ? models.name : o.name),
               .image = o.image,
               .config = config_text(changes)};
  if (d.image.empty()) d.image = d.name + ":" + o.tag;
  d.memory = kMargin * (kProcessBytes + std::max(models.weights, models.loaded) + models.arena +
                        models.cache + settings.in_flight_mb * 1048576);
  make_folders(o.folder);
  DeployReport report{.models = models.names,
                      .weights = models.weights,
                      .loaded = models.loaded,
                      .arena = models.arena,
                      .cache = models.cache,
                      .memory = d.memory,
                      .notes = models.notes};
  using Form = DeployTarget::Form;
  if (target.form == Form::container) write_container(d, target, report);
  if (target.form == Form::tree) write_tree(d, report);
  if (target.form == Form::package) write_tree_package(d, report);
  for (const TextFile& f : target.files(d)) {
    const std::string path = o.folder + "/" + f.name;
    write_file(path, f.text);
    TD_CHECK(chmod(path.c_str(), static_cast<mode_t>(f.mode)) == 0, Io, "'{}' cannot be written",
             path);
    report.files.push_back(f.name);
  }
  for (const std::string& name : program.missing)
    report.notes.push_back(fmt::format("{} is not installed here and not part of it", name));
  report.next = target.next(d);
  return report;
}

}  // namespace tandem::serve
