// SPDX-License-Identifier: Apache-2.0
// HTTP/2 beside HTTP/1.1 on one port: what clients do rightly, slowly and with ill will.
#include <gtest/gtest.h>

#include "tests/io/io_helper.h"
#include "tests/serve/grpc_helper.h"
#include "tests/serve/http2_helper.h"
#include "tests/support/init.h"

namespace tandem::serve {
namespace {

using namespace wire;

class Http2 : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!Http2Frames::available()) GTEST_SKIP() << "this build has no HTTP/2";
  }
};

TEST_F(Http2, AnswersInPieces) {
  EchoServer server({});
  Http2Client client("127.0.0.1", server->port());
  EXPECT_EQ(client.request("GET", "/pieces").body, "one two three");
  const int32_t broken = client.start("GET", "/breaks", "", {});
  while (!client.done(broken) && client.step()) {}
  EXPECT_EQ(client.code(broken), Http2Code::internal_error);
  server.expect_healthy();
}

TEST_F(Http2, AnswersAsHttp1Does) {
  EchoServer server({});
  Http2Client client("127.0.0.1", server->port());
  HttpResponse r = client.request("GET", "/a%20b?x=1");
  EXPECT_EQ(r.status, 200);
  EXPECT_EQ(r.body, "GET x=1 ");
  EXPECT_EQ(r.content_type, "text/plain");
  EXPECT_EQ(trailer_of(r, "x-path"), "/a%20b");
  EXPECT_EQ(trailer_of(r, "connection"), "");
  EXPECT_EQ(trailer_of(r, "content-length"), "8");
  EXPECT_EQ(client.request("HEAD", "/").body, "");
  const std::string large(3000000, 'z');
  EXPECT_EQ(client.request("POST", "/", large).body, "POST  " + large);
  HttpClient old("127.0.0.1", server->port());
  EXPECT_EQ(old.post("/b", "y").body, "POST  y");
  EXPECT_EQ(old.request("PUT", "/b", "y").body, "PUT  y");
  EXPECT_EQ(server->counts().refused, 0U);
}

TEST_F(Http2, StreamsOfOneConnectionRunTogether) {
  EchoServer server({});
  Http2Client client("127.0.0.1", server->port());
  std::vector<int32_t> ids;
  for (int i = 0; i < 100; ++i) ids.push_back(client.start("POST", "/", "", {}, true));
  for (int i = 99; i >= 0; --i) client.more(ids[static_cast<size_t>(i)], std::to_string(i), true);
  for (int i = 0; i < 100; ++i)
    EXPECT_EQ(client.wait(ids[static_cast<size_t>(i)]).body, "POST  " + std::to_string(i));
}

TEST_F(Http2, ThePrefaceMayComeInPieces) {
  EchoServer server({});
  const std::string request =
      kOpening + frame(kHeaders, kEndHeaders | kEndStream, 1, head_block("/"));
  HttpClient client("127.0.0.1", server->port(), 2);
  for (const char c : request) client.send(std::string(1, c));
  std::string got(4096, '\0');
  size_t n = 0;
  while (n < got.size() && got.find("POST") == std::string::npos) {
    const ssize_t more = recv(client.fd(), got.data() + n, got.size() - n, 0);
    ASSERT_GT(more, 0);
    n += static_cast<size_t>(more);
  }
  // What begins like it and is not stays HTTP/1.1.
  EXPECT_TRUE(server.talk("PRI * HTTP/2.0\r\n\r\nSX\r\n\r\n").starts_with("HTTP/1.1 505"));
  EXPECT_TRUE(server.talk("PRI /x HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n")
                  .starts_with("HTTP/1.1 200"));
}

TEST_F(Http2, LimitsHaveTheirStatus) {
  EchoServer server({.limits = {.body_bytes = 1000}});
  Http2Client client("127.0.0.1", server->port());
  EXPECT_EQ(client.request("POST", "/", std::string(1001, 'a')).status, 413);
  EXPECT_EQ(client.request("POST", "/", std::string(100000, 'a')).status, 413);
  EXPECT_EQ(client.request("GET", "/", "", {{"a", std::string(40000, 'a')}}).status, 431);
  HttpHeaders many;
  for (int i = 0; i < 200; ++i) many.emplace_back("n" + std::to_string(i), "v");
  EXPECT_EQ(client.request("GET", "/", "", many).status, 431);
  EXPECT_EQ(client.request("GET", "/" + std::string(9000, 'a')).status, 414);
  EXPECT_EQ(client.request("POST", "/", std::string(1000, 'a')).status, 200);
  server.expect_healthy();
}

struct Flood {
  const char* name;
  std::string bytes;
  int code;  ///< of the GOAWAY that is wanted
};

std::string times(int n, const std::string& s) {
  std::string out;
  for (int i = 0; i < n; ++i) out += s;
  return out;
}

std::string rapid_reset(uint32_t n) {
  std::string out;
  for (uint32_t i = 0; i < n; ++i)
    out += frame(kHeaders, kEndHeaders, 2 * i + 1, head_block("/")) +
           frame(kReset, 0, 2 * i + 1, std::string("\0\0\0\x8", 4));
  return out;
}

// Row 47.
TEST_F(Http2, FloodsAndBrokenFramesEndTheConnection) {
  EchoServer server({});
  const std::string block = head_block("/");
  const std::string open = frame(kHeaders, kEndHeaders, 1, block);
  // One header of 4 kB in the table, and thousands of references to it.
  std::string bomb = block +
                     "\x40\x01"
                     "a\x7f\xa1\x1e" +
                     std::string(4000, 'b');
  bomb += std::string(12000, '\xbe');
  const Flood floods[] = {
      {"rapid reset", rapid_reset(2000), 11},
      {"PING", times(6000, frame(kPing, 0, 0, "12345678")), 11},
      {"SETTINGS", times(6000, frame(kSettings, 0, 0, "")), 11},
      {"WINDOW_UPDATE", times(6000, frame(kWindow, 0, 0, std::string("\0\0\0\1", 4))), 11},
      {"PRIORITY", times(6000, frame(kPriority, 0, 1, std::string("\0\0\0\0\1", 5))), 11},
      {"empty DATA", open + times(6000, frame(kData, 0, 1, "")), 11},
      {"HPACK bomb", frame(kHeaders, kEndHeaders | kEndStream, 1, bomb), 11},
      {"CONTINUATION", frame(kHeaders, 0, 1, block) + times(100, frame(kContinuation, 0, 1, "")),
       -2},
      {"window overflow", open + frame(kWindow, 0, 0, "\x7f\xff\xff\xff"), 3},
      {"even stream", frame(kHeaders, kEndHeaders, 2, block), 1},
      {"DATA without stream", frame(kData, 0, 5, "x"), 1},
      {"huge frame", frame(kData, 0, 1, "").replace(0, 3, "\xff\xff\xff"), 6},
      {"broken HPACK", frame(kHeaders, kEndHeaders, 1, "\xff\xff\xff\xff\xff"), 9},
      {"no SETTINGS", "", 1},
  };
  for (const Flood& f : floods) {
    const bool bare = std::string_view(f.name) == "no SETTINGS";
    const std::string got = server.talk(
        bare ? std::string(kHttp2Preface) + frame(kPing, 0, 0, "12345678") : kOpening + f.bytes);
    if (f.code == -2)
      EXPECT_GT(goaway_code(got), 0) << f.name;
    else
      EXPECT_EQ(goaway_code(got), f.code) << f.name;
    server.expect_healthy();
  }
}

TEST_F(Http2, SlowClientsAreRefused) {
  EchoServer server({.header_seconds = 0.3, .rate_bytes = 1000, .rate_seconds = 0.3});
  Http2Client body("127.0.0.1", server->port());
  EXPECT_EQ(body.wait(body.start("POST", "/", "a", {}, true)).status, 408);
  // A head without its end, and a client that never makes room for the answer.
  EXPECT_EQ(goaway_code(server.talk(kOpening + frame(kHeaders, 0, 1, head_block("/")))), 11);
  Http2Client stuck("127.0.0.1", server->port(), 10, {.window = 10});
  const int32_t id = stuck.start("POST", "/", std::string(100000, 'a'), {}, true);
  stuck.more(id, "", true);
  server.expect_healthy();
  // A part of the preface alone.
  HttpClient part("127.0.0.1", server->port(), 10);
  part.send("PRI * HTTP");
  EXPECT_TRUE(part.closed());
}

TEST_F(Http2, ZeroWindowIsNotWaitedFor) {
  EchoServer server({.rate_bytes = 1000, .rate_seconds = 0.3});
  const std::string no_window("\0\4\0\0\0\0", 6);
  const std::string asked = std::string(kHttp2Preface) + frame(kSettings, 0, 0, no_window) +
                            frame(kHeaders, kEndHeaders | kEndStream, 1, head_block("/"));
  const std::string got = server.talk(asked, 2);
  bool reset = false;
  for (std::string_view rest = got; rest.size() >= 9;) {
    size_t length = 0;
    for (size_t i = 0; i < 3; ++i) length = length << 8 | static_cast<unsigned char>(rest[i]);
    reset = reset || rest[3] == kReset;
    rest.remove_prefix(std::min(rest.size(), 9 + length));
  }
  EXPECT_TRUE(reset);
  EXPECT_GE(server->counts().dropped, 1U);
  server.expect_healthy();
}

// A client that takes no answers does not get all of them into the server's memory.
TEST_F(Http2, AnswersThatNobodyTakesHaveALimit) {
  EchoServer server({.bytes_in_flight = size_t{4} << 20});
  const std::string no_window("\0\4\0\0\0\0", 6);
  constexpr int kStreams = 40;
  std::string asked = std::string(kHttp2Preface) + frame(kSettings, 0, 0, no_window);
  for (uint32_t i = 0; i < kStreams; ++i)
    asked += frame(kHeaders, kEndHeaders | kEndStream, 2 * i + 1, head_block("/large"));
  const std::string got = server.talk(asked, 1);
  int reset = 0, heads = 0;
  for (std::string_view rest = got; rest.size() >= 9;) {
    size_t length = 0;
    for (size_t i = 0; i < 3; ++i) length = length << 8 | static_cast<unsigned char>(rest[i]);
    reset += rest[3] == kReset;
    heads += rest[3] == kHeaders;
    rest.remove_prefix(std::min(rest.size(), 9 + length));
  }
  EXPECT_GE(heads, 4);  // a quarter of 4 MiB, and the answer that goes beyond it
  EXPECT_LE(heads, 5);
  EXPECT_GE(reset, kStreams - 5);
  server.expect_healthy();
}

TEST_F(Http2, DrainFinishesWhatRuns) {
  auto server = std::make_unique<EchoServer>(HttpOptions{});
  Http2Client client("127.0.0.1", (*server)->port(), 10);
  const int32_t open = client.start("POST", "/", "a", {}, true);
  EXPECT_EQ(client.request("GET", "/").status, 200);
  (*server)->drain(0, 10);
  while (!client.said_goaway()) ASSERT_TRUE(client.step());
  client.more(open, "b", true);
  EXPECT_EQ(client.wait(open).body, "POST  ab");
  while (client.step()) {}
  server.reset();
}

// Streaming calls may stay silent for long; when connections run out, they make room.
TEST_F(Http2, SilentStreamsMakeRoom) {
  EchoServer server(
      {.connections = 4, .streamed = [](const HttpRequest& r) { return r.path == "/stream"; }});
  std::vector<std::unique_ptr<Http2Client>> silent;
  for (int i = 0; i < 4; ++i) {
    silent.push_back(std::make_unique<Http2Client>("127.0.0.1", server->port(), 5));
    silent.back()->start("POST", "/stream", "", {}, true);
    ASSERT_TRUE(silent.back()->step());
  }
  server.expect_healthy();
  EXPECT_GE(server->counts().dropped, 1U);
}

TEST(WithoutHttp2, TheServerSaysSo) {
  if (Http2Frames::available()) GTEST_SKIP() << "this build has HTTP/2";
  EchoServer server({});
  EXPECT_TRUE(has(server.talk(kOpening), "built without HTTP/2"));
}

}  // namespace
}  // namespace tandem::serve
