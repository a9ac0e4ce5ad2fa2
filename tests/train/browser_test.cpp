// SPDX-License-Identifier: Apache-2.0
// Reports of a run, of two runs and of a search in a real browser: Debian's chromium, headless.
// Screenshots are kept in TANDEM_KEEP_SHOTS, if set, else with the test's other output. Skipped
// where there is no browser (scripts/setup browser).
#include <gtest/gtest.h>

#include <cmath>

#include "tandem/runs/run_record.h"
#include "tandem/tandem.h"
#include "tandem/train/evaluation.h"
#include "tests/io/io_helper.h"
#include "tests/support/browser.h"
#include "tests/support/errors.h"
#include "tests/support/init.h"

namespace tandem::train {
namespace {

recipe::Registry registry() {
  recipe::Registry r = recipe::Registry::standard();
  r.data["digits"] = [](recipe::Options& o, uint64_t seed) {
    recipe::RecipeData d{
        data::pipeline(data::Digits(), {.seed = seed}).shuffle().batch(o.whole("batch", 64)),
        {},
        {},
        {}};
    d.val = data::pipeline(data::Digits({.train = false})).batch(128);
    d.test = d.val;
    d.info = {{"classes", 10}};
    return d;
  };
  r.model["mlp"] = [](recipe::Options& o, const std::map<std::string, int64_t>& info) {
    auto net = std::make_shared<models::MLP>(
        std::vector<int64_t>{64, o.whole("hidden", 32), info.at("classes")});
    return recipe::RecipeModel{
        net, [net](const Batch& b) { return std::pair<Tensor, Tensor>((*net)(b[0]), b[1]); }};
  };
  return r;
}

void train_run(const TempFolder& f, const std::string& name, const std::string& change) {
  write_file(
      f / "r.yaml",
      "recipe: A <run> & its </script> report\nseed: 1\ndata: {type: digits}\nmodel: {type: mlp}\n"
      "loss: {type: cross_entropy}\noptim: {type: adam, lr: 5e-3}\nsched: {type: cosine}\n"
      "trainer: {epochs: 12, metrics: [accuracy, f1], log_every: 5}\n");
  recipe::run_recipe(recipe::Recipe::load(f / "r.yaml", {change}), registry(), f / name, false);
}

TEST(ReportPage, OfARun) {
  if (!have_browser()) GTEST_SKIP() << "chromium is not installed (scripts/setup browser)";
  TempFolder f;
  train_run(f, "run", "seed=1");
  const std::string shot = shots_folder() + "/run_report.png";
  const Visit v = visit(f.path().string(), f / "run/report.html", shot);
  ASSERT_EQ(v.code, 0) << v.log;
  EXPECT_EQ(v.log.find("CONSOLE"), std::string::npos) << v.log;
  EXPECT_NE(v.dom.find("<title>A &lt;run&gt; &amp; its &lt;/script&gt; report</title>"),
            std::string::npos);
  // loss, lr, accuracy, f1, step loss, gradient norm, throughput, memory, calibration ...
  EXPECT_GE(count(v.dom, "class=\"chart\""), 9u);
  for (const char* part :
       {"aria-label=\"loss\"", "aria-label=\"learning rate\"", "aria-label=\"samples a second\"",
        "aria-label=\"memory (MB)\"", "Confusion (test)", "Worst samples (test)",
        "Layers (one batch", "Rectifiers", "layer by step", "Settings, defaults resolved",
        "energy (m", "peak memory", "test/accuracy"})
    EXPECT_NE(v.dom.find(part), std::string::npos) << part;
  EXPECT_EQ(count(v.dom, "<img src=\"data:image/png;base64,"), 16u);
  EXPECT_GE(count(v.dom, "stroke-linejoin=\"round\""), 12u);          // curves
  EXPECT_EQ(v.dom.find("http://"), v.dom.find("http://www.w3.org"));  // nothing is loaded
  EXPECT_EQ(v.dom.find("https://"), std::string::npos);
  EXPECT_GT(colours(shot), 200u) << shot;
  // Where counters cannot be read the energy is called a model.
  const runs::RunRecord r = runs::read_run(f / "run");
  if (r.energy_source.rfind("modelled", 0) == 0) {
    EXPECT_NE(v.dom.find("energy (modelled)"), std::string::npos);
  }
  EXPECT_LT(read_file(f / "run/report.html").size(), 2u << 20);
}

TEST(ReportPage, OfSeveralRuns) {
  if (!have_browser()) GTEST_SKIP() << "chromium is not installed (scripts/setup browser)";
  TempFolder f;
  train_run(f, "a", "seed=1");
  train_run(f, "b", "optim.lr=5e-4");
  write_file(f / "ab.html",
             runs::compare_report({runs::read_run(f / "a"), runs::read_run(f / "b")}));
  const std::string shot = shots_folder() + "/compare.png";
  const Visit v = visit(f.path().string(), f / "ab.html", shot);
  ASSERT_EQ(v.code, 0) << v.log;
  EXPECT_EQ(v.log.find("CONSOLE"), std::string::npos) << v.log;
  EXPECT_NE(v.dom.find("Settings that differ"), std::string::npos);
  EXPECT_NE(v.dom.find("optim.lr"), std::string::npos);
  EXPECT_EQ(v.dom.find("optim.type"), std::string::npos);
  EXPECT_GE(count(v.dom, "class=\"chart\""), 8u);
  EXPECT_GT(colours(shot), 60u) << shot;
}

TEST(ReportPage, OfEveryPart) {
  if (!have_browser()) GTEST_SKIP() << "chromium is not installed (scripts/setup browser)";
  TempFolder f;
  runs::Page page("Parts <b>");
  page.facts({{"a", "1"}, {"b <i>", "</script><script>no_such()</script>"}});
  page.note("<!-- a note");
  page.chart("empty", "x", {{"none", {1, 2}, {NAN, NAN}}});
  page.chart("gaps", "x", {{"s", {1, 2, 3, 4, 5}, {1, NAN, 3, 2, INFINITY}}, {"one", {3}, {2}}});
  page.chart("constant", "x", {{"s", {1, 2}, {0, 0}}});
  page.table("t", {"name", "n"}, {{"x", "1"}, {"y", "2.5"}});
  page.matrix("m", {"0", "1"}, {{9, 1}, {0, 10}});
  page.heat("h", {"r"}, {"1", "2"}, {{1e-3, NAN}});
  page.images("p", {{.text = "1 2", .caption = "no image"}});
  page.listing("l", "a: <b>");
  page.parallel("c", {{"lr", true}, {"kind", false, {"a", "b"}}, {"loss"}},
                {{1e-3, 0, 0.5}, {1e-1, 1, 0.2}, {1e-2, 1, NAN}});
  write_file(f / "parts.html", page.html());
  const std::string shot = shots_folder() + "/parts.png";
  const Visit v = visit(f.path().string(), f / "parts.html", shot);
  ASSERT_EQ(v.code, 0) << v.log;
  EXPECT_EQ(v.log.find("CONSOLE"), std::string::npos) << v.log;
  EXPECT_EQ(count(v.dom, "class=\"chart\""), 2u);  // the empty one is left out
  EXPECT_EQ(count(v.dom, "stroke-opacity=\"0.65\""), 3u);
  EXPECT_EQ(count(v.dom, "no_such()"), 2u);  // in the data and as text, never as a script
  EXPECT_GT(colours(shot), 20u) << shot;
}

}  // namespace
}  // namespace tandem::train
