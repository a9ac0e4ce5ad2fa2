// SPDX-License-Identifier: Apache-2.0
// Checkpoints: what is loaded is always something that was saved, whatever fails in between:
// truncated and flipped files, failing system calls, SIGKILL at any moment. A resumed run gives the
// bits of the undisturbed one.
#include "tandem/train/checkpoint.h"

#include <sched.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cstring>
#include <thread>

#include "tandem/base/files/file_faults_internal.h"
#include "tandem/base/files/temporaries_internal.h"
#include "tandem/base/hash/crc32c.h"
#include "tandem/base/philox.h"
#include "tandem/runs/run_folder.h"
#include "tandem/tandem.h"
#include "tandem/train/run_state.h"
#include "tests/io/io_helper.h"
#include "tests/support/init.h"
#include "tests/support/states.h"
#include "tests/train/child.h"

namespace tandem::train {
namespace {

Snapshot numbered(int64_t step, std::optional<double> score = {}) {
  Snapshot s;
  s.step = step;
  s.model["w"] = full({3, 4}, static_cast<double>(step));
  s.optimizer["m"] = full({5}, static_cast<double>(-step));
  s.state = io::Json::Object{{"step", step}};
  s.files = {{"recipe.yaml", fmt::format("recipe of {}\n", step)}};
  s.score = score;
  return s;
}

// Checks that `s` is what numbered(s.step) saved, all of it.
void expect_whole(const Snapshot& s) {
  const Snapshot want = numbered(s.step);
  EXPECT_TRUE(equal(s.model.at("w"), want.model.at("w"))) << s.step;
  EXPECT_TRUE(equal(s.optimizer.at("m"), want.optimizer.at("m"))) << s.step;
  EXPECT_EQ(s.state.dump(), want.state.dump());
  EXPECT_EQ(s.files, want.files);
}

std::vector<int64_t> steps(const Checkpoints& c) {
  std::vector<int64_t> out;
  for (const std::string& path : c.list()) out.push_back(load_checkpoint(path).step);
  return out;
}

TEST(Crc32c, KnownValues) {  // RFC 3720, B.4
  EXPECT_EQ(crc32c(std::string(32, '\0')), 0x8A9136AAu);
  EXPECT_EQ(crc32c(std::string(32, '\xff')), 0x62A8AB43u);
  EXPECT_EQ(crc32c("123456789"), 0xE3069283u);
  EXPECT_EQ(crc32c("6789", crc32c("12345")), 0xE3069283u);
}

TEST(Checkpoints, KeepsTheLastAndTheBest) {
  for (bool async : {false, true}) {
    TempFolder f;
    Checkpoints c(f / "ckpt", {.keep_last = 2, .keep_best = 2, .async = async});
    EXPECT_FALSE(c.load_latest());
    const double scores[] = {0.1, 0.9, 0.5, 0.8, 0.2, 0.3, 0.85};
    for (int64_t i = 0; i < 7; ++i) c.save(numbered(i, scores[i]));
    c.wait();
    EXPECT_EQ(steps(c), (std::vector<int64_t>{6, 5, 1})) << async;  // 6 is among the best, too
    expect_whole(*c.load_latest());
    EXPECT_EQ(c.load_latest()->step, 6);
    EXPECT_EQ(c.load_best()->step, 1);
    EXPECT_EQ(read_file(f / "ckpt/latest"), "step-00000006\n");
    // The same step again is kept in addition to the first.
    c.save(numbered(6));
    c.wait();
    EXPECT_EQ(c.list()[0], f / "ckpt/step-00000006-1");
    EXPECT_EQ(c.list().size(), 3u);
  }
}

TEST(Checkpoints, SnapshotsDoNotChange) {
  TempFolder f;
  Checkpoints c(f / "ckpt");
  nn::Linear net(100, 100);
  optim::SGD opt(net.parameters(), {.lr = 0.1});
  Tensor before = net.weight.value() + 0.0;
  c.save(snapshot({.model = &net, .optimizer = &opt}, 1));
  for (int i = 0; i < 20; ++i) {
    opt.zero_grad();
    net(ones({2, 100})).sum().backward();
    opt.step();
  }
  c.wait();
  EXPECT_TRUE(equal(c.load_latest()->model.at("weight"), before));
  EXPECT_FALSE(equal(net.weight.value(), before));
}

TEST(Checkpoints, DamagedOnesAreSkippedAndStay) {
  for (const char* file :
       {"model.safetensors", "optimizer.safetensors", "state.json", "recipe.yaml", "MANIFEST"})
    for (const char* damage : {"flip", "cut", "gone", "longer"}) {
      TempFolder f;
      Checkpoints c(f / "ckpt", {.async = false});
      c.save(numbered(1));
      c.save(numbered(2));
      const std::string path = c.list()[0] + "/" + file;
      std::string content = read_file(path);
      if (!std::strcmp(damage, "flip")) content[content.size() / 2] ^= 1;
      if (!std::strcmp(damage, "cut")) content.resize(content.size() - 1);
      if (!std::strcmp(damage, "longer")) content += '\0';
      if (!std::strcmp(damage, "gone"))
        std::filesystem::remove(path);
      else
        write_file(path, content);
      auto loaded = c.load_latest();
      ASSERT_TRUE(loaded) << file << " " << damage;
      EXPECT_EQ(loaded->step, 1) << file << " " << damage;
      expect_whole(*loaded);
      for (int64_t i = 3; i < 7; ++i) c.save(numbered(i));
      EXPECT_EQ(c.load_latest()->step, 6);
      const bool whole_list = std::strcmp(file, "MANIFEST") != 0;
      EXPECT_EQ(file_exists(f / "ckpt/step-00000002"), !whole_list) << file << " " << damage;
    }
}

TEST(Checkpoints, WithoutLatestTheNewestCounts) {
  TempFolder f;
  Checkpoints c(f / "ckpt", {.async = false});
  for (int64_t i = 1; i < 4; ++i) c.save(numbered(i));
  write_file(f / "ckpt/latest", "step-00000001\n");
  EXPECT_EQ(c.load_latest()->step, 1);  // what `latest` says holds
  write_file(f / "ckpt/latest", "../../etc\n");
  EXPECT_EQ(c.load_latest()->step, 3);
  std::filesystem::remove(f / "ckpt/latest");
  EXPECT_EQ(c.load_latest()->step, 3);
}

TEST(Checkpoints, SweepsWhatDeadProcessesLeft) {
  TempFolder f;
  // Of this process's own pid: in a container every process has the same one.
  const std::string dead = tandem::detail::temporary_name(f / "step-00000009");
  std::filesystem::create_directories(dead);
  write_file(dead + "/model.safetensors", "half");
  write_file(f / "latest.tmp-0123abcd-1-0", "of another machine, and new");
  Checkpoints c(f.path());
  EXPECT_FALSE(c.load_latest());
  EXPECT_TRUE(file_exists(dead));  // who only reads removes nothing
  c.claim();
  EXPECT_FALSE(file_exists(dead));
  EXPECT_TRUE(file_exists(f / "latest.tmp-0123abcd-1-0"));
  std::filesystem::last_write_time(
      f / "latest.tmp-0123abcd-1-0",
      std::filesystem::file_time_type::clock::now() - std::chrono::hours(2));
  c.release();
  c.claim();
  EXPECT_FALSE(file_exists(f / "latest.tmp-0123abcd-1-0"));
  EXPECT_TRUE(c.list().empty());
}

TEST(Checkpoints, TheSecondWriterIsRefusedByName) {
  TempFolder f;
  int ends[2];
  ASSERT_EQ(::pipe(ends), 0);
  const pid_t child = ::fork();
  if (child == 0) {
    Checkpoints c(f / "ckpt", {.keep_last = 2, .async = false});
    c.save(numbered(1));
    if (::write(ends[1], "x", 1) == 1)
      for (;;) ::pause();
    ::_exit(1);
  }
  char byte;
  ASSERT_EQ(::read(ends[0], &byte, 1), 1);
  Checkpoints c(f / "ckpt", {.keep_last = 1, .async = false});
  const std::string what = error_of([&] { c.save(numbered(2)); });
  EXPECT_TRUE(what.starts_with(fmt::format(
      "Io: the folder of checkpoints '{}' is in use by process {} on host '", f / "ckpt", child)))
      << what;
  expect_whole(*c.load_latest());  // reading needs no lock
  EXPECT_EQ(c.load_latest()->step, 1);
  ::kill(child, SIGKILL);
  ::waitpid(child, nullptr, 0);
  c.save(numbered(2));
  EXPECT_EQ(steps(c), std::vector<int64_t>{2});
  ::close(ends[0]);
  ::close(ends[1]);
}

// Fails one call in `every` on average, by a seed: errors, short writes and files that look
// shorter.
class RandomFaults : public tandem::detail::FileFaults {
 public:
  RandomFaults(uint64_t seed, uint64_t every) : draw_(seed), every_(every) {
    tandem::detail::g_file_faults = this;
  }
  ~RandomFaults() override { tandem::detail::g_file_faults = nullptr; }
  int error(tandem::detail::FileOp, const std::string&) override {
    if (draw_.next_below(every_) != 0) return 0;
    ++count;
    constexpr int kErrors[] = {EIO, ENOSPC, EDQUOT, EACCES};
    return kErrors[draw_.next_below(4)];
  }
  size_t bytes(tandem::detail::FileOp op, const std::string&, size_t wanted) override {
    if (wanted == 0 || draw_.next_below(every_) != 0) return wanted;
    ++count;
    const uint64_t some = draw_.next_below(wanted);
    return op == tandem::detail::FileOp::write ? std::max<uint64_t>(some, 1) : some;
  }
  int64_t count = 0;

 private:
  PhiloxStream draw_;
  uint64_t every_;
};

TEST(Checkpoints, NoFaultEverLoadsWrong) {
  int64_t faults = 0, saved = 0, failed = 0, loads = 0;
  for (uint64_t round = 0; faults < 1000; ++round) {
    TempFolder f;
    int64_t newest = -1;
    Checkpoints c(f / "ckpt", {.keep_last = 2, .async = false, .retries = 0});
    c.save(numbered(0));
    for (int64_t step = 1; step < 12; ++step) {
      {
        RandomFaults random(round * 100 + static_cast<uint64_t>(step), 12 + round * 7 % 40);
        try {
          c.save(numbered(step));
          newest = step;
          ++saved;
        } catch (const Error& e) {
          EXPECT_TRUE(e.kind() == ErrorKind::Io || e.kind() == ErrorKind::Format) << e.what();
          ++failed;
        }
        try {  // reading under faults: nothing, an error, or something whole
          if (auto s = c.load_latest()) expect_whole(*s);
          ++loads;
        } catch (const Error& e) {
          EXPECT_TRUE(e.kind() == ErrorKind::Io || e.kind() == ErrorKind::Format) << e.what();
        }
        faults += random.count;
      }
      auto s = c.load_latest();
      ASSERT_TRUE(s) << "round " << round << " step " << step;
      expect_whole(*s);
      EXPECT_GE(s->step, newest);  // a save that was reported is there
    }
  }
  EXPECT_GT(saved, 20);
  EXPECT_GT(failed, 20);
  EXPECT_GT(loads, 20);
}

TEST(Checkpoints, TriesAgainAndReportsLater) {
  TempFolder f;
  struct Once : tandem::detail::FileFaults {
    int left;
    explicit Once(int n) : left(n) { tandem::detail::g_file_faults = this; }
    ~Once() override { tandem::detail::g_file_faults = nullptr; }
    int error(tandem::detail::FileOp op, const std::string&) override {
      return op == tandem::detail::FileOp::sync && left-- > 0 ? EIO : 0;
    }
  };
  Checkpoints c(f / "ckpt", {.retries = 2});
  {
    Once twice(2);
    c.save(numbered(1));
    c.wait();
  }
  EXPECT_EQ(c.load_latest()->step, 1);
  {
    Once always(1000);
    c.save(numbered(2));
    std::string what = error_of([&] { c.wait(); });
    EXPECT_EQ(what.rfind("Io: cannot write '", 0), 0u) << what;
  }
  c.save(numbered(3));
  c.wait();
  EXPECT_EQ(steps(c), (std::vector<int64_t>{3, 1}));
}

// As of processes that are killed after their checkpoint has its name and before older ones go.
TEST(Checkpoints, SavesThatEndHalfwayLeaveOneTooManyAtMost) {
  struct NeverNamed : tandem::detail::FileFaults {
    NeverNamed() { tandem::detail::g_file_faults = this; }
    ~NeverNamed() override { tandem::detail::g_file_faults = nullptr; }
    int error(tandem::detail::FileOp op, const std::string& path) override {
      return op == tandem::detail::FileOp::write && path.find("/latest") != path.npos ? EIO : 0;
    }
  };
  TempFolder f;
  const auto save = [&](int64_t step) {
    Checkpoints(f / "ckpt", {.keep_last = 2, .async = false, .retries = 0}).save(numbered(step));
  };
  for (const int64_t step : {8, 9}) save(step);
  for (int64_t step = 1; step < 5; ++step) {  // begun again: lower numbers are newer
    const NeverNamed faults;
    EXPECT_EQ(error_of([&] { save(step); }).rfind("Io: cannot write '", 0), 0U) << step;
    EXPECT_LE(Checkpoints(f / "ckpt").list().size(), 3U) << step;
  }
  expect_whole(*Checkpoints(f / "ckpt").load_latest());
  EXPECT_EQ(Checkpoints(f / "ckpt").load_latest()->step, 9);
  save(5);
  EXPECT_EQ(steps(Checkpoints(f / "ckpt")), (std::vector<int64_t>{9, 5}));
}

// ---- exact resume

struct CheckpointNet : nn::Module {
  nn::Linear fc1{64, 32}, fc2{32, 10};
  nn::BatchNorm1d norm{32};
  nn::Dropout drop{0.2};
  CheckpointNet() { TD_REGISTER(fc1, norm, drop, fc2); }
  Tensor forward(Tensor x) { return fc2(drop(relu(norm(fc1(x.flatten(1)))))); }
};

/// A run with everything that holds state, in a loop written by hand.
struct CheckpointWork {
  CheckpointNet net;
  optim::AdamW opt{net.parameters(), {.lr = 1e-2}};
  optim::CosineAnnealingLR schedule{opt, {.T_max = 200}};
  optim::AveragedModel<CheckpointNet> average{net, {.decay = 0.9}};
  data::Pipeline<data::Example> batches =
      data::pipeline(data::Digits(), {.seed = 11}).shuffle().batch(64).map([](data::Example e) {
        e.x = e.x + randn(e.x.shape()) * 0.05;
        return e;
      });
  int64_t step = 0;

  RunParts parts() {
    return {.model = &net,
            .optimizer = &opt,
            .schedule = &schedule,
            .data = &batches,
            .extra = {{"average", [this] { return average.state_dict(); },
                       [this](const StateDict& s) { average.load_state_dict(s); }}}};
  }
  // Until step `last`; `save` is called after every `every` steps.
  void go(int64_t last, int64_t every, const std::function<void()>& save) {
    auto update = compile([this](Tensor x, Tensor y) {
      opt.zero_grad();
      Tensor loss = cross_entropy(net(x), y);
      loss.backward();
      opt.step();
      return loss;
    });
    while (step < last)
      for (const auto& [x, y] : batches) {
        update(x, y);
        schedule.step();
        average.update_parameters(net);
        if (++step % every == 0) save();
        if (step == last) return;
      }
  }
};

TEST(Resume, GivesTheBitsOfTheUndisturbedRun) {
  manual_seed(3);
  CheckpointWork whole;
  whole.go(50, 1000, [] {});
  const Snapshot want = snapshot(whole.parts(), 50);
  for (int64_t stop : {1, 22, 23, 24, 37}) {  // an epoch has 23 batches
    TempFolder f;
    {
      manual_seed(3);
      CheckpointWork first;
      Checkpoints c(f.path());
      first.go(stop, stop, [&] { c.save(snapshot(first.parts(), first.step, "note")); });
    }
    manual_seed(99);  // all that matters is in the checkpoint
    CheckpointWork second;
    Checkpoints c(f.path());
    auto loaded = c.load_latest();
    ASSERT_TRUE(loaded);
    const io::Json more = restore(second.parts(), *loaded);
    ASSERT_TRUE(more.as_string());
    EXPECT_EQ(*more.as_string(), "note");
    second.step = loaded->step;
    second.go(50, 1000, [] {});
    const Snapshot got = snapshot(second.parts(), 50);
    expect_same(got.model, want.model);
    expect_same(got.optimizer, want.optimizer);
    EXPECT_EQ(got.state.dump(), want.state.dump()) << stop;
  }
  CheckpointNet other;
  optim::SGD sgd(other.parameters(), {});
  EXPECT_EQ(error_of([&] { restore({.model = &other, .optimizer = &sgd}, want); }),
            "Value: the checkpoint of step 50 was saved by a run of (AdamW, schedule, data, "
            "average), this one has (SGD).");
}

// The child of the next test; by itself it is a short run that must end.
TEST(ResumeChild, Run) {
  const char* given = std::getenv("TANDEM_TEST_RUN");
  TempFolder own;
  const std::string folder = given ? given : own.path().string();
  manual_seed(3);
  CheckpointWork work;
  Checkpoints c(folder + "/ckpt", {.keep_last = 2});
  if (auto s = c.load_latest()) {
    restore(work.parts(), *s);
    work.step = s->step;
  }
  work.go(given ? 400 : 20, 3, [&] { c.save(snapshot(work.parts(), work.step)); });
  c.wait();
  save(work.net.state_dict(), folder + "/final.safetensors");
  EXPECT_EQ(work.step, given ? 400 : 20);
}

TEST(ResumeSlow, KilledAtAnyMoment) {
  TempFolder f;
  std::filesystem::create_directory(f / "whole");
  int status = 0;
  ::waitpid(start_child("ResumeChild.Run", "TANDEM_TEST_RUN", f / "whole"), &status, 0);
  ASSERT_EQ(status, 0);
  const StateDict want = load(f / "whole/final.safetensors");
  const char* asked = std::getenv("TANDEM_KILLS");
  const int kills = asked ? std::atoi(asked) : 10;
  PhiloxStream draw(2024);
  int killed = 0, ended = 0, runs = 0;
  while (killed < kills) {
    const std::string folder = f / fmt::format("run{}", runs++);
    std::filesystem::create_directory(folder);
    while (true) {
      const pid_t child = start_child("ResumeChild.Run", "TANDEM_TEST_RUN", folder);
      const bool kill = killed < kills;
      if (kill) {
        std::this_thread::sleep_for(std::chrono::milliseconds(30 + draw.next_below(700)));
        ::kill(child, SIGKILL);
      }
      ::waitpid(child, &status, 0);
      killed += WIFSIGNALED(status);
      if (!WIFSIGNALED(status)) break;
    }
    ASSERT_EQ(status, 0);
    ++ended;
    expect_same(load(folder + "/final.safetensors"), want);
  }
  std::printf("%d kills, %d runs came to the undisturbed run's weights\n", killed, ended);
}

// The child of the next test: saves what takes a while, without an end.
TEST(ContainerChild, Saves) {
  const char* given = std::getenv("TANDEM_TEST_CONTAINER");
  TempFolder own;
  const std::string folder = given ? given : own.path().string();
  const runs::RunLock lock(folder);
  runs::RunFolder run(folder, {{"recipe.yaml", "recipe: r\n"}});
  Checkpoints c(folder + "/checkpoints", {.keep_last = 2});
  Snapshot s = numbered(0);
  s.model["large"] = full({1 << 20}, 1.0);
  for (int64_t step = 1; given || step < 4; ++step) {
    s.step = step;
    c.save(s);
    run.log(step, 0, {{"train/loss", 1.0}});
    write_file(folder + "/report.html", std::string(1 << 16, 'x'));
  }
}

// As a container's restarts: each process is pid 1 of a namespace of its own, and is killed.
TEST(Checkpoints, KilledInContainersNothingIsLeftBehind) {
  const char* asked = std::getenv("TANDEM_KILLS");
  const int kills = asked ? std::atoi(asked) : 10;
  TempFolder f;
  PhiloxStream draw(77);
  int killed = 0;
  for (int k = 0; k < kills; ++k) {
    const auto pause = std::chrono::milliseconds(60 + draw.next_below(150));
    const pid_t outer = ::fork();
    if (outer == 0) {
      if (::unshare(CLONE_NEWPID) != 0 && ::unshare(CLONE_NEWUSER | CLONE_NEWPID) != 0) ::_exit(77);
      const pid_t first = start_child("ContainerChild.Saves", "TANDEM_TEST_CONTAINER", f / "run");
      // The first one lives until it has saved, however slow the machine is.
      for (int i = 0; k == 0 && i < 6000 && Checkpoints(f / "run/checkpoints").list().empty(); ++i)
        std::this_thread::sleep_for(std::chrono::milliseconds(10));
      std::this_thread::sleep_for(pause);
      ::kill(first, SIGKILL);
      int status = 0;
      ::waitpid(first, &status, 0);
      ::_exit(WIFSIGNALED(status) ? 0 : 1);
    }
    int status = 0;
    ::waitpid(outer, &status, 0);
    if (WIFEXITED(status) && WEXITSTATUS(status) == 77)
      GTEST_SKIP() << "no pid namespaces here: unshare() is not permitted";
    ASSERT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << "the child ended by itself";
    ++killed;
  }
  size_t left = 0;
  const auto look = [&] {
    left = 0;
    for (const auto& e : std::filesystem::recursive_directory_iterator(f / "run"))
      left += e.path().filename().string().find(".tmp-") != std::string::npos;
  };
  look();
  std::printf("%d kills; the last one left %zu\n", killed, left);
  {
    const runs::RunLock lock(f / "run");
    const runs::RunFolder run(f / "run", {});
    Checkpoints c(f / "run/checkpoints");
    c.claim();
    EXPECT_LE(c.list().size(), 3U);
    const auto latest = c.load_latest();
    ASSERT_TRUE(latest);
    EXPECT_GT(latest->step, 0);
  }
  look();
  EXPECT_EQ(left, 0U);
  EXPECT_FALSE(file_exists(f / "run/LOCK"));
  EXPECT_FALSE(file_exists(f / "run/checkpoints/LOCK"));
}

TEST(RunLocks, EndedByASignalLeaveNoEmptyFolder) {
  TempFolder f;
  make_folders(f / "there");
  for (const int signal : {SIGINT, SIGTERM, SIGHUP}) {
    const pid_t child = ::fork();
    if (child == 0) {
      std::signal(signal, runs::end_by_signal);
      const runs::RunLock empty(f / "runs/empty"), there(f / "there"), used(f / "used");
      write_file(f / "used/recipe.yaml", "recipe: r\n");
      { const runs::RunLock over(f / "over"); }
      make_folders(f / "over");
      ::raise(signal);
      ::_exit(1);
    }
    int status = 0;
    ::waitpid(child, &status, 0);
    EXPECT_TRUE(WIFSIGNALED(status) && WTERMSIG(status) == signal) << status;
    EXPECT_TRUE(file_exists(f / "runs"));
    EXPECT_FALSE(file_exists(f / "runs/empty"));
    for (const char* kept : {"there", "over", "used/recipe.yaml"})
      EXPECT_TRUE(file_exists(f / kept)) << kept;
  }
}

TEST(StopGuard, TurnsSignalsIntoAQuestion) {
  EXPECT_FALSE(stop_requested());
  {
    StopGuard outer;
    StopGuard inner;
    ::raise(SIGTERM);
    EXPECT_TRUE(stop_requested());
    EXPECT_EQ(stop_signal(), SIGTERM);
  }
  EXPECT_FALSE(stop_requested());
  const pid_t child = ::fork();
  if (child == 0) {
    ::signal(SIGINT, SIG_DFL);  // a shell in the background hands it on ignored
    StopGuard guard;
    ::raise(SIGINT);
    ::raise(SIGINT);
    ::_exit(0);
  }
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFEXITED(status));
  EXPECT_EQ(WEXITSTATUS(status), 130);
}

}  // namespace
}  // namespace tandem::train
