// SPDX-License-Identifier: Apache-2.0
// serve::Server: a folder of models behind one HTTP port, for clients of the Open Inference
// Protocol (Triton), TensorFlow Serving, TorchServe, SageMaker and Vertex AI.
//   serve::Server server({.models = "models", .http = {.port = 8000}});
//   server.run();
// `tandem serve` is this and signal handlers. docs/serving.md says what is spoken.
#pragma once

#include <memory>
#include <string>

#include "tandem/serve/access_log.h"
#include "tandem/serve/http/server.h"
#include "tandem/serve/keys.h"
#include "tandem/serve/model/repository.h"

namespace tandem::serve {

struct ServerOptions {
  std::string models;           ///< a folder of models, or a model
  std::string from = "";        ///< triton, tfserving, torchserve: whose layout they have
  ModelSettings defaults = {};  ///< of models whose serve.yaml does not say otherwise
  HttpOptions http = {};
  bool insecure = false;             ///< an address that others reach, though nobody needs a key
  ApiKeys keys = {};                 ///< empty: nobody needs one
  std::string keys_file = "";        ///< of `keys`, read again by reload()
  bool allow_load = false;           ///< clients may load and unload models
  bool shared_memory = false;        ///< clients may name objects of /dev/shm for their tensors
  std::string record = "";           ///< requests and answers go to this new file
  double record_bytes = 1 << 30;     ///< how large that may become
  std::string traces = "";           ///< spans of requests go to this file, as OTLP's JSON
  double traces_bytes = 1 << 30;     ///< how much of them
  AccessLogOptions access_log = {};  ///< a line for each request; without a path none
  double watch = 0;                  ///< seconds between looks at the folder; 0: it is not watched
  bool page = true;                  ///< a page for people at "/"
  bool links = false;                ///< links may lead out of the folder
  std::string default_model = "";    ///< of routes that name none; "": the only one
  std::string health_route = "", predict_route = "";  ///< of Vertex AI: AIP_HEALTH_ROUTE ...
};

class TD_API Server {
 public:
  /// Loads the models and listens. Throws Io where the folder, the address or a file of `http.tls`
  /// cannot be had, Value for an address that others reach where neither a key nor a certificate is
  /// asked for, without `insecure`.
  explicit Server(ServerOptions options);
  ~Server();
  Server(const Server&) = delete;
  Server& operator=(const Server&) = delete;

  /// Serves until drain() has done its work.
  void run();
  /// Readiness is gone at once; see HttpServer::drain(). Safe in a signal handler.
  void drain(double delay = 0, double wait = 30) noexcept;
  /// Reads the certificate, its key and the file of API keys again, for what comes from now on.
  /// What cannot be used is warned of, and what was in use stays. Safe in a signal handler.
  void reload() noexcept;
  int port() const;
  std::string url() const;
  Repository& repository();
  /// What /metrics shows.
  std::string metrics() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace tandem::serve
