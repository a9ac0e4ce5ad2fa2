// SPDX-License-Identifier: Apache-2.0
// One writer: another process, thread or container is refused by name, and the lock ends with its
// process, however that ends. What killed processes leave is swept, what living ones write is not.
#include "tandem/base/files/file_lock.h"

#include <pthread.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <functional>
#include <new>
#include <stdexcept>
#include <system_error>
#include <thread>

#include "tandem/base/failures.h"
#include "tandem/base/failures_internal.h"
#include "tandem/base/files/folder.h"
#include "tandem/base/files/temporaries_internal.h"
#include "tests/io/io_helper.h"

namespace tandem {
namespace {

// A child that has done `begin` when the constructor returns, and then waits to be killed.
struct Waiting {
  pid_t pid;
  explicit Waiting(const std::function<void()>& begin) {
    int ends[2];
    if (::pipe(ends) != 0) std::abort();
    pid = ::fork();
    if (pid == 0) {
      begin();
      if (::write(ends[1], "x", 1) == 1)
        for (;;) ::pause();
      ::_exit(1);
    }
    char c;
    if (::read(ends[0], &c, 1) != 1) std::abort();
    ::close(ends[0]);
    ::close(ends[1]);
  }
  void kill() {
    if (pid <= 0) return;
    ::kill(pid, SIGKILL);
    ::waitpid(pid, nullptr, 0);
    pid = 0;
  }
  ~Waiting() { kill(); }
};

TEST(FileLock, ASecondProcessIsRefusedByNameUntilTheFirstEnds) {
  TempFolder f;
  const std::string path = f / "LOCK";
  Waiting other([&] { new FileLock(path, "the folder 'a'"); });
  char host[256] = "";
  ::gethostname(host, sizeof host - 1);
  const std::string what = error_of([&] { FileLock(path, "the folder 'a'"); });
  EXPECT_TRUE(what.starts_with("Io: the folder 'a' is in use by process " +
                               std::to_string(other.pid) + " on host '" + host + "', since 20"))
      << what;
  EXPECT_TRUE(what.ends_with("Wait until it ends or stop it; or use another folder.")) << what;
  const auto who = FileLock::holder(path);
  ASSERT_TRUE(who);
  EXPECT_EQ(who->pid, other.pid);
  other.kill();
  EXPECT_TRUE(file_exists(path));  // nobody was left to remove it
  EXPECT_FALSE(FileLock::holder(path));
  {
    const FileLock mine(path, "the folder 'a'");
    EXPECT_TRUE(mine.held() && mine.is_first());
    EXPECT_EQ(FileLock::holder(path)->pid, ::getpid());
  }
  EXPECT_FALSE(file_exists(path));
}

TEST(FileLock, TheSameThreadMayTakeItAgainAnotherMayNot) {
  TempFolder f;
  auto first = std::make_unique<FileLock>(f / "LOCK", "the folder");
  auto second = std::make_unique<FileLock>(f.path() / "." / "LOCK", "the folder");
  EXPECT_FALSE(second->is_first());
  const auto in_thread = [&] {
    std::string what;
    std::thread([&] { what = error_of([&] { FileLock(f / "LOCK", "the folder"); }); }).join();
    return what;
  };
  EXPECT_EQ(in_thread(),
            "Io: the folder is in use by another thread of this process. Use another folder, or "
            "wait.");
  first.reset();
  EXPECT_NE(in_thread(), "no error");  // the second has it still
  second.reset();
  EXPECT_EQ(in_thread(), "no error");
}

TEST(FileLock, AForkedChildHasNoPartInIt) {
  TempFolder f;
  const std::string path = f / "LOCK", out = f / "grandchild";
  Waiting holder([&] {
    new FileLock(path, "the folder");
    Waiting grandchild([] {});
    write_file(out, std::to_string(grandchild.pid));
    grandchild.pid = 0;  // lives on
  });
  EXPECT_TRUE(FileLock::holder(path));
  holder.kill();
  EXPECT_FALSE(FileLock::holder(path));  // though its child still runs
  ::kill(std::stoi(read_file(out)), SIGKILL);
}

TEST(FileLock, ALinkIsNotFollowed) {
  TempFolder f;
  write_file(f / "precious", "text");
  ASSERT_EQ(::symlink((f / "precious").c_str(), (f / "LOCK").c_str()), 0);
  EXPECT_NE(error_of([&] { FileLock(f / "LOCK", "the folder"); }).find("cannot lock the folder"),
            std::string::npos);
  EXPECT_EQ(read_file(f / "precious"), "text");
}

// ---- what is left behind

size_t temporaries_in(const TempFolder& f) {
  size_t n = 0;
  for (const std::string& name : f.names()) n += detail::is_temporary(name);
  return n;
}

TEST(Temporaries, TheNextWriterSweepsWhatNobodyHolds) {
  TempFolder f;
  const auto begin = [&](const char* name) {
    return [&f, name] {
      auto* file = new AtomicFile(f / name);
      file->write(std::string(1 << 20, 'x'));
    };
  };
  Waiting dead(begin("model")), alive(begin("other"));
  dead.kill();
  EXPECT_EQ(temporaries_in(f), 2U);
  // Its pid is that of a living process: after a restart in a container every name looks so.
  write_file(f / "notes.tmp-1", "the user's own");
  EXPECT_EQ(temporaries_in(f), 1U);
  alive.kill();
  EXPECT_TRUE(file_exists(f / "notes.tmp-1"));
}

TEST(Temporaries, NamesAreToldFromOthers) {
  const std::pair<std::string, bool> cases[] = {
      {detail::temporary_name("model.safetensors"), true},
      {detail::temporary_name("a/step-00000012"), true},
      {"step-00000012.tmp-0123abcd-1-0", true},
      {"step-00000012", false},
      {"notes.tmp-1", false},
      {"notes.tmp-2026-11-23", false},
      {".tmp-0123abcd-1-0", false},
      {"a.tmp-0123abcd-1-0.txt", false},
      {"a.tmp-0123ABCD-1-0", false},
  };
  for (const auto& [name, want] : cases) EXPECT_EQ(detail::is_temporary(name), want) << name;
}

// ---- what the system refuses

TEST(Failures, HaveTheUsualText) {
  struct Case {
    std::function<void()> fail;
    const char* want;
  };
  const Case cases[] = {
      {[] { throw std::bad_alloc(); },
       "Memory: training: the system gave no memory for a list of the program's own. Use smaller "
       "sizes, or raise the limit of memory (ulimit -v, or the container's)."},
      {[] { std::string().reserve(std::string().max_size() + 1); },
       "Memory: training: a list was to be longer than any can be ("},
      {[] { throw std::system_error(EAGAIN, std::generic_category()); }, "Io: training: Resource "},
      {[] { TD_FAIL(Shape, "as it was"); }, "Shape: as it was."},
      {[] { throw std::runtime_error("foreign"); }, "other exception: foreign"},
  };
  for (const Case& k : cases) {
    const std::string what = error_of([&] {
      try {
        k.fail();
      } catch (...) {
        rethrow_as_error("training");
      }
    });
    EXPECT_TRUE(what.starts_with(k.want)) << what;
  }
}

TEST(Failures, AThreadThatTheSystemRefuses) {
  const pid_t child = ::fork();
  if (child == 0) {
    // A stack larger than all addresses there are.
    pthread_attr_t attributes;
    pthread_attr_init(&attributes);
    pthread_attr_setstacksize(&attributes, size_t{1} << 47);
    pthread_setattr_default_np(&attributes);
    const std::string what = error_of([] { start_thread("loading data", [] {}).join(); });
    const bool good = what.starts_with("Memory: cannot start a thread for loading data: ") &&
                      what.find("Raise the limit of processes (ulimit -u)") != std::string::npos;
    if (!good) std::fprintf(stderr, "%s\n", what.c_str());
    ::_exit(good ? 0 : 1);
  }
  int status = -1;
  ::waitpid(child, &status, 0);
  EXPECT_EQ(status, 0);
}

}  // namespace
}  // namespace tandem
