// SPDX-License-Identifier: Apache-2.0
// From the files of a version to what answers requests.
#include <malloc.h>
#include <unistd.h>

#include <chrono>
#include <exception>
#include <optional>
#include <thread>
#include <utility>

#include "tandem/base/clock.h"
#include "tandem/base/error.h"
#include "tandem/base/log.h"
#include "tandem/base/parallel.h"
#include "tandem/serve/model/priority_internal.h"
#include "tandem/serve/model/repository_internal.h"

namespace tandem::serve {

namespace {

// From now on this thread takes second place behind those that answer, where a processor has work
// for both. It cannot come forward again, and threads that it makes stay behind, too.
void step_back() noexcept {
  // A sixtieth of a busy core. Each turn lasts until the system's next tick, 4 ms on many, and
  // delays all requests in flight: more turns would show in the 99th percentile.
  constexpr int kNicer = 19;
  if (nice(kNicer) == -1) return;
}

// Giving memory back to the system stalls every thread that allocates.
constexpr auto kBetweenTrims = std::chrono::seconds(10);

}  // namespace

Reaper::~Reaper() {
  {
    const std::lock_guard hold(lock_);
    ended_ = true;
  }
  ready_.notify_one();
  thread_.join();
}

ModelVersionPtr Reaper::watch(std::unique_ptr<ModelVersion> v) {
  {
    const std::lock_guard hold(lock_);
    ++live_;
  }
  return ModelVersionPtr(v.release(), [this](ModelVersion* dead) { take(dead); });
}

void Reaper::take(ModelVersion* v) {
  const std::lock_guard hold(lock_);  // notified inside it: the reaper may be gone after it
  dead_.emplace_back(v);
  ready_.notify_one();
}

// This thread does not step back: it would hold the allocator's locks for long.
void Reaper::run() {
  const auto ready = [this] { return !dead_.empty() || (ended_ && live_ == 0); };
  bool trim = false;  // is there something to give back?
  auto trimmed = Clock::now() - kBetweenTrims;
  std::unique_lock hold(lock_);
  for (;;) {
    if (!trim)
      ready_.wait(hold, ready);
    else
      ready_.wait_until(hold, trimmed + kBetweenTrims, ready);
    if (dead_.empty() && ended_ && live_ == 0) return;
    std::vector<std::unique_ptr<ModelVersion>> dead = std::exchange(dead_, {});
    hold.unlock();
    const size_t count = dead.size();
    dead.clear();
    trim = trim || count > 0;
    if (trim && Clock::now() - trimmed >= kBetweenTrims) {
      malloc_trim(0);
      trimmed = Clock::now();
      trim = false;
    }
    hold.lock();
    live_ -= count;
  }
}

namespace {

// Runs f on a thread that has stepped back, and waits for it.
template <class F>
void behind_answers(F f) {
  parallel_for(0, num_threads(), 1, [](int64_t, int64_t) {});  // makes the threads that all share
  std::exception_ptr failure;
  std::thread([&] {
    step_back();
    try {
      f();
    } catch (...) {
      failure = std::current_exception();
    }
  }).join();
  if (failure) std::rethrow_exception(failure);
}

constexpr std::string_view kDraftFromText = "prompt";

TextEngineOptions text_options(const ModelSettings& s) {
  return {.streams = s.streams,
          .length = s.length,
          .cache_bytes = static_cast<int64_t>(s.cache_mb * (1 << 20)),
          .piece = s.piece,
          .queue = static_cast<size_t>(s.queue),
          .priority_step = s.priority_step_ms / 1000,
          .threads = static_cast<int>(s.threads),
          .same_bits = s.same_bits,
          .draft_from_text = s.draft == kDraftFromText,
          .speculate = s.speculate};
}

// The model that guesses tokens; none where the settings name none.
std::shared_ptr<models::PretrainedModel> draft_of(const ModelFolder& folder,
                                                  const std::string& name, const ModelSettings& s) {
  if (s.draft.empty() || s.draft == kDraftFromText) return nullptr;
  const PrivateCopy files(folder.below(name, s.draft), s.copy);
  std::shared_ptr<models::PretrainedModel> draft = models::from_pretrained(files.path());
  TD_CHECK(draft->is_causal(), Value, "the draft model of '{}' does not continue texts", name);
  if (s.dtype == "bf16") draft->module().to(DType::bf16);
  return draft;
}

void direct_traffic(const ModelSettings& s, const Versions& all) {
  const auto version = [&all](int64_t number) {
    const auto at = all.find(number);
    return at == all.end() ? nullptr : at->second;
  };
  const ModelVersionPtr canary = version(s.canary.version), shadow = version(s.shadow);
  if (!canary && !shadow) return;
  const auto traffic = std::make_shared<Traffic>(s);
  traffic->set(stable_of(all), canary, shadow);
  for (const auto& [number, v] : all) v->traffic = traffic;
}

// Answers that are kept: of a model that gives the same ones to the same inputs.
std::unique_ptr<ResponseCache> cache_of(const ModelVersion& v) {
  const double bytes = v.settings.response_cache_mb * 1048576;
  if (bytes <= 0) return nullptr;
  if (v.model->stateful()) {
    log_warning("'{}' version {} has a state: its answers are not kept", v.name, v.version);
    return nullptr;
  }
  if (v.model->repeats()) return std::make_unique<ResponseCache>(static_cast<size_t>(bytes));
  log_warning("'{}' version {} gives other outputs each time: its answers are not kept", v.name,
              v.version);
  return nullptr;
}

}  // namespace

ModelVersionPtr stable_of(const Versions& all) {
  ModelVersionPtr stable;
  for (const auto& [number, v] : all)
    if (number != v->settings.canary.version && number != v->settings.shadow) stable = v;
  return stable ? stable : all.rbegin()->second;
}

ServableOptions servable_options(const ModelSettings& s) {
  std::vector<Device> devices;
  for (const std::string& name : s.devices) devices.push_back(device_named(name));
  return {.max_batch = s.max_batch,
          .same_bits = s.same_bits,
          .instances = static_cast<int>(s.instances),
          .threads = static_cast<int>(s.threads),
          .devices = std::move(devices),
          .shapes = s.shapes,
          .weights = s.weights,
          .dtype = s.dtype == "bf16" ? DType::bf16 : DType::f32,
          .warm_seconds = s.warm_seconds,
          .state = s.state,
          .controls = s.controls};
}

void Repository::State::serve(ModelVersion& v) const {
  v.scheduler = std::make_unique<Scheduler>(
      v.model, SchedulerOptions{.queue = static_cast<size_t>(v.settings.queue),
                                .delay_us = v.settings.delay_us,
                                .priority_step = v.settings.priority_step_ms / 1000});
  v.cache = cache_of(v);
  v.loaded = unix_time();
}

std::unique_ptr<ModelVersion> Repository::State::load_version(const std::string& name,
                                                              int64_t number,
                                                              const std::string& path,
                                                              const ModelSettings& settings,
                                                              bool warm) {
  auto v = std::make_unique<ModelVersion>();
  v->name = name;
  v->version = number;
  v->settings = settings;
  std::optional<PrivateCopy> files;
  std::shared_ptr<models::PretrainedModel> draft;
  const auto load = [&] {
    files.emplace(path, settings.copy);
    v->model = Servable::load(files->path(), servable_options(settings));
    if (warm) v->model->warm_up();
    if (settings.text) draft = draft_of(folder, name, settings);
  };
  if (warm)
    behind_answers(load);
  else
    load();
  serve(*v);
  if (settings.text) {
    TextEngineOptions text = text_options(settings);
    text.adapters = folder.adapters(name, settings);
    text.draft = draft;
    v->text = TextModel::load(files->path(), text, v->model->pretrained());
    v->encoder = TextEncoder::load(files->path(), *v->model);
  }
  TD_CHECK(v->text || (settings.adapters.empty() && settings.draft.empty()), Value,
           "'{}' has adapters or a draft model, and is not a language model that continues texts",
           name);
  if (v->model->stateful()) {
    TD_CHECK(settings.shadow == 0, Unsupported, "'{}' has a state, and cannot have a shadow", name);
    std::unique_ptr<Sequences>& of = sequences[name];
    const auto most = static_cast<size_t>(settings.sequences);
    if (of)
      of->set_limits(settings.sequence_idle_seconds, most);
    else
      of = std::make_unique<Sequences>(name, settings.sequence_idle_seconds, most);
    v->sequences = of.get();
  }
  return v;
}

Versions Repository::State::load_versions(const std::string& name, bool warm,
                                          const Versions& kept) {
  const ModelSettings settings = folder.settings(name, options.defaults);
  check_priorities(name, settings);
  Versions out;
  if (!settings.ensemble.empty()) {
    out[1] = load_ensemble(name, settings, warm);
    return out;
  }
  for (const auto& [number, path] : folder.chosen(name, settings)) {
    const auto same = kept.find(number);
    // Requests may run on one that is kept: who is compared with it is settled before it serves.
    const bool tried = settings.canary.version > 0 || settings.shadow > 0;
    out[number] = same != kept.end() && !tried
                      ? same->second
                      : reaper.watch(load_version(name, number, path, settings, warm));
  }
  direct_traffic(settings, out);
  return out;
}

}  // namespace tandem::serve
