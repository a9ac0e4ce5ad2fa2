// SPDX-License-Identifier: Apache-2.0
// Compiled loops at run time: requests, the check on real data, swapping in; and possible failures
// of the disk and of compilers. Fake compilers are scripts of the test.
#include "tandem/codegen/jit.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include <chrono>
#include <filesystem>
#include <fstream>
#include <set>

#include "jit_helper.h"
#include "tandem/codegen/plan_use.h"
#include "tandem/codegen/pointwise.h"
#include "tandem/codegen/row_program.h"
#include "tandem/codegen/row_programs.h"
#include "tandem/graph/expression/scalar_expr.h"

namespace tandem {
namespace {

namespace fs = std::filesystem;
using codegen::Access;
using codegen::JitSource;
using detail::CCompiler;
using detail::JitCache;

// A loop whose text no other test has.
ScalarProgram program_number(int number) {
  ScalarGraph g(2);
  g.add_output(tanh(g.input(0)) * static_cast<double>(number) + g.input(1));
  const DType in[] = {DType::f32, DType::f32}, out[] = {DType::f32};
  return lower(g, in, DType::f32, out);
}
PlanCase case_number(int number) {
  return {"number", program_number(number), {Access::dense, Access::dense}};
}
JitSource source_number(int number) {
  // Constants are values, not text: a comment makes texts differ.
  return {"td_n" + std::to_string(number), codegen::emit_c(case_number(number).plan, "TDM_NAME") +
                                               "/* " + std::to_string(number) + " */\n"};
}

std::string script(const std::string& path, const std::string& body) {
  std::ofstream(path) << "#!/bin/sh\n" << body << "\n";
  fs::permissions(path, fs::perms::owner_all);
  return path;
}

std::vector<fs::path> kept_in(const std::string& directory) {
  std::vector<fs::path> files;
  for (const auto& e : fs::directory_iterator(directory)) {
    if (e.path().extension() == ".so") files.push_back(e.path());
  }
  return files;
}
size_t leftovers(const std::string& directory) {
  size_t n = 0;
  for (const auto& e : fs::directory_iterator(directory)) n += e.is_directory();
  return n;
}

// ---- the compiler and its directory

class Compiled : public ::testing::Test {
 protected:
  void SetUp() override {
    if (compilers().empty()) GTEST_SKIP() << "no C compiler";
    real = compilers()[0];
    cache = directory.path + "/cache";
  }
  std::unique_ptr<CCompiler> compiler(const std::string& path, double seconds = 60,
                                      int64_t cap = int64_t{256} << 20) const {
    return std::make_unique<CCompiler>(detail::JitOptions{path, cache, cap, seconds, {}});
  }
  TemporaryDirectory directory;
  std::string real, cache;
};

TEST_F(Compiled, IsFoundOnDiskByTheNextProcess) {
  std::vector<JitSource> first = {source_number(1), source_number(2)}, second = first;
  EXPECT_EQ(compiler(real)->compile(first), "");
  ASSERT_TRUE(first[0].code && first[1].code);
  EXPECT_FALSE(first[0].cached);
  EXPECT_EQ(kept_in(cache).size(), 2u);
  EXPECT_EQ(leftovers(cache), 0u);
  EXPECT_EQ(fs::status(cache).permissions() & fs::perms::all, fs::perms::owner_all);
  // Another order and neighbours: each loop has its own key.
  std::swap(second[0], second[1]);
  second.push_back(source_number(3));
  EXPECT_EQ(compiler(real)->compile(second), "");
  EXPECT_TRUE(second[0].cached && second[1].cached);
  EXPECT_FALSE(second[2].cached);
  for (const JitSource& s : second) ASSERT_TRUE(s.code);
  EXPECT_TRUE(both_equal(case_number(2), second[0].code, 70, 1));
}

TEST_F(Compiled, KeyHoldsTheCompilerAndTheText) {
  std::vector<JitSource> a = {source_number(1)}, b = a, c = {source_number(4)};
  compiler(real)->compile(a);
  const std::string other =
      script(directory.path + "/other",
             "[ \"$1\" = --version ] && echo other 2.0 && exit\nexec " + real + " \"$@\"");
  EXPECT_EQ(compiler(other)->compile(b), "");
  ASSERT_TRUE(b[0].code);
  EXPECT_FALSE(b[0].cached);
  compiler(real)->compile(c);
  EXPECT_FALSE(c[0].cached);
  EXPECT_EQ(kept_in(cache).size(), 3u);
}

TEST_F(Compiled, CutAndChangedFilesAreMadeAgain) {
  std::vector<JitSource> first = {source_number(5)};
  compiler(real)->compile(first);
  const fs::path file = kept_in(cache).at(0);
  const auto size = fs::file_size(file);
  const auto spoil = [&](auto&& how) {
    // Never in place: the first load still has the file mapped.
    const fs::path copy = directory.path + "/copy";
    fs::copy_file(file, copy, fs::copy_options::overwrite_existing);
    how(copy);
    fs::rename(copy, file);
    std::vector<JitSource> again = {source_number(5)};
    EXPECT_EQ(compiler(real)->compile(again), "");
    EXPECT_TRUE(again[0].code);
    EXPECT_FALSE(again[0].cached);
    EXPECT_EQ(fs::file_size(file), size);
  };
  spoil([&](const fs::path& p) { fs::resize_file(p, size / 2); });
  spoil([&](const fs::path& p) { fs::resize_file(p, 0); });
  spoil([&](const fs::path& p) { fs::resize_file(p, size - 1); });
  spoil([&](const fs::path& p) {
    std::fstream f(p, std::ios::in | std::ios::out | std::ios::binary);
    f.seekp(static_cast<std::streamoff>(size / 2));
    f.put('!');
  });
  spoil([&](const fs::path& p) { std::ofstream(p) << std::string(100000, 'x'); });
  std::vector<JitSource> whole = {source_number(5)};
  compiler(real)->compile(whole);
  EXPECT_TRUE(whole[0].cached);
}

TEST_F(Compiled, DirectoriesThatOthersMayWriteAreNotUsed) {
  fs::create_directory(cache);
  chmod(cache.c_str(), 0777);
  std::vector<JitSource> s = {source_number(6)};
  const std::string problem = compiler(real)->compile(s);
  EXPECT_NE(problem.find("others may write"), std::string::npos) << problem;
  EXPECT_TRUE(s[0].code);  // made in a private place, not kept
  EXPECT_TRUE(both_equal(case_number(6), s[0].code, 70, 1));
  EXPECT_TRUE(kept_in(cache).empty());
  EXPECT_EQ(leftovers(cache), 0u);
}

TEST_F(Compiled, DirectoriesOfAnotherUserAreNotUsed) {
  if (geteuid() != 0) GTEST_SKIP() << "needs to give a directory away";
  fs::create_directory(cache);
  chmod(cache.c_str(), 0700);
  ASSERT_EQ(chown(cache.c_str(), 12345, 12345), 0);
  std::vector<JitSource> s = {source_number(7)};
  const std::string problem = compiler(real)->compile(s);
  EXPECT_NE(problem.find("belongs to user 12345"), std::string::npos) << problem;
  EXPECT_TRUE(s[0].code);
  EXPECT_TRUE(kept_in(cache).empty());
}

TEST_F(Compiled, PlacesWithoutDirectoryKeepNothing) {
  std::ofstream(directory.path + "/file") << "x";
  for (const char* bad : {"/file/below", "/file"}) {
    cache = directory.path + bad;
    std::vector<JitSource> s = {source_number(8)};
    EXPECT_NE(compiler(real)->compile(s), "");
    EXPECT_TRUE(s[0].code);
  }
  cache = "/proc/tandem";
  std::vector<JitSource> s = {source_number(8)};
  EXPECT_NE(compiler(real)->compile(s).find("cannot be made"), std::string::npos);
  EXPECT_TRUE(s[0].code);
}

TEST_F(Compiled, OldestGoWhenTheCapIsReached) {
  auto c = compiler(real);
  std::vector<JitSource> s = {source_number(10)};
  c->compile(s);
  const fs::path old = kept_in(cache).at(0);
  const auto size = static_cast<int64_t>(fs::file_size(old));
  fs::last_write_time(old, fs::file_time_type::clock::now() - std::chrono::hours(20));
  c = compiler(real, 60, size * 5 / 2);
  for (int k = 11; k < 14; ++k) {
    std::vector<JitSource> more = {source_number(k)};
    c->compile(more);
    EXPECT_TRUE(more[0].code);
  }
  EXPECT_FALSE(fs::exists(old));
  EXPECT_LE(kept_in(cache).size(), 2u);
  EXPECT_GE(kept_in(cache).size(), 1u);
  EXPECT_TRUE(both_equal(case_number(10), s[0].code, 70, 1));  // still mapped
}

TEST_F(Compiled, TwoProcessesMayFillOneDirectory) {
  std::vector<pid_t> children;
  for (int child = 0; child < 3; ++child) {
    const pid_t pid = fork();
    if (pid == 0) {
      bool good = true;
      for (int round = 0; round < 3; ++round) {
        std::vector<JitSource> s = {source_number(20 + round), source_number(21 + round)};
        auto c = compiler(real);
        good = good && c->compile(s).empty() && s[0].code && s[1].code &&
               both_equal(case_number(20 + round), s[0].code, 70, 1);
      }
      _exit(good ? 0 : 1);
    }
    children.push_back(pid);
  }
  for (pid_t pid : children) {
    int status = -1;
    waitpid(pid, &status, 0);
    EXPECT_EQ(status, 0);
  }
  EXPECT_EQ(kept_in(cache).size(), 4u);
  EXPECT_EQ(leftovers(cache), 0u);
}

TEST_F(Compiled, ExitOfAForkedChildLeavesTheCompilerAlone) {
  const std::string started = directory.path + "/started";
  const std::string path =
      script(directory.path + "/slow", "[ \"$1\" = --version ] && echo v && exit\ntouch " +
                                           started + "\nsleep 0.5\nexec " + real + " \"$@\"");
  const auto c = compiler(path);
  for (int round = 0; round < 2; ++round) {
    std::vector<JitSource> s = {source_number(70 + round)};
    std::string problem;
    std::thread other([&] { problem = c->compile(s); });
    for (int k = 0; k < 10000 && !fs::exists(started); ++k) usleep(1000);
    std::fflush(nullptr);  // or the child prints it again
    const pid_t child = fork();
    if (child == 0) std::exit(0);
    int status = -1;
    EXPECT_EQ(waitpid(child, &status, 0), child);
    other.join();
    EXPECT_EQ(problem, "");
    EXPECT_TRUE(s[0].code);
    fs::remove(started);
  }
  EXPECT_FALSE(c->is_off());
  EXPECT_EQ(leftovers(cache), 0u);
}

TEST_F(Compiled, WhatDeadProcessesLeftIsRemoved) {
  fs::create_directories(cache + "/work-old/below");
  fs::create_directories(cache + "/work-new");
  std::ofstream(cache + "/work-old/loops.c") << "int x;";
  chmod(cache.c_str(), 0700);
  fs::last_write_time(cache + "/work-old",
                      fs::file_time_type::clock::now() - std::chrono::hours(3));
  const JitCache opened(cache, 1 << 20);
  EXPECT_FALSE(fs::exists(cache + "/work-old"));
  EXPECT_TRUE(fs::exists(cache + "/work-new"));
}

// ---- broken compilers: no code, a reason, and soon no more calls
struct Broken {
  const char *name, *body, *reason;
};

TEST_F(Compiled, BrokenCompilersGiveNoCode) {
  const std::string count = directory.path + "/count";
  const Broken kBroken[] = {
      {"fails", "echo x: no >&2; exit 3", "ended with 3: x: no"},
      {"silent", "exit 0", "wrote nothing"},
      {"rubbish", "while [ \"$1\" != -o ]; do shift; done; echo rubbish > \"$2\"",
       "cannot be loaded"},
      {"dies", "kill -9 $$", "ended with 137"},
      {"talks", "yes | head -c 3000000; exit 1", "ended with 1"},
  };
  for (const Broken& b : kBroken) {
    fs::remove(count);
    const std::string path =
        script(directory.path + "/" + b.name,
               "[ \"$1\" = --version ] && echo v && exit\necho x >> " + count + "\n" + b.body);
    const auto c = compiler(path);
    std::string problems;
    for (int k = 0; k < 6; ++k) {
      std::vector<JitSource> s = {source_number(30 + k)};
      problems += c->compile(s);
      EXPECT_FALSE(s[0].code) << b.name;
    }
    EXPECT_NE(problems.find(b.reason), std::string::npos) << b.name << ": " << problems;
    EXPECT_TRUE(c->is_off());
    EXPECT_EQ(fs::file_size(count), 6u) << b.name;  // three calls
    EXPECT_EQ(leftovers(cache), 0u);
    EXPECT_TRUE(kept_in(cache).empty() || std::string(b.name) == "rubbish");
    for (const fs::path& p : kept_in(cache)) fs::remove(p);
  }
}

TEST_F(Compiled, OneBadLoopDoesNotSpoilTheOthers) {
  std::vector<JitSource> s = {source_number(40), source_number(41), source_number(42)};
  s[1].text = "int TDM_NAME( {\n";
  const auto c = compiler(real);
  EXPECT_NE(c->compile(s), "");
  EXPECT_TRUE(s[0].code && s[2].code);
  EXPECT_FALSE(s[1].code);
  EXPECT_FALSE(c->is_off());
}

TEST_F(Compiled, HangingCompilersAreKilled) {
  const std::string path =
      script(directory.path + "/hangs", "[ \"$1\" = --version ] && echo v && exit\necho $$ > " +
                                            directory.path + "/pid\nsleep 1000 & wait");
  const auto c = compiler(path, 0.3);
  std::vector<JitSource> s = {source_number(50)};
  EXPECT_NE(c->compile(s).find("took more than 0.3 seconds"), std::string::npos);
  EXPECT_FALSE(s[0].code);
  EXPECT_TRUE(c->is_off());
  pid_t pid = 0;
  std::ifstream(directory.path + "/pid") >> pid;
  ASSERT_GT(pid, 0);
  EXPECT_NE(kill(pid, 0), 0);
}

TEST_F(Compiled, MissingCompilersAreNoError) {
  std::vector<JitSource> s = {source_number(60)};
  const auto c = compiler("no_such_compiler_here");
  EXPECT_NE(c->compile(s).find("is not a program"), std::string::npos);
  EXPECT_TRUE(c->is_off());
  EXPECT_FALSE(s[0].code);
  EXPECT_EQ(detail::find_program("no_such_compiler_here"), "");
  EXPECT_EQ(detail::find_program("/etc"), "");
}

// ---- the table: requests, checks, swaps

// Returns functions of the test.
class FakeCompiler : public codegen::JitCompiler {
 public:
  codegen::TileCode answer = nullptr;
  std::atomic<int> calls{0};
  std::string compile(std::span<JitSource> sources) override {
    ++calls;
    for (JitSource& s : sources) s.code = answer;
    return "";
  }
  std::string compiler() override { return "fake"; }
  std::string cache() override { return ""; }
  bool is_off() override { return false; }
};

std::atomic<int> right_calls{0};
int32_t off_by_a_bit(void* const* s, int64_t n) {
  ++right_calls;
  for (int64_t i = 0; i < n; ++i) {
    static_cast<float*>(s[2])[i] = static_cast<float*>(s[0])[i] - static_cast<float*>(s[1])[i];
  }
  static_cast<float*>(s[2])[n - 1] += 1;
  return 0;
}

// Runs program(x) -> y of f32 and gives y.
std::vector<float> run(const ScalarProgram& p, int n_in, bool in_place, int64_t n = 5000) {
  std::vector<Buffer8> x;
  std::vector<Array> in;
  for (int k = 0; k < n_in; ++k) {
    x.emplace_back(DType::f32, std::vector<int64_t>{n});
    x.back().fill(static_cast<uint64_t>(k) + 3);
  }
  for (Buffer8& b : x) in.push_back(b.array);
  Buffer8 y(DType::f32, {n});
  Array out = in_place ? in[0] : y.array;
  codegen::run_program(p, in.data(), n_in, &out, 1, nullptr, true);
  const float* data = out.as<float>();
  return {data, data + n};
}

class Swapping : public ::testing::Test {
 protected:
  void SetUp() override {
    codegen::set_jit_compiler(&fake);
    right_calls = 0;
  }
  void TearDown() override { codegen::set_jit_compiler(nullptr); }
  static FakeCompiler fake;
};
FakeCompiler Swapping::fake;

TEST_F(Swapping, OneStepIsNotWorthALoop) {
  ScalarGraph g(1);
  g.add_output(g.input(0) * 2 + 1);
  const DType f32[] = {DType::f32};
  static const ScalarProgram p = lower(g, f32, DType::f32, f32);
  const JitStats start = jit_stats();
  const codegen::JitScope scope;
  run(p, 1, false);
  EXPECT_EQ(jit_stats().requested, start.requested);
}

TEST_F(Swapping, FirstRunIsByBothThenCompiledAlone) {
  fake.answer = [](void* const* s, int64_t n) -> int32_t {
    ++right_calls;
    for (int64_t i = 0; i < n; ++i) {
      const float x = static_cast<float*>(s[0])[i], y = static_cast<float*>(s[1])[i];
      static_cast<float*>(s[2])[i] = (x + y) * (x - y);
    }
    return 0;
  };
  ScalarGraph g(2);
  g.add_output((g.input(0) + g.input(1)) * (g.input(0) - g.input(1)));
  const DType in[] = {DType::f32, DType::f32};
  static const ScalarProgram p = lower(g, in, DType::f32, std::span(in, 1));
  const std::vector<float> want = run(p, 2, false);
  const JitStats start = jit_stats();
  EXPECT_EQ(run(p, 2, false), want);
  EXPECT_EQ(jit_stats().requested, start.requested);  // eager asks for nothing
  const codegen::JitScope scope;
  EXPECT_EQ(run(p, 2, false), want);
  EXPECT_TRUE(wait_for_jit());
  EXPECT_EQ(right_calls, 0);
  EXPECT_EQ(jit_stats().requested, start.requested + 1);
  EXPECT_EQ(run(p, 2, false), want);  // both
  EXPECT_EQ(jit_stats().accepted, start.accepted + 1);
  const int both = right_calls;
  EXPECT_GT(both, 0);
  EXPECT_EQ(run(p, 2, false), want);  // compiled alone, in larger pieces
  EXPECT_GT(right_calls, both);
  EXPECT_LT(right_calls - both, both);
}

TEST_F(Swapping, OtherBitsAreDroppedAndNeverSeen) {
  fake.answer = off_by_a_bit;
  ScalarGraph g(2);
  g.add_output(sqrt(abs(g.input(0))) - g.input(1));
  const DType in[] = {DType::f32, DType::f32};
  static const ScalarProgram p = lower(g, in, DType::f32, std::span(in, 1));
  // In place too: the check must not read what was overwritten.
  const std::vector<float> want = run(p, 2, true);
  const JitStats start = jit_stats();
  const codegen::JitScope scope;
  run(p, 2, true);
  EXPECT_TRUE(wait_for_jit());
  ::testing::internal::CaptureStderr();
  EXPECT_EQ(run(p, 2, true), want);
  EXPECT_NE(::testing::internal::GetCapturedStderr().find("is dropped"), std::string::npos);
  EXPECT_EQ(jit_stats().differed, start.differed + 1);
  const int calls = right_calls;
  EXPECT_EQ(run(p, 2, true), want);
  EXPECT_EQ(right_calls, calls);
}

// The real compiler on real kernels: softmax and norms by rows, reductions, scans.
TEST_F(Swapping, RowProgramsKeepTheirBits) {
  if (compilers().empty()) GTEST_SKIP() << "no C compiler";
  const TemporaryDirectory directory;
  static CCompiler real({compilers()[0], directory.path + "/cache", 1 << 28, 600, {}});
  codegen::set_jit_compiler(&real);
  const JitStats start = jit_stats();
  for (DType t : {DType::f32, DType::bf16}) {
    Buffer8 x(t, {33, 200}), w(t, {200}), b(t, {200}), gy(t, {33, 200});
    Buffer8 mean(DType::f32, {33, 1}), rstd(DType::f32, {33, 1});
    x.fill(1);
    w.fill(2);
    b.fill(3);
    gy.fill(4);
    std::vector<Buffer8> first;
    for (int round = 0; round < 4; ++round) {
      Buffer8 y(t, {33, 200}), z(t, {33, 200}), s(t, {33, 200}), gx(t, {33, 200}), gw(t, {200}),
          gb(t, {200});
      const codegen::JitScope scope;
      codegen::NormArrays n;
      n.x = &x.array;
      n.w = &w.array;
      n.b = &b.array;
      n.mean = &mean.array;
      n.rstd = &rstd.array;
      n.y = &y.array;
      n.eps = 1e-5;
      codegen::run_norm(n);
      n.gy = &gy.array;
      n.gx = &gx.array;
      n.gw = &gw.array;
      n.gb = &gb.array;
      codegen::run_norm_backward(n);
      codegen::run_softmax(x.array, z.array, 1, false);
      codegen::run_softmax_backward(gy.array, z.array, s.array, 1, false);
      ASSERT_TRUE(wait_for_jit());
      std::vector<Buffer8> now;
      for (const Buffer8* r : {&y, &z, &s, &gx, &gw, &gb}) now.push_back(*r);
      if (round == 0) first.swap(now);
      if (round == 0) continue;
      for (size_t k = 0; k < now.size(); ++k) EXPECT_TRUE(same_bits(first[k], now[k])) << k;
    }
  }
  EXPECT_GT(jit_stats().accepted, start.accepted + 4);
  EXPECT_EQ(jit_stats().differed, start.differed);
}

}  // namespace
}  // namespace tandem
