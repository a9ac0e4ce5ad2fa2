// SPDX-License-Identifier: Apache-2.0
// The long list of faults: what a rank does, with every strategy, at several moments, on several
// engines and numbers of ranks. Each is named by all other ranks within its deadline, and no
// process is left. All of it runs where TANDEM_FAULT_MATRIX is set (`make test-dist`), else a few.
#include <gtest/gtest.h>
#include <unistd.h>

#include <set>
#include <thread>

#include "tandem/base/clock.h"
#include "tandem/base/files/file.h"
#include "tandem/compile/compile.h"
#include "tandem/dist/carrier_internal.h"
#include "tandem/dist/data_parallel.h"
#include "tandem/dist/parameter_server.h"
#include "tandem/dist/pipeline.h"
#include "tandem/dist/tensor_parallel.h"
#include "tandem/nn/nn.h"
#include "tandem/ops/ops.h"
#include "tandem/optim/optim.h"
#include "tests/dist/deeds_helper.h"
#include "tests/dist/ranks_helper.h"
#include "tests/support/environment.h"
#include "tests/support/errors.h"
#include "tests/support/init.h"

namespace tandem::distributed {
namespace {

// ---- the table

struct MatrixRow {
  std::string deed, strategy, moment, engine = "tcp";
  int ranks = 3, culprit = 1;
  std::string text() const {
    return fmt::format("matrix/{}/{}/{}/{}/{}/{}", deed, strategy, moment, engine, ranks, culprit);
  }
};
void PrintTo(const MatrixRow& r, std::ostream* out) { *out << r.text(); }

MatrixRow row_of(const std::string& text) {
  std::vector<std::string> words;
  for (size_t at = 0; at != text.npos;) {
    const size_t end = text.find('/', at);
    words.push_back(text.substr(at, end == text.npos ? end : end - at));
    at = end == text.npos ? end : end + 1;
  }
  TD_CHECK(words.size() == 7, Value, "a scenario of {} words: {}", words.size(), text);
  return {words[1], words[2], words[3], words[4], std::stoi(words[5]), std::stoi(words[6])};
}

// Do all ranks of the strategy make calls of all ranks, which are compared?
bool is_collective(const std::string& strategy) { return strategy != "ps" && strategy != "pp"; }

// Two servers and two workers; one of each does something.
void add_servers(std::vector<MatrixRow>& rows) {
  for (const int culprit : {1, 3}) {
    for (const char* deed : {"kill", "segv", "exit 7", "exit 0", "child", "stop", "hang", "throw",
                             "abort", "sleep", "deaf"})
      rows.push_back({deed, "two ps", "step", "tcp", 4, culprit});
    for (const char* deed : {"kill", "stop"})
      for (const char* moment : {"start", "update", "moving"})
        rows.push_back({deed, "two ps", moment, "tcp", 4, culprit});
  }
  for (const char* deed : {"none", "kill", "stop", "hang"})
    rows.push_back({deed, "two ps", "step", "tcp", 4, 0});
}

std::vector<MatrixRow> matrix() {
  std::vector<MatrixRow> rows;
  const std::vector<std::string> strategies{"ddp", "zero1", "zero2", "fsdp", "tp", "pp", "ps"};
  for (const std::string& s : strategies) {
    for (const char* deed : {"none", "kill", "segv", "exit 7", "exit 0", "child", "stop", "hang",
                             "throw", "abort", "sleep", "deaf"})
      rows.push_back({deed, s, "step"});
    if (is_collective(s))
      for (const char* deed : {"other call", "one call more"}) rows.push_back({deed, s, "step"});
    for (const char* deed : {"kill", "stop", "throw", "exit 0"}) rows.push_back({deed, s, "start"});
    for (const char* deed : {"kill", "stop", "throw"}) rows.push_back({deed, s, "update"});
    for (const char* deed : {"kill", "segv", "stop"}) rows.push_back({deed, s, "moving"});
    for (const char* deed : {"kill", "stop"})
      for (const int culprit : {0, 2}) rows.push_back({deed, s, "step", "tcp", 3, culprit});
    for (const char* deed : {"kill", "stop", "hang"})
      for (const int ranks : {2, 4}) rows.push_back({deed, s, "step", "tcp", ranks});
    if (s == "ps") rows.push_back({"hang", s, "step", "tcp", 3, 0});
    if (is_collective(s) && s != "tp")
      for (const char* engine : {"gloo", "mpi"})
        for (const char* moment : {"step", "moving"})
          for (const char* deed : {"kill", "stop"}) rows.push_back({deed, s, moment, engine});
  }
  add_servers(rows);
  // Steps that are one program each: between two of them, and while one moves bytes.
  for (const char* s : {"ddp compiled", "zero2 compiled", "fsdp compiled"}) {
    for (const char* deed : {"none", "kill", "exit 0", "stop", "hang", "throw", "abort", "sleep",
                             "other call", "one call more"})
      rows.push_back({deed, s, "step"});
    for (const char* deed : {"kill", "stop"}) rows.push_back({deed, s, "moving"});
  }
  return rows;
}

// ---- what a rank does

const MatrixRow* played = nullptr;

void maybe(Engine& e, const std::string& moment, int64_t step) {
  if (played->moment != moment || (moment != "start" && step != 3)) return;
  if (e.rank() == played->culprit) deeds().at(played->deed)(e);
}

// A large call is under way when the deed is done.
std::jthread deed_beside(Engine& e, int64_t step) {
  if (played->moment != "moving" || step != 3 || e.rank() != played->culprit) return {};
  return std::jthread([&e] {
    ::usleep(20000);
    deeds().at(played->deed)(e);
  });
}

constexpr int kMatrixSteps = 6;

nn::Sequential matrix_net() {
  // Of 12 million elements where bytes are to be on their way for long.
  const int64_t wide = played->moment == "moving" ? 2400 : 24;
  return nn::Sequential(nn::Linear(12, wide), nn::ReLU(), nn::Linear(wide, wide), nn::ReLU(),
                        nn::Linear(wide, 12), nn::ReLU(), nn::Linear(12, 12));
}

void play_data_parallel(Engine& e, nn::Sequential& net) {
  const std::string& s = played->strategy;
  const bool compiled = s.ends_with(" compiled");
  const Sharding sharding = s.starts_with("zero1")   ? Sharding::zero1
                            : s.starts_with("zero2") ? Sharding::zero2
                            : s.starts_with("fsdp")  ? Sharding::zero3
                                                     : Sharding::none;
  DataParallel model(net, {.sharding = sharding});
  optim::SGD opt(model.parameters(), {.lr = 0.01});
  auto update = [&] {
    opt.zero_grad();
    model(ones({2, 12})).sum().backward();
    opt.step();
    return zeros({});
  };
  auto program = compile(update);
  for (int step = 1; step <= kMatrixSteps; ++step) {
    maybe(e, "step", step);
    const std::jthread beside = deed_beside(e, step);
    if (compiled) {
      program();
      continue;
    }
    opt.zero_grad();
    model(ones({2, 12})).sum().backward();
    maybe(e, "update", step);
    opt.step();
  }
  if (sharding != Sharding::none) model.state_dict();
}

void play_tensor_parallel(Engine& e, nn::Sequential& net) {
  const TensorParallel spread =
      parallelize_module(net, {{"0", ColwiseParallel{}}, {"2", RowwiseParallel{}}}, world());
  optim::SGD opt(net.parameters(), {.lr = 0.01});
  for (int step = 1; step <= kMatrixSteps; ++step) {
    e.set_step(step);
    opt.zero_grad();
    maybe(e, "step", step);
    const std::jthread beside = deed_beside(e, step);
    net(ones({played->moment == "moving" ? 4000 : 2, 12})).sum().backward();
    maybe(e, "update", step);
    opt.step();
  }
  spread.state_dict();
}

void play_pipeline(Engine& e, nn::Sequential& net) {
  const std::vector<int64_t> split = balanced_split(std::vector<double>(net.size(), 1.0), e.size());
  nn::Sequential part = stage_of(net, split, e.rank());
  optim::SGD opt(net.parameters(), {.lr = 0.01});
  Schedule1F1B schedule({part, e.rank(), e.size()}, 8,
                        [](const Tensor& out, const Tensor&) { return out.sum(); });
  const int64_t rows = played->moment == "moving" ? 8000 : 16;
  for (int step = 1; step <= kMatrixSteps; ++step) {
    e.set_step(step);
    opt.zero_grad();
    maybe(e, "step", step);
    const std::jthread beside = deed_beside(e, step);
    schedule.step(ones({rows, 12}), ones({rows, 12}));
    maybe(e, "update", step);
    opt.step();
  }
}

void play_server(Engine& e, nn::Sequential& net) {
  ParameterServer server(net, {.staleness = 2, .servers = played->strategy == "two ps" ? 2 : 1});
  optim::SGD opt(net.parameters(), {.lr = 0.01});
  server.shard_optimizer(opt);
  int64_t own = 0;
  std::vector<std::jthread> beside;
  server.run(
      8 * kMatrixSteps,
      [&](const ServerTask&) {
        maybe(e, "step", ++own);
        beside.push_back(deed_beside(e, own));
        net(ones({2, 12})).sum().backward();
        maybe(e, "update", own);
      },
      [&] {
        ++own;
        maybe(e, "step", own);
        beside.push_back(deed_beside(e, own));
        server.clip_grad_norm_(opt.params(), 1);
        opt.step();
        maybe(e, "update", own);
      });
}

void play_row(const MatrixRow& row) {
  played = &row;
  Engine& e = *world();
  maybe(e, "start", 0);
  nn::Sequential net = matrix_net();
  if (row.strategy == "tp")
    play_tensor_parallel(e, net);
  else if (row.strategy == "pp")
    play_pipeline(e, net);
  else if (row.strategy.ends_with("ps"))
    play_server(e, net);
  else
    play_data_parallel(e, net);
}

TEST(FaultChild, PlaysARow) {
  if (!scenario().starts_with("matrix")) GTEST_SKIP() << "played by other tests";
  const MatrixRow row = row_of(scenario());
  try {
    play_row(row);
  } catch (const Error& e) {
    fmt::print(stderr, "error {}: {}\n", to_string(e.kind()), e.what());
    std::fflush(stderr);
    ::_exit(70);
  }
  fmt::print("trained\n");
}

// ---- what is expected of it

// What others say of the culprit, one of these.
std::vector<std::string> findings_of(const MatrixRow& r) {
  if (r.deed == "kill" || r.deed == "segv" || r.deed == "exit 7")
    return {"is dead: its connections closed without a word"};
  // Its child holds the connections open.
  if (r.deed == "child") return {"is dead", "has not answered for 3."};
  if (r.deed == "stop") return {"has not answered for 3."};
  if (r.deed == "hang" || r.deed == "deaf")
    return {"lives but has not made call #", "has waited 4.0 s", "has waited 48.0 s"};
  if (r.deed == "exit 0" || r.deed == "throw")
    return {"has left the group", "is dead", "backward() has thrown there",
            "training has failed on the parameter server"};
  if (r.deed == "abort") return {"has ended the group: the disk is full"};
  return {"make different calls", "'the rate'", "'the loss'"};
}

int code_of(const MatrixRow& r) {
  if (r.deed == "none" || r.deed == "sleep") return 0;
  if (r.deed == "kill") return 137;
  if (r.deed == "segv") return 139;
  if (r.deed == "exit 7") return 7;
  if (r.deed == "child") return 9;
  return 70;
}

// A line of that rank's that names the culprit and what was found: of its error, or, while a
// carrier holds it up, of its end.
bool names(const std::string& err, int rank, const MatrixRow& r) {
  const std::string who = fmt::format("rank {} (host ", r.culprit);
  const std::string begin = fmt::format("[{}] ", rank);
  for (size_t at = err.find(begin); at != err.npos; at = err.find(begin, at + 1)) {
    const std::string line = err.substr(at, err.find('\n', at) - at);
    if (!line.starts_with(begin + "error") && !line.starts_with(begin + "tandem: rank")) continue;
    for (const std::string& f : findings_of(r))
      if (has(line, f) && (has(line, who) || has(line, fmt::format("rank {} ", r.culprit))))
        return true;
  }
  return false;
}

// mpirun ends the others of a rank that fails, unless it is told not to; of a rank that is stopped
// or hangs it learns by them, and has to end it then.
void expect_named_under_mpirun(const MatrixRow& r) {
  if (std::system("command -v mpirun >/dev/null") != 0) GTEST_SKIP() << "there is no mpirun";
  const bool gone = r.deed == "kill";
  const Played p = play_by_mpirun(r.text(), r.ranks, gone);
  EXPECT_TRUE(gone || p.result.code != 0) << p.err;  // with --enable-recovery it gives 0
  EXPECT_NE(p.result.code, 124) << p.err;            // it hung
  int named = 0;
  for (int rank = 0; rank < r.ranks; ++rank) named += rank != r.culprit && names(p.err, rank, r);
  EXPECT_GE(named, gone ? r.ranks - 1 : 1) << p.err;
  EXPECT_LT(p.seconds, 25);
  EXPECT_EQ(p.left, 0);
}

class FaultMatrix : public ::testing::TestWithParam<MatrixRow> {};

TEST_P(FaultMatrix, IsNamed) {
  const MatrixRow& r = GetParam();
  static const std::set<std::string> kAlways{
      "matrix/kill/ps/step/tcp/3/1",       "matrix/stop/ps/step/tcp/3/2",
      "matrix/hang/ps/step/tcp/2/1",       "matrix/kill/two ps/step/tcp/4/1",
      "matrix/stop/two ps/step/tcp/4/1",   "matrix/hang/two ps/step/tcp/4/1",
      "matrix/kill/two ps/update/tcp/4/3", "matrix/kill/two ps/step/tcp/4/0",
      "matrix/none/two ps/step/tcp/4/0",   "matrix/kill/pp/step/tcp/3/1",
      "matrix/kill/tp/step/tcp/3/1",       "matrix/none/ps/step/tcp/3/1"};
  if (!std::getenv("TANDEM_FAULT_MATRIX") && !kAlways.count(r.text()))
    GTEST_SKIP() << "one of make test-dist";
  if (r.engine != "tcp" && !find_plugin(r.engine).carrier)
    GTEST_SKIP() << find_plugin(r.engine).problem;
  const Environment engine("TANDEM_DIST_ENGINE", r.engine);
  if (r.engine == "mpi") return expect_named_under_mpirun(r);
  const Played p = play(r.text(), r.ranks);
  EXPECT_EQ(p.result.code, code_of(r)) << p.err;
  if (code_of(r) == 0) {
    EXPECT_EQ(count(p.out, "trained\n"), static_cast<size_t>(r.ranks)) << p.out << p.err;
  } else {
    for (int rank = 0; rank < r.ranks; ++rank)
      EXPECT_TRUE(rank == r.culprit || names(p.err, rank, r)) << "rank " << rank << "\n" << p.err;
  }
  const bool late = r.culprit == 0 && r.strategy.ends_with("ps") && r.deed == "hang";
  EXPECT_LT(p.seconds, late ? 60 : 25);
  EXPECT_EQ(p.left, 0);
}
INSTANTIATE_TEST_SUITE_P(Rows, FaultMatrix, ::testing::ValuesIn(matrix()));

TEST(FaultRows, AreTwoHundredAndDiffer) {
  std::set<std::string> all;
  for (const MatrixRow& r : matrix()) {
    all.insert(r.text());
    EXPECT_EQ(row_of(r.text()).text(), r.text());
  }
  EXPECT_EQ(all.size(), matrix().size());
  EXPECT_GE(all.size(), 200u);
}

}  // namespace
}  // namespace tandem::distributed
