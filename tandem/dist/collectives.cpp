// SPDX-License-Identifier: Apache-2.0
// Calls of all ranks as op rows: they have derivatives, and compile() keeps them in program order,
// which is that of every rank. (Rows of the room, added to the table when a process joins a group.)
#include "tandem/dist/collectives_internal.h"

#include <algorithm>
#include <cstring>
#include <mutex>
#include <vector>

#include "tandem/base/copy_bytes.h"
#include "tandem/base/error.h"
#include "tandem/dist/device_calls_internal.h"
#include "tandem/dist/flat_rows_internal.h"
#include "tandem/dist/gaps_internal.h"
#include "tandem/dist/process_group.h"
#include "tandem/graph/apply.h"
#include "tandem/graph/backend.h"
#include "tandem/graph/batch.h"
#include "tandem/graph/infer.h"
#include "tandem/graph/kernel.h"
#include "tandem/graph/run/started_work.h"
#include "tandem/graph/vjp.h"
#include "tandem/ops/ops.h"

namespace tandem::distributed {
namespace {

// ---- groups and counts by number: attributes of a row are values

template <class T>
struct Numbered {
  std::mutex lock;
  std::vector<std::weak_ptr<T>> all;

  static Numbered& instance() {
    static Numbered& n = *new Numbered;  // programs may outlive static objects
    return n;
  }
  int64_t number_of(const std::shared_ptr<T>& of) {
    const std::lock_guard hold(lock);
    for (size_t i = 0; i < all.size(); ++i)
      if (all[i].lock() == of) return static_cast<int64_t>(i);
    all.push_back(of);
    return static_cast<int64_t>(all.size()) - 1;
  }
  std::shared_ptr<T> get(int64_t number) {
    const std::lock_guard hold(lock);
    return all.at(static_cast<size_t>(number)).lock();
  }
};
int64_t number_of(const std::shared_ptr<Engine>& e) {
  return Numbered<Engine>::instance().number_of(e);
}
std::shared_ptr<Engine> group_of(int64_t number) {
  std::shared_ptr<Engine> e = Numbered<Engine>::instance().get(number);
  TD_CHECK(e, Value, "a call of ranks whose group has ended\nKeep the Engine while it is used.");
  return e;
}

// ---- rows

struct CollectiveAttrs {
  int64_t group = 0, ranks = 1;
  int64_t op = 0;    ///< ReduceOp
  int64_t root = 0;  ///< of broadcast
  bool ordered = false;
  double scale = 1;    ///< of all_to_all: of its gradient
  double divisor = 1;  ///< of all_reduce_start: of the sum
  int64_t opens = -1;  ///< number of the PassCount that this call counts in
  std::string label = "";
  int64_t part = 0;             ///< of gather_start: elements of a rank
  std::vector<int64_t> places;  ///< of gather_start: where its operands lie among them
  template <class V>
  void fields(V& v) {
    v("group", group);
    v("ranks", ranks);
    v("op", op);
    v("root", root);
    v("ordered", ordered);
    v("scale", scale);
    v("divisor", divisor);
    v("opens", opens);
    v("label", label);
    v("part", part);
    v("places", places);
  }
};

Array elements_of(const tandem::Array& x) { return {x.data, x.numel, x.dtype}; }

void same_infer(InferCall& c) { c.out[0] = Spec(c.in[0].dtype, c.in[0].shape, c.in[0].device); }
void gather_infer(InferCall& c) {
  std::vector<Dim> shape{c.get_attrs<CollectiveAttrs>().ranks};
  for (int d = 0; d < c.in[0].shape.rank(); ++d) shape.push_back(c.in[0].shape[d]);
  c.out[0] = Spec(c.in[0].dtype, Shape(shape), c.in[0].device);
}
void scatter_infer(InferCall& c) {
  std::vector<Dim> shape;
  for (int d = 1; d < c.in[0].shape.rank(); ++d) shape.push_back(c.in[0].shape[d]);
  c.out[0] = Spec(c.in[0].dtype, Shape(shape), c.in[0].device);
}

CallOptions options_of(const CollectiveAttrs& a) {
  return {.label = a.label, .ordered = a.ordered, .divisor = a.divisor};
}
CollectiveAttrs attrs_of(const detail::RowCall& how) {
  CollectiveAttrs a{.ordered = how.ordered, .divisor = how.divisor, .label = how.label};
  if (how.opens) a.opens = Numbered<detail::PassCount>::instance().number_of(how.opens);
  return a;
}
// The group of a call that is about to be made.
std::shared_ptr<Engine> enter(const CollectiveAttrs& a) {
  std::shared_ptr<Engine> group = group_of(a.group);
  if (a.opens >= 0)
    if (const auto count = Numbered<detail::PassCount>::instance().get(a.opens))
      count->next(*group);
  return group;
}
ReduceOp op_of(const CollectiveAttrs& a) { return static_cast<ReduceOp>(a.op); }

// Engines take elements that lie side by side.
bool dense(const KernelCall& c) {
  return std::all_of(c.in, c.in + c.n_in, [](const tandem::Array& x) { return x.contiguous; });
}
void copy_in(const KernelCall& c) {
  if (c.out[0].data != c.in[0].data && c.in[0].numel > 0)
    copy_bytes(c.out[0].data, c.in[0].data, elements_of(c.in[0]).bytes());
}
void all_reduce_run(const KernelCall& c) {
  const auto& a = c.get_attrs<CollectiveAttrs>();
  copy_in(c);
  enter(a)->all_reduce(elements_of(c.out[0]), op_of(a), options_of(a)).wait();
}
// Engines write to the memory of a start's result, until the wait reads it.
void all_reduce_start_run(const KernelCall& c) {
  const auto& a = c.get_attrs<CollectiveAttrs>();
  copy_in(c);
  std::shared_ptr<Engine> group = enter(a);
  Work work = group->all_reduce(elements_of(c.out[0]), op_of(a), options_of(a));
  keep_started(c.out[0].data, std::make_unique<StartedCall>(std::move(group), std::move(work)));
}
void all_reduce_wait_run(const KernelCall& c) {
  finish_started(c.in[0].data);
  copy_in(c);
}
void gather_start_infer(InferCall& c) {
  const auto& a = c.get_attrs<CollectiveAttrs>();
  c.out[0] = Spec(c.in[0].dtype, Shape{a.ranks * a.part}, c.in[0].device);
  c.out[1] = Spec(c.in[0].dtype, Shape{a.part}, c.in[0].device);
}
// What is sent is a copy: the program may write to the cells while it is on its way.
void gather_start_run(const KernelCall& c) {
  const auto& a = c.get_attrs<CollectiveAttrs>();
  auto* const sent = static_cast<char*>(c.out[1].data);
  const size_t size = size_of(c.out[1].dtype);
  Gaps gaps([&](int64_t begin, int64_t n) {
    std::memset(sent + size * static_cast<size_t>(begin), 0, size * static_cast<size_t>(n));
  });
  for (int i = 0; i < c.n_in; ++i) {
    if (c.in[i].numel == 0) continue;
    const int64_t at = a.places[static_cast<size_t>(i)];
    gaps.piece(at, c.in[i].numel);
    copy_bytes(sent + size * static_cast<size_t>(at), c.in[i].data, elements_of(c.in[i]).bytes());
  }
  gaps.until(a.part);
  std::shared_ptr<Engine> group = group_of(a.group);
  Work work = group->all_gather(elements_of(c.out[1]), elements_of(c.out[0]), options_of(a));
  keep_started(c.out[0].data, std::make_unique<StartedCall>(std::move(group), std::move(work)));
}
void scatter_sum_start_infer(InferCall& c) {
  const int64_t ranks = c.get_attrs<CollectiveAttrs>().ranks;
  c.out[0] = Spec(c.in[0].dtype, Shape{c.in[0].shape.numel().value() / ranks}, c.in[0].device);
}
void scatter_sum_start_run(const KernelCall& c) {
  const auto& a = c.get_attrs<CollectiveAttrs>();
  std::shared_ptr<Engine> group = enter(a);
  Work work = group->reduce_scatter(elements_of(c.in[0]), elements_of(c.out[0]), ReduceOp::sum,
                                    options_of(a));
  keep_started(c.out[0].data, std::make_unique<StartedCall>(std::move(group), std::move(work)));
}
void broadcast_run(const KernelCall& c) {
  const auto& a = c.get_attrs<CollectiveAttrs>();
  copy_in(c);
  group_of(a.group)
      ->broadcast(elements_of(c.out[0]), static_cast<int>(a.root), options_of(a))
      .wait();
}
void all_gather_run(const KernelCall& c) {
  const auto& a = c.get_attrs<CollectiveAttrs>();
  group_of(a.group)->all_gather(elements_of(c.in[0]), elements_of(c.out[0]), options_of(a)).wait();
}
void reduce_scatter_run(const KernelCall& c) {
  const auto& a = c.get_attrs<CollectiveAttrs>();
  group_of(a.group)
      ->reduce_scatter(elements_of(c.in[0]), elements_of(c.out[0]), op_of(a), options_of(a))
      .wait();
}
void all_to_all_run(const KernelCall& c) {
  const auto& a = c.get_attrs<CollectiveAttrs>();
  group_of(a.group)->all_to_all(elements_of(c.in[0]), elements_of(c.out[0]), options_of(a)).wait();
}
// x [ranks, ...] without a call: this rank's row.
void own_row_run(const KernelCall& c) {
  const auto& a = c.get_attrs<CollectiveAttrs>();
  const size_t bytes = elements_of(c.out[0]).bytes();
  if (bytes == 0) return;
  const auto* rows = static_cast<const char*>(c.in[0].data);
  copy_bytes(c.out[0].data, rows + bytes * static_cast<size_t>(group_of(a.group)->rank()), bytes);
}

// ---- the same calls between devices, by their library

bool device_call(const KernelCall& c) {
  const auto& a = c.get_attrs<CollectiveAttrs>();
  if (!dense(c) || a.ordered) return false;  // the library adds in an order of its own
  // Libraries disagree about the smallest of numbers of which one is NaN.
  if (op_of(a) != ReduceOp::sum && is_floating(c.in[0].dtype)) return false;
  const auto ranks = joined_devices(group_of(a.group), c.device);
  return ranks && ranks->takes(c.in[0].dtype);
}
static_assert(static_cast<int>(DeviceCall::Sum::sum) == static_cast<int>(ReduceOp::sum) &&
              static_cast<int>(DeviceCall::Sum::min) == static_cast<int>(ReduceOp::min) &&
              static_cast<int>(DeviceCall::Sum::max) == static_cast<int>(ReduceOp::max));
std::shared_ptr<DeviceRanks> start_on_device(const KernelCall& c, DeviceCall::Kind kind) {
  const auto& a = c.get_attrs<CollectiveAttrs>();
  std::shared_ptr<DeviceRanks> ranks = joined_devices(enter(a), c.device);
  const int64_t count = std::min(c.in[0].numel, c.out[0].numel);
  if (count > 0)
    ranks->start({kind, c.in[0].data, c.out[0].data, count, c.in[0].dtype,
                  static_cast<DeviceCall::Sum>(a.op), static_cast<int>(a.root)},
                 c.stream);
  return ranks;
}
template <DeviceCall::Kind kind>
void run_on_device(const KernelCall& c) {
  start_on_device(c, kind)->wait(c.stream);
}
void start_run_on_device(const KernelCall& c) {
  keep_started(c.out[0].data,
               started_on_device(start_on_device(c, DeviceCall::Kind::all_reduce), c.stream));
}
void wait_run_on_device(const KernelCall& c) {
  finish_started(c.in[0].data);
  if (c.out[0].data != c.in[0].data && c.in[0].numel > 0)
    device_memory(c.device).copy(c.out[0].data, c.in[0].data, elements_of(c.in[0]).bytes(),
                                 c.device.index, c.stream);
}

FlatRow flat_row_of(const KernelCall& c) {
  const auto& a = c.get_attrs<CollectiveAttrs>();
  return {enter(a), options_of(a), a.part, &a.places};
}
void gather_start_on_device(const KernelCall& c) { start_gather_on_device(c, flat_row_of(c)); }
void scatter_start_on_device(const KernelCall& c) { start_sum_on_device(c, flat_row_of(c)); }

// Each rank has a loss of its own, and the derivative is that of their sum.
void all_reduce_vjp(VjpCall& c);
void all_gather_vjp(VjpCall& c);
void reduce_scatter_vjp(VjpCall& c);
void broadcast_vjp(VjpCall& c);
void all_to_all_vjp(VjpCall& c);
// All ranks have the same loss, of which there is one: values that are whole on each rank have
// whole gradients there.
void copy_to_ranks_vjp(VjpCall& c);
void reduce_from_ranks_vjp(VjpCall& c);
void gather_from_ranks_vjp(VjpCall& c);
void scatter_to_ranks_vjp(VjpCall& c);

constexpr OpDef collective(const char* name) {
  return control_row(name, {"x"}, fields<CollectiveAttrs>()).flag(kEffect).flag(kNoBatch);
}
// For what a call has started, with what must stay in memory until then.
constexpr OpDef wait_that_keeps(const char* name, const char* kept) {
  return control_row(name, {"started", kept}, fields<CollectiveAttrs>())
      .infer(same_infer)
      .flag(kEffect | kNoBatch | kReuseFirst);
}
constinit const OpDef all_reduce_row = collective("all_reduce")
                                           .infer(same_infer)
                                           .flag(kReuseFirst)
                                           .vjp(all_reduce_vjp)
                                           .doc("The sum, minimum or maximum of the ranks' x.");
// In two parts: what lies between them in a program runs meanwhile.
constinit const OpDef all_reduce_start_row =
    collective("all_reduce_start")
        .infer(same_infer)
        .flag(kReuseFirst)
        .doc(
            "x, whose sum over the ranks, maybe divided, all_reduce_wait gives; nothing else may "
            "read it.");
constinit const OpDef all_reduce_wait_row = collective("all_reduce_wait")
                                                .infer(same_infer)
                                                .flag(kReuseFirst | kWaits)
                                                .doc("The sum that all_reduce_start has begun.");
constinit const OpDef gather_start_row =
    control_row("gather_start", {"parts*"}, fields<CollectiveAttrs>())
        .outputs({"y", "sent"})
        .infer(gather_start_infer)
        .flag(kEffect | kNoBatch | kStartsAhead)
        .doc(
            "Flat arrays of the ranks, stacked, which gather_wait gives, and this rank's, which it "
            "is sent from.");
constinit const OpDef gather_wait_row =
    wait_that_keeps("gather_wait", "sent")
        .flag(kWaits)
        .doc("The arrays that gather_start has begun to gather.");
constinit const OpDef scatter_sum_start_row =
    collective("scatter_sum_start")
        .infer(scatter_sum_start_infer)
        .doc(
            "A flat x is summed over the ranks, maybe divided; of the sum each rank gets its part, "
            "which scatter_sum_wait gives.");
// Where it stands is where x is let go: it is not delayed.
constinit const OpDef scatter_sum_wait_row =
    wait_that_keeps("scatter_sum_wait", "x")
        .doc("The part of the sum that scatter_sum_start has begun.");
constinit const OpDef all_gather_row =
    collective("all_gather").infer(gather_infer).vjp(all_gather_vjp).doc("The ranks' x, stacked.");
constinit const OpDef reduce_scatter_row =
    collective("reduce_scatter")
        .infer(scatter_infer)
        .vjp(reduce_scatter_vjp)
        .doc("x [ranks, ...] reduced over the ranks: of each, the row of its number.");
constinit const OpDef broadcast_row =
    collective("broadcast").infer(same_infer).vjp(broadcast_vjp).doc("The x of one rank.");
constinit const OpDef all_to_all_row =
    collective("all_to_all")
        .infer(same_infer)
        .vjp(all_to_all_vjp)
        .doc("x [ranks, ...]: row r goes to rank r, and row r of the result comes from it.");
constinit const OpDef copy_to_ranks_row =
    collective("copy_to_ranks")
        .infer(same_infer)
        .vjp(copy_to_ranks_vjp)
        .doc("x, whole on each rank, from which each computes a part of the result.");
constinit const OpDef reduce_from_ranks_row = collective("reduce_from_ranks")
                                                  .infer(same_infer)
                                                  .vjp(reduce_from_ranks_vjp)
                                                  .doc("The sum of parts, whole on each rank.");
constinit const OpDef gather_from_ranks_row =
    collective("gather_from_ranks")
        .infer(gather_infer)
        .vjp(gather_from_ranks_vjp)
        .doc("The ranks' x, stacked, for ranks that all compute the same from them.");
constinit const OpDef scatter_to_ranks_row =
    collective("scatter_to_ranks")
        .infer(scatter_infer)
        .vjp(scatter_to_ranks_vjp)
        .doc("x [ranks, ...], the same on each rank: the row of its number.");

struct Row {
  const OpDef* row;
  void (*run)(const KernelCall&);
};

void add_rows() {
  static std::once_flag once;
  std::call_once(once, [] {
    for (const auto& [row, run] :
         {Row{&all_reduce_row, all_reduce_run}, Row{&all_gather_row, all_gather_run},
          Row{&reduce_scatter_row, reduce_scatter_run}, Row{&broadcast_row, broadcast_run},
          Row{&all_reduce_start_row, all_reduce_start_run},
          Row{&all_reduce_wait_row, all_reduce_wait_run}, Row{&gather_start_row, gather_start_run},
          Row{&gather_wait_row, all_reduce_wait_run},
          Row{&scatter_sum_start_row, scatter_sum_start_run},
          Row{&scatter_sum_wait_row, all_reduce_wait_run}, Row{&all_to_all_row, all_to_all_run},
          Row{&copy_to_ranks_row, copy_in}, Row{&reduce_from_ranks_row, all_reduce_run},
          Row{&gather_from_ranks_row, all_gather_run}, Row{&scatter_to_ranks_row, own_row_run}}) {
      register_op(*row);
      register_kernel(DeviceKind::cpu, *row, {.supports = dense, .run = run});
    }
  });
}

// Kernels of a kind of device, once; the library's where its ranks have joined.
void add_once(DeviceKind kind, uint64_t& added, bool (*supports)(const KernelCall&),
              std::initializer_list<Row> rows) {
  static std::mutex lock;
  const std::lock_guard hold(lock);
  const uint64_t bit = 1ULL << static_cast<int>(kind);
  if (std::exchange(added, added | bit) & bit) return;
  for (const auto& [row, run] : rows)
    register_kernel(kind, *row, {.supports = supports, .run = run});
}
void add_flat_kernels(Device device) {
  static uint64_t added = 0;
  if (is_host(device)) return;
  add_once(device.kind, added, dense,
           {{&gather_start_row, gather_start_on_device},
            {&gather_wait_row, wait_run_on_device},
            {&scatter_sum_start_row, scatter_start_on_device},
            {&scatter_sum_wait_row, wait_run_on_device}});
}
void add_device_kernels(DeviceKind kind) {
  static uint64_t added = 0;
  using Kind = DeviceCall::Kind;
  add_once(kind, added, device_call,
           {{&all_reduce_row, run_on_device<Kind::all_reduce>},
            {&reduce_from_ranks_row, run_on_device<Kind::all_reduce>},
            {&all_gather_row, run_on_device<Kind::all_gather>},
            {&gather_from_ranks_row, run_on_device<Kind::all_gather>},
            {&reduce_scatter_row, run_on_device<Kind::reduce_scatter>},
            {&broadcast_row, run_on_device<Kind::broadcast>},
            {&all_reduce_start_row, start_run_on_device},
            {&all_reduce_wait_row, wait_run_on_device}});
}

void check_sum(const CollectiveAttrs& a, const char* name) {
  TD_CHECK(op_of(a) == ReduceOp::sum, Unsupported, "{} {} has no derivative: sum has one", name,
           to_string(op_of(a)));
}
void all_reduce_vjp(VjpCall& c) {
  const auto& a = c.get_attrs<CollectiveAttrs>();
  check_sum(a, "all_reduce");
  c.results[0] = call(all_reduce_row, &a, c.loc(), c.grad());
}
void all_gather_vjp(VjpCall& c) {
  c.results[0] = call(reduce_scatter_row, &c.get_attrs<CollectiveAttrs>(), c.loc(), c.grad());
}
void reduce_scatter_vjp(VjpCall& c) {
  const auto& a = c.get_attrs<CollectiveAttrs>();
  check_sum(a, "reduce_scatter");
  c.results[0] = call(all_gather_row, &a, c.loc(), c.grad());
}
void broadcast_vjp(VjpCall& c) {
  const auto& a = c.get_attrs<CollectiveAttrs>();
  const Tensor sum = call(all_reduce_row, &a, c.loc(), c.grad());
  c.results[0] = group_of(a.group)->rank() == a.root ? sum : zeros_like(sum);
}
void all_to_all_vjp(VjpCall& c) {
  const auto& a = c.get_attrs<CollectiveAttrs>();
  const Tensor g = call(all_to_all_row, &a, c.loc(), c.grad());
  c.results[0] = a.scale == 1 ? g : g * a.scale;
}
void copy_to_ranks_vjp(VjpCall& c) {
  c.results[0] = call(reduce_from_ranks_row, &c.get_attrs<CollectiveAttrs>(), c.loc(), c.grad());
}
void reduce_from_ranks_vjp(VjpCall& c) {
  c.results[0] = call(copy_to_ranks_row, &c.get_attrs<CollectiveAttrs>(), c.loc(), c.grad());
}
void gather_from_ranks_vjp(VjpCall& c) {
  c.results[0] = call(scatter_to_ranks_row, &c.get_attrs<CollectiveAttrs>(), c.loc(), c.grad());
}
void scatter_to_ranks_vjp(VjpCall& c) {
  c.results[0] = call(gather_from_ranks_row, &c.get_attrs<CollectiveAttrs>(), c.loc(), c.grad());
}

Tensor call_row(const OpDef& row, const Tensor& x, CollectiveAttrs a,
                const std::shared_ptr<Engine>& e, SourceLocation loc) {
  TD_CHECK(x.defined(), Value, "{} expects a tensor, got an undefined one", row.name);
  add_rows();
  if (!is_host(x.device()) && join_devices(e, x.device())) add_device_kernels(x.device().kind);
  a.group = number_of(e);
  a.ranks = e->size();
  return call(row, &a, loc, x);
}
const std::shared_ptr<Engine>& or_world(const std::shared_ptr<Engine>& group) {
  return group ? group : world();
}
bool alone(const std::shared_ptr<Engine>& e) { return e->size() == 1; }
// x [ranks, ...]?
void check_rows(const Tensor& x, const std::shared_ptr<Engine>& e, const char* name) {
  TD_CHECK(x.defined() && x.dim() > 0 && dims_equal(x.shape(0), e->size()), Shape,
           "{} expects a first dimension of {} (ranks), x is {}", name, e->size(),
           x.defined() ? x.shape().to_string() : "undefined");
}

}  // namespace

Tensor all_reduce(const Tensor& x, ReduceOp op, const std::shared_ptr<Engine>& group,
                  SourceLocation loc) {
  return detail::all_reduce_labelled(x, op, or_world(group), {}, loc);
}

Tensor detail::all_reduce_labelled(const Tensor& x, ReduceOp op, const std::shared_ptr<Engine>& e,
                                   const RowCall& how, SourceLocation loc) {
  if (alone(e)) return x;
  CollectiveAttrs a = attrs_of(how);
  a.op = static_cast<int64_t>(op);
  return call_row(all_reduce_row, x, a, e, loc);
}

Tensor detail::start_all_reduce(const Tensor& x, const std::shared_ptr<Engine>& e,
                                const RowCall& how, SourceLocation loc) {
  return alone(e) ? x : call_row(all_reduce_start_row, x, attrs_of(how), e, loc);
}
Tensor detail::wait_all_reduce(const Tensor& started, const std::shared_ptr<Engine>& e,
                               SourceLocation loc) {
  return alone(e) ? started : call_row(all_reduce_wait_row, started, {}, e, loc);
}

Tensor detail::gather_flat(const FlatParts& own, const std::shared_ptr<Engine>& e,
                           const std::string& label) {
  add_rows();
  CollectiveAttrs a{.group = number_of(e),
                    .ranks = e->size(),
                    .label = label,
                    .part = own.part,
                    .places = own.places};
  const SourceLocation loc{};  // of nobody's code
  add_flat_kernels(own.parts.front().device());
  std::vector<Operand> in;
  for (const Tensor& t : own.parts) in.emplace_back(t, loc);
  Tensor started[2];
  apply(gather_start_row, &a, in, started, loc);
  a.places.clear();
  return call(gather_wait_row, &a, loc, started[0], started[1]);
}
Tensor detail::start_scatter_sum(const Tensor& whole, const std::shared_ptr<Engine>& e,
                                 const RowCall& how) {
  add_flat_kernels(whole.device());
  return call_row(scatter_sum_start_row, whole, attrs_of(how), e, SourceLocation{});
}
Tensor detail::wait_scatter_sum(const Tensor& started, const Tensor& whole,
                                const std::shared_ptr<Engine>& e) {
  const CollectiveAttrs a{.group = number_of(e), .ranks = e->size()};
  return call(scatter_sum_wait_row, &a, SourceLocation{}, started, whole);
}

Tensor all_gather(const Tensor& x, const std::shared_ptr<Engine>& group, SourceLocation loc) {
  const std::shared_ptr<Engine>& e = or_world(group);
  return alone(e) ? x.unsqueeze(0) : call_row(all_gather_row, x, {}, e, loc);
}

Tensor reduce_scatter(const Tensor& x, ReduceOp op, const std::shared_ptr<Engine>& group,
                      SourceLocation loc) {
  const std::shared_ptr<Engine>& e = or_world(group);
  check_rows(x, e, "reduce_scatter");
  if (alone(e)) return x.squeeze(0);
  return call_row(reduce_scatter_row, x, {.op = static_cast<int64_t>(op)}, e, loc);
}

Tensor all_to_all(const Tensor& x, const std::shared_ptr<Engine>& group, SourceLocation loc) {
  return detail::all_to_all_scaled(x, 1, or_world(group), loc);
}

Tensor detail::all_to_all_scaled(const Tensor& x, double scale, const std::shared_ptr<Engine>& e,
                                 SourceLocation loc) {
  check_rows(x, e, "all_to_all");
  return alone(e) ? x : call_row(all_to_all_row, x, {.scale = scale}, e, loc);
}

Tensor detail::cross(Crossing how, const Tensor& x, const std::shared_ptr<Engine>& e,
                     SourceLocation loc) {
  switch (how) {
    case Crossing::copy:
      return alone(e) ? x : call_row(copy_to_ranks_row, x, {}, e, loc);
    case Crossing::reduce:
      return alone(e) ? x : call_row(reduce_from_ranks_row, x, {}, e, loc);
    case Crossing::gather:
      return alone(e) ? x.unsqueeze(0) : call_row(gather_from_ranks_row, x, {}, e, loc);
    case Crossing::scatter:
      check_rows(x, e, "scatter_to_ranks");
      return alone(e) ? x.squeeze(0) : call_row(scatter_to_ranks_row, x, {}, e, loc);
  }
  return {};
}

Tensor broadcast(const Tensor& x, int root, const std::shared_ptr<Engine>& group,
                 SourceLocation loc) {
  const std::shared_ptr<Engine>& e = or_world(group);
  const int ranks = alone(e) ? 1 : e->size();
  TD_CHECK(root >= 0 && root < ranks, Index, "broadcast names rank {}, the group has {}", root,
           ranks);
  return alone(e) ? x : call_row(broadcast_row, x, {.root = root}, e, loc);
}

}  // namespace tandem::distributed
