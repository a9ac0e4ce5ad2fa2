// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <iterator>
#include <utility>

#include "tandem/base/log.h"
#include "tandem/serve/http/loop_internal.h"
#include "tandem/serve/http2/connection_internal.h"

namespace tandem::serve {
namespace {

// What this thread has posted since its outermost AnswersTogether began.
struct Held {
  int depth = 0;
  std::vector<std::pair<std::shared_ptr<Mailbox>, std::vector<Mailbox::Letter>>> letters;
};
thread_local Held held;

}  // namespace

void Mailbox::post(Letter letter) {
  if (held.depth == 0) {
    std::vector<Letter> one;
    one.push_back(std::move(letter));
    return post_all(std::move(one));
  }
  for (auto& [mail, letters] : held.letters)
    if (mail.get() == this) return letters.push_back(std::move(letter));
  held.letters.emplace_back(shared_from_this(), std::vector<Letter>{})
      .second.push_back(std::move(letter));
}

void Mailbox::post_all(std::vector<Letter> more) {
  const std::lock_guard hold(lock);
  if (!loop) return;
  const bool first = letters.empty();
  if (first)
    letters = std::move(more);
  else
    std::move(more.begin(), more.end(), std::back_inserter(letters));
  if (first) loop->wake_up();
}

HttpLoop*& HttpLoop::of_this_thread() {
  thread_local HttpLoop* loop = nullptr;
  return loop;
}

bool at_end_of_turn(std::function<void()> task) {
  HttpLoop* loop = HttpLoop::of_this_thread();
  if (loop) loop->put_off(std::move(task));
  return loop != nullptr;
}

// Run what was put off, and send what it and others answered; that may let in requests which have
// been read already. After some rounds of those others have their turn.
void HttpLoop::end_turn() {
  constexpr int kRounds = 8;
  for (int round = 0; round == 0 || (round < kRounds && !put_off_.empty()); ++round) {
    for (const std::function<void()>& task : std::exchange(put_off_, {})) try {
        task();
      } catch (const std::exception& e) {
        log_warning("requests of one turn failed: {}", e.what());
      }
    write_touched();
    closed_.clear();
  }
}

AnswersTogether::AnswersTogether() { ++held.depth; }
AnswersTogether::~AnswersTogether() {
  if (--held.depth > 0) return;
  for (auto& [mail, letters] : std::exchange(held.letters, {})) mail->post_all(std::move(letters));
}

}  // namespace tandem::serve
