// SPDX-License-Identifier: Apache-2.0
#include "tandem/graph/epilogue.h"

#include <mutex>
#include <vector>

namespace tandem {
namespace {

struct Entry {
  PrepareFn prepare;
  EpilogueKind (*kind)(const KernelCall&);
};
struct EpilogueTable {
  std::mutex lock;
  std::vector<Entry> entries;
};
// Never destroyed: threads may compile until the process ends.
EpilogueTable& epilogue_table() {
  static auto* t = new EpilogueTable;
  return *t;
}

}  // namespace

void register_epilogue(PrepareFn prepare, EpilogueKind (*kind)(const KernelCall&)) {
  std::lock_guard hold(epilogue_table().lock);
  for (Entry& e : epilogue_table().entries)
    if (e.prepare == prepare) return void(e.kind = kind);
  epilogue_table().entries.push_back({prepare, kind});
}

EpilogueKind epilogue_kind(const Kernel& kernel, const KernelCall& call) {
  if (!kernel.prepare) return EpilogueKind::none;
  std::lock_guard hold(epilogue_table().lock);
  for (const Entry& e : epilogue_table().entries)
    if (e.prepare == kernel.prepare) return e.kind(call);
  return EpilogueKind::none;
}

}  // namespace tandem
