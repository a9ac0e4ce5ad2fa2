// SPDX-License-Identifier: Apache-2.0
// Who may do what: every route and method of gRPC with no key, a wrong one and keys of each scope.
#include "tandem/serve/keys.h"

#include <gtest/gtest.h>

#include "tandem/serve/server_settings.h"
#include "tests/io/io_helper.h"
#include "tests/serve/grpc_helper.h"
#include "tests/support/init.h"

namespace tandem::serve {
namespace {

const std::string kInfer = "infer-key-0123456789", kAdmin = "admin-key-0123456789",
                  kMetrics = "metrics-key-0123456789", kAll = "all-key-0123456789abc";
const std::string kFile = "# keys\ninfer " + kInfer + "\nadmin  " + kAdmin + "  # who loads\n\n" +
                          "metrics\t" + kMetrics + "\ninfer,admin,metrics " + kAll + "\n";

struct Route {
  const char *method, *path;
  KeyScope scope;
};
constexpr Route kRoutes[] = {
    {"GET", "/v2/health/live", KeyScope::none},
    {"GET", "/v2/health/ready", KeyScope::none},
    {"GET", "/ping", KeyScope::none},
    {"GET", "/metrics", KeyScope::metrics},
    {"POST", "/v2/repository/models/m/load", KeyScope::admin},
    {"POST", "/v2/repository/models/m/unload", KeyScope::admin},
    {"POST", "/v2/%72epository/models/m/load", KeyScope::admin},
    {"POST", "/v2/repository/index", KeyScope::infer},
    {"POST", "/v2/systemsharedmemory/region/r/register", KeyScope::admin},
    {"POST", "/v2/systemsharedmemory/unregister", KeyScope::admin},
    {"POST", "/v2/cudasharedmemory/region/r/register", KeyScope::admin},
    {"GET", "/", KeyScope::infer},
    {"GET", "/page/state", KeyScope::infer},
    {"GET", "/v2", KeyScope::infer},
    {"GET", "/v2/models/m", KeyScope::infer},
    {"GET", "/v2/models/stats", KeyScope::infer},
    {"POST", "/v2/models/m/infer", KeyScope::infer},
    {"GET", "/v1/models/m", KeyScope::infer},
    {"POST", "/v1/models/m:predict", KeyScope::infer},
    {"POST", "/predictions/m", KeyScope::infer},
    {"POST", "/invocations", KeyScope::infer},
    {"GET", "/nothing/here", KeyScope::infer},
};
constexpr Route kCalls[] = {
    {"", "/grpc.health.v1.Health/Check", KeyScope::none},
    {"", "/inference.GRPCInferenceService/ServerLive", KeyScope::none},
    {"", "/inference.GRPCInferenceService/ModelInfer", KeyScope::infer},
    {"", "/inference.GRPCInferenceService/ModelMetadata", KeyScope::infer},
    {"", "/inference.GRPCInferenceService/RepositoryIndex", KeyScope::infer},
    {"", "/inference.GRPCInferenceService/RepositoryModelLoad", KeyScope::admin},
    {"", "/inference.GRPCInferenceService/RepositoryModelUnload", KeyScope::admin},
    {"", "/tensorflow.serving.PredictionService/Predict", KeyScope::infer},
    {"", "/grpc.reflection.v1.ServerReflection/ServerReflectionInfo", KeyScope::infer},
};

bool allows(const std::string& key, KeyScope scope) {
  return scope == KeyScope::none || key == kAll || (key == kInfer && scope == KeyScope::infer) ||
         (key == kAdmin && scope == KeyScope::admin) ||
         (key == kMetrics && scope == KeyScope::metrics);
}

class Keys : public ::testing::Test {
 protected:
  void SetUp() override {
    put_model(t_ / "models/m.onnx", scale_model(2));
    write_file(t_ / "keys", kFile);
    server_ = std::make_unique<Running>(
        ServerOptions{.models = t_ / "models", .keys = ApiKeys(t_ / "keys")});
  }
  TempFolder t_;
  std::unique_ptr<Running> server_;
};

TEST_F(Keys, EveryRouteWantsItsScope) {
  const auto client = server_->client();
  for (const Route& r : kRoutes)
    for (const std::string& key :
         {std::string(), std::string("wrong-key-0123456789"), kInfer, kAdmin, kMetrics, kAll}) {
      HttpHeaders headers;
      if (!key.empty()) headers.emplace_back("Authorization", "Bearer " + key);
      const int status = client->request(r.method, r.path, "", headers).status;
      const bool known = !key.empty() && key[0] != 'w';
      const int refused =
          status == 401 || (status == 403 && r.scope != KeyScope::admin) ? status : 0;
      if (allows(key, r.scope))
        EXPECT_EQ(refused, 0) << r.path << " " << key;
      else if (known)
        EXPECT_EQ(status, 403) << r.path << " " << key;
      else
        EXPECT_EQ(status, 401) << r.path << " " << key;
    }
  EXPECT_EQ(client->request("GET", "/v2", "", {{"X-API-Key", kInfer}}).status, 200);
  const HttpResponse refused = client->get("/v2");
  EXPECT_EQ(*header_of(refused, "www-authenticate"), "Bearer");
  for (const char* damaged : {"Basic abc", "Bearer", "bearer  ", "Bear"})
    EXPECT_EQ(client->request("GET", "/v2", "", {{"Authorization", damaged}}).status, 401);
}

TEST_F(Keys, EveryMethodOfGrpcWantsItsScope) {
  if (!Http2Frames::available()) GTEST_SKIP() << "this build has no HTTP/2";
  Http2Client client("127.0.0.1", (*server_)->port());
  for (const Route& r : kCalls)
    for (const std::string& key :
         {std::string(), std::string("wrong-key-0123456789"), kInfer, kAdmin, kMetrics, kAll}) {
      HttpHeaders headers;
      if (!key.empty()) headers.emplace_back("authorization", "Bearer " + key);
      const GrpcAnswer a = grpc_answer(client.call(r.path, as_body(io::ProtoWriter()), headers));
      const bool known = !key.empty() && key[0] != 'w';
      if (allows(key, r.scope))
        EXPECT_TRUE(a.code != 16 && !has(a.text, "key")) << r.path << " " << key << a.text;
      else
        EXPECT_EQ(a.code, known ? 7 : 16) << r.path << " " << key << a.text;
    }
}

TEST(KeyFiles, Errors) {
  const struct {
    std::string text;
    const char* says;
  } cases[] = {
      {"", "has no keys"},
      {"infer short\n", "line 1: a key has 16"},
      {"\ninfer\n", "line 2: a line has scopes"},
      {"write 0123456789abcdef\n", "no scope 'write'"},
      {"infer 0123456789abcdef\nadmin 0123456789abcdef\n", "line 2: this key stands there twice"},
      {"infer 0123456789 abcdefghij\n", "no blanks"},
      {"infer 0123456789abcdef more\n", "got 'more'; a key has no blanks"},
      {"infer 0123456789abcdef rate=\n", "line 1: 'rate=' is not a number above 0"},
      {"infer 0123456789abcdef rate=-1\n", "is not a number above 0"},
      {"infer 0123456789abcdef rate=nan\n", "is not a number above 0"},
      {"infer 0123456789abcdef rate=1e30\n", "is not a number above 0"},
      {"infer 0123456789abcdef rate=5 burst=x\n", "'burst=x' is not a number above 0"},
      {"infer 0123456789abcdef burst=5\n", "a burst without a rate"},
  };
  for (const auto& c : cases) {
    const std::string said = thrown([&] { ApiKeys::parse(c.text, "keys"); });
    EXPECT_TRUE(has(said, c.says)) << c.text << said;
  }
}

TEST(Rates, ABucketFillsAsTimePasses) {
  TokenBucket b(2, 3);
  for (int i = 0; i < 3; ++i) EXPECT_EQ(b.take(10), 0);
  EXPECT_EQ(b.take(10), 0.5);
  EXPECT_EQ(b.take(10.25), 0.25);
  EXPECT_EQ(b.take(10.5), 0);
  EXPECT_EQ(b.take(10.5), 0.5);
  for (int i = 0; i < 3; ++i) EXPECT_EQ(b.take(1000), 0) << "no more than the burst is saved up";
  EXPECT_EQ(b.take(1000), 0.5);
  EXPECT_EQ(b.take(900), 0.5) << "a clock that steps back gives nothing";
}

// A file that is read again gives nobody a fresh burst, unless the key's rate is another one.
TEST(Rates, KeysThatStayKeepWhatIsLeft) {
  const std::string a = "infer " + kInfer + " rate=0.01 burst=1\n",
                    b = "infer " + kAll + " rate=0.01 burst=1\n";
  const ApiKeys before = ApiKeys::parse(a + b, "keys");
  const auto status = [](const ApiKeys& keys, const std::string& key) {
    HttpRequest r;
    r.headers.emplace_back("authorization", "Bearer " + key);
    return keys.check(r, KeyScope::infer);
  };
  for (const std::string& key : {kInfer, kAll}) {
    EXPECT_EQ(status(before, key), 0);
    EXPECT_EQ(status(before, key), 429);
  }
  ApiKeys after = ApiKeys::parse("infer " + kAll + " rate=0.01 burst=2\n" + a, "keys");
  after.keep_rates(before);
  EXPECT_EQ(status(after, kInfer), 429);
  EXPECT_EQ(status(after, kAll), 0);
}

// One key beyond its rate; the others, and health, do not notice.
TEST(Rates, BeyondThemIsTooManyRequests) {
  const TempFolder t;
  put_model(t / "models/m.onnx", scale_model(2));
  Running server(
      {.models = t / "models",
       .keys = ApiKeys::parse(
           "infer " + kInfer + " rate=0.01 burst=2\ninfer,metrics " + kAll + "\n", "keys")});
  const auto get = [&](const std::string& key, const std::string& path = "/v2/models/m") {
    return server.client()->request("GET", path, "", {{"Authorization", "Bearer " + key}});
  };
  EXPECT_EQ(get(kInfer).status, 200);
  EXPECT_EQ(get(kInfer, "/metrics").status, 403) << "what is not allowed costs nothing";
  EXPECT_EQ(get(kInfer).status, 200);
  const HttpResponse r = get(kInfer);
  EXPECT_EQ(r.status, 429);
  EXPECT_TRUE(has(r.body, "{\"error\":\"the key allows no more")) << r.body;
  const int wait = std::atoi(header_of(r, "retry-after")->c_str());
  EXPECT_TRUE(wait > 60 && wait <= 100) << wait;
  EXPECT_EQ(get(kInfer, "/v2/health/ready").status, 200);
  for (int i = 0; i < 5; ++i) EXPECT_EQ(get(kAll).status, 200);
  EXPECT_TRUE(has(get(kAll, "/metrics").body, "\ntandem_rate_limited_total 1\n"));
  if (!Http2Frames::available()) return;
  Http2Client client("127.0.0.1", server->port());
  const GrpcAnswer a =
      grpc_answer(client.call("/inference.GRPCInferenceService/ModelMetadata",
                              as_body(io::ProtoWriter()), {{"authorization", "Bearer " + kInfer}}));
  EXPECT_EQ(a.code, 8) << a.text;
}

// With keys other machines may reach it.
TEST(KeyFiles, OpenTheServerToOthers) {
  const TempFolder t;
  put_model(t / "models/m.onnx", scale_model(2));
  write_file(t / "keys", kFile);
  const ServerOptions o = server_options(read_server_settings(
      "", {"models=" + (t / "models"), "host=0.0.0.0", "port=0", "keys=" + (t / "keys")}));
  Server server(o);
  EXPECT_GT(server.port(), 0);
}

}  // namespace
}  // namespace tandem::serve
