// SPDX-License-Identifier: Apache-2.0
// What the protocols share: a call on its way, how its tensors reach a model, and how the answer
// comes back.
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "tandem/serve/json_cursor.h"
#include "tandem/serve/refusal_internal.h"
#include "tandem/serve/server.h"

namespace tandem::serve {

/// The server as handlers see it.
struct ServerContext {
  const ServerOptions& options;
  Repository& repository;
  std::function<bool()> draining;
  std::function<HttpCounts()> counts;
  /// Run beside everything else: loading takes long.
  std::function<void(std::function<void()>)> aside;
};

struct Call {
  HttpExchangePtr exchange;
  ServerContext& server;
  std::vector<std::string> path;  ///< decoded segments
  const HttpRequest& request() const { return exchange->request; }
  bool is(std::string_view method) const { return request().method == method; }
  void answer(HttpResponse r) const;
  void json(std::string body) const { answer({.body = std::move(body)}); }
  void error(int status, std::string_view text) const { answer(error_of(status, text)); }
  static HttpResponse error_of(int status, std::string_view text);
  /// Refuses other methods with 405.
  void only(std::string_view method) const;
};

/// The version asked for. Throws Refusal 404, or 503 while the server is drained.
ModelVersionPtr version_of(const Call& call, const std::string& name,
                           const std::string& version = "");
/// The model of routes that name none. Throws Refusal.
ModelVersionPtr default_version(const Call& call);

/// Checks ranks and sizes of inputs in the model's order; gives their rows. Throws Refusal.
int64_t check_inputs(const ModelVersion& v, const std::vector<Tensor>& inputs);
/// Run and answer: `respond` makes the answer of the outputs. `timeout` in seconds, 0: the model's.
void infer(const Call& call, const ModelVersionPtr& v, std::vector<Tensor> inputs, double timeout,
           std::function<HttpResponse(const JobResult&)> respond);
/// The same for a file's bytes: an image, a text ... as the model's run prepares it.
void infer_file(const Call& call, const ModelVersionPtr& v, std::string_view bytes);

// ---- the protocols: true where the path is one of theirs
bool handle_v2(Call& call);
bool handle_tensorflow(Call& call);
bool handle_predictions(Call& call);
bool handle_openai(Call& call);
/// POST /v2/models/NAME/infer, when the path is known.
void infer_v2(Call& call, const ModelVersionPtr& v);
/// A body of TensorFlow Serving's form; `instances` alone where `rows_only`.
void predict_tensorflow(Call& call, const ModelVersionPtr& v);
/// A body of any kind that the protocols without a form of their own take.
void predict_body(Call& call, const ModelVersionPtr& v);
std::string metrics_text(ServerContext& server);

/// The names of V2 for dtypes, "FP32"; "" where it has none. And back.
const char* v2_name(DType dtype);
std::optional<DType> v2_dtype(std::string_view name);

}  // namespace tandem::serve
