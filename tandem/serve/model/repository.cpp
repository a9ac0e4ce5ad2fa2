// SPDX-License-Identifier: Apache-2.0
#include "tandem/serve/model/repository.h"

#include <algorithm>

#include "tandem/base/error.h"
#include "tandem/base/failures.h"
#include "tandem/base/log.h"
#include "tandem/serve/http/message.h"
#include "tandem/serve/model/repository_internal.h"

namespace tandem::serve {

void Repository::State::put(const std::string& name, Versions versions) {
  const std::lock_guard hold(lock);
  models[name].swap(versions);  // the old ones go when this function has left the lock
  failures.erase(name);
  unloaded.erase(name);
}

void Repository::State::note(const std::string& name, const std::string& reason, bool late) {
  const std::lock_guard hold(lock);
  const auto before = failures.find(name);
  failures[name] = {reason, late && (before == failures.end() || before->second.late)};
}

Repository::Repository(RepositoryOptions options)
    : state_(std::make_unique<State>(std::move(options))) {}

Repository::~Repository() {
  state_->stops.store(true);
  state_->changes.stop();
  if (state_->watching.joinable()) state_->watching.join();
  if (state_->warming.joinable()) state_->warming.join();
}

void Repository::load_all() {
  State& s = *state_;
  const std::lock_guard one(s.loading);
  std::vector<ModelVersionPtr> fresh;
  for (const std::string& name : s.in_order(s.folder.names())) {
    try {
      const ModelStamps now = s.look_before(name);
      Versions v = s.load_versions(name, false);
      s.held[name] = now;
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
    const ModelStamps now = s.look_before(name);
    s.put(name, s.load_versions(name, true));
    s.held[name] = now;
    s.load_dependents(name);
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
    const auto at = state_->failures.find(name);
    return at == state_->failures.end() ? std::string() : at->second.reason;
  };
  for (const auto& [name, versions] : state_->models)
    for (const auto& [number, v] : versions) out.push_back({name, number, true, reason_of(name)});
  for (const auto& [name, numbers] : state_->unloaded)
    for (const int64_t number : numbers) out.push_back({name, number, false, "unloaded"});
  for (const auto& [name, failure] : state_->failures)
    if (!state_->models.count(name)) out.push_back({name, 0, false, failure.reason});
  return out;
}

bool Repository::knows(const std::string& name) const {
  const std::lock_guard hold(state_->lock);
  return state_->models.count(name) || state_->unloaded.count(name) || state_->failures.count(name);
}

bool Repository::ready() const {
  const std::lock_guard hold(state_->lock);
  for (const auto& [name, failure] : state_->failures)
    if (!failure.late && !state_->models.count(name)) return false;
  return true;
}

std::string Repository::without_paths(std::string text) const {
  return state_->without_paths(std::move(text));
}

std::string Repository::State::without_paths(std::string text) const {
  const std::string& root = folder.root();
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
