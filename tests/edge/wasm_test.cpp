// SPDX-License-Identifier: Apache-2.0
// Nets as WebAssembly: what Node computes, here and in a worker, has the bits of the same C file
// compiled for this processor; a browser draws and shows an answer.
#include <dlfcn.h>

#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>

#include "tandem/base/files/private_folder.h"
#include "tandem/edge/wasm.h"
#include "tandem/init.h"
#include "tandem/tandem.h"
#include "tests/support/browser.h"
#include "tests/support/environment.h"

namespace tandem {
namespace {

bool has_program(const std::string& name) {
  return std::system(("command -v " + name + " > /dev/null 2>&1").c_str()) == 0;
}
bool makes_wasm() { return has_program("clang") && has_program("wasm-ld"); }

// A net's files in a folder.
struct WebFolder {
  std::string path = PrivateFolder::temporary("web").path();
  edge::EdgeSource net;
  edge::WebNet web;

  WebFolder(edge::EdgeForward forward, const edge::EdgePort& in,
            std::span<const std::string> labels = {}) {
    net = edge::write_c99(forward, {&in, 1}, {});
    web = edge::write_wasm(net, {}, labels);
    put("net.c", net.source);
    put("net.h", net.header);
    put("net.wasm", web.module);
    put("net.mjs", web.script);
    put("draw.html", web.page);
  }
  ~WebFolder() { std::filesystem::remove_all(path); }
  void put(const std::string& name, const std::string& text) const {
    write_file(path + "/" + name, text);
  }
  int shell(const std::string& line) const {
    return std::system(("cd " + path + " && " + line).c_str());
  }
};

constexpr const char* kNodeScript = R"JS(
import { Net, NetWorker, inputs } from './net.mjs';
import { readFileSync, writeFileSync } from 'node:fs';
const data = readFileSync('x.bin');
const x = new Float32Array(data.buffer.slice(data.byteOffset, data.byteOffset + data.length));
const net = await Net.load(readFileSync('net.wasm'));
const said = [];
for (const wrong of [{}, { z: x }, { x: x.slice(1) }, { x: new Int8Array(x.length) }])
  try { net.run(wrong); } catch (e) { said.push(`${e.name}: ${e.message}`); }
try { await Net.load(new Uint8Array(8)); } catch (e) { said.push(e.name); }
writeFileSync('said.txt', said.join('\n'));
writeFileSync('y.bin', net.run({ x }).output0);
const worker = await NetWorker.load();
writeFileSync('worker.bin', (await worker.run({ x: [...x] })).output0);
worker.close();
)JS";

std::string native_bytes(const WebFolder& f, const Tensor& x, size_t n) {
  if (f.shell("cc -O1 -ffp-contract=off -fPIC -shared net.c -o net.so")) return "";
  void* library = dlopen((f.path + "/net.so").c_str(), RTLD_NOW);
  const auto run = reinterpret_cast<int (*)(const void*, void*)>(dlsym(library, "net_run"));
  std::string y(n * sizeof(float), 0);
  run(x.data_ptr(), y.data());
  dlclose(library);
  return y;
}

TEST(EdgeWasm, HasTheBitsOfNativeCode) {
  if (!makes_wasm() || !has_program("node")) GTEST_SKIP() << "needs clang, wasm-ld and node";
  init();
  manual_seed(3);
  NoGradGuard no_grad;
  nn::Conv2d conv(3, 6, 3, {.padding = 1});
  nn::Linear linear(6 * 4 * 4, 11);
  const auto forward = [&](std::span<const Tensor> x) {
    const Tensor h = max_pool2d(gelu(conv(x[0])), 2);
    return std::vector{softmax(erf(tanh(linear(h.reshape({2, -1}))) + 1), -1)};
  };
  const WebFolder f(forward, {"x", Spec(DType::f32, Shape{2, 3, 8, 8})});
  EXPECT_LT(f.web.code_bytes, 20000u);
  EXPECT_TRUE(f.web.page.empty());
  const Tensor x = randn({2, 3, 8, 8});
  f.put("x.bin", std::string(static_cast<const char*>(x.data_ptr()), 2 * 3 * 64 * sizeof(float)));
  f.put("run.mjs", kNodeScript);
  ASSERT_EQ(f.shell("node run.mjs"), 0);
  const std::string y = read_file(f.path + "/y.bin");
  EXPECT_EQ(y, native_bytes(f, x, 22));
  EXPECT_EQ(y, read_file(f.path + "/worker.bin"));
  EXPECT_EQ(read_file(f.path + "/said.txt"),
            "TypeError: input 'x' is float32[2, 3, 8, 8]: a Float32Array of 384; it was not given\n"
            "TypeError: there is no input 'z'; the inputs are x\n"
            "RangeError: input 'x' is float32[2, 3, 8, 8]: a Float32Array of 384; got 383\n"
            "TypeError: input 'x' is float32[2, 3, 8, 8]: a Float32Array of 384; got Int8Array\n"
            "CompileError");
}

// The ink of the middle columns beside that of the middle rows: an upright stroke or a level one.
TEST(EdgeWasm, APageTellsWhatIsDrawn) {
  if (!makes_wasm() || !have_browser()) GTEST_SKIP() << "needs clang, wasm-ld and chromium";
  init();
  const std::vector<std::string> labels = {"upright", "level & flat"};
  const auto forward = [](std::span<const Tensor> x) {
    const Tensor image = x[0].reshape({8, 8});
    return std::vector{stack({sum(narrow(image, 1, 3, 2)), sum(narrow(image, 0, 3, 2))}, 0)};
  };
  const WebFolder f(forward, {"x", Spec(DType::f32, Shape{1, 64})}, labels);
  const std::pair<const char*, const char*> drawings[] = {
      {"#140,30,140,250", "\"upright\""}, {"#30,140,250,140", "\"level &amp; flat\""}};
  for (const auto& [drawing, answer] : drawings) {
    const std::string best = std::string("data-best=") + answer;
    const Visit v = visit_until(best, f.path, f.path + "/draw.html" + drawing,
                                shots_folder() + "/draw.png", "760,560");
    EXPECT_EQ(v.code, 0) << v.log;
    EXPECT_NE(v.dom.find(best), std::string::npos) << v.log;
  }
}

TEST(EdgeWasm, SaysWhichPackagesAreMissing) {
  init();
  const edge::EdgePort in{"x", Spec(DType::f32, Shape{2})};
  const auto forward = [](std::span<const Tensor> x) { return std::vector{x[0] + 1}; };
  const edge::EdgeSource net = edge::write_c99(forward, {&in, 1}, {});
  const Environment no_path("PATH", "/nowhere");
  try {
    edge::write_wasm(net);
    FAIL() << "written without a compiler";
  } catch (const Error& e) {
    EXPECT_EQ(e.kind(), ErrorKind::Unsupported);
    EXPECT_NE(std::string(e.what()).find("apt install clang lld"), std::string::npos) << e.what();
  }
}

}  // namespace
}  // namespace tandem
