// SPDX-License-Identifier: Apache-2.0
// The table of backends, the count of what the host runs for them, and the ledger of calls that may
// still report an error from a device.
#include "tandem/graph/backend.h"

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <deque>
#include <map>
#include <mutex>
#include <set>

#include "tandem/base/log.h"
#include "tandem/graph/apply.h"
#include "tandem/graph/context.h"

namespace tandem {
namespace {

struct Slot {
  std::atomic<bool> filled{false};
  Backend backend;
};
struct Table {
  std::mutex lock;
  Slot slots[kDeviceKinds];
};
Table& table() {
  static auto* t = new Table;  // asked until the last thread ends
  return *t;
}

// ---- what the host ran

struct Counts {
  std::mutex lock;
  int64_t calls = 0, bytes = 0;
  std::map<const OpDef*, int64_t> by_op;
  std::set<std::pair<const OpDef*, DeviceKind>> announced;
};
Counts& counts() {
  static auto* c = new Counts;
  return *c;
}
std::atomic<bool>& allowed() {
  static std::atomic<bool> on = [] {
    const char* v = std::getenv("TANDEM_HOST_RUNS");
    return !(v && std::string_view(v) == "0");
  }();
  return on;
}

// ---- calls that may report

// A device's error is read some time after the call: these many calls back it is still known whose
// it was. Tickets from kFirstKept on are of recorded calls, and known until they are dropped and as
// many others are.
constexpr uint32_t kTickets = 4096, kFirstKept = uint32_t{1} << 31;
struct Ticket {
  uint32_t number = 0;
  const OpDef* op = nullptr;
  SourceLocation loc;
  std::string layer;
};
struct Ledger {
  std::mutex lock;
  uint32_t next = 1, next_kept = kFirstKept;
  std::vector<Ticket> tickets{kTickets};
  std::map<uint32_t, Ticket> kept;
  std::deque<uint32_t> dropped;

  Ticket find(uint32_t number) const {
    if (number < kFirstKept) return tickets[number % kTickets];
    const auto at = kept.find(number);
    return at == kept.end() ? Ticket{} : at->second;
  }
};
Ledger& ledger() {
  static auto* l = new Ledger;
  return *l;
}

void throw_reported(Device device) {
  const Backend& b = backend_of(device);
  DeviceError error;
  if (!b.take_error || !b.take_error(device.index, error) || error.code == 0) return;
  Ticket t;
  {
    std::lock_guard hold(ledger().lock);
    t = ledger().find(error.ticket);
  }
  TD_CHECK(t.op && t.number == error.ticket, Internal,
           "a kernel on {} reported code {} with value {}, too long ago to say which", device,
           error.code, error.value);
  ErrorWord word;
  word.report(error.code, error.value);
  try {
    check_error_word(*t.op, word);
  } catch (const Error& e) {
    throw Error(e.kind(), e.message(), e.hint(), t.op->name, t.loc, t.layer);
  }
}

}  // namespace

DeviceKind register_backend(const Backend& backend) {
  const DeviceKind kind = register_device_memory(backend.memory);
  std::lock_guard hold(table().lock);
  Slot& s = table().slots[static_cast<int>(kind)];
  if (s.filled.load()) return kind;
  s.backend = backend;
  s.filled.store(true, std::memory_order_release);
  detail::set_device_read_hook(throw_reported);
  return kind;
}

const Backend& backend_of(Device device) {
  const Slot& s = table().slots[static_cast<int>(device.kind)];
  TD_CHECK(s.filled.load(std::memory_order_acquire), Unsupported, "there is no backend for {}",
           device);
  return s.backend;
}

bool runs_loops(Device device) { return is_host(device) || backend_of(device).run_loop; }

HostRuns host_runs() {
  HostRuns r;
  std::lock_guard hold(counts().lock);
  r.calls = counts().calls;
  r.bytes = counts().bytes;
  for (const auto& [op, n] : counts().by_op) r.by_op.emplace_back(op->name, n);
  std::sort(r.by_op.begin(), r.by_op.end(), [](const auto& a, const auto& b) {
    return a.second != b.second ? a.second > b.second : a.first < b.first;
  });
  return r;
}

void reset_host_runs() {
  std::lock_guard hold(counts().lock);
  counts().calls = counts().bytes = 0;
  counts().by_op.clear();
}

bool allow_host_runs(bool allow) { return allowed().exchange(allow); }

void check_host_allowed(const KernelCall& call) {
  TD_CHECK(allowed().load(std::memory_order_relaxed), Unsupported,
           "{} has no kernel for these inputs\nallow_host_runs(true) lets the host run it between "
           "copies, register_kernel() gives it one.",
           call.device);
}

void count_on_host(const OpDef& op, Device device, int64_t bytes) {
  bool first = false;
  {
    std::lock_guard hold(counts().lock);
    ++counts().calls;
    counts().bytes += bytes;
    ++counts().by_op[&op];
    first = backend_of(device).announces_host_runs &&
            counts().announced.emplace(&op, device.kind).second;
  }
  if (first) {
    log_warning(
        "{} has no kernel on {} for these inputs: the host runs it, between copies. Said once; "
        "host_runs() counts, TANDEM_HOST_RUNS=0 makes it an error",
        op.name, to_string(device));
  }
}

uint32_t take_ticket(const OpDef& op, SourceLocation loc) {
  if (!op.error_texts[0]) return 0;
  Ledger& l = ledger();
  std::lock_guard hold(l.lock);
  const uint32_t n = l.next;
  l.next = n + 1 == kFirstKept ? 1 : n + 1;
  l.tickets[n % kTickets] = {n, &op, loc, current_layer()};
  return n;
}

uint32_t keep_ticket(const OpDef& op, SourceLocation loc) {
  if (!op.error_texts[0]) return 0;
  Ledger& l = ledger();
  std::lock_guard hold(l.lock);
  uint32_t n = 0;
  do {
    n = l.next_kept++;
    if (l.next_kept == 0) l.next_kept = kFirstKept;
  } while (l.kept.count(n));
  l.kept[n] = {n, &op, loc, current_layer()};
  return n;
}

void drop_ticket(uint32_t ticket) {
  if (ticket < kFirstKept) return;
  Ledger& l = ledger();
  std::lock_guard hold(l.lock);
  l.dropped.push_back(ticket);
  if (l.dropped.size() <= kTickets) return;
  l.kept.erase(l.dropped.front());
  l.dropped.pop_front();
}

}  // namespace tandem
