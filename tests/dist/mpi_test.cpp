// SPDX-License-Identifier: Apache-2.0
// The same calls and the same training on ranks that mpirun has started: MPI allows one rank a
// process.
#include <gtest/gtest.h>
#include <sys/wait.h>

#include <cstdio>
#include <cstdlib>
#include <filesystem>

#include "tandem/dist/carrier_internal.h"
#include "tandem/dist/data_parallel.h"
#include "tandem/nn/nn.h"
#include "tandem/ops/ops.h"
#include "tandem/optim/optim.h"
#include "tests/dist/calls_helper.h"
#include "tests/dist/ranks_helper.h"
#include "tests/support/environment.h"
#include "tests/support/errors.h"
#include "tests/support/init.h"

namespace tandem::distributed {
namespace {

// The loss of an MLP after some steps on whole batches of 12 rows, of which each rank has its part.
double loss_after_training(const std::shared_ptr<Engine>& e) {
  manual_seed(3);
  nn::Sequential net(nn::Linear(16, 300), nn::ReLU(), nn::Linear(300, 4));  // a bucket of 25 kB
  DataParallel model(net, {}, e);
  optim::SGD opt(net.parameters(), {.lr = 0.05});
  const Tensor x = randn({12, 16}), y = randint(0, 4, {12});
  const int64_t rows = 12 / e->size(), first = e->rank() * rows;
  for (int step = 0; step < 5; ++step) {
    opt.zero_grad();
    cross_entropy(model(narrow(x, 0, first, rows)), narrow(y, 0, first, rows)).backward();
    opt.step();
  }
  const NoGradGuard no_grad;
  return cross_entropy(net(x), y).item<float>();
}

// What the test below has mpirun start; by itself there is nothing to play.
TEST(MpiChild, Plays) {
  if (scenario() != "mpi") GTEST_SKIP() << "played by the other test";
  const std::shared_ptr<Engine> e = world();
  ASSERT_STREQ(e->name(), "mpi");
  check_all_calls(*e);
  const std::shared_ptr<Engine> half = e->split(e->rank() % 2, -e->rank());
  if (half->size() > 1) {
    ASSERT_STREQ(half->name(), "mpi");
    check_all_calls(*half);
  }
  fmt::print("loss {:.7f}\n", loss_after_training(e));
}

struct Output {
  int code = 0;
  std::string text;
};
Output output_of(const std::string& command) {
  Output o;
  FILE* f = ::popen((command + " 2>&1").c_str(), "r");
  char part[4096];
  while (const size_t n = std::fread(part, 1, sizeof part, f)) o.text.append(part, n);
  const int status = ::pclose(f);
  o.code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  return o;
}

TEST(Mpi, CallsAndTrainingAsOnOneRank) {
  if (!find_plugin("mpi").carrier) GTEST_SKIP() << find_plugin("mpi").problem;
  if (std::system("command -v mpirun >/dev/null") != 0) GTEST_SKIP() << "there is no mpirun";
  const std::string self = std::filesystem::read_symlink("/proc/self/exe");
  const Environment engine("TANDEM_DIST_ENGINE", "mpi"), name("TANDEM_TEST_SCENARIO", "mpi"),
      root("OMPI_ALLOW_RUN_AS_ROOT", "1"), sure("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1"),
      many("OMPI_MCA_rmaps_base_oversubscribe", "1"),
      port("MASTER_PORT", std::to_string(some_port())),
      token("TANDEM_TOKEN", "a token of the tests"), one("TANDEM_NUM_THREADS", "1");
  // Open MPI leaves memory behind, in parts that it has closed by then, so no suppression names
  // them.
  const char* options = std::getenv("ASAN_OPTIONS");
  const Environment leaks("ASAN_OPTIONS", std::string(options ? options : "") + ":detect_leaks=0");
  const Output o = output_of("mpirun -n 4 " + self + " --gtest_filter=MpiChild.Plays");
  EXPECT_EQ(o.code, 0) << o.text;
  const double want = loss_after_training(single_engine());
  int losses = 0;
  for (size_t at = 0; (at = o.text.find("loss ", at)) != o.text.npos; ++at, ++losses)
    EXPECT_NEAR(std::atof(o.text.c_str() + at + 5), want, 1e-5) << o.text;
  EXPECT_EQ(losses, 4) << o.text;
}

TEST(Mpi, SaysHowItWantsToBeStarted) {
  if (!find_plugin("mpi").carrier) GTEST_SKIP() << find_plugin("mpi").problem;
  const Environment engine("TANDEM_DIST_ENGINE", "mpi");
  const Played p = play("mpi", 2);
  EXPECT_NE(p.result.code, 0);
  EXPECT_TRUE(has(p.err + p.out, "Start the program by mpirun or srun")) << p.err << p.out;
}

TEST(Engines, ThatAreNotThere) {
  const Environment folders("TANDEM_CARRIERS", "/no/such/folder");
  const auto text = [](const char* name, ErrorKind kind) {
    EngineOptions o = quick_options();
    o.engine = name;
    return thrown([&] { make_engine(place_of(0, 2, 1), o); }, kind);
  };
  const std::string none = text("nccl", ErrorKind::Unsupported);
  EXPECT_TRUE(has(none,
                  "there is no engine 'nccl': there is no libtandem_nccl.so in "
                  "/no/such/folder, "))
      << none;
  EXPECT_TRUE(has(none, "Engines are auto, tcp, gloo, mpi, and plugins in the folders of"));
  EXPECT_TRUE(
      has(text("../gloo", ErrorKind::Value), "lower-case letters, digits and '_', got '../gloo'"));
  EXPECT_TRUE(has(
      thrown([] { launch({.ranks = 2, .command = {"true"}, .engine = "mpi"}); }, ErrorKind::Value),
      "mpirun -n 2"));
}

// A plugin of the user's own, by its file's name.
TEST(Engines, FromAFolderOfTheUsers) {
  if (!find_plugin("gloo").carrier) GTEST_SKIP() << find_plugin("gloo").problem;
  char folder[] = "/tmp/tandem-ranks-XXXXXX";
  ASSERT_NE(::mkdtemp(folder), nullptr);
  std::filesystem::copy(find_plugin("gloo").path, std::string(folder) + "/libtandem_own.so");
  const Environment folders("TANDEM_CARRIERS", folder);
  EngineOptions o = quick_options();
  o.engine = "own";
  run_ranks(
      2,
      [](const std::shared_ptr<Engine>& e) {
        EXPECT_STREQ(e->name(), "gloo");  // what it calls itself
        check_calls<float>(*e, 30000);
      },
      o);
  std::filesystem::remove_all(folder);
}

}  // namespace
}  // namespace tandem::distributed
