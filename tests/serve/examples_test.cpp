// SPDX-License-Identifier: Apache-2.0
// classify and regress of TensorFlow Serving: examples in, by REST and by gRPC, answers to the byte
// and errors in TensorFlow's words.
#include <gtest/gtest.h>

#include "tests/io/io_helper.h"
#include "tests/serve/grpc_helper.h"
#include "tests/support/init.h"

namespace tandem::serve {
namespace {

const std::string kPredictionService = "/tensorflow.serving.PredictionService/";

class Examples : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
    folder_ = new TempFolder;
    put_model(*folder_ / "m/1/model.onnx", scored_model());
    put_model(*folder_ / "m/2/model.onnx", scored_model());
    put_model(*folder_ / "m/serve.yaml", "latest: 0\n");
    put_model(*folder_ / "scale.onnx", scale_model(2));
    server_ = new Running({.models = folder_->path().string()});
  }
  static void TearDownTestSuite() {
    delete server_;
    delete folder_;
  }
  static HttpResponse post(const std::string& path, const std::string& body) {
    return server_->post("/v1/models/" + path, body);
  }
  static TempFolder* folder_;
  static Running* server_;
};
TempFolder* Examples::folder_ = nullptr;
Running* Examples::server_ = nullptr;

const char* const kTwoExamples =
    "{\"signature_name\":\"serving_default\",\"context\":{\"k\":3},\"examples\":["
    "{\"x\":[1,2.5,0.1]},{\"x\":[4,0,-8],\"k\":[1],\"other\":\"text\"}]}";

TEST_F(Examples, AreClassifiedByRest) {
  const HttpResponse r = post("m:classify", kTwoExamples);
  EXPECT_EQ(r.status, 200) << r.body;
  EXPECT_EQ(r.body,
            "{\n    \"results\": [[[\"0\", 0.25], [\"1\", 1.25], [\"2\", 0.1]], "
            "[[\"0\", 1.0], [\"1\", 0.0], [\"2\", -8.0]]\n    ]\n}");
  EXPECT_EQ(post("m/versions/1:classify", kTwoExamples).body, r.body);
  EXPECT_EQ(post("m/versions/9:classify", kTwoExamples).status, 404);
  EXPECT_EQ(server_->get("/v1/models/m:classify").status, 405);
}

TEST_F(Examples, AreRegressedByRest) {
  const HttpResponse r = post("m:regress", kTwoExamples);
  EXPECT_EQ(r.status, 200) << r.body;
  EXPECT_EQ(r.body, "{\n    \"results\": [3.6, -4.0]\n}");
  EXPECT_EQ(post("m:regress", "{\"examples\":[{\"x\":[NaN,1,2],\"k\":0}]}").body,
            "{\n    \"results\": [NaN]\n}");
}

TEST_F(Examples, BadOnesAreRefusedInTensorFlowsWords) {
  const std::pair<const char*, const char*> cases[] = {
      {"{\"examples\":[]}", "Input is empty."},
      {"{}", "the body has no 'examples'"},
      {"{\"examples\":{}}", "not a list"},
      {"{\"examples\":[3]}", "not an object"},
      {"{\"examples\":[{\"x\":[1,2,3]}]}",
       "Feature: k (data type: int64) is required but could not be found."},
      {"{\"examples\":[{\"x\":[1,2],\"k\":1}]}",
       "Key: x, Index: 0.  Number of float values != expected.  Values size: 2 but output shape: "
       "[3]"},
      {"{\"examples\":[{\"x\":[1,2,3],\"k\":1},{\"x\":[\"a\"],\"k\":1}]}",
       "Key: x, Index: 1.  Data types don't match. Data type: string but expected type: float"},
      {"{\"examples\":[{\"x\":{\"b64\":\"QQ==\"},\"k\":1}]}", "Data type: string"},
      {"{\"examples\":[{\"x\":[1,2,3],\"k\":1.5}]}", "feature 'k'"},
      {"{\"signature_name\":\"q\",\"examples\":[{\"x\":[1,2,3],\"k\":1}]}", "no signature 'q'"},
      {"{\"examples\":[{\"x\":[1,2,3],\"x\":[1,2,3],\"k\":1}]}", "x"},
  };
  for (const auto& [body, says] : cases)
    for (const char* verb : {"m:classify", "m:regress"}) {
      const HttpResponse r = post(verb, body);
      EXPECT_EQ(r.status, 400) << body;
      EXPECT_TRUE(has(r.body, says)) << r.body;
    }
  EXPECT_EQ(post("m:regress", kTwoExamples).status, 200);
  const HttpResponse wide = post("scale:regress", "{\"examples\":[{\"x\":[1,2,3,4]}]}");
  EXPECT_EQ(wide.status, 400);
  EXPECT_TRUE(has(wide.body,
                  "Expected output Tensor shape to be either [batch_size] or [batch_size, 1] but "
                  "got [1,4]"))
      << wide.body;
  EXPECT_EQ(post("scale:classify", "{\"examples\":[{\"x\":[1,2,3,4]}]}").body,
            "{\n    \"results\": [[[\"0\", 2.0], [\"1\", 4.0], [\"2\", 6.0], [\"3\", 8.0]]\n    "
            "]\n}");
}

// A context is kept once, however many examples there are.
TEST_F(Examples, AContextIsNotCopied) {
  std::string body = "{\"context\":{", none = "[{}";
  for (int i = 0; i < 8000; ++i) body += fmt::format("\"c{}\":0,", i);
  for (int i = 1; i < 65536; ++i) none += ",{}";
  const auto begin = Clock::now();
  const HttpResponse r = post("m:classify", body + "\"k\":3},\"examples\":" + none + "]}");
  EXPECT_EQ(r.status, 400);
  EXPECT_TRUE(has(r.body, "Feature: x")) << r.body;
  EXPECT_LT(seconds_since(begin), 5);
}

// A short request cannot ask for inputs of more bytes than a body may have.
TEST_F(Examples, InputsHaveALimitTogether) {
  Running small(
      {.models = folder_->path().string(), .http = {.limits = {.body_bytes = size_t{16} << 10}}});
  const auto ask = [&](int n) {
    std::string body = "{\"context\":{\"k\":3,\"x\":[1,2,3]},\"examples\":[{}";
    for (int i = 1; i < n; ++i) body += ",{}";
    return small.client()->post("/v1/models/m:classify", body + "]}");
  };
  EXPECT_EQ(ask(800).status, 200);  // 20 bytes each
  const HttpResponse r = ask(900);
  EXPECT_EQ(r.status, 400);
  EXPECT_TRUE(has(r.body, "larger inputs than a body may have")) << r.body;
}

// ---- gRPC

io::ProtoWriter inside(uint32_t field, const io::ProtoWriter& m) {
  io::ProtoWriter out;
  out.add_message(field, m);
  return out;
}

struct FeatureValue {
  std::string name;
  std::vector<float> floats = {};
  std::vector<int64_t> ints = {};
  std::string text = "";
};

io::ProtoWriter example_of(const std::vector<FeatureValue>& features) {
  io::ProtoWriter all;
  for (const FeatureValue& f : features) {
    io::ProtoWriter list, entry;
    if (!f.floats.empty()) list.add_packed(1, f.floats);
    if (!f.ints.empty()) list.add_packed(1, f.ints);
    if (!f.text.empty()) list.add_bytes(1, f.text);
    entry.add_bytes(1, f.name);
    entry.add_message(2, inside(!f.text.empty() ? 1 : !f.ints.empty() ? 3 : 2, list));
    all.add_message(1, entry);
  }
  return inside(1, all);
}

io::ProtoWriter input_of(const std::vector<io::ProtoWriter>& examples,
                         const io::ProtoWriter* context = nullptr) {
  io::ProtoWriter list;
  for (const io::ProtoWriter& e : examples) list.add_message(1, e);
  if (context) list.add_message(2, *context);
  return inside(context ? 2 : 1, list);
}

io::ProtoWriter request_of(const std::vector<io::ProtoWriter>& examples,
                           const io::ProtoWriter* context = nullptr) {
  io::ProtoWriter spec, out;
  spec.add_bytes(1, "m");
  out.add_message(1, spec);
  out.add_message(2, input_of(examples, context));
  return out;
}

struct Task {
  std::string method, model = "m";
  int64_t version = 0;
  std::string signature = "";
};

io::ProtoWriter multi_request(const std::vector<Task>& tasks, const io::ProtoWriter& input) {
  io::ProtoWriter out;
  for (const Task& t : tasks) {
    io::ProtoWriter spec, number, task;
    spec.add_bytes(1, t.model);
    number.add_int(1, t.version);
    if (t.version > 0) spec.add_message(2, number);
    spec.add_bytes(3, t.signature);
    task.add_message(1, spec);
    task.add_bytes(2, t.method);
    out.add_message(1, task);
  }
  out.add_message(2, input);
  return out;
}
const std::string kClassify = "tensorflow/serving/classify",
                  kRegress = "tensorflow/serving/regress";

float float_at(const std::string& message, uint32_t field) {
  io::ProtoDocument document(message, "an answer");
  for (io::ProtoReader r = document.reader(); r.next();)
    if (r.field() == field) return r.float_value();
  return -1;
}

TEST_F(Examples, AreClassifiedAndRegressedByGrpc) {
  if (!Http2Frames::available()) GTEST_SKIP() << "this build has no HTTP/2";
  const int port = (*server_)->port();
  const io::ProtoWriter first = example_of({{.name = "x", .floats = {1, 2.5F, 0.1F}}});
  const io::ProtoWriter second =
      example_of({{.name = "x", .floats = {4, 0, -8}}, {.name = "k", .ints = {1}}});
  const io::ProtoWriter context = example_of({{.name = "k", .ints = {3}}});
  const io::ProtoWriter request = request_of({first, second}, &context);
  const GrpcAnswer classes = grpc_call(port, kPredictionService + "Classify", request);
  ASSERT_EQ(classes.code, 0) << classes.text;
  const auto rows = fields_of(field_of(classes.message, 1), 1);
  ASSERT_EQ(rows.size(), 2U);
  const auto row = fields_of(rows[1], 1);
  ASSERT_EQ(row.size(), 3U);
  EXPECT_EQ(field_of(row[2], 1), "2");
  EXPECT_EQ(float_at(row[2], 2), -8);
  EXPECT_EQ(float_at(fields_of(rows[0], 1)[1], 2), 1.25F);
  EXPECT_EQ(field_of(field_of(classes.message, 2), 1), "m");
  const GrpcAnswer values = grpc_call(port, kPredictionService + "Regress", request);
  ASSERT_EQ(values.code, 0) << values.text;
  const auto numbers = fields_of(field_of(values.message, 1), 1);
  ASSERT_EQ(numbers.size(), 2U);
  EXPECT_EQ(float_at(numbers[0], 1), 1 + 2.5F + 0.1F);
  EXPECT_EQ(float_at(numbers[1], 1), -4);
}

TEST_F(Examples, BadOnesAreRefusedByGrpc) {
  if (!Http2Frames::available()) GTEST_SKIP() << "this build has no HTTP/2";
  constexpr int kInvalid = 3;
  const io::ProtoWriter wrong =
      example_of({{.name = "x", .ints = {1, 2, 3}}, {.name = "k", .ints = {1}}});
  const io::ProtoWriter text = example_of({{.name = "x", .text = "a"}, {.name = "k", .ints = {1}}});
  const std::pair<io::ProtoWriter, const char*> cases[] = {
      {request_of({}), "Input is empty."},
      {request_of({wrong}), "Data type: int64 but expected type: float"},
      {request_of({text}), "Data type: string but expected type: float"},
      {request_of({example_of({{.name = "x", .floats = {1, 2, 3}}})}), "Feature: k"},
  };
  for (const auto& [request, says] : cases)
    for (const char* method : {"Classify", "Regress"}) {
      const GrpcAnswer r = grpc_call((*server_)->port(), kPredictionService + method, request);
      EXPECT_EQ(r.code, kInvalid);
      EXPECT_TRUE(has(r.text, says)) << r.text;
    }
}

TEST_F(Examples, SeveralTasksAreAnsweredFromOneRun) {
  if (!Http2Frames::available()) GTEST_SKIP() << "this build has no HTTP/2";
  const int port = (*server_)->port();
  const io::ProtoWriter one =
      example_of({{.name = "x", .floats = {1, 2.5F, 0.1F}}, {.name = "k", .ints = {3}}});
  const io::ProtoWriter input = input_of({one, one});
  const auto runs = [] {
    return (*server_)->repository().find("m", "1")->scheduler->counts().runs.load();
  };
  const uint64_t before = runs();
  const GrpcAnswer both =
      grpc_call(port, kPredictionService + "MultiInference",
                multi_request({{.method = kRegress, .version = 1}, {.method = kClassify}}, input));
  ASSERT_EQ(both.code, 0) << both.text;
  EXPECT_EQ(runs(), before + 1);
  const auto results = fields_of(both.message, 1);
  ASSERT_EQ(results.size(), 2U);
  // The parts are those of the methods alone.
  const io::ProtoWriter alone = request_of({one, one});
  const std::string values =
      field_of(grpc_call(port, kPredictionService + "Regress", alone).message, 1);
  const std::string classes =
      field_of(grpc_call(port, kPredictionService + "Classify", alone).message, 1);
  EXPECT_EQ(field_of(results[0], 3), values);
  EXPECT_EQ(field_of(results[0], 2), "");
  EXPECT_EQ(field_of(results[1], 2), classes);
  EXPECT_EQ(field_of(results[1], 3), "");
  EXPECT_EQ(fields_of(classes, 1).size(), 2U);
  for (const std::string& r : results) {
    EXPECT_EQ(field_of(field_of(r, 1), 1), "m");
    EXPECT_EQ(field_of(field_of(field_of(r, 1), 2), 1), "1");
  }
  const GrpcAnswer single = grpc_call(port, kPredictionService + "MultiInference",
                                      multi_request({{.method = kClassify}}, input));
  EXPECT_EQ(field_of(field_of(single.message, 1), 2), classes);
}

TEST_F(Examples, TasksThatDoNotGoTogetherAreRefused) {
  if (!Http2Frames::available()) GTEST_SKIP() << "this build has no HTTP/2";
  constexpr int kInvalid = 3, kNotFound = 5, kUnimplemented = 12;
  const io::ProtoWriter input =
      input_of({example_of({{.name = "x", .floats = {1, 2, 3}}, {.name = "k", .ints = {1}}})});
  struct Case {
    std::vector<Task> tasks;
    int code;
    const char* says;
  };
  const Case cases[] = {
      {{}, kInvalid, "no tasks"},
      {{{.method = kClassify, .model = ""}}, kInvalid, "empty model name"},
      {{{.method = kClassify, .model = "none"}}, kNotFound, "no model 'none'"},
      {{{.method = kClassify, .version = 9}}, kNotFound, "no version '9'"},
      {{{.method = "tensorflow/serving/predict"}}, kUnimplemented, "method_name: tensorflow/serv"},
      {{{.method = ""}}, kUnimplemented, "Unsupported signature method_name"},
      {{{.method = kClassify, .signature = "q"}}, kInvalid, "no signature 'q'"},
      {{{.method = kClassify}, {.method = kRegress, .model = "scale"}},
       kInvalid,
       "must access the same model name"},
      {{{.method = kClassify, .version = 1}, {.method = kRegress, .version = 2}},
       kInvalid,
       "different versions"},
      {{{.method = kClassify}, {.method = kClassify}}, kInvalid, "Duplicate evaluation"},
      {std::vector<Task>(40, {.method = kClassify}), kInvalid, "too many tasks"},
      // One that the model cannot do fails both.
      {{{.method = kClassify, .model = "scale"}, {.method = kRegress, .model = "scale"}},
       kInvalid,
       "Expected output Tensor shape"},
  };
  const io::ProtoWriter four = input_of({example_of({{.name = "x", .floats = {1, 2, 3, 4}}})});
  for (const Case& c : cases) {
    const bool wide = c.tasks.size() == 2 && c.tasks[0].model == "scale";
    const GrpcAnswer r = grpc_call((*server_)->port(), kPredictionService + "MultiInference",
                                   multi_request(c.tasks, wide ? four : input));
    EXPECT_EQ(r.code, c.code) << c.says << ": " << r.text;
    EXPECT_TRUE(has(r.text, c.says)) << c.says << ": " << r.text;
  }
}

}  // namespace
}  // namespace tandem::serve
