// SPDX-License-Identifier: Apache-2.0
#include <dlfcn.h>
#include <fmt/format.h>
#include <glob.h>
#include <link.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>

#include "tandem/backend/gpu/library_internal.h"
#include "tandem/base/fields.h"

namespace tandem::gpu {
namespace {

std::string environment(const char* name) {
  const char* value = std::getenv(name);
  return value ? value : "";
}

std::vector<std::string> matches(const std::string& pattern) {
  std::vector<std::string> found;
  glob_t g{};
  if (glob(pattern.c_str(), 0, nullptr, &g) == 0) {
    for (size_t i = 0; i < g.gl_pathc; ++i) found.emplace_back(g.gl_pathv[i]);
  }
  globfree(&g);
  return found;
}

// Folders of the wheels of NVIDIA in every place where pip installs.
std::vector<std::string> wheel_folders() {
  std::vector<std::string> roots = words_of(environment("PYTHONPATH"), ':');
  for (const char* name : {"VIRTUAL_ENV", "CONDA_PREFIX"}) {
    const std::string prefix = environment(name);
    if (!prefix.empty()) roots.push_back(prefix + "/lib/python3*/site-packages");
  }
  const std::string home = environment("HOME");
  if (!home.empty()) roots.push_back(home + "/.local/lib/python3*/site-packages");
  roots.insert(roots.end(),
               {"/usr/local/lib/python3*/dist-packages", "/usr/local/lib/python3*/site-packages",
                "/usr/lib/python3/dist-packages"});
  std::vector<std::string> folders;
  for (const std::string& root : roots) {
    for (const std::string& f : matches(root + "/nvidia/*/lib")) folders.push_back(f);
  }
  return folders;
}

// Opens `file`; words of the loader are kept where the file is there and cannot be used.
bool try_open(const std::string& file, bool is_path, Library& library) {
  if (is_path && access(file.c_str(), F_OK) != 0) return false;
  library.handle = dlopen(file.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (library.handle) {
    link_map* map = nullptr;
    if (dlinfo(library.handle, RTLD_DI_LINKMAP, &map) == 0 && map) library.path = map->l_name;
    return true;
  }
  const char* why = dlerror();
  const std::string words = why ? why : "no reason given";
  // "libcuda.so.1: cannot open shared object file: No such file or directory" says nothing else.
  if (is_path || words.rfind(file + ": cannot open shared object file: No such file", 0) != 0) {
    if (!library.problem.empty()) library.problem += "; ";
    library.problem += words;
  }
  return false;
}

}  // namespace

Library open_library(const std::vector<std::string>& names, bool wheels) {
  Library library;
  const std::vector<std::string> own = words_of(environment("TANDEM_GPU_LIBRARIES"), ':');
  std::vector<std::string> packages;
  if (wheels) packages = wheel_folders();
  for (const std::string& name : names) {
    for (const std::string& folder : own) {
      if (try_open(folder + "/" + name, true, library)) return library;
    }
    if (try_open(name, false, library)) return library;
    for (const std::string& folder : packages) {
      if (try_open(folder + "/" + name, true, library)) return library;
    }
  }
  if (library.problem.empty()) {
    std::string list;
    for (const std::string& n : names) list += (list.empty() ? "" : ", ") + n;
    library.problem = fmt::format("{} not found: looked where the system's loader looks", list);
    if (wheels) library.problem += ", in nvidia/*/lib of Python's packages";
    library.problem +=
        own.empty() ? " (TANDEM_GPU_LIBRARIES names more folders)" : " and in TANDEM_GPU_LIBRARIES";
  }
  return library;
}

LibraryReport report_of(const char* name, const Library& library) {
  return {.name = name, .path = library.path, .problem = library.handle ? "" : library.problem};
}

void resolve_symbol(const Library& library, const char* name, void* place, std::string& missing) {
  void* symbol = dlsym(library.handle, name);
  std::memcpy(place, &symbol, sizeof symbol);
  if (!symbol) missing += (missing.empty() ? "" : ", ") + std::string(name);
}

}  // namespace tandem::gpu
