// SPDX-License-Identifier: Apache-2.0
// Nets as WebAssembly: what Node computes, here and in a worker, has the bits of the same C file
// compiled for this processor; a browser draws and shows an answer.
#include <dlfcn.h>

#include <gtest/gtest.h>

#include <cmath>
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
bool shows_pages() { return makes_wasm() && have_browser() && has_program("node"); }

// A net's files in a folder.
struct WebFolder {
  std::string path = PrivateFolder::temporary("web").path();
  edge::EdgeSource net;
  edge::WebNet web;

  WebFolder(edge::EdgeForward forward, const edge::EdgePort& in, const edge::WebFacts& facts = {}) {
    net = edge::write_c99(forward, {&in, 1}, {});
    web = edge::write_wasm(net, {}, facts);
    put("net.c", net.source);
    put("net.h", net.header);
    put("net.wasm", web.module);
    put("net.mjs", web.script);
    for (const auto& [name, page] : web.pages) put(name, page);
  }
  ~WebFolder() {
    std::error_code left;  // the browser's children may write still
    std::filesystem::remove_all(path, left);
  }
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
try { await worker.run({ x }); } catch (e) { said.push(e.message); }
// What cannot be loaded leaves no worker, which would keep node from its end.
const empty = new WebAssembly.Module(new Uint8Array([0, 97, 115, 109, 1, 0, 0, 0]));
try { await NetWorker.load(empty); } catch (e) { said.push(e.message); }
writeFileSync('said.txt', said.join('\n'));
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
  EXPECT_TRUE(f.web.pages.empty());
  const Tensor x = randn({2, 3, 8, 8});
  f.put("x.bin", std::string(static_cast<const char*>(x.data_ptr()), 2 * 3 * 64 * sizeof(float)));
  f.put("run.mjs", kNodeScript);
  ASSERT_EQ(f.shell("timeout 60 node run.mjs"), 0);
  const std::string y = read_file(f.path + "/y.bin");
  EXPECT_EQ(y, native_bytes(f, x, 22));
  EXPECT_EQ(y, read_file(f.path + "/worker.bin"));
  EXPECT_EQ(read_file(f.path + "/said.txt"),
            "TypeError: input 'x' is float32[2, 3, 8, 8]: a Float32Array of 384; it was not given\n"
            "TypeError: there is no input 'z'; the inputs are x\n"
            "RangeError: input 'x' is float32[2, 3, 8, 8]: a Float32Array of 384; got 383\n"
            "TypeError: input 'x' is float32[2, 3, 8, 8]: a Float32Array of 384; got Int8Array\n"
            "CompileError\n"
            "the worker was closed\n"
            "this module was not written by `tandem compile --target wasm`");
}

// What `expression` gives on a page of the folder once it is true; "" and the reason if it never
// is.
std::string drive(const WebFolder& f, const std::string& page, const std::string& expression,
                  const std::string& flags, std::string& why) {
  const char* root = std::getenv("TANDEM_SOURCE_DIR");
  const std::string line = fmt::format(
      "node {}/tests/support/drive_page.mjs {} 'file://{}/{}' \"{}\" {}/{}.png "
      "--use-fake-ui-for-media-stream --use-fake-device-for-media-stream {} > value.txt 2> why.txt",
      std::filesystem::absolute(root ? root : ".").string(), f.path, f.path, page, expression,
      shots_folder(), page.substr(0, page.find('.')), flags);
  const int code = f.shell(line);
  why = read_file(f.path + "/why.txt");
  return code == 0 ? read_file(f.path + "/value.txt") : "";
}

// The ink of the middle columns beside that of the middle rows: an upright stroke or a level one.
TEST(EdgeWasm, APageTellsWhatIsDrawn) {
  if (!shows_pages()) GTEST_SKIP() << "needs clang, wasm-ld, node and chromium";
  init();
  const edge::WebFacts facts{.labels = {"upright", "level & flat"}};
  const auto forward = [](std::span<const Tensor> x) {
    const Tensor image = x[0].reshape({8, 8});
    return std::vector{stack({sum(narrow(image, 1, 3, 2)), sum(narrow(image, 0, 3, 2))}, 0)};
  };
  const WebFolder f(forward, {"x", Spec(DType::f32, Shape{1, 64})}, facts);
  const std::pair<const char*, const char*> drawings[] = {
      {"draw.html#140,30,140,250", "upright\n"}, {"draw.html#30,140,250,140", "level & flat\n"}};
  for (const auto& [drawing, answer] : drawings) {
    std::string why;
    EXPECT_EQ(drive(f, drawing, "scores.dataset.best", "", why), answer) << why;
  }
}

// One frame of 64 x 48 pixels, black but for a red square at the right.
std::string film() {
  std::string y(64 * 48, 16), cb(32 * 24, '\x80'), cr(32 * 24, '\x80');
  for (size_t i = 16; i < 32; ++i)
    for (size_t j = 40; j < 56; ++j) {
      y[i * 64 + j] = 81;
      cb[i / 2 * 32 + j / 2] = 90;
      cr[i / 2 * 32 + j / 2] = '\xf0';
    }
  const std::string frame = "FRAME\n" + y + cb + cr;
  return "YUV4MPEG2 W64 H48 F10:1 Ip A1:1 C420jpeg\n" + frame + frame;
}

// A detector of red: cells of 8 x 8 pixels and how red each is.
TEST(EdgeWasm, APageDrawsBoxesOnACamerasImage) {
  if (!shows_pages()) GTEST_SKIP() << "needs clang, wasm-ld, node and chromium";
  init();
  const auto forward = [](std::span<const Tensor> x) {
    const Tensor image = x[0].to(DType::f32) / 255;  // [3, 48, 64]
    const Tensor red = avg_pool2d((image[0] - image[1]).reshape({1, 1, 48, 64}), 8);
    const Tensor at = arange(48, DType::f32);
    const Tensor left = remainder(at, 8.0) * 8, top = floor(at / 8.0) * 8;
    return std::vector{stack({left, top, left + 8, top + 8}, 1),
                       cat({red.reshape({48, 1}), zeros({48, 1})}, 1)};
  };
  const WebFolder f(forward, {"image", Spec(DType::u8, Shape{3, 48, 64})},
                    {.labels = {"red", "none"}});
  f.put("film.y4m", film());
  std::string why;
  EXPECT_EQ(drive(f, "camera.html#start", "scores.dataset.count === '4' && scores.dataset.best",
                  "--use-file-for-fake-video-capture=" + f.path + "/film.y4m", why),
            "red\n")
      << why;
}

// A camera that is refused, then a file that is no image.
TEST(EdgeWasm, APageSaysWhatFailed) {
  if (!shows_pages()) GTEST_SKIP() << "needs clang, wasm-ld, node and chromium";
  init();
  const auto forward = [](std::span<const Tensor> x) {
    return std::vector{x[0].to(DType::f32).mean({1, 2})};
  };
  const WebFolder f(forward, {"image", Spec(DType::u8, Shape{3, 8, 8})});
  std::string why;
  EXPECT_EQ(
      drive(f, "camera.html",
            "start.onclick && (window.once ??= (navigator.mediaDevices.getUserMedia = async "
            "() => { throw new Error('refused'); }, start.click(), start.click(), 1)) && "
            "start.innerText + ', ' + say.innerText === 'Start the camera, The camera did not "
            "start: refused' && 'said'",
            "", why),
      "said\n")
      << why;
  EXPECT_EQ(drive(f, "camera.html",
                  "start.onclick && (window.once ??= ((files) => { files.items.add(new "
                  "File(['abc'], 'x.png')); file.files = files.files; file.dispatchEvent(new "
                  "Event('change')); return 1; })(new DataTransfer())) && "
                  "say.innerText.startsWith('The image was not read') && 'said'",
                  "", why),
            "said\n")
      << why;
}

// Half a second of silence, as much of a tone, silence again: 16 bits, 48,000 a second.
std::string tone(double hertz) {
  constexpr int kRate = 48000;
  std::string data;
  for (int i = 0; i < 2 * kRate; ++i) {
    const bool sounds = i > kRate / 2 && i < kRate;
    const auto v =
        static_cast<int16_t>(sounds ? 9000 * std::sin(2 * 3.14159265 * hertz * i / kRate) : 0);
    data.append(reinterpret_cast<const char*>(&v), 2);
  }
  std::string wav = "RIFF";
  const auto number = [&](uint32_t v, size_t bytes) {
    wav.append(reinterpret_cast<const char*>(&v), bytes);
  };
  number(static_cast<uint32_t>(36 + data.size()), 4);
  wav += "WAVEfmt ";
  number(16, 4);
  number(1, 2);  // numbers as they are
  number(1, 2);  // one channel
  number(kRate, 4);
  number(kRate * 2, 4);
  number(2, 2);
  number(16, 2);
  wav += "data";
  number(static_cast<uint32_t>(data.size()), 4);
  return wav + data;
}

// Where the energy of a sound lies, by a spectrogram in the net.
TEST(EdgeWasm, APageNamesWhatAMicrophoneHears) {
  if (!shows_pages()) GTEST_SKIP() << "needs clang, wasm-ld, node and chromium";
  init();
  const auto forward = [](std::span<const Tensor> x) {
    const Tensor power =
        data::spectrogram(x[0], {.n_fft = 128, .hop_length = 64}).mean({0, 2});  // [65]
    const Tensor bands = stack({narrow(power, 0, 2, 20).sum(), narrow(power, 0, 22, 43).sum()}, 0);
    return std::vector{bands / (bands.sum() + 1e-9)};
  };
  const edge::EdgePort in{"sound", Spec(DType::f32, Shape{1, 4000})};
  for (const auto& [hertz, name] : {std::pair{600.0, "low\n"}, {2500.0, "high\n"}}) {
    const WebFolder f(forward, in, {.labels = {"low", "high"}, .sample_rate = 8000});
    f.put("sound.wav", tone(hertz));
    std::string why;
    EXPECT_EQ(drive(f, "listen.html#start", "scores.dataset.best",
                    "--use-file-for-fake-audio-capture=" + f.path + "/sound.wav", why),
              name)
        << why;
  }
}

TEST(EdgeWasm, PagesAreThoseThatSuitTheNet) {
  if (!makes_wasm()) GTEST_SKIP() << "needs clang and wasm-ld";
  init();
  const auto scores = [](std::span<const Tensor> x) {
    return std::vector{x[0].to(DType::f32).reshape({4, -1}).mean({1})};
  };
  const auto mask = [](std::span<const Tensor> x) { return std::vector{x[0].to(DType::f32)[0]}; };
  const struct {
    edge::EdgeForward forward;
    Spec in;
    edge::WebFacts facts;
    std::string pages;
  } kCases[] = {
      {scores, Spec(DType::f32, Shape{1, 1, 16, 16}), {}, "draw.html"},
      {scores, Spec(DType::u8, Shape{1, 16, 16}), {}, "draw.html"},
      {scores, Spec(DType::u8, Shape{3, 12, 16}), {}, "camera.html"},
      {scores, Spec(DType::f32, Shape{1, 1600}), {.sample_rate = 8000}, "listen.html"},
      {scores, Spec(DType::u8, Shape{3, 12, 16}), {.labels = {"one", "two"}}, ""},
      {mask, Spec(DType::u8, Shape{3, 24, 32}), {}, ""},
  };
  for (const auto& c : kCases) {
    const WebFolder f(c.forward, {"x", c.in}, c.facts);
    std::string names;
    for (const auto& [name, page] : f.web.pages) names += name;
    EXPECT_EQ(names, c.pages) << c.in.shape.to_string();
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
