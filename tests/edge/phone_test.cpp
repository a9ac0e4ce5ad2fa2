// SPDX-License-Identifier: Apache-2.0
// Nets for phones: what Java computes over JNI on this machine has the bits of the C file; the
// scripts make the layouts of an AAR and of an xcframework, with libraries of the right processors.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>

#include "tandem/base/files/folder.h"
#include "tandem/base/files/private_folder.h"
#include "tandem/edge/phone.h"
#include "tandem/init.h"
#include "tandem/tandem.h"
#include "tests/support/errors.h"

namespace tandem {
namespace {

bool has_programs(std::initializer_list<const char*> names) {
  for (const std::string name : names)
    if (std::system(("command -v " + name + " > /dev/null 2>&1").c_str()) != 0) return false;
  return true;
}

// Two inputs of two dtypes, one named like a word of both languages; two results.
struct Phone {
  std::string path = PrivateFolder::temporary("phone").path();
  edge::EdgeSource net;

  Phone() {
    init();
    manual_seed(2);
    const Buffer table(randn({9, 4})), w(randn({4, 3}));
    const std::vector<edge::EdgePort> in = {{"class", Spec(DType::i64, Shape(5))},
                                            {"x 1", Spec(DType::f32, Shape(5, 4))}};
    const std::vector<std::string> out = {"y", "largest"};
    net = edge::write_c99(
        [&](std::span<const Tensor> x) {
          const Tensor y = tanh(matmul(embedding(x[0], Tensor(table)) + x[1], Tensor(w)));
          return std::vector<Tensor>{y, argmax(y, 1)};
        },
        in, out);
  }
  ~Phone() { std::filesystem::remove_all(path); }
  void put(const edge::FolderFiles& files) const {
    for (const auto& [name, text] : files) {
      make_folders(std::filesystem::path(path + "/" + name).parent_path().string());
      write_file(path + "/" + name, text);
    }
  }
  int shell(const std::string& line) const {
    return std::system(("cd " + path + " && { " + line + "; } > said.txt 2>&1").c_str());
  }
  std::string said() const { return read_file(path + "/said.txt"); }
};

// Prints the results' bits, then what a wrong size and a wrong index give.
constexpr const char* kMain = R"J(
import com.example.my_net.Net;
public class Main {
  public static void main(String[] a) {
    Net net = new Net();
    float[] x = new float[20];
    for (int i = 0; i < 20; ++i) x[i] = i * 0.125f - 1;
    long[] ids = {0, 8, 3, 3, 5};
    Net.Outputs y = net.run(ids, x);
    for (float v : y.y) System.out.println(Float.floatToRawIntBits(v));
    for (long v : y.largest) System.out.println(v);
    ids[2] = 9;
    try { net.run(ids, x); } catch (IllegalArgumentException e) { System.out.println(e.getMessage()); }
    try { net.run(ids, new float[3]); } catch (IllegalArgumentException e) { System.out.println(e.getMessage()); }
  }
}
)J";
constexpr const char* kMainInC = R"C(
#include <stdio.h>
#include <string.h>
#include "net.h"
int main(void) {
  static uint64_t arena[(NET_ARENA_BYTES + 7) / 8];
  float x[20], y[15];
  int64_t ids[5] = {0, 8, 3, 3, 5}, largest[5];
  int i;
  for (i = 0; i < 20; ++i) x[i] = (float)i * 0.125f - 1;
  if (net_run_in(arena, ids, x, y, largest)) return 1;
  for (i = 0; i < 15; ++i) { int32_t b; memcpy(&b, y + i, 4); printf("%d\n", (int)b); }
  for (i = 0; i < 5; ++i) printf("%d\n", (int)largest[i]);
  puts("an index is out of range\nx_1 has 3 elements, expected 20");
  return 0;
}
)C";

TEST(EdgePhone, JavaHasTheBitsOfTheCFile) {
  if (!has_programs({"javac", "java", "cc"})) GTEST_SKIP() << "needs a JDK and a C compiler";
  const Phone p;
  p.put(edge::write_android(p.net, {.package = "com.example.my_net"}));
  write_file(p.path + "/Main.java", kMain);
  write_file(p.path + "/main.c", kMainInC);
  const std::string cpp = "src/main/cpp/";
  ASSERT_EQ(p.shell("home=$(dirname $(dirname $(readlink -f $(command -v javac)))) && cc -std=c99 "
                    "-Wall -Wextra -Werror -O1 -ffp-contract=off -fPIC -shared "
                    "-I$home/include -I$home/include/linux -o libnet_jni.so " +
                    cpp + "net.c " + cpp + "net_jni.c && cc -std=c99 -ffp-contract=off -I" + cpp +
                    " main.c " + cpp + "net.c -o main"),
            0)
      << p.said();
  ASSERT_EQ(p.shell("javac -Xlint:all -Werror -d classes Main.java $(find src -name '*.java')"), 0)
      << p.said();
  ASSERT_EQ(p.shell("./main"), 0) << p.said();
  const std::string want = p.said();
  ASSERT_EQ(p.shell("java -Xcheck:jni -Xshare:auto -cp classes -Djava.library.path=. Main"), 0)
      << p.said();
  EXPECT_EQ(p.said(), want);
}

// The NDK's place is taken by clang and lld without Android's libraries, which these need not.
TEST(EdgePhone, TheScriptMakesAnAar) {
  if (!has_programs({"javac", "jar", "clang", "ld.lld"})) GTEST_SKIP() << "needs a JDK, clang, lld";
  const Phone p;
  p.put(edge::write_android(p.net));
  p.put({{"ndk/toolchains/llvm/prebuilt/here/bin/clang",
          "#!/bin/sh\nhome=$(dirname $(dirname $(readlink -f $(command -v javac))))\nexec clang "
          "-ffreestanding -nostdlib -fuse-ld=lld -I" +
              p.path + "/stub -I$home/include -I$home/include/linux \"$@\"\n"},
         {"stub/stdio.h", "\n"}});
  ASSERT_EQ(p.shell("chmod +x ndk/toolchains/llvm/prebuilt/here/bin/clang && "
                    "ANDROID_NDK_HOME=$PWD/ndk sh ./make_aar.sh && jar tf net.aar"),
            0)
      << p.said();
  for (const char* part :
       {"AndroidManifest.xml", "classes.jar", "R.txt", "jni/arm64-v8a/libnet_jni.so"})
    EXPECT_NE(p.said().find(part), std::string::npos) << part << "\n" << p.said();
  ASSERT_EQ(p.shell("jar xf net.aar && jar tf classes.jar"), 0) << p.said();
  EXPECT_NE(p.said().find("net/tandem/Net.class"), std::string::npos) << p.said();
  const auto machine = [&](const char* abi) {
    constexpr size_t kAt = 18;  // e_machine
    return static_cast<uint8_t>(
        read_file(fmt::format("{}/jni/{}/libnet_jni.so", p.path, abi)).at(kAt));
  };
  EXPECT_EQ(machine("arm64-v8a"), 183);
  EXPECT_EQ(machine("armeabi-v7a"), 40);
  EXPECT_EQ(machine("x86_64"), 62);
  const std::string library = read_file(p.path + "/jni/arm64-v8a/libnet_jni.so");
  EXPECT_NE(library.find("Java_net_tandem_Net_runIn"), std::string::npos);
  EXPECT_NE(library.find("tandem_load_memory"), std::string::npos);  // of tandem_c.h
}

TEST(EdgePhone, TheScriptMakesAnXcframework) {
  if (!has_programs({"clang", "llvm-ar"}) ||
      !(has_programs({"llvm-lipo"}) || has_programs({"llvm-lipo-14"})))
    GTEST_SKIP() << "needs clang, llvm-ar and llvm-lipo";
  const std::string lipo = has_programs({"llvm-lipo"}) ? "llvm-lipo" : "llvm-lipo-14";
  const Phone p;
  p.put(edge::write_apple(p.net));
  ASSERT_EQ(p.shell("CLANG=clang AR=llvm-ar LIPO=" + lipo + " sh ./make_xcframework.sh"), 0)
      << p.said();
  const std::string plist = read_file(p.path + "/Net.xcframework/Info.plist");
  for (const auto& [folder, processors] : {std::pair("ios-arm64", "arm64"),
                                           {"ios-arm64_x86_64-simulator", "x86_64 arm64"},
                                           {"macos-arm64_x86_64", "x86_64 arm64"}}) {
    EXPECT_NE(plist.find(fmt::format("<string>{}</string>", folder)), std::string::npos);
    const std::string at = fmt::format("Net.xcframework/{}/", folder);
    ASSERT_EQ(p.shell(lipo + " -archs " + at + "libnet.a"), 0) << p.said();
    for (const std::string processor : {"arm64", "x86_64"})
      EXPECT_EQ(p.said().find(processor) != std::string::npos,
                std::string(processors).find(processor) != std::string::npos)
          << p.said();
    EXPECT_TRUE(std::filesystem::exists(p.path + "/" + at + "Headers/module.modulemap"));
    EXPECT_TRUE(std::filesystem::exists(p.path + "/" + at + "Headers/tandem_c.h"));
    EXPECT_NE(read_file(p.path + "/" + at + "libnet.a").find("_tandem_load_memory"),
              std::string::npos);
  }
  // The module as Swift's compiler sees it: clang imports it.
  write_file(
      p.path + "/use.m",
      "@import CNet;\n@import CNetTandem;\ntandem_status end(tandem_model *m) { return "
      "tandem_free(m); }\nint use(void *a, const int64_t *c, const float *x, float *y, int64_t "
      "*n) { return net_run_in(a, c, x, y, n) + NET_ARENA_BYTES; }\n");
  EXPECT_EQ(p.shell("clang -Werror -fmodules -fmodules-cache-path=cache -fsyntax-only "
                    "-ISources/CNet/include -ISources/CNetTandem/include use.m"),
            0)
      << p.said();
}

TEST(EdgePhone, NamesFitTheLanguages) {
  const Phone p;
  const auto text_of = [](const edge::FolderFiles& files, const std::string& name) {
    for (const auto& [path, text] : files)
      if (path == name) return text;
    return std::string();
  };
  const auto has_text = [](const std::string& text, const char* part) {
    EXPECT_NE(text.find(part), std::string::npos) << part << "\n" << text;
  };
  const auto android = edge::write_android(p.net, {.package = "com.example.my_net"});
  has_text(text_of(android, "src/main/java/com/example/my_net/Net.java"),
           "public synchronized Outputs run(long[] class_, float[] x_1) {");
  has_text(text_of(android, "src/main/cpp/net_jni.c"), "Java_com_example_my_1net_Net_runIn(");
  const std::string swift = text_of(edge::write_apple(p.net), "Sources/Net/Net.swift");
  has_text(swift, "public func run(class_: [Int64], x_1: [Float]) throws -> Outputs {");
  has_text(swift, "guard net_run_in(arena, class_, x_1, &y, &largest) == 0");
  has_text(swift, "return Outputs(y: y, largest: largest)");
  for (const char* package : {"", "net..x", "9net", "com.class", "a-b"})
    EXPECT_TRUE(has(error_of([&] { edge::write_android(p.net, {.package = package}); }),
                    "is not the name of a Java package"))
        << package;
}

}  // namespace
}  // namespace tandem
