// SPDX-License-Identifier: Apache-2.0
#include "tandem/dist/call_log_internal.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>

#include "tandem/base/files/file.h"
#include "tandem/base/files/folder.h"
#include "tandem/base/log.h"
#include "tandem/dist/network_internal.h"
#include "tandem/io/json.h"

namespace tandem::distributed {

CallLog::Entry* CallLog::entry(int64_t number) {
  const int64_t first = last_ - static_cast<int64_t>(kept_.size()) + 1;
  return number < first ? nullptr : &kept_[static_cast<size_t>(number - first)];
}

size_t CallLog::totals_of(const std::string& label) {
  const auto at = std::find_if(totals_.begin(), totals_.end(),
                               [&](const CallTotals& t) { return t.label == label; });
  const auto index = static_cast<size_t>(at - totals_.begin());
  if (at == totals_.end()) totals_.push_back({.label = label});
  return index;
}

int64_t CallLog::given(const Call& call) {
  CallRecord r;
  r.what = to_string(call);
  r.label = call.options.label.empty() ? to_string(call.kind) : call.options.label;
  r.bytes = std::max(call.in.bytes(), call.out.bytes());
  r.given = now();
  const std::lock_guard hold(lock_);
  r.number = ++last_;
  r.step = step_;
  const size_t totals = totals_of(r.label);
  kept_.push_back({std::move(r), totals});
  if (kept_.size() > kKept) kept_.pop_front();
  return last_;
}

void CallLog::begun(int64_t number) {
  const double t = now();
  const std::lock_guard hold(lock_);
  if (Entry* e = entry(number)) e->record.begun = t;
}

void CallLog::ended(int64_t number, const std::string& error) {
  const double t = now();
  const std::lock_guard hold(lock_);
  Entry* e = entry(number);
  if (!e) return;
  e->record.ended = t;
  e->record.error = error;
  if (!error.empty()) return;
  CallTotals& all = totals_[e->totals];
  ++all.calls;
  all.bytes += e->record.bytes;
  all.seconds += t - e->record.begun;
}

void CallLog::waited(int64_t number, double seconds) {
  const std::lock_guard hold(lock_);
  Entry* e = entry(number);
  if (!e) return;
  e->record.waited += seconds;
  totals_[e->totals].waited += seconds;
}

void CallLog::pair_ended(const std::string& label, size_t bytes) {
  const std::lock_guard hold(lock_);
  CallTotals& all = totals_[totals_of(label)];
  ++all.calls;
  all.bytes += bytes;
}

void CallLog::set_step(int64_t step) {
  const std::lock_guard hold(lock_);
  step_ = step;
}

void CallLog::came_last(int rank, double seconds) {
  const std::lock_guard hold(lock_);
  const auto at = static_cast<size_t>(rank);
  if (delays_.size() <= at) delays_.resize(at + 1);
  ++delays_[at].calls;
  delays_[at].seconds += seconds;
}

std::vector<CallRecord> CallLog::recent() const {
  const std::lock_guard hold(lock_);
  std::vector<CallRecord> all;
  for (const Entry& e : kept_) all.push_back(e.record);
  return all;
}

std::vector<CallTotals> CallLog::totals() const {
  const std::lock_guard hold(lock_);
  return totals_;
}

std::vector<RankDelay> CallLog::delays(int ranks) const {
  const std::lock_guard hold(lock_);
  std::vector<RankDelay> all = delays_;
  all.resize(static_cast<size_t>(ranks));
  return all;
}

// A process may belong to several groups, and several jobs may share the folder.
void CallLog::write(const Engine& engine) const noexcept try {
  static std::atomic<int> files{0};
  const char* folder = std::getenv("TANDEM_DIST_RECORDS");
  if (!folder || !*folder) return;
  std::string text;
  for (const CallRecord& r : recent())
    text += io::Json(io::Json::Object{{"call", r.number},
                                      {"step", r.step},
                                      {"what", r.what},
                                      {"given", r.given},
                                      {"begun", r.begun},
                                      {"ended", r.ended},
                                      {"waited", r.waited},
                                      {"error", r.error}})
                .dump() +
            "\n";
  make_folders(FilePath(folder));
  write_file(fmt::format("{}/calls-rank{}-of-{}-{}-{}-{}.jsonl", folder, engine.rank(),
                         engine.size(), host_name(), ::getpid(), ++files),
             text);
} catch (const std::exception& e) {
  try {
    log_warning("the record of the last calls is not written: {}", e.what());
  } catch (...) {  // it must not hide the fault that it is about
  }
}

}  // namespace tandem::distributed
