// SPDX-License-Identifier: Apache-2.0
// What clients of HTTP/2 and gRPC send, as readers: frames of a connection, and messages with
// tensors.
#include "tandem/io/protobuf.h"
#include "tandem/serve/grpc/tensor_proto_internal.h"
#include "tandem/serve/grpc/v2_messages_internal.h"
#include "tandem/serve/http2/connection_internal.h"
#include "tests/readers/readers.h"

namespace tandem::readers {
namespace {

/// Answers at once, with the request.
class EchoStream : public serve::HttpStream {
 public:
  EchoStream(serve::HttpRequest r, serve::Http2Connection& connection, int32_t stream)
      : connection_(connection), stream_(stream) {
    request = std::move(r);
    on_body = [this](std::string_view bytes, bool ended) {
      take(bytes.size(), 0);
      if (ended) answer({.body = "end"});
    };
  }
  void answer(serve::HttpResponse r) override { connection_.answer(stream_, std::move(r), true); }
  void write(serve::HttpResponse r) override { connection_.answer(stream_, std::move(r), false); }
  bool on_loop() const override { return true; }
  void take(size_t bytes, size_t held) override { connection_.take(stream_, bytes, held); }
  size_t unsent() const override { return connection_.unsent(stream_); }
  void nudge() override { connection_.nudge(stream_); }

 private:
  serve::Http2Connection& connection_;
  int32_t stream_;
};

// A connection that gets `bytes` in pieces; true: it was not ended. (Pieces may well be answered in
// another way than the whole: streams close when their answers are sent.)
bool read_frames(std::string_view bytes, size_t step) {
  serve::HttpOptions options;
  options.limits = {
      .body_bytes = 1 << 16, .header_bytes = 4096, .target_bytes = 1024, .headers = 20};
  options.streamed = [](const serve::HttpRequest& r) { return r.path == "/stream"; };
  const std::string date = "now";
  serve::Http2Connection* self = nullptr;
  const auto dispatch = [&](serve::HttpRequest r, int32_t stream, bool streamed) {
    TD_CHECK(r.body.size() <= options.limits.body_bytes + serve::kGrpcPrefix, Internal,
             "a body of {} bytes", r.body.size());
    auto exchange = std::make_shared<EchoStream>(std::move(r), *self, stream);
    if (!streamed) exchange->answer({.body = exchange->request.body});
    return std::static_pointer_cast<serve::HttpStream>(exchange);
  };
  serve::Http2Connection connection(serve::Http2Owner{options,
                                                      "",
                                                      dispatch,
                                                      {},
                                                      [] { return 0.0; },
                                                      [&]() -> const std::string& { return date; },
                                                      [](bool) {}});
  self = &connection;
  std::string out;
  bool ok = connection.receive(serve::kHttp2Preface);
  for (size_t at = 0; ok && at < bytes.size(); at += step) {
    ok = connection.receive(bytes.substr(at, step));
    out.clear();
    connection.produce(out, 1 << 20);
    TD_CHECK(connection.held() <= 256 * (size_t{1} << 17), Internal, "{} bytes are held",
             connection.held());
  }
  return ok && !connection.over();
}

std::string frame_of(int type, int flags, int stream, const std::string& payload) {
  return big_endian({{payload.size(), 3},
                     {static_cast<uint64_t>(type), 1},
                     {static_cast<uint64_t>(flags), 1},
                     {static_cast<uint64_t>(stream), 4}}) +
         payload;
}

const std::vector<serve::ModelPort>& ports() {
  static const std::vector<serve::ModelPort> all = {
      {.name = "x", .dtype = DType::f32, .shape = {-1, 2}}};
  return all;
}

// A refusal of the server is one of the reader.
template <class F>
void refusing(F f) {
  try {
    f();
  } catch (const serve::Refusal& r) {
    TD_FAIL(Format, "refused with {}: {}", r.status, r.text);
  }
}

}  // namespace

std::vector<std::string> http2_seeds() {
  const std::string settings = frame_of(4, 0, 0, ""), ping = frame_of(6, 0, 0, "12345678");
  const auto head = [](const std::string& path) {
    return "\x83\x86\x41\x01h\x44" + std::string(1, static_cast<char>(path.size())) + path;
  };
  return {settings + frame_of(1, 5, 1, head("/a?b")),
          settings + frame_of(1, 4, 1, head("/a")) + frame_of(0, 1, 1, "body") + ping,
          settings + frame_of(1, 4, 1, head("/stream")) + frame_of(0, 0, 1, "piece") +
              frame_of(8, 0, 1, big_endian({{100, 4}})) + frame_of(0, 1, 1, "end"),
          settings + frame_of(1, 0, 1, head("/c")) + frame_of(9, 4, 1, "\x40\x01n\x01v") +
              frame_of(3, 0, 1, big_endian({{8, 4}})),
          settings + frame_of(1, 5, 1,
                              head("/") + "\x5f\x10"
                                          "application/grpc")};
}
void read_http2(std::string_view bytes) {
  bool ok = true;
  // (libnghttp2 takes a head in pieces of one byte for a flood of CONTINUATION.)
  for (const size_t step : {std::max<size_t>(1, bytes.size()), size_t{3}, size_t{7}})
    ok = read_frames(bytes, step) && ok;
  TD_CHECK(ok, Format, "the connection was ended");
}

std::vector<std::string> grpc_seeds() {
  io::ProtoWriter raw, typed, input, contents, parameter, choice;
  input.add_bytes(1, "x");
  input.add_bytes(2, "FP32");
  input.add_packed(3, std::vector<int64_t>{1, 2});
  contents.add_packed(6, std::vector<float>{1, 2});
  choice.add_int(2, 5);
  parameter.add_bytes(1, "timeout");
  parameter.add_message(2, choice);
  raw.add_bytes(1, "m");
  raw.add_bytes(3, "id");
  raw.add_message(4, parameter);
  raw.add_message(5, input);
  raw.add_bytes(7, "12345678");
  input.add_message(5, contents);
  typed.add_bytes(1, "m");
  typed.add_message(5, input);
  io::ProtoWriter texts, element, elements;
  element.add_bytes(1, "text");
  element.add_bytes(2, "BYTES");
  element.add_packed(3, std::vector<int64_t>{2});
  io::ProtoWriter also = element;
  elements.add_bytes(8, "a");
  elements.add_bytes(8, "text");
  also.add_message(5, elements);
  texts.add_message(5, element);
  texts.add_bytes(7, std::string("\1\0\0\0a\4\0\0\0text", 13));
  io::ProtoWriter typed_texts;
  typed_texts.add_message(5, also);
  return {raw.str(), typed.str(), texts.str(), typed_texts.str()};
}
void read_grpc(std::string_view bytes) {
  refusing([&] {
    const serve::V2Request request = serve::read_v2_request(bytes);
    const serve::SharedMemory shared(true);
    std::string room;
    for (const serve::AskedInput& in : request.asked.inputs)
      if (in.datatype == serve::kBytes) (void)serve::bytes_elements(in, shared, room);
    if (request.asked.inputs.empty() || request.asked.inputs[0].datatype != serve::kBytes)
      (void)serve::tensors_of(request.asked, ports(), shared);
  });
}

std::vector<std::string> tensor_proto_seeds() {
  io::ProtoWriter whole, one, shape, dim;
  dim.add_int(1, 2);
  shape.add_message(2, dim);
  shape.add_message(2, dim);
  for (io::ProtoWriter* w : {&whole, &one}) {
    w->add_int(1, 1);
    w->add_message(2, shape);
  }
  whole.add_bytes(4, std::string(16, 'a'));
  one.add_packed(5, std::vector<float>{7});
  return {whole.str(), one.str()};
}
void read_tensor_proto(std::string_view bytes) {
  refusing([&] {
    serve::Asked asked;
    size_t left = size_t{1} << 16;
    asked.inputs.push_back(serve::read_tensor_proto("x", bytes, left));
    (void)serve::tensors_of(asked, ports(), serve::SharedMemory(false));
  });
}

}  // namespace tandem::readers
