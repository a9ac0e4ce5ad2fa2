// SPDX-License-Identifier: Apache-2.0
// A folder that is watched: new versions are loaded and warmed up before they take the place of
// others, and what has gone is let go after its last answer.
#include <algorithm>
#include <filesystem>

#include "tandem/base/error.h"
#include "tandem/base/failures.h"
#include "tandem/base/log.h"
#include "tandem/serve/model/repository_internal.h"

namespace tandem::serve {
namespace {

namespace fs = std::filesystem;

// Seconds between looks at folders of whose changes the kernel tells: it does not where another
// machine makes them.
constexpr double kPatience = 30;

}  // namespace

ModelStamps Repository::State::look_before(const std::string& name) {
  FolderLook files;
  ModelStamps now = folder.stamps(name, files);
  seen[name] = acted[name] = now;
  return now;
}

void Repository::State::retire(const std::string& name) {
  Versions old;
  {
    const std::lock_guard hold(lock);
    if (const auto at = models.find(name); at != models.end()) {
      old.swap(at->second);
      models.erase(at);
    }
    failures.erase(name);
    unloaded.erase(name);
  }
  for (auto* of : {&seen, &acted, &held}) of->erase(name);
  log_debug("'{}' is no longer there", name);
}

void Repository::State::refresh(const std::string& name, const ModelStamps& now) {
  Versions old;
  {
    const std::lock_guard hold(lock);
    if (unloaded.count(name)) return;  // until somebody asks for it again
    if (const auto at = models.find(name); at != models.end()) old = at->second;
  }
  try {
    const ModelStamps& before = held[name];
    Versions kept;
    if (before.settings == now.settings)
      for (const auto& [number, v] : old) {
        const auto was = before.versions.find(number), is = now.versions.find(number);
        const bool same =
            was != before.versions.end() && is != now.versions.end() && was->second == is->second;
        // Versions that are tried belong to those that they are compared with.
        if (same && !v->traffic) kept[number] = v;
      }
    put(name, load_versions(name, true, kept));
    held[name] = now;
    log_debug("'{}' has changed and was loaded", name);
    load_dependents(name);
  } catch (...) {
    try {
      rethrow_as_error(name);
    } catch (const Error& e) {
      note(name, without_paths(e.what()), true);
      log_warning("'{}' has changed and was not loaded{}: {}", name,
                  old.empty() ? "" : "; what was there is served on", e.what());
    }
  }
}

bool Repository::State::look_at(const std::string& name, bool there, FolderLook& files) {
  const ModelStamps now = there ? folder.stamps(name, files) : ModelStamps();
  ModelStamps& last = seen[name];
  const bool still = now == last;
  last = now;
  if (now == acted[name]) return false;
  if (!still) return true;
  acted[name] = now;
  if (there)
    refresh(name, now);
  else
    retire(name);
  return false;
}

bool Repository::State::look(FolderLook& files) {
  const std::lock_guard one(loading);
  files.pass(fs::is_directory(folder.root()) ? folder.root()
                                             : fs::path(folder.root()).parent_path().string());
  std::vector<std::string> there, all;
  try {
    there = folder.names();
  } catch (const Error&) {  // half of a configuration; a folder that is being replaced
    return true;
  }
  all = there;
  for (const auto& [name, stamps] : acted) all.push_back(name);
  std::sort(all.begin(), all.end());
  all.erase(std::unique(all.begin(), all.end()), all.end());
  bool moves = false;
  for (const std::string& name : all) {
    if (stops.load()) return false;
    try {
      moves |= look_at(name, std::find(there.begin(), there.end(), name) != there.end(), files);
    } catch (const Error&) {  // gone between two calls
      moves = true;
    }
  }
  return moves;
}

void Repository::State::watch_folder(double seconds) {
  for (bool moves = true; !changes.stopped();) {
    if (moves)
      changes.pause(seconds);
    else
      changes.wait_for_change(changes.told() ? std::max(seconds, kPatience) : seconds);
    if (changes.stopped()) return;
    FolderLook files;
    moves = look(files);
    if (changes.add(files.folders())) moves = true;
  }
}

void Repository::watch(double seconds) {
  State& s = *state_;
  TD_CHECK(seconds > 0 && !s.watching.joinable(), Value, "a folder is watched once, every {} s",
           seconds);
  if (!s.folder.watched()) return;
  s.watching = std::thread([&s, seconds] { s.watch_folder(seconds); });
}

}  // namespace tandem::serve
