// SPDX-License-Identifier: Apache-2.0
// Values that are elsewhere: a cell that keeps its shape and dtype while other ranks, or another
// device, hold its elements, and bytes that come and go at one address. Whoever reads such a cell,
// and whoever runs the derivative of an op that has saved such bytes, has them brought back first.
#pragma once

#include <atomic>
#include <memory>

#include "tandem/graph/cell.h"

namespace tandem {
class Graph;
struct Trace;
}  // namespace tandem

namespace tandem::detail {

/// Where the values come from. Called on the thread that reads.
class TD_API ValueSource {
 public:
  virtual ~ValueSource() = default;
  /// Give the cell its value, by Cell::replace().
  virtual void bring(const Cell& cell) = 0;
  /// Have the bytes of a region that it has emptied, and give the region that holds them: the same
  /// one on the host, on a device one at another address. Throws Value where it cannot.
  virtual Tensor refill(const Tensor& region) = 0;
  /// The value of a cell as rows that are recorded in `trace` now; undefined where a program is to
  /// find it in the cell. The trace keeps a link to the source then (Graph::sources).
  virtual Tensor bring_by_rows(const Cell& cell, Trace& trace);
  /// A program with such rows is about to run.
  virtual void before_run() {}
};

/// A source, while it lives.
struct SourceLink {
  ValueSource* source = nullptr;
};

/// Number of absent cells and of regions in this process: readers look for them only then.
TD_API std::atomic<int64_t>& absent_count();
inline bool any_absent() { return absent_count().load(std::memory_order_relaxed) > 0; }

/// What a cell is where ranks shard parameters: the whole parameter, whose gradients leave it, or
/// this rank's part of one, which an optimizer updates.
enum class ShardRole : uint8_t { none, whole, part };
/// Whoever gives a cell a role keeps the cell, and takes the role back before it lets go of it.
/// `link`: who can bring a whole parameter by rows of a trace.
TD_API void set_shard_role(const Cell& cell, ShardRole role,
                           std::shared_ptr<SourceLink> link = nullptr);
TD_API ShardRole shard_role(const Cell& cell);
/// The value of a cell that has such a link, by rows of `trace`; else undefined.
TD_API Tensor bring_by_rows(const Cell& cell, Trace& trace);
/// A program of this graph is about to run: its sources are told. Throws Value where one is gone.
TD_API void tell_sources(const Graph& graph);

/// Drop the cell's value but its shape and dtype. Reading the elements of a value that was taken
/// from it in this state gives NaN.
TD_API void set_absent(Cell& cell, const std::shared_ptr<SourceLink>& link);
TD_API bool is_absent(const Tensor& v);
/// Call the source of an absent value that `cell` holds.
TD_API void bring_value(const Cell& cell, const Tensor& absent);

/// A value that a program has made on another device for a cell of the host: the cell holds what
/// this gives, and has the value copied when somebody reads it. So a program that counts its own
/// steps waits for nothing.
TD_API Tensor make_away(Tensor value);
/// What make_away() was given, where this came from it; else nullptr. With the cell's lock held.
TD_API Tensor* away_value(const Tensor& absent);

/// A flat tensor whose bytes can be given back and filled again while views of it are kept: on the
/// host at one address, so that views stay what they are. Memory of a device has no address without
/// bytes: there a region is emptied for good, and its views are moved to the one that takes its
/// place (bring_saved()).
TD_API Tensor make_region(int64_t elements, DType dtype, const std::shared_ptr<SourceLink>& link,
                          Device device = {});
TD_API bool is_region(const Tensor& t);
/// A number that no other region of this process has or had.
TD_API uint64_t region_number(const Tensor& region);
/// Give its bytes back; on the host they read as zeros until the source fills them.
TD_API void empty_region(const Tensor& region);
/// Whoever has filled it says so, when it is done.
TD_API void mark_filled(const Tensor& region);
/// Bytes of all regions of the host that are filled, and the most that were at one time. (Those of
/// devices are in allocator_stats(device).)
struct RegionBytes {
  int64_t now = 0, peak = 0;
};
TD_API RegionBytes region_bytes();
TD_API void reset_region_peak();
/// Have the regions filled that this node's saved values are views of.
TD_API void bring_saved(Node& node);

}  // namespace tandem::detail
