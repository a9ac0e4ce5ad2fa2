// SPDX-License-Identifier: Apache-2.0
// Where the measurements of this machine are kept: a place of this user's own, also without a home.
#include <sys/stat.h>
#include <unistd.h>

#include "tandem/base/files/folder.h"
#include "tandem/plan/hardware/catalog.h"
#include "tests/io/io_helper.h"
#include "tests/support/environment.h"

namespace tandem::plan {
namespace {

TEST(MachineProfile, NobodyElsesFileIsWrittenOrRead) {
  TempFolder f;
  make_folders(f / "tmp");
  const Environment tmp("TMPDIR", f / "tmp"), tandem("TANDEM_CACHE_DIR", ""),
      xdg("XDG_CACHE_HOME", ""), home("HOME", "");
  const std::string own = f / ("tmp/tandem-" + std::to_string(::geteuid()));
  const MachineProfile profile{
      .cpu = "a", .date = "2026-01-31", .threads = 2, .f32_flops = 1e9, .bandwidth = 1e9};
  EXPECT_EQ(machine_profile_path(), own + "/machine.json");
  EXPECT_NE(error_of([] { read_machine_profile(); }).find("this machine was not measured"),
            std::string::npos);
  EXPECT_EQ(write_machine_profile(profile), own + "/machine.json");
  EXPECT_EQ(read_machine_profile().threads, 2);
  struct stat s {};
  ASSERT_EQ(::stat((own + "/machine.json").c_str(), &s), 0);
  EXPECT_EQ(s.st_mode & 0777, 0600U);

  // A link that was laid there before, to a file of the user's.
  write_file(f / "precious", "text");
  ::unlink((own + "/machine.json").c_str());
  ASSERT_EQ(::symlink((f / "precious").c_str(), (own + "/machine.json").c_str()), 0);
  EXPECT_NE(error_of([] { read_machine_profile(); }).find("it is a symbolic link"),
            std::string::npos);
  write_machine_profile(profile);
  EXPECT_EQ(read_file(f / "precious"), "text");

  // The whole folder: another user's, or open to others.
  remove_folder(own);
  ::mkdir(own.c_str(), 0777);
  ::chmod(own.c_str(), 0777);
  for (int of_another = 0; of_another < (::geteuid() == 0 ? 2 : 1); ++of_another) {
    if (of_another) {
      ::chmod(own.c_str(), 0700);
      ASSERT_EQ(::chown(own.c_str(), 12345, 12345), 0);
    }
    const char* want = of_another ? "belongs to user 12345" : "others may write to ";
    EXPECT_EQ(machine_profile_path(), "");
    for (const std::string& what : {error_of([&] { write_machine_profile(profile); }),
                                    error_of([] { read_machine_profile(); })}) {
      EXPECT_TRUE(what.starts_with("Io: 'machine.json' has no place: ")) << what;
      EXPECT_NE(what.find(want), std::string::npos) << what;
    }
  }
  // A path that was given is the user's choice.
  EXPECT_EQ(write_machine_profile(profile, f / "a/b.json"), f / "a/b.json");
  EXPECT_EQ(read_machine_profile(f / "a/b.json").cpu, "a");
}

}  // namespace
}  // namespace tandem::plan
