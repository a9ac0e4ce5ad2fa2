// SPDX-License-Identifier: Apache-2.0
// `tandem serve MODELS`: models over HTTP until a signal ends it.
#include <fmt/core.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <atomic>
#include <csignal>

#include "cli/commands_internal.h"
#include "tandem/base/clock.h"
#include "tandem/init.h"
#include "tandem/serve/http2/frames.h"
#include "tandem/serve/server_settings.h"

namespace tandem::cli {
namespace {

std::atomic<serve::Server*> g_server{nullptr};
double g_drain_delay = 0, g_drain_seconds = 30;

// SIGTERM comes from what manages services, which still sends requests for a while; Ctrl-C does
// not.
void on_signal(int signal) {
  if (serve::Server* s = g_server.load())
    s->drain(signal == SIGTERM ? g_drain_delay : 0, g_drain_seconds);
}

void on_hangup(int) {
  if (serve::Server* s = g_server.load()) s->reload();
}

struct ServeOptions {
  std::string models, config;
  std::vector<std::string> changes;
  int port = -1;
  std::string host, keys, certificate, key, client_ca, from, record;
  bool insecure = false, allow_load = false, shared_memory = false, no_page = false;
};

void print_models(serve::Server& server) {
  for (const serve::IndexEntry& e : server.repository().index())
    if (e.ready)
      fmt::print(stderr, "  {} version {}\n", e.name, e.version);
    else
      fmt::print(stderr, "  {} failed: {}\n", e.name, e.reason);
}

int serve_models(const ServeOptions& o) {
  const auto begin = Clock::now();
  std::vector<std::string> changes = o.changes;
  const auto change = [&changes](const std::string& key, const std::string& text) {
    if (!text.empty()) changes.push_back(key + "=" + io::quote_json(text));
  };
  change("models", o.models);
  change("from", o.from);
  change("record", o.record);
  change("host", o.host);
  change("keys", o.keys);
  change("certificate", o.certificate);
  change("key", o.key);
  change("client_ca", o.client_ca);
  if (o.port >= 0) changes.push_back(fmt::format("port={}", o.port));
  if (o.insecure) changes.push_back("insecure=true");
  if (o.allow_load) changes.push_back("allow_load=true");
  if (o.shared_memory) changes.push_back("shared_memory=true");
  if (o.no_page) changes.push_back("page=false");
  const serve::ServerSettings settings = serve::read_server_settings(o.config, changes);
  TD_CHECK(!settings.models.empty(), Value,
           "which models?\nGive their folder: tandem serve MODELS.");
  g_drain_delay = settings.drain_delay;
  g_drain_seconds = settings.drain_seconds;
  serve::Server server(serve::server_options(settings));
  g_server.store(&server);
  for (const int signal : {SIGTERM, SIGINT}) std::signal(signal, on_signal);
  std::signal(SIGHUP, on_hangup);
  print_models(server);
  if (!serve::Http2Frames::available())
    fmt::print(stderr, "  HTTP/2 and gRPC are not built in: they need libnghttp2-dev\n");
  fmt::print(stderr, "ready at {} after {:.0f} ms\n", server.url(), seconds_since(begin) * 1e3);
  server.run();
  for (const int signal : {SIGTERM, SIGINT, SIGHUP}) std::signal(signal, SIG_DFL);
  g_server.store(nullptr);
  return 0;
}

}  // namespace

void add_serve(CLI::App& app, int& code) {
  CLI::App* verb = app.add_subcommand(
      "serve",
      "Serve models over HTTP\n\n"
      "  tandem serve models/\n"
      "  tandem serve runs/mnist-lenet5 --port 8080\n"
      "  curl --data-binary @digit.png localhost:8000/predictions/mnist-lenet5\n\n"
      "Speaks the protocols of Triton (V2) and TensorFlow Serving by REST and gRPC, and those of "
      "TorchServe, SageMaker and Vertex AI; docs/serving.md has the settings");
  auto o = std::make_shared<ServeOptions>();
  verb->add_option("models", o->models, "A folder of models, a run's folder, or an ONNX file");
  verb->add_option("--from", o->from,
                   "The folder is another server's: triton (config.pbtxt), tfserving "
                   "(model_config_list), torchserve (config.properties, .mar)");
  verb->add_option("--config", o->config, "A YAML file of settings")
      ->envname(serve::kConfigVariable);
  verb->add_option("--port", o->port, "The port (8000); 0: one that is free");
  verb->add_option("--host", o->host, "The address to listen at (127.0.0.1)");
  verb->add_option("--keys", o->keys, "A file of API keys, as \"infer,metrics KEY\" on each line");
  verb->add_option("--certificate", o->certificate,
                   "A certificate (PEM): connections are encrypted (TLS 1.2 and 1.3)");
  verb->add_option("--key", o->key, "Its private key, unless it stands in the same file");
  verb->add_option("--client-ca", o->client_ca,
                   "Clients must show a certificate that one of these signed");
  verb->add_flag("--insecure", o->insecure, "Allow an address that other machines reach");
  verb->add_flag("--allow-load", o->allow_load, "Clients may load and unload models");
  verb->add_flag("--shared-memory", o->shared_memory,
                 "Clients on this machine may hand tensors over in /dev/shm");
  verb->add_option("--record", o->record,
                   "A new file for requests and answers, which bench-serve --replay sends again");
  verb->add_flag("--no-page", o->no_page, "No page for people at /");
  verb->add_option("--set", o->changes, "Any setting, as defaults.max_batch=8");
  verb->callback([&code, o] {
    init();
    code = serve_models(*o);
  });
}

}  // namespace tandem::cli
