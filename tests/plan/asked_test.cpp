// SPDX-License-Identifier: Apache-2.0
// Option values as people write them: units, typos, negatives. Unreadable ones are rejected with
// the nearest readable text.
#include "tandem/plan/asked.h"

#include <cmath>

#include "tandem/plan/jobs.h"
#include "tandem/tandem.h"
#include "tests/plan/plan_helper.h"

namespace tandem::plan {
namespace {

TEST(Asked, Times) {
  for (const auto& [text, seconds] :
       std::vector<std::pair<const char*, double>>{{"36h", 129600},
                                                   {"2d", 172800},
                                                   {"90m", 5400},
                                                   {"90 min", 5400},
                                                   {"3600", 3600},
                                                   {"1d12h", 129600},
                                                   {" 4.2 hours ", 15120},
                                                   {"1w", 604800},
                                                   {"45s", 45},
                                                   {"2 days 6 h", 194400},
                                                   {"1H", 3600}})
    EXPECT_NEAR(duration(text, "--deadline"), seconds, 1e-9 * seconds) << text;
  EXPECT_DOUBLE_EQ(duration("50", "--serve", "ms"), 0.05);
  EXPECT_DOUBLE_EQ(duration("1.5s", "--serve", "ms"), 1.5);
  // The suggested nearest time is itself readable.
  for (const auto& [text, reason, nearest] : std::vector<std::array<const char*, 3>>{
           {"-5h", "it is negative", "5h"},
           {"36hs", "'hs' is not a unit of time", "36"},
           {"36 hurs", "'hurs' is not a unit of time", "36hours"},
           {"36x", "'x' is not a unit of time", "36h"},
           {"1d12", "a unit is missing", "12h"},
           {"2 dayz", "'dayz' is not a unit of time", "2day"},
           {"soon", "it is not a time", ""},
           {"", "it is not a time", ""},
           {"h", "it is not a time", ""},
           {"0h", "a time is above 0", ""},
           {"nan", "it is not a time", ""},
           {"inf", "it is not a time", ""},
           {"0x10h", "'x' is not a unit of time", "0h"},
           {"1e30h", "more than 30000 years", ""}}) {
    const std::string option = text;
    EXPECT_ERROR(Value, std::string("--deadline '") + option + "'", duration(option, "--deadline"));
    EXPECT_ERROR(Value, reason, duration(option, "--deadline"));
    EXPECT_ERROR(Value, "Write it as 36h, 2d", duration(option, "--deadline"));
    if (*nearest)
      EXPECT_ERROR(Value, std::string("Did you mean '") + nearest, duration(option, "--deadline"));
  }
}

TEST(Asked, Money) {
  for (const auto& [text, usd] : std::vector<std::pair<const char*, double>>{{"500", 500},
                                                                             {"$500", 500},
                                                                             {"500$", 500},
                                                                             {"1.5k", 1500},
                                                                             {"500 USD", 500},
                                                                             {"$ 2K", 2000},
                                                                             {"0.01", 0.01},
                                                                             {"20 dollars", 20},
                                                                             {"1e3", 1000}})
    EXPECT_DOUBLE_EQ(dollars(text, "--budget"), usd) << text;
  for (const auto& [text, reason, nearest] :
       std::vector<std::array<const char*, 3>>{{"-5", "it is negative", "5"},
                                               {"$-5", "it is negative", "5"},
                                               {"-5k", "it is negative", "5k"},
                                               {"500 EUR", "prices are in US dollars", "500"},
                                               {"1,000", "commas do not belong into it", "1000"},
                                               {"500q", "'q' is not a multiplier", "500"},
                                               {"five", "it is not a number", ""},
                                               {"", "it is not a number", ""},
                                               {"0", "it is 0", ""},
                                               {"nan", "it is not a number", ""},
                                               {"1e99", "more than 1e30", ""}}) {
    const std::string option = text;
    EXPECT_ERROR(Value, reason, dollars(option, "--budget"));
    EXPECT_ERROR(Value, "--budget '", dollars(option, "--budget"));
    EXPECT_ERROR(Value, "Write it as 500, $500", dollars(option, "--budget"));
    if (*nearest)
      EXPECT_ERROR(Value, std::string("Did you mean '") + nearest + "'",
                   dollars(option, "--budget"));
  }
}

TEST(Asked, Amounts) {
  EXPECT_DOUBLE_EQ(amount("300M", "--tokens"), 3e8);
  EXPECT_DOUBLE_EQ(amount("1.2b", "--tokens"), 1.2e9);
  EXPECT_DOUBLE_EQ(amount("1e9", "--tokens"), 1e9);
  EXPECT_DOUBLE_EQ(amount("0.5", "--epochs"), 0.5);
  EXPECT_ERROR(Value, "Did you mean '300'", amount("-300", "--tokens"));
  EXPECT_ERROR(Value, "'Mio' is not a multiplier", amount("300Mio", "--tokens"));
  EXPECT_ERROR(Value, "Did you mean '3'", amount("~3", "--epochs"));
}

TEST(Asked, Counts) {
  EXPECT_EQ(whole_number("8", "--n", 1, 100), 8);
  EXPECT_EQ(whole_number(" 8 ", "--n", 1, 100), 8);
  EXPECT_EQ(whole_number("1e2", "--n", 1, 100), 100);
  for (const auto& [text, reason, nearest] :
       std::vector<std::array<const char*, 3>>{{"two", "it is not a number", "2"},
                                               {"x8", "it is not a number", "8"},
                                               {"8x", "'x' is too much", "8"},
                                               {"8 GPUs", "'GPUs' is too much", "8"},
                                               {"2.4", "it is not a whole number", "2"},
                                               {"-3", "it is out of range", "1"},
                                               {"0", "it is out of range", "1"},
                                               {"1000", "it is out of range", "100"},
                                               {"1e300", "it is out of range", "100"},
                                               {"1,000", "',000' is too much", "1"},
                                               {"many", "it is not a number", ""},
                                               {"", "it is not a number", ""},
                                               {"0x8", "'x8' is too much", "1"},
                                               {"inf", "it is not a number", ""}}) {
    const std::string option = text;
    EXPECT_ERROR(Value, reason, whole_number(option, "--n", 1, 100));
    EXPECT_ERROR(Value, "It is a whole number from 1 to 100.", whole_number(option, "--n", 1, 100));
    if (*nearest)
      EXPECT_ERROR(Value, std::string("Did you mean '") + nearest + "'",
                   whole_number(option, "--n", 1, 100));
  }
}

TEST(Asked, Data) {
  EXPECT_EQ(data_set("imagenet").samples, 1281167);
  EXPECT_EQ(data_set("CIFAR-10").samples, 50000);
  EXPECT_EQ(data_set("samples=50k").samples, 50000);
  const DataSet d = data_set("samples=1.2M, gb=140");
  EXPECT_DOUBLE_EQ(d.samples, 1.2e6);
  EXPECT_DOUBLE_EQ(d.bytes, 140e9);
  for (const auto& [text, wanted] : std::vector<std::array<const char*, 2>>{
           {"imagnet", "Did you mean 'imagenet'?"},
           {"image net 21", "Did you mean 'imagenet21k'?"},
           {"quantum foam", "Known are mnist, cifar10"},
           {"", "there is no such data set"},
           {"sample=500", "'sample' is not known here. Did you mean 'samples=500'?"},
           {"samples=-3", "it is negative. Did you mean 'samples=3'?"},
           {"samples=0", "it is 0"},
           {"samples=many", "it is not a number"},
           {"samples=5,samples=6", "'samples' is there twice"},
           {"gb=12", "'samples' is missing. Did you mean 'samples=50000,gb=12'?"},
           {"samples=5,gb=12GB", "'gb' counts GB and takes no unit. Did you mean 'gb=12'?"},
           {"samples=5,gb=1.5TB", "Did you mean 'gb=1500'?"},
           {"samples=5,gb=-1", "Did you mean 'gb=1'?"},
           {"samples=5,", "has no '='"},
           {"samples=nan", "it is not a number"},
           {"samples=5,gb:12", "'gb:12' has no '='. Did you mean 'gb=12'?"}}) {
    const std::string option = text;
    EXPECT_ERROR(Value, wanted, data_set(option));
    EXPECT_ERROR(Value, "--data '", data_set(option));
  }
}

TEST(Asked, Fleets) {
  const ServeRequest s = serve_request("rps=1.5k, p99=50ms");
  EXPECT_DOUBLE_EQ(s.rps, 1500);
  EXPECT_DOUBLE_EQ(s.p99, 0.05);
  EXPECT_DOUBLE_EQ(serve_request("p99=20,rps=5").p99, 0.02);
  EXPECT_DOUBLE_EQ(serve_request("p99=0.1s,rps=5").p99, 0.1);
  for (const auto& [text, wanted] : std::vector<std::array<const char*, 2>>{
           {"rsp=200,p99=50ms", "'rsp' is not known here. Did you mean 'rps=200'?"},
           {"rps=200,p95=50ms", "'p95' is not known here. Did you mean 'p99=50ms'?"},
           {"rps=200", "'p99' is missing. Did you mean 'rps=200,p99=50ms'?"},
           {"p99=50ms", "'rps' is missing"},
           {"rps=-200,p99=50ms", "Did you mean 'rps=200'?"},
           {"rps=200/s,p99=50ms", "Did you mean 'rps=200'?"},
           {"rps=0,p99=50ms", "it is 0"},
           {"rps=200,p99=50us", "'us' is not a unit of time. Did you mean '50ms'?"},
           {"rps=200,p99=-50ms", "it is negative. Did you mean '50ms'?"},
           {"rps=200,p99=fast", "it is not a time"},
           {"rps 200", "has no '='. Did you mean 'rps=200'?"},
           {"200", "'200' has no '='"},
           {"", "has no '='"},
           {"rps=inf,p99=50ms", "it is not a number"}}) {
    const std::string option = text;
    EXPECT_ERROR(Value, wanted, serve_request(option));
    EXPECT_ERROR(Value, "--serve", serve_request(option));
  }
}

TEST(Asked, Choices) {
  EXPECT_EQ(one_of("eager", "--mode", {"compiled", "eager"}), "eager");
  EXPECT_ERROR(Value, "Did you mean 'compiled'? It is one of compiled, eager.",
               one_of("compile", "--mode", {"compiled", "eager"}));
  EXPECT_ERROR(Value, "Did you mean 'eager'?", one_of("Eager", "--mode", {"compiled", "eager"}));
}

TEST(Asked, Gpus) {
  const Catalog c = Catalog::built_in();
  for (const auto& [text, nearest] :
       std::vector<std::array<const char*, 2>>{{"rtx 4900", "'RTX 4090'"},
                                               {"h1oo", "'H100 SXM'"},
                                               {"A100-60GB", "'A100 40GB'"},
                                               {"v100", "'A100 80GB'"},
                                               {"l40", "'L40S'"},
                                               {"mi300x ultra", "'MI300X'"},
                                               {"8xh100", "--gpu 'H100 SXM' --n 8"},
                                               {"2x RTX 3090", "--gpu 'RTX 3090' --n 2"},
                                               {"-1", "Known are T4, L4"},
                                               {"$", "Known are T4, L4"},
                                               {"quantum computer", "Known are T4, L4"}}) {
    const std::string name = text;
    EXPECT_ERROR(Value, nearest, c.gpu(name));
    EXPECT_ERROR(Value, "'" + name + "'", c.gpu(name));
  }
}

// What is impossible names what is possible.
TEST(Asked, Constraints) {
  init();
  const Catalog catalog = Catalog::built_in();
  PlanRequest r = request("lenet", "T4");
  const auto ask = [&](auto change) {
    PlanRequest other = r;
    change(other);
    return thrown_by([&] { make_plan(other, catalog); });
  };
  const std::vector<std::pair<Thrown, const char*>> kTable = {
      {ask([](PlanRequest& q) { q.n = 0; }), "--n) of 0 cannot be planned. Give 1 to 100000"},
      {ask([](PlanRequest& q) { q.n = -4; }), "--n) of -4"},
      {ask([](PlanRequest& q) { q.batch = -1; }), "--batch) of -1"},
      {ask([](PlanRequest& q) { q.accumulate = 0; }), "--accumulate) of 0"},
      {ask([](PlanRequest& q) { q.sharding = 4; }),
       "--sharding) of 4 cannot be planned. Give 0 to 3"},
      {ask([](PlanRequest& q) { q.budget = -5; }), "--budget) of -5"},
      {ask([](PlanRequest& q) { q.budget = NAN; }), "--budget) of nan"},
      {ask([](PlanRequest& q) { q.deadline = -5; }), "--deadline) of -5"},
      {ask([](PlanRequest& q) { q.tokens = -5; }), "--tokens) of -5"},
      {ask([](PlanRequest& q) { q.epochs = 3; }), "epochs are of data. Give --data"},
      {ask([](PlanRequest& q) { q.budget = 5; }), "needs an end. Give --data with --epochs"},
      {ask([](PlanRequest& q) { q.term = "1 yaer"; }), "Did you mean '1 year'? It is one of spot"},
      {ask([](PlanRequest& q) { q.optimizer = "AdmW"; }), "Did you mean 'AdamW'"},
      {ask([](PlanRequest& q) { q.gpu = "t40"; }), "Did you mean 'T4'"}};
  for (const auto& [t, wanted] : kTable) {
    EXPECT_EQ(t.kind, ErrorKind::Value) << t.text;
    EXPECT_NE(t.text.find(wanted), std::string::npos) << t.text;
  }
  // A budget that no server keeps: the nearest one is named, and what it costs.
  r.tokens = 1e9;
  r.budget = 1e-9;
  const Plan p = make_plan(r, catalog);
  EXPECT_FALSE(p.within_limits);
  ASSERT_GE(p.notes.size(), 2u);
  EXPECT_NE(p.notes.back().find("No known server keeps the limits; the nearest: "),
            std::string::npos)
      << p.notes.back();
  EXPECT_NE(p.notes.back().find(show(p.at("other.cost"))), std::string::npos) << p.notes.back();
}

}  // namespace
}  // namespace tandem::plan
