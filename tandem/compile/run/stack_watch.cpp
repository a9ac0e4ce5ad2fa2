// SPDX-License-Identifier: Apache-2.0
#include "tandem/compile/run/stack_watch.h"

#include <algorithm>
#include <cstring>

#ifdef __linux__
#include <pthread.h>
#endif

namespace tandem::compiler {
namespace {

// Words behind each reference: a number, or the first members of a struct.
constexpr size_t kWordsBehind = 8, kWord = sizeof(uint64_t);
// Words of a callable object that are looked at: what is larger holds a module by value.
constexpr size_t kWordsOfCallable = 128;

struct Range {
  uintptr_t begin = 0, end = 0;
  bool holds_word(uintptr_t at) const {
    return at >= begin && end - begin >= kWord && at <= end - kWord;
  }
};

Range find_stack() {
  Range r;
#ifdef __linux__
  pthread_attr_t attr;
  if (pthread_getattr_np(pthread_self(), &attr) != 0) return r;
  void* begin = nullptr;
  size_t bytes = 0;
  if (pthread_attr_getstack(&attr, &begin, &bytes) == 0) {
    r.begin = reinterpret_cast<uintptr_t>(begin);
    r.end = r.begin + bytes;
  }
  pthread_attr_destroy(&attr);
#endif
  return r;
}

// The frames of this function's callers; empty on a stack that the system does not know.
Range callers_frames() {
  thread_local const Range stack = find_stack();
  const auto here = reinterpret_cast<uintptr_t>(__builtin_frame_address(0));
  if (here < stack.begin || here >= stack.end) return {};
  return {here, stack.end};
}

// A word of a caller's frame, whichever variables lie there: sanitizers need not agree.
__attribute__((noinline, no_sanitize_address, no_sanitize_thread)) uint64_t load_word(
    uintptr_t at) {
  using Word [[gnu::aligned(1), gnu::may_alias]] = uint64_t;
  return *reinterpret_cast<const volatile Word*>(at);
}

}  // namespace

StackWatch::StackWatch(std::span<const std::byte> callable) {
  const Range frames = callers_frames();
  const size_t n = std::min(callable.size() / sizeof(void*), kWordsOfCallable);
  for (size_t i = 0; i < n; ++i) {
    uintptr_t to = 0;
    std::memcpy(&to, callable.data() + i * sizeof(void*), sizeof to);
    for (size_t k = 0; k < kWordsBehind && frames.holds_word(to + k * kWord); ++k)
      words_.push_back({to + k * kWord, load_word(to + k * kWord)});
  }
  const auto before = [](const Word& a, const Word& b) { return a.at < b.at; };
  const auto same = [](const Word& a, const Word& b) { return a.at == b.at; };
  std::sort(words_.begin(), words_.end(), before);
  words_.erase(std::unique(words_.begin(), words_.end(), same), words_.end());
}

StackWatch::Change StackWatch::changed(int64_t call) {
  const Range frames = callers_frames();
  Change change = Change::none;
  for (Word& w : words_) {
    if (!frames.holds_word(w.at) || load_word(w.at) == w.value) continue;
    if (call < w.quiet_until)
      w.missed = true;
    else if (w.missed)
      change = Change::perhaps_before;
    else if (change == Change::none)
      change = Change::at_once;
  }
  return change;
}

void StackWatch::refresh() {
  const Range frames = callers_frames();
  for (Word& w : words_) {
    w.missed = false;
    if (frames.holds_word(w.at)) w.value = load_word(w.at);
  }
}

void StackWatch::had_no_effect(int64_t call) {
  const Range frames = callers_frames();
  for (Word& w : words_) {
    if (!frames.holds_word(w.at) || load_word(w.at) == w.value) continue;
    w.wait = 2 * w.wait + 1;
    w.quiet_until = call + 1 + w.wait;
  }
  refresh();
}

}  // namespace tandem::compiler
