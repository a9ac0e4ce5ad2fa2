// SPDX-License-Identifier: Apache-2.0
// From source texts to functions: looked up on disk, else compiled several per translation unit,
// kept and loaded. A compiler that fails three times, or hangs once, is not called again.
#include <dlfcn.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <memory>
#include <utility>

#include "tandem/backend/cpu/jit/jit_internal.h"
#include "tandem/base/hash/sha256.h"
#include "tandem/base/processor.h"
#include "tandem/base/processor_name.h"

namespace tandem::detail {
namespace {

constexpr int kMostFailures = 3;

std::vector<std::string> flags_of() {
  std::vector<std::string> flags = {"-std=gnu11",
                                    "-O3",
                                    "-ffp-contract=off",
                                    "-w",
                                    "-fPIC",
                                    "-fno-math-errno",
                                    "-fno-trapping-math",  // or comparisons stay branches
                                    "-shared",
                                    "-nostartfiles",
                                    "-fno-strict-aliasing",
                                    "-fvisibility=hidden"};
#if defined(__x86_64__)
  if (cpu_limit() == CpuLimit::base) return flags;
  flags.push_back("-march=native");
  flags.push_back(cpu_features().avx512 ? "-mprefer-vector-width=512" : "-mno-avx512f");
#else
  flags.push_back("-mcpu=native");
#endif
  return flags;
}

std::string first_line(const std::string& s) { return s.substr(0, s.find('\n')); }

}  // namespace

std::string CCompiler::compiler() {
  std::lock_guard hold(lock_);
  return path_;
}
std::string CCompiler::cache() {
  std::lock_guard hold(lock_);
  return cache_ && cache_->keeps() ? cache_->directory() : "";
}
bool CCompiler::is_off() {
  std::lock_guard hold(lock_);
  return off_;
}

void CCompiler::turn_off(const std::string& problem) {
  std::lock_guard hold(lock_);
  off_ = true;
  if (problem_.empty()) problem_ = problem;
}

void CCompiler::fail(const std::string& problem) {
  {
    std::lock_guard hold(lock_);
    if (problem_.empty()) problem_ = problem;
  }
  if (!may_be_wrong_ && ++failures_ >= kMostFailures) turn_off(problem);
}

void CCompiler::prepare() {
  if (prepared_) return;
  prepared_ = true;
  const char* wanted = std::getenv("TANDEM_CC");
  std::string path;
  if (!options_.compiler.empty()) {
    path = find_program(options_.compiler);
  } else if (wanted && *wanted) {
    path = find_program(wanted);
  } else {
    for (const char* name : {"cc", "gcc", "clang"}) {
      if (path.empty()) path = find_program(name);
    }
  }
  auto cache = std::make_unique<JitCache>(options_.directory, options_.cap_bytes);
  {
    std::lock_guard hold(lock_);
    path_ = path;
    cache_ = std::move(cache);
    if (!cache_->keeps()) problem_ = "nothing is kept on disk: " + cache_->problem();
  }
  if (path.empty()) {
    const std::string asked = !options_.compiler.empty() ? options_.compiler : wanted ? wanted : "";
    // The absence of a compiler is not worth a warning.
    return turn_off(asked.empty() ? "" : fmt::format("{} is not a program", asked));
  }
  const ProcessResult version = run_process({path, "--version"}, "", 10);
  if (version.how == ProcessResult::program_ends) return turn_off("");
  if (version.how != ProcessResult::exited || version.status != 0) {
    return turn_off(fmt::format("{} --version failed", path));
  }
  flags_ = flags_of();
  flags_.insert(flags_.end(), options_.flags.begin(), options_.flags.end());
  identity_ = first_line(version.output) + "\n" + path + "\n" + processor_identity();
  for (const std::string& f : flags_) identity_ += f + " ";
  identity_ += sha256_hex(codegen::emit_preamble());
}

std::string CCompiler::key_of(const codegen::JitSource& s) const {
  return sha256_hex(identity_ + "\n" + s.name + "\n" + s.text);
}

namespace {

// The function of `s` in a loaded file.
bool resolve(void* library, codegen::JitSource& s) {
  void* symbol = library ? dlsym(library, s.name.c_str()) : nullptr;
  if (!symbol) return false;
  std::memcpy(&s.code, &symbol, sizeof symbol);
  return true;
}

}  // namespace

bool CCompiler::from_cache(codegen::JitSource& s) {
  const std::string path = cache_->find(key_of(s));
  if (path.empty()) return false;
  s.cached = resolve(cache_->load(path), s);
  return s.cached;
}

bool CCompiler::compile_file(const std::string& scratch, const Sources& sources) {
  const std::string text = scratch + "/loops.c", out = scratch + "/loops.so";
  {
    std::ofstream f(text);
    f << codegen::emit_preamble();
    for (const codegen::JitSource* s : sources) {
      f << "\n#define TDM_NAME " << s->name << "\n" << s->text << "#undef TDM_NAME\n";
    }
    f.close();
    if (!f) return fail(fmt::format("{} cannot be written", text)), false;
  }
  std::vector<std::string> args = {path_};
  args.insert(args.end(), flags_.begin(), flags_.end());
  args.insert(args.end(), {"-o", out, text, "-lm"});
  const ProcessResult r = run_process(args, scratch, options_.seconds);
  if (r.how == ProcessResult::program_ends) return turn_off(""), false;
  if (r.how == ProcessResult::killed_for_time) {
    turn_off(fmt::format("{} took more than {:g} seconds", path_, options_.seconds));
    return false;
  }
  if (r.how == ProcessResult::not_started) {
    turn_off(fmt::format("{} cannot be started: {}", path_, std::strerror(r.status)));
    return false;
  }
  if (r.status != 0) {
    if (sources.size() == 1) {
      fail(fmt::format("{} ended with {}: {}", path_, r.status,
                       may_be_wrong_ ? r.output : first_line(r.output)));
    }
    return false;
  }
  return true;
}

// Compile, keep and load one translation unit. False if that failed.
bool CCompiler::build_unit(const Sources& sources) {
  const ScratchInUse in_use;
  const std::string scratch = cache_->make_scratch();
  if (scratch.empty()) {
    turn_off(fmt::format("cannot create a directory for the compiler's files: {}",
                         cache_->scratch_problem()));
    return false;
  }
  bool good = compile_file(scratch, sources);
  if (good) {
    std::vector<std::string> keys;
    for (const codegen::JitSource* s : sources) keys.push_back(key_of(*s));
    const std::string path = cache_->keep(scratch + "/loops.so", keys);
    void* library = path.empty() ? nullptr : cache_->load(path);
    if (library) {
      for (codegen::JitSource* s : sources) good = resolve(library, *s) && good;
    } else {
      const char* why =
          path.empty() ? "the compiler wrote nothing, or the disk is full" : dlerror();
      fail(fmt::format("the output of {} cannot be loaded: {}", path_,
                       why ? why : "no reason given"));
    }
  }
  JitCache::remove_tree(scratch);
  return good;
}

void CCompiler::build(const Sources& sources) {
  if (off_ || sources.empty() || build_unit(sources) || sources.size() == 1) return;
  for (codegen::JitSource* s : sources) {  // one of them is at fault, or all
    if (!off_ && !s->code) build_unit({s});
  }
}

std::string CCompiler::compile(std::span<codegen::JitSource> sources) {
  try {
    prepare();
    if (!off_) {
      Sources missing;
      for (codegen::JitSource& s : sources) {
        if (!from_cache(s)) missing.push_back(&s);
      }
      build(missing);
    }
  } catch (const std::exception& e) {
    turn_off(e.what());
  }
  std::lock_guard hold(lock_);
  return std::exchange(problem_, "");
}

std::string CCompiler::compile_alone(codegen::JitSource& source) {
  may_be_wrong_ = true;
  const std::string problem = compile({&source, 1});
  may_be_wrong_ = false;
  return problem;
}

void register_jit() {
  // Kept forever: the background thread may use it until the process ends.
  static CCompiler* const compiler = new CCompiler(JitOptions{});
  codegen::set_jit_compiler(compiler);
}

}  // namespace tandem::detail
