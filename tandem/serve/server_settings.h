// SPDX-License-Identifier: Apache-2.0
// The settings of a server as people write them: a YAML file, and KEY=VALUE on top of it.
#pragma once

#include <string>
#include <vector>

#include "tandem/serve/server.h"

namespace tandem::serve {

/// The variable that names the file of settings where `--config` does not.
inline constexpr const char* kConfigVariable = "TANDEM_SERVE_CONFIG";

struct ServerSettings {
  std::string models = "", from = "";
  std::string host = "127.0.0.1";
  int64_t port = 8000;
  std::string keys = "";
  std::string certificate = "", key = "", client_ca = "";
  double watch = 1;
  bool insecure = false, allow_load = false, shared_memory = false, links = false, page = true;
  std::string default_model = "";
  int64_t connections = 1024;
  double body_mb = 64, in_flight_mb = 1024;
  std::string record = "";
  double record_mb = 1024;
  std::string traces = "";
  double traces_mb = 1024;
  std::string access_log = "", access_log_format = "json";
  double access_log_mb = 1024;
  int64_t workers = 1;
  double header_seconds = 10, idle_seconds = 60, answer_seconds = 120;
  double rate_bytes = 1024;
  double drain_delay = 0, drain_seconds = 30;
  ModelSettings defaults = {};

  template <class V>
  void fields(V& v) {
    v("models", models, {.doc = "the folder of models, or one model"});
    v("host", host, {.doc = "the address to listen at"});
    v("port", port, {.doc = "the port; 0: one that is free", .at_least = 0, .at_most = 65535});
    v("from", from,
      {.doc = "the server whose folder of models it is: triton, tfserving, torchserve"});
    v("watch", watch,
      {.doc = "how often the folder of models is looked at, for versions that come and go; 0: they "
              "are loaded by request alone",
       .unit = "seconds",
       .at_least = 0,
       .at_most = 86400});
    v("insecure", insecure, {.doc = "listen at an address that other machines reach"});
    v("keys", keys, {.doc = "a file of API keys: scopes and a key on each line"});
    v("certificate", certificate,
      {.doc = "a certificate in PEM form, and those between it and the root: connections are "
              "encrypted"});
    v("key", key, {.doc = "its private key; without one it stands in the certificate's file"});
    v("client_ca", client_ca, {.doc = "clients must show a certificate that one of these signed"});
    v("allow_load", allow_load, {.doc = "clients may load and unload models"});
    v("shared_memory", shared_memory,
      {.doc = "clients may name objects of shared memory that hold their tensors"});
    v("links", links, {.doc = "links may lead out of the folder of models"});
    v("page", page, {.doc = "a page for people at /"});
    v("default_model", default_model, {.doc = "the model of routes that name none"});
    v("connections", connections, {.doc = "open connections at most", .at_least = 1});
    v("body_mb", body_mb, {.doc = "the largest body", .unit = "MiB", .above = 0, .at_most = 65536});
    v("in_flight_mb", in_flight_mb,
      {.doc =
           "how much all requests may hold that are read or handled, and answers that clients of "
           "HTTP/2 do not take; more are answered with 503",
       .unit = "MiB",
       .above = 0,
       .at_most = 1048576});
    v("record", record,
      {.doc = "a new file for requests and their answers, to be sent again by bench-serve"});
    v("record_mb", record_mb, {.doc = "how large that may become", .unit = "MiB", .above = 0});
    v("traces", traces, {.doc = "a file for spans of requests, as lines of OTLP's JSON"});
    v("traces_mb", traces_mb, {.doc = "how much is written there", .unit = "MiB", .above = 0});
    v("access_log", access_log,
      {.doc = "a file for a line about each request; -: standard output"});
    v("access_log_format", access_log_format, {.doc = "of its lines", .one_of = "json combined"});
    v("access_log_mb", access_log_mb,
      {.doc = "beyond which the file becomes FILE.1 and a new one begins",
       .unit = "MiB",
       .above = 0});
    v("workers", workers,
      {.doc = "threads that decode files and read large bodies", .at_least = 1, .at_most = 64});
    v("header_seconds", header_seconds,
      {.doc = "patience for the headers of a request", .unit = "seconds", .above = 0});
    v("idle_seconds", idle_seconds,
      {.doc = "patience between requests", .unit = "seconds", .above = 0});
    v("answer_seconds", answer_seconds,
      {.doc = "after which a request is answered with 504", .unit = "seconds", .above = 0});
    v("rate_bytes", rate_bytes,
      {.doc = "the least rate of bodies and answers", .unit = "bytes a second", .at_least = 0});
    v("drain_delay", drain_delay,
      {.doc = "after SIGTERM connections are still accepted for so long",
       .unit = "seconds",
       .at_least = 0});
    v("drain_seconds", drain_seconds,
      {.doc = "after that requests may finish for so long", .unit = "seconds", .at_least = 0});
    v("defaults", defaults, {.doc = "of models whose serve.yaml does not say otherwise"});
  }
};

/// From a file ("" for none) and KEY=VALUE texts, with dotted keys: "defaults.max_batch=8". Throws
/// Value naming the nearest key.
TD_API ServerSettings read_server_settings(const std::string& file,
                                           const std::vector<std::string>& changes);
/// With Vertex AI's AIP_HTTP_PORT, AIP_HEALTH_ROUTE and AIP_PREDICT_ROUTE where they are set.
TD_API ServerOptions server_options(const ServerSettings& settings);

}  // namespace tandem::serve
