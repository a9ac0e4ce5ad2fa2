// SPDX-License-Identifier: Apache-2.0
// Versions that are tried: canaries with their rollback, shadows with their comparison; requests
// recorded and sent again.
#include "tandem/serve/model/traffic.h"

#include <gtest/gtest.h>
#include <sys/stat.h>

#include <cmath>
#include <map>

#include "tandem/ops/ops.h"
#include "tandem/serve/record.h"
#include "tandem/serve/server_settings.h"
#include "tests/io/io_helper.h"
#include "tests/serve/serve_helper.h"
#include "tests/support/init.h"

namespace tandem::serve {
namespace {

const std::string kOnes = "[[1,1,1,1]]";
std::string scaled(int factor) {
  return fmt::format("{{\"y\":[[{0}.0,{0}.0,{0}.0,{0}.0]]}}", factor);
}

// The value of a line of /metrics.
double metric(Running& server, const std::string& line) {
  const std::string text = server.get("/metrics").body;
  const size_t at = text.find("\n" + line + " ");
  return at == std::string::npos ? -1 : std::strtod(text.c_str() + at + line.size() + 2, nullptr);
}
// Waits until what happens after answers has happened.
double metric_when(Running& server, const std::string& line, double wanted) {
  for (int i = 0; i < 500 && metric(server, line) < wanted; ++i)
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  return metric(server, line);
}

class TriedVersions : public ::testing::Test {
 protected:
  void SetUp() override {
    for (const int v : {1, 2, 3})
      put_model(t_ / fmt::format("models/m/{}/model.onnx", v), scale_model(static_cast<float>(v)));
  }
  void settings(const std::string& text) { write_file(t_ / "models/m/serve.yaml", text); }
  TempFolder t_;
};

TEST_F(TriedVersions, ACanaryGetsItsShare) {
  settings("canary: {version: 3, share: 0.2}\n");
  Running server({.models = t_ / "models"});
  EXPECT_EQ(server->repository().versions("m").size(), 2U);
  std::map<std::string, int> seen;
  const auto client = server.client();
  for (int i = 0; i < 100; ++i) ++seen[client->post("/predictions/m", kOnes).body];
  EXPECT_EQ(seen, (std::map<std::string, int>{{scaled(2), 80}, {scaled(3), 20}}));
  // Who names a version gets it, and answers say which it was.
  EXPECT_EQ(client->post("/predictions/m/3", kOnes).body, scaled(3));
  EXPECT_EQ(client->post("/predictions/m/2", kOnes).body, scaled(2));
  int named = 0;
  for (int i = 0; i < 10; ++i)
    named += has(client
                     ->post("/v2/models/m/infer",
                            "{\"inputs\":[{\"name\":\"x\",\"datatype\":\"FP32\",\"shape\":[1,4],"
                            "\"data\":[1,1,1,1]}]}")
                     .body,
                 "\"model_version\":\"3\"");
  EXPECT_EQ(named, 2);
  EXPECT_EQ(metric(server, "tandem_canary_share{model=\"m\",version=\"3\"}"), 0.2);
}

// A version that fails on what the other one answers is taken back, and clients stop noticing.
TEST_F(TriedVersions, ABadCanaryIsTakenBack) {
  for (const int v : {1, 2, 3}) std::filesystem::remove_all(t_ / fmt::format("models/m/{}", v));
  put_model(t_ / "models/m/1/model.onnx", lookup_model());
  // The same, of a table with two rows: an index of 3 is an error.
  put_model(t_ / "models/m/2/model.onnx",
            onnx::model({{onnx::node("Gather", {"table", "x"}, {"y"})},
                         {onnx::floats("table", {2, 2}, {0, 1, 2, 3})},
                         {sized_port("x", 7, {-1})},
                         {sized_port("y", 1, {-1, 2})}}));
  settings("canary: {version: 2, share: 0.5, rollback: {error_rate: 0.1, requests: 20}}\n");
  Running server({.models = t_ / "models"});
  const auto client = server.client();
  int failed = 0, last = 0;
  for (int i = 0; i < 200; ++i)
    if (client->post("/predictions/m", "[3]").status != 200) {
      ++failed;
      last = i;
    }
  EXPECT_EQ(failed, 20) << "as many as the rule waits for";
  EXPECT_LT(last, 45);
  EXPECT_EQ(metric(server, "tandem_canary_share{model=\"m\",version=\"2\"}"), 0);
  EXPECT_NE(client->post("/predictions/m/2", "[3]").status, 200) << "by its number it is there";
}

// The rule of times, on counts that are given: no clock decides this test.
TEST_F(TriedVersions, ASlowCanaryIsTakenBack) {
  settings("canary: {version: 3, share: 0.5, rollback: {p99_ratio: 2, requests: 10}}\n");
  Repository repository({.folder = t_ / "models"});
  repository.load_all();
  repository.wait_for_warm_up();
  const ModelVersionPtr stable = repository.find("m"), canary = repository.find("m", "3");
  ASSERT_EQ(stable->version, 2);
  const auto answered = [](const ModelVersionPtr& v, int n, double seconds) {
    for (int i = 0; i < n; ++i) {
      ++v->scheduler->counts().ok;
      v->scheduler->counts().total.add(seconds);
    }
  };
  const auto picks = [&] {
    int of_canary = 0;
    for (int i = 0; i < 10; ++i) of_canary += repository.pick("m") == canary;
    return of_canary;
  };
  answered(stable, 100, 0.010);
  answered(canary, 9, 0.500);
  EXPECT_EQ(picks(), 5) << "too few answers for the rule";
  answered(canary, 500, 0.019);
  answered(canary, 300, 0.018);
  EXPECT_EQ(picks(), 0) << "9 of 809 answers took 500 ms";
  EXPECT_TRUE(stable->traffic->rolled_back());
  // A reload starts again.
  repository.load("m");
  EXPECT_EQ(repository.find("m")->traffic->share(), 0.5);
}

// One that is stuck answers nothing well, and nothing with an error of its own.
TEST_F(TriedVersions, AStuckCanaryIsTakenBack) {
  for (const auto counter : {&JobCounts::expired, &JobCounts::rejected}) {
    settings("canary: {version: 3, share: 0.5, rollback: {error_rate: 0.1, requests: 10}}\n");
    Repository repository({.folder = t_ / "models"});
    repository.load_all();
    const ModelVersionPtr stable = repository.find("m"), canary = repository.find("m", "3");
    stable->scheduler->counts().ok = 100;
    canary->scheduler->counts().*counter = 20;
    for (int i = 0; i < 10; ++i) EXPECT_NE(repository.pick("m"), canary);
    EXPECT_TRUE(stable->traffic->rolled_back());
  }
}

TEST_F(TriedVersions, AShadowIsComparedAndNeverAnswers) {
  settings("latest: 1\nshadow: 3\n");
  Running server({.models = t_ / "models"});
  const auto client = server.client();
  for (int i = 1; i <= 20; ++i)
    EXPECT_EQ(client->post("/predictions/m", fmt::format("[[{0},{0},0,0]]", i)).body,
              fmt::format("{{\"y\":[[{0}.0,{0}.0,0.0,0.0]]}}", 2 * i));
  EXPECT_EQ(client->post("/predictions/m", "[[0,0,0,0]]").status, 200);
  const std::string of = "{model=\"m\",version=\"3\"";
  EXPECT_EQ(metric_when(server, "tandem_shadow_total" + of + ",result=\"different\"}", 20), 20);
  EXPECT_EQ(metric_when(server, "tandem_shadow_total" + of + ",result=\"equal\"}", 1), 1);
  EXPECT_EQ(metric(server, "tandem_shadow_difference" + of + "}"), 20);
}

TEST_F(TriedVersions, SettingsThatCannotBe) {
  const std::pair<const char*, const char*> cases[] = {
      {"canary: {version: 9, share: 0.1}\n", "has no version 9"},
      {"shadow: 8\n", "has no version 8"},
      {"canary: {version: 3, share: 1.5}\n", "share"},
      {"canary: {version: 3, shre: 0.5}\n", "did you mean 'share'?"},
      {"canary: {version: 3, rollback: {eror_rate: 1}}\n", "did you mean 'error_rate'?"},
  };
  for (const auto& [text, says] : cases) {
    settings(text);
    Repository repository({.folder = t_ / "models"});
    repository.load_all();
    EXPECT_TRUE(has(repository.index().at(0).reason, says)) << repository.index().at(0).reason;
  }
  std::filesystem::remove_all(t_ / "models/m/1");
  std::filesystem::remove_all(t_ / "models/m/2");
  settings("canary: {version: 3, share: 0.5}\n");
  Repository repository({.folder = t_ / "models"});
  repository.load_all();
  EXPECT_TRUE(has(repository.index().at(0).reason, "no version besides"));
}

TEST(Differences, OfAnswers) {
  const Tensor a = tensor({1.0F, NAN, 3.0F}), b = tensor({1.0F, NAN, 3.5F});
  EXPECT_EQ(largest_difference({a}, {a}), 0);
  EXPECT_EQ(largest_difference({a}, {b}), 0.5);
  EXPECT_EQ(largest_difference({a}, {a.reshape({3, 1})}), INFINITY);
  EXPECT_EQ(largest_difference({a}, {tensor({1.0F, 2.0F, 3.0F})}), INFINITY);
  EXPECT_EQ(largest_difference({a}, {}), INFINITY);
  double largest = 0;
  EXPECT_EQ(answer_difference("{\"y\":[1,2]}", "{\"y\":[1.0,2.0]}", largest), "");
  EXPECT_EQ(answer_difference("{\"y\":[1,2]}", "{\"y\":[1,2.5]}", largest),
            "the answer.y[1]: 2.5 was 2");
  EXPECT_EQ(largest, 0.5);
  EXPECT_TRUE(has(answer_difference("{\"y\":1}", "{\"z\":1}", largest), ".y is missing"));
  EXPECT_TRUE(has(answer_difference("abc", "abd", largest), "3 bytes"));
}

TEST_F(TriedVersions, RequestsAreRecordedAndSentAgain) {
  const std::string key = "0123456789abcdef0123", file = t_ / "requests.rec";
  const std::string binary = std::string(
      "{\"inputs\":[{\"name\":\"x\",\"datatype\":\"FP32\",\"shape\":[1,4],"
      "\"parameters\":{\"binary_data_size\":16}}]}");
  {
    Running server(
        {.models = t_ / "models", .keys = ApiKeys::parse("infer " + key, "keys"), .record = file});
    const HttpHeaders mine = {{"Authorization", "Bearer " + key}, {"Cookie", "secret=1"}};
    for (int i = 0; i < 5; ++i)
      EXPECT_EQ(server.post("/predictions/m", fmt::format("[[{},0,0,0]]", i), mine).status, 200);
    HttpHeaders with_head = mine;
    with_head.emplace_back("Inference-Header-Content-Length", std::to_string(binary.size()));
    EXPECT_EQ(server
                  .post("/v2/models/m/infer", binary + std::string("\n\0\r\n", 4) + kOnes + "1",
                        with_head)
                  .status,
              200);
    EXPECT_EQ(server.post("/predictions/m", "[[1]]", mine).status, 400);
    EXPECT_EQ(server.post("/predictions/m", kOnes).status, 401);
    server.get("/metrics");
  }
  const std::string all = read_file(file);
  EXPECT_FALSE(has(all, key) || has(all, "secret"));
  struct stat s {};
  ASSERT_EQ(stat(file.c_str(), &s), 0);
  EXPECT_EQ(s.st_mode & 0777U, 0600U);
  const std::vector<RecordedRequest> requests = read_recorded(file);
  ASSERT_EQ(requests.size(), 7U);
  EXPECT_EQ(requests[0].at, 0);
  EXPECT_EQ(requests[6].status, 400);

  Running same({.models = t_ / "models", .keys = ApiKeys::parse("infer " + key, "keys")});
  const ReplayOptions options{.url = same->url(), .speed = 0, .key = key, .compare = true};
  ReplayReport report;
  replay(options, requests, report);
  EXPECT_EQ(report.equal, 7U) << report.text();
  EXPECT_EQ(report.ok, 6U);
  EXPECT_EQ(report.other, 1U);
  EXPECT_EQ(report.latency.count(), 7U);
  // Another version answers otherwise, and the report says how.
  std::filesystem::remove_all(t_ / "models/m/3");
  Running other({.models = t_ / "models"});
  ReplayReport second;
  replay({.url = other->url(), .speed = 0, .compare = true}, requests, second);
  EXPECT_GE(second.different, 5U);
  EXPECT_EQ(second.largest, 4) << second.text();
  EXPECT_TRUE(has(second.first_difference, "/predictions/m: the answer.y[0][0]: ") ||
              has(second.first_difference, "/v2/models/m/infer"))
      << second.first_difference;
  EXPECT_TRUE(has(second.json(), "\"largest_difference\":4"));
  EXPECT_TRUE(has(thrown([&] { Recorder again(file, 1e9); }), "is there already"));
}

TEST_F(TriedVersions, ARecordHasASizeAndMayBeCutOff) {
  const std::string file = t_ / "small.rec";
  {
    Running server({.models = t_ / "models", .record = file, .record_bytes = 700});
    for (int i = 0; i < 10; ++i) EXPECT_EQ(server.post("/predictions/m", kOnes).status, 200);
  }
  const std::string whole = read_file(file);
  EXPECT_LE(whole.size(), 700U);
  const size_t n = read_recorded(file).size();
  EXPECT_GE(n, 2U);
  EXPECT_LT(n, 10U);
  for (size_t cut = 0; cut < whole.size(); cut += 29) {
    write_file(file, whole.substr(0, cut));
    EXPECT_LT(read_recorded(file).size(), n) << cut;
  }
  for (const char* damaged :
       {"x\n", "{}\n", "[1]\n", "{\"at\":0,\"method\":\"GET\",\"path\":\"/\",\"headers\":{}}\n\n",
        "{\"at\":0,\"method\":\"POST\",\"path\":\"/a b\",\"headers\":{}}\n\n",
        "{\"at\":-1,\"method\":\"POST\",\"path\":\"/\",\"headers\":{}}\n\n",
        "{\"at\":0,\"method\":\"POST\",\"path\":\"/\",\"headers\":{},\"body_bytes\":-5}\n\n"}) {
    write_file(file, damaged);
    thrown([&] { read_recorded(file); }, ErrorKind::Format);
  }
}

}  // namespace
}  // namespace tandem::serve
