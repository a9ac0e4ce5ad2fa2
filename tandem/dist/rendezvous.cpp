// SPDX-License-Identifier: Apache-2.0
// A connection's first bytes: the listener sends a nonce; the caller answers with a Hello, whose
// mac is HMAC(token, "caller", nonce, Hello); the listener answers with a status and HMAC(token,
// "listener", both nonces, status). All have fixed sizes, and the listener waits for several
// callers at once.
#include "tandem/dist/rendezvous_internal.h"

#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "tandem/base/error.h"
#include "tandem/base/log.h"
#include "tandem/dist/token_internal.h"

namespace tandem::distributed {
namespace {

constexpr double kHandshakeSeconds = 5;  ///< for a caller that has connected
constexpr size_t kMostPending = 256;
constexpr uint32_t kMagic = 0x54444D31;  // "TDM1": the version of what is said
constexpr uint8_t kJoin = kLanes;        ///< purpose of a connection that is not a lane

struct Hello {
  uint32_t magic = kMagic;
  uint8_t purpose = 0;
  uint8_t unused[3] = {};
  int32_t rank = 0, size = 0;
  uint64_t group = 0;
  Bytes32 nonce = {};
  Card card = {};
};
struct SignedHello {
  Hello hello;
  Bytes32 mac = {};
};
enum Status : uint32_t { kWelcome, kOtherSize, kRankTaken };
struct Answer {
  uint32_t status = 0;
  int32_t size = 0;  ///< of the listener's group
  Bytes32 mac = {};
};

template <class T>
std::string_view bytes_of(const T& v) {
  return {reinterpret_cast<const char*>(&v), sizeof v};
}

Bytes32 sign_hello(const GroupKey& key, const Bytes32& nonce, const Hello& h) {
  return hmac(key.token, std::string("caller").append(bytes_of(nonce)).append(bytes_of(h)));
}
Bytes32 sign_answer(const GroupKey& key, const Bytes32& nonce, const Hello& h, const Answer& a) {
  std::string text = "listener";
  text.append(bytes_of(nonce)).append(bytes_of(h.nonce));
  text.append(bytes_of(a.status)).append(bytes_of(a.size));
  return hmac(key.token, text);
}

/// A caller whose Hello is verified.
struct Caller {
  Fd fd;
  Hello hello;
};

/// Lets callers in that know the token; others are sent away and do not hold up the rest.
class Acceptor {
 public:
  Acceptor(const Fd& listener, const GroupKey& key, int size)
      : listener_(listener), key_(key), size_(size) {}

  /// The next caller whose purpose and rank `wanted` takes; none at the deadline.
  template <class Wanted>
  bool next(Caller& caller, Deadline end, Wanted wanted) {
    while (Clock::now() < end) {
      wait(end);
      for (size_t i = 0; i < pending_.size();) {
        const bool done = receive(pending_[i]);
        if (!done && Clock::now() < pending_[i].end) {
          ++i;
          continue;
        }
        Pending p = std::move(pending_[i]);
        pending_.erase(pending_.begin() + static_cast<ptrdiff_t>(i));
        if (done && answer(p, wanted)) {
          caller = {std::move(p.fd), p.hello.hello};
          return true;
        }
      }
    }
    return false;
  }

 private:
  struct Pending {
    Fd fd;
    Bytes32 nonce;
    SignedHello hello;
    size_t got = 0;
    bool gone = false;
    Deadline end;
  };

  void wait(Deadline end) {
    std::vector<pollfd> p{{listener_.get(), POLLIN, 0}};
    for (const Pending& x : pending_) p.push_back({x.fd.get(), POLLIN, 0});
    ::poll(p.data(), p.size(),
           pending_.empty() ? poll_milliseconds(end) : std::min(100, poll_milliseconds(end)));
    if (!(p[0].revents & POLLIN) || pending_.size() >= kMostPending) return;
    Fd fd = accept_from(listener_);
    if (!fd) return;
    Pending x{std::move(fd), random_bytes(), {}, 0, false, after(kHandshakeSeconds)};
    if (write_all(x.fd, x.nonce.data(), x.nonce.size(), Clock::now()))
      pending_.push_back(std::move(x));
  }

  // True when there is nothing more to wait for.
  static bool receive(Pending& p) {
    while (p.got < sizeof p.hello) {
      const int64_t n =
          read_some(p.fd.get(), reinterpret_cast<char*>(&p.hello) + p.got, sizeof p.hello - p.got);
      if (n == 0) return false;
      p.gone = n < 0;
      if (p.gone) return true;
      p.got += static_cast<size_t>(n);
    }
    return true;
  }

  template <class Wanted>
  bool answer(Pending& p, Wanted& wanted) {
    const Hello& h = p.hello.hello;
    if (p.gone || h.magic != kMagic || h.group != key_.group ||
        !equal(p.hello.mac, sign_hello(key_, p.nonce, h))) {
      log_warning("a connection from {} was refused: it does not know the job's token",
                  peer_address(p.fd).text());
      return false;
    }
    const bool rank_known = h.rank >= 0 && h.rank < size_;
    Answer a{h.size != size_                           ? kOtherSize
             : rank_known && wanted(h.purpose, h.rank) ? kWelcome
                                                       : kRankTaken,
             size_};
    a.mac = sign_answer(key_, p.nonce, h, a);
    return write_all(p.fd, &a, sizeof a, after(1)) && a.status == kWelcome;
  }

  const Fd& listener_;
  const GroupKey& key_;
  int size_;
  std::vector<Pending> pending_;
};

// Introduce this rank to the listener at `to`, over a connection to it.
Fd introduce(Fd fd, const Address& to, Hello h, const GroupKey& key, Deadline end) {
  Bytes32 nonce;
  h.group = key.group;
  h.nonce = random_bytes();
  const Deadline soon = std::min(end, after(2 * kHandshakeSeconds));
  Answer a;
  const bool heard = read_all(fd, nonce.data(), nonce.size(), soon);
  const SignedHello signed_hello{h, sign_hello(key, nonce, h)};
  const bool said = heard && write_all(fd, &signed_hello, sizeof signed_hello, soon);
  TD_CHECK(
      said && read_all(fd, &a, sizeof a, soon), Io,
      "{} did not let rank {} in: it is not a rank of Tandem, or it knows another token\nDoes "
      "another job use that port? Ranks of one job need the same TANDEM_TOKEN, or none and the "
      "same user.",
      to.text(), h.rank);
  TD_CHECK(
      equal(a.mac, sign_answer(key, nonce, h, a)), Io,
      "{} does not know the job's token: rank {} does not join it\nIs another job on that port?",
      to.text(), h.rank);
  TD_CHECK(a.status != kOtherSize, Value,
           "rank {} says that there are {} ranks, rank 0 at {} says {}\nStart all ranks with one "
           "WORLD_SIZE.",
           h.rank, h.size, to.text(), a.size);
  TD_CHECK(
      a.status == kWelcome, Value,
      "rank {} is there already at {}\nTwo processes have this rank: give each its own, and each "
      "job its own MASTER_PORT.",
      h.rank, to.text());
  return fd;
}

std::string missing_text(const std::vector<char>& there) {
  std::string text;
  for (size_t r = 0; r < there.size(); ++r)
    if (!there[r]) text += fmt::format("{}{}", text.empty() ? "" : ", ", r);
  return text;
}

// Rank 0: cards of all, which it hands to all.
std::vector<Card> gather_cards(const Fd& listener, int size, const GroupKey& key, double seconds) {
  const Deadline end = after(seconds);
  std::vector<Card> cards(static_cast<size_t>(size));
  std::vector<Fd> callers(cards.size());
  std::vector<char> there(cards.size(), 0);
  there[0] = 1;
  cards[0] = own_card(listener);
  Acceptor acceptor(listener, key, size);
  auto wanted = [&](uint8_t purpose, int rank) {
    return purpose == kJoin && !there[static_cast<size_t>(rank)];
  };
  for (int k = 1; k < size; ++k) {
    Caller g;
    TD_CHECK(acceptor.next(g, end, wanted), Io,
             "{} of {} ranks have not come to {} within {:.0f} s: {}\nDid they start, and can they "
             "reach this host?",
             std::count(there.begin(), there.end(), 0), size, local_address(listener).text(),
             seconds, missing_text(there));
    const auto r = static_cast<size_t>(g.hello.rank);
    there[r] = 1;
    cards[r] = g.hello.card;
    callers[r] = std::move(g.fd);
  }
  for (size_t r = 1; r < callers.size(); ++r)
    TD_CHECK(write_all(callers[r], cards.data(), cards.size() * sizeof(Card), end), Io,
             "rank {} (host {}, process {}) left before all ranks were there", r, cards[r].host,
             cards[r].pid);
  return cards;
}

}  // namespace

Card own_card(const Fd& listener) {
  Card c;
  const Address at = local_address(listener);
  std::snprintf(c.host, sizeof c.host, "%s", host_name().c_str());
  std::snprintf(c.address, sizeof c.address, "%s", at.host.c_str());
  c.port = at.port;
  c.pid = ::getpid();
  return c;
}

Mesh connect_lanes(int rank, std::vector<Card> cards, const Fd& listener, const GroupKey& key,
                   Deadline end) {
  Mesh m{rank, static_cast<int>(cards.size()), std::move(cards), {}};
  for (auto& lane : m.sockets) lane.resize(m.cards.size());
  // To the ranks below; they need not have asked for it yet, listeners keep callers waiting.
  for (int to = 0; to < rank; ++to)
    for (uint8_t lane = 0; lane < kLanes; ++lane) {
      const Card& c = m.cards[static_cast<size_t>(to)];
      Hello h;
      h.purpose = lane;
      h.rank = rank;
      h.size = m.size;
      const Address at{c.address, c.port};
      m.sockets[lane][static_cast<size_t>(to)] = introduce(connect_to(at, end), at, h, key, end);
    }
  Acceptor acceptor(listener, key, m.size);
  auto wanted = [&](uint8_t lane, int from) {
    return lane < kLanes && from > rank && !m.sockets[lane][static_cast<size_t>(from)];
  };
  for (int left = (m.size - 1 - rank) * kLanes; left > 0; --left) {
    Caller g;
    TD_CHECK(
        acceptor.next(g, end, wanted), Io,
        "ranks above {} have not connected to it: {} connections are missing\nRanks must reach "
        "each other, not rank 0 alone; is a firewall between the machines?",
        rank, left);
    m.sockets[g.hello.purpose][static_cast<size_t>(g.hello.rank)] = std::move(g.fd);
  }
  return m;
}

Mesh meet(const Address& master, int rank, int size, const GroupKey& key, double seconds) {
  const Deadline end = after(seconds);
  if (rank == 0) {
    const Fd listener = listen_on(master);
    return connect_lanes(0, gather_cards(listener, size, key, seconds), listener, key, end);
  }
  // Others reach this rank by the address that it reaches rank 0 from. (The host's name may lead to
  // a loopback address.)
  Fd fd = connect_to(master, end);
  const Fd listener = listen_beside(fd);
  Hello h;
  h.purpose = kJoin;
  h.rank = rank;
  h.size = size;
  h.card = own_card(listener);
  const Fd joined = introduce(std::move(fd), master, h, key, end);
  std::vector<Card> cards(static_cast<size_t>(size));
  TD_CHECK(read_all(joined, cards.data(), cards.size() * sizeof(Card), end), Io,
           "rank 0 at {} has not found all {} ranks, or it ended\nIts own message says which are "
           "missing.",
           master.text(), size);
  std::snprintf(cards[0].address, sizeof cards[0].address, "%s", peer_address(joined).host.c_str());
  cards[0].port = master.port;
  return connect_lanes(rank, std::move(cards), listener, key, end);
}

}  // namespace tandem::distributed
