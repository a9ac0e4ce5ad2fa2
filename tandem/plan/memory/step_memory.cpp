// SPDX-License-Identifier: Apache-2.0
// Memory over one step: of an eager one from the ledger of its dry run, of a compiled one from its
// memory plan. Both give the same things: a timeline, the highest moment, and the moments that may
// become the highest once parts are sharded or recomputed.
#include "tandem/plan/memory/step_memory_internal.h"

#include <algorithm>
#include <map>
#include <set>

#include "tandem/graph/context.h"

namespace tandem::plan {
namespace {

double moving(const Peak& p) {
  return p.held.of(MemoryCategory::activations) + p.held.of(MemoryCategory::workspace);
}

// The front: from the most activations down, whatever has more gradients than all before, and the
// most outside of blocks.
std::vector<Peak> front_of(std::vector<Peak> moments) {
  std::stable_sort(moments.begin(), moments.end(),
                   [](const Peak& a, const Peak& b) { return moving(a) > moving(b); });
  std::vector<Peak> front;
  double gradients = -1, outside = -1;
  for (const Peak& p : moments) {
    const double other = moving(p) - p.in_blocks;
    if (p.held.of(MemoryCategory::gradients) <= gradients && other <= outside) continue;
    gradients = std::max(gradients, p.held.of(MemoryCategory::gradients));
    outside = std::max(outside, other);
    front.push_back(p);
  }
  return front;
}

// Remembers which layers are within blocks.
class Blocks {
 public:
  bool holds(uint32_t scope) {
    const auto [at, fresh] = known_.try_emplace(scope, false);
    if (fresh) at->second = in_block(scope_path(scope));
    return at->second;
  }

 private:
  std::map<uint32_t, bool> known_;
};

using compiler::Base;
using compiler::Lowered;
using compiler::Step;

// A buffer itself, or the one whose bytes it shares.
int root_of(const Lowered& l, int buffer) {
  while (l.buffers[static_cast<size_t>(buffer)].same_as != compiler::kNone)
    buffer = l.buffers[static_cast<size_t>(buffer)].same_as;
  return buffer;
}

// Is it the new value of a parameter?
bool is_parameter(const Executable& exe, int place) {
  if (place < 0) return false;
  const Lowered& l = exe.lowered();
  const compiler::Block& b =
      l.buffers[static_cast<size_t>(l.places[static_cast<size_t>(place)].buffer)];
  return b.base == Base::cell_new && b.index >= 0 &&
         exe.program().cells[static_cast<size_t>(b.index)].cell->requires_grad();
}

// The arena's buffers that hold gradients of parameters: what a step reads that writes a parameter
// of as many elements, and what loops make such gradients of (casts, sums, clipping).
std::set<int> gradients_of(const Executable& exe) {
  const Lowered& l = exe.lowered();
  const auto arena = [&](int place) -> int {
    if (place < 0) return compiler::kNone;
    const int b = root_of(l, l.places[static_cast<size_t>(place)].buffer);
    return l.buffers[static_cast<size_t>(b)].base == Base::arena ? b : compiler::kNone;
  };
  const auto elements = [&](int place) {
    return l.places[static_cast<size_t>(place)].shape.numel();
  };
  std::set<int> found;
  // Backward: who reads comes after who makes.
  for (auto s = l.steps.rbegin(); s != l.steps.rend(); ++s)
    for (int out : s->out) {
      const bool update = is_parameter(exe, out);
      if (out < 0 || (!update && (s->op || !found.count(arena(out))))) continue;
      for (const compiler::StepInput& in : s->in)
        if (const int b = arena(in.place); b >= 0 && elements(in.place) == elements(out))
          found.insert(b);
    }
  return found;
}

// What comes and goes with each step of a compiled program.
struct Changes {
  std::vector<Held> held;
  std::vector<double> in_blocks;
};
Changes changes_of(const Executable& exe, bool by_block) {
  const Lowered& l = exe.lowered();
  const size_t n = l.steps.size();
  const std::set<int> gradients = gradients_of(exe);
  std::set<int> scratch;
  for (const Step& s : l.steps)
    if (s.scratch >= 0) scratch.insert(root_of(l, s.scratch));
  std::vector<uint32_t> scope(n + 1, 0);  // what runs between two layers belongs to the one before
  for (size_t k = 0; k < n; ++k)
    scope[k] = l.steps[k].scope || k == 0 ? l.steps[k].scope : scope[k - 1];
  Changes changes{std::vector<Held>(n + 1), std::vector<double>(n + 1, 0)};
  Blocks inside;
  for (size_t i = 0; i < l.buffers.size(); ++i) {
    const compiler::Block& b = l.buffers[i];
    if (b.base != Base::arena || b.same_as != compiler::kNone || b.first < 0) continue;
    const int id = static_cast<int>(i);
    const MemoryCategory category = scratch.count(id)     ? MemoryCategory::workspace
                                    : gradients.count(id) ? MemoryCategory::gradients
                                                          : MemoryCategory::activations;
    const size_t from = static_cast<size_t>(b.first),
                 to = std::min(n, static_cast<size_t>(b.last) + 1);
    const auto bytes = static_cast<double>(b.bytes);
    changes.held[from].add(category, bytes);
    changes.held[to].add(category, -bytes);
    if (category == MemoryCategory::activations && by_block && inside.holds(scope[from])) {
      changes.in_blocks[from] += bytes;
      changes.in_blocks[to] -= bytes;
    }
  }
  return changes;
}

// The timeline is thinned to about this many moments.
size_t stride_of(size_t moments) { return std::max<size_t>(1, moments / 300); }

}  // namespace

void BlockCategories::mark(const Tensor& t, MemoryCategory c) {
  if (!t.defined()) return;
  const int32_t b = DryMemory::block_of(*t.impl());
  if (b < 0) return;
  const auto k = static_cast<size_t>(b);
  if (marked_.size() <= k) marked_.resize(k + 1, MemoryCategory::count);
  marked_[k] = c;
}

MemoryCategory BlockCategories::of(int32_t block) const {
  const auto k = static_cast<size_t>(block);
  if (k < marked_.size() && marked_[k] != MemoryCategory::count) return marked_[k];
  const DryBlock& b = ledger_.blocks()[k];
  if (b.use == DryUse::scratch) return MemoryCategory::workspace;
  switch (static_cast<Phase>(b.phase)) {
    case Phase::build:
      return MemoryCategory::weights;
    case Phase::input:
      return MemoryCategory::input;
    default:
      return MemoryCategory::activations;
  }
}

const char* to_string(MemoryCategory c) {
  static const char* const kNames[] = {"weights",     "gradients", "optimizer state",
                                       "activations", "workspace", "input"};
  return kNames[static_cast<int>(c)];
}

std::string block_of(const std::string& path) {
  for (size_t at = 0; at < path.size();) {
    const size_t end = std::min(path.find('.', at), path.size());
    bool digits = end > at;
    for (size_t k = at; k < end; ++k) digits = digits && path[k] >= '0' && path[k] <= '9';
    if (digits) return path.substr(0, end);
    at = end + 1;
  }
  return {};
}

bool writes_parameter(const Executable& exe, const Step& s) {
  return std::any_of(s.out.begin(), s.out.end(),
                     [&](int place) { return is_parameter(exe, place); });
}

StepMemory step_memory(const DryMemory& ledger, const BlockCategories& categories, size_t first,
                       bool by_block) {
  StepMemory memory;
  Held now;
  double most = -1, blocks = 0;
  std::vector<std::pair<size_t, Held>> all;
  std::vector<Peak> moments;
  Blocks inside;
  for (size_t k = 0; k < ledger.events().size(); ++k) {
    const DryEvent& e = ledger.events()[k];
    const DryBlock& b = ledger.blocks()[static_cast<size_t>(e.block)];
    const MemoryCategory category = categories.of(e.block);
    const double bytes = (e.taken ? 1.0 : -1.0) * static_cast<double>(b.bytes);
    now.add(category, bytes);
    if (category == MemoryCategory::activations && by_block && inside.holds(b.scope))
      blocks += bytes;
    if (k < first) continue;
    all.emplace_back(k, now);
    if (e.taken) moments.push_back({now, blocks});
    if (now.total() > most) {
      most = now.total();
      memory.peak = now;
    }
  }
  memory.peaks = front_of(std::move(moments));
  for (size_t i = 0; i < all.size(); ++i) {
    const DryBlock& b = ledger.blocks()[static_cast<size_t>(ledger.events()[all[i].first].block)];
    const bool peak = all[i].second.total() == most;
    if (i % stride_of(all.size()) == 0 || peak)
      memory.timeline.push_back({all[i].second, scope_path(b.scope)});
  }
  return memory;
}

StepMemory step_memory(const Executable& exe, const Held& outside, bool by_block) {
  StepMemory memory;
  const Lowered& l = exe.lowered();
  const size_t n = l.steps.size();
  if (n == 0) {
    memory.peak = outside;
    memory.peaks = {{outside, 0}};
    return memory;
  }
  const Changes changes = changes_of(exe, by_block);
  std::vector<Peak> moments;
  Peak now{outside, 0};
  double most = 0;
  for (size_t k = 0; k < n; ++k) {
    for (size_t c = 0; c < kMemoryCategories; ++c) now.held.bytes[c] += changes.held[k].bytes[c];
    now.in_blocks += changes.in_blocks[k];
    moments.push_back(now);
    most = std::max(most, now.held.total());
  }
  // The plan's block is as large as the plan, which may be more than what is alive in one step.
  const double rest =
      std::max(0.0, static_cast<double>(exe.arena_bytes()) - (most - outside.total()));
  for (size_t k = 0; k < n; ++k) {
    if (moments[k].held.total() == most && memory.peak.total() == 0) memory.peak = moments[k].held;
    if (k % stride_of(n) != 0 && static_cast<int>(k) != l.peak_step) continue;
    Moment m{moments[k].held, l.steps[k].name};
    if (l.steps[k].scope) m.name += " in " + scope_path(l.steps[k].scope);
    memory.timeline.push_back(std::move(m));
  }
  memory.peak.add(MemoryCategory::activations, rest);
  memory.peaks = front_of(std::move(moments));
  for (Peak& p : memory.peaks) p.held.add(MemoryCategory::activations, rest);
  return memory;
}

}  // namespace tandem::plan
