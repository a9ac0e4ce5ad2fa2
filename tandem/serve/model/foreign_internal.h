// SPDX-License-Identifier: Apache-2.0
// Folders of models as other servers keep them: what their configuration files say, as settings of
// ours. What cannot be kept is said by its name; code of models is never run.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "tandem/serve/model/settings.h"

namespace tandem::serve {

struct ForeignModel {
  std::string name;
  std::string folder;                       ///< what no link may lead out of
  std::map<int64_t, std::string> versions;  ///< paths of models
  ModelSettings settings;
  std::vector<std::string> notes;  ///< what of the configuration has no effect
};

class ForeignLayout {
 public:
  virtual ~ForeignLayout() = default;
  /// As the files are now; sorted.
  virtual std::vector<std::string> names() const = 0;
  /// Throws Format for damaged files, Unsupported for a model that cannot be served, Value for a
  /// name that is not there.
  virtual ForeignModel model(const std::string& name, const ModelSettings& defaults) const = 0;
  /// Files besides its versions that say how a model is served.
  virtual std::vector<std::string> configuration(const std::string&) const { return {}; }
  /// May it be looked at every second?
  virtual bool watched() const { return true; }
  /// KEY=VALUE of the server's settings that its configuration has, too.
  virtual std::vector<std::string> settings() const { return {}; }
};
/// `from`: triton, tfserving or torchserve. Throws Value for another, Io where `path` is not there,
/// Format for damaged files.
std::unique_ptr<ForeignLayout> open_foreign(const std::string& from, const std::string& path);

std::unique_ptr<ForeignLayout> open_triton(const std::string& path);
std::unique_ptr<ForeignLayout> open_tfserving(const std::string& path);
std::unique_ptr<ForeignLayout> open_torchserve(const std::string& path);

}  // namespace tandem::serve
