// SPDX-License-Identifier: Apache-2.0
#include "tandem/plan/workload.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <chrono>
#include <map>
#include <set>

#include "tandem/base/parallel.h"
#include "tandem/codegen/jit.h"
#include "tandem/compile/compile.h"
#include "tandem/compile/executable.h"
#include "tandem/grad/autograd.h"
#include "tandem/graph/dry_run.h"
#include "tandem/graph/profiler.h"
#include "tandem/graph/profiler_clock.h"
#include "tandem/nn/module.h"
#include "tandem/ops/ops.h"
#include "tandem/optim/optimizers.h"
#include "tandem/plan/asked.h"
#include "tandem/plan/caching_allocator_internal.h"
#include "tandem/plan/moments_internal.h"
#include "tandem/plan/names_internal.h"
#include "tandem/tensor/allocator.h"

namespace tandem::plan {
namespace {

using Clock = std::chrono::steady_clock;
double seconds_since(Clock::time_point t) {
  return std::chrono::duration<double>(Clock::now() - t).count();
}

using OptimizerPtr = std::unique_ptr<optim::Optimizer>;
struct OptimizerRow {
  const char* name;
  OptimizerPtr (*make)(std::vector<Param>);
};
template <class O>
OptimizerPtr make_optimizer(std::vector<Param> p) {
  return std::make_unique<O>(std::move(p));
}
constexpr OptimizerRow kOptimizers[] = {
    {"AdamW", make_optimizer<optim::AdamW>},
    {"Adam", make_optimizer<optim::Adam>},
    {"SGD", make_optimizer<optim::SGD>},
    {"SGD-momentum",
     [](std::vector<Param> p) -> OptimizerPtr {
       return std::make_unique<optim::SGD>(std::move(p), optim::SGDOptions{.momentum = 0.9});
     }},
    {"RMSprop", make_optimizer<optim::RMSprop>},
    {"Adagrad", make_optimizer<optim::Adagrad>},
    {"Adadelta", make_optimizer<optim::Adadelta>},
    {"Adamax", make_optimizer<optim::Adamax>},
    {"NAdam", make_optimizer<optim::NAdam>},
    {"RAdam", make_optimizer<optim::RAdam>},
    {"Lion", make_optimizer<optim::Lion>},
    {"LAMB", make_optimizer<optim::LAMB>},
    {"Adafactor", make_optimizer<optim::Adafactor>},
};
const OptimizerRow& optimizer_row(const std::string& name) {
  for (const OptimizerRow& r : kOptimizers)
    if (name == r.name) return r;
  TD_FAIL(Value, "there is no optimizer '{}'\n{}It is one of {}.", name,
          did_you_mean(name, optimizer_names()), fmt::join(optimizer_names(), ", "));
}

// What everything is converted to, f32 where nothing is.
DType whole_dtype(Precision p) {
  return p == Precision::pure_bf16 || p == Precision::mixed_bf16 ? DType::bf16
         : p == Precision::pure_f16                              ? DType::f16
                                                                 : DType::f32;
}

// Is it a convolution, or its derivative, whose filters see one channel each? The filters are the
// second input, or what comes out; a picture of one channel does not make it one.
bool is_depthwise(const OpDef* op, std::span<const Shape> in, const Shape& out) {
  if (!op || !op->has(kConvolution) || in.size() < 2) return false;
  const bool by_weight = op == &op::conv_backward_weight;
  const auto one_channel = [](const Shape& s) { return s.rank() >= 3 && s[1] == Dim(1); };
  const Shape &filters = by_weight ? out : in[1], &other = by_weight ? in[1] : out;
  return one_channel(filters) && filters[0] != Dim(1) && !one_channel(in[0]) && !one_channel(other);
}

// Sees dtype, sizes and phase of each op that the profiler records.
class DTypeHook : public OpHook {
 public:
  DTypeHook(const Profile& profile, DryMemory* books, const uint8_t& phase)
      : profile_(profile), books_(books), phase_(phase) {}
  void before(const OpDef&, std::span<const Tensor> in) override {
    if (books_ && context().scope) books_->scope = context().scope->path;
    Seen s;
    for (size_t i = 0; i < 2 && i < in.size(); ++i) {
      s.sizes[i] = elements(in[i]);
      if (in[i].defined()) s.in.push_back(in[i].shape());
    }
    open_.push_back(std::move(s));
  }
  void after(const OpDef& op, std::span<const Tensor> out) override {
    TD_ASSERT(!open_.empty());
    Seen s = std::move(open_.back());
    open_.pop_back();
    if (profile_.events.size() == ops.size()) return;  // part of a body
    s.op = &op;
    s.phase = phase_;
    for (const Tensor& t : out)
      if (t.defined()) {
        s.dtype = t.dtype();
        s.sizes[2] = elements(t);
        s.depthwise = is_depthwise(&op, s.in, t.shape());
        break;
      }
    while (ops.size() < profile_.events.size()) ops.push_back(s);
  }
  struct Seen {
    const OpDef* op = nullptr;
    DType dtype = DType::f32;
    uint8_t phase = 0;
    bool depthwise = false;
    double sizes[3] = {};
    std::vector<Shape> in;  // of the first two inputs
  };
  std::vector<Seen> ops;

 private:
  static double elements(const Tensor& t) {
    return t.defined() ? static_cast<double>(t.numel()) : 0;
  }
  const Profile& profile_;
  DryMemory* books_;
  const uint8_t& phase_;
  std::vector<Seen> open_;
};

// Is it what matrix units do? Products and convolutions are what autocast lowers; their derivatives
// are known by the operations that each element of their results takes.
// What the row says of the kernel; `op` is null for a fused loop.
void describe(Work& w, const OpDef* op, bool depthwise) {
  w.convolution = op && op->has(kConvolution);
  w.batch_norm = op && op->has(kBatchNorm);
  w.depthwise = depthwise;
  w.matrix = depthwise || (op && op->autocast_class == Autocast::low) ||
             w.flops > 8 * w.bytes / static_cast<double>(size_of(w.dtype));
}

// The step of a job, in phases that the books see.
class Stepper {
 public:
  Stepper(const Job& job, const WorkOptions& o, DryMemory* books)
      : o_(o), books_(books), form_(o.attention, o.training ? job.attention_dropout : 0) {
    phase(Phase::build);
    model_ = job.make(o.batch);
    TD_CHECK(!o.training || model_->loss, Unsupported,
             "{} has no loss: it can be planned for --serve only", job.name);
    if (const DType narrow = whole_dtype(o.precision); narrow != DType::f32) {
      TD_CHECK(model_->to, Unsupported, "{} cannot be converted to {}", job.name,
               to_string(narrow));
      model_->to(narrow);
      for (Tensor& t : model_->inputs)
        if (is_floating(t.dtype())) t = t.to(narrow);
    }
    if (model_->train) model_->train(o.training);
    if (o.training) optimizer_ = optimizer_row(o.optimizer).make(model_->parameters);
    if (o.compiled)
      compiled_.emplace([this](const std::vector<Tensor>& in) { return body(in); },
                        CompileOptions{.memory_limit = o.memory_limit, .name = job.name},
                        Where::here());
  }

  /// One step; eager ones call `at_gradients` when all gradients are there.
  void step(const std::function<void()>& at_gradients = {}) {
    at_gradients_ = at_gradients ? &at_gradients : nullptr;
    phase(Phase::forward);
    NoGradGuard no_grad(!o_.training);
    if (compiled_)
      (*compiled_)(model_->inputs);
    else
      body(model_->inputs);
  }
  /// The loss alone, not recorded.
  void forward() {
    phase(Phase::forward);
    NoGradGuard no_grad;
    run(model_->loss, model_->inputs);
  }
  const JobModel& model() const { return *model_; }
  const optim::Optimizer* optimizer() const { return optimizer_.get(); }
  Ref<Executable> executable() const { return compiled_ ? compiled_->executable() : nullptr; }
  void phase(Phase p) {
    phase_ = static_cast<uint8_t>(p);
    if (books_) books_->phase = phase_;
  }
  const uint8_t& phase() const { return phase_; }

 private:
  template <class F>
  Tensor run(const F& f, const std::vector<Tensor>& in) {
    if (!is_amp(o_.precision)) return f(in);
    AutocastGuard amp(o_.precision == Precision::amp_f16 ? DType::f16 : DType::bf16);
    return f(in);
  }
  Tensor body(const std::vector<Tensor>& in) {
    if (!o_.training) return run(model_->forward, in);
    if (!o_.keep_gradients || o_.compiled) optimizer_->zero_grad();
    Tensor loss = run(model_->loss, in);
    phase(Phase::backward);
    loss.backward();
    if (at_gradients_) (*at_gradients_)();
    if (o_.clip_norm) {
      optim::clip_grad_norm_(model_->parameters, 1);
      if (at_gradients_) (*at_gradients_)();  // they may be new ones
    }
    phase(Phase::update);
    optimizer_->step();
    return loss.detach();
  }

  WorkOptions o_;
  DryMemory* books_;
  AttentionFormGuard form_;
  uint8_t phase_ = 0;
  std::shared_ptr<JobModel> model_;
  OptimizerPtr optimizer_;
  std::optional<Compiled<std::function<Tensor(const std::vector<Tensor>&)>>> compiled_;
  const std::function<void()>* at_gradients_ = nullptr;
};

double numel_bytes(const Tensor& t) {
  return static_cast<double>(t.numel()) * static_cast<double>(size_of(t.dtype()));
}

void mark_all(const Stepper& s, Causes& causes) {
  for (const Param& p : s.model().parameters) causes.mark(p.value(), Cause::weights);
  for (const Buffer& b : s.model().buffers) causes.mark(b.value(), Cause::weights);
  for (const Tensor& t : s.model().inputs) causes.mark(t, Cause::input);
  if (s.optimizer())
    for (const auto& [name, t] : s.optimizer()->state_dict()) causes.mark(t, Cause::optimizer);
}
void mark_gradients(const Stepper& s, Causes& causes) {
  for (const Param& p : s.model().parameters) causes.mark(p.grad(), Cause::gradients);
}

// The kernels of one step. Their seconds reach from the end of the kernel before to their own, so
// that views and whatever the host does between two kernels are part of the later one.
std::vector<Work> work_of(const Profile& profile, const DTypeHook& hook, const Executable* exe) {
  std::vector<Work> all;
  int64_t before = profile.events.empty() ? 0 : profile.events[0].start_ns;
  const auto seconds = [&](const ProfileEvent& e) {
    return 1e-9 * static_cast<double>(e.end_ns - std::exchange(before, e.end_ns));
  };
  if (exe) {
    const compiler::Lowered& l = exe->lowered();
    size_t k = 0;
    const auto elements = [&](int place) {
      if (place < 0) return 0.0;
      const Dim n = l.places[static_cast<size_t>(place)].shape.numel();
      return n.is_symbolic() ? 0.0 : static_cast<double>(n.value());
    };
    for (const ProfileEvent& e : profile.events) {
      if (!e.compiled || k >= l.steps.size()) continue;
      const compiler::Step& s = l.steps[k];
      Work w{e.name, e.scope, e.flops, e.bytes};
      for (size_t i = 0; i < 2 && i < s.in.size(); ++i) w.sizes[i] = elements(s.in[i].place);
      for (int o : s.out)
        if (o >= 0) {
          w.dtype = l.places[static_cast<size_t>(o)].dtype;
          w.sizes[2] = elements(o);
          break;
        }
      w.kind = s.op ? s.op->name : "loop";
      std::vector<Shape> in;
      for (const compiler::StepInput& i : s.in)
        if (i.place >= 0) in.push_back(l.places[static_cast<size_t>(i.place)].shape);
      const auto out = std::find_if(s.out.begin(), s.out.end(), [](int o) { return o >= 0; });
      describe(
          w, s.op,
          out != s.out.end() && is_depthwise(s.op, in, l.places[static_cast<size_t>(*out)].shape));
      if (writes_parameter(*exe, s)) w.phase = static_cast<uint8_t>(Phase::update);
      w.seconds = seconds(e);
      all.push_back(std::move(w));
      k += exe->steps_at(k);
    }
    return all;
  }
  for (size_t k = 0; k < profile.events.size(); ++k) {
    const ProfileEvent& e = profile.events[k];
    const DTypeHook::Seen seen = k < hook.ops.size() ? hook.ops[k] : DTypeHook::Seen{};
    if (e.flops == 0 && e.bytes == 0) continue;  // views
    Work w{e.name, e.scope, e.flops, e.bytes, seen.dtype};
    describe(w, seen.op, seen.depthwise);
    w.phase = seen.phase;
    w.kind = seen.op && seen.op->family == Family::pointwise ? "loop" : e.name;
    std::copy(std::begin(seen.sizes), std::end(seen.sizes), std::begin(w.sizes));
    w.seconds = seconds(e);
    all.push_back(std::move(w));
  }
  return all;
}

// What the products and attention of the forward pass give within blocks.
void results_of(const Profile& profile, const DTypeHook& hook, Workload& w) {
  std::map<std::string, int> products;  // of a block so far
  uint32_t scope = 0;                   // what runs between two layers belongs to the one before
  for (size_t k = 0; k < profile.events.size() && k < hook.ops.size(); ++k) {
    const ProfileEvent& e = profile.events[k];
    const DTypeHook::Seen& seen = hook.ops[k];
    if (seen.phase != static_cast<uint8_t>(Phase::forward)) continue;
    w.forward_flops += e.flops;
    if (e.scope) scope = e.scope;
    if (!seen.op || seen.op->autocast_class != Autocast::low) continue;
    const std::string block = block_of(scope_path(scope));
    if (block.empty()) continue;
    const Results r{seen.sizes[2] * static_cast<double>(size_of(seen.dtype)), e.flops};
    w.products.add(r);
    if (seen.op->family != Family::contraction || ++products[block] % 2 == 1)
      w.half_products.add(r);
  }
}

// The same of a compiled step, whose list has no passes: from one forward pass row by row.
void add_results(const Job& job, WorkOptions o, Workload& w) {
  if (!o.training || w.blocks <= 1) return;
  o.compiled = false;
  DryRunGuard dry({.this_backend = o.this_backend});
  Stepper s(job, o, &dry.memory());
  ProfilerGuard profiler;
  DTypeHook hook(profiler.profile(), &dry.memory(), s.phase());
  HookGuard watch(hook);
  s.forward();
  results_of(profiler.profile(), hook, w);
}

// The books from event `first` on, through PyTorch's allocator.
double reserved_by_pytorch(const DryMemory& books, size_t first) {
  CachingAllocator a;
  std::vector<bool> held(books.blocks().size(), false);
  for (size_t k = 0; k < first; ++k)
    held[static_cast<size_t>(books.events()[k].block)] = books.events()[k].taken;
  for (size_t b = 0; b < held.size(); ++b)
    if (held[b]) a.take(static_cast<int32_t>(b), books.blocks()[b].bytes);
  for (size_t k = first; k < books.events().size(); ++k) {
    const DryEvent& e = books.events()[k];
    if (e.taken)
      a.take(e.block, books.blocks()[static_cast<size_t>(e.block)].bytes);
    else
      a.give_back(e.block);
  }
  return static_cast<double>(a.reserved());
}

double least(const std::vector<double>& v) {
  return v.empty() ? 0 : *std::min_element(v.begin(), v.end());
}

}  // namespace

Framework framework_of(const std::string& name) {
  return one_of(name, "--framework", {"tandem", "pytorch"}) == "pytorch" ? Framework::pytorch
                                                                         : Framework::tandem;
}
const char* to_string(Framework f) { return f == Framework::pytorch ? "pytorch" : "tandem"; }
AttentionForm attention_form_of(const std::string& name) {
  const std::string form = one_of(name, "--attention", {"auto", "fused", "composed"});
  return form == "fused"      ? AttentionForm::fused
         : form == "composed" ? AttentionForm::composed
                              : AttentionForm::usual;
}
const char* to_string(AttentionForm f) {
  static const char* const kNames[] = {"auto", "fused", "composed"};
  return kNames[static_cast<int>(f)];
}
Precision precision_of(const std::string& name) {
  static const std::vector<std::pair<std::string, Precision>> kAll = {
      {"f32", Precision::f32},
      {"fp32", Precision::f32},
      {"tf32", Precision::tf32},
      {"bf16", Precision::amp_bf16},
      {"amp", Precision::amp_bf16},
      {"amp_bf16", Precision::amp_bf16},
      {"f16", Precision::amp_f16},
      {"fp16", Precision::amp_f16},
      {"pure-bf16", Precision::pure_bf16},
      {"pure-f16", Precision::pure_f16},
      {"mixed-bf16", Precision::mixed_bf16}};
  std::vector<std::string> names;
  for (const auto& [n, p] : kAll) {
    if (n == name) return p;
    names.push_back(n);
  }
  TD_FAIL(Value,
          "there is no precision '{}'\n{}It is f32, tf32, bf16, f16, pure-bf16, pure-f16 or "
          "mixed-bf16.",
          name, did_you_mean(name, names));
}
const char* to_string(Precision p) {
  static const char* const kNames[] = {"f32",       "tf32",     "bf16",      "f16",
                                       "pure-bf16", "pure-f16", "mixed-bf16"};
  return kNames[static_cast<int>(p)];
}
const char* product_kind(Precision p) {
  static const char* const kKinds[] = {"f32", "tf32", "bf16", "f16", "bf16", "f16", "bf16"};
  return kKinds[static_cast<int>(p)];
}
const char* to_string(Cause c) {
  static const char* const kNames[] = {"weights",     "gradients", "optimizer state",
                                       "activations", "workspace", "input"};
  return kNames[static_cast<int>(c)];
}
double Held::total() const {
  double n = 0;
  for (double b : bytes) n += b;
  return n;
}
double Workload::flops() const {
  double n = 0;
  for (const Work& k : work) n += k.flops;
  return n;
}
double Workload::bytes() const {
  double n = 0;
  for (const Work& k : work) n += k.bytes;
  return n;
}
double Workload::matrix_flops() const {
  double n = 0;
  for (const Work& k : work) n += k.matrix ? k.flops : 0;
  return n;
}

std::vector<std::string> optimizer_names() {
  std::vector<std::string> all;
  for (const OptimizerRow& r : kOptimizers) all.emplace_back(r.name);
  return all;
}

Workload dry_run(const Job& job, const WorkOptions& o) {
  TD_CHECK(o.batch > 0, Value, "the batch is {}\nGive 1 or more.", o.batch);
  if (o.training) optimizer_row(o.optimizer);
  const Clock::time_point start = Clock::now();
  Workload w;
  w.model = job.name;
  w.options = o;
  w.unit = job.unit;
  w.blocks = static_cast<double>(job.transformer_layers);
  w.units = static_cast<double>(o.batch) * job.units_per_sample;
  if (o.compiled) add_results(job, o, w);
  DryRunGuard dry({.this_backend = o.this_backend});
  DryMemory& books = dry.memory();
  Causes causes(books);
  Stepper s(job, o, &books);
  mark_all(s, causes);
  const auto at_gradients = [&] { mark_gradients(s, causes); };
  // The first step makes the optimizer's state; the second is one of many.
  const size_t built = books.events().size();
  s.step(at_gradients);
  mark_all(s, causes);
  size_t first = 0;
  {
    ProfilerGuard profiler;
    DTypeHook hook(profiler.profile(), &books, s.phase());
    std::optional<HookGuard> watch;
    if (!o.compiled) watch.emplace(hook);
    first = books.events().size();
    s.step(at_gradients);
    mark_all(s, causes);
    const Ref<Executable> exe = s.executable();
    w.work = work_of(profiler.profile(), hook, exe.get());
    if (!o.compiled) results_of(profiler.profile(), hook, w);
  }
  if (o.framework == Framework::pytorch && !o.compiled)
    w.reserved = reserved_by_pytorch(books, built);
  for (const Param& p : s.model().parameters) {
    const Tensor v = p.value();
    w.parameters += static_cast<double>(v.numel());
    w.weight_bytes += numel_bytes(v);
    if (o.training && p.requires_grad()) w.gradient_bytes += numel_bytes(v);
    if (w.blocks > 1 && in_block(p.name())) w.block_weights += numel_bytes(v);
  }
  w.boundary_bytes = w.units * static_cast<double>(job.width) *
                     static_cast<double>(size_of(whole_dtype(o.precision)));
  for (const Buffer& b : s.model().buffers) w.weight_bytes += numel_bytes(b.value());
  // The state of values, as large as they are; no counters of steps.
  std::set<int64_t> sizes;
  for (const Param& p : s.model().parameters) sizes.insert(p.numel());
  if (s.optimizer())
    for (const auto& [name, t] : s.optimizer()->state_dict())
      if (is_floating(t.dtype()) && t.dim() > 0 && sizes.count(t.numel()))
        w.optimizer_bytes += numel_bytes(t);
  if (const Ref<Executable> exe = s.executable()) {
    Held outside;
    outside.add(Cause::weights, w.weight_bytes);
    outside.add(Cause::optimizer, w.optimizer_bytes);
    for (const Tensor& t : s.model().inputs) outside.add(Cause::input, numel_bytes(t));
    moments_of(*exe, outside, w);
  } else {
    moments_of(books, causes, first, w);
  }
  w.host_peak = static_cast<double>(books.peak());
  w.rounding = w.host_peak - w.peak.total();
  w.plan_seconds = seconds_since(start);
  return w;
}

Measured measure(const Job& job, const WorkOptions& o, int steps) {
  trim_allocator();
  reset_allocator_peak();
  const int64_t before = allocator_stats().in_use;
  Stepper s(job, o, nullptr);
  s.step();
  s.step();
  wait_for_jit();
  Measured m;
  const ProcessorTimeGuard clock(num_threads() == 1);
  std::vector<double> times;
  for (int i = 0; i < steps; ++i) {
    const double t = profiler_seconds();
    s.step();
    times.push_back(profiler_seconds() - t);
  }
  std::sort(times.begin(), times.end());
  if (!times.empty()) {
    m.seconds = times[0];
    m.median = times[times.size() / 2];
  }
  m.peak_bytes = static_cast<double>(allocator_stats().peak - before);
  return m;
}

ProfiledStep profile_steps(const Job& job, const WorkOptions& o, int steps) {
  Stepper s(job, o, nullptr);
  for (int i = 0; i < 2; ++i) s.step();
  wait_for_jit();
  for (int i = 0; i < 2; ++i) s.step();
  const ProcessorTimeGuard clock(num_threads() == 1);
  std::vector<std::vector<Work>> all;
  std::vector<double> plain, outside;
  for (int i = 0; i < steps; ++i) {
    const double t = profiler_seconds();
    s.step();
    plain.push_back(profiler_seconds() - t);
    ProfilerGuard profiler;
    DTypeHook hook(profiler.profile(), nullptr, s.phase());
    std::optional<HookGuard> watch;
    if (!o.compiled) watch.emplace(hook);
    s.step();
    const int64_t end = profiler.now();
    const std::vector<ProfileEvent>& events = profiler.profile().events;
    TD_CHECK(!events.empty(), Value, "a step of {} runs no kernel", job.name);
    outside.push_back(1e-9 *
                      static_cast<double>(events.front().start_ns + end - events.back().end_ns));
    all.push_back(work_of(profiler.profile(), hook, s.executable().get()));
  }
  ProfiledStep out;
  out.work = all[0];
  out.outside = least(outside);
  out.seconds = least(plain);
  double sum = out.outside;
  for (size_t k = 0; k < out.work.size(); ++k) {
    std::vector<double> t;
    for (const auto& run : all)
      if (k < run.size()) t.push_back(run[k].seconds);
    sum += out.work[k].seconds = least(t);
  }
  // What recording costs is about as much for each kernel: a constant share of small ones.
  const double over =
      std::max(0.0, sum - out.seconds) / static_cast<double>(std::max<size_t>(1, out.work.size()));
  double left = out.outside;
  for (Work& k : out.work) left += k.seconds = std::max(0.3 * k.seconds, k.seconds - over);
  for (Work& k : out.work) k.seconds *= out.seconds / left;
  out.outside *= out.seconds / left;
  return out;
}

}  // namespace tandem::plan
