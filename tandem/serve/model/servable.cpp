// SPDX-License-Identifier: Apache-2.0
#include "tandem/serve/model/servable.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <limits>

#include "tandem/base/clock.h"
#include "tandem/base/error.h"
#include "tandem/base/parallel.h"
#include "tandem/graph/context.h"
#include "tandem/graph/rng.h"
#include "tandem/onnx/runner.h"
#include "tandem/ops/ops.h"
#include "tandem/recipe/open_run.h"
#include "tandem/serve/model/ensemble.h"

namespace tandem::serve {
namespace {

constexpr size_t kSamples = 4;  // different rows in the batches of a warm-up
// Runs that are measured, as long as they are short: the first ones of a busy machine say little.
constexpr int kLooks = 8;
constexpr double kLookSeconds = 2e-3;

// One row of small random numbers. Whole ones are 0 or 1: as tokens, flags and classes these are
// there in every model.
Tensor random_row(const ModelPort& p) {
  const Shape shape(p.shape);
  if (p.name == "attention_mask") return ones(shape, p.dtype);
  const Tensor x = randn(shape);
  return is_floating(p.dtype) ? x.to(p.dtype) : (x > 0).to(p.dtype);
}

bool first_is_open(const ModelPort& p) { return !p.shape.empty() && p.shape[0] < 0; }

bool same_bytes(const Tensor& a, const Tensor& b) {
  const Tensor x = a.contiguous(), y = b.contiguous();
  return x.dtype() == y.dtype() && x.shape() == y.shape() &&
         (x.numel() == 0 || std::memcmp(x.data_ptr(), y.data_ptr(),
                                        static_cast<size_t>(x.numel()) * size_of(x.dtype())) == 0);
}

}  // namespace

namespace {

// Weights of another dtype; what a client gets is f32 as before.
void set_dtype(recipe::LoadedModel& model, DType dtype) {
  if (dtype == DType::f32) return;
  model.pretrained->module().to(dtype);
  model.state = model.pretrained->module().state_dict();  // lets the others go
  model.run = [run = std::move(model.run)](const std::vector<Tensor>& in) {
    std::vector<Tensor> out = run(in);
    for (Tensor& t : out)
      if (is_floating(t.dtype())) t = t.to(DType::f32);
    return out;
  };
}

}  // namespace

namespace {

recipe::LoadedModel load_on(Device device, const std::string& path,
                            const ServableOptions& options) {
  if (recipe::is_run(path)) return recipe::load_run(path, options.weights, device);
  TD_CHECK(recipe::is_graph_file(path) || recipe::is_model(path), Format,
           "'{}' is not a model: no run's folder, Hugging Face folder or file of a graph", path);
  recipe::LoadedModel model = recipe::load_model({.model = path, .device = device});
  if (model.pretrained && model.pretrained->is_causal()) set_dtype(model, options.dtype);
  return model;
}

std::vector<recipe::LoadedModel> one(recipe::LoadedModel model) {
  std::vector<recipe::LoadedModel> out;
  out.push_back(std::move(model));
  return out;
}

}  // namespace

std::shared_ptr<Servable> Servable::load(const std::string& path, const ServableOptions& options) {
  std::vector<Device> devices = options.devices;
  if (devices.empty()) devices.push_back(cpu);
  std::vector<recipe::LoadedModel> models;
  for (const Device d : devices) models.push_back(load_on(d, path, options));
  return std::make_shared<Servable>(std::move(models), options);
}

Servable::Servable(recipe::LoadedModel model, const ServableOptions& options)
    : Servable(one(std::move(model)), options) {}

Servable::Servable(std::vector<recipe::LoadedModel> models, const ServableOptions& options)
    : options_(options) {
  TD_CHECK(!models.empty(), Value, "a Servable expects a model");
  platform_ = models[0].runner ? "onnx" : models[0].opened ? "run" : "huggingface";
  prepare(std::move(models));
}

Servable::Servable(std::shared_ptr<Ensemble> ensemble, const ServableOptions& options)
    : options_(options), ensemble_(std::move(ensemble)), platform_("ensemble") {
  recipe::LoadedModel model{.inputs = ensemble_->inputs(), .outputs = ensemble_->outputs()};
  model.run = [e = ensemble_](const std::vector<Tensor>& in) { return e->run(in, false); };
  prepare(one(std::move(model)));
}

void Servable::prepare(std::vector<recipe::LoadedModel> models) {
  recipe::LoadedModel& model = models[0];
  inputs_ = model.inputs;
  outputs_ = model.outputs;
  // An optional input that was left out would be another program; it is asked for by name.
  std::erase_if(inputs_, [](const ModelPort& p) { return p.optional; });
  model.inputs = inputs_;
  recipe::set_shapes(model, options_.shapes);
  const GeneratorGuard same_rows({7, 0});
  std::vector<ModelPort> example = model.inputs;
  for (size_t i = 0; i < example.size(); ++i)
    if (first_is_open(inputs_[i])) example[i].shape[0] = 1;
  for (size_t k = 0; k < kSamples; ++k) {
    std::vector<Tensor>& row = samples_.emplace_back();
    for (const ModelPort& p : example) row.push_back(random_row(p));
  }
  for (recipe::LoadedModel& m : models) m.inputs = inputs_;
  make_instances(models);
  first_run();
}

void Servable::make_instances(const std::vector<recipe::LoadedModel>& models) {
  const recipe::LoadedModel& model = models[0];
  pretrained_ = model.pretrained;
  const size_t count =
      std::max(models.size(), static_cast<size_t>(std::max(1, options_.instances)));
  for (size_t i = 0; i < count; ++i) {
    recipe::LoadedModel own = models[i % models.size()];
    // Its own programs: those of one runner do not run side by side.
    if (i >= models.size() && own.runner)
      own.runner = std::make_shared<onnx::OnnxRunner>(own.runner->model());
    auto instance = std::make_unique<Instance>();
    instance->predictor = std::make_unique<recipe::Predictor>(std::move(own));
    instances_.push_back(std::move(instance));
  }
  const bool image =
      inputs_.size() == 1 && inputs_[0].shape.size() == 4 && is_floating(inputs_[0].dtype);
  if (!model.opened) {
    file_kind_ = image && !ensemble_ ? "image" : "";
  } else if (const auto prepared = recipe::preparation_of(*model.opened)) {
    constexpr std::string_view kKinds[] = {"image", "sound", "table", "text"};
    file_kind_ = kKinds[static_cast<size_t>(prepared->kind)];
  }
}

Device Servable::device_of(int instance) const {
  return instances_[static_cast<size_t>(instance)]->predictor->model().device;
}

std::vector<std::pair<Device, int>> Servable::instances_by_device() const {
  std::vector<std::pair<Device, int>> out;
  for (int i = 0; i < instances(); ++i) {
    const Device d = device_of(i);
    const auto at =
        std::find_if(out.begin(), out.end(), [d](const auto& e) { return e.first == d; });
    if (at == out.end())
      out.emplace_back(d, 1);
    else
      ++at->second;
  }
  return out;
}

std::vector<Tensor> Servable::call(int instance, const std::vector<Tensor>& inputs, bool counted,
                                   std::vector<StepRun>* took) {
  const ThreadLimitGuard limit(options_.threads > 0 ? options_.threads : 1024);
  if (ensemble_) return ensemble_->run(inputs, counted, took);
  return instances_[static_cast<size_t>(instance)]->predictor->forward(inputs);
}

void Servable::first_run() {
  const ThreadLimitGuard limit(options_.threads > 0 ? options_.threads : 1024);
  std::vector<Tensor> first;
  for (int i = 0; i < instances(); ++i) {
    std::vector<Tensor> y = call(i, samples_[0]);
    if (i == 0) learn_outputs(first = std::move(y));
  }
  find_states(first);
  double best = std::numeric_limits<double>::infinity();
  const auto since = Clock::now();
  for (int k = 0; k < 2 || (k < kLooks && seconds_since(since) < kLookSeconds); ++k) {
    const auto begin = Clock::now();
    const std::vector<Tensor> y = call(0, samples_[0]);
    best = std::min(best, seconds_since(begin));
    for (size_t i = 0; i < y.size(); ++i) repeats_ = repeats_ && same_bytes(y[i], first[i]);
  }
  // Its steps may wait for instances: never on the thread that serves all connections.
  constexpr double kNotAtOnce = 1e-3;
  one_.store(ensemble_ ? std::max(best, kNotAtOnce) : best, std::memory_order_relaxed);
  sizes_[0] = {1, best};
}

// Shapes of outputs that the model's file does not state.
void Servable::learn_outputs(const std::vector<Tensor>& y) {
  TD_CHECK(y.size() == outputs_.size(), Internal, "{} outputs came of {}", y.size(),
           outputs_.size());
  bool open = false;  // other sizes than the first may differ from call to call
  for (const ModelPort& p : inputs_)
    for (size_t d = 1; d < p.shape.size(); ++d) open = open || p.shape[d] < 0;
  for (size_t i = 0; i < y.size(); ++i) {
    outputs_[i].dtype = y[i].dtype();
    if (outputs_[i].shape.size() == y[i].sizes().size()) continue;
    const auto sizes = y[i].sizes();
    outputs_[i].shape.assign(sizes.begin(), sizes.end());
    const bool batch = !inputs_.empty() && first_is_open(inputs_[0]);
    for (size_t d = 0; d < sizes.size(); ++d)
      if ((d == 0 && batch) || (d > 0 && open)) outputs_[i].shape[d] = -1;
  }
}

void Servable::warm_up() {
  const auto begin = Clock::now();
  const auto say = [this](std::string why) {
    const std::lock_guard hold(note_lock_);
    note_ = std::move(why);
  };
  if (inputs_.empty() || !std::all_of(inputs_.begin(), inputs_.end(), first_is_open))
    return say("the size of its batches is fixed");
  if (options_.max_batch < 2) return say("max_batch is 1");
  try {
    for (const std::vector<Tensor>& row : samples_) {
      const std::lock_guard hold(lock_of(0));
      answers_.push_back(call(0, row));
    }
    for (int64_t rows = 2; rows <= options_.max_batch; rows *= 2) {
      if (sizes_ready_.load() >= kMostSizes || !try_size(rows)) return;
      if (seconds_since(begin) > options_.warm_seconds && rows * 2 <= options_.max_batch)
        return say(fmt::format("the warm-up ended at batches of {} after {} seconds", rows,
                               options_.warm_seconds));
    }
  } catch (const Error& e) {
    say(fmt::format("a batch failed: {}", e.message()));
  }
}

// Compile, compare and measure batches of `rows`; true where they may be used.
bool Servable::try_size(int64_t rows) {
  std::vector<Tensor> inputs;
  for (size_t i = 0; i < inputs_.size(); ++i) {
    std::vector<Tensor> parts;
    for (int64_t r = 0; r < rows; ++r)
      parts.push_back(samples_[static_cast<size_t>(r) % kSamples][i]);
    inputs.push_back(cat(parts, 0));
  }
  double best = std::numeric_limits<double>::infinity();
  for (int i = 0; i < instances(); ++i) {
    const auto since = Clock::now();
    for (int k = 0; k < 2 || (k < kLooks && seconds_since(since) < kLookSeconds); ++k) {
      const std::lock_guard hold(lock_of(i));
      const auto begin = Clock::now();
      const std::vector<Tensor> y = call(i, inputs);
      if (k > 0) best = std::min(best, seconds_since(begin));
      if (k > 1) continue;
      if (const std::string why = compare(y, rows); !why.empty()) {
        const std::lock_guard note(note_lock_);
        note_ = why;
        return false;
      }
    }
  }
  const size_t ready = sizes_ready_.load();
  sizes_[ready] = {rows, best};
  sizes_ready_.store(ready + 1, std::memory_order_release);
  return true;
}

// Why the rows of a batch are not what they are alone; "" where they are.
std::string Servable::compare(const std::vector<Tensor>& y, int64_t rows) const {
  for (size_t i = 0; i < y.size(); ++i) {
    const std::string& name = outputs_[i].name;
    for (int64_t r = 0; r < rows; ++r) {
      const Tensor& alone = answers_[static_cast<size_t>(r) % kSamples][i];
      if (y[i].dim() == 0 || y[i].size(0) != rows || alone.dim() == 0 || alone.size(0) != 1)
        return fmt::format("'{}' has no row for each row of the input", name);
      const Tensor row = y[i].narrow(0, r, 1);
      if (row.shape() != alone.shape())
        return fmt::format("the shape of a row of '{}' depends on its batch", name);
      if (same_bytes(row, alone)) continue;
      if (options_.same_bits)
        return fmt::format(
            "in batches of {} rows '{}' rounds differently than alone; same_bits: false uses them",
            rows, name);
      const Tensor a = row.to(DType::f64), b = alone.to(DType::f64);
      const double scale = 1e-6 + b.abs().amax().item<double>();
      if (!((a - b).abs().amax().item<double>() <= 1e-2 * scale))
        return fmt::format("in batches of {} rows '{}' has other numbers than alone", rows, name);
    }
  }
  return "";
}

std::string Servable::note() const {
  const std::lock_guard hold(note_lock_);
  return note_;
}

std::vector<Servable::Size> Servable::sizes() const {
  return {sizes_.begin(), sizes_.begin() + static_cast<std::ptrdiff_t>(
                                               sizes_ready_.load(std::memory_order_acquire))};
}

std::vector<int64_t> Servable::cover(int64_t rows) const {
  const size_t count = sizes_ready_.load(std::memory_order_acquire);
  std::vector<int64_t> out;
  while (rows >= sizes_[count - 1].rows) {
    out.push_back(sizes_[count - 1].rows);
    rows -= out.back();
  }
  // What is left is less than the largest size: the cheapest way for every number up to it.
  const auto left = static_cast<size_t>(rows);
  std::vector<double> cost(left + 1, 0);
  std::vector<size_t> choice(left + 1, 0);
  for (size_t n = 1; n <= left; ++n) {
    cost[n] = std::numeric_limits<double>::infinity();
    for (size_t s = 0; s < count; ++s) {
      const auto size = static_cast<size_t>(sizes_[s].rows);
      const double c = sizes_[s].seconds + cost[n > size ? n - size : 0];
      if (c < cost[n]) {
        cost[n] = c;
        choice[n] = s;
      }
    }
  }
  for (size_t n = left; n > 0;) {
    const int64_t size = sizes_[choice[n]].rows;
    out.push_back(size);
    n -= std::min(n, static_cast<size_t>(size));
  }
  return out;
}

int64_t Servable::filled(int64_t rows) const {
  if (!batched()) return rows;
  const std::vector<int64_t> sizes = cover(rows);
  return sizes.size() == 1 ? sizes[0] : rows;
}

void Servable::took_alone(double seconds) {
  if (ensemble_) return;
  // Down at once, for the first looks may have come at a bad time; up where it takes longer again
  // and again.
  const double one = seconds_of_one();
  one_.store(seconds < one ? seconds : one + (seconds - one) / 8, std::memory_order_relaxed);
}

std::vector<Tensor> Servable::run(int instance, const std::vector<Tensor>& inputs, int64_t rows,
                                  std::vector<StepRun>* took) {
  if (rows <= 1 || !batched()) return call(instance, inputs, true, took);
  const std::vector<int64_t> sizes = cover(rows);
  if (sizes.size() == 1 && sizes[0] == rows) return call(instance, inputs, true, took);
  std::vector<std::vector<Tensor>> parts(outputs_.size());
  int64_t from = 0;
  for (const int64_t size : sizes) {
    const int64_t n = std::min(size, rows - from);
    std::vector<Tensor> in;
    for (const Tensor& x : inputs) {
      Tensor part = x.narrow(0, from, n);
      // The last row fills a batch up; what it gives is cut off.
      if (n < size) {
        std::vector<Tensor> filled{part};
        filled.insert(filled.end(), static_cast<size_t>(size - n), x.narrow(0, from + n - 1, 1));
        part = cat(filled, 0);
      }
      in.push_back(part.contiguous());
    }
    const std::vector<Tensor> y = call(instance, in, true, took);
    for (size_t i = 0; i < y.size(); ++i)
      parts[i].push_back(n < size ? y[i].narrow(0, 0, n) : y[i]);
    from += n;
  }
  std::vector<Tensor> out;
  for (const std::vector<Tensor>& p : parts)
    out.push_back(p.size() == 1 ? p[0].contiguous() : cat(p, 0));
  return out;
}

}  // namespace tandem::serve
