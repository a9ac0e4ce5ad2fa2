// SPDX-License-Identifier: Apache-2.0
#include "tandem/graph/run/started_work.h"

#include <algorithm>
#include <utility>
#include <vector>

namespace tandem {
namespace {

struct Started {
  const void* memory;
  std::unique_ptr<StartedWork> work;
};
std::vector<Started>& started_here() {
  thread_local std::vector<Started> all;
  return all;
}

}  // namespace

void keep_started(const void* memory, std::unique_ptr<StartedWork> work) {
  started_here().push_back({memory, std::move(work)});
}

void finish_started(const void* memory) {
  std::vector<Started>& all = started_here();
  const auto at = std::find_if(all.begin(), all.end(),
                               [memory](const Started& s) { return s.memory == memory; });
  if (at == all.end()) return;
  const std::unique_ptr<StartedWork> work = std::move(at->work);
  all.erase(at);
  work->wait();
}

StartedScope::StartedScope() : before_(started_here().size()) {}

StartedScope::~StartedScope() {
  std::vector<Started>& all = started_here();
  while (all.size() > before_) {
    const std::unique_ptr<StartedWork> work = std::move(all.back().work);
    all.pop_back();
    work->cancel();
  }
}

void StartedScope::end() {
  std::vector<Started>& all = started_here();
  while (all.size() > before_) finish_started(all[before_].memory);
}

}  // namespace tandem
