// SPDX-License-Identifier: Apache-2.0
// A container image on disk, made of files of this machine without a daemon: an OCI image layout
// that `docker load`, podman, skopeo and containerd read. Equal files give equal digests.
// https://github.com/opencontainers/image-spec
#pragma once

#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "tandem/base/export.h"

namespace tandem::serve {

/// What a file of a layer holds: a file of this machine, or a text.
struct LayerFile {
  std::string name;         ///< in the image, without a slash in front
  std::string source = "";  ///< its path here; "": `text`
  std::string text = "";
  int mode = 0644;
};

struct ImageLayer {
  std::string comment;
  std::vector<LayerFile> files;
  std::vector<std::pair<std::string, int>> folders = {};  ///< those of their own, with their modes
};

struct ImageOptions {
  std::string name = "model", tag = "latest";
  std::vector<std::string> entrypoint, arguments, environment;
  int64_t port = 8000;
  std::string user = "65532:65532";  ///< numbers: nobody has to be known by name
  std::map<std::string, std::string> labels = {};
  int machine = 0;  ///< as ELF numbers them
};

struct WrittenImage {
  std::string digest;               ///< of the manifest, "sha256:..."
  std::vector<std::string> layers;  ///< digests
  uint64_t bytes = 0;               ///< of all blobs
};
/// The layer's files as a compressed archive. Gives its digest, 64 hexadecimal digits. Throws Io.
TD_API std::string write_package(const std::string& path, const ImageLayer& layer);
/// Writes the layout to `folder`, which must not hold one. Throws Io.
TD_API WrittenImage write_image(const std::string& folder, const std::vector<ImageLayer>& layers,
                                const ImageOptions& options);

}  // namespace tandem::serve
