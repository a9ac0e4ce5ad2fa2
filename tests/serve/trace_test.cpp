// SPDX-License-Identifier: Apache-2.0
// Trace contexts: taken as W3C has them, given back with our own span, and written as OTLP.
#include "tandem/serve/trace.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <map>

#include "tandem/io/json.h"
#include "tandem/serve/record.h"
#include "tandem/serve/server_settings.h"
#include "tests/io/io_helper.h"
#include "tests/serve/grpc_helper.h"
#include "tests/support/init.h"

namespace tandem::serve {
namespace {

const std::string kTraceId = "0af7651916cd43dd8448eb211c80319c", kSpanId = "b7ad6b7169203331";
const std::string kTraceParent = "00-" + kTraceId + "-" + kSpanId + "-01";

TEST(TraceParent, IsReadAsTheSpecificationHasIt) {
  const auto good = parse_traceparent(kTraceParent);
  ASSERT_TRUE(good);
  EXPECT_EQ(good->trace, kTraceId);
  EXPECT_EQ(good->span, kSpanId);
  EXPECT_TRUE(good->sampled);
  EXPECT_FALSE(parse_traceparent("00-" + kTraceId + "-" + kSpanId + "-00")->sampled);
  EXPECT_TRUE(parse_traceparent("00-" + kTraceId + "-" + kSpanId + "-ff")->sampled);
  EXPECT_TRUE(parse_traceparent("01-" + kTraceId + "-" + kSpanId + "-01-more"));
  const std::string bad[] = {
      "",
      kTraceParent.substr(0, 54),
      kTraceParent + "-more",
      kTraceParent + "0",
      "01-" + kTraceId + "-" + kSpanId + "-01more",
      "ff-" + kTraceId + "-" + kSpanId + "-01",
      "0x-" + kTraceId + "-" + kSpanId + "-01",
      "00-" + std::string(32, '0') + "-" + kSpanId + "-01",
      "00-" + kTraceId + "-" + std::string(16, '0') + "-01",
      "00-" + std::string(32, 'A') + "-" + kSpanId + "-01",
      "00-" + kTraceId + "_" + kSpanId + "-01",
      "00-" + kTraceId + "-" + kSpanId + "-0g",
  };
  for (const std::string& text : bad) EXPECT_FALSE(parse_traceparent(text)) << text;
  HttpRequest twice{.headers = {{"traceparent", kTraceParent}, {"traceparent", kTraceParent}}};
  EXPECT_FALSE(trace_context(twice));
}

// "00-TRACE-SPAN-01" of an answer: its trace and its span.
std::pair<std::string, std::string> given_back(const HttpResponse& r) {
  const std::string text = trailer_of(r, "traceparent");
  const auto context = parse_traceparent(text);
  return context ? std::pair(context->trace, context->span) : std::pair<std::string, std::string>();
}

const char* const kTracedBody =
    "{\"inputs\":[{\"name\":\"x\",\"datatype\":\"FP32\",\"shape\":[1,4],\"data\":[1,2,3,4]}]}";

TEST(TraceContext, IsGivenBackWithOurSpan) {
  const TempFolder t;
  put_model(t / "m.onnx", scale_model(2));
  Running server({.models = t.path().string(), .record = t / "requests.rec"});
  const HttpHeaders traced = {{"traceparent", kTraceParent}};
  for (const char* path : {"/v2/models/m/infer", "/v2/models/none/infer", "/predictions/m"}) {
    const auto [trace, span] = given_back(server.post(path, kTracedBody, traced));
    EXPECT_EQ(trace, kTraceId) << path;
    EXPECT_NE(span, kSpanId);
  }
  EXPECT_EQ(given_back(server.post("/v2/models/m/infer", kTracedBody)).first, "");
  EXPECT_EQ(
      given_back(server.post("/v2/models/m/infer", kTracedBody, {{"traceparent", "00-x"}})).first,
      "");
  const auto recorded = read_recorded(t / "requests.rec");
  ASSERT_FALSE(recorded.empty());
  const HttpHeaders& kept = recorded[0].headers;
  EXPECT_TRUE(std::find(kept.begin(), kept.end(), traced[0]) != kept.end());
  if (!Http2Frames::available()) return;
  const std::string method = "/inference.GRPCInferenceService/ModelInfer";
  const GrpcAnswer r =
      grpc_call(server->port(), method, v2_infer_request("m", {raw_input()}), traced);
  EXPECT_EQ(r.code, 0);
  EXPECT_EQ(given_back(r.http).first, kTraceId);
  const GrpcAnswer bad =
      grpc_call(server->port(), method, v2_infer_request("none", {raw_input()}), traced);
  EXPECT_EQ(bad.code, 5);
  EXPECT_EQ(given_back(bad.http).first, kTraceId);
}

/// The spans in a file, by name.
std::map<std::string, std::vector<io::Json>> spans_in(const std::string& path) {
  std::map<std::string, std::vector<io::Json>> out;
  const std::string all = read_file(path, size_t{1} << 20);
  for (size_t at = 0; at < all.size();) {
    const size_t end = all.find('\n', at);
    const io::Json line = io::parse_json(all.substr(at, end - at), "a line");
    const io::Json& scope =
        (*(*line.find("resourceSpans")->as_array())[0].find("scopeSpans")->as_array())[0];
    for (const io::Json& span : *scope.find("spans")->as_array())
      out[*span.find("name")->as_string()].push_back(span);
    at = end + 1;
  }
  return out;
}
std::string text_in(const io::Json& span, const char* key) {
  const io::Json* value = span.find(key);
  return value && value->as_string() ? std::string(*value->as_string()) : "";
}

TEST(TraceFile, HoldsTheSpansOfRequests) {
  const TempFolder t;
  put_model(t / "models/m.onnx", scale_model(2));
  const std::string file = t / "traces.jsonl";
  std::string ours;
  {
    Running server({.models = t / "models", .traces = file});
    ours =
        given_back(server.post("/v2/models/m/infer", kTracedBody, {{"traceparent", kTraceParent}}))
            .second;
    // Not wanted by who asks.
    server.post("/predictions/m", kTracedBody,
                {{"traceparent", "00-" + kTraceId + "-" + kSpanId + "-00"}});
    // One that we begin; requests of no model begin none.
    EXPECT_NE(given_back(server.post("/v1/models/m:predict", "{\"instances\":[[1,2,3,4]]}")).first,
              "");
    EXPECT_EQ(given_back(server.get("/v2/health/live")).first, "");
  }
  const auto spans = spans_in(file);
  ASSERT_EQ(spans.count("POST /v2/models/m/infer"), 1U);
  const io::Json& root = spans.at("POST /v2/models/m/infer")[0];
  EXPECT_EQ(text_in(root, "traceId"), kTraceId);
  EXPECT_EQ(text_in(root, "parentSpanId"), kSpanId);
  EXPECT_EQ(text_in(root, "spanId"), ours);
  EXPECT_LT(std::stod(text_in(root, "startTimeUnixNano")),
            std::stod(text_in(root, "endTimeUnixNano")));
  EXPECT_TRUE(has(root.dump(), "\"http.response.status_code\""));
  ASSERT_EQ(spans.count("compute"), 1U);
  const io::Json& compute = spans.at("compute")[0];
  EXPECT_EQ(text_in(compute, "traceId"), kTraceId);
  EXPECT_EQ(text_in(compute, "parentSpanId"), ours);
  EXPECT_TRUE(has(compute.dump(), "tandem.model"));
  EXPECT_EQ(spans.at("queue").size(), 2U);
  ASSERT_EQ(spans.count("POST /v1/models/m:predict"), 1U);
  EXPECT_EQ(text_in(spans.at("POST /v1/models/m:predict")[0], "parentSpanId"), "");
  EXPECT_EQ(spans.count("POST /predictions/m"), 0U);
  EXPECT_EQ(spans.size(), 4U);
}

double time_in(const io::Json& span, const char* key) { return std::stod(text_in(span, key)); }

// Spans of steps stand below the run of their ensemble, and steps of an ensemble that is a step
// below it.
TEST(TraceFile, HoldsTheStepsOfAnEnsemble) {
  const TempFolder t;
  put_model(t / "models/half.onnx", scale_model(0.5F));
  put_model(t / "models/twice.onnx", scale_model(2));
  put_model(t / "models/inner/serve.yaml",
            "ensemble:\n"
            "  - {model: half, input_map: [x=in], output_map: [y=low]}\n"
            "  - {model: twice, input_map: [x=low], output_map: [y=out]}\n");
  put_model(t / "models/outer/serve.yaml",
            "max_batch: 1\nensemble:\n"
            "  - {model: inner, input_map: [in=x], output_map: [out=mid]}\n"
            "  - {model: twice, input_map: [x=mid], output_map: [y=y]}\n");
  const std::string file = t / "traces.jsonl";
  {
    Running server({.models = t / "models", .traces = file});
    const HttpResponse r =
        server.post("/v2/models/outer/infer", kTracedBody, {{"traceparent", kTraceParent}});
    EXPECT_TRUE(has(r.body, "[2.0,4.0,6.0,8.0]")) << r.body;
  }
  const auto spans = spans_in(file);
  const std::map<std::string, size_t> counts{{"POST /v2/models/outer/infer", 1},
                                             {"queue", 1},
                                             {"compute", 1},
                                             {"step inner", 1},
                                             {"step half", 1},
                                             {"step twice", 2}};
  std::map<std::string, size_t> got;
  for (const auto& [name, list] : spans) got[name] = list.size();
  ASSERT_EQ(got, counts);
  const io::Json &root = spans.at("POST /v2/models/outer/infer")[0],
                 &compute = spans.at("compute")[0], &inner = spans.at("step inner")[0],
                 &half = spans.at("step half")[0];
  EXPECT_EQ(text_in(compute, "parentSpanId"), text_in(root, "spanId"));
  EXPECT_EQ(text_in(inner, "parentSpanId"), text_in(compute, "spanId"));
  EXPECT_EQ(text_in(half, "parentSpanId"), text_in(inner, "spanId"));
  // In the order in which they ran: the one below `inner`, then the one beside it.
  const std::vector<io::Json>& twice = spans.at("step twice");
  EXPECT_EQ(text_in(twice[0], "parentSpanId"), text_in(inner, "spanId"));
  EXPECT_EQ(text_in(twice[1], "parentSpanId"), text_in(compute, "spanId"));
  // Times are as exact as a double holds them, some hundred nanoseconds.
  constexpr double kSlack = 2000;
  const std::pair<const io::Json*, const io::Json*> inside[] = {
      {&compute, &root}, {&inner, &compute}, {&half, &inner}, {&twice[1], &compute}};
  for (const auto& [part, whole] : inside) {
    EXPECT_EQ(text_in(*part, "traceId"), kTraceId);
    EXPECT_GE(time_in(*part, "startTimeUnixNano") + kSlack, time_in(*whole, "startTimeUnixNano"));
    EXPECT_LE(time_in(*part, "endTimeUnixNano"), time_in(*whole, "endTimeUnixNano") + kSlack);
  }
  EXPECT_LE(time_in(half, "endTimeUnixNano"), time_in(twice[0], "startTimeUnixNano") + kSlack);
  for (const char* attribute : {"tandem.model", "tandem.version", "tandem.queue_us"})
    EXPECT_TRUE(has(half.dump(), attribute)) << half.dump();
}

TEST(TraceFile, AStepThatFailsSaysSo) {
  const TempFolder t;
  put_model(t / "models/table.onnx", lookup_model());
  put_model(t / "models/graph/serve.yaml",
            "ensemble:\n  - {model: table, input_map: [x=place], output_map: [y=row]}\n");
  const std::string file = t / "traces.jsonl";
  {
    Running server({.models = t / "models", .traces = file});
    EXPECT_GE(server
                  .post("/v2/models/graph/infer",
                        "{\"inputs\":[{\"name\":\"place\",\"datatype\":\"INT64\",\"shape\":[1],"
                        "\"data\":[9]}]}")
                  .status,
              400);
  }
  const auto spans = spans_in(file);
  ASSERT_EQ(spans.count("step table"), 1U);
  const io::Json& step = spans.at("step table")[0];
  EXPECT_TRUE(has(step.dump(), "\"status\":{\"code\":2}")) << step.dump();
  EXPECT_EQ(text_in(step, "parentSpanId"), text_in(spans.at("compute")[0], "spanId"));
}

TEST(TraceFile, HasALimit) {
  const TempFolder t;
  const std::string file = t / "traces.jsonl";
  TraceFile traces(file, 400);
  traces.append("{}");
  const auto size = std::filesystem::file_size(file);
  traces.append(std::string(400, ' '));
  traces.append("{}");
  EXPECT_GT(size, 0U);
  EXPECT_EQ(std::filesystem::file_size(file), size);
  EXPECT_EQ(
      server_options(read_server_settings("", {"models=m", "traces=t", "traces_mb=2"})).traces,
      "t");
}

}  // namespace
}  // namespace tandem::serve
