// SPDX-License-Identifier: Apache-2.0
#include "tandem/train/checkpoint.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <condition_variable>
#include <deque>
#include <exception>
#include <mutex>
#include <thread>

#include "tandem/base/failures.h"
#include "tandem/base/failures_internal.h"
#include "tandem/base/files/folder.h"
#include "tandem/base/files/temporaries_internal.h"
#include "tandem/base/hash/crc32c.h"
#include "tandem/base/log.h"
#include "tandem/base/parallel.h"

namespace tandem::train {
namespace {

constexpr const char* kManifest = "MANIFEST";
constexpr const char* kModel = "model.safetensors";
constexpr const char* kOptimizer = "optimizer.safetensors";
constexpr const char* kState = "state.json";
constexpr const char* kLatest = "latest";

/// "step-00000012" or, saved again, "step-00000012-1".
struct Name {
  int64_t step = 0, again = 0;
  std::string text;
};

bool digits(std::string_view s) {
  return !s.empty() && s.size() <= 18 && s.find_first_not_of("0123456789") == s.npos;
}
std::optional<Name> parse_name(const std::string& text) {
  if (!text.starts_with("step-")) return {};
  const std::string rest = text.substr(5);
  const size_t dash = rest.find('-');
  const std::string step = rest.substr(0, dash),
                    again = dash == rest.npos ? "0" : rest.substr(dash + 1);
  if (!digits(step) || !digits(again)) return {};
  return Name{std::stoll(step), std::stoll(again), text};
}

struct Entry {
  std::string name;
  uint64_t bytes = 0;
  std::string sum;
};
struct Manifest {
  int64_t step = 0;
  std::optional<double> score;
  std::vector<Entry> files;
};

std::string sum_of(std::string_view bytes) { return fmt::format("{:08x}", crc32c(bytes)); }

// JSON in one line, and the checksum of that line: the list itself can be damaged too.
std::string manifest_text(const Manifest& m) {
  io::Json::Array files;
  for (const Entry& e : m.files)
    files.push_back(io::Json::Object{
        {"name", e.name}, {"bytes", static_cast<int64_t>(e.bytes)}, {"crc32c", e.sum}});
  io::Json::Object root{{"version", 1}, {"step", m.step}, {"files", std::move(files)}};
  if (m.score) root.emplace_back("score", *m.score);
  const std::string line = io::Json(std::move(root)).dump() + "\n";
  return line + sum_of(line) + "\n";
}

Manifest read_manifest(const std::string& folder) {
  const std::string path = folder + "/" + kManifest;
  const std::string text = read_file(path, size_t{1} << 20);
  const size_t end = text.find('\n');
  const bool whole = end != text.npos && text.size() == end + 10 && text.back() == '\n' &&
                     text.substr(end + 1, 8) == sum_of(std::string_view(text).substr(0, end + 1));
  TD_CHECK(whole, Format, "'{}' is damaged: its checksum is another one", path);
  const io::Json json = io::parse_json(std::string_view(text).substr(0, end), path);
  Manifest m;
  const io::Json *step = json.find("step"), *score = json.find("score"),
                 *files = json.find("files"), *version = json.find("version");
  TD_CHECK(version && version->as_int() && *version->as_int() == 1, Format,
           "'{}' is of a version that this library does not read", path);
  TD_CHECK(step && step->as_int() && files && files->as_array(), Format,
           "'{}' must have step and files", path);
  m.step = *step->as_int();
  if (score && score->as_double()) m.score = *score->as_double();
  if (score && score->as_int()) m.score = static_cast<double>(*score->as_int());
  for (const io::Json& f : *files->as_array()) {
    const io::Json *name = f.find("name"), *bytes = f.find("bytes"), *sum = f.find("crc32c");
    TD_CHECK(name && name->as_string() && bytes && bytes->as_int() && sum && sum->as_string() &&
                 name->as_string()->find('/') == std::string::npos,
             Format, "'{}': a file needs name, bytes and crc32c", path);
    m.files.push_back(
        {*name->as_string(), static_cast<uint64_t>(*bytes->as_int()), *sum->as_string()});
  }
  return m;
}

std::string join(const std::string& folder, const std::string& name) { return folder + "/" + name; }

}  // namespace

/// The thread that writes: it takes snapshots from a queue of one.
struct Checkpoints::Writer {
  std::mutex lock;
  std::condition_variable changed;
  std::optional<Snapshot> waiting;
  bool busy = false, stop = false;
  std::exception_ptr error;
  std::thread thread;
};

Checkpoints::Checkpoints(const FilePath& folder, CheckpointOptions options)
    : folder_(folder.str()), options_(options) {
  TD_CHECK(options_.keep_last >= 1 && options_.keep_best >= 0, Value,
           "Checkpoints expects keep_last >= 1 and keep_best >= 0, got {} and {}",
           options_.keep_last, options_.keep_best);
  make_folders(folder_);
}

void Checkpoints::claim() {
  if (lock_) return;
  lock_ = std::make_unique<FileLock>(join(folder_, "LOCK"),
                                     fmt::format("the folder of checkpoints '{}'", folder_));
  if (lock_->is_first()) tandem::detail::sweep_all(folder_, lock_->held());
}

void Checkpoints::release() {
  const std::unique_ptr<FileLock> lock = std::move(lock_);  // ends after the last file is written
  wait();
}

// False where the system refuses a thread: what is to be saved is then saved at once.
bool Checkpoints::start_writer() {
  writer_ = std::make_unique<Writer>();
  try {
    writer_->thread = start_thread("saving checkpoints", [this] { write_waiting(); });
  } catch (const Error& e) {
    writer_.reset();
    options_.async = false;
    log_warning("{}", e.what());
  }
  return writer_ != nullptr;
}

void Checkpoints::write_waiting() {
  SerialGuard serial;
  Writer& w = *writer_;
  std::unique_lock hold(w.lock);
  while (true) {
    w.changed.wait(hold, [&] { return w.waiting || w.stop; });
    if (!w.waiting) return;
    {
      Snapshot snapshot = std::move(*w.waiting);
      w.waiting.reset();
      w.busy = true;
      hold.unlock();
      w.changed.notify_all();
      std::exception_ptr error;
      try {
        write_with_retries(snapshot);
      } catch (...) {
        error = std::current_exception();
      }
      hold.lock();
      if (error) w.error = error;
    }  // the snapshot's values are let go before anybody is told
    w.busy = false;
    w.changed.notify_all();
  }
}

Checkpoints::~Checkpoints() {
  if (!writer_) return;
  try {
    wait();
  } catch (const std::exception& e) {
    log_warning("a checkpoint was not saved: {}", e.what());
  }
  {
    std::lock_guard hold(writer_->lock);
    writer_->stop = true;
  }
  writer_->changed.notify_all();
  writer_->thread.join();
}

void Checkpoints::save(Snapshot snapshot) {
  TD_CHECK(snapshot.step >= 0, Value, "a checkpoint of step {}", snapshot.step);
  claim();
  if (!options_.async || (!writer_ && !start_writer())) {
    write_with_retries(snapshot);
    return;
  }
  std::unique_lock hold(writer_->lock);
  writer_->changed.wait(hold, [&] { return !writer_->waiting; });
  writer_->waiting = std::move(snapshot);
  writer_->changed.notify_all();
  if (std::exception_ptr e = std::exchange(writer_->error, nullptr)) std::rethrow_exception(e);
}

void Checkpoints::wait() {
  if (!writer_) return;
  std::unique_lock hold(writer_->lock);
  writer_->changed.wait(hold, [&] { return !writer_->waiting && !writer_->busy; });
  if (std::exception_ptr e = std::exchange(writer_->error, nullptr)) std::rethrow_exception(e);
}

void Checkpoints::write_with_retries(const Snapshot& snapshot) const {
  for (int64_t attempt = 0;; ++attempt) {
    try {
      write(snapshot);
      return;
    } catch (const Error& e) {
      if (e.kind() != ErrorKind::Io || attempt >= options_.retries) throw;
      std::this_thread::sleep_for(std::chrono::milliseconds(20 << 2 * attempt));
    } catch (...) {
      rethrow_as_error("saving a checkpoint");
    }
  }
}

void Checkpoints::write(const Snapshot& s) const {
  std::string name = fmt::format("step-{:08}", s.step);
  for (int again = 1; file_exists(join(folder_, name)); ++again)
    name = fmt::format("step-{:08}-{}", s.step, again);
  const std::string stage = tandem::detail::temporary_name(join(folder_, name));
  try {
    make_folders(stage);
    Manifest manifest{s.step, s.score, {}};
    if (manifest.score && !std::isfinite(*manifest.score)) manifest.score.reset();
    auto add = [&](const std::string& file) {
      const Ref<MappedFile> written = make_ref<MappedFile>(join(stage, file));
      manifest.files.push_back({file, written->size(), sum_of(written->view())});
    };
    tandem::save(s.model, join(stage, kModel));
    add(kModel);
    tandem::save(s.optimizer, join(stage, kOptimizer));
    add(kOptimizer);
    write_file(join(stage, kState), s.state.dump(1) + "\n");
    add(kState);
    for (const auto& [file, content] : s.files) {
      TD_CHECK(file.find('/') == file.npos && !file.empty() && file != kManifest, Value,
               "a checkpoint cannot hold a file named '{}'", file);
      write_file(join(stage, file), content);
      add(file);
    }
    write_file(join(stage, kManifest), manifest_text(manifest));
    // Sums were taken of what the file system gives back: make sure that is what was meant.
    TD_CHECK(manifest.files[2].sum == sum_of(s.state.dump(1) + "\n"), Io,
             "'{}' reads back differently from what was written", join(stage, kState));
    load_checkpoint(stage);
    // What processes before did not remove, as they were killed: each may leave one too many.
    const std::string before = latest();
    if (!before.empty() || !file_exists(join(folder_, kLatest))) retire(before);
    rename_durably(stage, join(folder_, name));
  } catch (...) {
    try {
      remove_folder(stage);
    } catch (const Error&) {  // swept by a later process
    }
    throw;
  }
  write_file(join(folder_, kLatest), name + "\n");
  retire(name);
}

std::vector<std::string> Checkpoints::list() const {
  std::vector<Name> names;
  for (const std::string& text : list_folder(folder_))
    if (auto n = parse_name(text)) names.push_back(*n);
  std::sort(names.begin(), names.end(), [](const Name& a, const Name& b) {
    return std::pair(a.step, a.again) > std::pair(b.step, b.again);
  });
  std::vector<std::string> out;
  for (const Name& n : names) out.push_back(join(folder_, n.text));
  return out;
}

// Removes what is neither among the last nor among the best. Damaged ones are not counted and stay.
void Checkpoints::retire(const std::string& newest) const {
  std::vector<std::pair<std::string, std::optional<double>>> whole;
  for (const std::string& path : list()) try {
      whole.emplace_back(path, read_manifest(path).score);
    } catch (const Error&) {}
  auto is_newest = [&](const auto& e) { return e.first == join(folder_, newest); };
  std::stable_partition(whole.begin(), whole.end(), is_newest);
  std::vector<std::pair<std::string, std::optional<double>>> rest;
  for (size_t i = static_cast<size_t>(options_.keep_last); i < whole.size(); ++i)
    rest.push_back(whole[i]);
  // The best of all count, those among the last included.
  std::vector<std::pair<std::string, std::optional<double>>> scored;
  for (const auto& e : whole)
    if (e.second) scored.push_back(e);
  std::stable_sort(scored.begin(), scored.end(), [&](const auto& a, const auto& b) {
    return options_.higher_is_better ? *a.second > *b.second : *a.second < *b.second;
  });
  if (static_cast<int64_t>(scored.size()) > options_.keep_best)
    scored.resize(static_cast<size_t>(options_.keep_best));
  for (const auto& [path, score] : rest) {
    const std::string& p = path;
    if (std::any_of(scored.begin(), scored.end(), [&](const auto& e) { return e.first == p; }))
      continue;
    const std::string old = tandem::detail::temporary_name(path);
    try {
      rename_durably(path, old);  // half removed it would look damaged
      remove_folder(old);
    } catch (const Error& e) {
      log_warning("an old checkpoint stays: {}", e.what());
    }
  }
}

Snapshot load_checkpoint(const FilePath& folder) {
  const Manifest m = read_manifest(folder.str());
  Snapshot s;
  s.step = m.step;
  s.score = m.score;
  bool model = false, optimizer = false, state = false;
  for (const Entry& e : m.files) {
    const std::string path = join(folder.str(), e.name);
    {
      const Ref<MappedFile> file = make_ref<MappedFile>(path);
      TD_CHECK(file->size() == e.bytes, Format, "'{}' is damaged: it has {} bytes, {} were written",
               path, file->size(), e.bytes);
      TD_CHECK(sum_of(file->view()) == e.sum, Format,
               "'{}' is damaged: its checksum is another one", path);
    }
    if (e.name == kModel) {
      s.model = load(path);
      model = true;
    } else if (e.name == kOptimizer) {
      s.optimizer = load(path);
      optimizer = true;
    } else {
      const std::string content = read_file(path);
      TD_CHECK(sum_of(content) == e.sum, Format, "'{}' is damaged: its checksum is another one",
               path);
      if (e.name == kState) {
        s.state = io::parse_json(content, path);
        state = true;
      } else {
        s.files.emplace_back(e.name, content);
      }
    }
  }
  TD_CHECK(model && optimizer && state, Format, "'{}' is not a checkpoint: {} is missing",
           folder.str(),
           !model       ? kModel
           : !optimizer ? kOptimizer
                        : kState);
  return s;
}

// The name in `latest`; "" where there is none or it cannot be read.
std::string Checkpoints::latest() const {
  try {
    std::string name = read_file(join(folder_, kLatest), 4096);
    while (!name.empty() && name.back() == '\n') name.pop_back();
    return name;
  } catch (const Error&) {
    return "";
  }
}

std::optional<Snapshot> Checkpoints::load_latest() const {
  std::vector<std::string> order = list();
  const std::string named = join(folder_, latest());  // without one the newest comes first
  std::stable_partition(order.begin(), order.end(),
                        [&](const std::string& path) { return path == named; });
  for (const std::string& path : order) try {
      return load_checkpoint(path);
    } catch (const Error& e) {
      log_warning("skipped the checkpoint '{}': {}", path, e.what());
    }
  return {};
}

std::optional<Snapshot> Checkpoints::load_best() const {
  std::vector<std::pair<double, std::string>> scored;
  for (const std::string& path : list()) try {
      if (auto score = read_manifest(path).score)
        scored.emplace_back(options_.higher_is_better ? -*score : *score, path);
    } catch (const Error& e) {
      log_warning("skipped the checkpoint '{}': {}", path, e.what());
    }
  std::stable_sort(scored.begin(), scored.end(),
                   [](const auto& a, const auto& b) { return a.first < b.first; });
  for (const auto& [score, path] : scored) try {
      return load_checkpoint(path);
    } catch (const Error& e) {
      log_warning("skipped the checkpoint '{}': {}", path, e.what());
    }
  return {};
}

}  // namespace tandem::train
