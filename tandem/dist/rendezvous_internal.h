// SPDX-License-Identifier: Apache-2.0
// How ranks find each other: rank 0 listens, the others introduce themselves, all get the list of
// all, and every pair is connected by one socket per lane. Every connection begins with a
// challenge: both sides prove that they know the job's token before anything else is read.
#pragma once

#include <string>
#include <vector>

#include "tandem/dist/engine.h"
#include "tandem/dist/network_internal.h"

namespace tandem::distributed {

/// Sockets of a pair of ranks. Calls of all ranks, calls of two, and what monitors tell each other.
enum Lane : uint8_t { kCalls, kPairs, kControl, kLanes };

/// What a member of a group says of itself.
struct Card {
  char host[64] = "";     ///< name of the machine
  char address[64] = "";  ///< where it listens
  uint16_t port = 0;
  uint8_t unused[6] = {};  ///< cards are sent as they lie in memory
  int64_t pid = 0;
};

struct Mesh {
  int rank = 0, size = 1;
  std::vector<Card> cards;          ///< by rank
  std::vector<Fd> sockets[kLanes];  ///< by rank; none for itself
};

struct GroupKey {
  std::string token;
  uint64_t group = 0;  ///< which group of the job
};

/// The group of all ranks. Throws Io naming who is missing at the deadline, and where this rank is
/// not let in; Value where another size was given to rank 0.
Mesh meet(const Address& master, int rank, int size, const GroupKey& key, double seconds);

/// The lanes of a group whose cards are known; `listener` is the one of this rank's card.
Mesh connect_lanes(int rank, std::vector<Card> cards, const Fd& listener, const GroupKey& key,
                   Deadline end);
/// This process's card with that listener.
Card own_card(const Fd& listener);

}  // namespace tandem::distributed
