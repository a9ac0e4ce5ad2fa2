// SPDX-License-Identifier: Apache-2.0
// TensorFlow Serving: a model_config_list in a file (or as models.config in a folder), or folders
// of versions with a SavedModel each. Field names are those of model_server_config.proto.
#include <fmt/format.h>

#include <algorithm>
#include <filesystem>

#include "tandem/base/error.h"
#include "tandem/base/files/folder.h"
#include "tandem/serve/http/message.h"
#include "tandem/serve/model/folder_internal.h"
#include "tandem/serve/model/foreign_text_internal.h"
#include "tandem/serve/model/repository.h"

namespace tandem::serve {
namespace {

namespace fs = std::filesystem;

class TensorflowLayout : public ForeignLayout {
 public:
  explicit TensorflowLayout(const std::string& path) : path_(fs::canonical(path).string()) {
    if (!fs::is_directory(path_))
      config_ = path_;
    else if (file_exists(path_ + "/models.config"))
      config_ = path_ + "/models.config";
    names();  // damaged files are errors at once
  }

  std::vector<std::string> names() const override {
    std::vector<std::string> out;
    if (!config_.empty()) {
      FieldNotes notes{config_};
      for (const io::TextField& f : configs(notes)) {
        const io::TextField* name = notes.message(f).find("name");
        TD_CHECK(name && is_model_name(name->text), Format,
                 "'{}', line {}: a config needs a name of letters, digits, '_', '-' and '.'",
                 config_, f.line);
        TD_CHECK(std::find(out.begin(), out.end(), name->text) == out.end(), Format,
                 "'{}', line {}: the name '{}' stands there twice", config_, f.line, name->text);
        out.push_back(name->text);
      }
    } else if (!version_folders(path_).empty()) {
      out.push_back(fs::path(path_).filename().string());
    } else {
      for (const std::string& name : list_folder(path_))
        if (is_model_name(name) && !version_folders(path_ + "/" + name).empty())
          out.push_back(name);
    }
    std::sort(out.begin(), out.end());
    return out;
  }

  std::vector<std::string> configuration(const std::string&) const override { return {config_}; }
  ForeignModel model(const std::string& name, const ModelSettings& defaults) const override {
    const std::vector<std::string> all = names();
    TD_CHECK(std::find(all.begin(), all.end(), name) != all.end(), Value, "there is no model '{}'",
             name);
    ForeignModel out{.name = name, .folder = "", .versions = {}, .settings = defaults};
    if (config_.empty()) {
      out.folder = version_folders(path_).empty() ? path_ + "/" + name : path_;
    } else {
      FieldNotes notes{config_};
      for (const io::TextField& f : configs(notes))
        if (notes.message(f).find("name")->text == name) read_config(f, notes, out);
      out.notes = std::move(notes.notes);
    }
    for (const auto& [version, path] : version_folders(out.folder))
      if (const std::string found = model_at(path); !found.empty()) out.versions[version] = found;
    return out;
  }

 private:
  std::vector<io::TextField> configs(FieldNotes& notes) const {
    const io::TextMessage root = io::parse_text_proto(read_file(config_, size_t{1} << 20), config_);
    std::vector<io::TextField> out;
    for (const io::TextField& list : root.fields) {
      TD_CHECK(list.name != "custom_model_config", Unsupported,
               "'{}', line {}: custom_model_config names a source of models that is code", config_,
               list.line);
      TD_CHECK(list.name == "model_config_list", Format,
               "'{}', line {}: '{}' is not a field of a configuration of models\nIt begins with "
               "model_config_list {{ config {{ name: ... }} }}.",
               config_, list.line, one_line(list.name, 64));
      for (const io::TextField& f : notes.message(list).fields)
        if (f.name == "config") out.push_back(f);
    }
    return out;
  }

  void read_config(const io::TextField& config, FieldNotes& notes, ForeignModel& out) const {
    for (const io::TextField& f : notes.message(config).fields) {
      if (f.name == "base_path") {
        TD_CHECK(f.text.find("://") == std::string::npos, Unsupported,
                 "'{}', line {}: the model lies at '{}', and no URL is fetched\nCopy it to a "
                 "folder.",
                 config_, f.line, one_line(f.text, 128));
        std::error_code error;
        const fs::path at = fs::path(config_).parent_path() / f.text;  // an absolute one stays
        out.folder = fs::canonical(at, error).string();
        TD_CHECK(!error, Io, "'{}', line {}: '{}': {}", config_, f.line, f.text, error.message());
      } else if (f.name == "model_platform") {
        TD_CHECK(f.text == "tensorflow", Unsupported, "'{}', line {}: the platform '{}' is unknown",
                 config_, f.line, one_line(f.text, 64));
      } else if (f.name == "model_version_policy") {
        notes.version_policy(f, out.settings);
      } else if (f.name == "version_labels") {
        const io::TextField *key = notes.message(f).find("key"),
                            *value = notes.message(f).find("value");
        TD_CHECK(key && value, Format, "'{}', line {}: a label has a key and a value", config_,
                 f.line);
        out.settings.labels.push_back(
            fmt::format("{}={}", key->text, notes.whole(*value, 1, int64_t{1} << 53)));
      } else if (f.name != "name" && f.name != "model_type") {
        notes.unused(f);
      }
    }
    TD_CHECK(!out.folder.empty(), Format, "'{}', line {}: '{}' has no base_path", config_,
             config.line, out.name);
  }

  std::string path_, config_;
};

}  // namespace

std::unique_ptr<ForeignLayout> open_tfserving(const std::string& path) {
  return std::make_unique<TensorflowLayout>(path);
}

}  // namespace tandem::serve
