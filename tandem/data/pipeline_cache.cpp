// SPDX-License-Identifier: Apache-2.0
// The caches of Pipeline: in memory, filled on demand, and in a file, written whole. The file:
// magic; each element as fields (dtype, rank, sizes, bytes) and its CRC-32C; the offsets of all
// elements; a footer with the key, counts and a checksum of offsets and footer. Little-endian.
#include <array>
#include <cstring>

#include "tandem/base/cpu_count.h"
#include "tandem/base/files/mapped_pages.h"
#include "tandem/base/hash/crc32c.h"
#include "tandem/base/hash/sha256.h"
#include "tandem/base/log.h"
#include "tandem/data/pipeline_internal.h"
#include "tandem/graph/context.h"
#include "tandem/ops/view/create.h"
#include "tandem/ops/view/view.h"

namespace tandem::data::detail {
namespace {

struct Cache : Stage {
  StageRef in;
  mutable std::array<std::mutex, 64> locks;
  mutable std::vector<Fields> kept;
  int64_t size() const override { return in->size(); }
  Fields get(Pass pass, int64_t i) const override {
    std::lock_guard hold(locks[static_cast<size_t>(i) % locks.size()]);
    Fields& f = kept[static_cast<size_t>(i)];
    if (f.empty()) f = in->get({pass.seed, 0}, i);
    return f;
  }
  void origins(Pass pass, int64_t i, std::vector<int64_t>& out) const override {
    in->origins({pass.seed, 0}, i, out);
  }
  std::string text() const override { return in->text() + " | cache"; }
  Order order() const override { return in->order(); }
  int64_t identity(Pass pass, int64_t i) const override { return in->identity({pass.seed, 0}, i); }
  int64_t identities() const override { return in->identities(); }
};

constexpr std::string_view kMagic = "TDCACHE1";

struct Foot {
  std::array<unsigned char, 32> key;
  uint64_t seed, seeded;  ///< seeded: the elements depend on the seed
  uint64_t elements, places_at;
  uint32_t sum, zero;
};
static_assert(sizeof(Foot) == 72);

template <class T>
void put(std::string& out, const T& v) {
  out.append(reinterpret_cast<const char*>(&v), sizeof v);
}

std::string bytes_of(const Fields& fields) {
  std::string out;
  put(out, static_cast<uint64_t>(fields.size()));
  for (const Tensor& field : fields) {
    const Tensor t = contiguous(field);
    put(out, static_cast<uint32_t>(t.dtype()));
    put(out, static_cast<uint32_t>(t.dim()));
    for (int d = 0; d < t.dim(); ++d) put(out, t.size(d));
    if (t.numel() > 0)
      out.append(static_cast<const char*>(t.impl()->data),
                 static_cast<size_t>(t.numel()) * size_of(t.dtype()));
  }
  put(out, crc32c(out));
  return out;
}

/// Decodes the fields; none when the bytes are damaged.
Fields fields_from(std::string_view bytes) {
  uint32_t sum = 0;
  if (bytes.size() < sizeof sum) return {};
  std::memcpy(&sum, bytes.data() + bytes.size() - sizeof sum, sizeof sum);
  bytes.remove_suffix(sizeof sum);
  if (crc32c(bytes) != sum) return {};
  const auto take = [&bytes](auto& v) {
    if (bytes.size() < sizeof v) return false;
    std::memcpy(&v, bytes.data(), sizeof v);
    bytes.remove_prefix(sizeof v);
    return true;
  };
  Fields out;
  uint64_t count = 0;
  if (!take(count)) return {};
  for (uint64_t k = 0; k < count; ++k) {
    uint32_t dtype = 0, rank = 0;
    if (!take(dtype) || !take(rank) || dtype >= kDTypeCount || rank > kMaxRank) return {};
    Shape shape;
    uint64_t size = size_of(static_cast<DType>(dtype));
    for (uint32_t d = 0; d < rank; ++d) {
      int64_t n = 0;
      if (!take(n) || n < 0 || __builtin_mul_overflow(size, static_cast<uint64_t>(n), &size))
        return {};
      shape.push_back(n);
    }
    if (size > bytes.size()) return {};
    Tensor t = empty(shape, static_cast<DType>(dtype));
    if (size > 0) std::memcpy(t.impl()->data, bytes.data(), size);
    bytes.remove_prefix(size);
    out.push_back(std::move(t));
  }
  return out;
}

/// An open cache file, or the reason it cannot be used.
class CacheFile {
 public:
  explicit CacheFile(const FilePath& path) : file_(make_ref<MappedFile>(path)) {
    const std::string_view all = file_->view();
    if (!all.starts_with(kMagic)) {
      wrong_ = "is not a cache of elements";
      return;
    }
    wrong_ = "is truncated or damaged";
    if (all.size() < kMagic.size() + sizeof foot_) return;
    const size_t foot_at = all.size() - sizeof foot_;
    std::memcpy(&foot_, all.data() + foot_at, sizeof foot_);
    const uint64_t at = foot_.places_at;
    if (at > foot_at || (foot_at - at) / sizeof(uint64_t) != foot_.elements) return;
    Foot plain = foot_;
    plain.sum = 0;
    const std::string_view foot(reinterpret_cast<const char*>(&plain), sizeof plain);
    if (crc32c(foot, crc32c(all.substr(at, foot_at - at))) != foot_.sum) return;
    wrong_.clear();
  }
  const std::string& wrong() const { return wrong_; }
  const Foot& foot() const { return foot_; }
  /// Element i, or nothing when it is damaged.
  Fields get(int64_t i) const {
    const std::string_view all = file_->view();
    const uint64_t begin = place(i);
    const uint64_t end =
        static_cast<uint64_t>(i) + 1 < foot_.elements ? place(i + 1) : foot_.places_at;
    if (begin > end || end > foot_.places_at) return {};
    passed_mapped(all.data() + begin, end - begin);
    return fields_from(all.substr(begin, end - begin));
  }

 private:
  uint64_t place(int64_t i) const {
    uint64_t v = 0;
    const unsigned char* p = file_->data() + foot_.places_at + static_cast<uint64_t>(i) * sizeof v;
    std::memcpy(&v, p, sizeof v);
    return v;
  }
  Ref<MappedFile> file_;
  Foot foot_{};
  std::string wrong_;
};

struct FileCache : Stage {
  StageRef in;
  std::string path;
  std::unique_ptr<const CacheFile> file;
  mutable std::atomic<bool> told = false;

  int64_t size() const override { return in->size(); }
  Fields get(Pass pass, int64_t i) const override {
    if (file->foot().seeded && file->foot().seed != pass.seed) {
      if (!told.exchange(true))
        log_warning(
            "cache '{}' holds the elements of seed {}, the pipeline has {}: they are computed, not "
            "read",
            path, file->foot().seed, pass.seed);
      return in->get({pass.seed, 0}, i);
    }
    Fields f = file->get(i);
    if (!f.empty()) return f;
    if (!told.exchange(true))
      log_warning(
          "cache '{}': element {} is damaged and recomputed; remove the file, then all is "
          "written again",
          path, i);
    return in->get({pass.seed, 0}, i);
  }
  void origins(Pass pass, int64_t i, std::vector<int64_t>& out) const override {
    in->origins({pass.seed, 0}, i, out);
  }
  std::string text() const override { return in->text() + " | cache"; }
  Order order() const override { return file->foot().seeded ? Order::changing : Order::fixed; }
};

void write_cache(const StageRef& in, const std::string& path, Foot foot) {
  AtomicFile out(path);
  out.write(kMagic);
  std::vector<uint64_t> places;
  const auto threads = int64_t{cpu_count()};
  const uint64_t seed = foot.seed;
  OrderedRun run(
      [&in, seed](int64_t i) {
        return in->get({seed, 0}, i);
      },
      {.first = 0, .last = in->size(), .workers = threads, .depth = 16});
  for (Fields f; run.next(f);) {
    TD_CHECK(!f.empty(), Value, "cache('{}'): element {} has no fields", path, places.size());
    places.push_back(out.written());
    out.write(bytes_of(f));
  }
  foot.places_at = out.written();
  foot.elements = places.size();
  foot.seeded = in->order() != Order::fixed;
  const std::string_view table(reinterpret_cast<const char*>(places.data()),
                               places.size() * sizeof(uint64_t));
  const std::string_view foot_bytes(reinterpret_cast<const char*>(&foot), sizeof foot);
  foot.sum = crc32c(foot_bytes, crc32c(table));
  out.write(table);
  out.write(foot_bytes);
  out.commit();
}

/// The cache at `path` if it exists, is intact and has this key.
std::unique_ptr<const CacheFile> open_cache(const std::string& path, const Foot& want) {
  if (!file_exists(path)) return nullptr;
  auto file = std::make_unique<const CacheFile>(path);
  const Foot& is = file->foot();
  std::string wrong = file->wrong();
  TD_CHECK(wrong != "is not a cache of elements", Format,
           "cache(): '{}' exists and is not a cache of elements\nChoose another file.", path);
  if (wrong.empty() && is.key != want.key) wrong = "was written for another chain or key";
  if (wrong.empty() && is.elements != want.elements)
    wrong = fmt::format("has {} elements, expected {}", is.elements, want.elements);
  if (wrong.empty() && is.seeded && is.seed != want.seed)
    wrong = fmt::format("holds the elements of seed {}, the pipeline has {}", is.seed, want.seed);
  if (wrong.empty()) return file;
  log_warning("cache '{}' {}: it is rewritten", path, wrong);
  return nullptr;
}

}  // namespace

StageRef cache_stage(StageRef in) {
  check_finite(in, "cache()");
  auto s = stage_over<Cache>(std::move(in));
  s->kept.resize(static_cast<size_t>(s->in->size()));
  return s;
}

StageRef file_cache_stage(StageRef in, const FilePath& file, const std::string& key,
                          uint64_t seed) {
  check_finite(in, "cache()");
  auto s = stage_over<FileCache>(std::move(in));
  s->path = file.str();
  Foot foot{};
  foot.key = sha256(s->in->text() + "\n" + key);
  foot.seed = seed;
  foot.elements = static_cast<uint64_t>(s->in->size());
  NoGradGuard no_grad;
  s->file = open_cache(s->path, foot);
  if (!s->file) {
    write_cache(s->in, s->path, foot);
    s->file = open_cache(s->path, foot);
    TD_CHECK(s->file, Io, "cache(): '{}' differs from what was written to it", s->path);
  }
  return s;
}

}  // namespace tandem::data::detail
