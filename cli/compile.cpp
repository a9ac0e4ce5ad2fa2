// SPDX-License-Identifier: Apache-2.0
// `tandem compile MODEL`: a model as C source for devices (`-o net.c`), as WebAssembly for browsers
// (`--target wasm -o folder`), as a library with the functions of tandem_c.h (`--target mini`),
// with what phones want around it (`--target android`, `apple`), or as C++ source to work on
// (`cpp`).
#include <fmt/core.h>

#include <CLI/CLI.hpp>
#include <filesystem>

#include "cli/commands_internal.h"
#include "cli/edge_internal.h"
#include "cli/model_internal.h"
#include "tandem/base/files/file.h"
#include "tandem/edge/folder_files.h"
#include "tandem/edge/mini.h"
#include "tandem/edge/phone.h"
#include "tandem/edge/wasm.h"
#include "tandem/recipe/cpp_source.h"

namespace tandem::cli {
namespace {

struct CompileVerbOptions {
  CompileChoice choice;
  std::string out, target = "c99", package = edge::PhoneOptions().package;
};

void print_memory(const edge::EdgeSource& net) {
  fmt::print("  arena   {} bytes (lower bound {})\n  weights {} bytes\n", net.arena_bytes,
             net.lower_bound, net.weight_bytes);
}

CompiledModel compile_to_c(const CompileVerbOptions& o) {
  const std::filesystem::path source(o.out);
  TD_CHECK(source.extension() == ".c", Value,
           "'{}' is not the name of a C file\nGive one such as net.c.", o.out);
  CompiledModel c = compile_as_c(o.choice, {.name = source.stem().string()});
  std::filesystem::path header = source;
  header.replace_extension(".h");
  write_file(source.string(), c.net.source);
  write_file(header.string(), c.net.header);
  fmt::print("{} and {}: {} steps, {} functions\n", source.string(), header.string(), c.net.steps,
             c.net.functions);
  print_memory(c.net);
  return c;
}

void write_to_folder(const CompileVerbOptions& o, const edge::FolderFiles& files) {
  const edge::FolderChanges changes = edge::write_folder(o.out, o.target, files);
  fmt::print("{}:\n", o.out);
  for (const auto& file : files) fmt::print("  {}\n", file.first);
  for (const std::string& name : changes.removed)
    fmt::print("  {}: of the net before, removed\n", name);
  for (const std::string& name : changes.kept)
    fmt::print(stderr, "warning: {} was written for another net and changed since: it stays\n",
               name);
}

CompiledModel compile_to_wasm(const CompileVerbOptions& o) {
  CompiledModel c = compile_as_c(o.choice);
  const edge::WebNet web =
      edge::write_wasm(c.net, {}, {.labels = c.model.labels, .sample_rate = c.sample_rate});
  edge::FolderFiles files = {
      {"net.wasm", web.module}, {"net.mjs", web.script}, {"net.d.mts", web.types}};
  files.insert(files.end(), web.pages.begin(), web.pages.end());
  write_to_folder(o, files);
  fmt::print("  module  {} bytes, {} beyond the weights\n", web.module.size(), web.code_bytes);
  print_memory(c.net);
  return c;
}

edge::FolderFiles folder_for(const CompileVerbOptions& o, const edge::EdgeSource& net) {
  if (o.target == "mini") return edge::write_mini(net);
  const edge::PhoneOptions options{.package = o.package};
  return o.target == "android" ? edge::write_android(net, options)
                               : edge::write_apple(net, options);
}

CompiledModel compile_to_folder(const CompileVerbOptions& o) {
  CompiledModel c = compile_as_c(o.choice);
  write_to_folder(o, folder_for(o, c.net));
  print_memory(c.net);
  return c;
}

void compile_to_cpp(const CompileVerbOptions& o, bool& random_weights) {
  TD_CHECK(!o.choice.with_preparation, Value,
           "--with-preparation is for models that run alone, not for C++ source\nLeave it out.");
  const recipe::CppFile r = recipe::write_cpp(o.choice.model, o.out, {.shapes = o.choice.shapes});
  fmt::print("{} and {}\n  layers {}, classes {}, calls of functions {}\n", r.header, r.weights,
             r.layers, r.classes, r.calls);
  random_weights = r.random_weights;
}

}  // namespace

void add_compile(CLI::App& app, int& code) {
  CLI::App* verb =
      app.add_subcommand("compile",
                         "A model as one C99 file, for browsers or for phones\n\n"
                         "  tandem compile runs/digits-cnn -o net.c\n"
                         "  tandem compile model.onnx --shapes x:1x3x32x32 -o net.c\n"
                         "  tandem compile runs/digits-cnn --target wasm -o web\n"
                         "  tandem compile runs/fsdd-cnn --with-preparation --target wasm -o web\n"
                         "  tandem compile runs/digits-cnn --target cpp -o net.h\n"
                         "  tandem compile runs/digits-cnn --target mini -o mini\n"
                         "  tandem compile runs/digits-cnn --target android -o android");
  auto o = std::make_shared<CompileVerbOptions>();
  verb->add_option("model", o->choice.model.model,
                   "A run's folder, an ONNX or TFLite file, or a model's name")
      ->required();
  verb->add_option("-o,--output", o->out,
                   "The C file, its header lies beside it; the C++ header; or the folder")
      ->required();
  verb->add_option("--target", o->target,
                   "c99, cpp (an nn::Module to read and change, and its weights), wasm (by clang), "
                   "mini (a library with the functions of tandem_c.h), android (Java, JNI, AAR) "
                   "or apple (Swift, xcframework)")
      ->check(CLI::IsMember({"c99", "cpp", "wasm", "mini", "android", "apple"}));
  verb->add_option("--package", o->package,
                   "Of android: the package of the Java class (net.tandem)");
  verb->add_option("--shapes", o->choice.shapes,
                   "Sizes of the inputs, as x:1x3x32x32; open ones are 1");
  verb->add_flag(
      "--with-preparation", o->choice.with_preparation,
      "Take samples as they are (pixels u8, sound f32): what the run does to them before "
      "the model is part of the net; with wasm a page for a camera or a microphone");
  add_model_options(*verb, o->choice.model);
  verb->callback([&code, o] {
    init();
    bool random = false;
    if (o->target == "cpp") {
      compile_to_cpp(*o, random);
    } else {
      const CompiledModel c = o->target == "wasm"  ? compile_to_wasm(*o)
                              : o->target == "c99" ? compile_to_c(*o)
                                                   : compile_to_folder(*o);
      random = c.model.random_weights;
    }
    if (random)
      fmt::print(stderr, "no --weights: the values are the initial ones, drawn at random\n");
    code = 0;
  });
}

}  // namespace tandem::cli
