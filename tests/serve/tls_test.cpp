// SPDX-License-Identifier: Apache-2.0
// Encrypted connections: who trusts whom, both protocols, large bodies, files that cannot be used,
// new certificates while connections are open, and clients that break off.
#include <gtest/gtest.h>
#include <sys/socket.h>

#include <thread>

#include "tandem/base/files/file.h"
#include "tandem/serve/http2/client.h"
#include "tandem/serve/server_settings.h"
#include "tandem/serve/tls/stream_internal.h"
#include "tests/io/io_helper.h"
#include "tests/serve/certificate_helper.h"
#include "tests/serve/serve_helper.h"
#include "tests/support/errors.h"
#include "tests/support/init.h"

namespace tandem::serve {
namespace {

constexpr const char* kText = "an answer";

/// A server that gives bodies back, or kText.
class SafeEcho {
 public:
  explicit SafeEcho(HttpOptions options)
      : server_(std::move(options), [](const HttpExchangePtr& e) {
          e->answer({.body = e->request.body.empty() ? kText : e->request.body});
        }) {
    thread_ = std::thread([this] { server_.run(); });
  }
  ~SafeEcho() {
    server_.drain(0, 2);
    thread_.join();
  }
  HttpServer* operator->() { return &server_; }
  HttpUrl url(const std::string& host = "127.0.0.1") const {
    return HttpUrl("https://" + host + ":" + std::to_string(server_.port()));
  }

 private:
  HttpServer server_;
  std::thread thread_;
};

class Tls : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!tls_available()) GTEST_SKIP() << "libssl-dev is not installed";
    signer_ = make_certificate("signer");
    put("ca.pem", signer_.certificate);
    issue("server", "server");
    trust_.ca = t_ / "ca.pem";
    options_.tls = {.certificate = t_ / "server.pem", .key = t_ / "server.key"};
  }
  void put(const std::string& file, const std::string& text) { write_file(t_ / file, text); }
  void issue(const std::string& file, const std::string& name, bool expired = false) {
    const Certificate c = make_certificate(name, &signer_, expired);
    put(file + ".pem", c.certificate);
    put(file + ".key", c.key);
  }
  TempFolder t_;
  Certificate signer_;
  TlsTrust trust_;
  HttpOptions options_;
};

TEST_F(Tls, BothProtocolsAndLargeBodies) {
  SafeEcho server(options_);
  EXPECT_TRUE(server->url().starts_with("https://127.0.0.1:")) << server->url();
  std::string large(size_t{5} << 20, 'x');
  for (size_t i = 0; i < large.size(); i += 1000) large[i] = static_cast<char>('a' + i % 17);
  for (const char* host : {"127.0.0.1", "localhost"}) {
    HttpClient one(server.url(host), 20, trust_);
    EXPECT_EQ(one.get("/").body, kText);
    EXPECT_EQ(one.post("/", large).body, large);
    EXPECT_EQ(one.get("/").body, kText) << "the connection stays open";
    if (!Http2Frames::available()) continue;
    Http2Client two(server.url(host), 20, trust_);
    EXPECT_EQ(two.request("GET", "/").body, kText);
    EXPECT_EQ(two.request("POST", "/", large).body, large);
  }
  EXPECT_EQ(server->counts().refused, 0U);
}

TEST_F(Tls, ServersThatAreNotTrusted) {
  const auto says = [&](const HttpUrl& url, const TlsTrust& trust) {
    return thrown([&] { HttpClient(url, 20, trust).get("/"); });
  };
  {
    SafeEcho server(options_);
    EXPECT_NE(says(server.url(), {}).find("certificate verify failed"), std::string::npos);
    put("other.pem", make_certificate("another signer").certificate);
    EXPECT_NE(says(server.url(), {.ca = t_ / "other.pem"}).find("local issuer"), std::string::npos);
  }
  {
    // The certificate is one of 127.0.0.1 and localhost.
    HttpOptions other = options_;
    other.host = "127.0.0.2";
    SafeEcho server(other);
    EXPECT_NE(says(server.url("127.0.0.2"), trust_).find("IP address mismatch"), std::string::npos);
  }
  issue("server", "server", true);
  SafeEcho server(options_);
  EXPECT_NE(says(server.url(), trust_).find("certificate has expired"), std::string::npos);
}

TEST_F(Tls, ClientsShowCertificates) {
  issue("client", "client");
  options_.tls.client_ca = t_ / "ca.pem";
  SafeEcho server(options_);
  TlsTrust known = trust_;
  known.certificate = t_ / "client.pem";
  known.key = t_ / "client.key";
  EXPECT_EQ(HttpClient(server.url(), 20, known).get("/").body, kText);
  EXPECT_NE(thrown([&] { HttpClient(server.url(), 20, trust_).get("/"); }), "nothing was thrown");
  put("ca2.pem", make_certificate("another signer").certificate);
  const Certificate other = make_certificate("client");  // signed by itself
  put("client.pem", other.certificate);
  put("client.key", other.key);
  EXPECT_NE(thrown([&] { HttpClient(server.url(), 20, known).get("/"); }), "nothing was thrown");
  EXPECT_EQ(server->counts().requests, 1U);
}

TEST_F(Tls, FilesThatCannotBeUsed) {
  put("text", "this is not a certificate");
  issue("other", "other");
  struct Case {
    TlsFiles files;
    const char* want;
  };
  const Case cases[] = {
      {{.certificate = t_ / "none.pem"}, "cannot read the certificate"},
      {{.certificate = t_ / "text"}, "cannot be used as the certificate"},
      {{.certificate = t_ / "server.pem"}, "no private key that can be used"},
      {{.certificate = t_ / "server.pem", .key = t_ / "none.key"}, "cannot read the private key"},
      {{.certificate = t_ / "server.pem", .key = t_ / "other.key"}, "key values mismatch"},
      {{.certificate = t_ / "server.pem", .key = t_ / "server.key", .client_ca = t_ / "text"},
       "clients' signers"},
  };
  for (const Case& c : cases) {
    options_.tls = c.files;
    const std::string said = thrown([&] { HttpServer(options_, [](const HttpExchangePtr&) {}); });
    EXPECT_NE(said.find(c.want), std::string::npos) << said;
  }
  EXPECT_NE(thrown([&] {
              server_options(read_server_settings("", {"models=x", "key=y"}));
            }).find("no certificate"),
            std::string::npos);
}

TEST_F(Tls, WhatIsNoHandshakeIsRefused) {
  options_.header_seconds = 0.5;
  SafeEcho server(options_);
  HttpClient plain("127.0.0.1", server->port(), 20);
  const HttpResponse r = plain.get("/");
  EXPECT_EQ(r.status, 400);
  EXPECT_EQ(r.body, "use https here\n");
  HttpClient noise("127.0.0.1", server->port(), 20);
  noise.send(std::string(300, '\x17'));
  EXPECT_TRUE(noise.closed());
  // A handshake that never ends, whole or begun.
  HttpClient silent("127.0.0.1", server->port(), 20);
  EXPECT_TRUE(silent.closed());
  HttpClient begun("127.0.0.1", server->port(), 20);
  begun.send(std::string("\x16\x03\x01\x02\x00\x01\x00\x01", 8));
  EXPECT_TRUE(begun.closed());
  EXPECT_EQ(HttpClient(server.url(), 20, trust_).get("/").body, kText);
  EXPECT_EQ(server->counts().requests, 1U);
}

// Clients go away in the middle of an answer: the program lives, and others are served.
TEST_F(Tls, ClientsThatBreakOff) {
  SafeEcho server(options_);
  const std::string large(size_t{4} << 20, 'y');
  for (int i = 0; i < 8; ++i) {
    HttpClient c(server.url(), 20, trust_);
    c.send(request_text("POST", "/", "h", large, {}));
    linger now{.l_onoff = 1, .l_linger = 0};
    setsockopt(c.fd(), SOL_SOCKET, SO_LINGER, &now, sizeof now);
  }
  EXPECT_EQ(HttpClient(server.url(), 20, trust_).get("/").body, kText);
}

// New files count for new connections; open ones stay.
TEST_F(Tls, ReloadsCertificatesAndKeys) {
  const std::string first = "0123456789abcdef", second = "fedcba9876543210";
  put("keys", "infer " + first + "\n");
  put_model(t_ / "models/scale.onnx", scale_model(2));
  ServerOptions options = server_options(read_server_settings(
      "", {"models=" + (t_ / "models"), "port=0", "keys=" + (t_ / "keys"),
           "certificate=" + (t_ / "server.pem"), "key=" + (t_ / "server.key")}));
  Running server(std::move(options));
  const HttpUrl url(server->url());
  ASSERT_TRUE(url.secure);
  const auto status = [](HttpClient& c, const std::string& key) {
    return c.request("GET", "/v2/models/scale", "", {{"Authorization", "Bearer " + key}}).status;
  };
  HttpClient old(url, 20, trust_);
  EXPECT_EQ(status(old, first), 200);

  const TlsTrust before = trust_;
  signer_ = make_certificate("the next signer");
  put("ca2.pem", signer_.certificate);
  issue("server", "server");
  put("keys", "infer " + second + "\n");
  server->reload();
  const TlsTrust after{.ca = t_ / "ca2.pem"};
  for (int i = 0; i < 100 && status(old, second) != 200; ++i)
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  EXPECT_EQ(status(old, second), 200) << "the connection lives on";
  EXPECT_EQ(status(old, first), 401);
  HttpClient fresh(url, 20, after);
  EXPECT_EQ(status(fresh, second), 200);
  EXPECT_NE(thrown([&] { HttpClient(url, 20, before).get("/"); }), "nothing was thrown");

  put("server.pem", "broken");
  put("keys", "nonsense");
  server->reload();
  std::this_thread::sleep_for(std::chrono::milliseconds(100));
  HttpClient same(url, 20, after);
  EXPECT_EQ(status(same, second), 200) << "what was in use stays";
}

// Who asks clients for a certificate may be reached from other machines.
TEST_F(Tls, OtherMachinesNeedAKeyOrACertificate) {
  put_model(t_ / "models/scale.onnx", scale_model(2));
  std::vector<std::string> settings{"models=" + (t_ / "models"), "host=0.0.0.0", "port=0",
                                    "certificate=" + (t_ / "server.pem"),
                                    "key=" + (t_ / "server.key")};
  EXPECT_NE(thrown([&] {
              Server(server_options(read_server_settings("", settings)));
            }).find("--client-ca"),
            std::string::npos);
  settings.push_back("client_ca=" + (t_ / "ca.pem"));
  Server(server_options(read_server_settings("", settings)));
}

}  // namespace
}  // namespace tandem::serve
