// SPDX-License-Identifier: Apache-2.0
// TorchServe: config.properties and a model store of .mar archives (zip files with a manifest). An
// archive whose weights are an ONNX file is served; of any other it is said what it holds and what
// to export. Nothing in an archive is run.
// https://pytorch.org/serve/configuration.html
#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <mutex>

#include "tandem/base/ascii.h"
#include "tandem/base/budget.h"
#include "tandem/base/bytes_in_words.h"
#include "tandem/base/error.h"
#include "tandem/base/files/folder.h"
#include "tandem/base/files/private_folder.h"
#include "tandem/io/json.h"
#include "tandem/io/zip_internal.h"
#include "tandem/serve/http/message.h"
#include "tandem/serve/model/foreign_internal.h"
#include "tandem/serve/model/repository.h"

namespace tandem::serve {
namespace {

namespace fs = std::filesystem;

constexpr const char* kManifest = "MAR-INF/MANIFEST.json";

// Java's properties: KEY=VALUE or KEY:VALUE; a backslash at the end of a line continues it.
std::map<std::string, std::string> read_properties(const std::string& path) {
  std::map<std::string, std::string> out;
  const std::string text = read_file(path, size_t{1} << 20);
  std::string line;
  for (size_t from = 0; from <= text.size();) {
    const size_t end = std::min(text.find('\n', from), text.size());
    std::string_view part = std::string_view(text).substr(from, end - from);
    from = end + 1;
    if (part.ends_with('\r')) part.remove_suffix(1);
    part = trimmed(part);
    if (line.empty() && (part.starts_with('#') || part.starts_with('!'))) continue;
    if (part.ends_with('\\') && from <= text.size()) {
      line += part.substr(0, part.size() - 1);
      continue;
    }
    line += part;
    const size_t is = line.find_first_of("=:");
    if (is != std::string::npos)
      out[std::string(trimmed(std::string_view(line).substr(0, is)))] =
          std::string(trimmed(std::string_view(line).substr(is + 1)));
    line.clear();
  }
  return out;
}

// The content of a member.
std::string unzip(const io::ZipReader& zip, const io::ZipMember& m) {
  Budget::take(m.size);
  std::string out(m.size, '\0');
  io::ZipStream stream(zip, m);
  size_t at = 0;
  while (at < out.size()) {
    const size_t n = stream.read(out.data() + at, out.size() - at);
    if (n == 0) break;
    at += n;
  }
  char end = 0;
  stream.read(&end, 1);  // the checksum is verified at the end
  out.resize(at);
  return out;
}

struct Archive {
  std::string name, version, handler, weights, runtime;
};

Archive read_manifest(const std::string& path, const io::ZipReader& zip) {
  const auto& members = zip.members();
  const auto at = std::find_if(members.begin(), members.end(),
                               [](const io::ZipMember& m) { return m.name == kManifest; });
  TD_CHECK(at != members.end(), Format, "'{}' is not an archive of TorchServe: it has no {}", path,
           kManifest);
  const io::Json json = io::parse_json(unzip(zip, *at), path);
  const io::Json* model = json.find("model");
  TD_CHECK(model && model->as_object(), Format, "'{}': its manifest describes no model", path);
  return {.name = io::text_of(model->find("modelName")),
          .version = io::text_of(model->find("modelVersion")),
          .handler = io::text_of(model->find("handler")),
          .weights = io::text_of(model->find("serializedFile")),
          .runtime = io::text_of(json.find("runtime"))};
}

// "1.2" is version 1.
int64_t version_number(const std::string& text) {
  const auto n = parse_digits(text.substr(0, text.find('.')), uint64_t{1} << 53);
  return n && *n > 0 ? static_cast<int64_t>(*n) : 1;
}

std::string named(const std::string& text) { return text.empty() ? "none" : one_line(text, 100); }

class TorchLayout : public ForeignLayout {
 public:
  explicit TorchLayout(const std::string& path) {
    std::error_code error;
    const std::string real = fs::canonical(path).string();
    const bool folder = fs::is_directory(real, error);
    config_ = folder ? real + "/config.properties" : real;
    const fs::path base = fs::path(config_).parent_path();
    if (file_exists(config_)) properties_ = read_properties(config_);
    std::vector<fs::path> places = {base / "model_store", base / "model-store", base};
    if (const std::string given = property("model_store"); !given.empty()) places = {base / given};
    for (const fs::path& place : places)
      if (store_.empty() && fs::is_directory(place, error)) store_ = place.string();
    TD_CHECK(!store_.empty(), Io, "'{}': the model store '{}' is not there", config_,
             places[0].string());
    files_ = find_files();
    TD_CHECK(!files_.empty(), Format,
             "'{}' has no archives (.mar)\nGive the folder of config.properties, or the model "
             "store.",
             store_);
    read_models();
  }
  ~TorchLayout() override {
    for (const auto& [key, folder] : unpacked_) {
      try {
        remove_folder(folder);
      } catch (const Error&) {  // it stays, in the user's temporary files
      }
    }
  }
  TorchLayout(const TorchLayout&) = delete;
  TorchLayout& operator=(const TorchLayout&) = delete;

  bool watched() const override { return false; }
  std::vector<std::string> names() const override {
    std::vector<std::string> out;
    for (const auto& [name, file] : files_) out.push_back(name);
    return out;
  }

  ForeignModel model(const std::string& name, const ModelSettings& defaults) const override {
    const auto at = files_.find(name);
    TD_CHECK(at != files_.end(), Value, "there is no model '{}'", name);
    const std::string& path = at->second;
    const io::ZipReader zip(path);
    const Budget budget(path, zip.file()->size());
    const Archive archive = read_manifest(path, zip);
    ForeignModel out{.name = name, .folder = "", .versions = {}, .settings = defaults};
    settings_of(name, out);
    if (!archive.weights.ends_with(".onnx")) refuse_archive(name, path, zip, archive);
    out.folder = unpack(path, zip);
    const std::string file = out.folder + "/" + archive.weights;
    TD_CHECK(archive.weights.find('/') == std::string::npos && file_exists(file), Format,
             "'{}' does not hold the file '{}' that its manifest names", path,
             one_line(archive.weights, 100));
    out.versions[version_number(archive.version)] = file;
    if (!archive.handler.empty())
      out.notes.push_back(
          fmt::format("the handler '{}' is code and is not run: send what the model itself takes",
                      one_line(archive.handler, 100)));
    return out;
  }

  std::vector<std::string> settings() const override {
    std::vector<std::string> out;
    const std::string address = property("inference_address");
    if (const size_t colon = address.rfind(':'); colon != std::string::npos)
      if (const auto port = parse_digits(address.substr(colon + 1), 65535))
        out.push_back(fmt::format("port={}", *port));
    const auto whole = [&](const char* key, const char* setting, double per) {
      const auto n = parse_digits(property(key), uint64_t{1} << 40);
      if (n && *n > 0) out.push_back(fmt::format("{}={}", setting, static_cast<double>(*n) / per));
    };
    whole("job_queue_size", "defaults.queue", 1);
    whole("default_workers_per_model", "defaults.instances", 1);
    whole("default_response_timeout", "answer_seconds", 1);
    whole("max_request_size", "body_mb", 1048576);
    return out;
  }

 private:
  std::string property(const std::string& key) const {
    const auto at = properties_.find(key);
    return at == properties_.end() ? "" : at->second;
  }

  // The archives that load_models names, or all; by the names that clients use.
  std::map<std::string, std::string> find_files() const {
    std::map<std::string, std::string> out;
    const auto add = [&](const std::string& name, const std::string& file) {
      TD_CHECK(file.find("://") == std::string::npos, Unsupported,
               "load_models names '{}', and no URL is fetched\nCopy it to the model store.",
               one_line(file, 128));
      TD_CHECK(is_model_name(name) && file.find('/') == std::string::npos &&
                   file_exists(store_ + "/" + file),
               Value, "load_models names '{}', which is not in '{}'", one_line(file, 128), store_);
      out[name] = store_ + "/" + file;
    };
    const auto stem = [](const std::string& file) {
      return file.ends_with(".mar") ? file.substr(0, file.size() - 4) : file;
    };
    std::string wanted = property("load_models");
    if (wanted.empty() || wanted == "all") {
      for (const std::string& file : list_folder(store_))
        if (file.ends_with(".mar") && is_model_name(stem(file)))
          out[stem(file)] = store_ + "/" + file;
      return out;
    }
    for (size_t from = 0; from <= wanted.size();) {
      const size_t end = std::min(wanted.find(',', from), wanted.size());
      const std::string entry(trimmed(std::string_view(wanted).substr(from, end - from)));
      from = end + 1;
      const size_t is = entry.find('=');
      if (entry.empty()) continue;
      if (is == std::string::npos)
        add(stem(entry), entry);
      else
        add(entry.substr(0, is), entry.substr(is + 1));
    }
    return out;
  }

  // models={"NAME": {"1.0": {"minWorkers": 1, "batchSize": 4, "maxBatchDelay": 100, ...}}}
  void read_models() {
    const std::string text = property("models");
    if (!text.empty()) models_ = io::parse_json(text, config_ + ", models");
  }
  void settings_of(const std::string& name, ForeignModel& out) const {
    const io::Json* versions = models_.find(name);
    if (!versions || !versions->as_object() || versions->as_object()->empty()) return;
    const io::Json& options = versions->as_object()->back().second;
    if (!options.as_object()) return;
    for (const auto& [key, value] : *options.as_object()) {
      const int64_t n = io::whole_of(&value);
      if (key == "minWorkers" && n > 0)
        out.settings.instances = std::min<int64_t>(n, 64);
      else if (key == "batchSize" && n > 0)
        out.settings.max_batch = std::min<int64_t>(n, 4096);
      else if (key == "maxBatchDelay" && n >= 0)
        out.settings.delay_us = static_cast<double>(std::min<int64_t>(n, 1000) * 1000);
      else if (key != "marName" && key != "maxWorkers" && key != "defaultVersion")
        out.notes.push_back(
            fmt::format("'{}' of config.properties has no effect", one_line(key, 64)));
    }
  }

  [[noreturn]] static void refuse_archive(const std::string& name, const std::string& path,
                                          const io::ZipReader& zip, const Archive& a) {
    std::string files;
    uint64_t size = 0;
    for (const io::ZipMember& m : zip.members()) {
      if (m.name == a.weights) size = m.size;
      if (m.name != a.weights && m.name != a.handler && m.name != kManifest &&
          !m.name.ends_with('/') && files.size() < 200)
        files += (files.empty() ? "" : ", ") + one_line(m.name, 60);
    }
    TD_FAIL(Unsupported,
            "'{}' holds version {} of a PyTorch model: weights {} ({}), handler {}{}{}. TorchServe "
            "runs its code; nothing of it is run here\nExport it where its code is trusted: "
            "torch.onnx.export(model, (example,), \"MODELS/{}/{}/model.onnx\", dynamo=True), and "
            "serve MODELS. What the handler does before and after the model is the client's.",
            fs::path(path).filename().string(), named(a.version), named(a.weights),
            bytes_in_words(static_cast<double>(size)), named(a.handler),
            files.empty() ? "" : "; also ", files, name, version_number(a.version));
  }

  // The files of an archive in a private folder, without those in folders of their own.
  std::string unpack(const std::string& path, const io::ZipReader& zip) const {
    std::error_code error;
    const std::string key =
        fmt::format("{} {} {}", path, zip.file()->size(),
                    fs::last_write_time(path, error).time_since_epoch().count());
    const std::lock_guard hold(lock_);
    if (const auto at = unpacked_.find(key); at != unpacked_.end()) return at->second;
    const PrivateFolder folder = PrivateFolder::temporary("mar");
    TD_CHECK(static_cast<bool>(folder), Io, "no folder for the files of '{}': {}", path,
             folder.problem());
    unpacked_[key] = folder.path();
    for (const io::ZipMember& m : zip.members())
      if (!m.name.empty() && m.name.find('/') == std::string::npos && m.name[0] != '.' &&
          !m.name.ends_with(".py"))
        folder.write(m.name, unzip(zip, m));
    return folder.path();
  }

  std::string config_, store_;
  std::map<std::string, std::string> properties_, files_;
  io::Json models_;
  mutable std::mutex lock_;
  mutable std::map<std::string, std::string> unpacked_;
};

}  // namespace

std::unique_ptr<ForeignLayout> open_torchserve(const std::string& path) {
  return std::make_unique<TorchLayout>(path);
}

}  // namespace tandem::serve
