// SPDX-License-Identifier: Apache-2.0
// The ranking: batches that grow with the cards, and marks where a figure is not sure.
#include <map>

#include "tandem/plan/jobs.h"
#include "tandem/plan/plan_internal.h"
#include "tandem/tandem.h"
#include "tests/plan/plan_helper.h"

namespace tandem::plan {
namespace {

// Without a batch each card has the usual one, so more cards of a kind are faster.
TEST(Rank, MoreCardsAreFaster) {
  init();
  const Catalog c = Catalog::built_in();
  for (const char* model : {"resnet50", "bert:base"}) {
    PlanRequest r = request(model, "");
    if (model == std::string("bert:base")) r.job = find_job(model, {.sequence = 128});
    r.batch = 0;
    std::map<std::string, std::map<int, const Ranked*>> rows;
    const std::vector<Ranked> all = rank(r, c, RankBy::time);
    for (const Ranked& k : all) rows[k.gpu][k.n] = &k;
    EXPECT_EQ(rows.size(), c.gpus().size());
    for (const auto& [gpu, by_count] : rows) {
      ASSERT_EQ(by_count.size(), 4u) << gpu;
      const Ranked* fewer = nullptr;
      for (const auto& [n, k] : by_count) {
        EXPECT_EQ(k->batch, kUsualBatch * n) << gpu;
        if (fewer) {
          EXPECT_GT(k->rate, fewer->rate) << model << " on " << n << " x " << gpu;
        }
        fewer = k;
      }
    }
  }
  // A plan has the batch of its row, and one that was asked for is shared out.
  PlanRequest r = request("lenet", "L4");
  r.n = 8;
  r.batch = 0;
  EXPECT_EQ(make_plan(r, c).batch, 8 * kUsualBatch);
  r.accumulate = 4;
  EXPECT_EQ(make_plan(r, c).batch, 8 * kUsualBatch);
  r.batch = 64;
  EXPECT_EQ(make_plan(r, c).batch, 64);
}

TEST(Rank, AssumedEfficienciesAreMarked) {
  init();
  const Catalog c = Catalog::built_in();
  PlanRequest r = request("lenet", "");
  const std::vector<Ranked> all = rank(r, c, RankBy::cost);
  const std::string text = to_text(all, r);
  int assumed = 0;
  for (const Gpu& g : c.gpus()) {
    const bool marked = text.find(" " + g.name + " ~ ") != text.npos;
    EXPECT_EQ(marked, g.efficiency_from.starts_with("assumed")) << g.name << "\n" << text;
    assumed += marked;
    // Its plan says so too.
    r.gpu = g.name;
    const Plan p = make_plan(r, c);
    bool noted = false;
    for (const std::string& n : p.notes) noted |= n.find("is assumed") != n.npos;
    EXPECT_EQ(noted, marked) << g.name;
  }
  EXPECT_GE(assumed, 10);
  EXPECT_NE(text.find("~ its efficiency is assumed"), text.npos) << text;
}

// bf16 on a GPU without units for it: wherever it is asked for, the answer says so.
TEST(Rank, NoBf16IsSaid) {
  init();
  const Catalog c = Catalog::built_in();
  PlanRequest r = request("resnet18", "");
  const auto lacking = [&] {
    int rows = 0;
    for (const Ranked& k : rank(r, c, RankBy::cost)) {
      EXPECT_TRUE(!k.lacks_bf16 || k.gpu == "T4") << k.gpu;
      rows += k.lacks_bf16;
    }
    return rows;
  };
  EXPECT_EQ(lacking(), 0);  // none was asked for
  for (const Precision p : {Precision::amp_bf16, Precision::mixed_bf16, Precision::pure_bf16}) {
    r.precision = p;
    EXPECT_EQ(lacking(), 4) << to_string(p);
    EXPECT_NE(to_text(rank(r, c, RankBy::cost), r).find("no bf16, take f16"), std::string::npos);
    r.gpu = "T4";
    const Plan train = make_plan(r, c), fleet = serve_plan(r, {.rps = 100, .p99 = 1}, c);
    for (const Plan* plan : {&train, &fleet}) {
      std::string notes;
      for (const std::string& n : plan->notes) notes += n;
      EXPECT_NE(notes.find("T4 has no bf16"), notes.npos) << to_string(p) << ": " << notes;
    }
    r.gpu = "";
  }
}

}  // namespace
}  // namespace tandem::plan
