// SPDX-License-Identifier: Apache-2.0
// The page at "/": what it says over HTTP, and what Debian's chromium makes of it, headless
// (skipped where it is not installed).
#include <gtest/gtest.h>

#include <atomic>
#include <cmath>

#include "tandem/base/base64.h"
#include "tandem/base/hash/sha256.h"
#include "tandem/io/json.h"
#include "tandem/recipe/train.h"
#include "tandem/serve/server_settings.h"
#include "tests/io/io_helper.h"
#include "tests/serve/serve_helper.h"
#include "tests/support/browser.h"
#include "tests/support/init.h"

namespace tandem::serve {
namespace {

const HttpHeaders kBrowser = {{"Accept", "text/html,application/xhtml+xml,*/*;q=0.8"}};

std::string between(const std::string& text, const std::string& begin, const std::string& end) {
  const size_t from = text.find(begin);
  const size_t to = from == std::string::npos ? from : text.find(end, from);
  if (to == std::string::npos) return "";
  return text.substr(from + begin.size(), to - from - begin.size());
}

TEST(ServePage, IsOneFileThatRunsNothingElse) {
  const TempFolder t;
  put_model(t / "models/m.onnx", scale_model(2));
  Running server({.models = t / "models"});
  const HttpResponse r = server.client()->request("GET", "/", "", kBrowser);
  ASSERT_EQ(r.status, 200);
  EXPECT_EQ(r.content_type, "text/html; charset=utf-8");
  const std::string policy = *header_of(r, "content-security-policy");
  EXPECT_TRUE(policy.starts_with("default-src 'none'; ")) << policy;
  EXPECT_FALSE(has(policy, "unsafe"));
  // The policy allows the script and the style that stand there, and no others.
  for (const char* tag : {"script", "style"}) {
    const std::string text =
        between(r.body, std::string("<") + tag + ">", std::string("</") + tag + ">");
    const auto hash = sha256(text);
    EXPECT_TRUE(has(policy, std::string(tag) + "-src 'sha256-" +
                                base64({reinterpret_cast<const char*>(hash.data()), 32}) + "'"))
        << tag;
  }
  // No address of another place: the only "http" is the name space of SVG.
  EXPECT_EQ(count(r.body, "http://") + count(r.body, "https://"), 1U);
  EXPECT_FALSE(has(r.body, " src=")) << "nothing is loaded";
  // Tools get a list, as before.
  EXPECT_TRUE(has(server.get("/").body, "m version 1"));
  EXPECT_EQ(server.client()->request("POST", "/", "", kBrowser).status, 405);
}

TEST(ServePage, ItsStateCounts) {
  const TempFolder t;
  put_model(t / "models/m.onnx", scale_model(2));
  Running server({.models = t / "models"});
  for (int i = 0; i < 3; ++i)
    ASSERT_EQ(server.post("/predictions/m", "[[1,2,3,4],[5,6,7,8]]").status, 200);
  const io::Json state = io::parse_json(server.get("/page/state").body);
  EXPECT_EQ(*state.find("ready")->as_bool(), true);
  const io::Json& m = state.find("models")->as_array()->at(0);
  EXPECT_EQ(io::text_of(m.find("name")), "m");
  EXPECT_EQ(io::whole_of(m.find("ok")), 3);
  EXPECT_EQ(io::whole_of(m.find("rows")), 6);
  EXPECT_EQ(io::whole_of(m.find("inputs")->as_array()->at(0).find("shape")->as_array()->data() + 1),
            4);
  int64_t counted = 0;
  for (const io::Json& bucket : *m.find("latency")->as_array())
    counted += io::whole_of(&bucket.as_array()->at(1));
  EXPECT_EQ(counted, 3);
}

TEST(ServePage, CanBeTurnedOffAndNeedsAKeyForItsState) {
  const TempFolder t;
  put_model(t / "models/m.onnx", scale_model(2));
  {
    Running server({.models = t / "models", .page = read_server_settings("", {"page=false"}).page});
    EXPECT_EQ(server.client()->request("GET", "/", "", kBrowser).status, 404);
    EXPECT_EQ(server.get("/page/state").status, 404);
    EXPECT_EQ(server.get("/").status, 200);
  }
  const std::string key = "0123456789abcdef0123";
  Running server({.models = t / "models", .keys = ApiKeys::parse("infer " + key, "keys")});
  // The page is the same for everybody; what it shows, and the list, are not.
  EXPECT_EQ(server.client()->request("GET", "/", "", kBrowser).status, 200);
  EXPECT_EQ(server.get("/").status, 401);
  EXPECT_EQ(server.get("/page/state").status, 401);
  const HttpHeaders headers = {{"Authorization", "Bearer " + key}};
  EXPECT_EQ(server.client()->request("GET", "/page/state", "", headers).status, 200);
  // From the page under any name of the server, with a key; never from another page, and not by a
  // name that was made to lead here where no key is asked for.
  Running open({.models = t / "models"});
  const auto from = [](Running& to, const std::string& host, const std::string& origin,
                       HttpHeaders more) {
    const auto client = to.client();
    more.emplace_back("Origin", origin);
    client->send(request_text("POST", "/predictions/m", host, "[[1,2,3,4]]", more));
    return client->receive().status;
  };
  EXPECT_EQ(from(server, "models.example:8000", "https://models.example:8000", headers), 200);
  EXPECT_EQ(from(server, "models.example:8000", "https://other.example", headers), 403);
  EXPECT_EQ(from(open, "made.example", "http://made.example", {}), 403);
  EXPECT_EQ(from(open, "127.0.0.1:8000", "http://127.0.0.1:8000", {}), 200);
}

// A person draws a digit on the page while others use the server.
TEST(ServePage, TellsADrawnDigitInABrowser) {
  if (!have_browser()) GTEST_SKIP() << "chromium is not installed (scripts/setup browser)";
  const TempFolder t;
  write_file(t / "r.yaml",
             "recipe: r\nseed: 0\ndata: {type: digits}\nmodel: {type: mlp, hidden: [32]}\n"
             "loss: {type: cross_entropy}\noptim: {type: adam, lr: 0.01}\n"
             "trainer: {max_steps: 300, report: false, metrics: []}\n");
  recipe::train(recipe::Recipe::load(t / "r.yaml"),
                {.folder = t / "models/digits", .progress = false});
  put_model(t / "models/scale.onnx", scale_model(2));
  Running server({.models = t / "models"});
  std::atomic<bool> done{false};
  std::thread others([&] {
    const auto client = server.client();
    const std::string row = "[[[" + std::string("[1,0,0,0,0,0,0,1],") + "[1,0,0,0,0,0,0,1]," +
                            "[1,0,0,0,0,0,0,1],[1,0,0,0,0,0,0,1],[1,0,0,0,0,0,0,1]," +
                            "[1,0,0,0,0,0,0,1],[1,0,0,0,0,0,0,1],[1,0,0,0,0,0,0,1]]]]";
    while (!done.load())
      client->post("/predictions/digits", row, {{"Content-Type", "application/json"}});
  });
  std::string zero;  // an upright ellipse
  for (int k = 0; k <= 24; ++k) {
    const double angle = k * 6.283185307 / 24;
    zero += fmt::format("{}{:.0f},{:.0f}", k ? "," : "", 140 + 65 * std::sin(angle),
                        140 - 95 * std::cos(angle));
  }
  const Visit v = visit(t.path().string(), server->url() + "/#model=digits&draw=" + zero,
                        shots_folder() + "/serve_page.png", "1320,900");
  done.store(true);
  others.join();
  EXPECT_EQ(v.code, 0) << v.log;
  EXPECT_FALSE(has(v.log, "CONSOLE")) << v.log;  // no error, no broken policy
  EXPECT_TRUE(has(v.dom, ">ready</span>")) << v.dom;
  EXPECT_TRUE(has(v.dom, "data-done=\"0\"")) << v.dom;
  EXPECT_TRUE(has(v.dom, "<b>scale</b>"));
  EXPECT_TRUE(has(v.dom, "class=\"l0\" d=\"M")) << "curves are drawn";
  EXPECT_GT(colours(shots_folder() + "/serve_page.png"), 20U);
}

}  // namespace
}  // namespace tandem::serve
