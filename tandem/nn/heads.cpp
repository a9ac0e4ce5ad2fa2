// SPDX-License-Identifier: Apache-2.0
#include <map>
#include <mutex>

#include "tandem/nn/heads_internal.h"

namespace tandem::nn::detail {
namespace {

struct KnownHeads {
  std::mutex lock;
  std::map<const void*, HeadsKind::Of> by_kind;
};
KnownHeads& known_heads() {
  static KnownHeads all;
  return all;
}

}  // namespace

HeadsKind::HeadsKind(Of of) {
  KnownHeads& all = known_heads();
  const std::lock_guard hold(all.lock);
  all.by_kind[this] = of;
}

std::optional<HeadCounts> heads_of(const Module& m) {
  KnownHeads& all = known_heads();
  const std::lock_guard hold(all.lock);
  const auto at = all.by_kind.find(m.state().kind);
  if (at == all.by_kind.end()) return std::nullopt;
  return at->second(m);
}

}  // namespace tandem::nn::detail
