// SPDX-License-Identifier: Apache-2.0
// The engine of several ranks. Every call is one or two rounds in which each rank writes to and
// reads from all others at once. A reduction hands part r of the array to rank r, which adds up all
// ranks' by the tree and gives the result to all: the traffic of a ring in two rounds, and bits
// that depend on nothing but the values. With a carrier, large calls are compared in a round
// without elements, then the carrier moves them. Ranks of one machine that may read each other's
// memory (cross-memory attach, process_vm_readv) do so in all_reduce, reduce_scatter and all_gather
// from 256 KiB on, between rounds that say where it lies and that it was read; other calls go
// through the connections whatever their size.
#include "tandem/dist/make_engine.h"

#include <poll.h>

#include <algorithm>
#include <charconv>
#include <cstdlib>
#include <cstring>
#include <numeric>
#include <thread>

#include "tandem/base/error.h"
#include "tandem/base/hash/hash.h"
#include "tandem/dist/carrier_internal.h"
#include "tandem/dist/near_memory_internal.h"
#include "tandem/dist/pair_lane_internal.h"
#include "tandem/dist/reduce_internal.h"
#include "tandem/dist/reducer_internal.h"
#include "tandem/dist/token_internal.h"

namespace tandem::distributed {
namespace {

/// Arrays up to this size go whole to all ranks: one round.
constexpr size_t kSmallBytes = 16384;
/// From this size on ranks of one machine read each other's memory: below, the rounds around that
/// take longer than the bytes.
constexpr size_t kNearBytes = 262144;
/// What is read at once and added up while it is in the cache.
constexpr int64_t kNearChunk = 32768;

class TcpEngine final : public QueuedEngine {
 public:
  TcpEngine(Mesh mesh, GroupKey key, EngineOptions options)
      : QueuedEngine(mesh.rank, mesh.size),
        mesh_(std::move(mesh)),
        key_(std::move(key)),
        options_(std::move(options)),
        monitor_(mesh_, {options_.deadline, options_.exit_unheard}),
        pairs_(mesh_, monitor_, log(), options_.timeout,
               [this](std::exception_ptr e) { fail(e); }) {
    on_heard([this] { monitor_.heard(); });
  }

  /// Large calls go through that plugin from now on; all ranks call it.
  void use_carrier(const TandemCarrier& plugin, std::vector<int> members) {
    const auto gather = [](void* self, const void* own, int64_t bytes, void* all) {
      try {
        auto* e = static_cast<TcpEngine*>(self);
        e->all_gather({own, bytes, DType::u8}, {all, bytes * e->size(), DType::u8}, {"addresses"})
            .wait();
        return 0;
      } catch (const Error&) {  // the engine throws it again at the next call
        return -1;
      }
    };
    members_ = std::move(members);
    const size_t neighbour = rank() == 0 ? 1 : 0;
    const std::string address = local_address(mesh_.sockets[kCalls][neighbour]).host;
    auto carrier = std::make_unique<Carrier>(
        plugin, TandemCarrierGroup{rank(), size(), members_.data(), key_.group, address.c_str(),
                                   gather, this});
    barrier({"carrier"}).wait();  // from here on nothing is carried by TCP on one side alone
    carrier_ = std::move(carrier);
  }

  /// Look whether the ranks can read each other's memory; all of them call it.
  void look_near() {
    const Bytes32 random = random_bytes();
    uint8_t secret[32];
    static_assert(sizeof secret == sizeof random);
    std::memcpy(secret, random.data(), sizeof secret);
    const NearProbe own = near_probe(mesh_, secret);
    std::vector<NearProbe> all(static_cast<size_t>(size()));
    const auto bytes = static_cast<int64_t>(sizeof own);
    all_gather({&own, bytes, DType::u8}, {all.data(), bytes * size(), DType::u8}, {"neighbours"})
        .wait();
    int64_t can = can_read_all(mesh_, all);
    all_reduce({&can, 1, DType::i64}, ReduceOp::min, {"neighbours"}).wait();
    near_ = can != 0;
  }

  ~TcpEngine() override {
    // What was asked for is still made; others are not kept waiting for what cannot be.
    const Deadline end = after(options_.deadline);
    bool idle = drain(options_.deadline);
    while (!pairs_.idle() && Clock::now() < end)
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    idle = idle && pairs_.idle();
    if (!idle)
      monitor_.decide(fmt::format("{} has left the group while its calls were under way, {}",
                                  monitor_.name_of(rank()), own_place()));
    finish();
  }

  const char* name() const override { return carrier_ ? carrier_->name() : "tcp"; }

  Member member(int r) const override {
    TD_CHECK(r >= 0 && r < size(), Index, "rank {} of {}", r, size());
    const Card& c = mesh_.cards[static_cast<size_t>(r)];
    return {c.host, c.pid};
  }

  std::shared_ptr<Engine> split(int color, int key) override {
    struct Choice {
      int32_t color, key;
      Card card;
    } own{color, key, {}};
    static_assert(sizeof(Choice) == 8 + sizeof(Card));
    const size_t neighbour = rank() == 0 ? 1 : 0;
    const Fd listener = listen_beside(mesh_.sockets[kCalls][neighbour]);
    own.card = own_card(listener);
    std::vector<Choice> all(static_cast<size_t>(size()));
    const auto bytes = static_cast<int64_t>(sizeof own);
    all_gather({&own, bytes, DType::u8}, {all.data(), bytes * size(), DType::u8}, {"split"}).wait();
    const uint64_t group =
        hash_combine(hash_combine(key_.group, ++splits_), static_cast<uint64_t>(color));
    if (color < 0) return nullptr;
    std::vector<int> members;
    for (int r = 0; r < size(); ++r)
      if (all[static_cast<size_t>(r)].color == color) members.push_back(r);
    std::stable_sort(members.begin(), members.end(), [&](int a, int b) {
      return all[static_cast<size_t>(a)].key < all[static_cast<size_t>(b)].key;
    });
    if (members.size() == 1) return single_engine();
    std::vector<Card> cards;
    for (const int r : members) cards.push_back(all[static_cast<size_t>(r)].card);
    const auto at = std::find(members.begin(), members.end(), rank()) - members.begin();
    const GroupKey sub{key_.token, group};
    auto engine =
        std::make_shared<TcpEngine>(connect_lanes(static_cast<int>(at), std::move(cards), listener,
                                                  sub, after(options_.start_timeout)),
                                    sub, options_);
    engine->look_near();
    if (carrier_) {
      for (int& m : members) m = members_[static_cast<size_t>(m)];
      engine->use_carrier(carrier_->plugin(), std::move(members));
    }
    return engine;
  }

  void abort(const std::string& reason) noexcept override {
    try {
      monitor_.decide(fmt::format("{} has ended the group: {}", monitor_.name_of(rank()), reason));
      fail(std::make_exception_ptr(Error(ErrorKind::Io, monitor_.verdict())));
    } catch (...) {  // out of memory: the others learn it when this process ends
    }
  }
  void goodbye() noexcept override {
    try {
      monitor_.say_goodbye();
    } catch (...) {  // they see the connection close
    }
  }
  void set_step(int64_t step) noexcept override {
    monitor_.set_step(step);
    note_step(step);
  }

 protected:
  Work submit(Call c) override {
    monitor_.called_here();
    if (c.kind == CallKind::send || c.kind == CallKind::recv) {
      if (const std::exception_ptr e = failure()) std::rethrow_exception(e);
      return Work(pairs_.post(c));
    }
    return QueuedEngine::submit(std::move(c));
  }

  void run(const Call& c, int64_t number) override {
    text_ = to_string(c);
    monitor_.enter_call(number, text_);
    rounds_ = 0;
    call_ = &c;
    number_ = number;
    timeout_ = c.options.timeout > 0 ? c.options.timeout : options_.timeout;
    end_ = after(timeout_);
    try {
      make(c);
    } catch (const Error& e) {
      monitor_.decide(e.text());
      throw;
    }
  }

 private:
  std::string own_place() const {
    return fmt::format("in step {} after call #{}", monitor_.step(), number_);
  }

  void make(const Call& c) {
    if (carrier_ && c.out.bytes() > kSmallBytes && carrier_->takes(c)) return carry(c);
    switch (c.kind) {
      case CallKind::all_reduce:
        return c.out.bytes() <= kSmallBytes ? reduce_small(c) : reduce_large(c);
      case CallKind::reduce_scatter:
        return scatter_reduced(c);
      case CallKind::all_gather:
        gather_parts(c, 0, [&](int r) { return part_of(c.out, r); });
        return;
      case CallKind::broadcast:
        return spread(c);
      case CallKind::all_to_all:
        return transpose(c);
      case CallKind::barrier:
        return compare();
      case CallKind::send:
      case CallKind::recv:
        break;
    }
    TD_FAIL(Internal, "{} is not a call of all ranks", to_string(c.kind));
  }

  // ---- the rounds

  // Rank r's part of an array.
  Array part_of(const Array& a, int r) const {
    const int64_t b = a.count * r / size(), e = a.count * (r + 1) / size();
    return {static_cast<char*>(a.data) + static_cast<size_t>(b) * size_of(a.dtype), e - b, a.dtype};
  }

  template <class F>
  void for_others(F f) const {
    for (int r = 0; r < size(); ++r)
      if (r != rank()) f(r);
  }

  uint32_t step_of_messages() const { return static_cast<uint32_t>(monitor_.step()); }

  // Send `out` to rank r, receive `in` from it.
  void add_both(std::vector<Transfer>& round, int r, uint8_t phase, const Array& out,
                const Array& in) const {
    WireHeader h = header_of(*call_, number_);
    h.phase = phase;
    h.step = step_of_messages();
    round.emplace_back(r, true, h, out.data, out.bytes());
    round.emplace_back(r, false, h, in.data, in.bytes());
  }

  // Memory for a part of every other rank, and where each is.
  std::vector<const void*> add_received(std::vector<Transfer>& round, const Array& whole,
                                        const Array& own, bool parts) {
    const size_t bytes = own.bytes();
    scratch_.resize(bytes * static_cast<size_t>(size()));
    std::vector<const void*> all(static_cast<size_t>(size()), own.data);
    for_others([&](int r) {
      char* to = scratch_.data() + bytes * static_cast<size_t>(r);
      all[static_cast<size_t>(r)] = to;
      add_both(round, r, 0, parts ? part_of(whole, r) : whole, {to, own.count, own.dtype});
    });
    return all;
  }

  // All ranks are in this call, and it is the same one.
  void compare() {
    std::vector<Transfer> round;
    for_others([&](int r) { add_both(round, r, 0, {}, {}); });
    exchange(round);
  }

  void carry(const Call& c) {
    compare();
    struct Carried {
      Monitor& monitor;
      explicit Carried(Monitor& m) : monitor(m) { monitor.set_carried(true); }
      ~Carried() { monitor.set_carried(false); }
    } carried(monitor_);
    try {
      // It gives up a moment after the monitor would.
      carrier_->make(c, options_.deadline + 1, [this] {
        if (monitor_.has_verdict()) throw_verdict();
        TD_CHECK(Clock::now() < end_, Io,
                 "{} has not ended after {:.1f} s, though all ranks have begun it\nIs the network "
                 "slow? TANDEM_DIST_TIMEOUT sets how long a call may take.",
                 where(), timeout_);
      });
    } catch (const Error&) {
      // A rank that died breaks the carrier first; who that was is known a moment later.
      const Deadline end = after(1);
      while (!monitor_.has_verdict() && Clock::now() < end)
        std::this_thread::sleep_for(std::chrono::milliseconds(5));
      if (monitor_.has_verdict()) throw_verdict();
      throw;
    }
    if (c.options.divisor != 1) divide(c.out, c.options.divisor);
  }

  void reduce_small(const Call& c) {
    std::vector<Transfer> round;
    const std::vector<const void*> all = add_received(round, c.out, c.out, false);
    exchange(round);
    reduce_parts(all, c.out.data, c.out.count, c.out.dtype, c.op, c.options.divisor);
  }

  void reduce_large(const Call& c) {
    if (near_ && c.out.bytes() >= kNearBytes) {
      const std::vector<uint64_t> at = addresses(c.out.data);
      reduce_near(at, part_of(c.out, rank()), part_of(c.out, rank()), offset_of(c.out), c);
      said(1);
      for_others([&](int r) {
        const Array part = part_of(c.out, r);
        read_from(r, at[static_cast<size_t>(r)] + offset_of(c.out, r), part.data, part.bytes());
      });
      return said(2);
    }
    std::vector<Transfer> round;
    const Array own = part_of(c.out, rank());
    const std::vector<const void*> all = add_received(round, c.out, own, true);
    exchange(round);
    reduce_parts(all, own.data, own.count, own.dtype, c.op, c.options.divisor);
    gather_parts(c, 1, [&](int r) { return part_of(c.out, r); });
  }

  void scatter_reduced(const Call& c) {
    std::vector<Transfer> round;
    const Array in{const_cast<void*>(c.in.data), c.in.count, c.in.dtype};
    if (near_ && in.bytes() >= kNearBytes) {
      reduce_near(addresses(in.data), part_of(in, rank()), c.out, offset_of(in), c);
      return said(1);
    }
    const std::vector<const void*> all = add_received(round, in, part_of(in, rank()), true);
    exchange(round);
    reduce_parts(all, c.out.data, c.out.count, c.out.dtype, c.op, c.options.divisor);
  }

  // Every rank's part to all. In a gather of phase 0 this rank's own part comes from `in`.
  template <class PartOf>
  void gather_parts(const Call& c, uint8_t phase, PartOf part) {
    const Array own = part(rank());
    if (near_ && phase == 0 && c.out.bytes() >= kNearBytes) {
      const std::vector<uint64_t> at = addresses(c.in.data);
      if (own.data != c.in.data) std::memmove(own.data, c.in.data, own.bytes());
      for_others(
          [&](int r) { read_from(r, at[static_cast<size_t>(r)], part(r).data, part(r).bytes()); });
      return said(1);
    }
    if (phase == 0 && own.data != c.in.data && own.count > 0)
      std::memmove(own.data, c.in.data, own.bytes());
    std::vector<Transfer> round;
    for_others([&](int r) { add_both(round, r, phase, own, part(r)); });
    exchange(round);
  }

  void spread(const Call& c) {
    std::vector<Transfer> round;
    WireHeader h = header_of(c, number_);
    h.step = step_of_messages();
    // All ranks exchange a header, so that each is compared with each.
    for_others([&](int r) {
      round.emplace_back(r, true, h, c.out.data, rank() == c.peer ? c.out.bytes() : 0);
      round.emplace_back(r, false, h, c.out.data, r == c.peer ? c.out.bytes() : 0);
    });
    exchange(round);
  }

  void transpose(const Call& c) {
    const Array in{const_cast<void*>(c.in.data), c.in.count, c.in.dtype};
    const Array own = part_of(in, rank()), place = part_of(c.out, rank());
    if (own.data != place.data && own.count > 0) std::memmove(place.data, own.data, own.bytes());
    std::vector<Transfer> round;
    for_others([&](int r) { add_both(round, r, 0, part_of(in, r), part_of(c.out, r)); });
    exchange(round);
  }

  // ---- the memory of neighbours

  size_t offset_of(const Array& a, int r) const {
    return static_cast<size_t>(static_cast<const char*>(part_of(a, r).data) -
                               static_cast<const char*>(a.data));
  }
  size_t offset_of(const Array& a) const { return offset_of(a, rank()); }

  // Where every rank's array lies, whose values are complete; all are in this call, and it is the
  // same one.
  std::vector<uint64_t> addresses(const void* own) {
    const auto here = reinterpret_cast<uint64_t>(own);
    std::vector<uint64_t> all(static_cast<size_t>(size()), here);
    std::vector<Transfer> round;
    for_others([&](int r) {
      add_both(round, r, 0, {const_cast<uint64_t*>(&here), 1, DType::i64},
               {&all[static_cast<size_t>(r)], 1, DType::i64});
    });
    exchange(round);
    return all;
  }
  // All ranks have come as far as this.
  void said(uint8_t phase) {
    std::vector<Transfer> round;
    for_others([&](int r) { add_both(round, r, phase, {}, {}); });
    exchange(round);
  }
  void read_from(int r, uint64_t from, void* to, size_t bytes) {
    constexpr size_t kOnce = size_t{4} << 20;  // so that a verdict is seen soon
    for (size_t done = 0; done < bytes; done += kOnce) {
      if (monitor_.has_verdict()) throw_verdict();
      if (!read_near(mesh_.cards[static_cast<size_t>(r)].pid, from + done,
                     static_cast<char*>(to) + done, std::min(kOnce, bytes - done)))
        throw_lost(r);
    }
  }
  // This rank's part of the reduction, piece by piece.
  void reduce_near(const std::vector<uint64_t>& at, const Array& own, const Array& to,
                   size_t offset, const Call& c) {
    const size_t each = size_of(own.dtype), piece = static_cast<size_t>(kNearChunk) * each;
    scratch_.resize(piece * static_cast<size_t>(size()));
    std::vector<const void*> all(static_cast<size_t>(size()));
    for (int64_t i = 0; i < own.count; i += kNearChunk) {
      const int64_t n = std::min(kNearChunk, own.count - i);
      const size_t skip = static_cast<size_t>(i) * each;
      all[static_cast<size_t>(rank())] = static_cast<const char*>(own.data) + skip;
      for_others([&](int r) {
        char* here = scratch_.data() + piece * static_cast<size_t>(r);
        read_from(r, at[static_cast<size_t>(r)] + offset + skip, here,
                  static_cast<size_t>(n) * each);
        all[static_cast<size_t>(r)] = here;
      });
      reduce_parts(all, static_cast<char*>(to.data) + skip, n, own.dtype, c.op, c.options.divisor);
    }
  }

  // Move all messages of a round. The first one of a call tells who comes last.
  void exchange(std::vector<Transfer>& round) {
    std::vector<pollfd> polled;
    std::vector<Transfer*> of;
    const bool first = rounds_++ == 0;
    const Clock::time_point begin = Clock::now();
    int last = -1;
    double late = 0;
    for (bool waited = false;; waited = true) {
      polled.clear();
      of.clear();
      for (Transfer& t : round) {
        if (t.done()) continue;
        const Fd& fd = mesh_.sockets[kCalls][static_cast<size_t>(t.peer())];
        const bool came = t.came();
        const Transfer::State s = t.move(fd.get(), rank());
        if (first && waited && t.came() && !came) {
          last = t.peer();
          late = seconds_since(begin);
        }
        if (s == Transfer::kLost) throw_lost(t.peer());
        if (s == Transfer::kDone) continue;
        polled.push_back({fd.get(), static_cast<int16_t>(t.sends() ? POLLOUT : POLLIN), 0});
        of.push_back(&t);
      }
      if (of.empty()) break;
      if (monitor_.has_verdict()) throw_verdict();
      if (Clock::now() > end_) throw_late(of);
      ::poll(polled.data(), polled.size(), poll_milliseconds(end_));
    }
    if (last >= 0) note_last(last, late);
    for (const Transfer& t : round)
      if (!t.sends()) monitor_.saw(t.peer(), t.came_in_step(), number_, text_);
  }

  // ---- what ends a call

  std::string where() const {
    return fmt::format("rank {} in step {}, call #{} {}", rank(), monitor_.step(), number_, text_);
  }
  [[noreturn]] void throw_verdict() const { TD_FAIL(Io, "{}: {}", where(), monitor_.verdict()); }
  [[noreturn]] void throw_lost(int peer) {
    monitor_.decide_lost(peer);
    throw_verdict();
  }
  [[noreturn]] void throw_late(const std::vector<Transfer*>& left) {
    // One that has not come is to blame rather than one that waits for it as well.
    int late = left.front()->peer();
    bool came = true;
    for (const Transfer* t : left)
      if (came && monitor_.state(t->peer()).entered < number_) {
        late = t->peer();
        came = false;
      }
    monitor_.decide(fmt::format(
        "{} {} call #{} {} for {:.1f} s, {}\n{}{}", monitor_.name_of(late),
        came ? "is in, and nothing has come from it in" : "lives but has not made", number_, text_,
        timeout_, monitor_.place_of(late), came ? "" : monitor_.stack_of_peer(late),
        came ? "Is the network slow? TANDEM_DIST_TIMEOUT sets how long a call may take."
             : "It computes for longer, hangs or has another number of steps. "
               "TANDEM_DIST_TIMEOUT sets "
               "how long the others wait."));
    throw_verdict();
  }

  Mesh mesh_;
  GroupKey key_;
  EngineOptions options_;
  uint64_t splits_ = 0;
  std::vector<char> scratch_;
  // Of the call under way.
  const Call* call_ = nullptr;
  std::string text_;
  int64_t number_ = 0;
  int rounds_ = 0;
  double timeout_ = 0;
  Deadline end_;
  Monitor monitor_;
  PairLane pairs_;
  std::unique_ptr<Carrier> carrier_;
  bool near_ = false;         ///< all ranks can read each other's memory
  std::vector<int> members_;  ///< rank of each in the whole job
};

double seconds_of(const char* name, double otherwise) {
  const char* text = std::getenv(name);
  if (!text || !*text) return otherwise;
  char* end = nullptr;
  const double v = std::strtod(text, &end);
  TD_CHECK(*end == '\0' && v > 0, Value, "{} is '{}', expected seconds above 0", name, text);
  return v;
}

/// Engines by plugins that come with the library, and what they are built with.
struct OwnPlugin {
  const char *engine, *packages;
};
constexpr OwnPlugin kOwnPlugins[] = {{"gloo", "libgloo-dev"},
                                     {"mpi", "libopenmpi-dev or libmpich-dev"}};

// The plugin of that name, or none for "tcp".
const TandemCarrier* plugin_of(const std::string& name) {
  if (name == "tcp") return nullptr;
  const Plugin p = find_plugin(name);
  if (p.carrier) return p.carrier;
  std::string names = "auto, tcp";
  for (const OwnPlugin& own : kOwnPlugins) {
    names += fmt::format(", {}", own.engine);
    TD_CHECK(name != own.engine, Unsupported,
             "the engine '{}' cannot be used: {}\nIt is built where its library is installed "
             "(Debian: {}). TANDEM_DIST_ENGINE=tcp does without.",
             name, p.problem, own.packages);
  }
  TD_FAIL(Unsupported,
          "there is no engine '{}': {}\nEngines are {}, and plugins in the folders of "
          "TANDEM_CARRIERS.",
          name, p.problem, names);
}

bool one_machine(const Mesh& mesh) {
  return std::all_of(mesh.cards.begin(), mesh.cards.end(),
                     [&](const Card& c) { return std::string_view(c.host) == mesh.cards[0].host; });
}

}  // namespace

EngineOptions engine_options() {
  EngineOptions o;
  o.deadline = seconds_of("TANDEM_DIST_DEADLINE", o.deadline);
  o.timeout = seconds_of("TANDEM_DIST_TIMEOUT", o.timeout);
  o.start_timeout = seconds_of("TANDEM_DIST_START_TIMEOUT", o.start_timeout);
  if (const char* name = std::getenv("TANDEM_DIST_ENGINE"); name && *name) o.engine = name;
  return o;
}

std::shared_ptr<Engine> make_engine(const Place& place, const EngineOptions& options) {
  if (place.size == 1) return single_engine();
  if (options.engine != "auto") plugin_of(options.engine);  // before others wait for this rank
  const GroupKey key{options.token.empty() ? job_token() : options.token, 0};
  const Address master{place.master_addr, static_cast<uint16_t>(place.master_port)};
  Mesh mesh = meet(master, place.rank, place.size, key, options.start_timeout);
  const std::string name = options.engine != "auto" ? options.engine
                           : one_machine(mesh)      ? "tcp"
                                                    : "gloo";
  auto engine = std::make_shared<TcpEngine>(std::move(mesh), key, options);
  engine->look_near();
  compare_lines(
      *engine, {name}, "engines",
      "Set TANDEM_DIST_ENGINE alike on all machines, or install the same library on them.");
  if (const TandemCarrier* plugin = plugin_of(name)) {
    std::vector<int> all(static_cast<size_t>(place.size));
    std::iota(all.begin(), all.end(), 0);
    engine->use_carrier(*plugin, std::move(all));
  }
  return engine;
}

std::vector<std::string> engine_names() {
  std::vector<std::string> names{"tcp"};
  for (const OwnPlugin& own : kOwnPlugins) names.push_back(own.engine);
  return names;
}

std::string engine_status(const std::string& name) {
  if (name == "tcp") return "built in";
  const Plugin p = find_plugin(name);
  return p.carrier ? p.path : p.problem;
}

}  // namespace tandem::distributed
