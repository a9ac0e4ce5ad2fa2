// SPDX-License-Identifier: Apache-2.0
// Load tests: requests without an answer are counted, answers are read however they come, each
// protocol's requests are answered, and sweeps find the rate that a bound allows.
#include "tandem/serve/load_test.h"

#include <gtest/gtest.h>

#include <future>
#include <mutex>
#include <set>

#include "tandem/io/json.h"
#include "tandem/serve/http2/frames.h"
#include "tandem/serve/load/wire_internal.h"
#include "tests/io/io_helper.h"
#include "tests/serve/serve_helper.h"
#include "tests/serve/text_helper.h"
#include "tests/support/init.h"

namespace tandem::serve {
namespace {

/// A server whose handler a test gives.
class Handled {
 public:
  explicit Handled(HttpHandler handler, HttpOptions options = {})
      : server_(std::move(options), std::move(handler)), thread_([this] { server_.run(); }) {}
  ~Handled() {
    server_.drain(0, 0);
    thread_.join();
  }
  std::string url() const { return server_.url(); }

 private:
  HttpServer server_;
  std::thread thread_;
};

/// Answers the first requests and then none, but keeps their connections.
class Hanging {
 public:
  explicit Hanging(int answers)
      : left_(answers), server_([this](const HttpExchangePtr& e) {
          const std::lock_guard hold(lock_);
          if (left_-- > 0)
            e->answer({.body = "{}"});
          else
            kept_.push_back(e);
        }) {}
  std::string url() const { return server_.url(); }

 private:
  std::mutex lock_;
  int left_;
  std::vector<HttpExchangePtr> kept_;
  Handled server_;
};

TEST(LoadTest, RequestsWithoutAnAnswerCount) {
  struct Case {
    const char* name;
    bool http2;
    int connections, streams;
    double rate;
    int answers;
    uint64_t ok, unanswered;
  };
  // In the open loop 100 requests are due; with 2 connections 2 of them are sent and not answered,
  // and all others wait to be sent.
  const Case cases[] = {
      {"open", false, 2, 1, 400, 30, 30, 70},         {"open, none", false, 2, 1, 400, 0, 0, 100},
      {"open, many", false, 200, 1, 400, 30, 30, 70}, {"closed", false, 3, 1, 0, 20, 20, 3},
      {"open, HTTP/2", true, 1, 4, 400, 30, 30, 70},  {"closed, HTTP/2", true, 2, 3, 0, 20, 20, 6},
  };
  for (const Case& c : cases) {
    if (c.http2 && !Http2Frames::available()) continue;
    SCOPED_TRACE(c.name);
    const Hanging server(c.answers);
    LoadReport r;
    run_load({.url = server.url(),
              .connections = c.connections,
              .streams = c.streams,
              .http2 = c.http2,
              .rate = c.rate,
              .seconds = 0.25,
              .warm_seconds = 0,
              .patience = 0.2},
             {}, r);
    EXPECT_EQ(r.ok, c.ok);
    EXPECT_EQ(r.unanswered, c.unanswered);
    EXPECT_EQ(r.other + r.broken, 0U);
    EXPECT_FALSE(r.good());
    EXPECT_EQ(r.latency.count(), c.ok + c.unanswered);
    // The last one that was due waited for as long as the patience, the first for all of the time.
    EXPECT_GE(r.latency.quantile(1), 0.2);
    if (c.rate > 0) {
      EXPECT_GE(r.latency.quantile(0.5), 0.19);
    }
    EXPECT_TRUE(has(r.json(), fmt::format("\"unanswered\":{},", c.unanswered))) << r.json();
    EXPECT_TRUE(has(r.text(), fmt::format("{} without an answer", c.unanswered))) << r.text();
  }
}

// What comes after the end still belongs to the requests that were due before it.
TEST(LoadTest, AnswersMayComeAfterTheEnd) {
  std::mutex lock;
  std::vector<HttpExchangePtr> kept;
  std::promise<void> first;
  const Handled server([&, asked = false](const HttpExchangePtr& e) mutable {
    const std::lock_guard hold(lock);
    kept.push_back(e);
    if (!std::exchange(asked, true)) first.set_value();
  });
  std::atomic<bool> ended{false};
  std::thread later([&] {
    first.get_future().wait();
    std::this_thread::sleep_for(std::chrono::milliseconds(400));
    while (!ended) {
      const std::lock_guard hold(lock);
      for (const HttpExchangePtr& e : kept) e->answer({.body = "{}"});
      kept.clear();
      std::this_thread::yield();
    }
  });
  LoadReport r;
  run_load({.url = server.url(),
            .connections = 2,
            .rate = 100,
            .seconds = 0.2,
            .warm_seconds = 0,
            .patience = 20},
           {}, r);
  ended = true;
  later.join();
  EXPECT_EQ(r.ok, 20U);
  EXPECT_EQ(r.in_time, 0U);
  EXPECT_EQ(r.rate(), 0);
  EXPECT_TRUE(r.good());
  EXPECT_GE(r.latency.quantile(0), 0.15);
}

TEST(LoadTest, OtherAnswersAndBrokenConnectionsCount) {
  std::atomic<int> n{0};
  const Handled refusing([&](const HttpExchangePtr& e) {
    e->answer({.status = ++n % 4 == 0 ? 429 : 200, .body = "{}", .close = n % 5 == 0});
  });
  LoadReport r;
  run_load(
      {.url = refusing.url(), .connections = 2, .rate = 400, .seconds = 0.25, .warm_seconds = 0},
      {}, r);
  EXPECT_EQ(r.ok, 75U) << "connections that the server closes after an answer are opened again";
  EXPECT_EQ(r.other, 25U);
  EXPECT_EQ(r.first_other, 429);
  EXPECT_EQ(r.broken + r.unanswered, 0U);
  EXPECT_FALSE(r.good());
  const Handled breaking([&](const HttpExchangePtr& e) {
    e->write({.body = "x"});
    e->answer({.status = 500});  // breaks the answer off
  });
  LoadReport b;
  run_load({.url = breaking.url(), .rate = 100, .seconds = 0.1, .warm_seconds = 0}, {}, b);
  EXPECT_EQ(b.broken, 10U);
  EXPECT_FALSE(b.good());
  EXPECT_TRUE(
      has(thrown([&] { run_load({.url = refusing.url(), .streams = 2}, {}, b); }, ErrorKind::Value),
          "need HTTP/2"));
  EXPECT_TRUE(
      has(thrown([&] { run_load({.url = "https://127.0.0.1:1"}, {}, b); }, ErrorKind::Unsupported),
          "without TLS"));
}

struct Heard : LoadSink {
  int pieces = 0;
  std::vector<LoadAnswer> answers;
  void piece(size_t) override { ++pieces; }
  void answered(size_t, const LoadAnswer& a) override { answers.push_back(a); }
};

const std::string kEvents =
    "data: {\"choices\":[{\"text\":\"\"}]}\n\ndata: {\"choices\":[{\"text\":\"a\"}]}\r\n\r\n"
    ": ping\n\ndata:{\"choices\":[{\"delta\":{\"content\":\"b\"}}]}\n\n"
    "data: {\"choices\":[],\"usage\":{\"completion_tokens\":5}}\n\n";

// Answers of HTTP/1.1 in two reads, cut everywhere.
TEST(LoadTest, AnswersAreReadHoweverTheyCome) {
  const auto chunked = [](const std::string& type, const std::string& body, size_t size) {
    std::string out =
        "HTTP/1.1 200 OK\r\nContent-Type: " + type + "\r\nTransfer-Encoding: chunked\r\n\r\n";
    for (size_t at = 0; at < body.size(); at += size) {
      const std::string piece = body.substr(at, size);
      out += fmt::format("{:x};x=y\r\n{}\r\n", piece.size(), piece);
    }
    return out + "0\r\nA: b\r\n\r\n";
  };
  struct Case {
    std::string bytes;
    int status;
    bool good, open;  ///< open: the connection may be used again
    int pieces = 0;
    int64_t tokens = -1;
  };
  const std::string events = "text/event-stream; charset=utf-8", done = "data: [DONE]\n\n";
  const Case cases[] = {
      {"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello", 200, true, true},
      {"HTTP/1.1 204 No Content\r\n\r\n", 204, true, true},
      {"HTTP/1.1 200 OK\r\nContent-Length: 0\r\nConnection: close\r\n\r\n", 200, true, false},
      {"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 503 No\r\nContent-Length: 2\r\n\r\nno", 503, false,
       true},
      {chunked("text/plain", "hello there", 4), 200, true, true},
      {chunked(events, kEvents + done, 7), 200, true, true, 2, 5},
      {chunked(events, kEvents, 1000), 200, false, true, 2, 5},
      {chunked(events, kEvents + "data: {\"error\":{}}\n\n" + done, 3), 200, false, true, 2, 5},
  };
  for (const Case& c : cases)
    for (size_t cut = 0; cut <= c.bytes.size(); ++cut) {
      SCOPED_TRACE(fmt::format("{} cut at {}", c.bytes.substr(0, 40), cut));
      LoadScript script({}, "host");
      const auto wire = http1_wire(script);
      Heard heard;
      wire->ask(0);
      EXPECT_TRUE(wire->unsent().starts_with("GET / HTTP/1.1\r\n"));
      wire->sent(wire->unsent().size());
      bool open = wire->take(std::string_view(c.bytes).substr(0, cut), heard);
      if (open) open = wire->take(std::string_view(c.bytes).substr(cut), heard);
      ASSERT_EQ(heard.answers.size(), 1U);
      EXPECT_EQ(heard.answers[0].status, c.status);
      EXPECT_EQ(heard.answers[0].good, c.good);
      EXPECT_EQ(heard.answers[0].tokens, c.tokens);
      EXPECT_EQ(heard.pieces, c.pieces);
      EXPECT_EQ(open, c.open);
    }
  LoadScript script({.method = "POST", .body = std::string(100, 'x')}, "host");
  Heard heard;
  const auto early = http1_wire(script);
  early->ask(0);
  early->sent(10);
  EXPECT_FALSE(early->take("HTTP/1.1 413 No\r\nContent-Length: 0\r\n\r\n", heard))
      << "the request was not sent to its end";
  EXPECT_FALSE(http1_wire(script)->take("HTTP/1.1 200 OK\r\n", heard)) << "nobody asked";
}

// Two events with text, and a usage that says five tokens.
TEST(LoadTest, TokensAreThoseOfTheUsage) {
  const Handled server([](const HttpExchangePtr& e) {
    e->answer({.content_type = "text/event-stream", .body = kEvents + "data: [DONE]\n\n"});
  });
  LoadReport r;
  run_load({.url = server.url(), .seconds = 0.3, .warm_seconds = 0, .patience = 60}, {}, r);
  EXPECT_TRUE(r.good()) << r.text();
  EXPECT_GE(r.tokens, 5 * r.ok);
  EXPECT_LE(r.tokens, 5 * r.ok + 2) << "the last answer's events before the end";
  EXPECT_GE(r.first_token.count(), r.ok);
  EXPECT_TRUE(has(r.text(), "tokens/s\nfirst token: p50 ")) << r.text();
}

TEST(LoadTest, RequestsHaveNumbers) {
  for (const bool http2 : {false, true}) {
    if (http2 && !Http2Frames::available()) continue;
    std::mutex lock;
    std::multiset<std::string> bodies;
    const Handled server([&](const HttpExchangePtr& e) {
      const std::lock_guard hold(lock);
      bodies.insert(e->request.body);
      e->answer({.body = "{}"});
    });
    LoadReport r;
    run_load({.url = server.url(),
              .connections = 2,
              .http2 = http2,
              .rate = 200,
              .seconds = 0.1,
              .warm_seconds = 0},
             {.method = "POST", .body = "a00000000b", .number_at = 1}, r);
    EXPECT_EQ(r.ok, 20U);
    const std::lock_guard hold(lock);
    ASSERT_EQ(bodies.size(), 20U);
    EXPECT_EQ(bodies.count("a00000000b"), 1U);
    EXPECT_EQ(bodies.count("a00000019b"), 1U);
  }
}

// Each protocol's request, made from the server's own metadata.
TEST(LoadTest, EachProtocolIsAnswered) {
  const TempFolder t;
  put_model(t / "models/scale.onnx", scale_model(2));
  put_model(t / "models/pair.onnx", pair_model());
  std::filesystem::copy(golden_path("hf/llama"), t / "models/llama",
                        std::filesystem::copy_options::recursive);
  write_file(t / "models/llama/tokenizer.json", word_tokenizer(32));
  write_file(t / "models/llama/chat_template.jinja", "{{ messages[0].content }}");
  const std::string key = "0123456789abcdef0123";
  Running server({.models = t / "models", .keys = ApiKeys::parse("infer " + key, "keys")});
  const LoadOptions load{.url = server->url(),
                         .connections = 2,
                         .rate = 20,
                         .seconds = 0.2,
                         .warm_seconds = 0,
                         .patience = 60};
  for (size_t i = 0; i < load_protocols().size(); ++i) {
    const std::string& name = load_protocols()[i];
    SCOPED_TRACE(name);
    const auto protocol = static_cast<LoadProtocol>(i);
    const bool text = protocol == LoadProtocol::completions || protocol == LoadProtocol::chat;
    if (has(name, "grpc") && !Http2Frames::available()) continue;
    for (const std::string model : {"scale", "pair", "llama"}) {
      if (text != (model == "llama")) continue;
      const LoadRequest request = load_request(
          load.url, {.protocol = protocol, .name = model, .rows = 3, .tokens = 6, .key = key});
      LoadReport r;
      run_load(load, request, r);
      EXPECT_TRUE(r.good()) << r.text();
      EXPECT_EQ(r.ok, 4U);
      if (!text) continue;
      EXPECT_EQ(r.first_token.count(), r.ok);
      EXPECT_EQ(r.next_token.count(), r.ok * 5) << "six tokens are five times between them";
      EXPECT_TRUE(has(r.json(), "\"tokens_per_second\":")) << r.json();
    }
    if (text) continue;
    EXPECT_TRUE(has(
        thrown([&] { load_request(load.url, {.protocol = protocol, .name = "none", .key = key}); },
               ErrorKind::Value),
        "no model 'none'"));
    EXPECT_TRUE(
        has(thrown([&] { load_request(load.url, {.protocol = protocol, .name = "scale"}); }),
            "401") ||
        name.ends_with("grpc"));
  }
  // A model that is not there, asked by a request that names it: gRPC's code is the status.
  if (!Http2Frames::available()) return;
  LoadRequest wrong =
      load_request(load.url, {.protocol = LoadProtocol::v2_grpc, .name = "scale", .key = key});
  const size_t at = wrong.body.find("scale");
  ASSERT_NE(at, std::string::npos);
  wrong.body.replace(at, 5, "scalf");
  LoadReport r;
  run_load({.url = server->url(), .rate = 50, .seconds = 0.1, .warm_seconds = 0}, wrong, r);
  EXPECT_EQ(r.other, 5U) << r.text();
  EXPECT_EQ(r.first_other, 5) << "NOT_FOUND";
}

TEST(LoadTest, ASweepFindsTheRate) {
  const auto points = [](const std::vector<bool>& within) {
    SweepReport r;
    r.most_p99 = 0.01;
    for (size_t i = 0; i < within.size(); ++i)
      r.points.push_back({.rate = 100.0 * static_cast<double>(i + 1), .within = within[i]});
    return r.best();
  };
  EXPECT_EQ(points({true, true, false}), 200);
  EXPECT_EQ(points({true, false, true}), 100) << "what is above a rate that fails does not count";
  EXPECT_EQ(points({false}), 0);
  const Handled server([](const HttpExchangePtr& e) { e->answer({.body = "{}"}); });
  SweepOptions o{.load = {.url = server.url(), .connections = 4, .seconds = 0.5, .warm_seconds = 0},
                 .rates = {10, 5},
                 .most_p99 = 60};
  int said = 0;
  const SweepReport r = sweep_load(o, {}, [&](const SweepPoint&) { ++said; });
  EXPECT_EQ(said, 2);
  ASSERT_EQ(r.points.size(), 2U);
  EXPECT_EQ(r.points[0].rate, 5);
  EXPECT_EQ(r.best(), 10) << r.text();
  EXPECT_TRUE(has(r.text(), "10 requests/s is the highest rate")) << r.text();
  EXPECT_TRUE(has(r.json(), "\"best_requests_per_second\":10")) << r.json();
  const std::string page = r.html("Load", {{"Server", "here"}});
  EXPECT_TRUE(page.starts_with("<!doctype html>") || page.starts_with("<!DOCTYPE html>"));
  for (const char* part : {"Latency in ms", "p99.9", "bound", "here"}) EXPECT_TRUE(has(page, part));
  o.rates = {};
  o.load.seconds = 0.1;
  const SweepReport found = sweep_load(o, {});
  EXPECT_GT(found.closed_rate, 0);
  EXPECT_GE(found.points.size(), 1U);
  o.most_p99 = 1e-7;
  EXPECT_EQ(sweep_load(o, {}).best(), 0);
  o.rates = {-1};
  EXPECT_TRUE(has(thrown([&] { sweep_load(o, {}); }, ErrorKind::Value), "not a rate above 0"));
}

}  // namespace
}  // namespace tandem::serve
