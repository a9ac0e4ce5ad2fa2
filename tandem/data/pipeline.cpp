// SPDX-License-Identifier: Apache-2.0
// The stages of Pipeline, each a mapping of positions, and the state of a pass.
#include "tandem/data/pipeline.h"

#include <fmt/ranges.h>

#include <atomic>

#include "tandem/base/hash/hash.h"
#include "tandem/data/pipeline_internal.h"
#include "tandem/graph/context.h"
#include "tandem/graph/rng.h"
#include "tandem/ops/view/view.h"

namespace tandem::data {
namespace detail {

std::string size_text(int64_t n) { return n == kEndless ? "endless" : std::to_string(n); }

void check_finite(const StageRef& in, const char* what) {
  TD_CHECK(in->size() != kEndless, Value,
           "{} of a pipeline that repeats forever\nPut it before "
           "repeat(), or use repeat(n) or take(n).",
           what);
}

namespace {

int64_t times(int64_t a, int64_t b) {
  int64_t r;
  return a == kEndless || __builtin_mul_overflow(a, b, &r) ? kEndless : r;
}

struct Source : Stage {
  int64_t n;
  One one;
  Many some;
  std::string name, label;
  int64_t size() const override { return n; }
  Fields get(Pass, int64_t i) const override {
    return at_sample([&] { return one(i); }, [&] { return sample_name(i); });
  }
  Fields many(Pass pass, Rows rows) const override {
    if (!some) return Stage::many(pass, rows);
    return at_sample([&] { return some(rows); }, [&] { return one_of(rows); });
  }
  std::string sample_name(int64_t i) const { return fmt::format("sample {} of {}", i, label); }
  // Which of them it was: the first that fails by itself too.
  std::string one_of(Rows rows) const {
    for (const int64_t i : rows) try {
        one(i);
      } catch (const std::exception&) {
        return sample_name(i);
      }
    return fmt::format("samples {} of {}", fmt::join(rows, ", "), label);
  }
  void origins(Pass, int64_t i, std::vector<int64_t>& out) const override { out.push_back(i); }
  std::string text() const override { return fmt::format("{}({})", name, n); }
  Order order() const override { return Order::fixed; }
};

struct Map : Stage {
  StageRef in;
  Apply fn;
  uint64_t salt;  ///< position in the chain: two random maps draw different numbers
  mutable std::atomic<bool> random = false;  ///< whether it has drawn any
  int64_t size() const override { return in->size(); }
  Fields get(Pass pass, int64_t i) const override {
    Fields f = in->get(pass, i);
    uint64_t key = hash_combine(hash_combine(pass.seed, static_cast<uint64_t>(pass.epoch)),
                                hash_combine(salt, static_cast<uint64_t>(i)));
    GeneratorGuard generator({key, 0});
    f = at_sample([&] { return fn(std::move(f)); },
                  [&] { return "map over " + samples_text(*this, pass, i); });
    if (generator_state().offset != 0) random = true;
    return f;
  }
  void origins(Pass pass, int64_t i, std::vector<int64_t>& out) const override {
    in->origins(pass, i, out);
  }
  std::string text() const override { return in->text() + " | map"; }
  Order order() const override { return random ? Order::changing : in->order(); }
  int64_t identity(Pass pass, int64_t i) const override { return in->identity(pass, i); }
  int64_t identities() const override { return in->identities(); }
};

struct Shuffle : Reordered {
  PerPass<Permutation> orders;
  std::shared_ptr<const Permutation> permutation(Pass pass) const {
    return orders.get(pass, [this](Pass p) { return Permutation(in->size(), p.seed, p.epoch); });
  }
  int64_t size() const override { return in->size(); }
  int64_t row(Pass pass, int64_t i) const override { return (*permutation(pass))[i]; }
  std::vector<int64_t> rows_of(Pass pass, Rows rows) const override {
    auto o = permutation(pass);
    std::vector<int64_t> mapped;
    for (int64_t i : rows) mapped.push_back((*o)[i]);
    return mapped;
  }
  std::string text() const override { return in->text() + " | shuffle"; }
  Order order() const override { return std::max(in->order(), Order::permuted); }
  int64_t identity(Pass pass, int64_t i) const override { return in->identity(pass, row(pass, i)); }
  int64_t identities() const override { return in->identities(); }
};

/// `fixed` if all elements before are.
Order fixed_over(const StageRef& in) {
  return in->order() == Order::fixed ? Order::fixed : Order::changing;
}

struct Batch : Stage {
  StageRef in;
  int64_t n;
  BatchOptions options;
  int64_t size() const override {
    const int64_t all = in->size();
    if (all == kEndless) return all;
    return options.drop_last ? all / n : (all + n - 1) / n;
  }
  Fields get(Pass pass, int64_t i) const override {
    std::vector<int64_t> rows;
    for (int64_t k = i * n; k < std::min((i + 1) * n, in->size()); ++k) rows.push_back(k);
    if (!options.pad) return in->many(pass, rows);
    std::vector<Fields> samples;
    for (int64_t k : rows) samples.push_back(in->get(pass, k));
    return stack_samples(std::move(samples), options.pad);
  }
  Fields part(Pass pass, int64_t i, int64_t rank, int64_t ranks) const override {
    const int64_t all = std::min((i + 1) * n, in->size()) - i * n, own = all / ranks;
    // Padding depends on the longest sample of the whole batch.
    if (all % ranks != 0 || options.pad) return Stage::part(pass, i, rank, ranks);
    std::vector<int64_t> rows;
    for (int64_t k = 0; k < own; ++k) rows.push_back(i * n + rank * own + k);
    return in->many(pass, rows);
  }
  void origins(Pass pass, int64_t i, std::vector<int64_t>& out) const override {
    for (int64_t k = i * n; k < std::min((i + 1) * n, in->size()); ++k) in->origins(pass, k, out);
  }
  std::string text() const override {
    return fmt::format("{} | batch({}{}{})", in->text(), n, options.drop_last ? ", drop_last" : "",
                       options.pad ? fmt::format(", pad {}", *options.pad) : "");
  }
  Order order() const override { return fixed_over(in); }
};

/// Positions of the previous stage: `offset + i * step`, wrapped around.
struct Select : Stage {
  StageRef in;
  int64_t offset = 0, step = 1, n = 0;
  std::string what;
  int64_t at(int64_t i) const {
    const int64_t k = offset + i * step;
    return in->size() == kEndless ? k : k % in->size();
  }
  int64_t size() const override { return n; }
  Fields get(Pass pass, int64_t i) const override { return in->get(pass, at(i)); }
  Fields many(Pass pass, Rows rows) const override {
    std::vector<int64_t> mapped;
    for (int64_t i : rows) mapped.push_back(at(i));
    return in->many(pass, mapped);
  }
  void origins(Pass pass, int64_t i, std::vector<int64_t>& out) const override {
    in->origins(pass, at(i), out);
  }
  std::string text() const override { return in->text() + " | " + what; }
  Order order() const override { return fixed_over(in); }
};

struct Repeat : Stage {
  StageRef in;
  int64_t count;
  Pass inner(Pass pass, int64_t i) const {
    return {pass.seed, (count < 0 ? pass.epoch : pass.epoch * count) + i / in->size()};
  }
  int64_t size() const override { return count < 0 ? kEndless : times(in->size(), count); }
  Fields get(Pass pass, int64_t i) const override {
    return in->get(inner(pass, i), i % in->size());
  }
  Fields many(Pass pass, Rows rows) const override {
    const int64_t n = in->size(), turn = rows.empty() ? 0 : rows[0] / n;
    std::vector<int64_t> mapped;
    for (int64_t i : rows) {
      if (i / n != turn) return Stage::many(pass, rows);
      mapped.push_back(i % n);
    }
    return in->many(inner(pass, turn * n), mapped);
  }
  void origins(Pass pass, int64_t i, std::vector<int64_t>& out) const override {
    in->origins(inner(pass, i), i % in->size(), out);
  }
  std::string text() const override { return fmt::format("{} | repeat({})", in->text(), count); }
  Order order() const override { return in->order(); }
  int64_t identity(Pass pass, int64_t i) const override {
    return in->identity(inner(pass, i), i % in->size());
  }
  int64_t identities() const override { return in->identities(); }
};

/// Several stages as one: at(i) tells which stage and which position.
struct Several : Stage {
  std::vector<StageRef> in;
  virtual std::pair<size_t, int64_t> at(int64_t i) const = 0;
  int64_t size() const override {
    int64_t all = 0;
    for (const StageRef& s : in)
      if (s->size() == kEndless || __builtin_add_overflow(all, s->size(), &all)) return kEndless;
    return all;
  }
  Fields get(Pass pass, int64_t i) const override {
    auto [k, at_k] = at(i);
    return in[k]->get(pass, at_k);
  }
  void origins(Pass pass, int64_t i, std::vector<int64_t>& out) const override {
    auto [k, at_k] = at(i);
    in[k]->origins(pass, at_k, out);
  }
  Order order() const override {
    Order all = Order::fixed;
    for (const StageRef& s : in) all = std::max(all, s->order());
    return all;
  }
  int64_t identity(Pass pass, int64_t i) const override {
    const auto [k, at_k] = at(i);
    int64_t base = 0;
    for (size_t j = 0; j < k; ++j) base += in[j]->identities();
    return base + in[k]->identity(pass, at_k);
  }
  int64_t identities() const override {
    int64_t sum = 0;
    for (const StageRef& s : in) sum += s->identities();
    return sum;
  }
  std::string list(const char* what) const {
    std::string t = what;
    for (size_t k = 0; k < in.size(); ++k) t += (k ? "; " : "(") + in[k]->text();
    return t + ")";
  }
};

struct Interleave : Several {
  int64_t block;
  // Number of elements in the first `rounds` rounds.
  int64_t before(int64_t rounds) const {
    int64_t sum = 0;
    for (const StageRef& s : in) sum += std::min(s->size(), times(rounds, block));
    return sum;
  }
  std::pair<size_t, int64_t> at(int64_t i) const override {
    int64_t low = 0, high = i / block + 1;  // before(low) <= i < before(high)
    while (high - low > 1) {
      const int64_t middle = low + (high - low) / 2;
      (before(middle) <= i ? low : high) = middle;
    }
    int64_t left = i - before(low);
    for (size_t k = 0;; ++k) {
      const int64_t gives = std::clamp<int64_t>(in[k]->size() - low * block, 0, block);
      if (left < gives) return {k, low * block + left};
      left -= gives;
    }
  }
  std::string text() const override { return list(fmt::format("interleave[{}]", block).c_str()); }
};

struct Concatenate : Several {
  std::pair<size_t, int64_t> at(int64_t i) const override {
    size_t k = 0;
    while (i >= in[k]->size()) i -= in[k++]->size();
    return {k, i};
  }
  std::string text() const override { return list("concatenate"); }
};

struct Zip : Several {
  std::pair<size_t, int64_t> at(int64_t i) const override { return {0, i}; }
  int64_t size() const override {
    int64_t n = kEndless;
    for (const StageRef& s : in) n = std::min(n, s->size());
    return n;
  }
  Fields join(const std::function<Fields(const Stage&)>& f) const {
    Fields all;
    for (const StageRef& s : in)
      for (Tensor& t : f(*s)) all.push_back(std::move(t));
    return all;
  }
  Fields get(Pass pass, int64_t i) const override {
    return join([&](const Stage& s) { return s.get(pass, i); });
  }
  Fields many(Pass pass, Rows rows) const override {
    return join([&](const Stage& s) { return s.many(pass, rows); });
  }
  std::string text() const override { return list("zip"); }
  Order order() const override {
    return Several::order() == Order::fixed ? Order::fixed : Order::changing;
  }
  int64_t identity(Pass, int64_t i) const override { return i; }
  int64_t identities() const override { return size(); }
};

/// A rank's part of each batch.
struct Part : Stage {
  StageRef in;
  int64_t rank = 0, ranks = 1;
  int64_t size() const override { return in->size(); }
  Fields get(Pass pass, int64_t i) const override { return in->part(pass, i, rank, ranks); }
  void origins(Pass pass, int64_t i, std::vector<int64_t>& out) const override {
    in->origins(pass, i, out);
  }
  std::string text() const override { return in->text(); }
  Order order() const override { return fixed_over(in); }
};

int64_t maps_in(const std::string& text) {
  int64_t n = 0;
  for (size_t at = text.find("| map"); at != text.npos; at = text.find("| map", at + 1)) ++n;
  return n;
}

}  // namespace

Fields Stage::many(Pass pass, std::span<const int64_t> rows) const {
  Stack stack(rows.size());
  for (int64_t i : rows) {
    Fields sample = get(pass, i);
    at_sample([&] { stack.add(std::move(sample)); }, [&] { return samples_text(*this, pass, i); });
  }
  return stack.take();
}

Fields Stage::part(Pass pass, int64_t i, int64_t rank, int64_t ranks) const {
  Fields whole = get(pass, i);
  std::vector<int64_t> from;
  origins(pass, i, from);
  if (static_cast<int64_t>(from.size()) % ranks != 0) return whole;
  for (Tensor& f : whole) {
    TD_CHECK(f.dim() > 0 && f.size(0) % ranks == 0, Shape,
             "a batch of {} samples has a field {}, which has no equal part for each of {} ranks",
             from.size(), f.shape().to_string(), ranks);
    const int64_t own = f.size(0) / ranks;
    f = narrow(f, 0, rank * own, own).contiguous();
  }
  return whole;
}

std::string samples_text(const Stage& stage, Pass pass, int64_t i) {
  std::vector<int64_t> from;
  stage.origins(pass, i, from);
  const std::string chain = stage.text();
  constexpr size_t kShown = 8;
  const size_t shown = std::min(from.size(), kShown);
  return fmt::format("sample{} {}{} of {}", from.size() == 1 ? "" : "s",
                     fmt::join(from.begin(), from.begin() + static_cast<ptrdiff_t>(shown), ", "),
                     from.size() > shown ? fmt::format(" and {} more", from.size() - shown) : "",
                     chain.substr(0, chain.find(" | ")));
}

StageRef source_stage(int64_t size, One one, Many many, std::string name, std::string label) {
  TD_CHECK(size >= 0, Value, "the size of the dataset '{}' is {}", name, size);
  auto s = std::make_shared<Source>();
  s->n = size;
  s->one = std::move(one);
  s->some = std::move(many);
  s->label = label.empty() ? name : std::move(label);
  s->name = std::move(name);
  return s;
}
StageRef map_stage(StageRef in, Apply fn) {
  const uint64_t salt = static_cast<uint64_t>(maps_in(in->text()));
  auto s = stage_over<Map>(std::move(in));
  s->fn = std::move(fn);
  s->salt = salt;
  return s;
}
StageRef shuffle_stage(StageRef in) {
  check_finite(in, "shuffle()");
  return stage_over<Shuffle>(std::move(in));
}
StageRef batch_stage(StageRef in, int64_t n, BatchOptions options) {
  TD_CHECK(n > 0, Value, "batch() expects a size > 0, got {}", n);
  auto s = stage_over<Batch>(std::move(in));
  s->n = n;
  s->options = options;
  return s;
}
StageRef shard_stage(StageRef in, int64_t rank, int64_t ranks, ShardOptions options) {
  TD_CHECK(ranks > 0 && rank >= 0 && rank < ranks, Value, "shard(): rank {} of {}", rank, ranks);
  check_finite(in, "shard()");
  auto s = stage_over<Select>(std::move(in));
  const int64_t n = s->in->size();
  s->offset = rank;
  s->step = ranks;
  s->n = n == 0 ? 0 : options.fill ? (n + ranks - 1) / ranks : n / ranks;
  s->what = fmt::format("shard({}, {})", rank, ranks);
  return s;
}
StageRef range_stage(StageRef in, int64_t skip, int64_t take) {
  TD_CHECK(skip >= 0 && take >= 0, Value, "take() and skip() expect a number >= 0, got {}",
           std::min(skip, take));
  auto s = stage_over<Select>(std::move(in));
  const int64_t n = s->in->size();
  s->offset = skip;
  s->n = n == kEndless ? take : std::min(std::max<int64_t>(n - skip, 0), take);
  s->what = skip > 0 ? fmt::format("skip({})", skip) : fmt::format("take({})", take);
  return s;
}
StageRef repeat_stage(StageRef in, int64_t count) {
  TD_CHECK(count >= -1, Value, "repeat() expects a count >= 0, or -1 for endless, got {}", count);
  check_finite(in, "repeat()");
  TD_CHECK(in->size() > 0 || count >= 0, Value, "an empty pipeline cannot repeat forever");
  auto s = stage_over<Repeat>(std::move(in));
  s->count = count;
  return s;
}
StageRef interleave_stage(std::vector<StageRef> in, int64_t block) {
  TD_CHECK(!in.empty() && block > 0, Value,
           "interleave() expects pipelines and a block_length > 0");
  for (const StageRef& s : in) check_finite(s, "interleave()");
  auto s = std::make_shared<Interleave>();
  s->in = std::move(in);
  s->block = block;
  return s;
}
StageRef concatenate_stage(std::vector<StageRef> in) {
  TD_CHECK(!in.empty(), Value, "concatenate() expects pipelines");
  for (const StageRef& s : in) check_finite(s, "concatenate()");
  auto s = std::make_shared<Concatenate>();
  s->in = std::move(in);
  return s;
}
StageRef part_stage(StageRef in, int64_t rank, int64_t ranks) {
  TD_CHECK(ranks > 0 && rank >= 0 && rank < ranks, Value, "part_of_batches(): rank {} of {}", rank,
           ranks);
  auto s = stage_over<Part>(std::move(in));
  s->rank = rank;
  s->ranks = ranks;
  return s;
}
StageRef zip_stage(std::vector<StageRef> in) {
  auto s = std::make_shared<Zip>();
  s->in = std::move(in);
  return s;
}

uint64_t seed_or_draw(std::optional<uint64_t> seed) {
  if (seed) return *seed;
  const RngKey k = tandem::detail::next_rng_key();
  return hash_combine(hash_combine(0x10ade5, k.seed), k.offset);
}

/// The position in the data, shared by the copies of a pipeline.
class PipelineRun {
 public:
  uint64_t seed;
  PrefetchOptions prefetch;
  int64_t epoch = 0, position = 0;
  bool used = false;  ///< this epoch's pass has begun
  std::unique_ptr<OrderedRun> run;
  RunStats last;
};

}  // namespace detail

using detail::Fields;

AnyPipeline::AnyPipeline(detail::StageRef stage, uint64_t seed, PrefetchOptions prefetch)
    : stage_(std::move(stage)), run_(std::make_shared<detail::PipelineRun>()) {
  TD_CHECK(prefetch.workers >= -1 && prefetch.workers <= 1024 && prefetch.depth > 0 &&
               prefetch.depth <= 1 << 20,
           Value, "prefetch() expects workers in -1..1024 and depth > 0, got {} and {}",
           prefetch.workers, prefetch.depth);
  run_->seed = seed;
  run_->prefetch = prefetch;
}

uint64_t AnyPipeline::seed() const { return run_->seed; }
const PrefetchOptions& AnyPipeline::prefetch_options() const { return run_->prefetch; }
AnyPipeline AnyPipeline::part_of_batches(int64_t rank, int64_t ranks) const {
  return {detail::part_stage(stage_, rank, ranks), seed(), prefetch_options()};
}

Fields AnyPipeline::fields(int64_t i, int64_t epoch) const {
  TD_CHECK(i >= 0 && i < size(), Index, "element {} of a pipeline of {}", i,
           detail::size_text(size()));
  NoGradGuard no_grad;
  const DeviceGuard host(cpu);  // elements lie there, whatever device the caller works on
  return stage_->get({run_->seed, epoch}, i);
}

std::vector<int64_t> AnyPipeline::samples_of(int64_t i, int64_t epoch) const {
  TD_CHECK(i >= 0 && i < size(), Index, "element {} of a pipeline of {}", i,
           detail::size_text(size()));
  std::vector<int64_t> out;
  stage_->origins({run_->seed, epoch}, i, out);
  return out;
}

void AnyPipeline::begin_pass() {
  detail::PipelineRun& r = *run_;
  r.run.reset();
  if (r.used) {
    ++r.epoch;
    r.position = 0;
  }
  r.used = true;
  const detail::Pass pass{r.seed, r.epoch};
  r.run = std::make_unique<detail::OrderedRun>(
      [stage = stage_, pass](int64_t i) { return stage->get(pass, i); },
      detail::OrderedRun::Options{r.position, stage_->size(), r.prefetch.workers,
                                  r.prefetch.depth});
}

bool AnyPipeline::next(Fields& fields) {
  detail::PipelineRun& r = *run_;
  if (!r.run) return false;
  if (r.run->next(fields)) {
    ++r.position;
    return true;
  }
  r.last = r.run->stats();
  r.run.reset();
  ++r.epoch;
  r.position = 0;
  r.used = false;
  return false;
}

PipelineState AnyPipeline::state() const {
  PipelineState s{run_->seed, run_->epoch, run_->position, text()};
  if (run_->used && s.position == size()) {
    ++s.epoch;
    s.position = 0;
  }
  return s;
}

void AnyPipeline::load_state(const PipelineState& state) {
  TD_CHECK(state.text == text(), Value,
           "this state was saved by the pipeline\n  {}\nand this pipeline is\n  {}\nMake the "
           "pipeline as "
           "it was then, or start over with set_epoch(0).",
           state.text, text());
  TD_CHECK(state.epoch >= 0 && state.position >= 0 && state.position <= size(), Value,
           "the state of a pipeline of {} elements says epoch {}, position {}",
           detail::size_text(size()), state.epoch, state.position);
  run_->run.reset();
  run_->seed = state.seed;
  run_->epoch = state.epoch;
  run_->position = state.position;
  run_->used = false;
}

void AnyPipeline::set_epoch(int64_t epoch) {
  TD_CHECK(epoch >= 0, Value, "set_epoch({})", epoch);
  run_->run.reset();
  run_->epoch = epoch;
  run_->position = 0;
  run_->used = false;
}

RunStats AnyPipeline::stats() const { return run_->run ? run_->run->stats() : run_->last; }

io::Json PipelineState::to_json() const {
  // The seed as a string: some JSON readers cannot hold 64-bit numbers.
  return io::Json::Object{
      {"seed", std::to_string(seed)}, {"epoch", epoch}, {"position", position}, {"pipeline", text}};
}

PipelineState PipelineState::from_json(const io::Json& json) {
  PipelineState s;
  const io::Json *seed = json.find("seed"), *epoch = json.find("epoch"),
                 *position = json.find("position"), *text = json.find("pipeline");
  const bool ok = seed && seed->as_string() && epoch && epoch->as_int() && position &&
                  position->as_int() && text && text->as_string();
  TD_CHECK(ok, Format,
           "the state of a pipeline expects seed (string), epoch, position (integers) and pipeline "
           "(string), got {}",
           json.dump());
  const std::string& digits = *seed->as_string();
  TD_CHECK(!digits.empty() && digits.size() <= 20 &&
               digits.find_first_not_of("0123456789") == digits.npos,
           Format, "the seed of a pipeline's state is '{}'", digits);
  s.seed = std::strtoull(digits.c_str(), nullptr, 10);
  s.epoch = *epoch->as_int();
  s.position = *position->as_int();
  s.text = *text->as_string();
  return s;
}

}  // namespace tandem::data
