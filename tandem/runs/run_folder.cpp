// SPDX-License-Identifier: Apache-2.0
#include "tandem/runs/run_folder.h"

#include <sys/utsname.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <climits>
#include <csignal>
#include <filesystem>

#include "tandem/base/clock.h"
#include "tandem/base/error.h"
#include "tandem/base/files/folder.h"
#include "tandem/base/parallel.h"
#include "tandem/graph/rng.h"
#include "tandem/runs/resources.h"

namespace tandem::runs {
namespace {

constexpr const char *kMetrics = "/metrics.jsonl", *kLayers = "/layers.jsonl", *kLock = "/LOCK";

// The commit of the repository around the working folder; "" where there is none.
std::string commit() {
  auto line = [](const std::string& path) -> std::string {
    if (!file_exists(path)) return "";
    const std::string text = read_file(path);
    return text.substr(0, text.find('\n'));
  };
  std::string up = ".git";
  for (int k = 0; k < 8; ++k, up = "../" + up) {
    try {
      const std::string head = line(up + "/HEAD");
      if (head.empty()) continue;
      return head.rfind("ref: ", 0) == 0 ? line(up + "/" + head.substr(5)) : head;
    } catch (const Error&) {  // not ours to read
      return "";
    }
  }
  return "";
}

io::Json environment() {
  utsname system{};
  ::uname(&system);
  return io::Json::Object{{"tandem", TANDEM_VERSION},
                          {"commit", commit()},
                          {"compiler", __VERSION__},
                          {"system", std::string(system.sysname) + " " + system.release},
                          {"machine", system.machine},
                          {"host", system.nodename},
                          {"pid", static_cast<int64_t>(::getpid())},
                          {"process", process_identity(::getpid())},
                          {"threads", num_threads()},
                          {"seed", std::to_string(generator_state().seed)},
                          {"started", unix_time()}};
}

/// Folders that are empty so far, where a signal handler can read them. More than these at once are
/// left behind by a signal, which harms nothing.
struct NewFolder {
  std::atomic<bool> taken{false}, told{false};
  char folder[PATH_MAX] = {}, lock[PATH_MAX + 8] = {};  ///< absolute; complete while `told`
};
constinit std::array<NewFolder, 8> g_new_folders;

int note_new_folder(const std::string& folder) {
  std::error_code failed;
  const std::string path = std::filesystem::absolute(folder, failed).string();
  if (failed || path.size() >= PATH_MAX) return -1;
  for (size_t k = 0; k < g_new_folders.size(); ++k) {
    NewFolder& f = g_new_folders[k];
    if (f.taken.exchange(true)) continue;
    std::copy_n(path.c_str(), path.size() + 1, f.folder);
    const std::string lock = path + kLock;
    std::copy_n(lock.c_str(), lock.size() + 1, f.lock);
    f.told = true;
    return static_cast<int>(k);
  }
  return -1;
}

void forget_new_folder(int place) {
  if (place < 0) return;
  NewFolder& f = g_new_folders[static_cast<size_t>(place)];
  f.told = false;
  f.taken = false;
}

}  // namespace

RunLock::RunLock(const std::string& folder) {
  if (!file_exists(folder)) made_ = folder;
  make_folders(folder);
  if (!made_.empty()) place_ = note_new_folder(folder);
  try {
    lock_ = std::make_unique<FileLock>(folder + kLock, fmt::format("the run folder '{}'", folder));
  } catch (...) {  // another process made it, too, and was first
    forget_new_folder(place_);
    throw;
  }
}

void end_by_signal(int signal) noexcept {
  for (NewFolder& f : g_new_folders) {
    if (!f.told) continue;
    ::unlink(f.lock);   // it ends with this process
    ::rmdir(f.folder);  // refused unless it is empty
  }
  std::signal(signal, SIG_DFL);
  ::raise(signal);  // it comes when the handler returns
}

RunLock::~RunLock() {
  lock_.reset();
  forget_new_folder(place_);
  if (!made_.empty()) ::rmdir(made_.c_str());  // refused unless it is empty
}

std::optional<LockHolder> run_writer(const std::string& folder) {
  return FileLock::holder(folder + kLock);
}

RunFolder::RunFolder(std::string folder,
                     const std::vector<std::pair<std::string, std::string>>& files)
    : folder_(std::move(folder)) {
  make_folders(folder_);
  for (const auto& [name, content] : files) write_file(folder_ + "/" + name, content);
  write_file(folder_ + "/env.json", environment().dump(1) + "\n");
  write_file(folder_ + "/STATUS", "running\n");
  ::unlink((folder_ + "/error.txt").c_str());  // of a process that failed before
  metrics_ = std::make_unique<AppendFile>(folder_ + kMetrics, AppendFile::Content::lines);
}

void RunFolder::log(int64_t step, int64_t epoch,
                    const std::vector<std::pair<std::string, double>>& values) {
  io::Json::Object line{{"step", step}, {"epoch", epoch}, {"time", unix_time()}};
  for (const auto& [name, value] : values) line.emplace_back(name, value);
  metrics_->append(io::Json(std::move(line)).dump() + "\n");
}

namespace {

// Drops the lines after `step` and those that are none of ours.
void truncate_lines(const std::string& path, int64_t step) {
  if (!file_exists(path)) return;
  const std::string text = read_file(path);
  std::string kept;
  for (size_t at = 0; at < text.size();) {
    const size_t end = text.find('\n', at);
    if (end == text.npos) break;  // cut by the end of the process
    const std::string line = text.substr(at, end - at);
    at = end + 1;
    try {
      const io::Json j = io::parse_json(line, path);
      const io::Json* s = j.find("step");
      if (s && s->as_int() && *s->as_int() <= step) kept += line + "\n";
    } catch (const Error&) {  // no line of ours
    }
  }
  if (kept != text) write_file(path, kept);
}

}  // namespace

void RunFolder::truncate(int64_t step) {
  metrics_.reset();
  truncate_lines(folder_ + kMetrics, step);
  truncate_lines(folder_ + kLayers, step);
  metrics_ = std::make_unique<AppendFile>(folder_ + kMetrics, AppendFile::Content::lines);
}

void RunFolder::part(io::Json::Object figures) {
  figures.emplace_back("ended", unix_time());
  AppendFile(folder_ + "/parts.jsonl", AppendFile::Content::lines)
      .append(io::Json(std::move(figures)).dump() + "\n");
}

// Every name that was logged is a column; a line is a step and epoch.
void RunFolder::write_csv() const {
  const std::string path = folder_ + kMetrics, text = read_file(path);
  std::vector<std::string> names;
  std::vector<std::vector<std::pair<size_t, std::string>>> rows;
  for (size_t at = 0, end; at < text.size(); at = end + 1) {
    end = std::min(text.find('\n', at), text.size());
    try {
      const io::Json j = io::parse_json(text.substr(at, end - at), path);
      if (!j.as_object()) continue;
      auto& row = rows.emplace_back();
      for (const auto& [name, value] : *j.as_object()) {
        const auto it = std::find(names.begin(), names.end(), name);
        row.emplace_back(it - names.begin(), value.is_null() ? "" : value.dump());
        if (it == names.end()) names.push_back(name);
      }
    } catch (const Error&) {  // no line of ours
    }
  }
  std::string out;
  for (size_t c = 0; c < names.size(); ++c) out += (c ? "," : "") + names[c];
  out += "\n";
  for (const auto& row : rows) {
    std::vector<std::string> cells(names.size());
    for (const auto& [c, value] : row) cells[c] = value;
    for (size_t c = 0; c < cells.size(); ++c) out += (c ? "," : "") + cells[c];
    out += "\n";
  }
  write_file(folder_ + "/metrics.csv", out);
}

void RunFolder::finish(const std::string& status) {
  write_csv();
  write_file(folder_ + "/STATUS", status + "\n");
}

}  // namespace tandem::runs
