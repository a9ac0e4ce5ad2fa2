// SPDX-License-Identifier: Apache-2.0
#include "tandem/serve/model/repository.h"

#include <fmt/format.h>
#include <malloc.h>

#include <algorithm>
#include <thread>

#include "tandem/base/clock.h"
#include "tandem/base/error.h"
#include "tandem/base/failures.h"
#include "tandem/base/log.h"
#include "tandem/serve/http/message.h"
#include "tandem/serve/model/folder_internal.h"

namespace tandem::serve {

/// Frees versions on a thread of its own: their last holder may be one of their own threads.
class Reaper {
 public:
  Reaper() : thread_([this] { run(); }) {}
  Reaper(const Reaper&) = delete;
  Reaper& operator=(const Reaper&) = delete;
  /// Waits until nobody holds a version any more.
  ~Reaper() {
    {
      const std::lock_guard hold(lock_);
      ended_ = true;
    }
    ready_.notify_one();
    thread_.join();
  }
  ModelVersionPtr watch(std::unique_ptr<ModelVersion> v) {
    {
      const std::lock_guard hold(lock_);
      ++live_;
    }
    return ModelVersionPtr(v.release(), [this](ModelVersion* dead) { take(dead); });
  }

 private:
  void take(ModelVersion* v) {
    const std::lock_guard hold(lock_);  // notified inside it: the reaper may be gone after it
    dead_.emplace_back(v);
    ready_.notify_one();
  }
  void run() {
    std::unique_lock hold(lock_);
    for (;;) {
      ready_.wait(hold, [this] { return !dead_.empty() || (ended_ && live_ == 0); });
      if (dead_.empty()) return;
      std::vector<std::unique_ptr<ModelVersion>> dead = std::move(dead_);
      dead_.clear();
      hold.unlock();
      const size_t count = dead.size();
      dead.clear();
      malloc_trim(0);
      hold.lock();
      live_ -= count;
    }
  }
  std::mutex lock_;
  std::condition_variable ready_;
  std::vector<std::unique_ptr<ModelVersion>> dead_;
  size_t live_ = 0;  ///< versions that are not freed yet
  bool ended_ = false;
  std::thread thread_;  ///< last: it uses the others
};

namespace {

using Versions = std::map<int64_t, ModelVersionPtr>;

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
          .warm_seconds = s.warm_seconds};
}

}  // namespace

struct Repository::State {
  explicit State(RepositoryOptions o)
      : options(std::move(o)), folder(options.folder, options.links, options.from) {}

  Versions load_versions(const std::string& name, bool warm);
  void put(const std::string& name, Versions versions);
  void note(const std::string& name, const std::string& reason);

  RepositoryOptions options;
  ModelFolder folder;
  Reaper reaper;            ///< before the versions: they end before it does
  std::mutex loading;       ///< one load or unload at a time
  mutable std::mutex lock;  ///< of what follows
  std::map<std::string, Versions, std::less<>> models;
  std::map<std::string, std::string, std::less<>> reasons;  ///< of models that failed to load
  std::map<std::string, std::vector<int64_t>> unloaded;
  std::thread warming;
  std::atomic<bool> stops{false};
};

namespace {

constexpr std::string_view kDraftFromText = "prompt";

TextEngineOptions text_options(const ModelSettings& s) {
  return {.streams = s.streams,
          .length = s.length,
          .cache_bytes = static_cast<int64_t>(s.cache_mb * (1 << 20)),
          .piece = s.piece,
          .queue = static_cast<size_t>(s.queue),
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

}  // namespace

namespace {

// The version that answers what names none: the newest that is not tried.
ModelVersionPtr stable_of(const Versions& all) {
  ModelVersionPtr stable;
  for (const auto& [number, v] : all)
    if (number != v->settings.canary.version && number != v->settings.shadow) stable = v;
  return stable ? stable : all.rbegin()->second;
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

}  // namespace

Versions Repository::State::load_versions(const std::string& name, bool warm) {
  const ModelSettings settings = folder.settings(name, options.defaults);
  Versions out;
  for (const auto& [number, path] : folder.chosen(name, settings)) {
    auto v =
        std::unique_ptr<ModelVersion>(new ModelVersion{name, number, settings, {}, {}, {}, {}, 0});
    const PrivateCopy files(path, settings.copy);
    v->model = Servable::load(files.path(), servable_options(settings));
    if (warm) v->model->warm_up();
    v->scheduler = std::make_unique<Scheduler>(
        v->model, SchedulerOptions{.queue = static_cast<size_t>(settings.queue),
                                   .delay_us = settings.delay_us});
    if (settings.text) {
      TextEngineOptions options = text_options(settings);
      options.adapters = folder.adapters(name, settings);
      options.draft = draft_of(folder, name, settings);
      v->text = TextModel::load(files.path(), options, v->model->pretrained());
      v->embedding = EmbeddingModel::load(files.path(), *v->model);
    }
    TD_CHECK(v->text || (settings.adapters.empty() && settings.draft.empty()), Value,
             "'{}' has adapters or a draft model, and is not a language model that continues texts",
             name);
    v->loaded = unix_time();
    out[number] = reaper.watch(std::move(v));
  }
  direct_traffic(settings, out);
  return out;
}

void Repository::State::put(const std::string& name, Versions versions) {
  const std::lock_guard hold(lock);
  models[name].swap(versions);  // the old ones go when this function has left the lock
  reasons.erase(name);
  unloaded.erase(name);
}

void Repository::State::note(const std::string& name, const std::string& reason) {
  const std::lock_guard hold(lock);
  reasons[name] = reason;
}

Repository::Repository(RepositoryOptions options)
    : state_(std::make_unique<State>(std::move(options))) {}

Repository::~Repository() {
  state_->stops.store(true);
  if (state_->warming.joinable()) state_->warming.join();
}

void Repository::load_all() {
  State& s = *state_;
  const std::lock_guard one(s.loading);
  std::vector<ModelVersionPtr> fresh;
  for (const std::string& name : s.folder.names()) {
    try {
      Versions v = s.load_versions(name, false);
      for (const auto& [number, version] : v) fresh.push_back(version);
      s.put(name, std::move(v));
    } catch (...) {
      try {
        rethrow_as_error(name);
      } catch (const Error& e) {
        s.note(name, without_paths(e.what()));
        log_warning("'{}' was not loaded: {}", name, e.what());
      }
    }
  }
  if (s.warming.joinable()) s.warming.join();
  s.warming = std::thread([&s, fresh = std::move(fresh)] {
    for (const ModelVersionPtr& v : fresh)
      if (!s.stops.load()) v->model->warm_up();
  });
}

void Repository::wait_for_warm_up() {
  const std::lock_guard one(state_->loading);
  if (state_->warming.joinable()) state_->warming.join();
}

void Repository::load(const std::string& name) {
  State& s = *state_;
  const std::lock_guard one(s.loading);
  try {
    s.put(name, s.load_versions(name, true));
  } catch (...) {
    try {
      rethrow_as_error(name);
    } catch (const Error& e) {
      // What a client asks for and the folder does not hold is not remembered.
      const std::vector<std::string> names = s.folder.names();
      if (std::find(names.begin(), names.end(), name) != names.end())
        s.note(name, without_paths(e.what()));
      throw;
    }
  }
}

void Repository::unload(const std::string& name) {
  State& s = *state_;
  const std::lock_guard one(s.loading);
  Versions old;
  const std::lock_guard hold(s.lock);
  const auto at = s.models.find(name);
  TD_CHECK(at != s.models.end(), Value, "there is no model '{}' to unload", name);
  old.swap(at->second);
  for (const auto& [number, v] : old) s.unloaded[name].push_back(number);
  s.models.erase(at);
}

ModelVersionPtr Repository::find(std::string_view name, std::string_view version) const {
  const std::lock_guard hold(state_->lock);
  const auto at = state_->models.find(name);
  if (at == state_->models.end() || at->second.empty()) return nullptr;
  const Versions& all = at->second;
  if (version.empty()) return stable_of(all);
  int64_t number = 0;
  if (version.find_first_not_of("0123456789") == std::string_view::npos) {
    const auto digits = parse_digits(version, uint64_t{1} << 53);
    if (!digits || version[0] == '0') return nullptr;
    number = static_cast<int64_t>(*digits);
  } else {
    for (const std::string& label : all.rbegin()->second->settings.labels)
      if (const size_t is = label.find('='); std::string_view(label).substr(0, is) == version)
        number = static_cast<int64_t>(
            parse_digits(std::string_view(label).substr(is + 1), uint64_t{1} << 53).value_or(0));
  }
  const auto found = all.find(number);
  return found == all.end() ? nullptr : found->second;
}

ModelVersionPtr Repository::pick(std::string_view name) const {
  ModelVersionPtr v = find(name);
  if (!v || !v->traffic) return v;
  ModelVersionPtr picked = v->traffic->pick();
  return picked ? picked : v;
}

std::vector<ModelVersionPtr> Repository::versions(std::string_view name) const {
  const std::lock_guard hold(state_->lock);
  std::vector<ModelVersionPtr> out;
  if (const auto at = state_->models.find(name); at != state_->models.end())
    for (const auto& [number, v] : at->second) out.push_back(v);
  return out;
}

std::vector<ModelVersionPtr> Repository::all() const {
  const std::lock_guard hold(state_->lock);
  std::vector<ModelVersionPtr> out;
  for (const auto& [name, versions] : state_->models)
    for (const auto& [number, v] : versions) out.push_back(v);
  return out;
}

std::vector<IndexEntry> Repository::index() const {
  const std::lock_guard hold(state_->lock);
  std::vector<IndexEntry> out;
  const auto reason_of = [this](const std::string& name) {
    const auto at = state_->reasons.find(name);
    return at == state_->reasons.end() ? std::string() : at->second;
  };
  for (const auto& [name, versions] : state_->models)
    for (const auto& [number, v] : versions) out.push_back({name, number, true, reason_of(name)});
  for (const auto& [name, numbers] : state_->unloaded)
    for (const int64_t number : numbers) out.push_back({name, number, false, "unloaded"});
  for (const auto& [name, reason] : state_->reasons)
    if (!state_->models.count(name)) out.push_back({name, 0, false, reason});
  return out;
}

bool Repository::ready() const {
  const std::lock_guard hold(state_->lock);
  for (const auto& [name, reason] : state_->reasons)
    if (!state_->models.count(name)) return false;
  return true;
}

std::string Repository::without_paths(std::string text) const {
  const std::string& root = state_->folder.root();
  for (size_t at = text.find(root); at != std::string::npos; at = text.find(root, at))
    text.replace(at, root.size(), "MODELS");
  // The private copy is nobody's path.
  for (size_t at = text.find("/tandem-serve-"); at != std::string::npos;
       at = text.find("/tandem-serve-", at)) {
    const size_t from = text.rfind('\'', at), to = text.find('/', at + 1);
    if (from == std::string::npos || to == std::string::npos) break;
    text.replace(from + 1, to - from, "");
    at = from;
  }
  return text;
}

}  // namespace tandem::serve
