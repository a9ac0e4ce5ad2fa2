// SPDX-License-Identifier: Apache-2.0
// Requests of load tests, as the server's own description of a model says.
#include <fmt/format.h>

#include <charconv>

#include "tandem/base/error.h"
#include "tandem/io/json.h"
#include "tandem/ops/ops.h"
#include "tandem/serve/grpc/message.h"
#include "tandem/serve/grpc/tensor_proto_internal.h"
#include "tandem/serve/http/client.h"
#include "tandem/serve/http2/client.h"
#include "tandem/serve/load_test.h"
#include "tandem/serve/protocol/v2_internal.h"

namespace tandem::serve {
namespace {

/// An input with the numbers that are sent for it.
struct LoadInput {
  std::string name;
  Tensor values;
  std::vector<int64_t> shape;
  std::string_view bytes() const {
    return {static_cast<const char*>(values.data_ptr()),
            static_cast<size_t>(values.numel()) * size_of(values.dtype())};
  }
};

LoadInput random_input(std::string name, DType dtype, std::vector<int64_t> shape, int64_t rows) {
  for (size_t i = 0; i < shape.size(); ++i)
    if (shape[i] < 0) shape[i] = i == 0 ? rows : 1;
  const Tensor x = randn(Shape(shape));
  return {std::move(name), is_floating(dtype) ? x.to(dtype) : (x > 0).to(dtype), std::move(shape)};
}

[[noreturn]] void no_model(const std::string& model, const std::string& why) {
  TD_FAIL(Value, "the server has no model '{}': {}", model, one_line(why));
}
[[noreturn]] void not_numbers(const std::string& model, const std::string& input) {
  TD_FAIL(Format, "input '{}' of '{}' does not hold numbers\nGive a request of your own: --body.",
          input, model);
}

HttpHeaders key_headers(const LoadModel& m) {
  if (m.key.empty()) return {};
  return {{"authorization", "Bearer " + m.key}};
}

io::Json ask_metadata(const std::string& url, const std::string& path, const LoadModel& m) {
  HttpClient client{HttpUrl(url)};
  const HttpResponse r = client.request("GET", path, {}, key_headers(m));
  if (r.status != 200) no_model(m.name, fmt::format("{} {}", r.status, r.body));
  return io::parse_json(r.body, "the model's metadata");
}

std::vector<LoadInput> v2_inputs_of(const std::string& url, const LoadModel& m) {
  const io::Json metadata = ask_metadata(url, "/v2/models/" + m.name, m);
  const io::Json* inputs = metadata.find("inputs");
  TD_CHECK(inputs && inputs->as_array(), Format, "the model's metadata names no inputs");
  std::vector<LoadInput> out;
  for (const io::Json& input : *inputs->as_array()) {
    const std::string name = io::text_of(input.find("name")),
                      datatype = io::text_of(input.find("datatype"));
    if (datatype == kBytes && !out.empty()) continue;  // in the place of the others
    const auto dtype = v2_dtype(datatype);
    const io::Json* sizes = input.find("shape");
    if (!dtype || !sizes || !sizes->as_array()) not_numbers(m.name, name);
    std::vector<int64_t> shape;
    for (const io::Json& n : *sizes->as_array()) shape.push_back(io::whole_of(&n));
    out.push_back(random_input(name, *dtype, std::move(shape), m.rows));
  }
  return out;
}

LoadRequest v2_rest(const std::string& url, const LoadModel& m) {
  const bool binary = m.protocol == LoadProtocol::v2;
  std::string head = "{\"inputs\":[", tail;
  for (const LoadInput& in : v2_inputs_of(url, m)) {
    if (head.back() == '}') head += ',';
    head += "{\"name\":" + io::quote_json(in.name) +
            fmt::format(",\"datatype\":\"{}\",\"shape\":[{}]", v2_name(in.values.dtype()),
                        fmt::join(in.shape, ","));
    if (binary) {
      head += fmt::format(",\"parameters\":{{\"binary_data_size\":{}}}}}", in.bytes().size());
      tail += in.bytes();
    } else {
      head += ",\"data\":";
      write_array(head, in.values, NonFinite::null, false);
      head += '}';
    }
  }
  head += binary ? "],\"parameters\":{\"binary_data_output\":true}}" : "]}";
  LoadRequest out{.method = "POST", .path = "/v2/models/" + m.name + "/infer"};
  out.headers.emplace_back("Content-Type",
                           binary ? "application/octet-stream" : "application/json");
  if (binary)
    out.headers.emplace_back("Inference-Header-Content-Length", std::to_string(head.size()));
  out.body = head + tail;
  return out;
}

/// A call with `body`, a message with its prefix.
LoadRequest grpc_request(std::string path, std::string body) {
  return {.method = "POST",
          .path = std::move(path),
          .body = std::move(body),
          .headers = {{"content-type", "application/grpc"}, {"te", "trailers"}},
          .grpc = true};
}

/// The answer's first message. Throws Value for a call that failed.
std::string grpc_metadata(const std::string& url, const std::string& path, io::ProtoWriter ask,
                          const LoadModel& m) {
  const HttpUrl to(url);
  Http2Client client(to);
  const HttpResponse r = client.call(path, framed(ask.take()), key_headers(m));
  std::string code, text;
  for (const HttpHeaders* list : {&r.headers, &r.trailers})
    for (const auto& [name, value] : *list) {
      if (name == "grpc-status") code = value;
      if (name == "grpc-message") text = value;
    }
  if (code != "0") no_model(m.name, fmt::format("gRPC {} {}", code, text));
  std::string_view body = r.body;
  std::string room;
  const auto message = take_message(body, GrpcCoding::identity, size_t{64} << 20, room);
  TD_CHECK(message, Format, "the model's metadata is not complete");
  return std::string(*message);
}

LoadRequest v2_grpc(const std::string& url, const LoadModel& m) {
  const std::string service = "/inference.GRPCInferenceService/";
  io::ProtoWriter ask = new_message();
  ask.add_bytes(1, m.name);
  const std::string answer = grpc_metadata(url, service + "ModelMetadata", std::move(ask), m);
  io::ProtoWriter out = new_message();
  out.add_bytes(1, m.name);
  std::vector<LoadInput> inputs;
  io::ProtoDocument document(answer, "the model's metadata");
  for (io::ProtoReader r = document.reader(); r.next();) {
    if (r.field() != 4) continue;
    std::string name, datatype;
    std::vector<int64_t> shape;
    for (io::ProtoReader port = r.message(); port.next();) {
      if (port.field() == 1) name = port.text();
      if (port.field() == 2) datatype = port.text();
      if (port.field() == 3) port.append(shape);
    }
    if (datatype == kBytes && !inputs.empty()) continue;
    const auto dtype = v2_dtype(datatype);
    if (!dtype) not_numbers(m.name, name);
    inputs.push_back(random_input(name, *dtype, std::move(shape), m.rows));
  }
  for (const LoadInput& in : inputs) {
    io::ProtoWriter tensor;
    tensor.add_bytes(1, in.name);
    tensor.add_bytes(2, v2_name(in.values.dtype()));
    tensor.add_packed(3, in.shape);
    out.add_message(5, tensor);
  }
  for (const LoadInput& in : inputs) out.add_bytes(7, in.bytes());
  return grpc_request(service + "ModelInfer", framed(out.take()));
}

int64_t size_text(const io::Json* j) {  // 64-bit numbers are texts in JSON of protocol buffers
  const std::string text = io::text_of(j);
  int64_t n = io::whole_of(j);
  if (!text.empty()) std::from_chars(text.data(), text.data() + text.size(), n);
  return n;
}

std::vector<LoadInput> tensorflow_inputs_of(const std::string& url, const LoadModel& m) {
  const io::Json all = ask_metadata(url, "/v1/models/" + m.name + "/metadata", m);
  const io::Json* at = &all;
  for (const char* key :
       {"metadata", "signature_def", "signature_def", "serving_default", "inputs"}) {
    at = at->find(key);
    TD_CHECK(at, Format, "the model's metadata has no '{}'", key);
  }
  TD_CHECK(at->as_object(), Format, "the model's metadata names no inputs");
  std::vector<LoadInput> out;
  for (const auto& [name, port] : *at->as_object()) {
    const std::string type = io::text_of(port.find("dtype"));
    std::optional<DType> dtype;
    for (int i = 0; i < kDTypeCount; ++i)
      if (io::tf_type_of(static_cast<DType>(i)).proto == type) dtype = static_cast<DType>(i);
    const io::Json* shape = port.find("tensor_shape");
    const io::Json* dims = shape ? shape->find("dim") : nullptr;
    if (!dtype || !dims || !dims->as_array()) not_numbers(m.name, name);
    std::vector<int64_t> sizes;
    for (const io::Json& d : *dims->as_array()) sizes.push_back(size_text(d.find("size")));
    out.push_back(random_input(name, *dtype, std::move(sizes), m.rows));
  }
  return out;
}

LoadRequest tensorflow_rest(const std::string& url, const LoadModel& m) {
  const std::vector<LoadInput> inputs = tensorflow_inputs_of(url, m);
  std::string body = "{\"inputs\":{";
  for (const LoadInput& in : inputs) {
    if (body.back() != '{') body += ',';
    body += io::quote_json(in.name) + ':';
    write_array(body, in.values, NonFinite::words, true);
  }
  return {.method = "POST",
          .path = "/v1/models/" + m.name + ":predict",
          .body = body + "}}",
          .headers = {{"Content-Type", "application/json"}}};
}

LoadRequest tensorflow_grpc(const std::string& url, const LoadModel& m) {
  io::ProtoWriter out = new_message(), spec;
  spec.add_bytes(1, m.name);
  out.add_message(1, spec);
  for (const LoadInput& in : tensorflow_inputs_of(url, m)) {
    io::ProtoWriter entry;
    entry.add_bytes(1, in.name);
    entry.add_message(2, write_tensor_proto(in.values));
    out.add_message(2, entry);
  }
  return grpc_request("/tensorflow.serving.PredictionService/Predict", framed(out.take()));
}

LoadRequest text_request(const LoadModel& m) {
  const std::string number = "00000000", prompt = io::quote_json(number + " " + m.prompt);
  const bool chat = m.protocol == LoadProtocol::chat;
  std::string body = "{\"model\":" + io::quote_json(m.name);
  body += chat ? ",\"messages\":[{\"role\":\"user\",\"content\":" : ",\"prompt\":";
  const size_t at = body.size() + 1;
  body += prompt + (chat ? "}]" : "");
  body += fmt::format(
      ",\"max_tokens\":{},\"temperature\":0,\"stream\":true,\"stream_options\":"
      "{{\"include_usage\":true}}}}",
      m.tokens);
  return {.method = "POST",
          .path = chat ? "/v1/chat/completions" : "/v1/completions",
          .body = std::move(body),
          .headers = {{"Content-Type", "application/json"}, {"Accept", "text/event-stream"}},
          .number_at = at};
}

LoadRequest request_of(const std::string& url, const LoadModel& m) {
  switch (m.protocol) {
    case LoadProtocol::v2:
    case LoadProtocol::v2_json:
      return v2_rest(url, m);
    case LoadProtocol::v2_grpc:
      return v2_grpc(url, m);
    case LoadProtocol::tensorflow:
      return tensorflow_rest(url, m);
    case LoadProtocol::tensorflow_grpc:
      return tensorflow_grpc(url, m);
    default:
      return text_request(m);
  }
}

}  // namespace

const std::vector<std::string>& load_protocols() {
  static const std::vector<std::string> names = {
      "v2", "v2-json", "grpc", "tensorflow", "tensorflow-grpc", "completions", "chat"};
  return names;
}

LoadRequest load_request(const std::string& url, const LoadModel& m) {
  LoadRequest out = request_of(url, m);
  for (auto& header : key_headers(m)) out.headers.push_back(std::move(header));
  return out;
}

LoadRequest v2_request(const std::string& url, const std::string& model, int64_t rows,
                       bool binary) {
  return load_request(
      url,
      {.protocol = binary ? LoadProtocol::v2 : LoadProtocol::v2_json, .name = model, .rows = rows});
}

}  // namespace tandem::serve
