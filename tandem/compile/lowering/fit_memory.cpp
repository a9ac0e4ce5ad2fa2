// SPDX-License-Identifier: Apache-2.0
#include "tandem/compile/lowering/fit_memory.h"

#include "tandem/compile/passes/passes.h"
#include "tandem/compile/program/recompute.h"

namespace tandem::compiler {
namespace {

constexpr int kRounds = 3;
// A byte that is kept is written once and read once.
constexpr double kSecondsOfKeeping = 2e-10;

Ref<Executable> finish(Program p) {
  run_passes(p, {.first = Stage::fuse});
  return make_ref<Executable>(std::move(p));
}

[[noreturn]] void fail(const std::string& name, size_t limit, size_t smallest, size_t unlimited,
                       const std::string& holds) {
  TD_FAIL(Memory,
          "{}: one call holds at least {} bytes, memory_limit is {} ({} bytes without a limit). At "
          "its peak it holds\n{}Raise memory_limit, or make the batch smaller.",
          name, smallest, limit, unlimited, holds);
}

// Training writes what it trains, and modules are in training mode then. What is written beside
// weights that stay is state: the cache of a decoder, a count.
bool is_inference(const Program& p) {
  if (!p.grads.empty()) return false;
  return p.weights_stay ||
         std::all_of(p.cells.begin(), p.cells.end(), [](const auto& u) { return u.exit == kNone; });
}

size_t bytes_saved(const std::vector<Saved>& saved, const Program& forward) {
  size_t n = 0;
  for (const Saved& s : saved)
    if (s.kind == Saved::output) n += bytes_of(forward.values[forward.outputs[s.index]].spec);
  return n;
}

ForwardBackward cut_in_two(const Program& joint, size_t n_in, size_t n_out) {
  Split split = split_program(joint, n_in, n_out);
  ForwardBackward r;
  r.peak_bytes = bytes_saved(split.saved, split.forward);
  run_passes(split.backward);
  r.backward = make_ref<Executable>(std::move(split.backward));
  run_passes(split.forward);
  r.forward = make_ref<Executable>(std::move(split.forward));
  r.saved = std::move(split.saved);
  r.peak_bytes = std::max(r.forward->peak_bytes(), r.peak_bytes + r.backward->peak_bytes());
  return r;
}

}  // namespace

Ref<Executable> make_executable(Program p, size_t limit, const std::string& name) {
  p.inference = is_inference(p);
  if (limit == 0) {
    run_passes(p);
    return make_ref<Executable>(std::move(p));
  }
  p.memory_limit = limit;
  run_passes(p, {.last = Stage::weights});
  Ref<Executable> best = finish(p);
  const size_t unlimited = best->peak_bytes();
  p.peak_unlimited = unlimited;
  for (int round = 0; round < kRounds && best->peak_bytes() > limit; ++round) {
    const PerInstr<char> first = until_widest(p);
    Program smallest;
    size_t least = best->peak_bytes();
    for (const Choice& c : choices(p, first, p.results())) {
      Program next = recompute(p, first, c);
      Ref<Executable> e = finish(next);
      if (e->peak_bytes() >= least) continue;
      least = e->peak_bytes();
      best = std::move(e);
      smallest = std::move(next);
      if (least <= limit) break;
    }
    if (smallest.instrs.empty()) break;
    p = std::move(smallest);
  }
  if (best->peak_bytes() > limit)
    fail(name, limit, best->peak_bytes(), unlimited, best->peak_table());
  return best;
}

ForwardBackward make_pair(Program joint, size_t n_in, size_t n_out, size_t limit,
                          const std::string& name) {
  run_passes(joint, {.last = Stage::weights});
  const PerInstr<char> first = forward_part(joint, n_out);
  // What the caller gets is there anyway.
  const std::vector<ValueId> given(joint.outputs.begin(),
                                   joint.outputs.begin() + static_cast<std::ptrdiff_t>(n_out));
  const Choice cheap = choose(joint, first, given, {kSecondsOfKeeping, 1, true});
  ForwardBackward best = cut_in_two(recompute(joint, first, cheap), n_in, n_out);
  if (limit == 0 || best.peak_bytes <= limit) return best;
  const size_t unlimited = best.peak_bytes;
  joint.memory_limit = limit;
  joint.peak_unlimited = unlimited;
  for (const Choice& c : choices(joint, first, given)) {
    ForwardBackward r = cut_in_two(recompute(joint, first, c), n_in, n_out);
    if (r.peak_bytes < best.peak_bytes) best = std::move(r);
    if (best.peak_bytes <= limit) return best;
  }
  const bool forward = best.forward->peak_bytes() == best.peak_bytes;
  fail(name, limit, best.peak_bytes, unlimited,
       (forward ? best.forward : best.backward)->peak_table());
}

}  // namespace tandem::compiler
