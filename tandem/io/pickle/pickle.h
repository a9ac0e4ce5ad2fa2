// SPDX-License-Identifier: Apache-2.0
// Python pickles, read as data: nothing is imported, nothing is called. A global must be in the
// caller's table; calling one gives a node that records the call (or a dict). Opcodes that
// state_dicts and arrays do not need are rejected by name. After Lib/pickletools.py of CPython.
#pragma once

#include <cstdint>
#include <deque>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "tandem/base/export.h"

namespace tandem::io {

struct PickleNode {
  enum class Kind : uint8_t {
    none,
    boolean,      // integer 0 or 1
    integer,      // integer
    big_integer,  // text: its bytes, little-endian, two's complement
    number,       // number
    text,         // text, UTF-8
    bytes,        // text: bytes, or a Python 2 string
    tuple,        // items
    list,         // items
    set,          // items
    dict,         // items: key, value, key, value ...
    global,       // text: "module name"
    call,         // text: the function; arguments; state, if one was set
    persistent,   // items: the one id
  };
  Kind kind = Kind::none;
  int64_t integer = 0;
  double number = 0;
  std::string text;
  /// A value may appear in several places, and a list or dict inside itself: walkers need a limit.
  std::vector<const PickleNode*> items;
  const PickleNode* arguments = nullptr;  ///< the tuple, which other calls may share
  const PickleNode* state = nullptr;
};
/// "none", "bool", "integer", ... for messages.
TD_API const char* to_string(PickleNode::Kind kind);

/// A global that a pickle may name, as "module name", and what it may be used for.
struct PickleGlobal {
  enum class Use : uint8_t {
    value,     ///< only as a value: a type
    function,  ///< may be called: gives a node `call`
    mapping,   ///< calling it gives a dict of its pairs
    object,    ///< as `function`; the node keeps the state that is set on it afterwards
    defaults,  ///< calling it with a type gives an empty dict: collections.defaultdict
  };
  std::string_view name;
  Use use = Use::value;
};

struct PickleLimits {
  size_t text = size_t{1} << 20;  ///< bytes of one string
  std::string_view advice = {};   ///< what to do about a name that is rejected
};

class TD_API Pickle {
 public:
  const PickleNode& root() const { return *root_; }
  /// Bytes of the pickle, including its STOP.
  size_t bytes() const { return bytes_; }

 private:
  friend class PickleReader;
  std::deque<PickleNode> nodes_;
  const PickleNode* root_ = nullptr;
  size_t bytes_ = 0;
};

/// Read the pickle at the start of `data`. Throws Format with `what` (a file's name), the byte and
/// the reason: truncated, damaged, an opcode or a global that is not allowed, or over a limit of
/// its own or of the open Budget.
TD_API Pickle read_pickle(std::string_view data, std::string_view what,
                          std::span<const PickleGlobal> globals, PickleLimits limits = {});

/// Writes the opcodes of protocol 2, piece by piece.
class TD_API PickleWriter {
 public:
  PickleWriter() : out_("\x80\x02") {}
  void none() { out_ += 'N'; }
  void boolean(bool v) { out_ += v ? '\x88' : '\x89'; }
  void integer(int64_t v);
  void number(double v);
  void text(std::string_view v);
  void global(std::string_view module, std::string_view name);
  void mark() { out_ += '('; }
  void tuple() { out_ += 't'; }  ///< of the values above the mark
  void empty_tuple() { out_ += ')'; }
  void empty_list() { out_ += ']'; }
  void empty_dict() { out_ += '}'; }
  void appends() { out_ += 'e'; }
  void setitems() { out_ += 'u'; }
  void reduce() { out_ += 'R'; }
  void persistent() { out_ += 'Q'; }
  /// The complete pickle.
  std::string finish() { return std::move(out_) + "."; }

 private:
  std::string out_;
};

}  // namespace tandem::io
