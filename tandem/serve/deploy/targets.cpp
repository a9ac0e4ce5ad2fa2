// SPDX-License-Identifier: Apache-2.0
// One row for each place: its settings, its files, and how it is started. New places are added
// here.
#include "tandem/serve/deploy/targets_internal.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <filesystem>

#include "tandem/base/error.h"
#include "tandem/serve/deploy/proxy_texts_internal.h"
#include "tandem/serve/deploy/target_texts_internal.h"

namespace tandem::serve {
namespace {

namespace fs = std::filesystem;

// What holds for every target: requests have a part of its memory, and who sends them hears that
// the server ends before it does.
void add_common_settings(std::vector<std::string>& settings) {
  settings.emplace_back("in_flight_mb=128");
  settings.emplace_back("drain_delay=5");
}

// In a container the address is the container's own; what reaches it is the cluster's choice.
std::vector<std::string> container_settings(const DeployOptions& o, int port) {
  std::vector<std::string> out = {"models=/models", "host=0.0.0.0", fmt::format("port={}", port),
                                  "insecure=true", "defaults.copy=false"};
  add_common_settings(out);
  if (!o.keys.empty()) out.push_back(std::string("keys=") + kKeysInImage);
  return out;
}
std::vector<std::string> image_settings(const DeployOptions& o) {
  return container_settings(o, 8000);
}
std::vector<std::string> cloud_settings(const DeployOptions& o) {
  TD_CHECK(o.keys.empty(), Value,
           "{} asks its callers itself, and sends no API key\nLeave --keys out.", o.target);
  return container_settings(o, 8080);
}
// Every program of a machine can read its user data.
std::vector<std::string> cloud_init_settings(const DeployOptions& o) {
  TD_CHECK(o.keys.empty(), Value,
           "user data can be read by every program of the machine, and keys have no place in it\n"
           "Leave --keys out; set keys=FILE with a file that the machine has.");
  std::vector<std::string> out = {"models=models", "defaults.copy=false"};
  add_common_settings(out);
  return out;
}
std::vector<std::string> systemd_settings(const DeployOptions& o) {
  std::vector<std::string> out = {"models=models", "defaults.copy=false"};
  if (!o.keys.empty()) out.emplace_back("keys=keys");
  add_common_settings(out);
  return out;
}

// Where a proxy in front of the servers listens; of nginx for gRPC, too.
constexpr int kProxyPort = 8080, kProxyGrpcPort = 8081;

// What the number of servers follows, with how many may wait for one of them.
std::string for_queues(const char* text, const Deployment& d) {
  const auto row = [text](const char* metric, int target) {
    return fmt::format(fmt::runtime(text), fmt::arg("metric", metric), fmt::arg("target", target));
  };
  std::string out = row("tandem_queue_length", 4);
  if (d.models.texts) out += row("tandem_texts_waiting", 1);
  return out;
}

// What the templates of all targets name.
std::string filled(const char* text, const Deployment& d) {
  using fmt::arg;
  const bool keyed = !d.options.keys.empty();
  const auto whole = [](double v) { return static_cast<int64_t>(std::ceil(v)); };
  const double stop = d.settings.drain_delay + d.settings.drain_seconds + 10;
  return fmt::format(
      fmt::runtime(text), arg("name", d.name), arg("image", d.image), arg("tag", d.options.tag),
      arg("port", d.settings.port), arg("memory", mebibytes(d.memory)),
      arg("model", d.models.names[0]), arg("stop", static_cast<int64_t>(stop)),
      arg("memory_docker", fmt::format("{:.0f}m", d.memory / 1048576)),
      arg("memory_systemd", fmt::format("{:.0f}M", d.memory / 1048576)),
      arg("digest", d.layers.empty() ? "" : d.layers[0]),
      arg("key_argument", keyed ? " --set keys=%d/keys" : ""), arg("loader", d.program.interpreter),
      arg("loader_name", fs::path(d.program.interpreter).filename().string()),
      arg("libraries", d.program.folder), arg("key_mount", keyed ? kKeyMount : ""),
      arg("key_volume", keyed ? fmt::format(kKeyVolume, d.name) : ""),
      arg("proxy_port", kProxyPort), arg("grpc_port", kProxyGrpcPort),
      arg("patience", whole(d.settings.answer_seconds) + 10),
      arg("idle", whole(d.settings.idle_seconds / 2)), arg("drain_delay", d.settings.drain_delay),
      arg("body", whole(d.settings.body_mb)),
      // Two proxies, and room beside them.
      arg("connections", std::max<int64_t>(1, d.settings.connections * 2 / 5)),
      arg("queue_metrics", for_queues(kQueueMetric, d)), arg("rules", for_queues(kAdapterRule, d)),
      arg("key_resource", keyed ? "  - secret.yaml\n" : ""),
      arg("key_option",
          keyed ? fmt::format(" --user \"$(id -u):$(id -g)\" -v \"$PWD/keys:{}:ro\"", kKeysInImage)
                : ""),
      arg("key_credential",
          keyed ? fmt::format("LoadCredential=keys:/etc/tandem/{}.keys\n", d.name) : ""));
}

// For those who want their own base: the image's files, and the loader that belongs to them.
std::string dockerfile(const Deployment& d, const std::vector<std::string>& layers) {
  std::string adds;
  for (const std::string& digest : layers)
    adds += fmt::format("ADD image/blobs/sha256/{} /\n", digest);
  return filled(kDockerfileHead, d) + adds + filled(kDockerfile, d);
}

std::vector<TextFile> container_files(const Deployment& d) {
  std::vector<TextFile> out = {{"Dockerfile", dockerfile(d, d.layers)}};
  out.push_back({"nginx.conf", filled(kNginx, d)});
  if (!d.options.keys.empty()) out.push_back({"keys", read_file(d.options.keys, 1 << 20), 0600});
  return out;
}

std::vector<TextFile> docker_files(const Deployment& d) { return container_files(d); }

std::string indented(const std::string& text, const std::string& by) {
  std::string out;
  for (size_t from = 0; from < text.size();) {
    const size_t end = std::min(text.find('\n', from), text.size());
    out += by + text.substr(from, end - from) + "\n";
    from = end + 1;
  }
  return out;
}

std::vector<TextFile> k8s_files(const Deployment& d) {
  std::vector<TextFile> out = {{"Dockerfile", dockerfile(d, d.layers)},
                               {"deployment.yaml", filled(kDeployment, d)},
                               {"servers.yaml", filled(kServersService, d)},
                               {"envoy.yaml", filled(kEnvoy, d)},
                               {"proxy.yaml", filled(kEnvoyDeployment, d)},
                               {"service.yaml", filled(kService, d)},
                               {"hpa.yaml", filled(kAutoscaler, d)},
                               {"prometheus-adapter.yaml", filled(kAdapter, d)},
                               {"kustomization.yaml", filled(kKustomization, d)}};
  if (!d.options.keys.empty())
    out.push_back({"secret.yaml",
                   filled(kSecret, d) + indented(read_file(d.options.keys, 1 << 20), "    "),
                   0600});
  return out;
}

std::vector<TextFile> sagemaker_files(const Deployment& d) {
  return {{"Dockerfile", dockerfile(d, d.layers)}, {"deploy.sh", filled(kSageMaker, d), 0755}};
}
std::vector<TextFile> vertex_files(const Deployment& d) {
  return {{"Dockerfile", dockerfile(d, d.layers)}, {"deploy.sh", filled(kVertex, d), 0755}};
}
std::vector<TextFile> systemd_files(const Deployment& d) {
  std::vector<TextFile> out = unit_files(d);
  out.push_back({"nginx.conf", filled(kNginx, d)});
  if (!d.options.keys.empty()) out.push_back({"keys", read_file(d.options.keys, 1 << 20), 0600});
  return out;
}

std::vector<TextFile> cloud_init_files(const Deployment& d) {
  return {{"user-data.yaml", filled(kUserData, d)}};
}

std::string docker_next(const Deployment& d) { return filled(kDockerNext, d); }
std::string k8s_next(const Deployment& d) { return filled(kK8sNext, d); }
std::string systemd_next(const Deployment& d) { return filled(kSystemdNext, d); }
std::string cloud_init_next(const Deployment& d) { return filled(kCloudInitNext, d); }
std::string sagemaker_next(const Deployment& d) { return filled(kSageMakerNext, d); }
std::string vertex_next(const Deployment& d) { return filled(kVertexNext, d); }

}  // namespace

std::vector<TextFile> unit_files(const Deployment& d) {
  return {{d.name + ".service", filled(kUnit, d)}, {"install.sh", filled(kInstall, d), 0755}};
}

const std::vector<DeployTarget>& deploy_table() {
  using Form = DeployTarget::Form;
  const std::vector<std::string> serve = {"/usr/bin/tandem", "serve"};
  static const std::vector<DeployTarget> table = {
      {"docker", Form::container, image_settings, serve, {}, docker_files, docker_next},
      {"systemd", Form::tree, systemd_settings, {}, {}, systemd_files, systemd_next},
      {"cloud-init", Form::package, cloud_init_settings, {}, {}, cloud_init_files, cloud_init_next},
      {"k8s", Form::container, image_settings, serve, {}, k8s_files, k8s_next},
      // SageMaker starts images with the argument `serve`.
      {"sagemaker",
       Form::container,
       cloud_settings,
       {"/usr/bin/tandem"},
       {"serve"},
       sagemaker_files,
       sagemaker_next},
      {"vertex", Form::container, cloud_settings, serve, {}, vertex_files, vertex_next},
  };
  return table;
}

}  // namespace tandem::serve
