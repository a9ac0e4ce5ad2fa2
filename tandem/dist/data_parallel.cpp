// SPDX-License-Identifier: Apache-2.0
#include "tandem/dist/data_parallel.h"

#include <algorithm>
#include <bit>
#include <map>

#include "tandem/base/error.h"
#include "tandem/base/hash/hash.h"
#include "tandem/dist/collectives_internal.h"
#include "tandem/dist/join.h"
#include "tandem/dist/reduce_internal.h"
#include "tandem/dist/reducer_internal.h"
#include "tandem/dist/shard_reducer_internal.h"
#include "tandem/graph/cells/deferred.h"
#include "tandem/graph/rng.h"
#include "tandem/graph/trace.h"
#include "tandem/nn/fine_tune.h"
#include "tandem/nn/norm.h"
#include "tandem/ops/ops.h"

namespace tandem::distributed {
namespace {

std::vector<Cell*> cells_of_buffers(const nn::Module& net) {
  std::vector<Cell*> cells;
  for (const Buffer& b : net.buffers()) cells.push_back(b.cell().get());
  return cells;
}

// What broadcast_cells() does, as rows of the program: a call for each dtype.
void broadcast_traced(const std::vector<Buffer>& buffers, const std::shared_ptr<Engine>& engine) {
  std::map<DType, std::vector<Buffer>> alike;
  for (const Buffer& b : buffers) alike[b.dtype()].push_back(b);
  const NoGradGuard no_grad;
  for (const auto& [dtype, group] : alike) {
    std::vector<Tensor> parts;
    for (const Buffer& b : group) parts.push_back(b.value().reshape({-1}));
    const Tensor all = broadcast(cat(parts, 0), 0, engine);
    int64_t at = 0;
    for (const Buffer& b : group) {
      b.assign_(narrow(all, 0, at, b.numel()).reshape(b.shape()));
      at += b.numel();
    }
  }
}

std::vector<nn::detail::BatchNorm*> batch_norms_of(nn::Module& net) {
  std::vector<nn::detail::BatchNorm*> all;
  for (const auto& [name, m] : net.named_modules())
    if (nn::detail::BatchNorm* norm = nn::detail::as_batch_norm(*m)) all.push_back(norm);
  return all;
}

Device device_of(const Param& p) { return p.cell()->spec().device; }

bool is_ignored(const std::string& name, const DataParallelOptions& o) {
  return std::any_of(o.ignored.begin(), o.ignored.end(),
                     [&](const std::string& p) { return nn::name_matches(p, name); });
}

// Is there a device whose memory the optimizer's state would take?
bool offloads_to_host(nn::Module& net, const DataParallelOptions& o) {
  if (!o.offload_optimizer) return false;
  const std::vector<Param> all = net.parameters();
  return std::any_of(all.begin(), all.end(),
                     [](const Param& p) { return p.requires_grad() && !is_host(device_of(p)); });
}

std::vector<std::string> layout_of(nn::Module& net, const BucketReducer* plan,
                                   const DataParallelOptions& o) {
  const DeferredInitGuard as_they_are;  // shapes are all that is asked for
  std::vector<std::string> lines;
  for (const auto& [name, p] : net.named_parameters())
    if (!is_ignored(name, o))
      lines.push_back(fmt::format("parameter '{}' {}{}{}", name, to_string(p.dtype()),
                                  p.shape().to_string(), p.requires_grad() ? "" : ", frozen"));
  for (const auto& [name, b] : net.named_buffers())
    lines.push_back(
        fmt::format("buffer '{}' {}{}", name, to_string(b.dtype()), b.shape().to_string()));
  if (plan)
    for (std::string& line : plan->plan()) lines.push_back(std::move(line));
  lines.push_back(fmt::format(
      "the options broadcast_buffers={} shards={} sync_batchnorm={} sharding={} bucket_cap_mb={} "
      "offload_optimizer={}",
      o.broadcast_buffers, o.shards, o.sync_batchnorm, static_cast<int>(o.sharding),
      o.bucket_cap_mb, o.offload_optimizer));
  return lines;
}

/// Sums of shards, in the order of the tree over all shards: equal numbers of shards are added
/// first.
class ShardTree {
 public:
  using Values = std::vector<Tensor>;
  void add(Values v) {
    size_t level = 0;
    for (; !stack_.empty() && stack_.back().first == level; ++level) {
      v = sum(std::move(stack_.back().second), std::move(v));
      stack_.pop_back();
    }
    stack_.emplace_back(level, std::move(v));
  }
  /// After a power of two of shards.
  Values result() {
    TD_ASSERT(stack_.size() == 1);
    return std::move(stack_[0].second);
  }

 private:
  // A shard without a gradient adds zeros, as it does in a bucket of another rank.
  static Values sum(Values a, Values b) {
    for (size_t i = 0; i < a.size(); ++i) {
      if (!a[i].defined() && !b[i].defined()) continue;
      if (!a[i].defined()) a[i] = zeros_like(b[i]);
      if (!b[i].defined()) b[i] = zeros_like(a[i]);
      a[i] = a[i] + b[i];
    }
    return a;
  }
  std::vector<std::pair<size_t, Values>> stack_;
};

}  // namespace

DataParallel::DataParallel(nn::Module& net, DataParallelOptions options,
                           std::shared_ptr<Engine> engine)
    : net_(net), options_(options), engine_(std::move(engine)) {
  const bool offloads = offloads_to_host(net, options_);
  options_.offload_optimizer = offloads;
  if (offloads && options_.sharding == Sharding::none) options_.sharding = Sharding::zero1;
  const bool sharded = options_.sharding != Sharding::none;
  std::vector<NamedParam> params;
  std::unordered_map<const Cell*, bool> seen;
  std::vector<Cell*> cells;  // those that every rank holds
  for (auto& [name, p] : net.named_parameters()) {
    if (is_ignored(name, options_) || !seen.emplace(p.cell().get(), true).second) continue;
    if (!sharded || !p.requires_grad()) cells.push_back(p.cell().get());
    if (p.requires_grad()) params.push_back({name, p});
  }
  for (const std::string& pattern : options_.ignored) {
    const auto all = net.named_parameters();
    TD_CHECK(std::any_of(all.begin(), all.end(),
                         [&](const auto& p) { return nn::name_matches(pattern, p.first); }),
             Value, "DataParallelOptions::ignored: '{}' matches no parameter of the net", pattern);
  }
  TD_CHECK(options_.ignored.empty() || options_.sharding == Sharding::none, Unsupported,
           "DataParallel does not shard a net of which some parameters are ignored");
  TD_CHECK(!params.empty(), Value,
           "DataParallel expects a net with parameters that require gradients\nAre they named in "
           "TD_REGISTER?");
  TD_CHECK(
      !options_.sync_batchnorm || options_.shards == 0, Value,
      "DataParallel expects either shards or sync_batchnorm, got both\nA shard is a batch of its "
      "own: its statistics do not depend on the number of ranks.");
  // What one rank finds alone, it finds before the first call.
  for (const NamedParam& p : params) {
    const Device here = device_of(p.param), first = device_of(params[0].param);
    TD_CHECK(here == first, Unsupported,
             "DataParallel expects parameters on one device, '{}' is on {} and '{}' on {}\n"
             "One process drives one device: net.to(device) before.",
             params[0].name, to_string(first), p.name, to_string(here));
  }
  TD_CHECK(options_.bucket_cap_mb >= 0 && options_.first_bucket_mb > 0, Value,
           "DataParallel expects buckets of more than 0 MB, got {} and {}", options_.bucket_cap_mb,
           options_.first_bucket_mb);
  if (engine_->size() == 1 && !offloads) {
    reducer_ = std::make_unique<BucketReducer>(std::move(params), options_, engine_);
    reducer_->pause(true);
    return;
  }
  const BucketReducer* plan = nullptr;
  if (!sharded) {
    auto buckets = std::make_unique<BucketReducer>(params, options_, engine_);
    plan = buckets.get();
    reducer_ = std::move(buckets);
  }
  compare_lines(*engine_, layout_of(net, plan, options_), "nets",
                "All ranks must build the same net, with the same options.");
  if (!cells.empty()) broadcast_cells(*engine_, cells, "parameters");
  if (const std::vector<Cell*> buffers = cells_of_buffers(net); !buffers.empty())
    broadcast_cells(*engine_, buffers, "buffers");
  if (sharded) {
    sharded_ = std::make_unique<ShardedParams>(net, params, options_, engine_);
    reducer_ = std::make_unique<ShardReducer>(std::move(params), *sharded_, options_, engine_);
  }
  if (options_.sync_batchnorm)
    for (nn::detail::BatchNorm* norm : batch_norms_of(net))
      norm->set_sum_over_ranks([e = engine_](const Tensor& x) {
        return detail::all_reduce_labelled(x, ReduceOp::sum, e, {"batch statistics"});
      });
}

DataParallel::~DataParallel() {
  if (!options_.sync_batchnorm || engine_->size() == 1) return;
  for (nn::detail::BatchNorm* norm : batch_norms_of(net_)) norm->set_sum_over_ranks({});
}

void DataParallel::sync_buffers() {
  if (sharded_ && !is_tracing()) sharded_->sync();
  if (engine_->size() == 1) return;
  const int root = join_ ? join_->open() : 0;
  if (is_tracing()) return broadcast_traced(net_.buffers(), engine_);
  spread_buffers(root);
}

void DataParallel::spread_buffers(int root) {
  if (const std::vector<Cell*> cells = cells_of_buffers(net_); !cells.empty())
    broadcast_cells(*engine_, cells, "buffers", root);
}

Tensor DataParallel::operator()(Tensor x, SourceLocation loc) {
  const bool trains = net_.is_training() && !in_shard_;
  if (options_.broadcast_buffers && trains)
    sync_buffers();
  else if (sharded_ && !is_tracing())
    sharded_->sync();
  else if (join_ && trains)
    join_->open();
  return net_(std::move(x), loc);
}

DataParallel::NoSync::NoSync(Reducer& r) : reducer_(r), before_(r.pause(true)) {}
DataParallel::NoSync::~NoSync() { reducer_.pause(before_); }
DataParallel::NoSync DataParallel::no_sync() { return NoSync(*reducer_); }

void DataParallel::reduce_gradients() {
  if (engine_->size() > 1 || sharded_) reducer_->reduce_all(reducer_->divisor_of_walks());
}

int64_t DataParallel::steps() const { return reducer_->steps(); }

void DataParallel::check_shards(int64_t rows) const {
  const int64_t ranks = engine_->size(), shards = this->shards();
  const auto power = [](int64_t n) { return std::has_single_bit(static_cast<uint64_t>(n)); };
  TD_CHECK(power(ranks) && power(shards) && shards >= ranks, Value,
           "sharded_backward() expects powers of two of ranks and shards, and a shard for each "
           "rank, got "
           "{} and {}",
           ranks, shards);
  TD_CHECK(
      rows > 0 && rows % (shards / ranks) == 0, Value,
      "{} rows on this rank do not make {} equal shards\nThe whole batch must be a multiple of {} "
      "rows.",
      rows, shards / ranks, shards);
}

// Loss, gradients and floating buffers of this rank's shards, added up.
std::vector<Tensor> DataParallel::add_shards(int64_t rows,
                                             const std::function<Tensor(int64_t, int64_t)>& loss) {
  struct InShard {
    bool& flag;
    explicit InShard(bool& f) : flag(f) { flag = true; }
    ~InShard() { flag = false; }
  };
  const int64_t own = shards() / engine_->size(), first = engine_->rank() * own;
  const std::vector<Buffer> buffers = net_.buffers();
  std::vector<Tensor> before;
  for (const Buffer& b : buffers) before.push_back(b.value());
  const GeneratorState rng = generator_state();
  const uint64_t seed = hash_combine(rng.seed, rng.offset);
  ShardTree tree;
  for (int64_t s = 0; s < own; ++s) {
    for (size_t i = 0; s > 0 && i < buffers.size(); ++i) buffers[i].assign_(before[i]);
    set_generator_state({hash_combine(seed, static_cast<uint64_t>(first + s)), 0});
    ShardTree::Values v;
    {
      const DeterministicGuard deterministic;
      const NoSync hold = no_sync();
      const InShard inside(in_shard_);
      const Tensor l = loss(s * rows / own, (s + 1) * rows / own);
      l.backward();
      v.push_back(l.detach().to(DType::f64).reshape({}));
    }
    const NoGradGuard no_grad;
    for (const NamedParam& p : reducer_->params()) {
      v.push_back(p.param.grad());
      p.param.zero_grad();
    }
    for (const Buffer& b : buffers)
      v.push_back(is_floating(b.dtype()) ? b.value().clone() : Tensor());
    tree.add(std::move(v));
  }
  set_generator_state({rng.seed, rng.offset + 1});
  return tree.result();
}

// The mean over all shards of the sum over this rank's.
Tensor DataParallel::mean_of_shards(const Tensor& sum, const char* label) {
  const Tensor own = sum.clone().contiguous();
  Tensor x = own.cpu();
  if (engine_->size() > 1)
    engine_
        ->all_reduce({x.impl()->data, x.numel(), x.dtype()}, ReduceOp::sum,
                     {.label = label, .ordered = true})
        .wait();
  return x.to(sum.device()) / static_cast<double>(shards());
}

Tensor DataParallel::sharded_backward(int64_t rows,
                                      const std::function<Tensor(int64_t, int64_t)>& loss) {
  check_shards(rows);
  const auto& params = reducer_->params();
  std::vector<Tensor> before;
  for (const NamedParam& p : params) {
    before.push_back(p.param.grad());
    p.param.zero_grad();
  }
  const std::vector<Tensor> sums = add_shards(rows, loss);
  const NoGradGuard no_grad;
  const auto n = static_cast<double>(shards());
  const bool alone = engine_->size() == 1 && !sharded_;
  for (size_t i = 0; i < params.size(); ++i)
    params[i].param.set_grad(alone && sums[i + 1].defined() ? sums[i + 1] / n : sums[i + 1]);
  if (!alone) reducer_->reduce_all(n);
  for (size_t i = 0; i < params.size(); ++i) {
    const Tensor g = params[i].param.grad();
    if (before[i].defined()) params[i].param.set_grad(g.defined() ? before[i] + g : before[i]);
  }
  const std::vector<Buffer> buffers = net_.buffers();
  for (size_t i = 0; i < buffers.size(); ++i)
    if (const Tensor& sum = sums[1 + params.size() + i]; sum.defined())
      buffers[i].assign_(mean_of_shards(sum, "buffer"));
  return mean_of_shards(sums[0], "loss");
}

}  // namespace tandem::distributed
