// SPDX-License-Identifier: Apache-2.0
// gRPC over a running server: every bad call gets its status and leaves the server healthy, and a
// tensor has the bits that it has by REST.
#include <gtest/gtest.h>

#include <thread>

#include "tests/io/io_helper.h"
#include "tests/serve/grpc_helper.h"
#include "tests/support/init.h"

namespace tandem::serve {
namespace {

const std::string kV2 = "/inference.GRPCInferenceService/";
const std::string kPrediction = "/tensorflow.serving.PredictionService/";
constexpr int kInvalid = 3, kDeadline = 4, kNotFound = 5, kDenied = 7, kExhausted = 8,
              kUnimplemented = 12;

class Grpc : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
    if (!Http2Frames::available()) return;
    folder_ = new TempFolder;
    put_model(*folder_ / "scale/1/model.onnx", scale_model(2));
    put_model(*folder_ / "scale/3/model.onnx", scale_model(3));
    put_model(*folder_ / "scale/serve.yaml",
              "latest: 0\nlabels: [stable=1]\nmax_batch: 4\npriority_levels: 2\n");
    put_model(*folder_ / "pair.onnx", pair_model());
    put_model(*folder_ / "lookup.onnx", lookup_model());
    server_ = new Running(
        {.models = folder_->path().string(), .http = {.limits = {.body_bytes = size_t{4} << 20}}});
  }
  static void TearDownTestSuite() {
    delete server_;
    delete folder_;
  }
  void SetUp() override {
    if (!Http2Frames::available()) GTEST_SKIP() << "this build has no HTTP/2";
  }
  static GrpcAnswer call(const std::string& method, const io::ProtoWriter& message,
                         const HttpHeaders& headers = {}) {
    return grpc_call((*server_)->port(), method, message, headers);
  }
  static GrpcAnswer send(const std::string& method, std::string_view body,
                         const HttpHeaders& headers = {}) {
    Http2Client client("127.0.0.1", (*server_)->port(), 20);
    return grpc_answer(client.call(method, body, headers));
  }
  static void expect_healthy() {
    EXPECT_EQ(field_of(call("/grpc.health.v1.Health/Check", {}).message, 1), "1");
    const GrpcAnswer good = call(kV2 + "ModelInfer", v2_infer_request("scale", {raw_input()}));
    EXPECT_EQ(good.code, 0) << good.text;
    EXPECT_EQ(field_of(good.message, 6), bytes_of_floats({3, 6, 9, 12}));
  }
  static TempFolder* folder_;
  static Running* server_;
};
TempFolder* Grpc::folder_ = nullptr;
Running* Grpc::server_ = nullptr;

TEST_F(Grpc, InfersWithRawAndTypedTensors) {
  const std::string want = bytes_of_floats({3, 6, 9, 12});
  const V2Input typed{.field = 6, .floats = {1, 2, 3, 4}};
  for (const V2Input& in : {raw_input(), typed}) {
    const GrpcAnswer r = call(kV2 + "ModelInfer", v2_infer_request("scale", {in}, {"y"}, "id-7"));
    ASSERT_EQ(r.code, 0) << r.text;
    EXPECT_EQ(field_of(r.message, 1), "scale");
    EXPECT_EQ(field_of(r.message, 2), "3");
    EXPECT_EQ(field_of(r.message, 3), "id-7");
    EXPECT_EQ(field_of(field_of(r.message, 5), 2), "FP32");
    EXPECT_EQ(field_of(r.message, 6), want);
    EXPECT_TRUE(trailer_of(r.http, "tandem-timing").starts_with("queue="));
  }
  const GrpcAnswer pair = call(
      kV2 + "ModelInfer",
      v2_infer_request("pair",
                       {{.name = "b", .datatype = "INT64", .shape = {1}, .field = 3, .ints = {-7}},
                        {.name = "a", .shape = {1, 2}, .field = 6, .floats = {1, 2}}},
                       {"nb"}));
  ASSERT_EQ(pair.code, 0) << pair.text;
  const int64_t seven = 7;
  EXPECT_EQ(field_of(pair.message, 6), std::string(reinterpret_cast<const char*>(&seven), 8));
}

TEST_F(Grpc, OneTensorHasEqualBitsInEveryForm) {
  const std::vector<float> x = {0.1F, -3e-20F, 7.25F, 1e30F};
  const std::string want =
      field_of(call(kV2 + "ModelInfer", v2_infer_request("scale", {raw_input(x)})).message, 6);
  ASSERT_EQ(want.size(), 16U);
  const GrpcAnswer typed =
      call(kV2 + "ModelInfer", v2_infer_request("scale", {{.field = 6, .floats = x}}));
  EXPECT_EQ(field_of(typed.message, 6), want);
  for (const std::string coding : {"gzip", "deflate"}) {
    std::string body(5, '\0');
    ASSERT_TRUE(
        deflate_bytes(v2_infer_request("scale", {raw_input(x)}).str(), coding == "gzip", body));
    body = framed(body);
    body[0] = 1;
    const GrpcAnswer r =
        send(kV2 + "ModelInfer", body,
             {{"grpc-encoding", coding}, {"grpc-accept-encoding", "identity,gzip,deflate"}});
    EXPECT_EQ(r.code, 0) << r.text;
    EXPECT_EQ(field_of(r.message, 6), want);
    EXPECT_EQ(trailer_of(r.http, "grpc-encoding"), coding);
  }
  // TensorFlow's form, whole and typed.
  for (const bool content : {true, false}) {
    io::ProtoWriter spec, shape, tensor, entry, request;
    spec.add_bytes(1, "scale");
    for (const int64_t n : {1, 4}) {
      io::ProtoWriter dim;
      dim.add_int(1, n);
      shape.add_message(2, dim);
    }
    tensor.add_int(1, 1);
    tensor.add_message(2, shape);
    content ? tensor.add_bytes(4, bytes_of_floats(x)) : tensor.add_packed(5, x);
    entry.add_bytes(1, "x");
    entry.add_message(2, tensor);
    request.add_message(1, spec);
    request.add_message(2, entry);
    const GrpcAnswer r = call(kPrediction + "Predict", request);
    ASSERT_EQ(r.code, 0) << r.text;
    EXPECT_EQ(field_of(field_of(field_of(r.message, 1), 2), 4), want);
  }
  const std::string head =
      R"({"inputs":[{"name":"x","datatype":"FP32","shape":[1,4],)"
      R"("parameters":{"binary_data_size":16}}],"parameters":{"binary_data_output":true}})";
  const HttpResponse rest =
      server_->post("/v2/models/scale/infer", head + bytes_of_floats(x),
                    {{"Inference-Header-Content-Length", std::to_string(head.size())}});
  ASSERT_EQ(rest.status, 200) << rest.body;
  EXPECT_EQ(rest.body.substr(rest.body.size() - 16), want);
}

struct BadCall {
  const char* name;
  io::ProtoWriter message;
  const char* says;
  int code = kInvalid;
};

io::ProtoWriter with_extra_raw(io::ProtoWriter w) {
  w.add_bytes(7, bytes_of_floats({1, 2, 3, 4}));
  return w;
}

TEST_F(Grpc, BadInferencesGetTheirStatus) {
  const V2Input x = raw_input();
  const auto infer = [](const V2Input& in) { return v2_infer_request("scale", {in}); };
  const std::string floats = bytes_of_floats({1, 2, 3, 4});
  io::ProtoWriter damaged;
  damaged.add_varint(5, 3);
  const BadCall cases[] = {
      {"no model", v2_infer_request("none", {x}), "no model 'none'", kNotFound},
      {"empty", {}, "no model ''", kNotFound},
      {"path", v2_infer_request("../etc", {x}), "no model", kNotFound},
      {"31 more raw", with_extra_raw(infer(x)), "1 inputs and 2 raw_input_contents"},
      {"31 fewer raw", v2_infer_request("pair", {x, {.name = "b", .datatype = "INT64"}}),
       "2 inputs and 1 raw_input_contents"},
      {"31 raw and contents", with_extra_raw(infer({.field = 6, .floats = {1, 2, 3, 4}})),
       "raw_input_contents and contents"},
      {"32 other field", infer({.field = 3, .ints = {1, 2, 3, 4}}),
       "values are fp32_contents, and has int64_contents"},
      {"23 FP16 in contents", infer({.datatype = "FP16", .field = 6, .floats = {1, 2, 3, 4}}),
       "send raw_input_contents"},
      {"19 out of range",
       v2_infer_request("pair", {{.name = "b",
                                  .datatype = "INT32",
                                  .shape = {1},
                                  .field = 2,
                                  .ints = {int64_t{1} << 40}}}),
       "does not hold"},
      {"11 other datatype",
       v2_infer_request("scale", {{.datatype = "INT64", .field = 3, .ints = {1, 2, 3, 4}}}),
       "takes FP32, got INT64"},
      {"11 texts", infer({.datatype = "BYTES", .shape = {1}, .raw = "abc"}), "got BYTES"},
      {"10 datatype", infer({.datatype = "FLOAT", .raw = floats}), "there are BOOL"},
      {"12 negative", infer({.shape = {-1, 4}, .raw = floats}), "negative"},
      {"14 overflow", infer({.shape = {int64_t{1} << 40, 4}, .raw = floats}), "too large"},
      {"15 elements", infer({.shape = {65536, 65536}, .raw = floats}), "2^31"},
      {"16 rank", infer({.shape = {4}, .raw = floats}), "expects the shape"},
      {"16 rank 9", infer({.shape = {1, 1, 1, 1, 1, 1, 1, 1, 4}, .raw = floats}), "dimensions"},
      {"17 fewer", infer(raw_input({1, 2, 3})), "has 16 bytes, got 12"},
      {"17 no values", infer({}), "has 16 bytes, got 0"},
      {"6 unknown input", infer({.name = "q", .raw = floats}), "it has 'x'"},
      {"7 missing", v2_infer_request("scale", {}), "'x' is missing"},
      {"8 twice", v2_infer_request("scale", {x, x}), "given twice"},
      {"9 unknown output", v2_infer_request("scale", {x}, {"q"}), "it has 'y'"},
      {"9 output twice", v2_infer_request("scale", {x}, {"y", "y"}), "twice"},
      {"24 no rows", infer({.shape = {0, 4}, .raw = ""}), "no rows"},
      {"no message inside", damaged, "wire type"},
  };
  for (const BadCall& c : cases) {
    const GrpcAnswer r = call(kV2 + "ModelInfer", c.message);
    EXPECT_EQ(r.code, c.code) << c.name << ": " << r.text;
    EXPECT_TRUE(has(r.text, c.says)) << c.name << ": " << r.text;
    EXPECT_EQ(r.http.status, 200) << c.name;
  }
  expect_healthy();
}

io::ProtoWriter parameter(const std::string& name, uint32_t field, int64_t value) {
  io::ProtoWriter out = v2_infer_request("scale", {raw_input()});
  out.add_message(4, v2_parameter(name, field, value));
  return out;
}

TEST_F(Grpc, ParametersAreChecked) {
  EXPECT_EQ(call(kV2 + "ModelInfer", parameter("timeout", 2, 1000000)).code, 0);
  EXPECT_EQ(call(kV2 + "ModelInfer", parameter("timeout", 2, -1)).code, kInvalid);
  EXPECT_EQ(call(kV2 + "ModelInfer", parameter("priority", 2, -1)).code, kInvalid);
  EXPECT_EQ(call(kV2 + "ModelInfer", parameter("priority", 2, 3)).code, kInvalid);
  EXPECT_EQ(call(kV2 + "ModelInfer", parameter("priority", 2, 1)).code, 0);
  EXPECT_EQ(call(kV2 + "ModelInfer", parameter("sequence_id", 2, 5)).code, kInvalid);
  EXPECT_EQ(call(kV2 + "ModelInfer", parameter("sequence_id", 2, 0)).code, 0);
}

// Row 48: frames of gRPC that are none.
TEST_F(Grpc, BadFramesGetTheirStatus) {
  const std::string good = as_body(v2_infer_request("scale", {raw_input()}));
  std::string flagged = good, flag7 = good;
  flagged[0] = 1;
  flag7[0] = 7;
  const std::string huge{"\0\x7f\xff\xff\xff", 5};
  const struct {
    const char* name;
    std::string path, body;
    HttpHeaders headers;
    int code;
    const char* says;
  } cases[] = {
      {"two messages", "ModelInfer", good + good, {}, kInvalid, "one message alone"},
      {"none", "ModelInfer", "", {}, kInvalid, "no complete message"},
      {"cut", "ModelInfer", good.substr(0, good.size() - 1), {}, kInvalid, "no complete message"},
      {"too long", "ModelInfer", huge, {}, kExhausted, "the server takes"},
      {"flag without encoding", "ModelInfer", flagged, {}, kInvalid, "names no grpc-encoding"},
      {"flag 7", "ModelInfer", flag7, {}, kInvalid, "neither 0 nor 1"},
      {"not gzip", "ModelInfer", flagged, {{"grpc-encoding", "gzip"}}, kInvalid, "not valid gzip"},
      {"unknown encoding",
       "ModelInfer",
       good,
       {{"grpc-encoding", "snappy"}},
       kUnimplemented,
       "identity,gzip,deflate"},
      {"no such method", "Nothing", good, {}, kUnimplemented, "there is no method"},
      {"bad timeout", "ModelInfer", good, {{"grpc-timeout", "7"}}, kInvalid, "damaged"},
      {"no time left", "ModelInfer", good, {{"grpc-timeout", "0n"}}, kDeadline, "deadline"},
      {"large headers",
       "ModelInfer",
       good,
       {{"a", std::string(40000, 'a')}},
       kExhausted,
       "headers"},
  };
  for (const auto& c : cases) {
    const GrpcAnswer r = send(kV2 + c.path, c.body, c.headers);
    EXPECT_EQ(r.code, c.code) << c.name << ": " << r.text;
    EXPECT_TRUE(has(r.text, c.says)) << c.name << ": " << r.text;
  }
  EXPECT_EQ(send(kV2 + "ModelInfer", good, {{"te", "x"}}).code, -1);  // HTTP/2 allows no such te
  const std::string bomb_inside(size_t{8} << 20, 'a');
  std::string bomb(5, '\0');
  ASSERT_TRUE(deflate_bytes(bomb_inside, true, bomb));
  bomb = framed(bomb);
  bomb[0] = 1;
  EXPECT_EQ(send(kV2 + "ModelInfer", bomb, {{"grpc-encoding", "gzip"}}).code, kExhausted);
  EXPECT_EQ(send(kV2 + "ModelInfer", std::string(size_t{5} << 20, 'a')).code, kExhausted);
  const HttpResponse plain =
      server_->post(kV2 + "ModelInfer", good, {{"Content-Type", "application/grpc"}});
  EXPECT_EQ(plain.status, 415);
  expect_healthy();
}

// ---- TensorFlow Serving

struct TfInput {
  std::string name = "x";
  int64_t dtype = 1;
  std::vector<int64_t> shape = {1, 4};
  std::string content = "";
  std::vector<float> floats = {};
  std::vector<int64_t> ints = {};
  uint32_t field = 7;
};
io::ProtoWriter predict_request(const std::string& model, const TfInput& in,
                                const std::string& filter = "", const std::string& label = "",
                                const std::string& signature = "") {
  io::ProtoWriter spec, shape, tensor, entry, out;
  spec.add_bytes(1, model);
  if (!label.empty()) spec.add_bytes(4, label);
  if (!signature.empty()) spec.add_bytes(3, signature);
  for (const int64_t n : in.shape) {
    io::ProtoWriter dim;
    dim.add_int(1, n);
    shape.add_message(2, dim);
  }
  tensor.add_int(1, in.dtype);
  tensor.add_message(2, shape);
  if (!in.content.empty()) tensor.add_bytes(4, in.content);
  if (!in.floats.empty()) tensor.add_packed(5, in.floats);
  if (!in.ints.empty()) tensor.add_packed(in.field, in.ints);
  entry.add_bytes(1, in.name);
  entry.add_message(2, tensor);
  out.add_message(1, spec);
  out.add_message(2, entry);
  if (!filter.empty()) out.add_bytes(3, filter);
  return out;
}
std::string predicted(const GrpcAnswer& r) {
  return field_of(field_of(field_of(r.message, 1), 2), 4);
}

TEST_F(Grpc, PredictsAsTensorFlowServing) {
  const GrpcAnswer one =
      call(kPrediction + "Predict", predict_request("scale", {.floats = {5}}, "y", "stable"));
  ASSERT_EQ(one.code, 0) << one.text;
  EXPECT_EQ(predicted(one), bytes_of_floats({10, 10, 10, 10}));  // one value stands for all
  EXPECT_EQ(field_of(field_of(field_of(one.message, 2), 2), 1), "1");
  const GrpcAnswer few =
      call(kPrediction + "Predict", predict_request("scale", {.floats = {1, 2}}));
  EXPECT_EQ(predicted(few), bytes_of_floats({3, 6, 6, 6}));
  const GrpcAnswer ints =
      call(kPrediction + "Predict",
           predict_request("lookup", {.dtype = 9, .shape = {2}, .ints = {1, 3}, .field = 10}));
  EXPECT_EQ(predicted(ints), bytes_of_floats({2, 3, 6, 7})) << ints.text;
}

// One value may stand for as many as a body has, but not in each of many inputs.
TEST_F(Grpc, InputsShareWhatARequestMayBecome) {
  io::ProtoWriter many;
  for (int i = 0; i < 200; ++i) {
    io::ProtoWriter one = predict_request(
        "scale", {.name = "q" + std::to_string(i), .shape = {int64_t{1} << 19}, .floats = {1}});
    many.add_bytes(2, field_of(one.str(), 2));
  }
  many.add_bytes(1, field_of(predict_request("scale", {}).str(), 1));
  const GrpcAnswer r = call(kPrediction + "Predict", many);
  EXPECT_EQ(r.code, kInvalid);
  EXPECT_TRUE(has(r.text, "input 'q2' asks for more than 0 bytes")) << r.text;
  expect_healthy();
}

TEST_F(Grpc, BadPredictionsGetTheirStatus) {
  const std::string four = bytes_of_floats({1, 2, 3, 4});
  const auto ask = [](const TfInput& in) { return predict_request("scale", in); };
  const BadCall cases[] = {
      {"33 one value, 2^40", ask({.shape = {int64_t{1} << 40}, .floats = {1}}), "too large"},
      {"33 one value, 2^30", ask({.shape = {int64_t{1} << 28, 4}, .floats = {1}}),
       "asks for more than"},
      {"34 content", ask({.content = four.substr(0, 12)}), "has 16 bytes, got 12"},
      {"34 too much", ask({.content = four + four}), "has 16 bytes, got 32"},
      {"too many values", ask({.floats = {1, 2, 3, 4, 5}}), "has 16 bytes, got 20"},
      {"no values", ask({}), "has 16 bytes, got 0"},
      {"content and values", ask({.content = four, .floats = {1}}), "tensor_content and values"},
      {"other field", ask({.ints = {1}}), "DT_FLOAT, whose values are in the field 5"},
      {"other dtype", ask({.dtype = 9, .ints = {1}, .field = 10}), "takes FP32, got INT64"},
      {"unknown dtype", ask({.dtype = 99, .content = four}), "no model takes"},
      {"texts", ask({.dtype = 7, .content = four}), "takes FP32, got BYTES"},
      {"negative", ask({.shape = {-1, 4}, .content = four}), "negative"},
      {"unknown input", ask({.name = "q", .content = four}), "it has 'x'"},
      {"unknown output", predict_request("scale", {.content = four}, "q"), "it has 'y'"},
      {"signature", predict_request("scale", {.content = four}, "", "", "other"), "no signature"},
      {"label", predict_request("scale", {.content = four}, "", "new"), "no version", kNotFound},
      {"model", predict_request("none", {.content = four}), "no model", kNotFound},
  };
  for (const BadCall& c : cases) {
    const GrpcAnswer r = call(kPrediction + "Predict", c.message);
    EXPECT_EQ(r.code, c.code) << c.name << ": " << r.text;
    EXPECT_TRUE(has(r.text, c.says)) << c.name << ": " << r.text;
  }
  EXPECT_EQ(call("/tensorflow.serving.ModelService/HandleReloadConfigRequest", {}).code,
            kUnimplemented);
  expect_healthy();
}

TEST_F(Grpc, TensorFlowMetadataAndStatus) {
  io::ProtoWriter spec, request;
  spec.add_bytes(1, "scale");
  request.add_message(1, spec);
  const GrpcAnswer status = call("/tensorflow.serving.ModelService/GetModelStatus", request);
  ASSERT_EQ(status.code, 0) << status.text;
  const auto versions = fields_of(status.message, 1);
  ASSERT_EQ(versions.size(), 2U);
  EXPECT_EQ(field_of(versions[0], 1), "1");
  EXPECT_EQ(field_of(versions[0], 2), "30");
  request.add_bytes(2, "signature_def");
  const GrpcAnswer metadata = call(kPrediction + "GetModelMetadata", request);
  ASSERT_EQ(metadata.code, 0) << metadata.text;
  const std::string any = field_of(field_of(metadata.message, 2), 2);
  EXPECT_EQ(field_of(any, 1), "type.googleapis.com/tensorflow.serving.SignatureDefMap");
  EXPECT_TRUE(has(any, "serving_default"));
}

// ---- what tells about the server

TEST_F(Grpc, MetadataConfigAndStatistics) {
  io::ProtoWriter named;
  named.add_bytes(1, "scale");
  EXPECT_EQ(field_of(call(kV2 + "ServerLive", {}).message, 1), "1");
  EXPECT_EQ(field_of(call(kV2 + "ServerReady", {}).message, 1), "1");
  EXPECT_EQ(field_of(call(kV2 + "ModelReady", named).message, 1), "1");
  io::ProtoWriter unknown;
  unknown.add_bytes(1, "none");
  EXPECT_EQ(field_of(call(kV2 + "ModelReady", unknown).message, 1), "");
  EXPECT_EQ(call(kV2 + "ModelMetadata", unknown).code, kNotFound);
  EXPECT_EQ(field_of(call(kV2 + "ServerMetadata", {}).message, 1), "tandem");
  const std::string metadata = call(kV2 + "ModelMetadata", named).message;
  EXPECT_EQ(fields_of(metadata, 2), (std::vector<std::string>{"1", "3"}));
  EXPECT_EQ(field_of(field_of(metadata, 4), 1), "x");
  EXPECT_EQ(field_of(field_of(metadata, 4), 2), "FP32");
  const std::string config = field_of(call(kV2 + "ModelConfig", named).message, 1);
  EXPECT_EQ(field_of(config, 1), "scale");
  EXPECT_EQ(field_of(config, 4), "4");
  expect_healthy();
  const std::string stats = field_of(call(kV2 + "ModelStatistics", named).message, 1);
  EXPECT_EQ(field_of(stats, 1), "scale");
  EXPECT_GE(std::stoi(field_of(stats, 4)), 1);
  const auto index = fields_of(call(kV2 + "RepositoryIndex", {}).message, 1);
  EXPECT_EQ(index.size(), 4U);
  io::ProtoWriter load;
  load.add_bytes(2, "scale");
  EXPECT_EQ(call(kV2 + "RepositoryModelLoad", load).code, kDenied);
}

TEST_F(Grpc, Health) {
  const auto check = [](const std::string& service) {
    io::ProtoWriter w;
    w.add_bytes(1, service);
    return call("/grpc.health.v1.Health/Check", w);
  };
  EXPECT_EQ(field_of(check("").message, 1), "1");
  EXPECT_EQ(field_of(check("inference.GRPCInferenceService").message, 1), "1");
  EXPECT_EQ(field_of(check("scale").message, 1), "1");
  EXPECT_EQ(check("nobody").code, kNotFound);
}

TEST_F(Grpc, LoadsWhereItIsAllowedAndHealthIsWatched) {
  const TempFolder t;
  put_model(t / "m/1/model.onnx", scale_model(2));
  Running server({.models = t.path().string(), .allow_load = true});
  Http2Client client("127.0.0.1", server->port(), 20);
  io::ProtoWriter watched, m;
  watched.add_bytes(1, "m");
  m.add_bytes(2, "m");
  const HttpHeaders grpc{{"content-type", "application/grpc"}, {"te", "trailers"}};
  const int32_t watch =
      client.start("POST", "/grpc.health.v1.Health/Watch", as_body(watched), grpc);
  client.wait_for(watch, 7);
  const auto ask = [&](const char* method) {
    return grpc_answer(client.call(kV2 + method, as_body(m))).code;
  };
  EXPECT_EQ(ask("RepositoryModelUnload"), 0);
  client.wait_for(watch, 14);
  EXPECT_EQ(ask("RepositoryModelLoad"), 0);
  client.wait_for(watch, 21);
  std::string_view body = client.answer(watch).body;
  std::string room, seen;
  while (const auto message = take_message(body, GrpcCoding::identity, 100, room))
    seen += field_of(*message, 1);
  EXPECT_EQ(seen, "121");
  io::ProtoWriter file = m, entry;
  entry.add_bytes(1, "file:1/model.onnx");
  file.add_message(3, entry);
  EXPECT_EQ(grpc_answer(client.call(kV2 + "RepositoryModelLoad", as_body(file))).code, kInvalid);
  (*server).drain(0, 5);
  const HttpResponse last = client.wait(watch);
  EXPECT_EQ(trailer_of(last, "grpc-status"), "14");
  EXPECT_TRUE(client.said_goaway());
}

TEST_F(Grpc, ReflectionDescribesEveryMethod) {
  for (const std::string version : {"v1", "v1alpha"}) {
    Http2Client client("127.0.0.1", (*server_)->port(), 20);
    const HttpHeaders grpc{{"content-type", "application/grpc"}, {"te", "trailers"}};
    const int32_t id = client.start(
        "POST", "/grpc.reflection." + version + ".ServerReflection/ServerReflectionInfo", "", grpc,
        true);
    auto ask = [&, at = size_t{0}](uint32_t field, const std::string& text) mutable {
      io::ProtoWriter w;
      w.add_bytes(field, text);
      client.more(id, as_body(w), false);
      std::string room;
      for (;;) {
        std::string_view rest = std::string_view(client.answer(id).body).substr(at);
        const size_t before = rest.size();
        if (const auto m = take_message(rest, GrpcCoding::identity, size_t{1} << 20, room)) {
          at += before - rest.size();
          return std::string(*m);
        }
        client.wait_for(id, client.answer(id).body.size() + 1);
      }
    };
    EXPECT_EQ(fields_of(field_of(ask(7, "*"), 6), 1).size(), 6U);
    const std::string file =
        field_of(field_of(ask(4, "inference.GRPCInferenceService.ModelInfer"), 4), 1);
    EXPECT_TRUE(has(file, "ModelStreamInfer")) << file.size();
    EXPECT_EQ(field_of(field_of(ask(4, "no.such.Thing"), 7), 1), "5");
    EXPECT_FALSE(field_of(ask(3, "google/protobuf/any.proto"), 4).empty());
    client.more(id, "", true);
    EXPECT_EQ(trailer_of(client.wait(id), "grpc-status"), "0");
  }
}

// A slow model with one instance: what waits behind it can be cancelled or come too late.
TEST(GrpcQueue, CancelsAndExpires) {
  if (!Http2Frames::available()) GTEST_SKIP() << "this build has no HTTP/2";
  const TempFolder t;
  put_model(t / "m.onnx", scale_model(2));
  Running server({.models = t.path().string(), .defaults = {.max_batch = 1}});
  const std::string body = as_body(v2_infer_request("m", {raw_input()}));
  Http2Client client("127.0.0.1", server->port(), 60);
  const HttpHeaders grpc{{"content-type", "application/grpc"}, {"te", "trailers"}};
  HttpHeaders hasty = grpc;
  hasty.emplace_back("grpc-timeout", "1u");
  const std::string path = kV2 + "ModelInfer";
  const ModelVersionPtr version = server->repository().find("m");
  const JobCounts& counts = version->scheduler->counts();
  // Nothing runs until the server has read that one of them is cancelled: it reads in order.
  std::unique_lock busy(version->model->lock_of(0));
  const int32_t first = client.start("POST", path, body, grpc);
  const int32_t cancelled = client.start("POST", path, body, grpc);
  const int32_t late = client.start("POST", path, body, hasty);
  while (counts.accepted < 3) std::this_thread::yield();
  client.reset(cancelled);
  EXPECT_EQ(grpc_answer(client.call(kV2 + "ServerLive", as_body({}))).code, 0);
  busy.unlock();
  EXPECT_EQ(trailer_of(client.wait(first), "grpc-status"), "0");
  EXPECT_EQ(trailer_of(client.wait(late), "grpc-status"), "4");
  for (int i = 0; i < 2000 && counts.cancelled + counts.expired < 2; ++i)
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  EXPECT_EQ(counts.expired, 1U);
  EXPECT_EQ(counts.cancelled, 1U);
  EXPECT_EQ(counts.accepted, counts.ok + counts.failed + counts.expired + counts.cancelled);
}

// Clients that heed GOAWAY lose nothing when the server is drained.
TEST(GrpcDrain, LosesNoCall) {
  if (!Http2Frames::available()) GTEST_SKIP() << "this build has no HTTP/2";
  const TempFolder t;
  put_model(t / "m.onnx", scale_model(2));
  Running server({.models = t.path().string()});
  std::atomic<int> answers{0}, lost{0};
  std::vector<std::thread> clients;
  for (int k = 0; k < 4; ++k)
    clients.emplace_back([&] {
      Http2Client client("127.0.0.1", server->port(), 10);
      const std::string body = as_body(v2_infer_request("m", {raw_input()}));
      while (!client.said_goaway()) {
        const GrpcAnswer a = grpc_answer(client.call(kV2 + "ModelInfer", body));
        if (a.code != 0) ++lost;
        ++answers;
      }
    });
  while (answers < 50) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  (*server).drain(0.3, 10);
  server.join();
  for (std::thread& c : clients) c.join();
  EXPECT_EQ(lost, 0);
}

}  // namespace
}  // namespace tandem::serve
