// SPDX-License-Identifier: Apache-2.0
#include "tandem/serve/deploy/image_internal.h"

#include <elf.h>
#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <set>

#include "tandem/base/error.h"
#include "tandem/base/files/folder.h"
#include "tandem/base/hash/sha256.h"
#include "tandem/base/parallel.h"
#include "tandem/io/gzip.h"
#include "tandem/io/json.h"
#include "tandem/io/tar_writer.h"

namespace tandem::serve {
namespace {

using io::Json;

constexpr const char* kLayerType = "application/vnd.oci.image.layer.v1.tar+gzip";
constexpr const char* kManifestType = "application/vnd.oci.image.manifest.v1+json";

struct Blob {
  std::string digest;  ///< 64 hexadecimal digits
  uint64_t size = 0;
};

std::string path_of(const std::string& folder, const std::string& digest) {
  return folder + "/blobs/sha256/" + digest;
}

Blob write_blob(const std::string& folder, const std::string& text) {
  const Blob blob{sha256_hex(text), text.size()};
  write_file(path_of(folder, blob.digest), text);
  return blob;
}

// Members of gzip one after the other are one file: pieces are compressed side by side.
void compress_file(const std::string& from, const std::string& to) {
  constexpr size_t kPiece = size_t{1} << 20, kTogether = 64;
  const Ref<MappedFile> file = make_ref<MappedFile>(from);
  const std::string_view all = file->view();
  AtomicFile out(to);
  std::vector<std::string> done(kTogether);
  for (size_t at = 0; at < all.size(); at += kPiece * kTogether) {
    const size_t pieces = std::min(kTogether, (all.size() - at + kPiece - 1) / kPiece);
    parallel_for(0, static_cast<int64_t>(pieces), 1, [&](int64_t first, int64_t last) {
      for (int64_t k = first; k < last; ++k)
        done[static_cast<size_t>(k)] =
            io::gzip(all.substr(at + static_cast<size_t>(k) * kPiece, kPiece), 3);
    });
    for (size_t k = 0; k < pieces; ++k) out.write(done[k]);
  }
  out.commit();
}

void add_parents(const std::string& name, std::set<std::string>& made, io::TarWriter& tar) {
  for (size_t at = name.find('/'); at != std::string::npos; at = name.find('/', at + 1))
    if (made.insert(name.substr(0, at)).second) tar.folder(name.substr(0, at));
}

// The layer's archive, uncompressed, in the order of the names.
void write_archive(const ImageLayer& layer, const std::string& path) {
  io::TarWriter tar(path);
  std::set<std::string> made;
  for (const auto& [name, mode] : layer.folders) {
    add_parents(name, made, tar);
    if (made.insert(name).second) tar.folder(name, mode);
  }
  std::vector<const LayerFile*> files;
  for (const LayerFile& f : layer.files) files.push_back(&f);
  std::sort(files.begin(), files.end(),
            [](const LayerFile* a, const LayerFile* b) { return a->name < b->name; });
  for (const LayerFile* f : files) {
    add_parents(f->name, made, tar);
    if (f->source.empty()) {
      tar.file(f->name, f->text, f->mode);
    } else {
      const Ref<MappedFile> file = make_ref<MappedFile>(f->source);
      tar.file(f->name, file->view(), f->mode);
    }
  }
  tar.commit();
}

// The blob of a layer; the digest of its archive comes back in `archive`.
Blob write_layer(const std::string& folder, const ImageLayer& layer, std::string& archive) {
  const std::string tar = folder + "/layer.tar", packed = folder + "/layer.tar.gz";
  write_archive(layer, tar);
  archive = sha256_hex(make_ref<MappedFile>(tar)->view());
  compress_file(tar, packed);
  Blob blob;
  {
    const Ref<MappedFile> file = make_ref<MappedFile>(packed);
    blob = {sha256_hex(file->view()), file->size()};
  }
  TD_CHECK(std::rename(packed.c_str(), path_of(folder, blob.digest).c_str()) == 0 &&
               std::remove(tar.c_str()) == 0,
           Io, "'{}' cannot be written", path_of(folder, blob.digest));
  return blob;
}

// As Go names them, which images follow.
const char* architecture(int machine) {
  switch (machine) {
    case EM_X86_64:
      return "amd64";
    case EM_AARCH64:
      return "arm64";
    case EM_RISCV:
      return "riscv64";
    default:
      return "unknown";
  }
}

Json::Array texts(const std::vector<std::string>& all) { return {all.begin(), all.end()}; }

Json descriptor(const char* type, const Blob& blob) {
  return Json::Object{
      {"mediaType", type}, {"digest", "sha256:" + blob.digest}, {"size", blob.size}};
}

std::string config_json(const ImageOptions& o, const std::vector<ImageLayer>& layers,
                        const std::vector<std::string>& archives) {
  constexpr const char* kTime = "1970-01-01T00:00:00Z";  // equal files, equal digests
  Json::Object config{
      {"User", o.user},
      {"ExposedPorts", Json::Object{{fmt::format("{}/tcp", o.port), Json::Object{}}}},
      {"Env", texts(o.environment)},
      {"Entrypoint", texts(o.entrypoint)}};
  if (!o.arguments.empty()) config.emplace_back("Cmd", texts(o.arguments));
  Json::Object labels;
  for (const auto& [key, value] : o.labels) labels.emplace_back(key, value);
  config.emplace_back("WorkingDir", "/");
  config.emplace_back("Labels", std::move(labels));
  config.emplace_back("StopSignal", "SIGTERM");
  Json::Array ids, history;
  for (const std::string& digest : archives) ids.push_back("sha256:" + digest);
  for (const ImageLayer& layer : layers)
    history.push_back(Json::Object{
        {"created", kTime}, {"created_by", "tandem deploy"}, {"comment", layer.comment}});
  return Json(Json::Object{
                  {"created", kTime},
                  {"architecture", architecture(o.machine)},
                  {"os", "linux"},
                  {"config", std::move(config)},
                  {"rootfs", Json::Object{{"type", "layers"}, {"diff_ids", std::move(ids)}}},
                  {"history", std::move(history)}})
      .dump();
}

}  // namespace

std::string write_package(const std::string& path, const ImageLayer& layer) {
  const std::string tar = path + ".tar";
  write_archive(layer, tar);
  compress_file(tar, path);
  TD_CHECK(std::remove(tar.c_str()) == 0, Io, "'{}' cannot be removed", tar);
  return sha256_hex(make_ref<MappedFile>(path)->view());
}

WrittenImage write_image(const std::string& folder, const std::vector<ImageLayer>& layers,
                         const ImageOptions& o) {
  make_folders(folder + "/blobs/sha256");
  WrittenImage out;
  std::vector<std::string> archives(layers.size());
  Json::Array parts, paths;
  for (size_t i = 0; i < layers.size(); ++i) {
    const Blob blob = write_layer(folder, layers[i], archives[i]);
    parts.push_back(descriptor(kLayerType, blob));
    paths.push_back("blobs/sha256/" + blob.digest);
    out.layers.push_back(blob.digest);
    out.bytes += blob.size;
  }
  const Blob config = write_blob(folder, config_json(o, layers, archives));
  const Json config_part = descriptor("application/vnd.oci.image.config.v1+json", config);
  const Blob manifest = write_blob(folder, Json(Json::Object{{"schemaVersion", 2},
                                                             {"mediaType", kManifestType},
                                                             {"config", config_part},
                                                             {"layers", std::move(parts)}})
                                               .dump());
  const std::string reference = o.name + ":" + o.tag;
  Json::Object entry = *descriptor(kManifestType, manifest).as_object();
  entry.emplace_back("annotations",
                     Json::Object{{"org.opencontainers.image.ref.name", o.tag},
                                  {"io.containerd.image.name", "docker.io/library/" + reference}});
  write_file(folder + "/index.json",
             Json(Json::Object{{"schemaVersion", 2},
                               {"mediaType", "application/vnd.oci.image.index.v1+json"},
                               {"manifests", Json::Array{std::move(entry)}}})
                 .dump());
  write_file(folder + "/oci-layout", "{\"imageLayoutVersion\":\"1.0.0\"}");
  // What `docker load` read before it knew that layout.
  write_file(folder + "/manifest.json",
             Json(Json::Array{Json::Object{{"Config", "blobs/sha256/" + config.digest},
                                           {"RepoTags", Json::Array{reference}},
                                           {"Layers", std::move(paths)}}})
                 .dump());
  out.digest = "sha256:" + manifest.digest;
  out.bytes += config.size + manifest.size;
  return out;
}

}  // namespace tandem::serve
