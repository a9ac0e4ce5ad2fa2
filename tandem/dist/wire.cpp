// SPDX-License-Identifier: Apache-2.0
#include <cstdio>
#include <cstring>

#include "tandem/base/error.h"
#include "tandem/dist/network_internal.h"
#include "tandem/dist/wire_internal.h"

namespace tandem::distributed {

bool WireHeader::fits(const WireHeader& o) const {
  return magic == o.magic && kind == o.kind && dtype == o.dtype && op == o.op && phase == o.phase &&
         number == o.number && count == o.count && peer == o.peer && bytes == o.bytes &&
         std::memcmp(label, o.label, sizeof label) == 0;
}

std::string WireHeader::text() const {
  if (magic != WireHeader().magic || kind > CallKind::barrier || op > ReduceOp::max ||
      static_cast<int>(dtype) >= kDTypeCount)
    return "something that is not a call";
  Call c{kind, {nullptr, count, dtype}, {nullptr, count, dtype}, op, peer, {}};
  c.options.label.assign(label, ::strnlen(label, sizeof label));
  return to_string(c);
}

WireHeader header_of(const Call& c, int64_t number) {
  WireHeader h;
  h.kind = c.kind;
  h.dtype = c.out.dtype;
  h.op = c.op;
  h.number = number;
  h.count = c.out.count;
  h.peer = c.peer;
  std::snprintf(h.label, sizeof h.label, "%s", c.options.label.c_str());
  return h;
}

Transfer::Transfer(int peer, bool sends, WireHeader header, void* data, size_t bytes)
    : peer_(peer), sends_(sends), want_(header), data_(static_cast<char*>(data)) {
  want_.bytes = bytes;
}

void Transfer::check(int rank) const {
  if (came_.fits(want_)) return;
  TD_CHECK(came_.number == want_.number || came_.magic != want_.magic, Value,
           "the ranks are at different calls: rank {} at #{} {}, rank {} at #{} {}\nAll ranks must "
           "make the same calls in the same order.",
           rank, want_.number, want_.text(), peer_, came_.number, came_.text());
  TD_FAIL(
      Value,
      "the ranks make different calls: call #{} of rank {} is {}, of rank {} it is {}\nAll ranks "
      "must make the same calls in the same order, with the same sizes.",
      want_.number, rank, want_.text(), peer_, came_.text());
}

Transfer::State Transfer::move(int fd, int rank) {
  while (!done()) {
    const bool head = at_ < sizeof(WireHeader);
    const size_t left = (head ? sizeof(WireHeader) : sizeof(WireHeader) + want_.bytes) - at_;
    int64_t n = 0;
    if (sends_) {
      const char* from =
          head ? reinterpret_cast<const char*>(&want_) + at_ : data_ + (at_ - sizeof(WireHeader));
      n = write_some(fd, from, left);
    } else {
      char* to = head ? reinterpret_cast<char*>(&came_) + at_ : data_ + (at_ - sizeof(WireHeader));
      n = read_some(fd, to, left);
    }
    if (n < 0) return kLost;
    if (n == 0) return kGoing;
    at_ += static_cast<size_t>(n);
    if (!sends_ && head && at_ == sizeof(WireHeader)) check(rank);
  }
  return kDone;
}

}  // namespace tandem::distributed
