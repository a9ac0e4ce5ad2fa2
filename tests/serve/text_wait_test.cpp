// SPDX-License-Identifier: Apache-2.0
// Texts that wait: who is told that it came too late, who is not, and who is read at once.
#include <atomic>
#include <future>
#include <thread>

#include "tandem/serve/text/text_engine.h"
#include "tests/serve/serve_helper.h"
#include "tests/serve/text_helper.h"
#include "tests/support/init.h"

namespace tandem::serve {
namespace {

// Prompts that come while a step runs are read in the next one, as many as its rows have room for.
TEST(Engine, ShortPromptsAreReadTogether) {
  const auto model = golden_model("llama");
  const std::vector<std::vector<int64_t>> prompts = {
      {4, 5, 6}, {7, 8, 9, 10}, {2, 3}, {25, 26, 27, 28, 29}};
  for (const auto& [piece, steps] : {std::pair<int64_t, uint64_t>{64, 1}, {32, 2}, {4, 4}}) {
    TextEngine engine(model, {.streams = 5, .length = 20, .block = 4, .piece = piece});
    // Texts are admitted between two steps: the first answer waits until all are there.
    std::promise<void> begun, all_there;
    TextRequest first{.prompt = {3}, .options = likeliest(1)};
    first.token = [&, wait = all_there.get_future().share()](const TextToken&) {
      begun.set_value();
      wait.wait();
      return true;
    };
    engine.submit(std::move(first));
    begun.get_future().wait();
    std::vector<std::future<void>> ends;
    std::vector<std::vector<int64_t>> got(prompts.size());
    for (size_t i = 0; i < prompts.size(); ++i) {
      auto end = std::make_shared<std::promise<void>>();
      ends.push_back(end->get_future());
      engine.submit({.prompt = prompts[i],
                     .options = likeliest(9),
                     .token =
                         [&, i](const TextToken& t) {
                           got[i].push_back(t.id);
                           return true;
                         },
                     .done = [end](const TextEnd&) { end->set_value(); }});
    }
    all_there.set_value();
    for (std::future<void>& f : ends) f.get();
    for (size_t i = 0; i < prompts.size(); ++i)
      EXPECT_EQ(got[i], models::generate(*model, {prompts[i]}, likeliest(9))[0]) << i;
    EXPECT_EQ(engine.counts().prompt_steps.load(), steps) << piece;
  }
}

// A text that has run is not told that it came too late when it starts again.
TEST(Engine, PatienceEndsWithTheFirstStep) {
  TextEngine engine(golden_model("llama"),
                    {.streams = 3, .length = 20, .cache_tokens = 24, .block = 4});
  std::vector<std::future<TextEnd>> ends;
  for (const int64_t first : {3, 7, 11}) {
    auto end = std::make_shared<std::promise<TextEnd>>();
    ends.push_back(end->get_future());
    TextRequest r{.prompt = {first, first + 1, first + 2, first + 3}, .options = likeliest(16)};
    r.timeout = 0.25;
    r.token = [](const TextToken&) {
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
      return true;
    };
    r.done = [end](const TextEnd& e) { end->set_value(e); };
    engine.submit(std::move(r));
  }
  for (std::future<TextEnd>& e : ends) EXPECT_EQ(e.get().status, 200);
  EXPECT_GT(engine.counts().preempted.load(), 0U);
}

// Texts that wait while all streams are busy: those whose client has left, and those that have
// waited too long, are answered between two tokens of others, and make room.
TEST(Engine, WhoWaitsInVainIsToldSo) {
  TextEngine engine(golden_model("gpt2"), {.streams = 1, .length = 20, .block = 4, .queue = 2});
  std::promise<void> begun;
  std::atomic<int> answered{0};
  const auto send = [&](TextRequest r) {
    auto end = std::make_shared<std::promise<int>>();
    r.prompt = {3, 4};
    r.done = [end, &answered](const TextEnd& e) {
      ++answered;
      end->set_value(e.status);
    };
    engine.submit(std::move(r));
    return end->get_future();
  };
  int tokens = 0, answered_before_the_last = 0;
  TextRequest busy{.options = likeliest(16)};
  busy.token = [&](const TextToken&) {
    if (++tokens == 1) begun.set_value();
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    answered_before_the_last = answered;
    return true;
  };
  std::future<int> first = send(std::move(busy));
  begun.get_future().wait();
  std::atomic<bool> away{false};
  std::future<int> left = send({.options = likeliest(2), .gone = [&away] { return away.load(); }}),
                   late = send({.options = likeliest(2), .timeout = 0.001});
  away = true;
  EXPECT_EQ(left.get(), 499);
  EXPECT_EQ(late.get(), 504);
  std::future<int> next = send({.options = likeliest(2)});
  EXPECT_EQ(first.get(), 200);
  EXPECT_EQ(answered_before_the_last, 2);
  EXPECT_EQ(next.get(), 200);
}

// One stream, which is busy: texts of these levels come, and begin in the order of their levels.
TEST(Engine, TextsThatWaitBeginByTheirLevel) {
  TextEngine engine(golden_model("gpt2"), {.streams = 1, .length = 20, .block = 4, .queue = 4});
  std::promise<void> begun, all_wait;
  std::mutex lock;
  std::vector<int64_t> order;
  std::vector<std::future<int>> ends;
  const auto send = [&](int64_t level, std::function<void()> first_token) {
    auto end = std::make_shared<std::promise<int>>();
    ends.push_back(end->get_future());
    engine.submit({.prompt = {3, 4},
                   .options = likeliest(2),
                   .priority = level,
                   .token =
                       [=, first = true](const TextToken&) mutable {
                         if (std::exchange(first, false)) first_token();
                         return true;
                       },
                   .done = [end](const TextEnd& e) { end->set_value(e.status); }});
  };
  send(9, [&] {
    begun.set_value();
    all_wait.get_future().wait();
  });
  begun.get_future().wait();
  for (const int64_t level : {3, 3, 1, 2, 1})  // the second has no place in the end
    send(level, [&, level] {
      const std::lock_guard hold(lock);
      order.push_back(level);
    });
  all_wait.set_value();
  for (size_t i = 0; i < ends.size(); ++i) EXPECT_EQ(ends[i].get(), i == 2 ? 429 : 200);
  EXPECT_EQ(order, (std::vector<int64_t>{1, 1, 2, 3}));
  EXPECT_EQ(engine.counts().displaced, 1u);
}

}  // namespace
}  // namespace tandem::serve
