// SPDX-License-Identifier: Apache-2.0
// `tandem serve` and `tandem bench-serve` as people start them: recorded requests sent again,
// folders of other servers, settings from the environment; load tests and their exit codes.
#include <gtest/gtest.h>

#include <chrono>
#include <mutex>
#include <thread>

#include "tests/cli/started_helper.h"
#include "tests/io/io_helper.h"
#include "tests/serve/serve_helper.h"

namespace tandem::cli_test {
namespace {

std::string serve(const std::string& arguments) {
  return std::string(std::getenv("TANDEM_TOOL")) + " serve --port 0 " + arguments;
}

TEST(ServeVerb, RequestsAreRecordedAndSentAgain) {
  const TempFolder t;
  serve::put_model(t / "a/m.onnx", serve::scale_model(2));
  serve::put_model(t / "b/m.onnx", serve::scale_model(2.5));
  {
    Started server(serve((t / "a") + " --record " + (t / "r")));
    ASSERT_GT(server.port(), 0) << server.text();
    for (int i = 0; i < 3; ++i) EXPECT_EQ(server.post("/predictions/m", "[[1,2,3,4]]").status, 200);
    EXPECT_EQ(server.stop(), 0);
  }
  const auto again = [&](const Started& server, const std::string& more) {
    return tool("bench-serve http://127.0.0.1:" + std::to_string(server.port()) + " --replay " +
                (t / "r") + " --speed 0 " + more + " 2>&1");
  };
  const Started same(serve(t / "a")), other(serve(t / "b"));
  const Result equal = again(same, "--compare");
  EXPECT_EQ(equal.code, 0) << equal.text;
  EXPECT_TRUE(has(equal.text, "3 answers are the recorded ones, 0 differ")) << equal.text;
  const Result differs = again(other, "--compare --json");
  EXPECT_EQ(differs.code, 3) << differs.text;
  EXPECT_TRUE(has(differs.text, "\"largest_difference\":2,")) << differs.text;
  EXPECT_EQ(again(other, "").code, 0) << "without --compare it is a load test";
  EXPECT_NE(tool("serve --record " + (t / "r") + " " + (t / "a") + " 2> /dev/null").code, 0)
      << "the file is there already";
  write_file(t / "r", "no record\n");
  EXPECT_TRUE(has(again(same, "").text, "request 1"));
}

TEST(ServeVerb, FoldersOfOtherServersAndSettingsOfTheEnvironment) {
  const TempFolder t;
  serve::put_model(t / "repo/m/1/model.onnx", serve::scale_model(3));
  write_file(t / "repo/m/config.pbtxt", "max_batch_size: 4\nmodel_warmup { name: 'w' }\n");
  write_file(t / "settings.yaml", "from: triton\npage: false\n");
  const Started server("env TANDEM_SERVE_CONFIG=" + (t / "settings.yaml") + " " +
                       serve(t / "repo"));
  ASSERT_GT(server.port(), 0) << server.text();
  EXPECT_TRUE(has(server.text(), "'m': 'model_warmup' (line 2) has no effect")) << server.text();
  // Batches are tried in the background once the server is ready.
  std::string config;
  for (int i = 0; i < 200 && !has(config, "\"max_batch_size\":4"); ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
    config = server.get("/v2/models/m/config").body;
  }
  EXPECT_TRUE(has(config, "\"max_batch_size\":4")) << config;
  EXPECT_EQ(server.get("/page/state").status, 404);
  const Result wrong = tool("serve --from tritn " + (t / "repo") + " 2>&1");
  EXPECT_EQ(wrong.code, 1);
  EXPECT_TRUE(has(wrong.text, "did you mean 'triton'?")) << wrong.text;
}

/// Answers requests when so many of them wait.
class InGroups {
 public:
  explicit InGroups(size_t size)
      : server_({},
                [this, size](const serve::HttpExchangePtr& e) {
                  const std::lock_guard hold(lock_);
                  waiting_.push_back(e);
                  if (waiting_.size() < size) return;
                  for (const serve::HttpExchangePtr& w : waiting_) w->answer({.body = "{}"});
                  waiting_.clear();
                }),
        thread_([this] { server_.run(); }) {}
  ~InGroups() {
    server_.drain(0, 0);
    thread_.join();
  }
  std::string url() const { return server_.url(); }
  uint64_t accepted() const { return server_.counts().accepted; }

 private:
  std::mutex lock_;
  std::vector<serve::HttpExchangePtr> waiting_;
  serve::HttpServer server_;
  std::thread thread_;
};

TEST(BenchServeVerb, SaysWhatHasNoGoodAnswer) {
  const TempFolder t;
  const InGroups one(1), never(1000);
  const auto run = [&](const InGroups& server, const std::string& more) {
    return tool("bench-serve " + server.url() + " --seconds 0.2 --patience 0.2 " + more + " 2>&1");
  };
  EXPECT_EQ(run(one, "--closed 2").code, 0);
  const Result hangs = run(never, "--rate 50 --connections 2 --json");
  EXPECT_EQ(hangs.code, 1) << hangs.text;
  // 35 were due: 25 of them before the time that counts.
  EXPECT_TRUE(has(hangs.text, "\"unanswered\":35,")) << hangs.text;
  EXPECT_EQ(run(never, "--closed 3").code, 1);
  const Result swept = run(one, "--sweep 20,10 --p99-ms 60000 --page " + (t / "load.html"));
  EXPECT_EQ(swept.code, 0) << swept.text;
  EXPECT_TRUE(has(swept.text, "20 requests/s is the highest rate")) << swept.text;
  EXPECT_TRUE(has(text_of(t / "load.html"), "Latency in ms"));
  EXPECT_EQ(run(one, "--sweep 10 --p99-ms 0.0001").code, 3);
  for (const char* wrong : {"--closed 2 --rate 5", "--page x.html", "--protocol gprc --model m",
                            "--sweep 5,x", "--streams 2", "--model m"})
    EXPECT_NE(run(one, wrong).code, 0) << wrong;
}

TEST(BenchServeVerb, ReplaysOverAsManyConnectionsAsAreAskedFor) {
  const TempFolder t;
  std::string all;
  for (int i = 0; i < 40; ++i)
    all +=
        "{\"at\":0,\"method\":\"POST\",\"path\":\"/"
        "x\",\"headers\":{},\"body_bytes\":2,\"status\":200,"
        "\"answer_bytes\":2}\n{}{}\n";
  write_file(t / "r", all);
  for (const uint64_t n : {1, 2, 8}) {
    const InGroups server(n);
    const Result r = tool("bench-serve " + server.url() + " --speed 0 --replay " + (t / "r") +
                          (n == 8 ? "" : " --connections " + std::to_string(n)) + " 2>&1");
    EXPECT_EQ(r.code, 0) << r.text;
    EXPECT_EQ(server.accepted(), n + 1) << "one more looks whether somebody listens";
  }
}

}  // namespace
}  // namespace tandem::cli_test
