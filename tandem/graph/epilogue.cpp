// SPDX-License-Identifier: Apache-2.0
#include "tandem/graph/epilogue.h"

#include <mutex>
#include <vector>

namespace tandem {
namespace {

struct Entry {
  PrepareFn prepare;
  bool (*when)(const KernelCall&);
};
struct Table {
  std::mutex lock;
  std::vector<Entry> entries;
};
// Never destroyed: threads may compile until the process ends.
Table& table() {
  static auto* t = new Table;
  return *t;
}

}  // namespace

void register_epilogue(PrepareFn prepare, bool (*when)(const KernelCall&)) {
  std::lock_guard hold(table().lock);
  for (Entry& e : table().entries)
    if (e.prepare == prepare) return void(e.when = when);
  table().entries.push_back({prepare, when});
}

bool runs_epilogue(const Kernel& kernel, const KernelCall& call) {
  if (!kernel.prepare) return false;
  std::lock_guard hold(table().lock);
  for (const Entry& e : table().entries)
    if (e.prepare == kernel.prepare) return e.when(call);
  return false;
}

}  // namespace tandem
