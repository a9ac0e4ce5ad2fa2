// SPDX-License-Identifier: Apache-2.0
// From a request over HTTP/2 to a method of gRPC.
#include <fmt/format.h>

#include "tandem/serve/grpc/call_internal.h"
#include "tandem/serve/http2/stream.h"

namespace tandem::serve {
namespace {

// The encoding of our messages: that of the client's, where it also takes it.
void set_codings(GrpcCall& call) {
  const HttpRequest& r = call.exchange->request;
  const std::string* coding = r.header("grpc-encoding");
  if (!coding) return;
  const auto known = grpc_coding(*coding);
  if (!known)
    refuse(501, "messages of the encoding '{}' are not taken; there are {}", one_line(*coding, 32),
           grpc_codings());
  call.coding = *known;
  const std::string* accepted = r.header("grpc-accept-encoding");
  if (accepted && list_holds(*accepted, *coding)) call.answers = *known;
}

void set_timeout(GrpcCall& call) {
  const std::string* text = call.exchange->request.header("grpc-timeout");
  if (!text) return;
  const auto seconds = grpc_timeout(*text);
  if (!seconds) refuse(400, "the grpc-timeout '{}' is damaged", one_line(*text, 32));
  if (*seconds <= 0) refuse(504, "the deadline has passed");
  call.timeout = *seconds;
}

std::string_view only_message(const GrpcCall& call, std::string& room) {
  std::string_view body = call.exchange->request.body;
  const auto message =
      take_message(body, call.coding, call.server.options.http.limits.body_bytes, room);
  if (!message) refuse(400, "the call has no complete message");
  if (!room.empty() && !call.exchange->hold(room.size())) refuse_held();
  if (!body.empty()) refuse(400, "the call takes one message alone, and more bytes came");
  return *message;
}

void run_method(GrpcCall& call) {
  const HttpRequest& r = call.exchange->request;
  if (r.method != "POST") refuse(501, "calls of gRPC are POST");
  const GrpcMethod* method = find_grpc_method(r.path);
  if (!method) refuse(501, "there is no method '{}'", one_line(r.path, 200));
  set_codings(call);
  set_timeout(call);
  if (method->streamed) {
    std::make_shared<MessageStream>(call, method->streamed)->start();
    return;
  }
  std::string room;
  method->call(call, only_message(call, room));
}

}  // namespace

const GrpcMethod* find_grpc_method(std::string_view path) {
  for (const auto methods :
       {v2_methods(), tensorflow_methods(), health_methods(), reflection_methods()})
    for (const GrpcMethod& m : methods)
      if (path == m.path) return &m;
  return nullptr;
}

bool is_grpc_streamed(const HttpRequest& request) {
  if (!is_grpc(request)) return false;
  const GrpcMethod* method = find_grpc_method(request.path);
  return method && method->streamed;
}

void handle_grpc(const HttpExchangePtr& exchange, ServerContext& server) {
  if (!dynamic_cast<HttpStream*>(exchange.get()))
    return exchange->answer(Call::error_of(415, "gRPC is spoken over HTTP/2 alone"));
  GrpcCall call{exchange, server};
  try {
    run_method(call);
  } catch (...) {
    call.fail(std::current_exception());
  }
}

HttpResponse GrpcCall::head(std::string body) const {
  HttpResponse r{.content_type = "application/grpc", .body = std::move(body)};
  if (answers != GrpcCoding::identity)
    r.headers.emplace_back("grpc-encoding", grpc_coding_name(answers));
  r.headers.emplace_back("grpc-accept-encoding", grpc_codings());
  return r;
}

void GrpcCall::answer(io::ProtoWriter message, HttpHeaders more) const {
  HttpResponse r = head(framed(message.take(), answers));
  r.trailers = grpc_trailers(GrpcCode::ok);
  for (auto& header : more) r.trailers.push_back(std::move(header));
  exchange->answer(std::move(r));
}

void GrpcCall::fail(int status, std::string_view text) const {
  HttpResponse r = grpc_error(status, text);
  r.headers.emplace_back("grpc-accept-encoding", grpc_codings());
  exchange->answer(std::move(r));
}

void GrpcCall::fail(const std::exception_ptr& thrown) const {
  const Refusal refusal = refusal_of(thrown);
  fail(refusal.status, refusal.text);
}

}  // namespace tandem::serve
