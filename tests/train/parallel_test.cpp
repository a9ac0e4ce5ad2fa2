// SPDX-License-Identifier: Apache-2.0
// What TrainerOptions::parallel asks for must fit the ranks that there are.
#include <gtest/gtest.h>

#include "tests/support/environment.h"
#include "tests/support/errors.h"
#include "tests/support/init.h"
#include "tests/train/digits.h"

namespace tandem::train {
namespace {

struct ParallelNet : nn::Module {
  nn::Linear fc{64, 10};
  ParallelNet() { TD_REGISTER(fc); }
  Tensor forward(Tensor x) { return fc(x.flatten(1)); }
};

// What fit() says of these sizes.
std::string refusal(const ParallelOptions& parallel) {
  Work<ParallelNet> run;
  Trainer trainer(run.net, loss_of, run.opt,
                  {.max_epochs = 1, .parallel = parallel, .progress = false});
  return thrown([&] { trainer.fit(digits(true), digits(false)); }, ErrorKind::Value);
}

TEST(TrainerParallel, SizesThatOverflowAreRefused) {
  const int64_t much = int64_t{1} << 32;  // squared it is 0
  EXPECT_TRUE(
      has(refusal({.tp = much, .pp = much}), "asks for tp=4294967296, and there is 1 rank"));
  EXPECT_TRUE(has(refusal({.tp = 2, .dp = much}), "asks for dp=4294967296, and there is 1 rank"));
}

TEST(TrainerParallel, CopiesAreCounted) {
  EXPECT_TRUE(has(refusal({.dp = 4}), "asks for tp=1,pp=1,dp=4, 4 ranks, and there is 1"));
  const Environment rank("RANK", "0"), size("WORLD_SIZE", "2"), local("LOCAL_RANK", "0"),
      local_size("LOCAL_WORLD_SIZE", "2"), host("MASTER_ADDR", "127.0.0.1"),
      port("MASTER_PORT", "1");
  EXPECT_TRUE(has(refusal({.dp = 4}), "asks for tp=1,pp=1,dp=4, 4 ranks, and there are 2"));
}

}  // namespace
}  // namespace tandem::train
