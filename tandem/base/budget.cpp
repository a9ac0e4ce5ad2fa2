// SPDX-License-Identifier: Apache-2.0
#include "tandem/base/budget.h"

#include <time.h>

#include <algorithm>
#include <bit>
#include <charconv>
#include <cmath>
#include <mutex>
#include <vector>

#include "tandem/base/bytes_in_words.h"
#include "tandem/base/error.h"
#include "tandem/base/fields.h"
#include "tandem/base/nearest.h"

namespace tandem {
namespace {

constexpr BudgetLimits kFirst{.bytes = int64_t{256} << 20,
                              .nodes = int64_t{1} << 20,
                              .traced = int64_t{1} << 17,
                              .operations = 10'000'000'000,
                              .seconds = 5};
// What each limit grows by for each byte given, in the order of the limits.
constexpr double kPerByte[] = {256, 64, 1.0 / 16, 1e6, 1.0 / 65536};
constexpr double kShort = 0.01;  ///< seconds
constexpr const char* kNames[] = {"bytes", "nodes", "traced", "operations", "seconds"};

std::mutex g_mutex;
BudgetLimits g_limits = kFirst;

// A plain pointer: reading it is a load, no guard.
thread_local __attribute__((tls_model("initial-exec"))) constinit Budget* t_open = nullptr;

double seconds_of(clockid_t clock) {
  timespec t{};
  clock_gettime(clock, &t);
  return static_cast<double>(t.tv_sec) + 1e-9 * static_cast<double>(t.tv_nsec);
}

template <class T>
T chosen(T v, T otherwise) {
  return v > 0 ? v : otherwise;
}
BudgetLimits filled(const BudgetLimits& l, const BudgetLimits& otherwise) {
  return {.bytes = chosen(l.bytes, otherwise.bytes),
          .nodes = chosen(l.nodes, otherwise.nodes),
          .traced = chosen(l.traced, otherwise.traced),
          .operations = chosen(l.operations, otherwise.operations),
          .seconds = chosen(l.seconds, otherwise.seconds)};
}

std::string in_words(double v, bool is_bytes) {
  if (!is_bytes) return v < 1e6 ? fmt::format("{:.0f}", v) : fmt::format("{:.1e}", v);
  return bytes_in_words(v);
}

/// Sets the field of that name.
class SetLimit : public QuietVisitor {
 public:
  SetLimit(std::string_view name, double value) : name_(name), value_(value) {}
  void whole(const char* name, int64_t& v, const Field& f) override {
    if (take(name, f)) v = value_ >= 9e18 ? INT64_MAX : static_cast<int64_t>(value_);
  }
  void number(const char* name, double& v, const Field& f) override {
    if (take(name, f)) v = value_;
  }
  bool found = false;
  std::vector<std::string> names;

 private:
  bool take(const char* name, const Field& f) {
    names.emplace_back(name);
    if (name_ != name) return false;
    TD_CHECK(in_bounds(f, value_), Value, "the limit '{}' is a positive number, got {}", name_,
             value_);
    return found = true;
  }
  std::string_view name_;
  double value_;
};

}  // namespace

BudgetLimits default_limits() {
  const std::lock_guard lock(g_mutex);
  return g_limits;
}
void set_default_limits(const BudgetLimits& limits) {
  const std::lock_guard lock(g_mutex);
  g_limits = filled(limits, kFirst);
}

BudgetLimits parse_limits(std::string_view text) {
  BudgetLimits limits;
  while (!text.empty()) {
    const std::string_view part = text.substr(0, text.find(','));
    text.remove_prefix(std::min(text.size(), part.size() + 1));
    const size_t equal = part.find('=');
    double v = 0;
    const char* end = part.data() + part.size();
    const auto read = equal == part.npos ? std::from_chars_result{end, std::errc::invalid_argument}
                                         : std::from_chars(part.data() + equal + 1, end, v);
    TD_CHECK(read.ec == std::errc() && read.ptr == end, Value,
             "'{}' is not a limit\nWrite limits as bytes=8e9,seconds=60.", part);
    SetLimit set(part.substr(0, equal), v);
    limits.fields(set);
    if (set.found) continue;
    const std::string near = nearest_word(std::string(part.substr(0, equal)), set.names);
    TD_FAIL(
        Value,
        "there is no limit '{}'\n{}The limits are bytes, nodes, traced, operations and seconds.",
        part.substr(0, equal), near.empty() ? "" : "Did you mean '" + near + "'? ");
  }
  return limits;
}

Budget::Budget(std::string_view what, uint64_t given, const BudgetLimits& limits)
    : what_(what), outer_(t_open), start_(seconds_of(CLOCK_MONOTONIC)) {
  const BudgetLimits l = filled(limits, default_limits());
  most_[kBytes] = static_cast<double>(l.bytes);
  most_[kNodes] = static_cast<double>(l.nodes);
  most_[kTraced] = static_cast<double>(l.traced);
  most_[kOperations] = static_cast<double>(l.operations);
  most_[kSeconds] = l.seconds;
  grow(given);
  t_open = this;
}
Budget::~Budget() { t_open = outer_; }

bool Budget::is_open() { return t_open != nullptr; }

void Budget::grow(uint64_t bytes) {
  given_ += bytes;
  for (int l = 0; l < kLimits; ++l) most_[l] += kPerByte[l] * static_cast<double>(bytes);
}

void Budget::add_given(uint64_t bytes) {
  for (Budget* b = t_open; b; b = b->outer_) b->grow(bytes);
}

void Budget::fail(Limit l, double came) const {
  const bool quoted = what_.find('\'') != what_.npos;
  const double limit = most_[l];
  // What memory is wanted is known; how long anything else would have run is not.
  const double enough =
      l == kBytes ? static_cast<double>(std::bit_ceil(static_cast<uint64_t>(std::min(came, 9e18))))
                  : std::max(10 * limit, 2 * came);
  TD_FAIL(Format,
          "{0}{1}{0} goes over the limit '{2}': {3} came, {4} are allowed for the {5} given\n"
          "If you trust the file, raise it: BudgetLimits{{.{2} = {6:.0f}}} in C++, --limits "
          "{2}={6:.0f} in the tool.",
          quoted ? "" : "'", what_, kNames[l], in_words(came, l == kBytes),
          in_words(limit, l == kBytes), in_words(static_cast<double>(given_), true),
          std::ceil(enough));
}

void Budget::take(uint64_t bytes) {
  for (const Budget* b = t_open; b; b = b->outer_) {
    const double came = static_cast<double>(b->bytes_) + static_cast<double>(bytes);
    if (TD_UNLIKELY(came > b->most_[kBytes])) b->fail(kBytes, came);
  }
  for (Budget* b = t_open; b; b = b->outer_) b->bytes_ += static_cast<int64_t>(bytes);
}
void Budget::give_back(uint64_t bytes) noexcept {
  for (Budget* b = t_open; b; b = b->outer_) b->bytes_ -= static_cast<int64_t>(bytes);
}
uint64_t Budget::bytes_left() noexcept {
  double left = 9e18;
  for (const Budget* b = t_open; b; b = b->outer_)
    left = std::min(left, b->most_[kBytes] - static_cast<double>(b->bytes_));
  return left > 0 ? static_cast<uint64_t>(left) : 0;
}

void Budget::count(uint64_t nodes) {
  for (Budget* b = t_open; b; b = b->outer_) {
    b->nodes_ += nodes;
    const auto came = static_cast<double>(b->nodes_);
    if (TD_UNLIKELY(came > b->most_[kNodes])) b->fail(kNodes, came);
  }
}
void Budget::count_traced(uint64_t nodes) {
  for (Budget* b = t_open; b; b = b->outer_) {
    b->traced_ += nodes;
    const auto came = static_cast<double>(b->traced_);
    if (TD_UNLIKELY(came > b->most_[kTraced])) b->fail(kTraced, came);
  }
}
void Budget::work(double operations) {
  for (Budget* b = t_open; b; b = b->outer_) {
    b->operations_ += operations;
    if (TD_UNLIKELY(b->operations_ > b->most_[kOperations])) b->fail(kOperations, b->operations_);
  }
}

// A program that was stopped for a while is not late: what counts is the processor's time. Asking
// for it takes ten times as long as asking for the wall clock, so short work never does.
bool Budget::late() noexcept {
  const double wall = seconds_of(CLOCK_MONOTONIC) - start_;
  if (wall < kShort) return false;
  if (processor_start_ < 0) processor_start_ = seconds_of(CLOCK_THREAD_CPUTIME_ID) - kShort;
  return wall > most_[kSeconds] &&
         seconds_of(CLOCK_THREAD_CPUTIME_ID) - processor_start_ > most_[kSeconds];
}
bool Budget::is_late() noexcept {
  for (Budget* b = t_open; b; b = b->outer_)
    if (b->late()) return true;
  return false;
}
void Budget::check_time() {
  for (Budget* b = t_open; b; b = b->outer_)
    if (TD_UNLIKELY(b->late()))
      b->fail(kSeconds, seconds_of(CLOCK_THREAD_CPUTIME_ID) - b->processor_start_);
}

}  // namespace tandem
