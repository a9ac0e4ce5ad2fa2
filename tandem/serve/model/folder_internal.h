// SPDX-License-Identifier: Apache-2.0
// Where the models of a repository's folder lie.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "tandem/serve/model/folder_stamps_internal.h"
#include "tandem/serve/model/foreign_internal.h"
#include "tandem/serve/model/settings.h"
#include "tandem/serve/text/text_engine.h"

namespace tandem::serve {

/// A run, a Hugging Face folder, a SavedModel, or the ONNX file in a folder; "" for none.
std::string model_at(const std::string& path);

/// The models in a folder by name, with the paths of their versions.
class ModelFolder {
 public:
  /// `from`: the server whose layout the folder has, "" for our own.
  ModelFolder(std::string root, bool links, const std::string& from = "");
  /// Names of what may be models, sorted.
  std::vector<std::string> names() const;
  /// The paths of a model's versions. Throws Value for a name that is not in the folder, and where
  /// a link leads out of it; Format where there is no model.
  std::map<int64_t, std::string> versions(const std::string& name) const;
  /// Those of them that the settings choose; none of an ensemble. Throws Value for one that is
  /// wanted and not there.
  std::map<int64_t, std::string> chosen(const std::string& name, const ModelSettings& s) const;
  /// `defaults` with what NAME/serve.yaml says. Throws Value naming the nearest key.
  /// `quiet`: what has no effect is not warned of.
  ModelSettings settings(const std::string& name, const ModelSettings& defaults,
                         bool quiet = false) const;
  /// A folder that a model's settings name, relative to the model's. Throws Value where there is
  /// none, and where the path leads out of the folder of models.
  std::string below(const std::string& name, const std::string& path) const;
  /// The adapters of the settings, "name=path" below the model's folder. Throws Value for an entry
  /// of another form, and a name that occurs twice.
  std::vector<TextAdapter> adapters(const std::string& name, const ModelSettings& s) const;
  /// What the files of a model look like now.
  ModelStamps stamps(const std::string& name, FolderLook& files) const;
  /// May the folder be watched? Not where that means to open archives.
  bool watched() const { return !foreign_ || foreign_->watched(); }
  const std::string& root() const { return root_; }
  /// The folder or file of a model. Throws Value for a name that is not in the folder.
  std::string path_of(const std::string& name) const;
  /// The path of a model's settings; "" where it has none.
  std::string settings_file(const std::string& name) const;

 private:
  void check_inside(const std::string& path) const { check_inside(path, root_); }
  void check_inside(const std::string& path, const std::string& root) const;
  void check_all_inside(const std::string& path) const { check_all_inside(path, root_); }
  void check_all_inside(const std::string& path, const std::string& root) const;
  std::string root_, own_name_;  ///< own_name_: the root is a model itself
  bool links_;
  std::unique_ptr<ForeignLayout> foreign_;
};

/// Files of a model copied where nobody else writes; removed with the object. Runs are not copied:
/// what writes them replaces whole files.
class PrivateCopy {
 public:
  /// `path` as it is where `copy` is false.
  PrivateCopy(const std::string& path, bool copy);
  ~PrivateCopy();
  PrivateCopy(const PrivateCopy&) = delete;
  PrivateCopy& operator=(const PrivateCopy&) = delete;
  const std::string& path() const { return path_; }

 private:
  std::string path_, folder_;
};

}  // namespace tandem::serve
