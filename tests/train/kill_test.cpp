// SPDX-License-Identifier: Apache-2.0
// SIGKILL at random moments of a language model's run by the Trainer, including during saves:
// whatever was left, the next start resumes, and the end equals the undisturbed run's to the bit.
// TANDEM_KILLS sets how many (10), TANDEM_KILL_STEPS how long the run is.
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <thread>

#include "tandem/base/philox.h"
#include "tandem/tandem.h"
#include "tests/io/io_helper.h"
#include "tests/support/init.h"
#include "tests/train/child.h"

namespace tandem::train {
namespace {

using Clock = std::chrono::steady_clock;

int64_t asked(const char* name, int64_t otherwise) {
  const char* text = std::getenv(name);
  return text ? std::atoll(text) : otherwise;
}

/// Windows of a text: Shakespeare's if the data is there, else a generated one.
struct Characters {
  Tensor ids;
  int64_t block;
  int64_t size() const { return ids.numel() - block; }
  data::Example get(int64_t i) const {
    return {narrow(ids, 0, i, block), narrow(ids, 0, i + 1, block)};
  }
};
Characters characters() {
  std::string text;
  const char* root = std::getenv("TANDEM_DATA");
  const std::string path = std::string(root ? root : "") + "/text/tinyshakespeare.txt";
  if (root && file_exists(path)) text = read_file(path).substr(0, 20000);
  PhiloxStream draw(5);
  while (text.size() < 20000)
    text += static_cast<char>('a' + (text.size() * text.size() + draw.next_below(3)) % 26);
  std::vector<int64_t> ids;
  for (const char c : text) ids.push_back(static_cast<unsigned char>(c) % 96);
  return {tensor(ids), 32};
}

// The child of the next test; by itself it is a short run that must end.
TEST(KillChild, Characters) {
  const char* given = std::getenv("TANDEM_TEST_CHARACTERS");
  TempFolder own;
  const std::string folder = given ? given : own.path().string();
  const int64_t steps = given ? asked("TANDEM_KILL_STEPS", 150) : 12;
  manual_seed(7);
  models::GPT net(
      {.vocabulary = 96, .context = 32, .layers = 2, .heads = 2, .width = 48, .dropout = 0.1});
  optim::AdamW opt(net.parameters(), {.lr = 1e-3});
  optim::CosineAnnealingLR schedule(opt, {.T_max = steps});
  Trainer trainer(net,
                  [&](const Batch& b) {
                    const Tensor out = net(b[0]).flatten(0, 1), y = b[1].flatten();
                    return StepOutput{cross_entropy(out, y), out, y};
                  },
                  opt,
                  {.max_epochs = 100,
                   .max_steps = steps,
                   .clip_norm = 1.0,
                   .metrics = {"accuracy"},
                   .folder = folder,
                   .progress = false,
                   .saving = {.every_steps = 3}});
  trainer.schedule(schedule);
  const FitResult r = trainer.fit(
      data::pipeline(characters(), {.seed = 3}, "characters").shuffle().take(400).batch(8));
  EXPECT_EQ(r.steps, steps);
  save(net.state_dict(), folder + "/final.safetensors");
}

TEST(KillSlow, CharactersAtAnyMoment) {
  TempFolder f;
  std::filesystem::create_directory(f / "whole");
  int status = 0;
  const auto begin = Clock::now();
  ::waitpid(start_child("KillChild.Characters", "TANDEM_TEST_CHARACTERS", f / "whole"), &status, 0);
  const auto whole = std::chrono::duration_cast<std::chrono::milliseconds>(Clock::now() - begin);
  ASSERT_EQ(status, 0);
  const StateDict want = load(f / "whole/final.safetensors");
  const int64_t kills = asked("TANDEM_KILLS", 10);
  PhiloxStream draw(2025);
  int64_t killed = 0;
  int ended = 0;
  for (int runs = 0; killed < kills; ++runs) {
    const std::string folder = f / fmt::format("run{}", runs);
    std::filesystem::create_directory(folder);
    for (bool going = true; going;) {
      const pid_t child = start_child("KillChild.Characters", "TANDEM_TEST_CHARACTERS", folder);
      if (killed < kills) {
        const auto most = static_cast<uint64_t>(whole.count());
        std::this_thread::sleep_for(std::chrono::milliseconds(20 + draw.next_below(most)));
        ::kill(child, SIGKILL);
      }
      ::waitpid(child, &status, 0);
      killed += WIFSIGNALED(status);
      going = WIFSIGNALED(status);
    }
    ASSERT_EQ(status, 0);
    ++ended;
    const StateDict got = load(folder + "/final.safetensors");
    ASSERT_EQ(got.size(), want.size());
    for (const auto& [name, value] : want) EXPECT_TRUE(equal(got.at(name), value)) << name;
    std::filesystem::remove_all(folder);
  }
  std::printf("%d kills, %d runs came to the undisturbed run's weights\n", static_cast<int>(killed),
              ended);
}

}  // namespace
}  // namespace tandem::train
