// SPDX-License-Identifier: Apache-2.0
// The table of compiled loops and the queue of those that are wanted. Compiled functions (JitScope)
// ask; one background thread hands texts to the compiler that a backend installed, and the first
// call that finds a new loop runs it beside the interpreter (plan_use.h). codegen forks nothing.
#pragma once

#include <atomic>
#include <span>
#include <string>

#include "tandem/codegen/emit_c.h"
#include "tandem/codegen/jit_control.h"

namespace tandem::codegen {

/// One loop, shared by all plans of equal text; never destroyed.
class JitCode {
 public:
  enum State : int {
    waiting,    ///< for the compiler
    candidate,  ///< compiled; nobody ran it
    checking,   ///< a call runs both
    ready,      ///< bits were equal
    dropped     ///< no code, or bits were not equal
  };
  JitCode(std::string name, std::string text) : name(std::move(name)), text(std::move(text)) {}

  const std::string name, text;
  std::atomic<int> state{waiting};
  TileCode code = nullptr;           ///< set before `candidate`
  std::atomic<bool> differs{false};  ///< of the checking call
  std::atomic<bool> ran{false};
};

/// While one lives on a thread, plans that this thread's calls use are asked for.
class TD_API JitScope {
 public:
  JitScope();
  ~JitScope();
  JitScope(const JitScope&) = delete;
  JitScope& operator=(const JitScope&) = delete;
};

/// Ask for the plan's compiled form, once; nothing when it would not pay or the compiler is off.
void request_jit(const TilePlan& plan);
/// Ask for a function of this text; an empty text: never.
void request_jit(const JitSlot& slot, const std::string& text);
/// Off: compiled loops rest and nothing is asked for; for tests and benchmarks.
TD_API void use_jit(bool on);
bool jit_in_use();
/// Does the calling thread want compiled loops?
bool jit_wanted();

/// A loop on its way through the compiler.
struct JitSource {
  std::string name, text;
  TileCode code = nullptr;  ///< the answer
  bool cached = false;
};
/// What a backend installs. It may take long and is called by one thread at a time.
class JitCompiler {
 public:
  virtual ~JitCompiler() = default;
  /// Set `code` of every source that it can; never throws. "" or what went wrong.
  virtual std::string compile(std::span<JitSource> sources) = 0;
  /// The same for a text that may be wrong: that is no reason to turn the compiler off, and the
  /// answer is all that it printed.
  virtual std::string compile_alone(JitSource& source) { return compile({&source, 1}); }
  /// Its path and the cache's directory, "" when there is none.
  virtual std::string compiler() = 0;
  virtual std::string cache() = 0;
  /// It will compile nothing more (there is none, or it failed too often).
  virtual bool is_off() = 0;
};
/// Installed once, by a backend or a test; nullptr: none. Not destroyed.
TD_API void set_jit_compiler(JitCompiler* compiler);

/// Compile one text while the caller waits; "" or why there is no code.
TD_API std::string compile_now(JitSource& source);

/// Count what a check found; names the loop in the log when bits differed.
void jit_checked(JitCode& code, bool equal);

}  // namespace tandem::codegen
