// SPDX-License-Identifier: Apache-2.0
#include "tandem/graph/run/kernel_tuning.h"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <mutex>
#include <string>
#include <vector>

#include "tandem/base/clock.h"
#include "tandem/base/error.h"
#include "tandem/base/files/private_folder.h"
#include "tandem/base/hash/hash.h"
#include "tandem/base/log.h"
#include "tandem/base/parallel.h"
#include "tandem/base/processor.h"
#include "tandem/base/processor_name.h"
#include "tandem/graph/context.h"
#include "tandem/graph/dry_run.h"
#include "tandem/graph/precision.h"
#include "tandem/graph/run/array_walk.h"
#include "tandem/tensor/allocator.h"

namespace tandem {
namespace {

constexpr double kFaster = 0.95;    // of the rule's time: less is within noise
constexpr double kSeconds = 0.004;  // for one kernel, three calls at least
constexpr int kFewestCalls = 3;
constexpr int64_t kMostBytes = int64_t{1} << 31;  // of all operands

// Kernels are named by their place among those of the row, newest first.
struct Choice {
  int equal = 0, best = 0;  ///< the fastest of equal bits, and of all
  int kernels = 0;          ///< of the row
};

struct Table {
  std::mutex lock;
  std::map<std::string, Choice> choices;  ///< by key: decided in this process
  std::map<uint64_t, Choice> disk;        ///< by hash of the key
  bool read = false, changed = false;
  detail::TuningCounts counts;
};
Table& table() {
  static Table* t = new Table;
  return *t;
}

thread_local double budget = 0;  // seconds
thread_local int budgets = 0;    // that are alive
thread_local bool measuring = false;

KernelTuning tuning_of(const char* v) {
  const std::string s = v ? v : "";
  if (s.empty() || s == "0") return KernelTuning::off;
  if (s == "1") return KernelTuning::equal_bits;
  if (s == "full") return KernelTuning::full;
  TD_FAIL(Value, "TANDEM_TUNE: expected 0, 1 or full, got '{}'", s);
}
std::atomic<int>& mode() {
  static std::atomic<int> m{static_cast<int>(tuning_of(std::getenv("TANDEM_TUNE")))};
  return m;
}

// ---- the file

std::string file_name() {
  const std::string of =
      fmt::format("{} {} {}", TANDEM_VERSION, static_cast<int>(cpu_limit()), processor_identity());
  return fmt::format("kernels_{:016x}.txt", hash_string(of));
}

// Lines "<hash of the key> <kernels> <equal> <best>"; what cannot be read is measured again.
void read_file(Table& t) {
  t.read = true;
  try {
    const PrivateFolder folder = PrivateFolder::cache();
    if (!folder) return;
    const std::string text = folder.read(file_name());
    for (size_t at = 0; at < text.size();) {
      const size_t end = std::min(text.find('\n', at), text.size());
      const std::string line = text.substr(at, end - at);
      unsigned long long key = 0;
      Choice c;
      if (std::sscanf(line.c_str(), "%16llx %d %d %d", &key, &c.kernels, &c.equal, &c.best) == 4)
        t.disk[key] = c;
      at = end + 1;
    }
  } catch (const Error&) {}
}

// What other processes added meanwhile is kept.
void write_file(Table& t) {
  if (!t.changed) return;
  t.changed = false;
  const std::map<uint64_t, Choice> own = t.disk;
  read_file(t);
  for (const auto& [key, c] : own) t.disk[key] = c;
  std::string text;
  for (const auto& [key, c] : t.disk)
    text += fmt::format("{:016x} {} {} {}\n", key, c.kernels, c.equal, c.best);
  try {
    PrivateFolder::cache().write(file_name(), text);
  } catch (const Error& e) {
    log_warning("kernel choices are not kept: {}", e.what());
  }
}

// ---- the key

std::string key_of(const KernelCall& c) {
  std::string key = fmt::format("{} {} {} {}", c.op.name, num_threads(), context().deterministic,
                                float32_matmul_precision() == MatmulPrecision::tf32);
  if (c.op.attrs) key += " " + print_attrs(c.op.attrs, c.attrs);
  const auto add = [&](const Array& a) {
    key += fmt::format("; {}{}", to_string(a.dtype), a.is_scalar ? "$" : "");
    for (int d = 0; a.shape && d < a.rank; ++d)
      key += fmt::format(" {}/{}", a.shape[d], a.strides ? a.strides[d] : -1);
  };
  for (int i = 0; i < c.n_in; ++i) add(c.in[i]);
  for (int i = 0; i < c.n_out; ++i) add(c.out[i]);
  return key;
}

// ---- measuring

// Operands of a call with numbers of their own.
class Operands {
 public:
  explicit Operands(const KernelCall& c) : call_(c) {
    for (int i = 0; i < c.n_in; ++i) in_.push_back(c.in[i]);
    for (Array& a : in_)
      if (a.shape && !a.is_scalar) fill(a, place(a));
    call_.in = in_.data();
    call_.error = &error_;
  }
  ~Operands() { release(0); }
  Operands(const Operands&) = delete;
  Operands& operator=(const Operands&) = delete;

  // Seconds of the fastest call; leaves the results, in row-major order, in `bits`.
  double measure(const Kernel& k, std::string& bits) {
    const size_t inputs = blocks_.size();
    std::vector<Array> out(call_.out, call_.out + call_.n_out);
    std::vector<Strides> strides(out.size());
    KernelCall c = call_;
    c.out = out.data();
    for (size_t o = 0; o < out.size(); ++o) {
      if (!out[o].shape) continue;
      Strides& s = strides[o];
      if (!k.layout || !k.layout(c, static_cast<int>(o), s)) s = row_major_strides(out[o]);
      const Strides dense = row_major_strides(out[o]);
      out[o].contiguous = std::equal(s.data(), s.data() + out[o].rank, dense.data());
      out[o].strides = s.data();
      out[o].numel = 1;
      for (int d = 0; d < out[o].rank; ++d) out[o].numel *= out[o].shape[d];
      place(out[o]);
    }
    const std::shared_ptr<const Plan> plan = k.prepare ? k.prepare(c) : nullptr;
    c.plan = plan.get();
    if (plan && plan->workspace) c.scratch = take(plan->workspace);
    k.run(c);
    const Clock::time_point begin = Clock::now();
    double best = 1e9;
    for (int i = 0; i < kFewestCalls || seconds_since(begin) < kSeconds; ++i) {
      const Clock::time_point start = Clock::now();
      k.run(c);
      best = std::min(best, seconds_since(start));
    }
    for (const Array& a : out)
      if (a.shape)
        for_each_offset(a, [&, size = size_of(a.dtype)](int64_t at) {
          bits.append(a.as<char>() + at * static_cast<int64_t>(size), size);
        });
    release(inputs);
    return best;
  }

 private:
  void* take(size_t bytes) {
    blocks_.emplace_back(detail::allocate(bytes), bytes);
    return blocks_.back().first;
  }
  void release(size_t kept) {
    for (; blocks_.size() > kept; blocks_.pop_back())
      detail::deallocate(blocks_.back().first, blocks_.back().second);
  }
  // Gives the array memory; returns its bytes.
  size_t place(Array& a) {
    int64_t last = 0;
    for (int d = 0; d < a.rank; ++d) last += (a.shape[d] - 1) * a.strides[d];
    const size_t bytes = static_cast<size_t>(last + 1) * size_of(a.dtype);
    a.data = take(bytes);
    return bytes;
  }
  // Floats between 0.5 and 2 of either sign, no two neighbours alike; integers 0.
  static void fill(Array& a, size_t bytes) {
    const size_t size = size_of(a.dtype);
    auto* p = static_cast<unsigned char*>(a.data);
    std::memset(p, 0, bytes);
    if (!is_floating(a.dtype)) return;
    uint64_t h = kHashSeed;
    for (size_t i = 0; i + size <= bytes; i += size) {
      h = hash_mix(h + i);
      for (size_t b = 0; b < size; ++b) p[i + b] = static_cast<unsigned char>(h >> (8 * (b % 8)));
      p[i + size - 1] = static_cast<unsigned char>(0x3f | (h >> 63 << 7));
      if (a.dtype == DType::f16) p[i + 1] = static_cast<unsigned char>(0x3a | (h >> 63 << 7));
      if (a.dtype == DType::f64) p[i + 6] = static_cast<unsigned char>(0xe0 | p[i + 6]);
    }
  }

  KernelCall call_;
  ErrorWord error_;
  std::vector<Array> in_;
  std::vector<std::pair<void*, size_t>> blocks_;
};

bool can_measure(const KernelCall& c) {
  if (!is_host(c.device) || c.op.has(kRandom) || is_dry_run_of_any_device()) return false;
  int64_t bytes = 0;
  const auto add = [&](const Array& a) {
    if (!a.shape || a.is_scalar) return true;
    int64_t n = static_cast<int64_t>(size_of(a.dtype));
    for (int d = 0; d < a.rank; ++d) {
      if (a.strides && a.strides[d] < 0) return false;
      if (a.shape[d] <= 0 || n > kMostBytes / a.shape[d]) return false;
      n *= a.shape[d];
    }
    return (bytes += n) <= kMostBytes;
  };
  for (int i = 0; i < c.n_in; ++i)
    if (!add(c.in[i]) || (c.in[i].shape && !c.in[i].is_scalar && !c.in[i].strides)) return false;
  for (int i = 0; i < c.n_out; ++i)
    if (!add(c.out[i])) return false;
  return true;
}

struct Candidate {
  int place;
  const Kernel* kernel;
};

Choice measure(const KernelCall& call, const std::vector<Candidate>& all) {
  Choice c{all[0].place, all[0].place, 0};
  Operands operands(call);
  std::string rule;
  double of_rule = operands.measure(*all[0].kernel, rule), equal = of_rule, best = of_rule;
  for (size_t i = 1; i < all.size(); ++i) {
    std::string bits;
    const double t = operands.measure(*all[i].kernel, bits);
    if (t >= of_rule * kFaster) continue;
    if (t < best) best = t, c.best = all[i].place;
    if (t < equal && bits == rule) equal = t, c.equal = all[i].place;
  }
  if (c.best != all[0].place)
    log_debug("kernel {} of {} takes {:.3f} ms, that of the rule {:.3f}: {}", c.best, call.op.name,
              1e3 * best, 1e3 * of_rule, key_of(call));
  return c;
}

const Kernel* kernel_at(const std::vector<Candidate>& all, int place) {
  for (const Candidate& c : all)
    if (c.place == place) return c.kernel;
  return all[0].kernel;
}

}  // namespace

KernelTuning kernel_tuning() { return static_cast<KernelTuning>(mode().load()); }
void set_kernel_tuning(KernelTuning tuning) { mode() = static_cast<int>(tuning); }

TuningBudget::TuningBudget(double seconds) : before_(budget) {
  budget = seconds;
  ++budgets;
}
TuningBudget::~TuningBudget() {
  budget = before_;
  --budgets;
  if (kernel_tuning() == KernelTuning::off) return;
  Table& t = table();
  std::lock_guard hold(t.lock);
  write_file(t);
}

namespace detail {

const Kernel* tuned_kernel(const KernelCall& call, DeviceKind device,
                           const OpRuntime::Entry* newest) {
  const KernelTuning tuning = kernel_tuning();
  std::vector<Candidate> all;
  int place = 0, kernels = 0;
  for (const auto* e = call.op.runtime->kernels[static_cast<int>(device)]; e; e = e->older) {
    if (e == newest) place = kernels;
    ++kernels;
  }
  for (const auto* e = newest; e; e = e->older, ++place)
    if (e == newest || !e->kernel.supports || e->kernel.supports(call))
      all.push_back({place, &e->kernel});
  if (all.size() == 1 || measuring || !can_measure(call)) return all[0].kernel;

  const std::string key = key_of(call);
  const uint64_t hash = hash_string(key);
  Table& t = table();
  std::lock_guard hold(t.lock);
  const auto chosen = [&](const Choice& c) {
    return kernel_at(all, tuning == KernelTuning::full ? c.best : c.equal);
  };
  if (const auto at = t.choices.find(key); at != t.choices.end()) return chosen(at->second);
  if (!t.read) read_file(t);
  if (const auto at = t.disk.find(hash); at != t.disk.end() && at->second.kernels == kernels) {
    ++t.counts.from_disk;
    return chosen(t.choices[key] = at->second);
  }
  if (tuning != KernelTuning::full && budget <= 0) return all[0].kernel;
  const Clock::time_point begin = Clock::now();
  Choice c{all[0].place, all[0].place, 0};
  measuring = true;
  try {
    c = measure(call, all);
  } catch (const Error&) {  // too little memory: the rule's kernel
  }
  measuring = false;
  c.kernels = kernels;
  budget -= seconds_since(begin);
  ++t.counts.measured;
  t.disk[hash] = c;
  t.changed = true;
  if (budgets == 0) write_file(t);
  return chosen(t.choices[key] = c);
}

TuningCounts tuning_counts() {
  std::lock_guard hold(table().lock);
  return table().counts;
}
void forget_tuning() {
  Table& t = table();
  std::lock_guard hold(t.lock);
  t.choices.clear();
  t.disk.clear();
  t.read = t.changed = false;
  t.counts = {};
}

}  // namespace detail

}  // namespace tandem
