// SPDX-License-Identifier: Apache-2.0
#include "tandem/dist/model_parallel.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <set>
#include <sstream>

#include "tandem/base/error.h"
#include "tandem/dist/collectives_internal.h"
#include "tandem/dist/known_plans.h"
#include "tandem/dist/objects.h"
#include "tandem/dist/pipeline.h"
#include "tandem/dist/reducer_internal.h"
#include "tandem/dist/tensor_parallel_internal.h"
#include "tandem/graph/cells/deferred.h"
#include "tandem/ops/ops.h"

namespace tandem::distributed {
namespace {

DeviceMesh mesh_of(const ModelParallelSizes& s, const std::shared_ptr<Engine>& world) {
  const int64_t ranks = world->size();
  constexpr int64_t kMost = 1 << 20;  // so that their product has no overflow
  TD_CHECK(s.tp > 0 && s.pp > 0 && s.tp <= kMost && s.pp <= kMost, Value,
           "tensor parallel over {} ranks and a pipeline of {} stages, the job has {} ranks\nSet "
           "sizes from 1 to {}.",
           s.tp, s.pp, ranks, ranks);
  const int64_t parts = s.tp * s.pp;
  TD_CHECK(ranks % parts == 0, Value,
           "tensor parallel over {} ranks and a pipeline of {} stages take a multiple of {} ranks, "
           "the job has {}\nStart it with tandem launch -n {}.",
           s.tp, s.pp, parts, ranks, parts);
  // Slices of a layer exchange most, then copies of the net: neighbours.
  return init_device_mesh({s.pp, ranks / parts, s.tp}, {"pp", "dp", "tp"}, world);
}

// Zeros of a shape in the memory of one element.
Tensor blank(const Shape& shape, DType dtype) { return zeros({}, dtype).expand(shape); }

// "h.0.c_fc.weight" of "h.0.c_fc.weight.exp_avg".
std::string owner_name(const std::string& entry) {
  return entry.substr(0, std::min(entry.rfind('.'), entry.size()));
}

/// The parameters that a module has itself.
struct OwnCells : nn::MemberVisitor {
  std::vector<const Cell*> found;
  void param(const std::string&, Param& p) override {
    if (p.defined()) found.push_back(p.cell().get());
  }
  void buffer(const std::string&, Buffer&) override {}
  void child(const std::string&, nn::Module&) override {}
};

// Add up the gradients of all ranks, in one call.
void sum_over_stages(const std::vector<Param>& params, DType dtype,
                     const std::shared_ptr<Engine>& stages) {
  // At the end of the bucket: how many stages have a gradient of each parameter.
  std::vector<float> used;
  std::vector<Tensor> flat;
  for (const Param& p : params) {
    const Tensor g = p.grad();
    used.push_back(g.defined() ? 1.0F : 0.0F);
    flat.push_back(g.defined() ? g.flatten().to(dtype) : zeros({p.numel()}, dtype));
  }
  flat.push_back(tensor(used).to(dtype));
  const Tensor sum = detail::all_reduce_labelled(cat(flat, 0), ReduceOp::sum, stages,
                                                 {"gradients outside of the blocks"});
  int64_t at = 0;
  const Tensor counts = sum.narrow(0, sum.numel() - static_cast<int64_t>(used.size()),
                                   static_cast<int64_t>(used.size()))
                            .to(DType::f32);
  for (size_t i = 0; i < used.size(); ++i) {
    const Param& p = params[i];
    const Tensor g = sum.narrow(0, at, p.numel()).reshape(p.shape());
    at += p.numel();
    if (counts.narrow(0, static_cast<int64_t>(i), 1).item<float>() > 0) p.set_grad(g.to(p.dtype()));
  }
}

/// Leaves the net's forward where the last block of a stage is done: what follows belongs to
/// others.
struct StageEnds {};

}  // namespace

struct ModelParallel::Stages {
  struct Part : nn::Module {
    std::function<Tensor(Tensor)> run;
    Part() { this->register_members(this, ""); }  // it has none
    Tensor forward(Tensor x) { return run(std::move(x)); }
  };
  std::vector<nn::Module*> blocks;
  int64_t first = 0, end = 0;            ///< this rank's blocks
  std::map<const Cell*, int64_t> owner;  ///< of parameters and buffers of blocks: the stage
  std::vector<Param> outside;            ///< trained parameters that no block has
  std::vector<Param> elsewhere;          ///< of blocks of other stages: blank here
  std::map<const Cell*, Param> parked;   ///< which of them an empty one of the optimizer stands for
  Part part;
  // Of a forward pass:
  Tensor entering, leaving, before;
  int64_t seen = 0;
  bool last = false;

  void check_free() const {
    for (const nn::Module* block : blocks)
      TD_CHECK(
          !block->state().around, Unsupported,
          "a block of the pipeline has code around it already\nLeave pipeline parallel out (pp = "
          "1).");
  }
  Tensor through(int64_t i, nn::Module& m, Tensor x,
                 const nn::detail::ModuleState::Forward& forward) {
    TD_CHECK(i == seen && (i == 0 || x.impl() == before.impl()), Unsupported,
             "a pipeline cuts a chain of blocks, but this net does something else between its "
             "blocks {} and {}\nLeave pipeline parallel out (pp = 1).",
             seen - 1, i);
    ++seen;
    if (i == first && first > 0) x = entering;
    if (i >= first && i < end) x = forward(&m, std::move(x));
    before = x;
    if (i + 1 < end || last || i < first) return x;
    leaving = std::move(x);
    throw StageEnds{};
  }
  Tensor pass(Tensor in, const std::function<Tensor()>& loss) {
    entering = std::move(in);
    seen = 0;
    Tensor out;
    bool left = false;
    try {
      out = loss();
    } catch (const StageEnds&) {
      left = true;
      out = std::move(leaving);
    }
    entering = before = leaving = Tensor();
    TD_CHECK(left != last && seen == (last ? static_cast<int64_t>(blocks.size()) : end),
             Unsupported,
             "a pipeline expects that a net calls each of its blocks once, {} of {} were\nLeave "
             "pipeline parallel out (pp = 1).",
             seen, blocks.size());
    return out;
  }
};

ModelParallel::ModelParallel(nn::Module& net, ModelParallelSizes sizes,
                             std::shared_ptr<Engine> world)
    : net_(net), sizes_(sizes), mesh_(mesh_of(sizes, world)) {
  ParallelPlan plan;
  std::vector<std::string> lines;
  {
    const DeferredInitGuard as_they_are;  // shapes are all that is asked for
    if (sizes.tp > 1) plan = known_plan(net, sizes.tp);
    if (staged()) cut(net);
    for (const auto& [name, p] : net.named_parameters())
      lines.push_back(
          fmt::format("parameter '{}' {}{}", name, to_string(p.dtype()), p.shape().to_string()));
  }
  model_ = world->split(static_cast<int>(mesh_.get_local_rank("dp")), world->rank());
  compare_lines(*world, lines, "nets", "All ranks must build the same net.");
  std::set<const Cell*> elsewhere;
  if (stages_) {
    stages_->check_free();  // before the net changes
    for (const Param& p : stages_->elsewhere) elsewhere.insert(p.cell().get());
  }
  slices_ = spread_module(net, plan, mesh_["tp"], *world, [&](Cell& cell, const Tensor& own) {
    if (elsewhere.contains(&cell))
      cell.replace(blank(own.shape(), own.dtype()));
    else
      store_shared(cell, own);
  });
  set_hooks(true);
}

ModelParallel::~ModelParallel() {
  if (!whole_) set_hooks(false);
}

bool ModelParallel::counts() const {
  return mesh_.get_local_rank("tp") == 0 && mesh_.get_local_rank("pp") == sizes_.pp - 1;
}

// ---- stages

void ModelParallel::cut(nn::Module& net) {
  const std::vector<std::string> paths = known_blocks(net);
  const auto n = static_cast<int64_t>(paths.size());
  TD_CHECK(n >= sizes_.pp, Value, "{} blocks do not make {} stages\nLower pp.", n, sizes_.pp);
  stages_ = std::make_unique<Stages>();
  Stages& s = *stages_;
  const std::vector<int64_t> split =
      balanced_split(std::vector<double>(static_cast<size_t>(n), 1), sizes_.pp);
  const int64_t stage = mesh_.get_local_rank("pp");
  const auto begin_of = [&](int64_t i) {
    return i < sizes_.pp ? split[static_cast<size_t>(i)] : n;
  };
  s.first = begin_of(stage);
  s.end = begin_of(stage + 1);
  s.last = stage + 1 == sizes_.pp;
  std::map<std::string, nn::Module*> by_path;
  for (const auto& [path, m] : net.named_modules()) by_path[path] = m;
  for (int64_t i = 0, at = 0; i < n; ++i) {
    while (i >= begin_of(at + 1)) ++at;
    nn::Module& block = *by_path.at(paths[static_cast<size_t>(i)]);
    s.blocks.push_back(&block);
    const auto belongs = [&](const Cell* cell) {
      const auto [owner, fresh] = s.owner.emplace(cell, at);
      TD_CHECK(fresh || owner->second == at, Unsupported,
               "'{}' shares parameters with a block of another stage\nLeave pipeline parallel out "
               "(pp = 1).",
               paths[static_cast<size_t>(i)]);
    };
    for (const Param& p : block.parameters()) belongs(p.cell().get());
    for (const Buffer& b : block.buffers()) belongs(b.cell().get());
  }
  check_outside(net, paths);
  std::set<const Cell*> known;
  for (const auto& [name, p] : net.named_parameters()) {
    const auto owner = s.owner.find(p.cell().get());
    const bool fresh = known.insert(p.cell().get()).second;
    if (owner == s.owner.end()) {
      if (fresh && p.requires_grad()) s.outside.push_back(p);
    } else if (owner->second != stage) {
      elsewhere_.push_back(name);
      if (fresh) s.elsewhere.push_back(p);
    }
  }
}

// What a block has belongs to one stage: nothing outside of the blocks may compute with it.
void ModelParallel::check_outside(nn::Module& net, const std::vector<std::string>& blocks) const {
  for (const auto& [path, m] : net.named_modules()) {
    const bool in_block = std::any_of(
        blocks.begin(), blocks.end(),
        [&path = path](const std::string& b) { return path == b || path.starts_with(b + "."); });
    if (in_block) continue;
    OwnCells own;
    m->visit_members(own);
    for (const Cell* cell : own.found)
      TD_CHECK(!stages_->owner.contains(cell), Unsupported,
               "'{}' shares a parameter with a block of the pipeline\nLeave pipeline parallel out "
               "(pp = 1).",
               path.empty() ? net.type() : path);
  }
}

void ModelParallel::drop_elsewhere() {
  if (!stages_) return;
  const NoGradGuard no_grad;
  for (const Param& p : stages_->elsewhere) p.cell()->replace(blank(p.shape(), p.dtype()));
}

void ModelParallel::set_hooks(bool on) {
  if (!stages_) return;
  // All or none: hooks that a throw left behind would outlive the stages that they call.
  if (on) stages_->check_free();
  for (size_t i = 0; i < stages_->blocks.size(); ++i) {
    auto& around = stages_->blocks[i]->state().around;
    around = {};
    if (on)
      around = [s = stages_.get(), i](nn::Module& m, Tensor x,
                                      nn::detail::ModuleState::Forward forward) {
        return s->through(static_cast<int64_t>(i), m, std::move(x), forward);
      };
  }
}

Tensor ModelParallel::step(int64_t rows, int64_t microbatches,
                           const std::function<Tensor(int64_t, int64_t)>& loss) {
  TD_CHECK(stages_ && !whole_ && rows > 0 && microbatches > 0, Value,
           "a step of a pipeline expects stages, rows and microbatches");
  int64_t n = std::min(rows, microbatches);
  while (rows % n != 0) --n;
  int64_t next = 0;  // a stage has its forward passes in the order of the microbatches
  stages_->part.run = [&](Tensor in) {
    const int64_t at = next++;
    return stages_->pass(std::move(in), [&] { return loss(at * rows / n, (at + 1) * rows / n); });
  };
  const auto as_it_is = [](const Tensor& out, const Tensor&) { return out; };
  Schedule1F1B schedule({stages_->part, mesh_.get_local_rank("pp"), sizes_.pp}, n, as_it_is,
                        mesh_["pp"]);
  const Tensor numbers = zeros({n});  // the batch is here on every rank
  return schedule.step(numbers, numbers);
}

void ModelParallel::reduce_gradients() {
  if (!stages_) return;
  const NoGradGuard no_grad;
  // Half precision is added in f32 and rounded once; f64 keeps its digits.
  std::map<DType, std::vector<Param>> buckets;
  for (const Param& p : stages_->outside)
    buckets[p.dtype() == DType::f64 ? DType::f64 : DType::f32].push_back(p);
  for (const auto& [dtype, params] : buckets) sum_over_stages(params, dtype, mesh_["pp"]);
}

// ---- norms

// What k ranks have alike counts as a k-th on each of them, so that one sum over all makes it.
Tensor ModelParallel::get_total_norm(double p) const {
  const NoGradGuard no_grad;
  TD_CHECK(p > 0, Value, "norm_type is {}, expected more than 0", p);
  std::map<double, std::vector<Param>> by_copies;
  for (const Param& param : net_.parameters()) {
    const Cell* cell = param.cell().get();
    const bool slice =
        sizes_.tp > 1 &&
        std::any_of(slices_.slices().begin(), slices_.slices().end(),
                    [&](const TensorParallel::Slice& s) { return s.param == param; });
    const bool stage = stages_ && stages_->owner.contains(cell);
    const int64_t copies = (slice ? 1 : sizes_.tp) * (stage ? 1 : sizes_.pp);
    by_copies[static_cast<double>(copies)].push_back(param);
  }
  Tensor own = zeros({}, DType::f64);
  for (const auto& [copies, params] : by_copies) {
    const Tensor norm = optim::get_total_norm(params, p).to(DType::f64);
    own = std::isinf(p) ? maximum(own, norm) : own + pow(norm, p) / copies;
  }
  if (!std::isinf(p)) own = pow(own, 1 / p);
  return detail::norm_over_ranks(own, p, model_).to(net_.parameters().front().dtype());
}

Tensor ModelParallel::clip_grad_norm_(double max_norm) const {
  const NoGradGuard no_grad;
  Tensor norm = get_total_norm();
  optim::clip_grads_with_norm_(net_.parameters(), max_norm, norm);
  return norm;
}

// ---- whole states

void ModelParallel::unshard() {
  if (whole_) return;
  const NoGradGuard no_grad;
  set_hooks(false);
  slices_.unshard();
  if (stages_) {
    const auto bring = [&](const Ref<Cell>& cell) {
      if (const auto owner = stages_->owner.find(cell.get()); owner != stages_->owner.end())
        cell->replace(broadcast(cell->read(), static_cast<int>(owner->second), mesh_["pp"]));
    };
    for (const Param& p : net_.parameters()) bring(p.cell());
    for (const Buffer& b : net_.buffers()) bring(b.cell());
  }
  whole_ = true;
}

void ModelParallel::reshard() {
  if (!whole_) return;
  slices_.reshard();
  set_hooks(true);
  drop_elsewhere();
  whole_ = false;
}

// The stage that has the parameter to which an entry of an optimizer's state belongs, by the name
// of the parameter.
std::map<std::string, int64_t> ModelParallel::owners() const {
  std::map<std::string, int64_t> out;
  for (const auto& [name, p] : net_.named_parameters())
    if (const auto at = stages_->owner.find(p.cell().get()); at != stages_->owner.end())
      out[name] = at->second;
  return out;
}

StateDict ModelParallel::optim_state_dict(const optim::Optimizer& optimizer) const {
  const NoGradGuard no_grad;
  const StateDict own = slices_.optim_state_dict(optimizer);
  if (!stages_) return own;
  const std::map<std::string, int64_t> owner = owners();
  const int64_t stage = mesh_.get_local_rank("pp");
  StateDict all;
  std::string mine;  // what this stage alone can say: a line for each entry
  for (const auto& [name, value] : own) {
    const auto at = owner.find(owner_name(name));
    if (at != owner.end() && at->second != stage) continue;
    all[name] = value;
    if (at == owner.end()) continue;
    mine += fmt::format("{} {}", static_cast<int>(value.dtype()), value.dim());
    for (const int64_t size : value.sizes()) mine += fmt::format(" {}", size);
    mine += " " + name + "\n";
  }
  const std::vector<std::string> texts = all_gather_text(*mesh_["pp"], mine, "optimizer's state");
  for (size_t from = 0; from < texts.size(); ++from) {
    std::istringstream lines(texts[from]);
    for (std::string line; std::getline(lines, line);) {
      std::istringstream words(line);
      int dtype = 0, dims = 0;
      words >> dtype >> dims;
      Shape shape;
      for (int64_t size = 0; dims > 0 && words >> size; --dims) shape.push_back(size);
      std::string name;
      std::getline(words >> std::ws, name);
      const Tensor* value = all.find(name);
      all[name] = broadcast(value ? *value : blank(shape, static_cast<DType>(dtype)),
                            static_cast<int>(from), mesh_["pp"]);
    }
  }
  return all;
}

StateDict ModelParallel::parts_of_optim_state(const optim::Optimizer& optimizer,
                                              const StateDict& whole) const {
  StateDict parts = slices_.parts_of_optim_state(optimizer, whole);
  if (!stages_ || stages_->parked.empty()) return parts;
  const std::map<std::string, int64_t> owner = owners();
  const StateDict own = optimizer.state_dict();
  StateDict out;
  for (const auto& [name, value] : parts) {
    const auto at = owner.find(owner_name(name));
    const bool here = at == owner.end() || at->second == mesh_.get_local_rank("pp");
    const Tensor* empty = own.find(name);
    if (here || (empty && empty->shape() == value.shape()))
      out[name] = value;
    else if (empty)
      out[name] = *empty;
  }
  return out;
}

// What other stages update is replaced by empty parameters of the same names.
void ModelParallel::shard_optimizer(optim::Optimizer& optimizer) {
  const NoGradGuard no_grad;
  const auto [state, deferred] = state_as_it_is(optimizer);
  const DeferredInitGuard parts_wait(deferred);  // too
  std::vector<Param> params = optimizer.params();
  for (Param& p : params) {
    if (!stages_ || std::find(stages_->elsewhere.begin(), stages_->elsewhere.end(), p) ==
                        stages_->elsewhere.end())
      continue;
    if (p.dim() == 0) continue;
    Shape none = p.shape();  // as many dimensions: some optimizers look at them
    none[0] = 0;
    Param empty(zeros(none, p.dtype()), p.requires_grad());
    empty.cell()->name = p.name();
    stages_->parked[empty.cell().get()] = std::exchange(p, empty);
  }
  optimizer.replace_params(params);
  optimizer.load_state_dict(parts_of_optim_state(optimizer, state));
}

void ModelParallel::unshard_optimizer(optim::Optimizer& optimizer) {
  const StateDict state = optim_state_dict(optimizer);
  unshard();
  std::vector<Param> params = optimizer.params();
  if (stages_)
    for (Param& p : params)
      if (const auto at = stages_->parked.find(p.cell().get()); at != stages_->parked.end())
        p = at->second;
  const DeferredInitGuard no_zeros;  // the state takes their place
  optimizer.replace_params(params);  // states of the shapes that they have now
  if (stages_) stages_->parked.clear();
  optimizer.load_state_dict(state);
}

}  // namespace tandem::distributed
