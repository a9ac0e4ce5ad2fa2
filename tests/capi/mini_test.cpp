// SPDX-License-Identifier: Apache-2.0
// Programs in C99 with tandem_c.h: the same sources with libtandem-mini, as `tandem compile` writes
// it, and with libtandem, on this machine, under sanitizers, and on emulated processors.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>

#include "tandem/base/files/private_folder.h"
#include "tandem/onnx/onnx.h"
#include "tandem/tandem.h"
#include "tests/capi/capi_net.h"
#include "tests/support/errors.h"
#include "tests/support/init.h"
#include "tests/support/sanitized.h"

namespace tandem {
namespace {

const std::string kStrict = " -std=c99 -Wall -Wextra -Werror -pedantic ";

bool has_command(const std::string& name) {
  return std::system(("command -v " + name + " > /dev/null 2>&1").c_str()) == 0;
}
std::string repository_file(const std::string& name) {
  const char* root = std::getenv("TANDEM_SOURCE_DIR");
  return std::filesystem::absolute(root ? root : ".").string() + "/" + name;
}

/// A folder with net.onnx and, in mini, what the tool makes of it.
struct MiniFolder {
  std::string path = PrivateFolder::temporary("mini", true).path();
  explicit MiniFolder(const std::string& net, const std::string& options = "") {
    write_file(path + "/net.onnx", net);
    compile("net.onnx", options);
  }
  MiniFolder() = default;
  ~MiniFolder() { std::filesystem::remove_all(path); }
  MiniFolder(const MiniFolder&) = delete;
  MiniFolder& operator=(const MiniFolder&) = delete;
  void compile(const std::string& model, const std::string& options) const {
    const char* tool = std::getenv("TANDEM_TOOL");
    EXPECT_EQ(shell(std::string(tool ? tool : "tandem") + " compile " + model +
                    " --target mini -o mini " + options),
              0)
        << said();
  }
  int shell(const std::string& line) const {
    return std::system(("cd " + path + " && { " + line + "; } > said.txt 2>&1").c_str());
  }
  std::string said() const { return read_file(path + "/said.txt"); }
  /// Part `part` between lines of ``` in the README that begin so.
  std::string block(const std::string& readme, const std::string& kind, size_t part) const {
    const std::string text = read_file(readme), begin = "```" + kind + "\n";
    size_t at = text.find(begin);
    for (size_t k = 0; k < part && at != text.npos; ++k) at = text.find(begin, at + 1);
    EXPECT_NE(at, text.npos) << readme;
    return text.substr(at + begin.size(),
                       text.find("\n```", at + begin.size()) - at - begin.size());
  }
};

std::string program(const char* name) { return repository_file(std::string("tests/capi/") + name); }

// Prints the bits of what a right call gives.
constexpr const char* kPrints = R"C(
#include <stdio.h>
#include "net_call.h"
int main(int argc, char **argv) {
  tandem_model *model = NULL;
  net_call c;
  int i;
  if (tandem_load(argc > 1 ? argv[1] : NULL, NULL, &model) || run_call(model, right_call(&c))) {
    puts(tandem_last_error());
    return 1;
  }
  for (i = 0; i < 8; ++i) printf("%.6f ", (double)c.y[i]);
  for (i = 0; i < 4; ++i) printf("%d ", (int)c.top[i]);
  puts(tandem_version());
  return tandem_free(model);
}
)C";

TEST(Mini, OneProgramWithEitherLibrary) {
  if (!has_command("cc")) GTEST_SKIP() << "needs a C compiler";
  const MiniFolder f(capi_net());
  const std::string readme = f.path + "/mini/README.md";
  write_file(f.path + "/prints.c", kPrints);
  ASSERT_EQ(f.shell("cd mini && " + f.block(readme, "sh", 0)), 0) << f.said();
  ASSERT_EQ(f.shell("cd mini && " + f.block(readme, "sh", 1)), 0) << f.said();
  const std::string ours = "-I" + repository_file("tests/capi");
  const std::string names[] = {program("misuse.c"), program("threads.c"), "prints.c"};
  std::string printed;
  for (const std::string& source : names) {
    for (const char* link :
         {"-Lmini -ltandem-mini -Wl,-rpath,$PWD/mini", "mini/libtandem-mini.a"}) {
      ASSERT_EQ(f.shell("cc -pthread" + kStrict + ours + " -Imini " + source + " -o program " +
                        link + " && ./program"),
                0)
          << source << " " << link << "\n"
          << f.said();
      printed = f.said();
    }
  }
  EXPECT_TRUE(has(printed, "(mini: net)")) << printed;
#ifdef TANDEM_SHARED_LIBRARY
  const std::string library = TANDEM_SHARED_LIBRARY;
  for (const std::string& source : names)
    ASSERT_EQ(
        f.shell("cc -pthread" + kStrict + ours + " -I" + repository_file("tandem") + " " + source +
                " -o program " + library + " -Wl,-rpath," +
                std::filesystem::path(library).parent_path().string() + " && ./program net.onnx"),
        0)
        << source << "\n"
        << f.said();
  const auto numbers = [](const std::string& s) { return s.substr(0, s.rfind("0.")); };
  EXPECT_EQ(numbers(f.said()), numbers(printed));
#endif
}

TEST(Mini, SanitizersSeeNothing) {
  if (!has_command("cc")) GTEST_SKIP() << "needs a C compiler";
  const MiniFolder f(capi_net());
  const std::string build = "cc -g -pthread -fno-sanitize-recover=all" + kStrict + "-I" +
                            repository_file("tests/capi") +
                            " -Imini mini/net.c mini/tandem_mini.c -o program ";
  if (f.shell("echo 'int main(void) { return 0; }' > empty.c && cc -fsanitize=address,undefined "
              "empty.c -o empty && ./empty") != 0)
    GTEST_SKIP() << "the C compiler has no sanitizers";
  for (const std::string& line :
       {"-fsanitize=address,undefined " + program("misuse.c"),
        "-fsanitize=address,undefined " + program("threads.c"),
        "-fsanitize=address,undefined -DTANDEM_MINI_MODELS=3 " + program("sequences.c")})
    EXPECT_EQ(f.shell(build + line + " && env -u LSAN_OPTIONS ./program"), 0) << line << "\n"
                                                                              << f.said();
  if (f.shell("cc -fsanitize=thread empty.c -o empty && ./empty") != 0)
    GTEST_SKIP() << "ThreadSanitizer does not run here";
  EXPECT_EQ(f.shell(build + "-fsanitize=thread " + program("threads.c") + " && ./program"), 0)
      << f.said();
}

TEST(Mini, WithoutMemoryForResults) {
  if (!has_command("cc")) GTEST_SKIP() << "needs a C compiler";
  const MiniFolder f(capi_net());
  write_file(f.path + "/main.c", R"C(
#include <stdio.h>
#include "net_call.h"
int main(void) {
  tandem_model *model = NULL, *second = NULL;
  net_call c;
  tandem_status status = tandem_load("net", NULL, &model);
  if (!status) status = run_call(model, right_call(&c));
  if (status) return 9;
  right_call(&c)->no_outputs = 1;
  c.out_count = 0;
  if (run_call(model, &c) != TANDEM_ERROR_UNSUPPORTED) return 8;
  puts(tandem_last_error());
  if (tandem_load("another", NULL, &second) != TANDEM_ERROR_UNSUPPORTED) return 7;
  puts(tandem_last_error());
  if (tandem_load(NULL, NULL, &second) != TANDEM_ERROR_MEMORY) return 6;
  puts(tandem_last_error());
  if (tandem_load_memory(&c, sizeof c, NULL, &second) != TANDEM_ERROR_UNSUPPORTED) return 5;
  puts(tandem_last_error());
  return 0;
}
)C");
  ASSERT_EQ(
      f.shell("cc" + kStrict + "-DTANDEM_MINI_NO_RESULTS -DTANDEM_MINI_THREAD_LOCAL= -Imini -I" +
              repository_file("tests/capi") +
              " main.c mini/net.c mini/tandem_mini.c -o program && ./program"),
      0)
      << f.said();
  for (const char* part :
       {"keeps no results", "load NULL, \"\" or \"net\"", "free one", "reads no other"})
    EXPECT_TRUE(has(f.said(), part)) << f.said();
}

struct MiniProcessor {
  const char *compiler, *runner;
};
constexpr MiniProcessor kMiniProcessors[] = {{"aarch64-linux-gnu-gcc", "qemu-aarch64"},
                                             {"arm-linux-gnueabihf-gcc", "qemu-arm"},
                                             {"i686-linux-gnu-gcc", "qemu-i386"},
                                             {"riscv64-linux-gnu-gcc", "qemu-riscv64"},
                                             {"s390x-linux-gnu-gcc", "qemu-s390x"}};

TEST(Mini, OnOtherProcessors) {
  const MiniFolder f(capi_net());
  std::string missing;
  for (const MiniProcessor& p : kMiniProcessors) {
    if (!has_command(p.compiler) || !has_command(p.runner)) {
      missing += fmt::format(" {} {}", p.compiler, p.runner);
      continue;
    }
    EXPECT_EQ(f.shell(p.compiler + kStrict + "-O1 -static -Imini -I" +
                      repository_file("tests/capi") + " " + program("misuse.c") +
                      " mini/net.c mini/tandem_mini.c -o program && " + p.runner + " ./program"),
              0)
        << p.compiler << "\n"
        << f.said();
  }
  if (!missing.empty()) GTEST_SKIP() << "not found:" << missing;
}

TEST(Mini, ALibraryIsSmall) {
  if (!has_command("cc")) GTEST_SKIP() << "needs a C compiler";
  const MiniFolder f;
  f.compile("lenet", "");
  const std::string said = f.said();
  const size_t weights = std::strtoull(said.c_str() + said.find("weights ") + 8, nullptr, 10);
  ASSERT_EQ(weights, 61706U * 4) << said;
  ASSERT_EQ(f.shell("cd mini && " + f.block(f.path + "/mini/README.md", "sh", 0)), 0) << f.said();
  const size_t beyond = std::filesystem::file_size(f.path + "/mini/libtandem-mini.so") - weights;
  fmt::print("lenet: {} bytes of weights, {} beyond them\n", weights, beyond);
  EXPECT_LT(beyond, 64U << 10);
  if (!has_command("cmake")) GTEST_SKIP() << "cmake not found";
  EXPECT_EQ(f.shell("cmake -S mini -B built > /dev/null && cmake --build built && ls "
                    "built/libtandem-mini.so built/libtandem-mini.a"),
            0)
      << f.said();
}

/// y = x w, [n, 64] to [n, 10].
std::string wide_net() {
  using namespace onnx;
  std::vector<float> w;
  for (int i = 0; i < 640; ++i) w.push_back(static_cast<float>(i % 13));
  return model({{node("MatMul", {"x", "w"}, {"y"})},
                {floats("w", {64, 10}, w)},
                {serve::sized_port("x", 1, {-1, 64})},
                {serve::sized_port("y", 1, {-1, 10})}});
}

TEST(Mini, TheProgramOfTheManual) {
  if (!has_command("cc")) GTEST_SKIP() << "needs a C compiler";
  const MiniFolder f(wide_net());
  const std::string manual = read_file(repository_file("docs/edge.md"));
  const size_t at = manual.find("#include \"tandem_c.h\""), from = manual.rfind("```c\n", at) + 5;
  ASSERT_NE(at, manual.npos);
  write_file(f.path + "/main.c", manual.substr(from, manual.find("```", from) - from));
  ASSERT_EQ(f.shell("cc" + kStrict +
                    "-Imini main.c mini/net.c mini/tandem_mini.c -o program && "
                    "./program"),
            0)
      << f.said();
  EXPECT_TRUE(has(f.said(), "y: 0 ")) << f.said();
#ifdef TANDEM_SHARED_LIBRARY
  const std::string library = TANDEM_SHARED_LIBRARY;
  ASSERT_EQ(
      f.shell("cc" + kStrict + "-I" + repository_file("tandem") + " main.c -o program " + library +
              " -Wl,-rpath," + std::filesystem::path(library).parent_path().string() +
              " && ./program net.onnx && ! ./program none.onnx"),
      0)
      << f.said();
  EXPECT_TRUE(has(f.said(), "none.onnx")) << f.said();
#endif
}

}  // namespace
}  // namespace tandem
