// SPDX-License-Identifier: Apache-2.0
// The places that models are deployed to.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "tandem/serve/deploy/deploy.h"
#include "tandem/serve/deploy/elf_internal.h"
#include "tandem/serve/deploy/models_internal.h"
#include "tandem/serve/server_settings.h"

namespace tandem::serve {

/// All that a target's files are made of.
struct Deployment {
  const DeployOptions& options;
  const DeployedModels& models;
  const ProgramFiles& program;
  const ServerSettings& settings;
  std::string name, image;               ///< image: how a cluster knows it
  std::string config;                    ///< the settings' text
  double memory = 0;                     ///< bytes
  std::vector<std::string> layers = {};  ///< digests, once the image or the package is written
};

struct TextFile {
  std::string name, text;
  int mode = 0644;
};

struct DeployTarget {
  const char* name;
  /// What is written besides the target's texts: an image, a tree, or that tree in one archive
  /// with the texts of systemd's target.
  enum class Form : uint8_t { container, tree, package } form;
  /// Settings that differ from a server's own, before those of the caller.
  std::vector<std::string> (*settings)(const DeployOptions& options);
  /// What an image starts, beside the settings' file.
  std::vector<std::string> entrypoint, arguments;
  std::vector<TextFile> (*files)(const Deployment& d);
  std::string (*next)(const Deployment& d);
};
const std::vector<DeployTarget>& deploy_table();
/// The unit and what installs it, without keys.
std::vector<TextFile> unit_files(const Deployment& d);

/// Where settings and keys lie in an image.
inline constexpr const char* kConfigInImage = "/etc/tandem/serve.yaml";
inline constexpr const char* kKeysInImage = "/run/secrets/tandem/keys";

/// "384Mi", rounded up to 32.
std::string mebibytes(double bytes);

}  // namespace tandem::serve
