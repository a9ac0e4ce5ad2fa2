// SPDX-License-Identifier: Apache-2.0
// The module exports the addresses of its inputs and outputs, run(), and a signature by which the
// script knows that both were written together.
#include "tandem/edge/wasm.h"

#include "tandem/base/files/file.h"
#include "tandem/base/hash/hash.h"
#include "tandem/edge/text_internal.h"
#include "tandem/edge/toolchain_internal.h"
#include "tandem/edge/web/loader_internal.h"
#include "tandem/edge/web/pages_internal.h"

namespace tandem::edge {
namespace {

constexpr const char* kNotice =
    "// SPDX-License-Identifier: Apache-2.0\n// Written by `tandem compile --target wasm`.\n";

// Inputs, then outputs.
std::vector<EdgePort> ports_of(const EdgeSource& net) {
  std::vector<EdgePort> all = net.inputs;
  all.insert(all.end(), net.outputs.begin(), net.outputs.end());
  return all;
}

std::string module_source(const EdgeSource& net, const std::string& name, int32_t signature) {
  const std::vector<EdgePort> ports = ports_of(net);
  std::string arrays, addresses, arguments;
  for (size_t k = 0; k < ports.size(); ++k) {
    const Spec& spec = ports[k].spec;
    arrays += fmt::format("static {} port{}[{}] __attribute__((aligned(16)));\n",
                          c_type(spec.dtype), k, std::max<int64_t>(spec.shape.numel().value(), 1));
    addresses += fmt::format("  if (k == {0}) return port{0};\n", k);
    arguments += fmt::format("{}port{}", k ? ", " : "", k);
  }
  return fmt::format(
      "#include \"{0}.c\"\n#define TD_EXPORT(name) __attribute__((export_name(name)))\n"
      "{1}TD_EXPORT(\"address\") void *td_address(int32_t k) {{\n{2}  return 0;\n}}\n"
      "TD_EXPORT(\"run\") int td_run(void) {{ return {0}_run({3}); }}\n"
      "TD_EXPORT(\"signature\") int32_t td_signature(void) {{ return {4}; }}\n",
      name, arrays, addresses, arguments, signature);
}

std::string make_module(const EdgeSource& net, const std::string& name, int32_t signature) {
  const std::string clang =
      program_on_path({"clang", "clang-21", "clang-20", "clang-19", "clang-18", "clang-17",
                       "clang-16", "clang-15", "clang-14"});
  TD_CHECK(!clang.empty(), Unsupported,
           "WebAssembly is written by clang, and PATH has none\n"
           "On Debian: apt install clang lld. --target c99 needs no compiler.");
  const WorkFolder folder;
  folder.write(name + ".c", net.source);
  folder.write(name + ".h", net.header);
  folder.write("module.c", module_source(net, name, signature));
  const std::vector<std::string> compile = {clang,
                                            "--target=wasm32",
                                            "-std=c99",
                                            "-O3",
                                            "-msimd128",
                                            "-mbulk-memory",
                                            "-mnontrapping-fptoint",
                                            "-ffp-contract=off",
                                            "-ffreestanding",
                                            "-c",
                                            "module.c"};
  folder.run(compile);
  try {
    folder.run({clang, "--target=wasm32", "-nostdlib", "-Wl,--no-entry", "-Wl,--strip-all",
                "-Wl,-z,stack-size=65536", "-Wl,--stack-first", "module.o", "-o", "net.wasm"});
  } catch (const Error& e) {
    TD_CHECK(!program_on_path(
                  {"wasm-ld", "wasm-ld-21", "wasm-ld-19", "wasm-ld-16", "wasm-ld-15", "wasm-ld-14"})
                  .empty(),
             Unsupported,
             "clang finds no wasm-ld, which links WebAssembly\nOn Debian: apt install lld.");
    throw;
  }
  return read_file(folder.path("net.wasm"));
}

std::string js_ports(const char* name, const std::vector<EdgePort>& ports) {
  std::string s = fmt::format("export const {} = [\n", name);
  for (const EdgePort& p : ports) {
    std::string shape;
    for (const int64_t n : p.spec.shape.to_vector())
      shape += fmt::format("{}{}", shape.empty() ? "" : ", ", n);
    s += fmt::format("  {{ name: {}, dtype: '{}', shape: [{}] }},\n", js_text(p.name),
                     to_string(p.spec.dtype), shape);
  }
  return s + "];\n";
}

const char* js_array(DType t) {
  static constexpr const char* kNames[] = {
      "Float64Array", "Float32Array", "Uint16Array", "Uint16Array", "BigInt64Array",
      "Int32Array",   "Int16Array",   "Int8Array",   "Uint8Array",  "Uint8Array"};
  return kNames[static_cast<int>(t)];
}

std::string ts_interface(const char* name, const std::vector<EdgePort>& ports, bool in) {
  std::string s = fmt::format("export interface {} {{\n", name);
  for (const EdgePort& p : ports) {
    const char* number = p.spec.dtype == DType::i64 ? "bigint" : "number";
    s += fmt::format("  /** {}{} */\n  {}: {}{};\n", to_string(p.spec.dtype),
                     p.spec.shape.to_string(), js_text(p.name), js_array(p.spec.dtype),
                     in ? fmt::format(" | {}[]", number) : "");
  }
  return s + "}\n";
}

}  // namespace

WebNet write_wasm(const EdgeSource& net, const EdgeOptions& options, const WebFacts& facts) {
  const auto signature = static_cast<int32_t>(hash_string(net.header) & 0x7fffffff);
  WebNet web;
  web.module = make_module(net, options.name, signature);
  web.code_bytes = web.module.size() - std::min(web.module.size(), net.weight_bytes);
  web.script = kNotice + js_ports("inputs", net.inputs) + js_ports("outputs", net.outputs) +
               fmt::format("const signature = {};\n", signature) + kLoaderScript;
  web.types = kNotice + ts_interface("Inputs", net.inputs, true) +
              ts_interface("Outputs", net.outputs, false) + kLoaderTypes;
  web.pages = web_pages(net, web, facts);
  return web;
}

}  // namespace tandem::edge
