// SPDX-License-Identifier: Apache-2.0
// The access log: a line for each request of every protocol, nothing secret in it, and a server
// that answers when it cannot be written.
#include "tandem/serve/access_log.h"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>

#include "tandem/io/json.h"
#include "tandem/serve/server_settings.h"
#include "tests/io/io_helper.h"
#include "tests/serve/grpc_helper.h"
#include "tests/support/init.h"

namespace tandem::serve {
namespace {

std::vector<std::string> lines_of(const std::string& path) {
  std::vector<std::string> out;
  const std::string all = read_file(path, size_t{1} << 24);
  for (size_t at = 0, end = 0; (end = all.find('\n', at)) != std::string::npos; at = end + 1)
    out.push_back(all.substr(at, end - at));
  return out;
}
std::vector<io::Json> entries_of(const std::string& path) {
  std::vector<io::Json> out;
  for (const std::string& line : lines_of(path)) out.push_back(io::parse_json(line, "a line"));
  return out;
}
std::string text_of(const io::Json& entry, const char* key) {
  const io::Json* value = entry.find(key);
  return !value ? "" : value->as_string() ? std::string(*value->as_string()) : value->dump();
}
double number_of(const io::Json& entry, const char* key) {
  const io::Json* value = entry.find(key);
  return value ? io::number_of(value) : -1;
}

const std::string kAskBody = Askers::kBody;

TEST(AccessLines, OfHttpSayWhatHappened) {
  const TempFolder t;
  put_model(t / "models/m/7/model.onnx", scale_model(2));
  const std::string file = t / "access.jsonl";
  size_t answered = 0;
  {
    Running server({.models = t / "models", .access_log = {.path = file}});
    const HttpResponse r =
        server.post("/v2/models/m/infer?token=secret", kAskBody,
                    {{"X-Request-Id", "a-\"17\""},
                     {"User-Agent", "tests/1"},
                     {"Authorization", "Bearer secret"},
                     {"traceparent", "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"}});
    EXPECT_EQ(r.status, 200);
    answered = r.body.size();
    server.get("/v2/health/live");
    server.post("/v2/models/none/infer", kAskBody);
    const auto broken = server.client();
    broken->send("GET /broken HTTP/1.1\r\nHost: h\r\nX-Key: secret\r\nContent-Length: q\r\n\r\n");
    while (!broken->closed()) {}
  }
  EXPECT_FALSE(has(read_file(file), "secret")) << read_file(file);
  const std::vector<io::Json> all = entries_of(file);
  ASSERT_EQ(all.size(), 4U) << read_file(file);
  const io::Json& e = all[0];
  EXPECT_TRUE(text_of(e, "remote").starts_with("127.0.0.1:"));
  EXPECT_EQ(text_of(e, "protocol"), "HTTP/1.1");
  EXPECT_EQ(text_of(e, "method"), "POST");
  EXPECT_EQ(text_of(e, "path"), "/v2/models/m/infer");
  EXPECT_EQ(text_of(e, "model"), "m");
  EXPECT_EQ(number_of(e, "version"), 7);
  EXPECT_EQ(number_of(e, "status"), 200);
  EXPECT_EQ(number_of(e, "bytes_in"), static_cast<double>(kAskBody.size()));
  EXPECT_EQ(number_of(e, "bytes_out"), static_cast<double>(answered));
  EXPECT_EQ(number_of(e, "batch"), 1);
  EXPECT_GT(number_of(e, "ms"), 0);
  EXPECT_GE(number_of(e, "ms"), number_of(e, "queue_ms") + number_of(e, "compute_ms") - 0.002);
  EXPECT_EQ(text_of(e, "trace"), "0af7651916cd43dd8448eb211c80319c");
  EXPECT_EQ(text_of(e, "agent"), "tests/1");
  EXPECT_EQ(text_of(e, "request_id"), "a-\"17\"");
  EXPECT_EQ(text_of(e, "time").size(), 24U);
  EXPECT_EQ(text_of(all[1], "path"), "/v2/health/live");
  EXPECT_EQ(text_of(all[1], "model"), "");
  EXPECT_FALSE(all[1].find("queue_ms"));
  EXPECT_EQ(number_of(all[2], "status"), 404);
  EXPECT_EQ(number_of(all[3], "status"), 400);
  EXPECT_EQ(text_of(all[3], "path"), "/broken");
  struct stat about {};
  ASSERT_EQ(stat(file.c_str(), &about), 0);
  EXPECT_EQ(about.st_mode & 0777, 0640U);
}

TEST(AccessLines, OfGrpcSayWhatHappened) {
  if (!Http2Frames::available()) GTEST_SKIP() << "this build has no HTTP/2";
  const TempFolder t;
  put_model(t / "models/m.onnx", scale_model(2));
  const std::string file = t / "access.jsonl";
  const std::string method = "/inference.GRPCInferenceService/ModelInfer";
  const io::ProtoWriter asked = v2_infer_request("m", {raw_input()}, {}, "mine");
  {
    Running server({.models = t / "models", .access_log = {.path = file}});
    EXPECT_EQ(grpc_call(server->port(), method, asked).code, 0);
    EXPECT_EQ(grpc_call(server->port(), method, v2_infer_request("none", {raw_input()})).code, 5);
    Http2Client client("127.0.0.1", server->port());
    EXPECT_EQ(client.request("GET", "/v2/health/live").status, 200);
    EXPECT_EQ(client.request("GET", "/" + std::string(9000, 'a')).status, 414);
    // A stream of two messages is one call.
    const std::string one = as_body(asked);
    const int32_t stream =
        client.start("POST", "/inference.GRPCInferenceService/ModelStreamInfer", one,
                     {{"content-type", "application/grpc"}, {"te", "trailers"}}, true);
    client.more(stream, one, true);
    EXPECT_EQ(grpc_answer(client.wait(stream)).code, 0);
  }
  const std::vector<io::Json> all = entries_of(file);
  ASSERT_EQ(all.size(), 5U) << read_file(file);
  EXPECT_EQ(text_of(all[0], "protocol"), "gRPC");
  EXPECT_EQ(text_of(all[0], "path"), method);
  EXPECT_EQ(number_of(all[0], "grpc_status"), 0);
  EXPECT_EQ(text_of(all[0], "model"), "m");
  EXPECT_EQ(text_of(all[0], "request_id"), "mine");
  EXPECT_EQ(number_of(all[0], "bytes_in"), static_cast<double>(as_body(asked).size()));
  EXPECT_GT(number_of(all[0], "bytes_out"), 0);
  EXPECT_EQ(number_of(all[1], "grpc_status"), 5);
  EXPECT_EQ(text_of(all[2], "protocol"), "HTTP/2");
  EXPECT_EQ(number_of(all[3], "status"), 414);
  EXPECT_EQ(number_of(all[4], "bytes_in"), static_cast<double>(2 * as_body(asked).size()));
  EXPECT_EQ(text_of(all[4], "model"), "m");
  EXPECT_EQ(number_of(all[4], "grpc_status"), 0);
}

TEST(AccessLines, AreEscapedAndHaveTheFormatOfWebServers) {
  AccessEntry e{.at = 1795870632.25, .remote = "[::1]:5000", .protocol = "gRPC", .method = "POST"};
  e.path = "/ab";
  e.status = 404;
  e.bytes_out = 12;
  EXPECT_EQ(combined_line(e),
            "[::1] - - [28/Nov/2026:12:57:12 +0000] \"POST /ab HTTP/2\" 404 12 \"-\" \"-\"\n");
  EXPECT_TRUE(json_line(e).starts_with("{\"time\":\"2026-11-28T12:57:12.250Z\"")) << json_line(e);
  e.path = "/a\"b";
  EXPECT_EQ(text_of(io::parse_json(json_line(e), "a line"), "path"), "/a\"b");
  // What a client chose cannot end a line or a quoted text.
  const TempFolder t;
  const std::string file = t / "access";
  {
    AccessLog log({.path = file, .format = "combined"});
    HttpRequest r{.method = "GET", .path = "/x\"\n127.0.0.1 - -", .query = {}, .headers = {}};
    r.headers.emplace_back("user-agent", "a\" b\n\x1b");
    AccessRecord(r, log).answer({.status = 200}, true, false, 0);
  }
  const auto lines = lines_of(file);
  ASSERT_EQ(lines.size(), 1U);
  EXPECT_EQ(std::count(lines[0].begin(), lines[0].end(), '"'), 6) << lines[0];
  EXPECT_TRUE(has(lines[0], "\"GET /x\\x22\\x0a127.0.0.1 - - HTTP/1.1\"")) << lines[0];
  EXPECT_EQ(lines[0].find('\x1b'), std::string::npos);
}

TEST(AccessLines, AFullDiskCostsLinesAndNoAnswers) {
  if (access("/dev/full", W_OK) != 0) GTEST_SKIP() << "there is no /dev/full";
  const TempFolder t;
  put_model(t / "models/m.onnx", scale_model(1));
  Running server({.models = t / "models", .access_log = {.path = "/dev/full"}});
  const auto client = server.client();
  for (int i = 0; i < 20; ++i) EXPECT_EQ(client->post("/v2/models/m/infer", kAskBody).status, 200);
  const auto until = Clock::now() + std::chrono::seconds(20);
  while (!has(client->get("/metrics").body, "tandem_access_log_lost_total 2") &&
         Clock::now() < until)
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  EXPECT_TRUE(has(client->get("/metrics").body, "tandem_access_log_lost_total 2"));
}

TEST(AccessLines, APipeThatNobodyReadsHoldsNothingUp) {
  int ends[2];
  ASSERT_EQ(pipe(ends), 0);
  const auto begin = Clock::now();
  AccessLog log({.path = "/dev/fd/" + std::to_string(ends[1]), .most_waiting = 8000});
  const AccessEntry e{.remote = "r", .protocol = "p", .method = "m", .path = std::string(100, 'x')};
  for (int i = 0; i < 20000; ++i) log.add(e);
  EXPECT_LT(seconds_since(begin), 1);
  while (log.lost() == 0 && seconds_since(begin) < 20)
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  EXPECT_GT(log.lost(), 0U);
  close(ends[0]);
  close(ends[1]);
}

TEST(AccessLines, TheFileTurnsOverAndIsOpenedAgain) {
  const TempFolder t;
  const std::string file = t / "access", old = t / "access.1", moved = t / "moved";
  const AccessEntry e{.remote = "r", .protocol = "p", .method = "m", .path = "/x"};
  const auto line_comes = [&](AccessLog& log, const std::string& path, size_t lines) {
    log.add(e);
    const auto begin = Clock::now();
    const auto count = [&] { return std::filesystem::exists(path) ? lines_of(path).size() : 0; };
    while (count() != lines && seconds_since(begin) < 20)
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
    EXPECT_EQ(count(), lines) << path;
  };
  const auto size = static_cast<double>(json_line(e).size());
  AccessLog log({.path = file, .most_bytes = 2.5 * size});
  line_comes(log, file, 1);
  line_comes(log, file, 2);
  EXPECT_FALSE(std::filesystem::exists(old));
  line_comes(log, file, 1);
  EXPECT_EQ(lines_of(old).size(), 2U);
  std::filesystem::rename(file, moved);
  line_comes(log, moved, 2);
  log.reopen();
  line_comes(log, file, 1);
  EXPECT_EQ(log.lost(), 0U);
}

TEST(AccessLines, SettingsAreChecked) {
  const TempFolder t;
  const ServerOptions o = server_options(read_server_settings(
      "", {"models=m", "access_log=a", "access_log_format=combined", "access_log_mb=2"}));
  EXPECT_EQ(o.access_log.path, "a");
  EXPECT_EQ(o.access_log.format, "combined");
  EXPECT_EQ(o.access_log.most_bytes, 2 * 1048576);
  EXPECT_THROW(read_server_settings("", {"models=m", "access_log_format=xml"}), Error);
  EXPECT_THROW(AccessLog({.path = t / "none/access"}), Error);
  EXPECT_THROW(AccessLog({.path = t / "a", .format = "xml"}), Error);
}

}  // namespace
}  // namespace tandem::serve
