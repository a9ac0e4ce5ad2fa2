// SPDX-License-Identifier: Apache-2.0
#include "tandem/backend/gpu/fake/happens_before_internal.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>

namespace tandem::gpu {

int HappensBefore::add_stream(const std::string& name) {
  names_.push_back(name);
  clocks_.emplace_back();
  return static_cast<int>(clocks_.size()) - 1;
}

void HappensBefore::join(Clock& clock, const Clock& other) {
  if (clock.size() < other.size()) clock.resize(other.size());
  for (size_t i = 0; i < other.size(); ++i) clock[i] = std::max(clock[i], other[i]);
}

void HappensBefore::host_waits() {
  for (const Clock& c : clocks_) join(host_, c);
}

bool HappensBefore::is_done(const Clock& clock, const Mark& mark) const {
  const auto s = static_cast<size_t>(mark.stream);
  return mark.stream < 0 || (s < clock.size() && clock[s] >= mark.tick);
}

// The first thing in the way of `access`, as a message.
std::string HappensBefore::conflict(const Clock& clock, const Access& access,
                                    const std::string& who) const {
  const Mark* found = nullptr;
  const char* verb = "written";
  auto it = cells_.upper_bound(access.begin);
  if (it != cells_.begin()) --it;
  for (; it != cells_.end() && it->first < access.end && !found; ++it) {
    const Cell& cell = it->second;
    if (cell.end <= access.begin) continue;
    if (!is_done(clock, cell.write)) found = &cell.write;
    if (!access.write) continue;
    for (const Mark& r : cell.reads) {
      if (found || is_done(clock, r)) continue;
      found = &r;
      verb = "read";
    }
  }
  if (!found) return "";
  const std::string& other = names_[static_cast<size_t>(found->stream)];
  return fmt::format(
      "missing wait: {} {} bytes that are {} by {} (number {} of stream {}). Record an event in {} "
      "after that, and wait for it first",
      who, access.write ? "writes" : "reads", verb, *found->name, found->tick, other, other);
}

// A cell that reaches across `at` becomes two.
void HappensBefore::split(uint64_t at) {
  auto it = cells_.lower_bound(at);
  if (it == cells_.begin()) return;
  --it;
  if (it->second.end <= at) return;
  Cell behind = it->second;
  it->second.end = at;
  cells_.emplace(at, std::move(behind));
}

void HappensBefore::touch(const Access& access, const Mark& mark) {
  split(access.begin);
  split(access.end);
  uint64_t at = access.begin;
  auto it = cells_.lower_bound(access.begin);
  if (access.write) {  // one history from here on
    it = cells_.erase(it, cells_.lower_bound(access.end));
    cells_.emplace_hint(it, access.begin, Cell{access.end, mark, {}});
    return;
  }
  while (at < access.end) {
    const uint64_t next = it == cells_.end() ? access.end : std::min(it->first, access.end);
    if (at < next) {
      cells_.emplace_hint(it, at, Cell{next, {}, {mark}});
      at = next;
      continue;
    }
    std::vector<Mark>& reads = it->second.reads;
    const auto same = std::find_if(reads.begin(), reads.end(),
                                   [&](const Mark& m) { return m.stream == mark.stream; });
    if (same == reads.end())
      reads.push_back(mark);
    else
      *same = mark;
    at = it->second.end;
    ++it;
  }
}

std::string HappensBefore::operation(int stream, const std::string& name,
                                     std::span<const Access> accesses) {
  Clock& clock = clocks_[static_cast<size_t>(stream)];
  join(clock, host_);
  const auto s = static_cast<size_t>(stream);
  if (clock.size() <= s) clock.resize(s + 1);
  const uint64_t tick = clock[s] + 1;
  const std::string who = fmt::format("{} (number {} of stream {})", name, tick, names_[s]);
  for (const Access& a : accesses) {
    std::string report = conflict(clock, a, who);
    if (!report.empty()) return report;
  }
  clock[s] = tick;
  const Mark mark{stream, tick, std::make_shared<const std::string>(name)};
  for (const Access& a : accesses) touch(a, mark);
  return "";
}

void HappensBefore::forget(uint64_t begin, uint64_t end) {
  split(begin);
  split(end);
  cells_.erase(cells_.lower_bound(begin), cells_.lower_bound(end));
}

}  // namespace tandem::gpu
