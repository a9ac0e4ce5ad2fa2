// SPDX-License-Identifier: Apache-2.0
// `tandem bench --machine`: what this machine reaches, and how far plans for it are from real
// steps.
#include <arpa/inet.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <ctime>
#include <map>

#include "tandem/base/clock.h"
#include "tandem/base/failures_internal.h"
#include "tandem/base/files/private_folder.h"
#include "tandem/base/parallel.h"
#include "tandem/base/processor_name.h"
#include "tandem/compile/compile.h"
#include "tandem/graph/context.h"
#include "tandem/graph/profiler_clock.h"
#include "tandem/io/image.h"
#include "tandem/ops/ops.h"
#include "tandem/plan/hardware/machine.h"
#include "tandem/plan/jobs.h"

namespace tandem::plan {
namespace {

// The shortest of a few runs, by the clock of Measured.
template <class F>
double best_of(int runs, F f) {
  const ProcessorTimeGuard clock(num_threads() == 1);
  f();
  double best = 1e9;
  for (int i = 0; i < runs; ++i) {
    const double t = profiler_seconds();
    f();
    best = std::min(best, profiler_seconds() - t);
  }
  return best;
}

double disk_rate() {
  const int fd = temporary_file();
  if (fd < 0) return 0;
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
    rate = static_cast<double>(n) / seconds_since(t);
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
    std::thread sender = start_thread("the other end of a connection", [a] {
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
    rate = static_cast<double>(got) / seconds_since(t);
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

constexpr int kRounds = 2;  ///< in turns over everything

struct Rung {
  Job job;
  int64_t batch;
};
// Layers of many widths and sizes; none of these models is one that check_times() asks about.
std::vector<Rung> ladder() {
  std::vector<Rung> all;
  const auto image = [&](const char* model, int64_t size, int64_t batch) {
    all.push_back({find_job(model, {.image_size = size}), batch});
  };
  const auto vit = [&](int64_t width, int64_t heads, int64_t patch, int64_t size, int64_t batch) {
    all.push_back({job_of_config(vit_config(width, 2, heads, patch, size),
                                 fmt::format("vit of width {}", width), {.image_size = size}),
                   batch});
  };
  const auto llama = [&](int64_t width, int64_t heads, int64_t vocab, int64_t length,
                         int64_t batch) {
    all.push_back({job_of_config(llama_config(width, 2, heads, vocab),
                                 fmt::format("llama of width {}", width), {.sequence = length}),
                   batch});
  };
  image("resnet34", 64, 2);
  image("resnet34", 96, 8);
  image("resnet34", 112, 4);
  image("resnet50", 64, 4);
  image("vgg11", 64, 4);
  image("mobilenet_v3_large", 64, 2);
  image("mobilenet_v3_large", 64, 4);
  image("mobilenet_v3_large", 96, 12);
  image("mobilenet_v3_large", 112, 3);
  image("shufflenet_v2_x1_0", 64, 8);
  image("shufflenet_v2_x1_0", 112, 3);
  vit(32, 2, 8, 32, 1);  // kernels about as long as it takes to start them
  vit(48, 3, 8, 32, 8);
  vit(128, 4, 8, 64, 4);
  vit(160, 5, 8, 64, 2);
  vit(256, 4, 8, 64, 16);
  vit(384, 6, 16, 96, 7);
  llama(192, 6, 4000, 64, 4);
  llama(256, 8, 8000, 256, 2);
  llama(288, 6, 12000, 112, 3);
  llama(384, 6, 16000, 128, 8);
  llama(448, 7, 6000, 64, 3);
  return all;
}

// UTC, as 2026-11-23.
std::string today() {
  char date[16];
  const std::time_t now = std::time(nullptr);
  std::tm utc{};
  ::gmtime_r(&now, &utc);
  std::strftime(date, sizeof date, "%Y-%m-%d", &utc);
  return date;
}

// FLOPs and bytes a second at most.
void measure_rates(MachineProfile& m) {
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
}

// Seconds of starting a kernel, in eager and in compiled mode.
void measure_overheads(MachineProfile& m) {
  const Tensor tiny = ones({8});
  m.launch_seconds = best_of(7,
                             [&] {
                               for (int i = 0; i < 1000; ++i) tiny.sin();
                             }) /
                     1000;
  // Products that cannot be fused, one after the other.
  constexpr int kChain = 64;
  const Tensor eight = full({8, 8}, 0.125);
  auto chain = compile([](const Tensor& x) {
    Tensor y = x;
    for (int i = 0; i < kChain; ++i) y = matmul(y, x);
    return y;
  });
  m.step_seconds = best_of(20, [&] { chain(eight); }) / kChain;
}

using Progress = std::function<bool(const std::string&)>;

// The steps of the ladder, compiled and eager by turns; none where `say` asks to stop. Everything
// is measured in each of the rounds and the round of the shorter step counts: what disturbs a
// machine for seconds rarely comes back at the same place.
std::vector<ProfiledStep> climb(const Progress& say) {
  const std::vector<Rung> rungs = ladder();
  std::vector<ProfiledStep> best(rungs.size() * 2);
  for (int round = 0; round < kRounds; ++round)
    for (size_t i = 0; i < best.size(); ++i) {
      const Rung& r = rungs[i / 2];
      const bool compiled = i % 2 == 0;
      if (!say(fmt::format("{} of {}, {}", r.job.name, r.batch, compiled ? "compiled" : "eager")))
        return {};
      const WorkOptions o{.batch = r.batch, .compiled = compiled, .this_backend = true};
      ProfiledStep step = profile_steps(r.job, o, 3);
      if (round == 0 || step.seconds < best[i].seconds) best[i] = std::move(step);
    }
  return best;
}

// The points between which times are interpolated.
void add_points(const std::vector<ProfiledStep>& steps, MachineProfile& m) {
  std::map<std::pair<std::string, std::array<double, 5>>, std::vector<double>> points;
  std::vector<double> around[2];
  for (size_t i = 0; i < steps.size(); ++i) {
    const bool compiled = i % 2 == 0;
    for (const Work& k : steps[i].work)
      if (k.seconds > 0)
        points[{point_kind(k, compiled), {k.flops, k.bytes, k.sizes[0], k.sizes[1], k.sizes[2]}}]
            .push_back(k.seconds);
    around[compiled].push_back(steps[i].outside / static_cast<double>(steps[i].work.size()));
  }
  const auto median = [](std::vector<double>& v) {
    std::nth_element(v.begin(), v.begin() + static_cast<ptrdiff_t>(v.size() / 2), v.end());
    return v[v.size() / 2];
  };
  for (auto& [at, times] : points) {
    const auto& [kind, x] = at;
    m.points.push_back({kind, x[0], std::max(x[1], 1.0), {x[2], x[3], x[4]}, median(times)});
  }
  m.eager_call_seconds = median(around[0]);
  m.compiled_call_seconds = median(around[1]);
}

}  // namespace

MachineProfile measure_machine(const std::function<bool(const std::string&)>& progress) {
  const auto say = [&](const std::string& what) { return !progress || progress(what); };
  MachineProfile m;
  m.cpu = processor_name();
  m.threads = num_threads();
  m.date = today();
  m.memory =
      static_cast<double>(sysconf(_SC_PHYS_PAGES)) * static_cast<double>(sysconf(_SC_PAGESIZE));
  NoGradGuard no_grad;
  say("matmuls and bandwidth");
  measure_rates(m);
  say("overheads");
  measure_overheads(m);
  say("disk, decoding, link");
  m.disk_rate = disk_rate();
  m.decode_seconds = decode_seconds();
  m.link_rate = loopback_rate();
  EnableGradGuard grad;
  const std::vector<ProfiledStep> steps = climb(say);
  if (!steps.empty()) add_points(steps, m);
  return m;
}

std::vector<TimeCheck> check_times(const MachineProfile& m,
                                   const std::function<bool(const std::string&)>& progress) {
  const std::vector<std::pair<std::string, Job>> jobs = {
      {"resnet18", find_job("resnet18", {.image_size = 80})},
      {"mobilenet_v2", find_job("mobilenet_v2", {.image_size = 80})},
      {"vit", job_of_config(vit_config(192, 4, 3, 8, 64), "vit", {.image_size = 64})},
      {"llama", job_of_config(llama_config(320, 3, 5, 10000), "llama", {.sequence = 96})}};
  std::vector<TimeCheck> all;
  for (int round = 0; round < kRounds; ++round) {
    size_t at = 0;
    for (const auto& [name, job] : jobs)
      for (bool compiled : {true, false})
        for (int64_t batch : {2, 3, 5, 8, 12}) {
          const std::string what =
              fmt::format("{} {} of {}", name, compiled ? "compiled" : "eager", batch);
          if (progress && !progress(what)) return all;
          const WorkOptions o{.batch = batch, .compiled = compiled, .this_backend = true};
          if (round == 0) all.push_back({what, machine_step(dry_run(job, o), m).value, 0});
          const double seconds = measure(job, o, 5).seconds;
          TimeCheck& c = all[at++];
          c.measured = round == 0 ? seconds : std::min(c.measured, seconds);
        }
  }
  return all;
}

}  // namespace tandem::plan
