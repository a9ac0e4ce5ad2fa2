// SPDX-License-Identifier: Apache-2.0
// Engine: a group of processes that exchange arrays in host memory. Every call is asynchronous, has
// a deadline, and must be made by all ranks of the group in the same order (send and recv by two).
// Implementations: one process alone, and ranks that are connected (dist/make_engine.h).
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "tandem/base/export.h"
#include "tandem/tensor/dtype.h"

namespace tandem::distributed {

enum class ReduceOp : uint8_t { sum, min, max };
enum class CallKind : uint8_t {
  all_reduce,
  reduce_scatter,
  all_gather,
  broadcast,
  all_to_all,
  send,
  recv,
  barrier,
};
/// "all_reduce", "sum".
TD_API const char* to_string(CallKind kind);
TD_API const char* to_string(ReduceOp op);

/// Elements of one dtype in host memory, which must stay until the call has ended.
struct Array {
  void* data = nullptr;
  int64_t count = 0;
  DType dtype = DType::f32;
  size_t bytes() const { return static_cast<size_t>(count) * size_of(dtype); }
};
struct ConstArray {
  const void* data = nullptr;
  int64_t count = 0;
  DType dtype = DType::f32;
  ConstArray() = default;
  ConstArray(const void* d, int64_t n, DType t) : data(d), count(n), dtype(t) {}
  ConstArray(const Array& a) : data(a.data), count(a.count), dtype(a.dtype) {}
  size_t bytes() const { return static_cast<size_t>(count) * size_of(dtype); }
};

struct CallOptions {
  std::string label = "";  ///< what messages call it: "bucket 2"
  double timeout = 0;      ///< seconds that it may take; 0: the engine's
  bool ordered = false;    ///< add up by the tree, whatever the engine
  /// What sums of floating numbers are divided by, after they are rounded to their dtype.
  double divisor = 1;
};

/// One call, as engines see it: checked, with the sizes of both sides.
struct Call {
  CallKind kind = CallKind::barrier;
  ConstArray in = {};
  Array out = {};
  ReduceOp op = ReduceOp::sum;
  int peer = 0;  ///< of broadcast the root, of send and recv the other rank
  CallOptions options = {};
};
/// "all_reduce sum float32[1000] 'bucket 2'".
TD_API std::string to_string(const Call& call);

/// What an engine remembers of one call.
struct CallRecord {
  int64_t number = 0;      ///< from 1
  int64_t step = 0;        ///< of the training, as far as the engine was told
  std::string what = "";   ///< as to_string(call) says it
  std::string label = "";  ///< CallOptions::label, or the kind of call
  size_t bytes = 0;        ///< of its larger side
  /// Seconds since the engine was made at which it was given to the engine, began and ended; 0: it
  /// has not.
  double given = 0, begun = 0, ended = 0;
  double waited = 0;       ///< seconds that callers stood still for it: not hidden by computing
  std::string error = "";  ///< empty: none
};
/// Calls of one label.
struct CallTotals {
  std::string label = "";
  int64_t calls = 0;
  size_t bytes = 0;
  double seconds = 0, waited = 0;  ///< of communication, and what callers stood still for
};

/// How another rank kept this one waiting.
struct RankDelay {
  int64_t calls = 0;   ///< in which it was the last of all ranks to come, after this one
  double seconds = 0;  ///< between this rank's coming and its, over those calls
};

namespace detail {
struct WorkState;
}

/// A call under way.
class TD_API Work {
 public:
  Work() = default;  ///< one that has ended
  explicit Work(std::shared_ptr<detail::WorkState> state) : state_(std::move(state)) {}
  bool done() const;
  /// Wait for its end; throws its error.
  void wait();

 private:
  std::shared_ptr<detail::WorkState> state_;
};

/// Where a rank runs, as messages name it.
struct Member {
  std::string host = "";
  int64_t pid = 0;
};

class TD_API Engine {
 public:
  virtual ~Engine() = default;
  Engine(const Engine&) = delete;
  Engine& operator=(const Engine&) = delete;

  virtual const char* name() const = 0;  ///< "tcp", "gloo", "mpi", "single"
  int rank() const { return rank_; }
  int size() const { return size_; }
  /// Where that rank runs; throws Index.
  virtual Member member(int rank) const = 0;

  // ---- calls of all ranks. Throw Value for sizes that do not fit each other. Errors of a call
  // come from Work::wait(): Io for a rank that is gone, hangs or is too late, naming it; Value
  // where ranks have made different calls. After such an error every further call throws the same.
  /// a becomes the sum (minimum, maximum) over the ranks: the same bits on all of them. "tcp" adds
  /// by a tree over neighbouring ranks, ((0+1)+(2+3)) ..., others in an order of their own unless
  /// options.ordered asks for the tree. f16 and bf16 are summed in f32 and rounded once.
  Work all_reduce(Array a, ReduceOp op = ReduceOp::sum, CallOptions options = {});
  /// `in` has a part of out.count elements for each rank; `out` becomes the reduction of this
  /// rank's.
  Work reduce_scatter(ConstArray in, Array out, ReduceOp op = ReduceOp::sum,
                      CallOptions options = {});
  /// `out` becomes every rank's `in`, in order of the ranks.
  Work all_gather(ConstArray in, Array out, CallOptions options = {});
  /// a becomes that of rank `root`.
  Work broadcast(Array a, int root, CallOptions options = {});
  /// Part r of `in` goes to rank r; part r of `out` comes from it.
  Work all_to_all(ConstArray in, Array out, CallOptions options = {});
  Work barrier(CallOptions options = {});

  // ---- calls of two ranks: those from one to another arrive in order.
  Work send(ConstArray a, int to, CallOptions options = {});
  Work recv(Array a, int from, CallOptions options = {});

  /// The group of the ranks with this one's `color`, ordered by `key`, then by rank; null for a
  /// negative color. All ranks call it.
  virtual std::shared_ptr<Engine> split(int color, int key) = 0;
  /// End the group: calls of all its ranks throw with this reason. From any thread.
  virtual void abort(const std::string& reason) noexcept = 0;
  /// This process ends and makes no call any more: the others are told. (An engine's destructor
  /// tells them as well; this is for one that somebody still holds.)
  virtual void goodbye() noexcept {}
  /// The training step, for messages of this rank and of others about it.
  virtual void set_step(int64_t step) noexcept = 0;
  /// The last 1,000 calls, the oldest first; send and recv are not counted. When a group ends by a
  /// fault, each rank writes them into the folder $TANDEM_DIST_RECORDS, if that is set.
  virtual std::vector<CallRecord> recent_calls() const { return {}; }
  /// All calls that have ended well, by label, in order of their first ones. Of send and recv calls
  /// and bytes are counted, not seconds: those are mostly the other rank's.
  virtual std::vector<CallTotals> call_totals() const { return {}; }
  /// By rank, over all calls of all ranks; empty where the engine does not know. A rank that is
  /// slower than the others has nearly all of the calls and seconds of every other one.
  virtual std::vector<RankDelay> delays() const { return {}; }
  /// How many calls this engine has taken.
  int64_t calls() const { return calls_; }

 protected:
  Engine(int rank, int size) : rank_(rank), size_(size) {}
  virtual Work submit(Call call) = 0;

 private:
  Work checked(Call call);
  int rank_, size_;
  int64_t calls_ = 0;
};

/// One process by itself: calls copy.
TD_API std::shared_ptr<Engine> single_engine();

}  // namespace tandem::distributed
