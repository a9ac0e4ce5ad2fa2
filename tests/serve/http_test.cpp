// SPDX-License-Identifier: Apache-2.0
// HTTP/1.1: what is read, what is refused with which status, and that slow, greedy and vanishing
// clients cost the others nothing.
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <fstream>
#include <thread>

#include "tandem/base/error.h"
#include "tandem/serve/http/client.h"
#include "tandem/serve/http/parser.h"
#include "tandem/serve/http/server.h"

namespace tandem::serve {
namespace {

const std::string kHost = "Host: x\r\n";

// Feeds `bytes` in pieces of `step`; stops where the parser does.
HttpParser fed(const std::string& bytes, size_t step, const HttpLimits& limits = {}) {
  HttpParser p(limits);
  for (size_t at = 0; at < bytes.size() && !p.done() && !p.failed();) {
    const size_t n = std::min(step, bytes.size() - at);
    const size_t used = p.feed(std::string_view(bytes).substr(at, n));
    at += used;
    if (used < n) break;
  }
  return p;
}

struct Good {
  const char* name;
  std::string bytes;
  std::string path, body;
  bool keep_alive = true;
};

TEST(HttpParser, ReadsRequestsCutAnywhere) {
  const Good cases[] = {
      {"get", "GET /a/b?c=d HTTP/1.1\r\n" + kHost + "\r\n", "/a/b", ""},
      {"empty line before", "\r\nGET / HTTP/1.1\r\n" + kHost + "\r\n", "/", ""},
      {"length", "POST /x HTTP/1.1\r\n" + kHost + "Content-Length: 5\r\n\r\nhello", "/x", "hello"},
      {"zero", "POST /x HTTP/1.1\r\n" + kHost + "Content-Length: 0\r\n\r\n", "/x", ""},
      {"chunks",
       "POST /x HTTP/1.1\r\n" + kHost +
           "Transfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n6;ext=1\r\n world\r\n0\r\n"
           "Trailer: 1\r\n\r\n",
       "/x", "hello world"},
      {"close", "GET / HTTP/1.1\r\n" + kHost + "Connection: close\r\n\r\n", "/", "", false},
      {"1.0", "GET / HTTP/1.0\r\n\r\n", "/", "", false},
      {"1.0 kept", "GET / HTTP/1.0\r\nConnection: Keep-Alive\r\n\r\n", "/", "", true},
      {"for a proxy", "GET http://h:1/p HTTP/1.1\r\n" + kHost + "\r\n", "/p", ""},
      {"blanks", "GET / HTTP/1.1\r\nHost: \t x \t\r\nEmpty:\r\n\r\n", "/", ""},
  };
  for (const Good& g : cases)
    for (size_t step = 1; step < 9; ++step) {
      SCOPED_TRACE(std::string(g.name) + " by " + std::to_string(step));
      HttpParser p = fed(g.bytes, step == 8 ? g.bytes.size() : step);
      ASSERT_TRUE(p.done()) << p.reason();
      const HttpRequest r = p.take();
      EXPECT_EQ(r.path, g.path);
      EXPECT_EQ(r.body, g.body);
      EXPECT_EQ(r.keep_alive, g.keep_alive);
      EXPECT_TRUE(p.idle());
    }
}

struct Bad {
  const char* name;
  std::string bytes;
  int status;
};

// Rows 39, 40, 43, 44, 45 of the list of bad inputs, and more of their kind.
const std::vector<Bad>& bad_requests() {
  const std::string post = "POST / HTTP/1.1\r\n" + kHost, get = "GET / HTTP/1.1\r\n" + kHost;
  static const std::vector<Bad> all = {
      {"length 10^18", post + "Content-Length: 1000000000000000000\r\n\r\n", 413},
      {"length 10^30", post + "Content-Length: 1" + std::string(30, '0') + "\r\n\r\n", 413},
      {"length negative", post + "Content-Length: -1\r\n\r\n", 400},
      {"length +5", post + "Content-Length: +5\r\n\r\n", 400},
      {"length empty", post + "Content-Length:\r\n\r\n", 400},
      {"length listed", post + "Content-Length: 5, 5\r\n\r\n", 400},
      {"length hex", post + "Content-Length: 0x5\r\n\r\n", 400},
      {"two lengths", post + "Content-Length: 5\r\nContent-Length: 6\r\n\r\n", 400},
      {"two equal lengths", post + "Content-Length: 5\r\nContent-Length: 5\r\n\r\n", 400},
      {"length and chunks", post + "Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n", 400},
      {"coding twice", post + "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n",
       400},
      {"coding gzip, chunked", post + "Transfer-Encoding: gzip, chunked\r\n\r\n", 501},
      {"coding xchunked", post + "Transfer-Encoding: xchunked\r\n\r\n", 501},
      {"coding in 1.0", "POST / HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n", 400},
      {"chunk ffff", post + "Transfer-Encoding: chunked\r\n\r\nffffffffffffffff\r\n", 413},
      {"chunk of 17 digits", post + "Transfer-Encoding: chunked\r\n\r\n0ffffffffffffffff\r\n", 400},
      {"chunk not hex", post + "Transfer-Encoding: chunked\r\n\r\n5g\r\n", 400},
      {"chunk empty", post + "Transfer-Encoding: chunked\r\n\r\n\r\n", 400},
      {"chunk negative", post + "Transfer-Encoding: chunked\r\n\r\n-1\r\n", 400},
      {"chunk too long", post + "Transfer-Encoding: chunked\r\n\r\n2\r\nabc\r\n", 400},
      {"chunk extension", post + "Transfer-Encoding: chunked\r\n\r\n1;" + std::string(300, 'x'), 0},
      {"chunk extension, ended",
       post + "Transfer-Encoding: chunked\r\n\r\n1;" + std::string(300, 'x') + "\r\n", 400},
      {"folded", get + "A: b\r\n c\r\n\r\n", 400},
      {"NUL in a value", get + std::string("A: b\0c\r\n\r\n", 10), 400},
      {"CR in a value", get + "A: b\rc\r\n\r\n", 400},
      {"bare line feed", "GET / HTTP/1.1\n" + kHost + "\r\n", 400},
      {"bare line feed in headers", get + "A: b\n\r\n", 400},
      {"blank before colon", get + "A : b\r\n\r\n", 400},
      {"no colon", get + "A\r\n\r\n", 400},
      {"no name", get + ": b\r\n\r\n", 400},
      {"no host", "GET / HTTP/1.1\r\n\r\n", 400},
      {"two hosts", get + "Host: y\r\n\r\n", 400},
      {"0.9", "GET /\r\n", 505},
      {"3.7", "GET / HTTP/3.7\r\n", 505},
      {"preface of HTTP/2, broken", "PRI * HTTP/2.0\r\n\r\nGET", 505},
      {"no HTTP", "GET / FTP/1.1\r\n", 400},
      {"TLS", "\x16\x03\x01\x02\n", 400},
      {"method with blanks", "G@T / HTTP/1.1\r\n", 400},
      {"no target", "GET\r\n", 400},
      {"target without slash", "GET a HTTP/1.1\r\n", 400},
      {"target with a blank", "GET /a b HTTP/1.1\r\n", 400},
      {"escaped NUL", "GET /a%00 HTTP/1.1\r\n", 400},
      {"half an escape", "GET /a%2 HTTP/1.1\r\n", 400},
      {"expected tea", post + "Expect: tea\r\nContent-Length: 1\r\n\r\n", 417},
      {"long target", "GET /" + std::string(9000, 'a') + " HTTP/1.1\r\n", 414},
      {"endless target", "GET /" + std::string(40000, 'a'), 414},
      {"long header", get + "A: " + std::string(40000, 'a') + "\r\n", 431},
      {"endless header", get + "A: " + std::string(1 << 20, 'a'), 431},
  };
  return all;
}

TEST(HttpParser, RefusesWithTheStatedStatus) {
  std::vector<Bad> cases = bad_requests();
  std::string many = "GET / HTTP/1.1\r\n" + kHost;
  for (int i = 0; i < 10000; ++i) many += "A: b\r\n";
  cases.push_back({"10^4 headers", many, 431});
  for (const Bad& b : cases)
    for (const size_t step : {b.bytes.size(), size_t{1}, size_t{7}}) {
      const HttpParser p = fed(b.bytes, step);
      EXPECT_EQ(p.failed() ? p.status() : 0, b.status) << b.name << ": " << p.reason();
      EXPECT_EQ(p.reason().find('\n'), std::string::npos);
    }
}

TEST(HttpParser, ChunksAreCounted) {
  std::string bytes = "POST / HTTP/1.1\r\n" + kHost + "Transfer-Encoding: chunked\r\n\r\n";
  for (int i = 0; i < 70000; ++i) bytes += "1\r\nx\r\n";
  EXPECT_EQ(fed(bytes, 4096).status(), 413);
  const HttpLimits small{.body_bytes = 10};
  EXPECT_EQ(fed(bytes, 4096, small).status(), 413);
}

TEST(HttpMessage, PathsDigitsListsAndLogs) {
  using Path = std::vector<std::string>;
  EXPECT_EQ(path_segments("/v2/a%20b/"), (Path{"v2", "a b"}));
  EXPECT_EQ(path_segments("/a%2fb/%2e%2e/"), (Path{"a/b", ".."}));
  EXPECT_EQ(path_segments("/"), Path{});
  for (const char* bad : {"", "a", "/%", "/%0", "/%zz", "/%00"}) EXPECT_FALSE(path_segments(bad));
  EXPECT_EQ(parse_digits("65535", 65535), 65535u);
  EXPECT_EQ(parse_digits("18446744073709551615", UINT64_MAX), UINT64_MAX);
  for (const char* bad : {"", "65536", "-1", "1e3", " 1", "18446744073709551616"})
    EXPECT_FALSE(parse_digits(bad, 65535)) << bad;
  EXPECT_TRUE(list_holds("br, GZip;q=0.5", "gzip"));
  EXPECT_FALSE(list_holds("gzip;q=0.0, br", "gzip"));
  EXPECT_EQ(one_line("a\r\n\x1b[1m\"", 5), "a\\x0d\\x0a\\x1b[...");
}

// ---- over sockets

class HttpServing : public ::testing::Test {
 protected:
  void start(HttpOptions o = {}) {
    server_ = std::make_unique<HttpServer>(std::move(o), [this](const HttpExchangePtr& e) {
      if (e->request.path == "/later") {
        const std::lock_guard hold(lock_);
        kept_.push_back(e);
      } else if (e->request.path == "/big") {
        e->answer({.body = std::string(size_t{16} << 20, 'b')});
      } else if (e->request.path == "/throws") {
        throw std::runtime_error("no");
      } else if (e->request.path != "/never") {
        e->answer({.content_type = "text/plain", .body = e->request.body + e->request.path});
      }
    });
    thread_ = std::thread([this] { server_->run(); });
  }
  void TearDown() override {
    if (!server_) return;
    kept_.clear();
    server_->drain(0, 0);
    if (thread_.joinable()) thread_.join();
  }
  std::unique_ptr<HttpClient> client(double seconds = 10) {
    return std::make_unique<HttpClient>("127.0.0.1", server_->port(), seconds);
  }
  void expect_healthy() { EXPECT_EQ(client()->post("/ok", "1").body, "1/ok"); }
  size_t kept() {
    const std::lock_guard hold(lock_);
    return kept_.size();
  }
  // Until a condition holds: what other threads do is soon done.
  template <class F>
  static bool soon(F f) {
    for (int i = 0; i < 2000; ++i) {
      if (f()) return true;
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
    }
    return false;
  }
  std::unique_ptr<HttpServer> server_;
  std::thread thread_;
  std::mutex lock_;
  std::vector<HttpExchangePtr> kept_;
};

TEST_F(HttpServing, AnswersKeepTheirOrder) {
  start();
  const auto c = client();
  std::string all;
  for (int i = 0; i < 100; ++i) all += request_text("POST", "/" + std::to_string(i), "h", "b", {});
  c->send(all);
  for (int i = 0; i < 100; ++i) ASSERT_EQ(c->receive().body, "b/" + std::to_string(i));
  // One that is answered from another thread holds the next ones back.
  c->send(request_text("GET", "/later", "h", "", {}) + request_text("GET", "/next", "h", "", {}));
  ASSERT_TRUE(soon([&] { return kept() == 1; }));
  std::thread([&] { kept_[0]->answer({.body = "late"}); }).join();
  EXPECT_EQ(c->receive().body, "late");
  EXPECT_EQ(c->receive().body, "/next");
  // A large answer, and those after it.
  c->send(request_text("GET", "/big", "h", "", {}) + request_text("GET", "/small", "h", "", {}) +
          request_text("GET", "/big", "h", "", {}));
  EXPECT_EQ(c->receive().body, std::string(size_t{16} << 20, 'b'));
  EXPECT_EQ(c->receive().body, "/small");
  EXPECT_EQ(c->receive().body.size(), size_t{16} << 20);
  EXPECT_EQ(c->request("HEAD", "/head").body, "");
  EXPECT_EQ(c->get("/throws").status, 500);
  EXPECT_EQ(c->get("/after").body, "/after");
  c->send("GET /old HTTP/1.0\r\n\r\n");
  EXPECT_EQ(c->receive().body, "/old");
  EXPECT_TRUE(c->closed());
}

TEST_F(HttpServing, LargeBodiesAndExpectations) {
  start({.limits = {.body_bytes = size_t{1} << 20}, .inline_bytes = 1000});
  const std::string large(500000, 'x');
  EXPECT_EQ(client()->post("/", large).body, large + "/");
  const auto c = client();
  c->send("POST /e HTTP/1.1\r\nHost: h\r\nExpect: 100-continue\r\nContent-Length: 2\r\n\r\n");
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  std::string early(25, '\0');
  ASSERT_EQ(recv(c->fd(), early.data(), early.size(), MSG_WAITALL), 25);
  EXPECT_EQ(early, "HTTP/1.1 100 Continue\r\n\r\n");
  c->send("ok");
  EXPECT_EQ(c->receive().body, "ok/e");
  // Refused before the body is sent.
  c->send("POST /e HTTP/1.1\r\nHost: h\r\nExpect: 100-continue\r\nContent-Length: 2000000\r\n\r\n");
  EXPECT_EQ(c->receive().status, 413);
  EXPECT_TRUE(c->closed());
}

TEST_F(HttpServing, BadRequestsCloseAloneAndAreAnswered) {
  start();
  for (const Bad& b : bad_requests()) {
    if (b.status == 0) continue;
    const auto c = client();
    c->send(b.bytes);
    const HttpResponse r = c->receive();
    EXPECT_EQ(r.status, b.status) << b.name;
    EXPECT_TRUE(r.close) << b.name;
  }
  expect_healthy();
  EXPECT_GE(server_->counts().refused, bad_requests().size() - 1);
}

TEST_F(HttpServing, SlowClientsAreAnsweredAndClosed) {
  start({.header_seconds = 0.3,
         .idle_seconds = 0.3,
         .rate_bytes = 1000,
         .rate_seconds = 0.3,
         .linger_seconds = 0.1});
  const auto silent = client(), headers = client(), body = client(), reader = client();
  headers->send("GET / HTTP/1.1\r\nHost");
  body->send("POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 100\r\n\r\nx");
  reader->send(request_text("GET", "/big", "h", "", {}));
  EXPECT_EQ(headers->receive().status, 408);
  EXPECT_EQ(body->receive().status, 408);
  EXPECT_TRUE(silent->closed());
  EXPECT_TRUE(soon([&] { return server_->counts().dropped == 1; }));  // it does not read
  expect_healthy();
  EXPECT_TRUE(soon([&] { return server_->counts().open == 0; }));
}

TEST_F(HttpServing, ManyIdleConnectionsMakeRoom) {
  start({.connections = 8});
  std::vector<std::unique_ptr<HttpClient>> all;
  for (int i = 0; i < 40; ++i) {
    all.push_back(client());
    all.back()->send("GET /slow HTTP/1.1\r\n");
  }
  expect_healthy();
  EXPECT_LE(server_->counts().open, 8u);
}

TEST_F(HttpServing, ClientsThatLeaveAreNoticed) {
  start();
  {
    const auto c = client();
    c->send(request_text("GET", "/later", "h", "", {}));
    ASSERT_TRUE(soon([&] { return kept() == 1; }));
    EXPECT_FALSE(kept_[0]->gone());
  }
  EXPECT_TRUE(soon([&] { return kept_[0]->gone(); }));
  kept_[0]->answer({.body = "nobody reads this"});
  {  // in the middle of a chunk
    const auto c = client();
    c->send("POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nab");
  }
  expect_healthy();
  EXPECT_TRUE(soon([&] { return server_->counts().open == 0; }));
  EXPECT_EQ(client()->get("/never").status, 500);  // a handler that forgets
}

// Pieces longer apart than the whole may take, in the three ways that HTTP/1 ends a body.
TEST_F(HttpServing, AnswersInPieces) {
  start({.answer_seconds = 0.5});
  const auto begin = [&](HttpClient& c, const std::string& request) {
    c.send(request);
    EXPECT_TRUE(soon([&] { return kept() == 1; }));
    const std::lock_guard hold(lock_);
    HttpExchangePtr e = std::move(kept_[0]);
    kept_.clear();
    return e;
  };
  const auto write_all = [](const HttpExchangePtr& e) {
    e->write({.content_type = "text/x", .headers = {{"X-A", "1"}}, .body = "one "});
    for (int i = 0; i < 4; ++i) {
      std::this_thread::sleep_for(std::chrono::milliseconds(300));
      e->write({.body = "more "});
    }
    e->answer({.body = "last"});
    e->write({.body = "too late"});
  };
  const std::string ask = request_text("GET", "/later", "h", "", {});
  const auto c = client();
  write_all(begin(*c, ask));
  const HttpResponse r = c->receive();
  EXPECT_EQ(r.status, 200);
  EXPECT_EQ(r.content_type, "text/x");
  EXPECT_EQ(r.body, "one more more more more last");
  EXPECT_EQ(c->post("/ok", "1").body, "1/ok") << "the connection stays open";
  const auto old = client();
  write_all(begin(*old, "GET /later HTTP/1.0\r\n\r\n"));
  std::string all(4096, '\0');
  size_t n = 0;
  for (ssize_t got = 1; got > 0; n += static_cast<size_t>(std::max<ssize_t>(got, 0)))
    got = recv(old->fd(), all.data() + n, all.size() - n, 0);
  EXPECT_TRUE(all.substr(0, n).ends_with("\r\n\r\none more more more more last"));
  // One that breaks off, or stops coming, is never taken for the whole.
  begin(*c, ask)->write({.body = "one "});
  EXPECT_THROW(c->receive(), Error);
  const auto slow = client();
  const HttpExchangePtr stalled = begin(*slow, ask);
  stalled->write({.body = "one "});
  EXPECT_THROW(slow->receive(), Error);
  EXPECT_TRUE(stalled->gone());
  expect_healthy();
}

TEST_F(HttpServing, AnswersOfABatchGoTogether) {
  start();
  std::vector<std::unique_ptr<HttpClient>> clients;
  for (size_t i = 0; i < 4; ++i) {
    clients.push_back(client());
    clients[i]->send(request_text("GET", "/later", "h", "", {}));
    ASSERT_TRUE(soon([&] { return kept() == i + 1; }));
  }
  const auto anything = [&] {
    std::vector<pollfd> all;
    for (const auto& c : clients) all.push_back({c->fd(), POLLIN, 0});
    return poll(all.data(), all.size(), 50) > 0;
  };
  std::thread([&] {
    const AnswersTogether together;
    {
      const AnswersTogether inner;
      for (size_t i = 0; i < 2; ++i) kept_[i]->answer({.body = std::to_string(i)});
    }
    kept_[2]->write({.body = "in "});
    kept_[2]->write({.body = "pieces "});
    kept_[2]->answer({.body = "2"});
    clients[3].reset();  // its answer finds nobody
    kept_[3]->answer({.body = "3"});
    clients.pop_back();
    EXPECT_FALSE(anything()) << "the outer one holds them";
  }).join();
  EXPECT_EQ(clients[0]->receive().body, "0");
  EXPECT_EQ(clients[1]->receive().body, "1");
  EXPECT_EQ(clients[2]->receive().body, "in pieces 2");
  EXPECT_EQ(clients[0]->post("/ok", "1").body, "1/ok");
  kept_.clear();
  expect_healthy();
}

size_t resident_pages() {
  std::ifstream file("/proc/self/statm");
  size_t total = 0, resident = 0;
  file >> total >> resident;
  return resident;
}

TEST_F(HttpServing, FloodsOfChunksTakeNoMemory) {
  start({.limits = {.chunks = size_t{1} << 30}});
  std::string piece;
  for (int i = 0; i < 10000; ++i) piece += "1\r\nx\r\n";
  const size_t before = resident_pages();
  const auto c = client();
  c->send("POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n");
  for (int i = 0; i < 100; ++i) c->send(piece);
  c->send("0\r\n\r\n");
  EXPECT_EQ(c->receive().body.size(), 1000001u);
  EXPECT_LT(resident_pages(), before + 4096);  // 16 MiB
}

// A length alone holds nothing of what all requests may hold together.
TEST_F(HttpServing, LengthsAloneTakeNothingFromOthers) {
  start({.limits = {.body_bytes = size_t{8} << 20}, .bytes_in_flight = size_t{8} << 20});
  std::vector<std::unique_ptr<HttpClient>> waiting;
  for (int i = 0; i < 20; ++i) {
    waiting.push_back(client());
    waiting.back()->send("POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 8000000\r\n\r\nabc");
  }
  const auto c = client();
  c->send("POST /x HTTP/1.1\r\nHost: h\r\nContent-Length: 100000\r\n\r\n");
  c->send(std::string(50000, 'a'));
  std::this_thread::sleep_for(std::chrono::milliseconds(50));
  c->send(std::string(50000, 'a'));
  EXPECT_EQ(c->receive().body.size(), 100002u);
}

TEST_F(HttpServing, DrainsWithoutLosingAnAnswer) {
  start({.linger_seconds = 0.1});
  const auto busy = client(), idle = client();
  EXPECT_EQ(idle->get("/a").status, 200);
  busy->send(request_text("GET", "/later", "h", "", {}));
  ASSERT_TRUE(soon([&] { return kept() == 1; }));
  server_->drain(0.2, 10);
  const HttpResponse during = client()->get("/b");  // still accepted, for the delay
  EXPECT_EQ(during.body, "/b");
  EXPECT_TRUE(during.close);
  EXPECT_TRUE(idle->closed());
  EXPECT_TRUE(server_->draining());
  kept_[0]->answer({.body = "done"});
  EXPECT_EQ(busy->receive().body, "done");
  thread_.join();
  EXPECT_THROW(client(), Error);
}

// What was sent before the end is answered, whether the server has accepted and read it or not.
TEST_F(HttpServing, DrainsWithoutClosingWhatIsUnread) {
  start({.linger_seconds = 0.1});
  std::vector<std::unique_ptr<HttpClient>> clients;
  for (int i = 0; i < 40; ++i) {
    clients.push_back(client());
    clients.back()->send(request_text("GET", "/a", "h", "", {}));
  }
  server_->drain(0, 10);
  for (const auto& c : clients) EXPECT_EQ(c->receive().body, "/a");
  thread_.join();
}

TEST(HttpServer, AddressesThatCannotBeHad) {
  const auto handler = [](const HttpExchangePtr& e) { e->answer({}); };
  HttpServer first({}, handler);
  EXPECT_THROW(HttpServer({.port = first.port()}, handler), Error);
  EXPECT_THROW(HttpServer({.host = "nowhere.invalid"}, handler), Error);
  for (const char* bad : {"ftp://x", "http://", "http://h:0", "http://h:99999", "http://[::1"})
    EXPECT_THROW(HttpUrl{bad}, Error) << bad;
  EXPECT_EQ(HttpUrl("https://h").port, 443);
  EXPECT_EQ(HttpUrl("http://[::1]:80/a").host, "::1");
  EXPECT_EQ(HttpUrl("http://h").path, "/");
}

}  // namespace
}  // namespace tandem::serve
