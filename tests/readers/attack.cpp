// SPDX-License-Identifier: Apache-2.0
// Attacks every reader with mutated and with crafted files and counts: files read and refused,
// crashes, hangs, the most time and memory that one of them took. A file that crashes or hangs a
// reader is kept. Usage: tandem_attack [FILES] [READER ...]   FILES: mutated ones, 20000 unless
// told; all readers Exit code 0: no crash, no hang, all under 10 s and 1 GB.
#include <fmt/core.h>
#include <sys/mman.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstdlib>
#include <new>

#include "tandem/base/files/file.h"
#include "tandem/init.h"
#include "tests/readers/readers.h"

namespace tandem::readers {
namespace {

constexpr double kMostSeconds = 10;
constexpr uint64_t kMostBytes = uint64_t{1} << 30;

/// What the attacked process tells; it may die at any time.
struct Told {
  uint64_t next = 0;  ///< the file that is being read
  uint64_t read = 0, refused = 0, slow = 0, large = 0;
  Cost most;
  uint64_t slowest = 0, largest = 0;  ///< which files
};

struct Attack {
  const Reader& reader;
  std::vector<std::string> seeds;
  std::vector<const Crafted*> crafted;
  uint64_t mutated;
  uint64_t size() const { return crafted.size() + mutated; }
  /// File k, the same every time.
  std::string file(uint64_t k) const {
    if (k < crafted.size()) return crafted[k]->bytes();
    Random random(k);
    std::string bytes = seeds[k % seeds.size()];
    mutate(reader, bytes, random);
    return bytes;
  }
  std::string name(uint64_t k) const {
    return k < crafted.size() ? crafted[k]->name : fmt::format("{} {}", reader.name, k);
  }
};

void limit_time(double seconds) {
  itimerval t{};
  t.it_value.tv_sec = static_cast<time_t>(seconds);
  setitimer(ITIMER_PROF, &t, nullptr);  // the processor's time: other programs do not count
}

/// Reads files from told.next on until all are done or one ends the process.
void read_all(const Attack& a, Told& told) {
  for (; told.next < a.size(); ++told.next) {
    const std::string bytes = a.file(told.next);
    limit_time(2 * kMostSeconds);
    Outcome outcome{};
    const Cost cost = cost_of([&] { outcome = try_reading(a.reader, bytes); });
    limit_time(0);
    ++(outcome == Outcome::read ? told.read : told.refused);
    told.slow += cost.seconds > kMostSeconds;
    told.large += cost.bytes > kMostBytes;
    if (cost.seconds > kMostSeconds || cost.bytes > kMostBytes)
      fmt::print("  {}: {:.1f} s, {} MB\n", a.name(told.next), cost.seconds, cost.bytes >> 20);
    if (cost.seconds > told.most.seconds) {
      told.most.seconds = cost.seconds;
      told.slowest = told.next;
    }
    if (cost.bytes > told.most.bytes) {
      told.most.bytes = cost.bytes;
      told.largest = told.next;
    }
  }
}

/// One process after the other, until all files are done; the number of deaths by signal and time.
bool run(const Attack& a, uint64_t& crashes, uint64_t& hangs, uint64_t& files, Cost& most) {
  auto* told =
      ::new (mmap(nullptr, sizeof(Told), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0))
          Told;
  uint64_t crashed = 0, hung = 0;
  while (told->next < a.size()) {
    std::fflush(stdout);
    const pid_t child = fork();
    if (child == 0) {
      init();
      int code = 0;
      try {
        read_all(a, *told);
      } catch (const std::exception& e) {
        fmt::print("  {}: {}\n", a.name(told->next), e.what());
        code = 1;
      }
      std::fflush(stdout);
      _exit(code);
    }
    int status = 0;
    waitpid(child, &status, 0);
    if (WIFEXITED(status) && WEXITSTATUS(status) == 0) break;
    const bool late = WIFSIGNALED(status) && WTERMSIG(status) == SIGPROF;
    ++(late ? hung : crashed);
    const std::string kept = fmt::format("attack-{}-{}", a.reader.name, told->next);
    write_file(kept, a.file(told->next));
    fmt::print("  {}: {} ({}), kept as {}\n", a.name(told->next), late ? "hangs" : "crashes",
               WIFSIGNALED(status) ? strsignal(WTERMSIG(status)) : "an exception", kept);
    ++told->next;
  }
  fmt::print(
      "{:<14} {:>6} files, {:>6} read, {:>6} refused, {} crashes, {} hangs, at most {:.2f} s ({}) "
      "and {} MB ({})\n",
      a.reader.name, a.size(), told->read, told->refused, crashed, hung, told->most.seconds,
      a.name(told->slowest), told->most.bytes >> 20, a.name(told->largest));
  crashes += crashed;
  hangs += hung + told->slow;
  files += a.size();
  most.seconds = std::max(most.seconds, told->most.seconds);
  most.bytes = std::max(most.bytes, told->most.bytes);
  return crashed + hung + told->slow + told->large == 0;
}

int attack(int argc, char** argv) {
  const uint64_t wanted = argc > 1 ? std::strtoull(argv[1], nullptr, 10) : 20000;
  std::vector<const Reader*> chosen;
  for (int i = 2; i < argc; ++i) chosen.push_back(&find_reader(argv[i]));
  if (chosen.empty())
    for (const Reader& r : readers()) chosen.push_back(&r);
  uint64_t crashes = 0, hangs = 0, files = 0, crafted = 0;
  Cost most;
  bool good = true;
  for (size_t i = 0; i < chosen.size(); ++i) {
    // The process that reads is a child: seeds are made in another, so that this one stays small.
    Attack a{*chosen[i], {}, {}, wanted / chosen.size() + (i < wanted % chosen.size() ? 1 : 0)};
    a.seeds = seeds_of(a.reader);
    for (const Crafted& c : crafted_files())
      if (c.reader == std::string_view(a.reader.name)) a.crafted.push_back(&c);
    crafted += a.crafted.size();
    good = run(a, crashes, hangs, files, most) && good;
  }
  fmt::print(
      "{} mutated and {} crafted files over {} readers: {} crashes, {} hangs, at most {:.2f} s and "
      "{} MB\n",
      files - crafted, crafted, chosen.size(), crashes, hangs, most.seconds, most.bytes >> 20);
  return good ? 0 : 1;
}

}  // namespace
}  // namespace tandem::readers

int main(int argc, char** argv) {
  try {
    tandem::init();
    return tandem::readers::attack(argc, argv);
  } catch (const std::exception& e) {
    fmt::print(stderr, "{}\n", e.what());
    return 1;
  }
}
