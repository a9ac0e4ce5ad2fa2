// SPDX-License-Identifier: Apache-2.0
// Models with state: each sequence has the bits that it has alone, whatever runs beside it; by REST
// and gRPC, through reloads, limits and idle times.
#include "tandem/serve/model/sequences.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>

#include "tandem/ops/ops.h"
#include "tandem/serve/json_cursor.h"
#include "tests/io/io_helper.h"
#include "tests/serve/grpc_helper.h"
#include "tests/support/bits.h"
#include "tests/support/init.h"

namespace tandem::serve {
namespace {

/// h' = tanh(x a + h b), y = h' c: x [n, 4], h [n, 8], y [n, 3].
std::string recurrent_model() {
  const auto weights = [](size_t n, float shift) {
    std::vector<float> v(n);
    for (size_t i = 0; i < n; ++i) v[i] = std::sin(static_cast<float>(i) * 1.7F + shift);
    return v;
  };
  return onnx::model(
      {{onnx::node("MatMul", {"x", "a"}, {"xa"}), onnx::node("MatMul", {"h_in", "b"}, {"hb"}),
        onnx::node("Add", {"xa", "hb"}, {"s"}), onnx::node("Tanh", {"s"}, {"h_out"}),
        onnx::node("MatMul", {"h_out", "c"}, {"y"})},
       {onnx::floats("a", {4, 8}, weights(32, 0)), onnx::floats("b", {8, 8}, weights(64, 1)),
        onnx::floats("c", {8, 3}, weights(24, 2))},
       {sized_port("h_in", 1, {-1, 8}), sized_port("x", 1, {-1, 4})},
       {sized_port("h_out", 1, {-1, 8}), sized_port("y", 1, {-1, 3})}});
}

/// sum' = start ? x : sum + x, and what the controls said: x, sum, controls [n, 1].
std::string controlled_model() {
  const auto one = [](const char* name) { return sized_port(name, 1, {-1, 1}); };
  return onnx::model(
      {{onnx::node("Sub", {"one", "START"}, {"keep"}), onnx::node("Mul", {"sum", "keep"}, {"was"}),
        onnx::node("Add", {"was", "x"}, {"sum_out"}), onnx::node("Identity", {"sum_out"}, {"y"}),
        onnx::node("Concat", {"START", "END", "READY", "ID"}, {"said"},
                   {onnx::int_attribute("axis", 1)})},
       {onnx::floats("one", {1}, {1})},
       {one("x"), one("sum"), one("START"), one("END"), one("READY"), one("ID")},
       {one("sum_out"), one("y"), sized_port("said", 1, {-1, 4})}});
}

std::string step_body(const std::vector<float>& x, const std::string& id, bool start, bool end) {
  return fmt::format(
      "{{\"parameters\":{{\"sequence_id\":{},\"sequence_start\":{},\"sequence_end\":{}}},"
      "\"inputs\":[{{\"name\":\"x\",\"datatype\":\"FP32\",\"shape\":[1,{}],\"data\":[{}]}}]}}",
      id, start, end, x.size(), fmt::join(x, ","));
}

std::vector<float> step_input(int sequence, int step) {
  std::vector<float> x;
  for (int i = 0; i < 4; ++i)
    x.push_back(static_cast<float>(((sequence * 31 + step * 7 + i * 3) % 16) - 8) / 8);
  return x;
}

/// What a sequence gives alone: y of each step.
std::vector<std::vector<float>> alone(const std::string& file, int sequence, int steps) {
  const auto model = Servable::load(file, {});
  std::vector<std::vector<float>> out;
  Tensor h = zeros({1, 8});
  for (int k = 0; k < steps; ++k) {
    const Tensor x = tensor(step_input(sequence, k)).reshape({1, 4});
    const std::vector<Tensor> r = model->run(0, {h, x}, 1);
    h = r[0];
    out.push_back(r[1].to_vector<float>());
  }
  return out;
}

/// The numbers of the first output in an answer by REST.
std::vector<float> numbers_of(const HttpResponse& r) {
  const size_t at = r.body.find("\"data\":");
  if (r.status != 200 || at == std::string::npos) return {};
  const size_t end = r.body.find(']', at);
  return read_array(r.body.substr(at + 7, end - at - 6), DType::f32, "data").to_vector<float>();
}

class SequenceModel : public ::testing::Test {
 protected:
  void SetUp() override {
    put_model(folder_ / "m/1/model.onnx", recurrent_model());
    write_file(folder_ / "m/serve.yaml", settings(""));
  }
  static std::string settings(const std::string& more) {
    return "state: [h_in=h_out]\nmax_batch: 8\ndelay_us: 200\n" + more;
  }
  Running& start(ServerOptions o = {}) {
    o.models = folder_.path().string();
    o.allow_load = true;
    server_ = std::make_unique<Running>(std::move(o));
    return *server_;
  }
  HttpResponse step(int sequence, int k, bool begin, bool end = false) {
    return server_->post("/v2/models/m/infer",
                         step_body(step_input(sequence, k), std::to_string(sequence), begin, end));
  }
  TempFolder folder_;
  std::unique_ptr<Running> server_;
};

TEST_F(SequenceModel, EachSequenceHasTheBitsThatItHasAlone) {
  Running& server = start();
  EXPECT_TRUE(server->repository().find("m")->model->batched());
  EXPECT_TRUE(has(server.get("/v2/models/m").body,
                  "\"inputs\":[{\"name\":\"x\",\"datatype\":\"FP32\",\"shape\":[-1,4]}],"
                  "\"outputs\":[{\"name\":\"y\""));
  EXPECT_TRUE(has(server.get("/v2/models/m/config").body, "\"sequence_batching\""));
  constexpr int kSequences = 12, kSteps = 20;
  std::atomic<int> wrong{0};
  std::vector<std::thread> clients;
  for (int s = 1; s <= kSequences; ++s)
    clients.emplace_back([&, s] {
      const auto want = alone(folder_ / "m/1/model.onnx", s, kSteps);
      const auto c = server.client();
      for (int k = 0; k < kSteps; ++k) {
        const std::string id = s % 2 == 0 ? std::to_string(s) : fmt::format("\"name {}\"", s);
        const HttpResponse r =
            c->post("/v2/models/m/infer", step_body(step_input(s, k), id, k == 0, k + 1 == kSteps));
        const auto got = numbers_of(r);
        if (got.size() != 3 ||
            std::memcmp(got.data(), want[static_cast<size_t>(k)].data(), 12) != 0)
          ++wrong;
      }
    });
  for (std::thread& c : clients) c.join();
  EXPECT_EQ(wrong, 0);
  const JobCounts& c = server->repository().find("m")->scheduler->counts();
  EXPECT_EQ(c.rows, static_cast<uint64_t>(kSequences * kSteps));
  const std::string metrics = server.get("/metrics").body;
  EXPECT_TRUE(has(metrics, "tandem_sequences{model=\"m\"} 0"));
  EXPECT_TRUE(has(metrics, "tandem_sequences_total{model=\"m\",result=\"ended\"} 12"));
}

TEST_F(SequenceModel, StepsOfSeveralSequencesRunTogether) {
  Running& server = start();
  const ModelVersionPtr v = server->repository().find("m");
  std::atomic<int> done{0};
  std::unique_lock busy(v->model->lock_of(0));  // steps wait
  for (int s = 1; s <= 4; ++s)
    v->sequences->submit(v, {.id = std::to_string(s), .start = true},
                         {.inputs = {tensor(step_input(s, 0)).reshape({1, 4})},
                          .done =
                              [&](const JobResult& r) {
                                EXPECT_EQ(r.outputs.size(), 1U);
                                ++done;
                              }},
                         false);
  busy.unlock();
  for (int i = 0; i < 4000 && done < 4; ++i)
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  EXPECT_EQ(done, 4);
  EXPECT_LE(v->scheduler->counts().runs, 2U);
}

TEST_F(SequenceModel, StepsWithoutASequenceAreRefused) {
  Running& server = start();
  const auto ask = [&](const std::string& parameters) {
    return server.post("/v2/models/m/infer",
                       "{" + parameters +
                           "\"inputs\":[{\"name\":\"x\",\"datatype\":\"FP32\",\"shape\":[1,4],"
                           "\"data\":[1,2,3,4]}]}");
  };
  const std::pair<const char*, const char*> cases[] = {
      {"", "must specify a non-zero or non-empty correlation ID"},
      {"\"parameters\":{\"sequence_id\":0,\"sequence_start\":true},", "non-zero or non-empty"},
      {"\"parameters\":{\"sequence_id\":\"\"},", "non-zero or non-empty"},
      {"\"parameters\":{\"sequence_id\":7},",
       "inference request for sequence 7 to model 'm' must specify the START flag on the first "
       "request of the sequence"},
      {"\"parameters\":{\"sequence_id\":1.5},", "'sequence_id'"},
      {"\"parameters\":{\"sequence_id\":true},", "'sequence_id'"},
  };
  for (const auto& [parameters, says] : cases) {
    const HttpResponse r = ask(parameters);
    EXPECT_EQ(r.status, 400) << parameters;
    EXPECT_TRUE(has(r.body, says)) << r.body;
  }
  EXPECT_EQ(server.post("/v1/models/m:predict", "{\"instances\":[[1,2,3,4]]}").status, 400);
  const HttpResponse two = server.post(
      "/v2/models/m/infer",
      "{\"parameters\":{\"sequence_id\":7,\"sequence_start\":true},\"inputs\":[{\"name\":\"x\","
      "\"datatype\":\"FP32\",\"shape\":[2,4],\"data\":[1,2,3,4,5,6,7,8]}]}");
  EXPECT_EQ(two.status, 400);
  EXPECT_TRUE(has(two.body, "batch-size 1"));
  // An end ends it; a number and a text are two ids; a start in the middle begins again.
  const auto want = alone(folder_ / "m/1/model.onnx", 7, 2);
  EXPECT_EQ(numbers_of(step(7, 0, true)), want[0]);
  EXPECT_EQ(numbers_of(step(7, 1, false)), want[1]);
  EXPECT_EQ(numbers_of(step(7, 0, true)), want[0]);
  EXPECT_EQ(ask("\"parameters\":{\"sequence_id\":\"7\"},").status, 400);
  EXPECT_EQ(numbers_of(step(7, 1, false, true)), want[1]);
  EXPECT_EQ(step(7, 1, false).status, 400);
  EXPECT_EQ(numbers_of(step(8, 0, true, true)).size(), 3U);  // of one step
}

TEST_F(SequenceModel, AFailedStepLeavesTheStateAsItWas) {
  Running& server = start();
  const auto want = alone(folder_ / "m/1/model.onnx", 5, 2);
  EXPECT_EQ(numbers_of(step(5, 0, true)), want[0]);
  const ModelVersionPtr v = server->repository().find("m");
  std::atomic<int> status{0};
  std::unique_lock busy(v->model->lock_of(0));
  v->sequences->submit(v, {.id = "5"},
                       {.inputs = {ones({1, 4})},
                        .gone = [] { return true; },
                        .done = [&](const JobResult& r) { status = r.status; }},
                       false);
  busy.unlock();
  for (int i = 0; i < 4000 && status == 0; ++i)
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  EXPECT_EQ(status, 499);
  EXPECT_EQ(numbers_of(step(5, 1, false)), want[1]);
}

TEST_F(SequenceModel, TheirNumberAndTheirPatienceHaveLimits) {
  write_file(folder_ / "m/serve.yaml", settings("sequences: 2\nsequence_idle_seconds: 0.3\n"));
  Running& server = start();
  EXPECT_EQ(step(1, 0, true).status, 200);
  EXPECT_EQ(step(2, 0, true).status, 200);
  const HttpResponse r = step(3, 0, true);
  // A slow machine may have given the others up by now.
  if (r.status != 200) {
    EXPECT_EQ(r.status, 429);
    EXPECT_TRUE(has(r.body, "keeps 2 sequences already")) << r.body;
    EXPECT_NE(header_of(r, "retry-after"), nullptr);
  }
  const SequenceCounts& c = server->repository().find("m")->sequences->counts();
  for (int i = 0; i < 4000 && c.open > 0; ++i)  // nobody asks meanwhile
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  EXPECT_EQ(c.open, 0);
  EXPECT_GE(c.expired, 2U);
  EXPECT_EQ(step(1, 1, false).status, 400);
  EXPECT_EQ(step(3, 0, true).status, 200);
}

TEST_F(SequenceModel, ASequenceStaysWithTheVersionThatItBeganWith) {
  Running& server = start();
  const auto want = alone(folder_ / "m/1/model.onnx", 9, 3);
  EXPECT_EQ(numbers_of(step(9, 0, true)), want[0]);
  put_model(folder_ / "m/2/model.onnx", recurrent_model());
  EXPECT_EQ(server.post("/v2/repository/models/m/load", "").status, 200);
  HttpResponse r = step(9, 1, false);
  EXPECT_EQ(numbers_of(r), want[1]);
  EXPECT_TRUE(has(r.body, "\"model_version\":\"1\""));
  r = step(10, 0, true);
  EXPECT_TRUE(has(r.body, "\"model_version\":\"2\""));
  r = step(9, 2, false, true);
  EXPECT_EQ(numbers_of(r), want[2]);
  r = step(9, 0, true);
  EXPECT_TRUE(has(r.body, "\"model_version\":\"2\""));
}

io::ProtoWriter grpc_step(const std::vector<float>& x, const std::string& text, int64_t number,
                          bool start, bool end) {
  io::ProtoWriter out =
      v2_infer_request("m", {raw_input(x, {1, static_cast<int64_t>(x.size())})}, {"y"});
  const auto parameter = [&out](const char* name, const io::ProtoWriter& value) {
    io::ProtoWriter entry;
    entry.add_bytes(1, name);
    entry.add_message(2, value);
    out.add_message(4, entry);
  };
  io::ProtoWriter id;
  text.empty() ? id.add_int(2, number) : id.add_bytes(3, text);
  parameter("sequence_id", id);
  const auto flag = [&parameter](const char* name, bool yes) {
    io::ProtoWriter value;
    value.add_varint(1, yes ? 1 : 0);
    parameter(name, value);
  };
  flag("sequence_start", start);
  flag("sequence_end", end);
  return out;
}

TEST_F(SequenceModel, AreServedByGrpc) {
  if (!Http2Frames::available()) GTEST_SKIP() << "this build has no HTTP/2";
  Running& server = start();
  const std::string method = "/inference.GRPCInferenceService/ModelInfer";
  const auto want = alone(folder_ / "m/1/model.onnx", 4, 3);
  for (const std::string text : {"", "a name"})
    for (int k = 0; k < 3; ++k) {
      const GrpcAnswer r =
          grpc_call(server->port(), method, grpc_step(step_input(4, k), text, 77, k == 0, k == 2));
      ASSERT_EQ(r.code, 0) << r.text;
      EXPECT_EQ(field_of(r.message, 6), bytes_of_floats(want[static_cast<size_t>(k)]));
    }
  const GrpcAnswer late =
      grpc_call(server->port(), method, grpc_step(step_input(4, 0), "", 77, false, false));
  EXPECT_EQ(late.code, 3);
  EXPECT_TRUE(has(late.text, "must specify the START flag")) << late.text;
  EXPECT_EQ(
      grpc_call(server->port(), method, grpc_step(step_input(4, 0), "", -1, true, false)).code, 3);
}

TEST(SequenceSettings, AreCheckedAgainstTheModel) {
  const TempFolder t;
  write_file(t / "m.onnx", recurrent_model());
  const auto load = [&](std::vector<std::string> state, std::vector<std::string> controls = {}) {
    return thrown([&] { Servable::load(t / "m.onnx", {.state = state, .controls = controls}); },
                  ErrorKind::Value);
  };
  EXPECT_TRUE(has(load({"h_in"}), "expects entries as [h_in=h_out]"));
  EXPECT_TRUE(has(load({"h_im=h_out"}), "did you mean 'h_in'"));
  EXPECT_TRUE(has(load({"h_in=h_uot"}), "did you mean 'h_out'"));
  EXPECT_TRUE(has(load({"h_in=y"}), "float32 [1, 8] before a step and float32 [1, 3] after it"))
      << load({"h_in=y"});
  EXPECT_TRUE(has(load({"h_in=h_out", "h_in=y"}), "twice"));
  EXPECT_TRUE(has(load({"h_in=h_out"}, {"begin=x"}), "there are start, end, ready and id"));
  EXPECT_TRUE(has(load({"h_in=h_out"}, {"start=x"}), "not one number"));
}

TEST(FromTriton, SequencesAreTakenOver) {
  const TempFolder t;
  put_model(t / "m/1/model.onnx", controlled_model());
  write_file(t / "m/config.pbtxt", R"(
backend: "onnxruntime"
max_batch_size: 4
sequence_batching {
  max_sequence_idle_microseconds: 5000000
  oldest { max_candidate_sequences: 3 }
  control_input [
    { name: "START" control [ { kind: CONTROL_SEQUENCE_START fp32_false_true: [ 0, 1 ] } ] },
    { name: "END" control [ { kind: CONTROL_SEQUENCE_END fp32_false_true: [ 0.0, 1.0 ] } ] },
    { name: "READY" control [ { kind: CONTROL_SEQUENCE_READY fp32_false_true: [ 0, 1 ] } ] },
    { name: "ID" control [ { kind: CONTROL_SEQUENCE_CORRID data_type: TYPE_FP32 } ] }
  ]
  state [ { input_name: "sum" output_name: "sum_out" data_type: TYPE_FP32 dims: [ 1 ]
            initial_state: { data_type: TYPE_FP32 dims: [ 1 ] zero_data: true name: "zero" } } ]
}
)");
  Running server({.models = t.path().string(), .from = "triton"});
  const ModelVersionPtr v = server->repository().find("m");
  ASSERT_TRUE(v);
  EXPECT_EQ(v->settings.sequences, 3);
  EXPECT_EQ(v->settings.sequence_idle_seconds, 5);
  const auto ask = [&](float x, bool start, bool end) {
    return server.post("/v2/models/m/infer", step_body({x}, "42", start, end)).body;
  };
  EXPECT_TRUE(has(ask(5, true, false), "\"data\":[1.0,0.0,1.0,42.0]"));
  const std::string second = ask(2, false, false);
  EXPECT_TRUE(has(second, "\"data\":[7.0]")) << second;
  EXPECT_TRUE(has(second, "\"data\":[0.0,0.0,1.0,42.0]"));
  EXPECT_TRUE(has(ask(1, true, false), "\"data\":[1.0]"));
  EXPECT_TRUE(has(ask(1, false, true), "\"data\":[0.0,1.0,1.0,42.0]"));
  EXPECT_TRUE(has(server.post("/v2/models/m/infer", step_body({1}, "\"x\"", true, false)).body,
                  "takes numbers as sequence_id"));
}

}  // namespace
}  // namespace tandem::serve
