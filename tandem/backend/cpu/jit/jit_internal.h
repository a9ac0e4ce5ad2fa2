// SPDX-License-Identifier: Apache-2.0
// Compiled loops: the system's C compiler as a child process, and the private directory that keeps
// its output. Used by the background thread of codegen/jit.cpp; nothing here throws to it.
#pragma once

#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

#include "tandem/base/export.h"
#include "tandem/base/files/private_folder.h"
#include "tandem/codegen/jit.h"

namespace tandem::detail {

// ---- child processes
struct ProcessResult {
  enum How { exited, killed_for_time, not_started, program_ends } how = not_started;
  int status = 0;      ///< exit code, 128 + signal, or errno of not_started
  std::string output;  ///< first bytes of stdout and stderr
};
/// Run `arguments` (the first is the program's path) without a shell: no standard input, `scratch`
/// as TMPDIR, its own process group, which is killed after `seconds`.
TD_API ProcessResult run_process(const std::vector<std::string>& arguments,
                                 const std::string& scratch, double seconds);
/// While one lives, the end of the program waits for it briefly: a scratch directory is in use.
struct ScratchInUse {
  ScratchInUse();
  ~ScratchInUse();
};
/// The path of program `name`: unchanged if it has a '/', else searched on PATH; "" if not found.
TD_API std::string find_program(const std::string& name);

// ---- the directory
// Files <key>.so, each sealed with a hash of its content. Processes may share a directory.
class TD_API JitCache {
 public:
  /// "" means the user's, PrivateFolder::cache(). If it may not be used, a directory in TMPDIR is
  /// created and removed at once, and nothing is kept.
  JitCache(const std::string& directory, int64_t cap_bytes);

  bool keeps() const { return static_cast<bool>(folder_); }
  const std::string& directory() const { return folder_.path(); }
  /// Why nothing is kept; empty if it is.
  const std::string& problem() const { return folder_.problem(); }

  /// The path of an intact, sealed file, or "": absent, truncated or modified (then it is removed).
  std::string find(const std::string& key);
  /// dlopen() of a file that find() or keep() gave; from a copy where the directory is on a file
  /// system without code (noexec). nullptr and dlerror() when that fails.
  void* load(const std::string& path);
  /// Seal `file`, from a scratch directory, and keep it under all `keys`. The path to load (`file`:
  /// a kept one may be evicted at once if the cap is small), "" when the disk is full.
  std::string keep(const std::string& file, const std::vector<std::string>& keys);
  /// A fresh private directory for a compiler's files that code may be loaded from, "" if none can
  /// be created.
  std::string make_scratch();
  /// Why there was none; empty if there was.
  const std::string& scratch_problem() const { return scratch_problem_; }
  static void remove_tree(const std::string& directory);

 private:
  void remove_stale();
  void shrink();

  PrivateFolder folder_;
  std::string scratch_problem_;
  int64_t cap_;
  bool noexec_ = false;
};

/// A sealed file's content is `bytes` + mark + hash.
std::string seal_of(std::string_view bytes);

// ---- the compiler
struct JitOptions {
  std::string compiler;   ///< "" looks for $TANDEM_CC, cc, gcc, clang
  std::string directory;  ///< "": see JitCache
  int64_t cap_bytes = int64_t{256} << 20;
  double seconds = 60;             ///< for one translation unit
  std::vector<std::string> flags;  ///< added to the usual ones
};

class TD_API CCompiler : public codegen::JitCompiler {
 public:
  explicit CCompiler(JitOptions options) : options_(std::move(options)) {}
  std::string compile(std::span<codegen::JitSource> sources) override;
  std::string compile_alone(codegen::JitSource& source) override;
  std::string compiler() override;
  std::string cache() override;
  bool is_off() override;

 private:
  using Sources = std::vector<codegen::JitSource*>;
  void prepare();
  std::string key_of(const codegen::JitSource& s) const;
  bool from_cache(codegen::JitSource& s);
  void build(const Sources& sources);
  bool build_unit(const Sources& sources);
  bool compile_file(const std::string& scratch, const Sources& sources);
  void fail(const std::string& problem);
  void turn_off(const std::string& problem);

  const JitOptions options_;
  std::mutex lock_;  // guards what other threads may query
  bool prepared_ = false, off_ = false;
  bool may_be_wrong_ = false;  // the text is somebody's, and its errors are not the compiler's
  int failures_ = 0;
  std::string path_, identity_, problem_;
  std::vector<std::string> flags_;
  std::unique_ptr<JitCache> cache_;
};

/// Install the compiler of this process; called once by register_cpu_backend.
void register_jit();

}  // namespace tandem::detail
