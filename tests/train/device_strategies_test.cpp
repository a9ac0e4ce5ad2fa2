// SPDX-License-Identifier: Apache-2.0
// MirroredStrategy and MultiWorkerMirroredStrategy: a program that is started once trains on
// several ranks, with the weights of one.
#include <gtest/gtest.h>
#include <sys/wait.h>

#include <cstdlib>

#include "tandem/dist/environment.h"
#include "tandem/dist/launch.h"
#include "tandem/tandem.h"
#include "tests/io/io_helper.h"
#include "tests/support/environment.h"
#include "tests/support/errors.h"
#include "tests/support/init.h"
#include "tests/train/child.h"

namespace tandem::train {
namespace {

constexpr const char* kFolder = "TANDEM_TEST_STRATEGY";
constexpr const char* kMachines = "TANDEM_TEST_MACHINES";

// What the program of a user of Keras does; the values of its weights and its loss.
std::pair<StateDict, double> trained() {
  manual_seed(5);
  nn::Sequential net(nn::Linear(8, 16), nn::ReLU(), nn::Linear(16, 3));
  const Tensor x = randn({96, 8}), y = argmax(x.narrow(1, 0, 3), 1);
  Model model(net);
  model.compile({.optimizer = optim::AdamOptions{.lr = 0.01},
                 .loss = "sparse_categorical_crossentropy",
                 .metrics = {"accuracy"}});
  const auto h = model.fit(x, y, {.batch_size = 24, .epochs = 3, .verbose = 0});
  EXPECT_EQ(model.predict(x).size(0), 96);
  return {net.state_dict(), (*h)["loss"].back()};
}

template <class Strategy>
void train_in_scope(const std::string& folder) {
  const Strategy strategy({.device = "cpu", .devices = 2});
  const auto scope = strategy.scope();
  auto [weights, loss] = trained();
  weights["loss"] = tensor(loss);
  weights["replicas"] = tensor(strategy.num_replicas_in_sync());
  if (strategy.is_chief()) save(weights, folder + "/weights.safetensors");
}

// Started by the tests below; by itself it does nothing.
TEST(StrategyChild, Trains) {
  const char* folder = std::getenv(kFolder);
  if (!folder) GTEST_SKIP() << "started by other tests";
  if (std::getenv(kMachines))
    train_in_scope<MultiWorkerMirroredStrategy>(folder);
  else
    train_in_scope<MirroredStrategy>(folder);
}

int code_of(pid_t child) {
  int status = 0;
  ::waitpid(child, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

void expect_those_of_one_rank(const std::string& folder, int64_t replicas) {
  const StateDict got = load(folder + "/weights.safetensors");
  EXPECT_EQ(got.at("replicas").to(int64).item<int64_t>(), replicas);
  const auto [want, loss] = trained();
  EXPECT_NEAR(got.at("loss").to(float64).item<double>(), loss, 1e-5);
  for (const auto& [name, value] : want)
    EXPECT_TRUE(allclose(got.at(name), value, 1e-5, 1e-6)) << name;
}

TEST(DeviceStrategies, MirroredStartsARankForEachDevice) {
  const TempFolder folder;
  ASSERT_EQ(code_of(start_child("StrategyChild.Trains", kFolder, folder.path().string())), 0);
  expect_those_of_one_rank(folder.path().string(), 2);
}

TEST(DeviceStrategies, WorkersOfTfConfigTrainTogether) {
  const TempFolder folder;
  const Environment token("TANDEM_TOKEN", "of this test alone"), machines(kMachines, "1");
  const std::string cluster = fmt::format(
      "{{\"cluster\": {{\"worker\": [\"127.0.0.1:{0}\", \"127.0.0.1:{1}\"]}}, \"task\": ",
      20000 + ::getpid() % 20000, 45000 + ::getpid() % 10000);
  std::vector<pid_t> workers;
  for (int k = 0; k < 2; ++k) {
    const std::string task = fmt::format("{{\"type\": \"worker\", \"index\": {}}}}}", k);
    const Environment config("TF_CONFIG", (cluster + task).c_str());
    workers.push_back(start_child("StrategyChild.Trains", kFolder, folder.path().string()));
  }
  for (const pid_t w : workers) EXPECT_EQ(code_of(w), 0);
  expect_those_of_one_rank(folder.path().string(), 4);
}

TEST(DeviceStrategies, OneDeviceIsThisProcess) {
  const MirroredStrategy one({.device = "cpu"});
  EXPECT_EQ(one.num_replicas_in_sync(), 1);
  EXPECT_TRUE(one.is_chief());
  EXPECT_EQ(one.device(), cpu);
  EXPECT_EQ(DeviceStrategy::current(), nullptr);
  {
    const auto scope = one.scope();
    EXPECT_EQ(DeviceStrategy::current(), &one);
    const MultiWorkerMirroredStrategy other({.device = "cpu"});
    {
      const auto inner = other.scope();
      EXPECT_EQ(DeviceStrategy::current(), &other);
    }
    EXPECT_EQ(DeviceStrategy::current(), &one);
  }
  EXPECT_EQ(DeviceStrategy::current(), nullptr);
}

TEST(DeviceStrategies, WhatCannotBeSaysSo) {
  EXPECT_TRUE(has(thrown([] { MirroredStrategy({.device = "cpu", .devices = 0}); }),
                  "expects at least one device, or -1 for all, got 0"));
  EXPECT_TRUE(has(thrown([] { MirroredStrategy({.device = "abacus", .devices = 2}); }), "abacus"));
  const Environment rank("RANK", "0"), size("WORLD_SIZE", "4"), local("LOCAL_RANK", "0"),
      local_size("LOCAL_WORLD_SIZE", "2"), host("MASTER_ADDR", "127.0.0.1"),
      port("MASTER_PORT", "1");
  EXPECT_TRUE(has(thrown([] { MirroredStrategy({.device = "cpu"}); }),
                  "this job has 2 of its 4 ranks on others"));
}

// Each rank takes its part of one batch, so the batches must be the same.
TEST(DeviceStrategies, OtherDataOnOneRankIsNamed) {
  const TempFolder folder;
  const Environment other("TANDEM_TEST_OTHER_SEED", folder.path().c_str());
  ::testing::internal::CaptureStderr();
  const distributed::LaunchResult r = distributed::launch(
      {.ranks = 2, .command = {"/proc/self/exe", "--gtest_filter=StrategyChild.HasAnotherSeed"}});
  const std::string err = ::testing::internal::GetCapturedStderr();
  EXPECT_EQ(r.code, 0) << err;
  EXPECT_TRUE(file_exists((folder.path() / "0").string()) &&
              file_exists((folder.path() / "1").string()))
      << err;
}

TEST(StrategyChild, HasAnotherSeed) {
  const char* folder = std::getenv("TANDEM_TEST_OTHER_SEED");
  const int rank = distributed::find_place().rank;
  if (!folder || distributed::find_place().size == 1) GTEST_SKIP() << "started by another test";
  nn::Linear net(8, 3);
  Model model(net);
  model.compile({.loss = "mse"});
  auto batches = data::pipeline(data::TensorDataset(zeros({8, 8}), zeros({8, 3})),
                                {.seed = static_cast<uint64_t>(rank)})
                     .shuffle()
                     .batch(4);
  const std::string text = thrown([&] { model.fit(batches, {.verbose = 0}); }, ErrorKind::Value);
  ASSERT_TRUE(has(text, "rank 0 has 2 batches, seed 0, rank 1 has 2 batches, seed 1")) << text;
  write_file(fmt::format("{}/{}", folder, rank), "");
}

}  // namespace
}  // namespace tandem::train
