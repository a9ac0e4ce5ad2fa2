// SPDX-License-Identifier: Apache-2.0
#include "tandem/data/check_files.h"

#include <algorithm>
#include <array>
#include <filesystem>
#include <mutex>

#include "tandem/base/ascii.h"
#include "tandem/base/error.h"
#include "tandem/base/files/mapped_pages.h"
#include "tandem/base/parallel.h"
#include "tandem/io/audio.h"
#include "tandem/io/image/plain.h"
#include "tandem/io/tar.h"
#include "tandem/io/tensorflow/tfrecord.h"

namespace tandem::data {
namespace {

namespace fs = std::filesystem;

enum Kind : size_t { kImage, kSound, kRecords, kShard, kKinds };
constexpr const char* kNames[kKinds] = {"images", "sounds", "records of TFRecord files",
                                        "entries of tar shards"};

Kind kind_of(const fs::path& path) {
  const std::string end = ascii_lower(path.extension().string());
  for (const char* known :
       {".jpg", ".jpeg", ".png", ".webp", ".tif", ".tiff", ".jp2", ".bmp", ".ppm", ".pgm"})
    if (end == known) return kImage;
  if (end == ".wav" || end == ".flac") return kSound;
  if (end == ".tfrecord" || end == ".tfrecords") return kRecords;
  return end == ".tar" ? kShard : kKinds;
}

void decode(Kind kind, std::string_view bytes) {
  if (kind == kSound)
    io::decode_audio(bytes);
  else if (io::is_plain_image(bytes))
    io::decode_plain_image(bytes);
  else
    io::decode_image(bytes, {.mode = io::ImageMode::unchanged});
}

/// Messages begin with the quoted name of their subject; the report already has it.
std::string reason_of(const Error& e, const std::string& path) {
  std::string text = e.what();
  for (const std::string& name : {"'" + path + "'", std::string("'image'"), std::string("'audio'")})
    if (text.rfind(name, 0) == 0) {
      text.erase(0, std::min(text.find_first_not_of(": ", name.size()), text.size()));
      break;
    }
  text.resize(std::min(text.find('\n'), text.size()));
  if (!text.empty() && text.back() == '.') text.pop_back();
  return text;
}

/// The findings of one thread.
struct Found {
  std::array<FolderReport::Kind, kKinds> kinds;
  std::vector<DamagedFile> damaged;

  /// `f` reads one item of a kind, called `name` in the report.
  template <class F>
  void read(Kind kind, const std::string& name, const std::string& path, F f) {
    try {
      f();
      ++kinds[kind].readable;
    } catch (const Error& e) {
      // A feature missing from this build does not mean the file is damaged, but it was not read
      // either.
      ++kinds[kind].damaged;
      damaged.push_back({name, reason_of(e, path)});
    }
  }
  void check(Kind kind, const std::string& path, const std::string& name) {
    if (kind == kRecords) return check_records(path, name);
    if (kind == kShard) return check_shard(path, name);
    read(kind, name, path, [&] {
      const Ref<MappedFile> file = make_ref<MappedFile>(path);
      TD_CHECK(file->size() > 0, Format, "is empty");
      decode(kind, file->view());
    });
  }
  void check_records(const std::string& path, const std::string& name) {
    try {
      const io::TFRecordFile file(path, {.keep_whole = true});
      for (int64_t i = 0; i < file.size(); ++i) read(kRecords, name, path, [&] { file.record(i); });
      if (!file.damage().empty()) add_damage(kRecords, name, file.damage());
    } catch (const Error& e) {
      add_damage(kRecords, name, reason_of(e, path));
    }
  }
  void check_shard(const std::string& path, const std::string& name) {
    try {
      const io::TarFile file(path, {.keep_whole = true});
      for (const io::TarFile::Entry& e : file.entries())
        read(kShard, name + ": " + e.name, path, [&] {
          const Kind kind = kind_of(e.name);
          if (kind == kImage || kind == kSound) decode(kind, e.bytes);
          passed_mapped(e.bytes.data(), e.bytes.size());
        });
      if (!file.damage().empty()) {
        std::string why = file.damage();
        const std::string quoted = "'" + path + "'";
        if (why.rfind(quoted, 0) == 0)
          why.erase(0, std::min(why.find_first_not_of(": ", quoted.size()), why.size()));
        add_damage(kShard, name, why);
      }
    } catch (const Error& e) {
      add_damage(kShard, name, reason_of(e, path));
    }
  }
  void add_damage(Kind kind, const std::string& name, std::string reason) {
    ++kinds[kind].damaged;
    if (!reason.empty() && reason.back() == '.') reason.pop_back();
    damaged.push_back({name, std::move(reason)});
  }
};

}  // namespace

int64_t FolderReport::readable() const {
  int64_t n = 0;
  for (const Kind& k : kinds) n += k.readable;
  return n;
}

io::Json FolderReport::to_json() const {
  io::Json::Array k, d;
  for (const Kind& one : kinds)
    k.push_back(
        io::Json::Object{{"what", one.what}, {"readable", one.readable}, {"damaged", one.damaged}});
  for (const DamagedFile& one : damaged)
    d.push_back(io::Json::Object{{"path", one.path}, {"reason", one.reason}});
  return io::Json::Object{{"kinds", std::move(k)}, {"damaged", std::move(d)}, {"other", other}};
}

FolderReport check_files(const FilePath& folder) {
  FolderReport report;
  std::vector<std::pair<std::string, Kind>> files;
  std::error_code error;
  for (fs::recursive_directory_iterator it(folder.str(), error), end; !error && it != end;
       it.increment(error)) {
    if (!it->is_regular_file(error)) continue;
    const Kind kind = kind_of(it->path());
    if (kind == kKinds)
      ++report.other;
    else
      files.emplace_back(it->path().string(), kind);
  }
  TD_CHECK(!error, Io, "cannot list '{}': {}", folder.str(), error.message());
  TD_CHECK(!files.empty(), Value,
           "there are no images, sounds, TFRecord files or tar shards in '{}' ({} other files)",
           folder.str(), report.other);
  std::sort(files.begin(), files.end());
  Found all;
  std::mutex lock;
  parallel_for(0, static_cast<int64_t>(files.size()), 1, [&](int64_t begin, int64_t end) {
    Found mine;
    for (int64_t i = begin; i < end; ++i) {
      const auto& [path, kind] = files[static_cast<size_t>(i)];
      mine.check(kind, path, fs::path(path).lexically_relative(folder.str()).string());
    }
    std::lock_guard hold(lock);
    for (size_t k = 0; k < kKinds; ++k) {
      all.kinds[k].readable += mine.kinds[k].readable;
      all.kinds[k].damaged += mine.kinds[k].damaged;
    }
    all.damaged.insert(all.damaged.end(), mine.damaged.begin(), mine.damaged.end());
  });
  for (size_t k = 0; k < kKinds; ++k) {
    all.kinds[k].what = kNames[k];
    if (all.kinds[k].readable + all.kinds[k].damaged > 0) report.kinds.push_back(all.kinds[k]);
  }
  std::stable_sort(all.damaged.begin(), all.damaged.end(),
                   [](const DamagedFile& a, const DamagedFile& b) { return a.path < b.path; });
  report.damaged = std::move(all.damaged);
  return report;
}

}  // namespace tandem::data
