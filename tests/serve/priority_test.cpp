// SPDX-License-Identifier: Apache-2.0
// Which of those that wait runs first, who gives up its place, and who is told that it waited too
// long.
#include <fmt/ranges.h>
#include <gtest/gtest.h>

#include <functional>

#include "tandem/ops/ops.h"
#include "tandem/serve/model/priority_internal.h"
#include "tandem/serve/refusal_internal.h"
#include "tests/serve/jobs_helper.h"
#include "tests/support/init.h"

namespace tandem::serve {
namespace {

// The instance is busy: jobs of these levels come, and run one by one in this order.
struct Levels {
  double step;  ///< seconds that a level is worth
  std::vector<int64_t> come;
  std::vector<int> run;  ///< their places in `come`
  size_t queue = 8;
  int displaced = -1;  ///< the place of the one that makes room
};
TEST(Scheduler, WhatWaitsRunsByItsLevel) {
  const Levels kCases[] = {
      {0, {0, 0, 0}, {0, 1, 2}},
      {0, {3, 1, 2, 1, 3}, {1, 3, 2, 0, 4}},
      {1e3, {3, 1, 2, 1, 3}, {1, 3, 2, 0, 4}},
      {1e-9, {3, 1, 2, 1, 3}, {0, 1, 2, 3, 4}},  // all have waited long enough
      {0, {2, 3, 3, 1}, {3, 0, 1}, 3, 2},
      {0, {1, 2, 2}, {0, 1}, 2, 2},  // the last comes after all that wait: it is refused itself
      {0, {2, 2, 2}, {0, 1}, 2, 2},
  };
  const auto model = servable(scale_model(2), {.max_batch = 1});
  for (const Levels& c : kCases) {
    SCOPED_TRACE(fmt::format("step {}, levels {}", c.step, fmt::join(c.come, " ")));
    std::mutex lock;
    std::vector<int> ran, refused;
    std::atomic<size_t> answered{0};
    Scheduler s(model, {.queue = c.queue, .priority_step = c.step});
    std::unique_lock busy(model->lock_of(0));
    for (size_t i = 0; i < c.come.size(); ++i)
      s.submit(
          {.inputs = {ones({1, 4})}, .priority = c.come[i], .done = [&, i](const JobResult& r) {
             const std::lock_guard hold(lock);
             (r.status == 200 ? ran : refused).push_back(static_cast<int>(i));
             EXPECT_TRUE(r.status == 200 || r.status == 429) << r.status;
             ++answered;
           }});
    busy.unlock();
    for (int i = 0; i < 4000 && answered < c.come.size(); ++i)
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
    const std::lock_guard hold(lock);
    EXPECT_EQ(ran, c.run);
    EXPECT_EQ(refused, c.displaced < 0 ? std::vector<int>() : std::vector<int>{c.displaced});
    const JobCounts& n = s.counts();
    EXPECT_EQ(n.accepted, n.ok + n.displaced);
    EXPECT_EQ(n.displaced + n.rejected, refused.size());
    EXPECT_EQ(n.failed, 0u);
  }
}

// One of the last level waits behind others that never end: its time is over all the same. And
// steps of a sequence keep their places.
TEST(Scheduler, WhoWaitsBehindOthersIsToldInTime) {
  const auto model = servable(scale_model(2), {.max_batch = 1});
  Sent first, late, step;
  Scheduler s(model, {.queue = 3});
  std::unique_lock busy(model->lock_of(0));
  Job of_sequence = step.job({ones({1, 4})});
  of_sequence.priority = 3;
  of_sequence.stays = true;
  s.submit(std::move(of_sequence));
  Job brief = late.job({ones({1, 4})});
  brief.priority = 2;
  brief.timeout = 0.02;
  s.submit(std::move(brief));
  const auto next = [&] {
    Job j = first.job({ones({1, 4})});
    j.priority = 1;
    s.submit(std::move(j));
  };
  next();
  EXPECT_EQ(late.count + step.count, 0);
  next();  // no place: the last in the queue is of a sequence
  EXPECT_EQ(first.with(429), 1);
  std::this_thread::sleep_for(std::chrono::milliseconds(40));
  next();  // in the place of the one that is late, while the instance is still busy
  EXPECT_EQ(late.with(504), 1);
  EXPECT_EQ(first.with(429), 1);
  busy.unlock();
  ASSERT_TRUE(step.wait(1) && first.wait(3));
  EXPECT_EQ(step.with(200), 1);
  EXPECT_EQ(s.counts().expired, 1u);
}

TEST(Scheduler, StarvedJobsAreToldWhileOthersRun) {
  const auto model = servable(scale_model(2), {.max_batch = 1});
  Sent late;
  std::atomic<bool> over{false};
  std::atomic<int> ran{0};
  Scheduler s(model, {});
  std::function<void()> next = [&] {  // two of the first level wait at any time
    s.submit({.inputs = {ones({1, 4})}, .priority = 1, .done = [&](const JobResult&) {
                ++ran;
                if (!over) next();
              }});
  };
  {
    const std::unique_lock busy(model->lock_of(0));
    next();
    next();
    Job brief = late.job({ones({1, 4})});
    brief.priority = 2;
    brief.timeout = 0.02;
    s.submit(std::move(brief));
  }
  EXPECT_TRUE(late.wait(1));
  EXPECT_EQ(late.with(504), 1);
  over = true;
  for (int i = 0; i < 4000 && s.counts().ok + s.counts().expired < s.counts().accepted; ++i)
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  EXPECT_GT(ran, 0);
}

TEST(Scheduler, ARequestsLevelIsItsOwnOrTheModels) {
  ModelSettings s;
  EXPECT_EQ(priority_of(s, 0), 0);
  EXPECT_EQ(priority_of(s, 70), 0);
  s.priority_levels = 3;
  EXPECT_EQ(priority_of(s, 0), 3);
  EXPECT_EQ(priority_of(s, 1), 1);
  s.default_priority = 2;
  EXPECT_EQ(priority_of(s, 0), 2);
  EXPECT_THROW(priority_of(s, 4), Refusal);
  EXPECT_THROW(priority_of(s, -1), Refusal);
}

}  // namespace
}  // namespace tandem::serve
