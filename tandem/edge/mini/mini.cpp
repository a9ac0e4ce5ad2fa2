// SPDX-License-Identifier: Apache-2.0
#include "tandem/edge/mini.h"

#include <fmt/format.h>

#include <algorithm>

#include "tandem/edge/mini/mini_internal.h"
#include "tandem/edge/mini/mini_text_internal.h"
#include "tandem/edge/phone/phone_internal.h"
#include "tandem/edge/text_internal.h"

namespace tandem::edge {
namespace {

// A text as a literal; what is not plain ASCII as octal numbers, ? because of trigraphs.
std::string c_string(const std::string& s) {
  std::string out = "\"";
  for (const char c : s) {
    const auto byte = static_cast<unsigned char>(c);
    const bool plain = byte >= ' ' && byte < 127 && c != '"' && c != '\\' && c != '?';
    out += plain ? std::string(1, c) : fmt::format("\\{:03o}", byte);
  }
  return out + "\"";
}

size_t bytes_of(const EdgePort& p) {
  return static_cast<size_t>(p.spec.shape.numel().value()) * size_of(p.spec.dtype);
}

// "TANDEM_FLOAT32"
std::string c_dtype(DType t) { return "TANDEM_" + upper(to_string(t)); }

std::string ports_table(const char* name, const char* count, const std::vector<EdgePort>& ports) {
  std::string rows;
  for (const EdgePort& p : ports) {
    std::string sizes;
    for (const Dim d : p.spec.shape)
      sizes += (sizes.empty() ? "" : ", ") + std::to_string(d.value());
    rows += fmt::format("    {{{}, 0, 0, {}, {}, {{{}}}}},\n", c_string(p.name),
                        c_dtype(p.spec.dtype), p.spec.shape.rank(), sizes.empty() ? "0" : sizes);
  }
  rows += "    {0, 0, 0, 0, 0, {0}}};\n";
  return fmt::format("static const tandem_tensor {}[{} + 1] = {{\n{}", name, count, rows);
}

std::string net_header(const EdgeSource& net, const std::string& name) {
  size_t words = 0;
  std::string places, arguments;
  for (const EdgePort& p : net.outputs) {
    places += fmt::format("{}, ", words);
    words += (bytes_of(p) + 7) / 8;
  }
  for (size_t k = 0; k < net.inputs.size(); ++k)
    arguments += fmt::format(", (const {} *)in[{}]", c_type(net.inputs[k].spec.dtype), k);
  for (size_t k = 0; k < net.outputs.size(); ++k)
    arguments += fmt::format(", ({} *)out[{}]", c_type(net.outputs[k].spec.dtype), k);
  std::string s = fmt::format(
      "/* Written by `tandem compile`: what tandem_mini.c knows of the net. */\n"
      "#include \"{0}.h\"\n\n#define MINI_NAME {1}\n#define MINI_VERSION {2}\n"
      "#define MINI_ARENA_WORDS (({3}_ARENA_BYTES + 7) / 8)\n#define MINI_INPUTS {4}\n"
      "#define MINI_OUTPUTS {5}\n/* Words of 8 bytes for the results, and where each begins. */\n"
      "#define MINI_RESULT_WORDS {6}\n",
      name, c_string(name), c_string(TANDEM_VERSION), upper(name), net.inputs.size(),
      net.outputs.size(), std::max<size_t>(words, 1));
  s += fmt::format("static const size_t mini_result_at[MINI_OUTPUTS + 1] = {{{}0}};\n\n", places);
  s += ports_table("mini_inputs", "MINI_INPUTS", net.inputs);
  s += ports_table("mini_outputs", "MINI_OUTPUTS", net.outputs);
  return s + fmt::format(
                 "\nstatic int mini_call(void *arena, const void *const *in, void *const *out) {{\n"
                 "  (void)in;\n  (void)out;\n  return {}_run_in(arena{});\n}}\n",
                 name, arguments);
}

constexpr const char* kMiniCmake = R"T(# SPDX-License-Identifier: Apache-2.0
# libtandem-mini.so and libtandem-mini.a: the net '@NAME@' with the functions of tandem_c.h.
cmake_minimum_required(VERSION 3.10)
project(tandem_mini C)
if(NOT CMAKE_BUILD_TYPE)
  set(CMAKE_BUILD_TYPE Release)
endif()
set(CMAKE_C_STANDARD 99)
set(CMAKE_C_VISIBILITY_PRESET hidden)
set(CMAKE_POSITION_INDEPENDENT_CODE ON)
add_library(tandem-mini SHARED @NAME@.c tandem_mini.c)
add_library(tandem-mini-static STATIC @NAME@.c tandem_mini.c)
set_target_properties(tandem-mini-static PROPERTIES OUTPUT_NAME tandem-mini)
foreach(library IN ITEMS tandem-mini tandem-mini-static)
  target_compile_options(${library} PRIVATE -ffp-contract=off)
  target_include_directories(${library} INTERFACE "${CMAKE_CURRENT_SOURCE_DIR}")
endforeach()
)T";

constexpr const char* kMiniReadme = R"T(# libtandem-mini with the net `@NAME@`

The functions of `tandem_c.h` for one net: @PORTS@. No malloc, no other library; any compiler that knows
the builtins of GCC or Clang builds it.

```sh
cc -std=c99 -O3 -ffp-contract=off -fvisibility=hidden -fPIC -shared -s -o libtandem-mini.so @NAME@.c tandem_mini.c
```

or as a static library:

```sh
cc -std=c99 -O3 -ffp-contract=off -c @NAME@.c tandem_mini.c && ar rcs libtandem-mini.a @NAME@.o tandem_mini.o
```

or by `cmake -S . -B build && cmake --build build`. A program includes `tandem_c.h` and loads `NULL` or `"@NAME@"`.
Memory is static data: @ARENA@ bytes in which a call works and @RESULTS@ for results of calls without buffers, for each
model that may be loaded at once.

| definition | |
|---|---|
| `-DTANDEM_MINI_MODELS=4` | four models may be loaded at once (1 without it); calls of one model wait for each other, those of several do not |
| `-DTANDEM_MINI_NO_RESULTS` | no memory for results: calls give buffers |
| `-DTANDEM_MINI_THREAD_LOCAL=` | one error text for all threads, where the compiler has no `__thread` |
)T";

}  // namespace

FolderFiles mini_files(const EdgeSource& net, const std::string& name) {
  return {{"tandem_c.h", c_header_text()},
          {"tandem_checks.h", mini_checks_text()},
          {"tandem_mini.c", mini_source_text()},
          {"mini_net.h", net_header(net, name)}};
}

FolderFiles write_mini(const EdgeSource& net, const MiniOptions& o) {
  size_t results = 0;
  std::string ports;
  for (const auto* list : {&net.inputs, &net.outputs})
    for (const EdgePort& p : *list) {
      ports += fmt::format("{}`{}` {}{}",
                           ports.empty()                               ? ""
                           : list == &net.outputs && &p == &(*list)[0] ? " gives "
                                                                       : ", ",
                           p.name, to_string(p.spec.dtype), p.spec.shape.to_string());
      if (list == &net.outputs) results += bytes_of(p);
    }
  const auto with_names = [&](const char* text) {
    return filled(text, {{"NAME", o.name},
                         {"PORTS", ports},
                         {"ARENA", std::to_string(net.arena_bytes)},
                         {"RESULTS", std::to_string(results)}});
  };
  FolderFiles files = {{o.name + ".c", without_arena(net, {.name = o.name})},
                       {o.name + ".h", net.header},
                       {"CMakeLists.txt", with_names(kMiniCmake)},
                       {"README.md", with_names(kMiniReadme)}};
  for (auto& file : mini_files(net, o.name)) files.push_back(std::move(file));
  return files;
}

}  // namespace tandem::edge
