// SPDX-License-Identifier: Apache-2.0
// For tests of gRPC: requests as messages, and answers with their status.
#pragma once

#include "tandem/serve/grpc/message.h"
#include "tandem/serve/http2/client.h"
#include "tests/serve/serve_helper.h"

namespace tandem::serve {

struct GrpcAnswer {
  int code = -1;        ///< grpc-status
  std::string text;     ///< grpc-message
  std::string message;  ///< the first one
  HttpResponse http;
};

inline std::string trailer_of(const HttpResponse& r, std::string_view name) {
  for (const HttpHeaders* list : {&r.trailers, &r.headers})
    for (const auto& [key, value] : *list)
      if (key == name) return value;
  return "";
}

inline GrpcAnswer grpc_answer(HttpResponse r) {
  GrpcAnswer out;
  const std::string code = trailer_of(r, "grpc-status");
  out.code = code.empty() ? -1 : std::stoi(code);
  out.text = trailer_of(r, "grpc-message");
  const auto coding = grpc_coding(trailer_of(r, "grpc-encoding")).value_or(GrpcCoding::identity);
  std::string_view body = r.body;
  std::string room;
  if (const auto m = take_message(body, coding, size_t{1} << 30, room)) out.message = *m;
  out.http = std::move(r);
  return out;
}

/// The messages of a stream that ended well, uncompressed.
inline std::vector<std::string> streamed_messages(const HttpResponse& r) {
  std::vector<std::string> out;
  std::string_view body = r.body;
  std::string room;
  if (trailer_of(r, "grpc-status") != "0") return out;
  while (const auto m = take_message(body, GrpcCoding::identity, size_t{1} << 20, room))
    out.emplace_back(*m);
  return out;
}

inline std::string as_body(const io::ProtoWriter& message) {
  return framed(std::string(5, '\0') + message.str());
}

inline GrpcAnswer grpc_call(int port, const std::string& method, const io::ProtoWriter& message,
                            const HttpHeaders& headers = {}) {
  Http2Client client("127.0.0.1", port, 20);
  return grpc_answer(client.call(method, as_body(message), headers));
}

/// An input of V2: shape, and bytes or contents in the field `field`.
struct V2Input {
  std::string name = "x", datatype = "FP32";
  std::vector<int64_t> shape = {1, 4};
  std::optional<std::string> raw = {};
  uint32_t field = 0;  ///< of InferTensorContents
  std::vector<float> floats = {};
  std::vector<int64_t> ints = {};
  std::vector<std::string> texts = {};  ///< bytes_contents, where `field` is 8
};

inline io::ProtoWriter v2_infer_request(const std::string& model,
                                        const std::vector<V2Input>& inputs,
                                        const std::vector<std::string>& outputs = {},
                                        const std::string& id = "") {
  io::ProtoWriter out;
  out.add_bytes(1, model);
  if (!id.empty()) out.add_bytes(3, id);
  for (const V2Input& in : inputs) {
    io::ProtoWriter t, contents;
    t.add_bytes(1, in.name);
    t.add_bytes(2, in.datatype);
    t.add_packed(3, in.shape);
    if (!in.floats.empty()) contents.add_packed(in.field, in.floats);
    if (!in.ints.empty()) contents.add_packed(in.field, in.ints);
    for (const std::string& text : in.texts) contents.add_bytes(in.field, text);
    if (in.field > 0) t.add_message(5, contents);
    out.add_message(5, t);
  }
  for (const std::string& name : outputs) {
    io::ProtoWriter o;
    o.add_bytes(1, name);
    out.add_message(6, o);
  }
  for (const V2Input& in : inputs)
    if (in.raw) out.add_bytes(7, *in.raw);
  return out;
}

/// A parameter of a request, an input or an output: its name, and its value as an InferParameter.
inline io::ProtoWriter v2_parameter(const std::string& name, uint32_t field, int64_t value) {
  io::ProtoWriter choice, entry;
  choice.add_int(field, value);
  entry.add_bytes(1, name);
  entry.add_message(2, choice);
  return entry;
}
inline io::ProtoWriter v2_parameter(const std::string& name, const std::string& value) {
  io::ProtoWriter choice, entry;
  choice.add_bytes(3, value);
  entry.add_bytes(1, name);
  entry.add_message(2, choice);
  return entry;
}
/// A requested output with parameters.
inline void add_v2_output(io::ProtoWriter& request, const std::string& name,
                          const std::vector<io::ProtoWriter>& parameters) {
  io::ProtoWriter out;
  out.add_bytes(1, name);
  for (const io::ProtoWriter& p : parameters) out.add_message(2, p);
  request.add_message(6, out);
}

inline std::string bytes_of_floats(const std::vector<float>& v) {
  return {reinterpret_cast<const char*>(v.data()), v.size() * 4};
}
inline V2Input raw_input(const std::vector<float>& v = {1, 2, 3, 4},
                         std::vector<int64_t> shape = {1, 4}) {
  return {.shape = std::move(shape), .raw = bytes_of_floats(v)};
}

/// The bytes fields with a number, of a message.
inline std::vector<std::string> fields_of(std::string_view message, uint32_t number) {
  std::vector<std::string> out;
  io::ProtoDocument document(message, "an answer");
  for (io::ProtoReader r = document.reader(); r.next();) {
    if (r.field() != number) continue;
    out.push_back(r.type() == io::ProtoType::varint ? std::to_string(r.unsigned_value())
                                                    : r.text());
  }
  return out;
}
inline std::string field_of(std::string_view message, uint32_t number) {
  const auto all = fields_of(message, number);
  return all.empty() ? "" : all[0];
}

}  // namespace tandem::serve
