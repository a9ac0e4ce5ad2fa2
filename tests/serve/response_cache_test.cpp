// SPDX-License-Identifier: Apache-2.0
// Answers that are kept: equal to the bit, found by the inputs' bytes, bounded, and counted.
#include "tandem/serve/model/response_cache.h"

#include <gtest/gtest.h>

#include "tandem/ops/ops.h"
#include "tests/io/io_helper.h"
#include "tests/serve/grpc_helper.h"
#include "tests/support/bits.h"
#include "tests/support/init.h"

namespace tandem::serve {
namespace {

TEST(ResponseCache, FindsByBytesShapeAndDtype) {
  ResponseCache cache(size_t{1} << 20);
  const Tensor x = full({2, 2}, 1.5), y = full({2, 3}, 7.0);
  EXPECT_FALSE(cache.find({x}));
  cache.put({x}, {y});
  const auto found = cache.find({full({2, 2}, 1.5)});
  ASSERT_TRUE(found);
  EXPECT_TRUE(same_bits(found->at(0), y));
  EXPECT_FALSE(cache.find({full({4}, 1.5)}));
  EXPECT_FALSE(cache.find({full({2, 2}, 1.5), x}));
  EXPECT_FALSE(cache.find({full({2, 2}, 1.25)}));
  EXPECT_FALSE(cache.find({full({2, 2}, 0x3FC00000, DType::i32)}));  // the same bytes
  EXPECT_EQ(cache.hits().count(), 1U);
  EXPECT_EQ(cache.misses().count(), 5U);
}

TEST(ResponseCache, TheLeastRecentlyUsedMakeRoom) {
  constexpr size_t kEntry = 512 + 4096 + 4;
  ResponseCache cache(3 * kEntry);
  const auto key = [](int i) { return std::vector<Tensor>{full({1024}, i, DType::f32)}; };
  for (int i = 0; i < 3; ++i) cache.put(key(i), {full({1}, i, DType::f32)});
  EXPECT_EQ(cache.bytes(), 3 * kEntry);
  EXPECT_TRUE(cache.find(key(0)));
  cache.put(key(3), {full({1}, 3, DType::f32)});
  EXPECT_EQ(cache.evicted(), 1U);
  EXPECT_FALSE(cache.find(key(1)));
  for (const int i : {0, 2, 3}) EXPECT_TRUE(cache.find(key(i))) << i;
  cache.put(key(3), {full({1}, 4, DType::f32)});  // in its place
  EXPECT_EQ(cache.bytes(), 3 * kEntry);
  EXPECT_EQ(cache.find(key(3))->at(0).item<float>(), 4);
  cache.put({full({4096}, 1)}, {});  // larger than all
  EXPECT_EQ(cache.bytes(), 3 * kEntry);
}

std::string noisy_model() {
  return onnx::model(
      {{onnx::node("RandomNormalLike", {"x"}, {"r"}), onnx::node("Add", {"x", "r"}, {"y"})},
       {},
       {sized_port("x", 1, {-1, 4})},
       {sized_port("y", 1, {-1, 4})}});
}

TEST(ResponseCache, RequestsOfEveryProtocolShareAnswers) {
  const TempFolder t;
  put_model(t / "m/1/model.onnx", mlp_model(4, 64, 3));
  put_model(t / "m/2/model.onnx", scale_model(2));
  put_model(t / "m/serve.yaml", "latest: 0\nresponse_cache_mb: 4\n");
  put_model(t / "plain.onnx", scale_model(2));
  put_model(t / "noisy/1/model.onnx", noisy_model());
  put_model(t / "noisy/serve.yaml", "response_cache_mb: 4\n");
  Running server({.models = t.path().string()});
  const std::string body =
      "{\"inputs\":[{\"name\":\"x\",\"datatype\":\"FP32\",\"shape\":[1,4],\"data\":[1,2,3,4]}]}";
  const auto hit = [](const HttpResponse& r) {
    const std::string* timing = header_of(r, "tandem-timing");
    return timing && has(*timing, "cache=hit");
  };
  const HttpResponse first = server.post("/v2/models/m/versions/1/infer", body);
  EXPECT_FALSE(hit(first));
  const HttpResponse second = server.post("/v2/models/m/versions/1/infer", body);
  EXPECT_TRUE(hit(second));
  EXPECT_EQ(first.body, second.body);
  // Another version has answers of its own; another protocol has the same ones.
  const HttpResponse other = server.post("/v2/models/m/infer", body);
  EXPECT_FALSE(hit(other));
  EXPECT_TRUE(has(other.body, "[2.0,4.0,6.0,8.0]"));
  EXPECT_TRUE(hit(server.post("/v1/models/m/versions/1:predict", "{\"instances\":[[1,2,3,4]]}")));
  if (Http2Frames::available()) {
    const GrpcAnswer r = grpc_call(server->port(), "/inference.GRPCInferenceService/ModelInfer",
                                   v2_infer_request("m", {raw_input()}));
    EXPECT_TRUE(has(trailer_of(r.http, "tandem-timing"), "cache=hit"));
    EXPECT_EQ(field_of(r.message, 6), bytes_of_floats({2, 4, 6, 8}));
    io::ProtoWriter named;
    named.add_bytes(1, "m");
    named.add_bytes(2, "1");
    const std::string times = field_of(
        field_of(grpc_call(server->port(), "/inference.GRPCInferenceService/ModelStatistics", named)
                     .message,
                 1),
        6);
    EXPECT_EQ(field_of(field_of(times, 7), 1), "2");
    EXPECT_EQ(field_of(field_of(times, 8), 1), "1");
  }
  const std::string stats = server.get("/v2/models/m/versions/1/stats").body;
  for (const char* part : {"\"cache_hit\":{\"count\":2", "\"cache_miss\":{\"count\":1",
                           "\"success\":{\"count\":3", "\"execution_count\":1"})
    EXPECT_TRUE(has(stats, part)) << part << "\n" << stats;
  const std::string metrics = server.get("/metrics").body;
  EXPECT_TRUE(
      has(metrics, "tandem_response_cache_total{model=\"m\",version=\"1\",result=\"hit\"} 2"));
  EXPECT_FALSE(has(metrics, "tandem_response_cache_total{model=\"plain\""));
  // Numbers that are drawn are drawn each time.
  EXPECT_FALSE(has(metrics, "tandem_response_cache_total{model=\"noisy\""));
  EXPECT_NE(server.post("/v2/models/noisy/infer", body).body,
            server.post("/v2/models/noisy/infer", body).body);
}

TEST(ResponseCache, ErrorsAreNotKept) {
  const TempFolder t;
  put_model(t / "lookup/1/model.onnx", lookup_model());
  put_model(t / "lookup/serve.yaml", "response_cache_mb: 1\n");
  Running server({.models = t.path().string()});
  for (int i = 0; i < 2; ++i)
    EXPECT_EQ(server.post("/v1/models/lookup:predict", "{\"instances\":[99]}").status, 400);
  const ModelVersionPtr v = server->repository().find("lookup");
  EXPECT_EQ(v->cache->bytes(), 0U);
  EXPECT_EQ(v->cache->misses().count(), 2U);
}

}  // namespace
}  // namespace tandem::serve
