// SPDX-License-Identifier: Apache-2.0
// What all engines share: checks of calls, their names, and the engine of one process.
#include "tandem/dist/engine.h"

#include <unistd.h>

#include <cstring>

#include "tandem/base/clock.h"
#include "tandem/base/error.h"
#include "tandem/dist/network_internal.h"
#include "tandem/dist/queued_engine_internal.h"
#include "tandem/dist/reduce_internal.h"

namespace tandem::distributed {

const char* to_string(CallKind kind) {
  static constexpr const char* kNames[] = {"all_reduce", "reduce_scatter", "all_gather",
                                           "broadcast",  "all_to_all",     "send",
                                           "recv",       "barrier"};
  return kNames[static_cast<size_t>(kind)];
}
const char* to_string(ReduceOp op) {
  static constexpr const char* kNames[] = {"sum", "min", "max"};
  return kNames[static_cast<size_t>(op)];
}

std::string to_string(const Call& c) {
  std::string text = to_string(c.kind);
  if (c.kind == CallKind::all_reduce || c.kind == CallKind::reduce_scatter)
    text += fmt::format(" {}", to_string(c.op));
  if (c.kind == CallKind::broadcast) text += fmt::format(" from rank {}", c.peer);
  if (c.kind == CallKind::send) text += fmt::format(" to rank {}", c.peer);
  if (c.kind == CallKind::recv) text += fmt::format(" from rank {}", c.peer);
  if (c.kind != CallKind::barrier) {
    const bool given = c.kind == CallKind::send;
    text += fmt::format(" {}[{}]", tandem::to_string(given ? c.in.dtype : c.out.dtype),
                        given ? c.in.count : c.out.count);
  }
  if (!c.options.label.empty()) text += fmt::format(" '{}'", c.options.label);
  return text;
}

Work Engine::checked(Call c) {
  const char* name = to_string(c.kind);
  TD_CHECK(c.in.count >= 0 && c.out.count >= 0, Value, "{} of {} elements", name,
           std::min(c.in.count, c.out.count));
  TD_CHECK((c.in.data || c.in.count == 0) && (c.out.data || c.out.count == 0), Value,
           "{} got no memory for its elements", name);
  TD_CHECK(c.options.timeout >= 0, Value, "{} got a timeout of {} s", name, c.options.timeout);
  const bool pair = c.kind == CallKind::send || c.kind == CallKind::recv;
  TD_CHECK(c.peer >= 0 && c.peer < size_, Index, "{} names rank {}, the group has {}", name, c.peer,
           size_);
  TD_CHECK(!pair || c.peer != rank_, Value, "{} of rank {} names itself", name, rank_);
  const bool reduces = c.kind == CallKind::all_reduce || c.kind == CallKind::reduce_scatter;
  TD_CHECK(!reduces || c.out.dtype != DType::b8, DType,
           "{} {} expects numbers, got bool\nSend them as uint8.", name, to_string(c.op));
  TD_CHECK(c.options.divisor == 1 || (reduces && c.op == ReduceOp::sum && is_floating(c.out.dtype)),
           Value, "{} {} of {} got a divisor, which sums of floating numbers have", name,
           to_string(c.op), tandem::to_string(c.out.dtype));
  ++calls_;
  return submit(std::move(c));
}

namespace {

// `whole` must be `size` times `part`.
void check_parts(const char* name, int64_t whole, int64_t part, int size, DType a, DType b) {
  TD_CHECK(whole == part * size && a == b, Value,
           "{} over {} ranks expects {} times {} {} elements, got {} {}", name, size, size, part,
           tandem::to_string(b), whole, tandem::to_string(a));
}

}  // namespace

Work Engine::all_reduce(Array a, ReduceOp op, CallOptions o) {
  return checked({CallKind::all_reduce, a, a, op, 0, std::move(o)});
}
Work Engine::reduce_scatter(ConstArray in, Array out, ReduceOp op, CallOptions o) {
  check_parts("reduce_scatter", in.count, out.count, size_, in.dtype, out.dtype);
  return checked({CallKind::reduce_scatter, in, out, op, 0, std::move(o)});
}
Work Engine::all_gather(ConstArray in, Array out, CallOptions o) {
  check_parts("all_gather", out.count, in.count, size_, out.dtype, in.dtype);
  return checked({CallKind::all_gather, in, out, ReduceOp::sum, 0, std::move(o)});
}
Work Engine::broadcast(Array a, int root, CallOptions o) {
  return checked({CallKind::broadcast, a, a, ReduceOp::sum, root, std::move(o)});
}
Work Engine::all_to_all(ConstArray in, Array out, CallOptions o) {
  check_parts("all_to_all", in.count, in.count / size_, size_, in.dtype, in.dtype);
  check_parts("all_to_all", out.count, in.count / size_, size_, out.dtype, in.dtype);
  return checked({CallKind::all_to_all, in, out, ReduceOp::sum, 0, std::move(o)});
}
Work Engine::barrier(CallOptions o) {
  return checked({CallKind::barrier, {}, {}, ReduceOp::sum, 0, std::move(o)});
}
Work Engine::send(ConstArray a, int to, CallOptions o) {
  return checked({CallKind::send, a, {}, ReduceOp::sum, to, std::move(o)});
}
Work Engine::recv(Array a, int from, CallOptions o) {
  return checked({CallKind::recv, {}, a, ReduceOp::sum, from, std::move(o)});
}

bool Work::done() const { return !state_ || state_->done(); }
void Work::wait() {
  if (state_) state_->wait();
}

namespace detail {

bool WorkState::done() {
  std::lock_guard hold(lock);
  return ended;
}
void WorkState::wait() {
  std::unique_lock hold(lock);
  if (!ended) {
    const Clock::time_point begin = Clock::now();
    changed.wait(hold, [&] { return ended; });
    if (log) log->waited(number, seconds_since(begin));
  }
  if (!error) return;
  if (heard) (*heard)();
  std::rethrow_exception(error);
}
void WorkState::end(std::exception_ptr e) {
  {
    std::lock_guard hold(lock);
    if (ended) return;
    error = std::move(e);
    ended = true;
  }
  changed.notify_all();
}

}  // namespace detail

namespace {

class SingleEngine final : public Engine {
 public:
  SingleEngine() : Engine(0, 1) {}
  const char* name() const override { return "single"; }
  Member member(int rank) const override {
    TD_CHECK(rank == 0, Index, "rank {} of 1", rank);
    return {host_name(), ::getpid()};
  }
  std::shared_ptr<Engine> split(int color, int) override {
    return color < 0 ? nullptr : single_engine();
  }
  void abort(const std::string& reason) noexcept override { reason_ = reason; }
  void set_step(int64_t) noexcept override {}

 protected:
  Work submit(Call c) override {
    TD_CHECK(reason_.empty(), Io, "{}", reason_);
    if (c.out.data != c.in.data && c.out.count > 0)
      std::memmove(c.out.data, c.in.data, c.out.bytes());
    if (c.options.divisor != 1) divide(c.out, c.options.divisor);
    return Work();
  }

 private:
  std::string reason_;
};

}  // namespace

std::shared_ptr<Engine> single_engine() { return std::make_shared<SingleEngine>(); }

}  // namespace tandem::distributed
