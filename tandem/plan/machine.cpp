// SPDX-License-Identifier: Apache-2.0
#include "tandem/plan/machine.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdlib>
#include <ctime>
#include <fstream>
#include <map>
#include <set>
#include <thread>

#include "tandem/base/error.h"
#include "tandem/base/parallel.h"
#include "tandem/compile/compile.h"
#include "tandem/graph/context.h"
#include "tandem/io/image.h"
#include "tandem/ops/ops.h"
#include "tandem/plan/jobs.h"

namespace tandem::plan {
namespace {

using Clock = std::chrono::steady_clock;
double since(Clock::time_point t) {
  return std::chrono::duration<double>(Clock::now() - t).count();
}

// The shortest of a few runs.
template <class F>
double best_of(int runs, F f) {
  f();
  double best = 1e9;
  for (int i = 0; i < runs; ++i) {
    const Clock::time_point t = Clock::now();
    f();
    best = std::min(best, since(t));
  }
  return best;
}

std::string cpu_name() {
  std::ifstream f("/proc/cpuinfo");
  for (std::string line; std::getline(f, line);)
    if (line.rfind("model name", 0) == 0) return line.substr(line.find(':') + 2);
  return "unknown";
}

double disk_rate() {
  std::string path = "/tmp/tandem_disk_XXXXXX";
  if (const char* dir = std::getenv("TMPDIR"); dir && *dir)
    path = std::string(dir) + "/tandem_disk_XXXXXX";
  const int fd = ::mkstemp(path.data());
  if (fd < 0) return 0;
  ::unlink(path.c_str());
  std::vector<char> block(8 << 20, 'x');
  constexpr int kBlocks = 24;
  double rate = 0;
  bool ok = true;
  for (int i = 0; i < kBlocks && ok; ++i)
    ok = ::write(fd, block.data(), block.size()) == static_cast<ssize_t>(block.size());
  ok = ok && ::fsync(fd) == 0 && ::posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED) == 0;
  if (ok && ::lseek(fd, 0, SEEK_SET) == 0) {
    const Clock::time_point t = Clock::now();
    int64_t n = 0;
    for (ssize_t r; (r = ::read(fd, block.data(), block.size())) > 0;) n += r;
    rate = static_cast<double>(n) / since(t);
  }
  ::close(fd);
  return rate;
}

double loopback_rate() {
  const int server = ::socket(AF_INET, SOCK_STREAM, 0);
  if (server < 0) return 0;
  sockaddr_in a{};
  a.sin_family = AF_INET;
  a.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t n = sizeof a;
  double rate = 0;
  if (::bind(server, reinterpret_cast<sockaddr*>(&a), n) == 0 && ::listen(server, 1) == 0 &&
      ::getsockname(server, reinterpret_cast<sockaddr*>(&a), &n) == 0) {
    constexpr size_t kBytes = size_t{192} << 20;
    std::thread sender([a] {
      const int s = ::socket(AF_INET, SOCK_STREAM, 0);
      if (s < 0) return;
      std::vector<char> block(1 << 20, 'x');
      if (::connect(s, reinterpret_cast<const sockaddr*>(&a), sizeof a) == 0)
        for (size_t sent = 0; sent < kBytes;) {
          const ssize_t r = ::send(s, block.data(), block.size(), MSG_NOSIGNAL);
          if (r <= 0) break;
          sent += static_cast<size_t>(r);
        }
      ::close(s);
    });
    const int c = ::accept(server, nullptr, nullptr);
    std::vector<char> block(1 << 20);
    const Clock::time_point t = Clock::now();
    size_t got = 0;
    for (ssize_t r; c >= 0 && (r = ::recv(c, block.data(), block.size(), 0)) > 0;)
      got += static_cast<size_t>(r);
    rate = static_cast<double>(got) / since(t);
    if (c >= 0) ::close(c);
    sender.join();
  }
  ::close(server);
  return rate;
}

double decode_seconds() {
  // Smooth colours with some noise: about as hard to unpack as a photo.
  constexpr int64_t kH = 375, kW = 500;
  NoGradGuard no_grad;
  const Tensor y = arange(kH, DType::f32).reshape({1, kH, 1}),
               x = arange(kW, DType::f32).reshape({1, 1, kW});
  const Tensor c = arange(3, DType::f32).reshape({3, 1, 1});
  const Tensor noise = uniform({3, kH, kW}, 0, 6);
  const Tensor photo =
      ((sin(x * 0.02 + c) + cos(y * 0.03 - c)) * 60.0 + noise + 125.0).to(DType::u8);
  const std::string png = io::encode_png(photo);
  return best_of(5, [&] { io::decode_image(png); });
}

std::string vit_config(int64_t width, int64_t layers, int64_t heads, int64_t patch, int64_t image) {
  return fmt::format(
      "{{\"model_type\":\"vit\",\"architectures\":[\"ViTForImageClassification\"],\"hidden_size\":{"
      "},"
      "\"intermediate_size\":{},\"num_hidden_layers\":{},\"num_attention_heads\":{},\"patch_size\":"
      "{},"
      "\"image_size\":{},\"num_labels\":100}}",
      width, 4 * width, layers, heads, patch, image);
}
std::string llama_config(int64_t width, int64_t layers, int64_t heads, int64_t vocab) {
  return fmt::format(
      "{{\"model_type\":\"llama\",\"architectures\":[\"LlamaForCausalLM\"],\"hidden_size\":{},"
      "\"intermediate_size\":{},\"num_hidden_layers\":{},\"num_attention_heads\":{},"
      "\"num_key_value_heads\":{},\"vocab_size\":{},\"max_position_embeddings\":1024}}",
      width, width * 8 / 3 / 16 * 16, layers, heads, heads, vocab);
}

struct Rung {
  Job job;
  int64_t batch;
};
// Layers of many widths and sizes; none of these models is one that check_times() asks about.
std::vector<Rung> ladder() {
  std::vector<Rung> all;
  const auto picture = [&](const char* model, int64_t size, int64_t batch) {
    all.push_back({find_job(model, {.image_size = size}), batch});
  };
  picture("resnet34", 64, 2);
  picture("resnet34", 96, 8);
  picture("resnet50", 64, 4);
  picture("vgg11", 64, 4);
  picture("mobilenet_v3_large", 64, 4);
  picture("mobilenet_v3_large", 96, 12);
  picture("shufflenet_v2_x1_0", 64, 8);
  all.push_back({job_of_config(vit_config(128, 2, 4, 8, 64), "ladder", {.image_size = 64}), 4});
  all.push_back({job_of_config(vit_config(256, 2, 4, 8, 64), "ladder", {.image_size = 64}), 16});
  all.push_back({job_of_config(llama_config(192, 2, 6, 4000), "ladder", {.sequence = 64}), 4});
  all.push_back({job_of_config(llama_config(384, 2, 6, 16000), "ladder", {.sequence = 128}), 8});
  all.push_back({job_of_config(llama_config(256, 2, 8, 8000), "ladder", {.sequence = 256}), 2});
  return all;
}

double roofline(const Work& k, const MachineProfile& m) {
  const double peak =
      (k.dtype == DType::bf16 || k.dtype == DType::f16) && k.matrix && m.bf16_flops > 0
          ? m.bf16_flops
          : m.f32_flops;
  const double bandwidth = k.bytes < m.cache_bytes ? m.cache_bandwidth : m.bandwidth;
  return std::max(k.flops / peak, k.bytes / bandwidth);
}

std::string point_kind(const Work& k, bool compiled) {
  return fmt::format("{}{}:{}", compiled ? "c:" : "e:", to_string(k.dtype), k.kind);
}

}  // namespace

double kernel_seconds(const Work& k, const MachineProfile& m, bool compiled) {
  const std::string kind = point_kind(k, compiled);
  const double flops = std::log(k.flops + 1), bytes = std::log(k.bytes + 1);
  // The four nearest points of the kind, by size and by intensity.
  std::vector<std::pair<double, const MachineProfile::Point*>> near;
  for (const MachineProfile::Point& p : m.points) {
    if (p.kind != kind) continue;
    const double a = std::log(p.flops + 1) - flops, b = std::log(p.bytes + 1) - bytes;
    near.emplace_back(a * a + b * b, &p);
  }
  const double overhead = compiled ? m.step_seconds : m.launch_seconds;
  if (near.empty()) return roofline(k, m) + overhead;
  const size_t n = std::min<size_t>(4, near.size());
  std::partial_sort(near.begin(), near.begin() + static_cast<ptrdiff_t>(n), near.end(),
                    [](const auto& x, const auto& y) { return x.first < y.first; });
  double weights = 0, log_ratio = 0;
  for (size_t i = 0; i < n; ++i) {
    const MachineProfile::Point& p = *near[i].second;
    Work q = k;
    q.flops = p.flops;
    q.bytes = p.bytes;
    const double weight = 1 / (near[i].first + 0.02);
    weights += weight;
    log_ratio += weight * std::log(p.seconds / (roofline(q, m) + overhead));
  }
  return (roofline(k, m) + overhead) * std::exp(log_ratio / weights);
}

Quantity machine_step(const Workload& w, const MachineProfile& m) {
  struct Sum {
    double seconds = 0;
    int64_t kernels = 0;
  };
  std::map<std::string, Sum> kinds;
  for (const Work& k : w.work) {
    Sum& s = kinds[k.kind];
    s.seconds += kernel_seconds(k, m, w.options.compiled);
    ++s.kernels;
  }
  std::vector<std::pair<double, Quantity>> parts;
  for (const auto& [kind, s] : kinds)
    parts.emplace_back(
        s.seconds,
        given("time.kind." + kind, kind, s.seconds, "s",
              fmt::format("{} kernels, between points measured on this machine", s.kernels)));
  std::sort(parts.begin(), parts.end(),
            [](const auto& a, const auto& b) { return a.first > b.first; });
  std::vector<Quantity> list;
  for (auto& [t, q] : parts) list.push_back(std::move(q));
  if (list.empty()) list.push_back(given("time.kind.none", "nothing", 0, "s", "no kernels"));
  return sum("time.step", "one step", "s", "", std::move(list));
}

MachineProfile measure_machine(const std::function<bool(const std::string&)>& progress) {
  const auto say = [&](const std::string& what) { return !progress || progress(what); };
  MachineProfile m;
  m.cpu = cpu_name();
  m.threads = num_threads();
  char date[16];
  const std::time_t now = std::time(nullptr);
  std::tm utc{};
  ::gmtime_r(&now, &utc);
  std::strftime(date, sizeof date, "%Y-%m-%d", &utc);
  m.date = date;
  m.memory =
      static_cast<double>(sysconf(_SC_PHYS_PAGES)) * static_cast<double>(sysconf(_SC_PAGESIZE));
  NoGradGuard no_grad;
  say("products and bandwidth");
  for (int64_t n : {384, 768, 1152}) {
    const Tensor a = ones({n, n}), b = ones({n, n});
    const double flops = 2.0 * static_cast<double>(n * n * n);
    m.f32_flops = std::max(m.f32_flops, flops / best_of(5, [&] { matmul(a, b); }));
    const Tensor c = a.to(DType::bf16), d = b.to(DType::bf16);
    m.bf16_flops = std::max(m.bf16_flops, flops / best_of(3, [&] { matmul(c, d); }));
  }
  const Tensor large = ones({16 << 20}), small = ones({32 << 10});
  m.bandwidth = 2.0 * 4 * (16 << 20) / best_of(5, [&] { large.clone(); });
  m.cache_bandwidth = std::max(m.bandwidth, 2.0 * 4 * (32 << 10) * 64 / best_of(7, [&] {
                                              for (int i = 0; i < 64; ++i) small.clone();
                                            }));
  m.cache_bytes = 1 << 20;
  say("overheads");
  const Tensor tiny = ones({8});
  m.launch_seconds = best_of(7,
                             [&] {
                               for (int i = 0; i < 1000; ++i) tiny.sin();
                             }) /
                     1000;
  m.step_seconds = m.launch_seconds / 3;
  say("disk, decoding, link");
  m.disk_rate = disk_rate();
  m.decode_seconds = decode_seconds();
  m.link_rate = loopback_rate();
  std::map<std::string, std::map<std::pair<double, double>, std::vector<double>>> points;
  EnableGradGuard grad;
  for (const Rung& r : ladder())
    for (bool compiled : {true, false}) {
      if (!say(fmt::format("{} of {}, {}", r.job.name, r.batch, compiled ? "compiled" : "eager")))
        return m;
      const WorkOptions o{.batch = r.batch, .compiled = compiled, .this_backend = true};
      for (const Work& k : profile_steps(r.job, o, 5))
        if (k.seconds > 0) points[point_kind(k, compiled)][{k.flops, k.bytes}].push_back(k.seconds);
    }
  for (auto& [kind, at] : points)
    for (auto& [size, times] : at) {
      std::nth_element(times.begin(), times.begin() + static_cast<ptrdiff_t>(times.size() / 2),
                       times.end());
      m.points.push_back({kind, size.first, std::max(size.second, 1.0), times[times.size() / 2]});
    }
  return m;
}

Plan machine_plan(const PlanRequest& r, const MachineProfile& m) {
  Plan p;
  p.model = r.job.name;
  p.gpu.name = m.cpu;
  p.gpu.memory = m.memory;
  p.batch = r.batch > 0 ? r.batch : 32;
  p.compiled = r.compiled;
  const auto work = [&](bool compiled) {
    return dry_run(r.job, {.batch = p.batch,
                           .compiled = compiled,
                           .precision = r.precision,
                           .optimizer = r.optimizer,
                           .this_backend = true});
  };
  p.eager_work = work(false);
  p.compiled_work = work(true);
  const Workload& w = r.compiled ? p.compiled_work : p.eager_work;
  std::vector<Quantity> parts;
  for (size_t c = 0; c < static_cast<size_t>(Cause::count); ++c)
    if (w.peak.bytes[c] > 0)
      parts.push_back(given(fmt::format("memory.{}", c), to_string(static_cast<Cause>(c)),
                            w.peak.bytes[c], "B", "alive at the highest moment of the step"));
  parts.push_back(given("memory.rounding", "rounding and headers", w.rounding, "B",
                        "whole blocks of the allocator, and the moment of its own peak"));
  p.figures.push_back(sum("memory", "memory", "B", "", std::move(parts)));
  p.fits = w.host_peak <= m.memory;
  Quantity step = machine_step(w, m);
  const double seconds = step.value;
  p.figures.push_back(quotient("rate", w.unit + " per second", w.unit + "/s", "",
                               given("units.step", w.unit + " per step", w.units, "", "batch"),
                               std::move(step)));
  const double units = r.tokens > 0 ? r.tokens
                       : r.data     ? r.epochs * r.data->samples * r.job.units_per_sample
                                    : 0;
  if (units > 0)
    p.figures.push_back(product("time", "time to the end", "s", "",
                                {given("steps", "steps", units / w.units, "", "of the data"),
                                 given("time.step.value", "each", seconds, "s", "see time.step")}));
  if (r.job.decode_seconds > 0 && m.decode_seconds > 0)
    p.figures.push_back(product("data.cores", "CPU cores for decoding", "", "",
                                {given("data.samples_rate", "samples per second",
                                       static_cast<double>(p.batch) / seconds, "1/s", "see rate"),
                                 given("data.decode", "seconds per sample", m.decode_seconds, "s",
                                       "measured on this machine")}));
  if (r.deadline > 0 && units / w.units * seconds > r.deadline) {
    p.within_limits = false;
    p.notes.push_back("It takes longer than the deadline.");
  }
  return p;
}

std::vector<TimeCheck> check_times(const MachineProfile& m,
                                   const std::function<bool(const std::string&)>& progress) {
  const std::vector<std::pair<std::string, Job>> jobs = {
      {"resnet18", find_job("resnet18", {.image_size = 80})},
      {"mobilenet_v2", find_job("mobilenet_v2", {.image_size = 80})},
      {"vit", job_of_config(vit_config(192, 4, 3, 8, 64), "vit", {.image_size = 64})},
      {"llama", job_of_config(llama_config(320, 3, 5, 10000), "llama", {.sequence = 96})}};
  std::vector<TimeCheck> all;
  for (const auto& [name, job] : jobs)
    for (bool compiled : {true, false})
      for (int64_t batch : {2, 3, 5, 8, 12}) {
        TimeCheck c;
        c.name = fmt::format("{} {} of {}", name, compiled ? "compiled" : "eager", batch);
        if (progress && !progress(c.name)) return all;
        const WorkOptions o{.batch = batch, .compiled = compiled, .this_backend = true};
        c.planned = machine_step(dry_run(job, o), m).value;
        c.measured = measure(job, o, 7).seconds;
        all.push_back(c);
      }
  return all;
}

}  // namespace tandem::plan
