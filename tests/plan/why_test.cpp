// SPDX-License-Identifier: Apache-2.0
// Every number that a plan prints can be queried, and its parts add up to it: three kinds of
// models, both modes, one server and several, rented by the hour and from the spot market.
#include <sys/wait.h>

#include <cstdio>
#include <cstdlib>

#include "tandem/base/files/file.h"
#include "tandem/onnx/export.h"
#include "tandem/plan/asked.h"
#include "tandem/plan/hardware/machine.h"
#include "tandem/plan/jobs.h"
#include "tandem/tandem.h"
#include "tests/plan/plan_helper.h"

namespace tandem::plan {
namespace {

// Names that hold digits.
std::vector<std::string> names(const std::string& model) {
  const Catalog c = Catalog::built_in();
  std::vector<std::string> all{model, "bf16", "f16", "f32", "8-bit", "p99"};
  for (const Gpu& g : c.gpus()) {
    all.push_back(g.name);
    all.push_back(g.link);
  }
  for (const Disk& d : c.disks()) all.push_back(d.name);
  return all;
}

void expect_explained(const std::string& text, const io::Json& json, const std::string& model) {
  EXPECT_EQ(broken_sums(json), std::vector<std::string>()) << model;
  EXPECT_EQ(unexplained_numbers(text, json, names(model)), std::vector<std::string>()) << text;
  // Such a search finds what is there: a number that no figure has, or one that is a little off.
  EXPECT_EQ(unexplained_numbers(text + "\n123.4 XB", json, names(model)).size(), 1u);
  EXPECT_GE(shown_keys(text).size(), 10u);
}

void expect_explained(const Plan& p) {
  check(p);
  const std::string text = to_text(p);
  expect_explained(text, to_json(p), p.model);
  // The keys shown next to the numbers, and all others.
  for (const std::string& key : shown_keys(text)) {
    const std::string why = explain(p, key);
    if (key.rfind("server.", 0) != 0) {
      EXPECT_NE(why.find("[" + key), std::string::npos) << key;
    }
    if (const Quantity* q = p.find(key)) {
      EXPECT_NE(why.find(q->label + " = " + show(*q)), std::string::npos) << why;
    }
  }
  for (const std::string& key : p.keys()) EXPECT_FALSE(explain(p, key).empty()) << key;
}

void plan_in_many_ways(const Job& job) {
  const Catalog catalog = Catalog::built_in();
  struct Way {
    bool compiled;
    int n, sharding;
    const char *gpu, *term;
    bool end, recompute;
    Kept kept = Kept::boundaries;
    Framework framework = Framework::tandem;
    AttentionForm attention = AttentionForm::usual;
  };
  for (const Way& way : {Way{true, 1, 0, "4090", "hourly", true, false},
                         Way{false, 8, 3, "h100", "spot", true, true},
                         Way{false, 2, 1, "a100", "1 year", false, false},
                         Way{false, 1, 0, "a100", "hourly", false, true, Kept::half_matmuls,
                             Framework::pytorch, AttentionForm::composed},
                         Way{true, 4, 2, "h100", "hourly", false, true, Kept::matmuls,
                             Framework::pytorch, AttentionForm::fused}}) {
    PlanRequest r;
    r.job = job;
    r.batch = 52;
    r.compiled = way.compiled;
    r.n = way.n;
    r.sharding = way.sharding;
    r.gpu = way.gpu;
    r.term = way.term;
    r.recompute = way.recompute;
    r.kept = way.kept;
    r.framework = way.framework;
    r.attention = way.attention;
    r.keep_gradients = way.framework == Framework::pytorch;
    r.eight_bit_state = way.sharding == 1;
    if (way.end) {
      r.data = data_set("samples=700000,gb=20");
      r.epochs = 3;
      r.budget = 1e-6;  // too little, so that another server is named
    }
    const Plan p = make_plan(r, catalog);
    expect_explained(p);
    EXPECT_EQ(p.within_limits, !way.end);
    for (const char* key : {"memory", "batch", "rate", "price", "checkpoint.interval"})
      EXPECT_GT(p.at(key).value, 0) << key;
  }
}

TEST(Why, OfAFamily) {
  init();
  plan_in_many_ways(find_job("gpt2:124m", {.sequence = 256}));
}

TEST(Why, OfAnOnnxFile) {
  init();
  const std::string path = testing::TempDir() + "/why_net.onnx";
  manual_seed(5);
  struct Net : nn::Module {
    nn::Conv2d conv{3, 8, 3};
    nn::Linear head{8, 5};
    Net() { TD_REGISTER(conv, head); }
    Tensor forward(Tensor x) { return head(relu(conv(x)).mean({2, 3})); }
  } net;
  onnx::export_onnx(net, randn({1, 3, 16, 16}), path, {.dynamic = {{0, "n"}}});
  plan_in_many_ways(find_job(path));
}

// Through the tool: the recipe's components are its own.
TEST(Why, OfARecipe) {
  const char* tool = std::getenv("TANDEM_TOOL");
  if (!tool) GTEST_SKIP() << "TANDEM_TOOL is not set";
  const auto run = [&](const std::string& options) {
    const std::string command = std::string(tool) +
                                " plan recipes/digits-mlp.yaml --gpu l4 --data samples=50000,gb=2 "
                                "--epochs 7 " +
                                options + " 2>/dev/null";
    FILE* pipe = popen(command.c_str(), "r");
    std::string text;
    char buffer[4096];
    while (const size_t n = fread(buffer, 1, sizeof buffer, pipe)) text.append(buffer, n);
    EXPECT_EQ(WEXITSTATUS(pclose(pipe)), 0) << command;
    return text;
  };
  const std::string text = run("");
  const io::Json json = io::parse_json(run("--json"), "plan");
  expect_explained(text, json, *json.find("model")->as_string());
  // All of its keys at once.
  std::string asked;
  for (const std::string& key : shown_keys(text)) asked += " --why " + key;
  const std::string why = run(asked);
  for (const std::string& key : shown_keys(text))
    if (key.rfind("server.", 0) != 0) {
      EXPECT_NE(why.find("[" + key), std::string::npos) << key;
    }
}

TEST(Why, OfAFleetAndOfThisMachine) {
  init();
  const Catalog catalog = Catalog::built_in();
  PlanRequest r = request("resnet18", "");
  expect_explained(serve_plan(r, serve_request("rps=3000,p99=30ms"), catalog));
  MachineProfile m;
  m.cpu = "a processor";
  m.f32_flops = 1e11;
  m.bandwidth = m.cache_bandwidth = 1e10;
  m.cache_bytes = 1e6;
  m.launch_seconds = m.step_seconds = 1e-6;
  m.decode_seconds = 4e-3;
  m.memory = 16e9;
  r.data = data_set("cifar10");
  r.epochs = 2;
  r.deadline = 1;
  const Plan p = machine_plan(r, m);
  EXPECT_FALSE(p.within_limits);
  check(p);
  EXPECT_EQ(broken_sums(to_json(p)), std::vector<std::string>());
  EXPECT_EQ(unexplained_numbers(to_text(p), to_json(p), names(p.model)),
            std::vector<std::string>());
}

// A row of the ranking is the plan of that server, figure by figure.
TEST(Why, ARowOfTheRanking) {
  init();
  const Catalog catalog = Catalog::built_in();
  PlanRequest r = request("lenet", "");
  for (bool end : {false, true}) {
    if (end) {
      r.data = data_set("samples=50000,gb=2");
      r.epochs = 4;
      r.term = "spot";
    }
    const std::vector<Ranked> all = rank(r, catalog, RankBy::energy);
    ASSERT_GE(all.size(), 40u);
    for (size_t k : {size_t{0}, all.size() / 2, all.size() - 1}) {
      PlanRequest one = r;
      one.gpu = all[k].gpu;
      one.n = all[k].n;
      one.sharding = all[k].sharding;
      if (!end) one.tokens = 1e6;  // "per 1M"
      const Plan p = make_plan(one, catalog);
      EXPECT_DOUBLE_EQ(p.at("cost").value, all[k].usd);
      EXPECT_DOUBLE_EQ(p.at("time").value, all[k].seconds);
      EXPECT_DOUBLE_EQ(p.at("energy").value, all[k].kwh);
      EXPECT_DOUBLE_EQ(p.at("memory").value, all[k].memory);
      EXPECT_DOUBLE_EQ(p.at("rate").value, all[k].rate);
    }
  }
}

}  // namespace
}  // namespace tandem::plan
