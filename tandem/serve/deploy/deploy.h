// SPDX-License-Identifier: Apache-2.0
// What `tandem deploy` writes: a folder that starts models elsewhere as they are. A container image
// made without a daemon (docker, k8s, sagemaker, vertex), or a service of systemd; with settings,
// probes and limits that follow from the models.
#pragma once

#include <string>
#include <vector>

#include "tandem/base/export.h"

namespace tandem::serve {

struct DeployOptions {
  std::string models;     ///< a folder of models, or a model
  std::string target;     ///< one of deploy_targets()
  std::string folder;     ///< written to; must not hold anything
  std::string program;    ///< the tool
  std::string name = "";  ///< of the image and the service; "": the model's
  std::string tag = "latest";
  std::string image = "";  ///< how a cluster knows the image; "": name:tag
  std::string keys = "";   ///< a file of API keys, which never becomes part of an image
  std::vector<std::string> settings = {};  ///< KEY=VALUE of the server, besides the target's
};

struct DeployReport {
  std::vector<std::string> files;  ///< written, relative to the folder
  std::vector<std::string> models;
  std::string digest;              ///< of the image
  double image_bytes = 0;          ///< compressed
  double weights = 0;              ///< bytes, of all models
  double loaded = 0;               ///< after they were loaded here
  double arena = 0;                ///< runs of their largest batches
  double cache = 0;                ///< keys and values of texts
  double memory = 0;               ///< the limit that is written
  std::vector<std::string> notes;  ///< what to know
  std::string next;                ///< commands that start it
};

/// "docker", "systemd" ...
TD_API std::vector<std::string> deploy_targets();
/// Throws Value for an unknown target, a folder that is not empty and settings that a server does
/// not take; and what opening the models throws.
TD_API DeployReport deploy(const DeployOptions& options);

}  // namespace tandem::serve
