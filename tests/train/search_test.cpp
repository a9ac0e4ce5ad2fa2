// SPDX-License-Identifier: Apache-2.0
// Searches: ranges and their mistakes, the three samplers, early stopping, the journal; TPE against
// random search on Branin's and Hartmann's functions.
#include "tandem/train/search.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <set>

#include "tandem/runs/run_record.h"
#include "tests/io/io_helper.h"

namespace tandem::train {
namespace {

TEST(SearchRange, ReadsAndNamesMistakes) {
  const SearchRange lr = SearchRange::parse("lr", "log 1e-4..1e-1");
  EXPECT_TRUE(lr.log);
  EXPECT_EQ(lr.text_at(0), "0.0001");
  EXPECT_EQ(lr.text_at(1), "0.1");
  EXPECT_NEAR(std::stod(lr.text_at(0.5)), std::sqrt(1e-5), 1e-8);
  const SearchRange n = SearchRange::parse("n", "int log 16..64");
  EXPECT_EQ(n.text_at(0.5), "32");
  EXPECT_EQ(n.text_at(2), "64");
  EXPECT_EQ(SearchRange::parse("d", "-1..1").text_at(0.5), "0");
  SearchRange c{.name = "c"};
  c.choices = {"a", "b", "c"};
  EXPECT_EQ(c.text_at(0.5), "b");
  EXPECT_EQ(c.text_at(1), "c");
  const std::pair<const char*, const char*> kBroken[] = {
      {"fast", "'fast' is not a range"},   {"1..x", "'x' is not a number"},
      {"2..1", "needs low < high"},        {"log 0..1", "and above 0"},
      {"..", "'' is not a number"},        {"log -1..1", "and above 0"},
      {"0..inf", "'inf' is not a number"},
  };
  for (const auto& broken : kBroken) {
    const std::string what = error_of([&] { SearchRange::parse("lr", broken.first); });
    EXPECT_EQ(what.rfind("Value: search.lr: ", 0), 0u) << what;
    EXPECT_NE(what.find(broken.second), what.npos) << what;
  }
}

std::vector<SearchRange> plane() {
  return {SearchRange::parse("x", "-5..10"), SearchRange::parse("y", "0..15")};
}
double at(const Trial& t, size_t i) { return std::stod(t.values[i].second); }
// Branin's function: three minima of 0.397887 (Picheny et al. 2012).
double branin(const Trial& t) {
  const double x = at(t, 0), y = at(t, 1);
  const double a = y - 5.1 / (4 * M_PI * M_PI) * x * x + 5 / M_PI * x - 6;
  return a * a + 10 * (1 - 1 / (8 * M_PI)) * std::cos(x) + 10;
}
// Hartmann's function of six variables, minimum -3.32237.
double hartmann(const Trial& t) {
  constexpr double a[4][6] = {{10, 3, 17, 3.5, 1.7, 8},
                              {0.05, 10, 17, 0.1, 8, 14},
                              {3, 3.5, 1.7, 10, 17, 8},
                              {17, 8, 0.05, 10, 0.1, 14}};
  constexpr double p[4][6] = {{1312, 1696, 5569, 124, 8283, 5886},
                              {2329, 4135, 8307, 3736, 1004, 9991},
                              {2348, 1451, 3522, 2883, 3047, 6650},
                              {4047, 8828, 8732, 5743, 1091, 381}};
  constexpr double c[4] = {1, 1.2, 3, 3.2};
  double sum = 0;
  for (size_t i = 0; i < 4; ++i) {
    double e = 0;
    for (size_t j = 0; j < 6; ++j) e += a[i][j] * std::pow(at(t, j) - 1e-4 * p[i][j], 2);
    sum += c[i] * std::exp(-e);
  }
  return -sum;
}

double best_of(std::vector<SearchRange> ranges, SearchOptions o, int trials,
               double (*f)(const Trial&)) {
  Search s(std::move(ranges), o);
  for (int k = 0; k < trials; ++k) {
    Trial t = *s.ask();
    t.result = f(t);
    t.state = "done";
    s.tell(std::move(t));
  }
  return *s.best()->result;
}

TEST(Search, TpeBeatsChance) {
  std::vector<SearchRange> cube;
  for (int i = 0; i < 6; ++i) cube.push_back(SearchRange::parse(fmt::format("x{}", i), "0..1"));
  double tpe[2] = {0, 0}, random[2] = {0, 0};
  constexpr int kSeeds = 10;
  for (uint64_t seed = 0; seed < kSeeds; ++seed)
    for (Sampler sampler : {Sampler::tpe, Sampler::random}) {
      double* sum = sampler == Sampler::tpe ? tpe : random;
      sum[0] += best_of(plane(), {.sampler = sampler, .seed = seed}, 80, branin) / kSeeds;
      sum[1] += best_of(cube, {.sampler = sampler, .seed = seed}, 120, hartmann) / kSeeds;
    }
  EXPECT_LT(tpe[0], random[0]);
  EXPECT_LT(tpe[1], random[1]);
  EXPECT_LT(tpe[0], 0.8);
  EXPECT_LT(tpe[1], -2.3);
}

TEST(Search, GridAndRandom) {
  SearchRange kind{.name = "kind"};
  kind.choices = {"a", "b"};
  std::vector<SearchRange> ranges{SearchRange::parse("lr", "log 1e-3..1e-1"), kind};
  ranges[0].steps = 3;
  Search grid(ranges, {.sampler = Sampler::grid});
  EXPECT_EQ(grid.grid_size(), 6);
  std::vector<std::string> seen;
  while (std::optional<Trial> t = grid.ask())
    seen.push_back(t->values[0].second + " " + t->values[1].second);
  EXPECT_EQ(seen,
            (std::vector<std::string>{"0.001 a", "0.001 b", "0.01 a", "0.01 b", "0.1 a", "0.1 b"}));
  Search a(plane(), {.sampler = Sampler::random, .seed = 7}),
      b(plane(), {.sampler = Sampler::random, .seed = 7}),
      c(plane(), {.sampler = Sampler::random, .seed = 8});
  std::set<std::string> different;
  for (int k = 0; k < 20; ++k) {
    const Trial x = *a.ask(), y = *b.ask(), z = *c.ask();
    EXPECT_EQ(x.values, y.values);
    EXPECT_NE(x.values, z.values);
    different.insert(x.values[0].second);
  }
  EXPECT_EQ(different.size(), 20u);
}

// Trials whose curves are known: stopping early finds the best one with less work.
TEST(Search, AshaStopsTheWorse) {
  Search s(plane(), {.sampler = Sampler::random, .seed = 1, .grace = 1, .eta = 3});
  int64_t epochs = 0, stopped = 0;
  constexpr int64_t kTrials = 60, kEpochs = 9;
  double whole_best = INFINITY;
  for (int k = 0; k < kTrials; ++k) {
    Trial t = *s.ask();
    const double end = branin(t);
    whole_best = std::min(whole_best, end);
    t.state = "done";
    for (int64_t e = 1; e <= kEpochs; ++e) {
      ++epochs;
      const double now = end + 30.0 / static_cast<double>(e);
      if (s.report(t, e, now)) {
        t.state = "stopped";
        ++stopped;
        break;
      }
      t.result = now;
    }
    s.tell(std::move(t));
  }
  EXPECT_LT(epochs, kTrials * kEpochs / 2);
  EXPECT_GT(stopped, kTrials / 2);
  EXPECT_NEAR(*s.best()->result, whole_best + 30.0 / 9, 1e-9);
  Trial nan = *s.ask();
  EXPECT_TRUE(s.report(nan, 1, NAN));
  // To be high, and without it.
  Search up(plane(), {.minimise = false, .grace = 1, .eta = 2});
  for (double v : {1.0, 2.0, 3.0}) {
    Trial t = *up.ask();
    EXPECT_FALSE(up.report(t, 1, v));
    t.result = v;
    up.tell(std::move(t));
  }
  Trial low = *up.ask();
  EXPECT_TRUE(up.report(low, 1, 0.5));
  EXPECT_EQ(*up.best()->result, 3);
  Search off(plane(), {});
  EXPECT_FALSE(off.report(low, 1, 1e9));
}

TEST(Search, IsResumedFromItsJournal) {
  TempFolder f;
  const SearchOptions o{.seed = 3, .startup = 4};
  auto step = [](Search& s) {
    Trial t = *s.ask();
    s.report(t, 1, branin(t) + 1);
    t.result = branin(t);
    t.state = "done";
    t.note = "a \"note\"";
    return t;
  };
  Search whole(plane(), o);
  std::string journal;
  for (int k = 0; k < 15; ++k) {
    const Trial t = step(whole);
    journal += to_json(t).dump() + "\n";
    whole.tell(t);
  }
  // Cut in the middle of the ninth line, and with a damaged one before.
  size_t at = 0;
  for (int k = 0; k < 8; ++k) at = journal.find('\n', at) + 1;
  write_file(f / "j.jsonl", journal.substr(0, at) + "{\"number\": 8, \"sta");
  Search again(plane(), o);
  EXPECT_EQ(read_journal(f / "j.jsonl", again), 8);
  while (again.trials().size() < 15) again.tell(step(again));
  for (size_t k = 0; k < 15; ++k) {
    EXPECT_EQ(again.trials()[k].number, static_cast<int64_t>(k) + 1);
    EXPECT_EQ(again.trials()[k].values, whole.trials()[k].values) << k;
    EXPECT_EQ(again.trials()[k].result, whole.trials()[k].result) << k;
    EXPECT_EQ(again.trials()[k].reports, whole.trials()[k].reports) << k;
  }
  // A journal whose trials are counted from 0 leads to the same search.
  std::string older;
  for (size_t k = 0; k < 8; ++k) {
    Trial t = whole.trials()[k];
    --t.number;
    older += to_json(t).dump() + "\n";
  }
  write_file(f / "older.jsonl", older);
  Search on(plane(), o);
  EXPECT_EQ(read_journal(f / "older.jsonl", on), 8);
  EXPECT_EQ(on.ask()->values, whole.trials()[8].values);
  EXPECT_EQ(read_journal(f / "none.jsonl", again), 0);
  Search other({SearchRange::parse("z", "0..1")}, o);
  const std::string what = error_of([&] { read_journal(f / "j.jsonl", other); });
  EXPECT_NE(what.find("of a search over other settings"), what.npos) << what;
}

TEST(TerminalPlot, DrawsCurves) {
  std::vector<double> x, y, z;
  for (int i = 0; i <= 100; ++i) {
    x.push_back(i);
    y.push_back(std::exp(-i / 20.0));
    z.push_back(i == 50 ? NAN : 0.5);
  }
  const std::string p = runs::terminal_plot("loss", {{"a", x, y}, {"b", x, z}}, 60, 8);
  EXPECT_EQ(std::count(p.begin(), p.end(), '\n'), 12);  // title, 8 rows, scale, two names
  // Without colours each curve ends in its character.
  for (const char* part : {"loss\n", "         1 ", "a\n", "b\n", "  a a\n", "  b b\n", "100\n"})
    EXPECT_NE(p.find(part), p.npos) << part << " in\n" << p;
  EXPECT_NE(p.find("\xE2\xA0"), p.npos);  // braille
  EXPECT_EQ(runs::terminal_plot("none", {{"a", {1}, {NAN}}}), "none: nothing to draw\n");
  EXPECT_NE(runs::terminal_plot("flat", {{"a", {1, 2}, {0, 0}}}).find("flat"), std::string::npos);
}

}  // namespace
}  // namespace tandem::train
