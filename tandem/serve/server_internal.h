// SPDX-License-Identifier: Apache-2.0
// What the protocols share: a call on its way, how its tensors reach a model, and how the answer
// comes back.
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "tandem/serve/json_cursor.h"
#include "tandem/serve/record.h"
#include "tandem/serve/refusal_internal.h"
#include "tandem/serve/server.h"

namespace tandem::serve {

class SharedMemory;

/// The server as handlers see it.
struct ServerContext {
  const ServerOptions& options;
  Repository& repository;
  std::function<bool()> draining;
  std::function<HttpCounts()> counts;
  /// Requests refused because their key has a rate.
  std::function<uint64_t()> limited;
  Recorder* recorder = nullptr;
  const AccessLog* access_log = nullptr;
  SharedMemory& shared_memory;
  /// Run beside everything else: loading takes long.
  std::function<void(std::function<void()>)> aside;
};

struct Call {
  HttpExchangePtr exchange;
  ServerContext& server;
  std::vector<std::string> path;                   ///< decoded segments
  std::shared_ptr<RecordedRequest> recorded = {};  ///< what is recorded of it, if anything is
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
ModelVersionPtr version_of(ServerContext& server, const std::string& name,
                           const std::string& version = "");
inline ModelVersionPtr version_of(const Call& call, const std::string& name,
                                  const std::string& version = "") {
  return version_of(call.server, name, version);
}
/// The same for a request that is to be answered: a version that is tried may come in its turn.
ModelVersionPtr picked_version(ServerContext& server, const std::string& name,
                               const std::string& version = "");
inline ModelVersionPtr picked_version(const Call& call, const std::string& name,
                                      const std::string& version = "") {
  return picked_version(call.server, name, version);
}
/// The model of routes that name none. Throws Refusal.
ModelVersionPtr default_version(const Call& call);

/// Checks ranks and sizes of inputs in the model's order; gives their rows. Throws Refusal.
int64_t check_inputs(const ModelVersion& v, const std::vector<Tensor>& inputs);
/// What a request says of its run, besides its inputs.
struct RunTerms {
  double timeout = 0;         ///< seconds; 0: the model's
  int64_t priority = 0;       ///< a level from 1, the first; 0: the model's
  SequenceAsk sequence = {};  ///< that it is a step of
};
/// Run; `done` gets the result on any thread, while `v` is kept. Throws Refusal.
void run_inputs(const HttpExchangePtr& exchange, const ModelVersionPtr& v,
                std::vector<Tensor> inputs, const RunTerms& terms,
                std::function<void(JobResult)> done);
/// The version that a step of a sequence runs on: that which the sequence began with, else `v`.
ModelVersionPtr version_of_step(const ModelVersionPtr& v, const SequenceAsk& sequence);
/// "queue=12us;compute=850us;batch=4"
std::string timing_text(const JobResult& r);
/// Answers a call with the result of its run: `respond` makes the answer of the outputs.
std::function<void(JobResult)> answer_with(const Call& call,
                                           std::function<HttpResponse(const JobResult&)> respond);
/// Run and answer.
void infer(const Call& call, const ModelVersionPtr& v, std::vector<Tensor> inputs,
           const RunTerms& terms, std::function<HttpResponse(const JobResult&)> respond);
/// The same for a file's bytes: an image, a text ... as the model's run prepares it.
void infer_file(const Call& call, const ModelVersionPtr& v, std::string_view bytes);

// ---- the protocols: true where the path is one of theirs
bool handle_v2(Call& call);
bool handle_tensorflow(Call& call);
bool handle_predictions(Call& call);
bool handle_openai(Call& call);
/// POST /v2/models/NAME/infer, when the path is known.
void infer_v2(Call& call, const ModelVersionPtr& v);
/// Loading by request: throws Refusal where it is not allowed, and for parameters that would bring
/// files or settings along. `done` gets an HTTP status and why it failed.
void check_may_load(const ServerContext& server);
void check_load_parameter(const std::string& name);
void change_model(ServerContext& server, const std::string& name, bool load,
                  std::function<void(int status, const std::string& text)> done);
/// A body of TensorFlow Serving's form; `instances` alone where `rows_only`.
void predict_tensorflow(Call& call, const ModelVersionPtr& v);
/// A body of any kind that the protocols without a form of their own take.
void predict_body(Call& call, const ModelVersionPtr& v);
std::string metrics_text(ServerContext& server);
/// Of this process.
double resident_bytes();
/// The page for people and its state; the page is "/" for those who accept HTML.
bool handle_page(Call& call);
bool asks_for_page(const HttpRequest& request);

/// A call of gRPC: grpc/handle.cpp. And is it one that is answered in pieces?
void handle_grpc(const HttpExchangePtr& exchange, ServerContext& server);
bool is_grpc_streamed(const HttpRequest& request);

/// Refuses other signatures than the one there is.
void check_signature(const std::string& name);

/// The names of V2 for dtypes, "FP32", and back.
const char* v2_name(DType dtype);
std::optional<DType> v2_dtype(std::string_view name);

}  // namespace tandem::serve
