// SPDX-License-Identifier: Apache-2.0
// Calls on a device that repeats work: the steps are recorded once two calls in a row have used the
// same memory, and replayed as long as calls do. What changes from call to call is written before a
// replay: numbers of the host and the state of the random generator into places of the recording's
// own, and so are values that have lain elsewhere in each call. Whatever else differs (a cell that
// was replaced) is a reason to record again; programs that need that all the time are launched.
#include <algorithm>
#include <cstring>

#include "tandem/base/budget.h"
#include "tandem/base/error.h"
#include "tandem/compile/run/frame.h"
#include "tandem/graph/backend.h"
#include "tandem/tensor/device_memory.h"

namespace tandem {

using namespace compiler;

namespace {
constexpr size_t kFewestSteps = 4;             // fewer are launched in the time of a replay
constexpr int64_t kCallsBefore = 2;            // in the first, kernels are compiled and cells move
constexpr int kMostTries = 8;                  // recordings one after the other that did not pay
constexpr int64_t kPays = 16;                  // replays
constexpr size_t kBytesOfAStep = 1 << 20;      // a device copies them in the time of a launch
constexpr size_t kSmall = 4096, kAlign = 256;  // bytes of a value that goes in one copy with others

size_t aligned_up(size_t n) { return (n + kAlign - 1) / kAlign * kAlign; }

bool is_result(Base base) {
  return base == Base::output || base == Base::grad_new || base == Base::cell_new;
}
}  // namespace

Executable::Replays::~Replays() {
  forget_graph();
  free_memory();
}

void Executable::Replays::forget_graph() {
  graph.reset();
  replayed = 0;
  for (const uint32_t t : tickets) drop_ticket(t);
  tickets.clear();
}

void Executable::Replays::free_memory() {
  if (memory) detail::deallocate(memory, bytes, device);
  memory = nullptr;
  bytes = 0;
}

// All steps are launches: nothing reads a value on the host or runs there.
bool Executable::can_be_recorded() const {
  if (is_host(program_.device) || !backend_of(program_.device).record) return false;
  if (lowered_.steps.size() < kFewestSteps) return false;
  return std::all_of(lowered_.steps.begin(), lowered_.steps.end(), [](const Step& s) {
    return !s.on_host && (!s.op || (s.kernel && s.op->family != Family::control));
  });
}

// May a value of the device be copied to a place of the recording's own when it lies elsewhere in
// each call? Weights are too many for that, and what is updated in place has one place anyway.
bool Executable::may_move(const Bound& b, const Source& s) const {
  if (s.base == Base::derived) return false;
  const bool cell = s.base == Base::cell || s.base == Base::cell_new;
  return !cell || (lowered_.cell_exits[s.index] != kNone && !b.in_place[s.index]);
}

// Compare a call with the one before. True: it may be recorded.
bool Executable::settle(Frame& f, const Bound& b, const std::vector<char*>& now) const {
  Replays& r = f.replays;
  const size_t n = f.sources.size();
  bool same = r.calls >= kCallsBefore && r.in_place == b.in_place;
  r.own.resize(n);
  r.last.resize(n);
  size_t copied = 0;
  for (size_t i = 0; i < n; ++i) {
    const Source& s = f.sources[i];
    const bool moves = !now[i] || may_move(b, s);
    if (!moves) r.own[i] = 0;
    if (!r.own[i] && s.bytes && (!now[i] || now[i] != r.last[i])) {
      if (moves && (!now[i] || r.calls >= kCallsBefore))
        r.own[i] = 1;
      else
        same = false;
    }
    if (r.own[i]) copied += s.bytes;
  }
  r.last = now;
  r.in_place = b.in_place;
  ++r.calls;
  return same && copied <= kBytesOfAStep * lowered_.steps.size();
}

// Places for the sources that have one of their own: first what goes in one copy from the host.
void Executable::lay_out(Frame& f, const std::vector<char*>& now) const {
  Replays& r = f.replays;
  r.place.assign(f.sources.size(), 0);
  size_t end = program_.rng_draws ? aligned_up(2 * sizeof(int64_t)) : 0;
  for (const bool packed : {true, false}) {
    for (size_t i = 0; i < f.sources.size(); ++i) {
      const bool small = !now[i] && f.sources[i].bytes <= kSmall;
      if (!r.own[i] || small != packed) continue;
      r.place[i] = end;
      end = aligned_up(end + f.sources[i].bytes);
    }
    if (packed) r.host_bytes = end;
  }
  r.from_host.assign(r.host_bytes, 0);
  if (end <= r.bytes) return;
  r.free_memory();
  r.memory = static_cast<char*>(detail::allocate(end, r.device));
  r.bytes = end;
}

// The steps of a frame, their random numbers counted from where each replay finds them.
struct Executable::Recorded final : RecordableWork {
  Recorded(const Executable& e, Frame& f) : program(e), frame(f) {
    way.key = f.replays.memory;
    way.tickets = &f.replays.tickets;
  }
  void put(Stream queue) override {
    const StreamGuard there(frame.replays.device, queue);
    program.run_steps(frame, way);
  }
  const Executable& program;
  Frame& frame;
  Way way;
};

bool Executable::record(Frame& f, const std::vector<char*>& now) const {
  Replays& r = f.replays;
  r.forget_graph();
  if (r.tries++ == kMostTries) {
    r.off = true;
    detail::count_given_up(r.problem.empty() ? "its calls use other memory again and again"
                                             : r.problem);
    return false;
  }
  try {
    lay_out(f, now);
  } catch (const Error& e) {  // no memory for copies
    detail::count_problem(r.problem = e.message());
    return false;
  }
  std::vector<char*> at = now;
  for (size_t i = 0; i < at.size(); ++i)
    if (r.own[i]) at[i] = r.memory + r.place[i];
  point(f, at);
  r.problem.clear();
  Recorded steps(*this, f);
  r.graph = backend_of(r.device).record(r.device.index, steps, r.problem);
  if (r.graph) {
    detail::count_recording();
    return true;
  }
  detail::count_problem(r.problem);
  r.forget_graph();
  return false;
}

// Into the places of the recording's own.
void Executable::copy_sources(Frame& f, const Bound& b, RngKey entry) const {
  Replays& r = f.replays;
  if (program_.rng_draws) {
    const uint64_t key[] = {entry.seed, entry.offset};
    std::memcpy(r.from_host.data(), key, sizeof key);
  }
  const auto each = [&](bool packed) {
    for (size_t i = 0; i < f.sources.size(); ++i) {
      const Source& s = f.sources[i];
      if (!r.own[i] || is_result(s.base)) continue;
      const detail::TensorImpl& t = *bound(b, s.base, s.index).impl();
      const bool small = is_host(t.device) && r.place[i] < r.host_bytes;
      if (small != packed) continue;
      if (packed)
        std::memcpy(r.from_host.data() + r.place[i], t.data, s.bytes);
      else
        detail::copy_bytes(r.memory + r.place[i], r.device, t.data, t.device, s.bytes);
    }
  };
  each(true);
  detail::copy_bytes(r.memory, r.device, r.from_host.data(), cpu, r.host_bytes);
  each(false);
}

void Executable::copy_results(Frame& f, const std::vector<char*>& now) const {
  const Replays& r = f.replays;
  for (size_t i = 0; i < f.sources.size(); ++i)
    if (r.own[i] && is_result(f.sources[i].base))
      detail::copy_bytes(now[i], r.device, r.memory + r.place[i], r.device, f.sources[i].bytes);
}

// False: its steps are still to be run.
bool Executable::replay(Frame& f, const Bound& b, RngKey entry) const {
  Replays& r = f.replays;
  if (r.off || !detail::step_graphs_allowed() || context().profiler) return false;
  const std::vector<char*>& now = addresses(f, b);
  bool fits = r.graph && r.in_place == b.in_place;
  for (size_t i = 0; fits && i < now.size(); ++i)
    fits = r.own[i] || now[i] == r.last[i] || f.sources[i].bytes == 0;
  if (!fits) {
    if (!settle(f, b, now)) {
      r.forget_graph();
      return false;
    }
    if (!record(f, now)) return false;
  }
  if (!r.graph->ready()) return false;
  if (TD_UNLIKELY(Budget::is_open())) charge();
  try {
    copy_sources(f, b, entry);
    r.graph->replay(current_stream(r.device));
    copy_results(f, now);
  } catch (...) {
    r.forget_graph();
    r.calls = 0;
    throw;
  }
  detail::count_replay(*r.graph);
  if (++r.replayed == kPays) r.tries = 0;
  return true;
}

}  // namespace tandem
