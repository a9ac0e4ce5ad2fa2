// SPDX-License-Identifier: Apache-2.0
#include "tandem/io/pickle/pickle.h"

#include <fmt/format.h>

#include <cstring>
#include <unordered_map>

#include "tandem/base/budget.h"
#include "tandem/base/error.h"
#include "tandem/io/bytes_internal.h"
#include "tandem/io/json.h"

namespace tandem::io {

const char* to_string(PickleNode::Kind kind) {
  constexpr const char* kNames[] = {"none", "bool",   "integer", "big integer",  "number",
                                    "text", "bytes",  "tuple",   "list",         "set",
                                    "dict", "global", "call",    "persistent id"};
  return kNames[static_cast<int>(kind)];
}

namespace {

struct Refused {
  unsigned char code;
  const char* name;
};
/// Opcodes that exist but are not supported: those of old text protocols, of references to external
/// objects, and of classes.
constexpr Refused kRefused[] = {
    {'I', "INT"},          {'L', "LONG"},
    {'S', "STRING"},       {'V', "UNICODE"},
    {'F', "FLOAT"},        {'l', "LIST"},
    {'d', "DICT"},         {'0', "POP"},
    {'1', "POP_MARK"},     {'2', "DUP"},
    {'g', "GET"},          {'p', "PUT"},
    {'P', "PERSID"},       {'i', "INST"},
    {'o', "OBJ"},          {0x82, "EXT1"},
    {0x83, "EXT2"},        {0x84, "EXT4"},
    {0x8b, "LONG4"},       {0x8d, "BINUNICODE8"},
    {0x8e, "BINBYTES8"},   {0x91, "FROZENSET"},
    {0x92, "NEWOBJ_EX"},   {0x96, "BYTEARRAY8"},
    {0x97, "NEXT_BUFFER"}, {0x98, "READONLY_BUFFER"},
};

}  // namespace

class PickleReader {
 public:
  PickleReader(std::string_view data, std::string_view what, std::span<const PickleGlobal> globals,
               const PickleLimits& limits)
      : data_(data), what_(what), globals_(globals), limits_(limits) {}

  Pickle run() {
    for (;;) {
      op_at_ = at_;
      const auto code = static_cast<unsigned char>(take(1)[0]);
      if (code == '.') break;
      if (!scalar(code) && !container(code) && !object(code)) refuse(code);
    }
    if (stack_.size() != 1 || !marks_.empty())
      fail("it ends with {} values and {} marks on its stack", stack_.size(), marks_.size());
    out_.root_ = stack_[0];
    out_.bytes_ = at_;
    return std::move(out_);
  }

 private:
  using Kind = PickleNode::Kind;

  template <class... T>
  [[noreturn]] TD_COLD void fail(fmt::format_string<T...> format, const T&... args) const {
    TD_FAIL(Format, "{}: the pickle cannot be read at its byte {}: {}", what_, op_at_,
            fmt::vformat(format, fmt::make_format_args(args...)));
  }
  [[noreturn]] TD_COLD void refuse(unsigned char code) const {
    for (const Refused& r : kRefused)
      if (r.code == code) fail("the opcode {} is not one that weights and arrays use", r.name);
    fail("{:#04x} is not an opcode", code);
  }

  std::string_view take(size_t n) {
    if (n > data_.size() - at_)
      fail("it is truncated: {} bytes are needed, {} are left", n, data_.size() - at_);
    const std::string_view piece = data_.substr(at_, n);
    at_ += n;
    return piece;
  }
  template <class T>
  T take_as() {
    T v;
    std::memcpy(&v, take(sizeof v).data(), sizeof v);
    return v;
  }
  std::string_view line() {
    const size_t end = data_.substr(at_, 4096).find('\n');
    if (end == std::string_view::npos) fail("a name is never terminated");
    const std::string_view s = data_.substr(at_, end);
    at_ += end + 1;
    return s;
  }

  PickleNode* push(Kind kind) {
    Budget::count();
    Budget::take(sizeof(PickleNode) + 2 * sizeof(PickleNode*));
    out_.nodes_.emplace_back().kind = kind;
    stack_.push_back(&out_.nodes_.back());
    return stack_.back();
  }
  size_t floor() const { return marks_.empty() ? 0 : marks_.back(); }
  PickleNode* pop() {
    if (stack_.size() <= floor()) fail("its stack is empty");
    PickleNode* n = stack_.back();
    stack_.pop_back();
    return n;
  }
  PickleNode* top() {
    if (stack_.size() <= floor()) fail("its stack is empty");
    return stack_.back();
  }
  /// Pops the values above the last mark, and the mark itself.
  std::vector<const PickleNode*> pop_marked() {
    if (marks_.empty()) fail("a mark is missing");
    std::vector<const PickleNode*> items(stack_.begin() + static_cast<ptrdiff_t>(marks_.back()),
                                         stack_.end());
    stack_.resize(marks_.back());
    marks_.pop_back();
    return items;
  }

  void push_text(Kind kind, size_t bytes) {
    if (bytes > limits_.text) fail("a string of {} bytes exceeds the limit", bytes);
    const std::string_view s = take(bytes);
    if (kind == Kind::text && !is_utf8(s)) fail("a string is not UTF-8");
    Budget::take(bytes);
    push(kind)->text = s;
  }
  void push_long(size_t bytes) {
    const std::string_view s = take(bytes);
    if (bytes > 8) {
      push(Kind::big_integer)->text = s;
      return;
    }
    uint64_t v = 0;
    for (size_t i = 0; i < bytes; ++i)
      v |= static_cast<uint64_t>(static_cast<unsigned char>(s[i])) << (8 * i);
    if (bytes > 0 && bytes < 8 && s[bytes - 1] < 0) v |= ~uint64_t{0} << (8 * bytes);
    push(Kind::integer)->integer = static_cast<int64_t>(v);
  }
  void push_double() {
    uint64_t bits = 0;
    for (const char c : take(8)) bits = bits << 8 | static_cast<unsigned char>(c);
    double v;
    std::memcpy(&v, &bits, sizeof v);
    push(Kind::number)->number = v;
  }

  bool scalar(unsigned char code) {
    switch (code) {
      case 0x80: {  // PROTO
        const auto version = take_as<uint8_t>();
        if (version < 2 || version > 5) fail("protocol {} is not supported, only 2 to 5", version);
        return true;
      }
      case 0x95:
        take(8);
        return true;  // FRAME: the length of what follows, which is checked anyway
      case 'N':
        push(Kind::none);
        return true;
      case 0x88:
        push(Kind::boolean)->integer = 1;
        return true;
      case 0x89:
        push(Kind::boolean);
        return true;
      case 'J':
        push(Kind::integer)->integer = take_as<int32_t>();
        return true;
      case 'K':
        push(Kind::integer)->integer = take_as<uint8_t>();
        return true;
      case 'M':
        push(Kind::integer)->integer = take_as<uint16_t>();
        return true;
      case 0x8a:
        push_long(take_as<uint8_t>());
        return true;
      case 'G':
        push_double();
        return true;
      case 'X':
        push_text(Kind::text, take_as<uint32_t>());
        return true;
      case 0x8c:
        push_text(Kind::text, take_as<uint8_t>());
        return true;
      case 'U':
        push_text(Kind::bytes, take_as<uint8_t>());
        return true;
      case 'C':
        push_text(Kind::bytes, take_as<uint8_t>());
        return true;
      case 'T':
      case 'B':
        push_text(Kind::bytes, take_as<uint32_t>());
        return true;
      default:
        return false;
    }
  }

  bool container(unsigned char code) {
    switch (code) {
      case '(':
        marks_.push_back(stack_.size());
        return true;
      case ')':
        push(Kind::tuple);
        return true;
      case ']':
        push(Kind::list);
        return true;
      case '}':
        push(Kind::dict);
        return true;
      case 0x8f:
        push(Kind::set);
        return true;
      case 't': {
        std::vector<const PickleNode*> items = pop_marked();
        push(Kind::tuple)->items = std::move(items);
        return true;
      }
      case 0x85:
      case 0x86:
      case 0x87: {
        std::vector<const PickleNode*> items(code - 0x84U);
        for (size_t i = items.size(); i-- > 0;) items[i] = pop();
        push(Kind::tuple)->items = std::move(items);
        return true;
      }
      case 'a': {
        const PickleNode* item = pop();
        extend(Kind::list, {item});
        return true;
      }
      case 'e':
        extend(Kind::list, pop_marked());
        return true;
      case 0x90:
        extend(Kind::set, pop_marked());
        return true;
      case 's': {
        const PickleNode* value = pop();
        const PickleNode* key = pop();
        extend(Kind::dict, {key, value});
        return true;
      }
      case 'u':
        extend(Kind::dict, pop_marked());
        return true;
      default:
        return false;
    }
  }
  void extend(Kind kind, const std::vector<const PickleNode*>& items) {
    PickleNode* to = top();
    if (to->kind != kind)
      fail("items for a {} are added to a {}", to_string(kind), to_string(to->kind));
    if (kind == Kind::dict && items.size() % 2 != 0) fail("a key has no value");
    Budget::take(2 * sizeof(PickleNode*) * items.size());
    to->items.insert(to->items.end(), items.begin(), items.end());
  }

  bool object(unsigned char code) {
    switch (code) {
      case 'q':
        remember(take_as<uint8_t>());
        return true;
      case 'r':
        remember(take_as<uint32_t>());
        return true;
      case 0x94:
        remember(static_cast<uint32_t>(memo_.size()));
        return true;
      case 'h':
        recall(take_as<uint8_t>());
        return true;
      case 'j':
        recall(take_as<uint32_t>());
        return true;
      case 'c': {
        const std::string_view module = line();
        push_global(module, line());
        return true;
      }
      case 0x93: {  // STACK_GLOBAL
        const PickleNode* name = pop();
        const PickleNode* module = pop();
        if (name->kind != Kind::text || module->kind != Kind::text)
          fail("a global's name is not a string");
        push_global(module->text, name->text);
        return true;
      }
      case 'R':
      case 0x81: {  // REDUCE, NEWOBJ
        const PickleNode* arguments = pop();
        call(pop(), arguments);
        return true;
      }
      case 'Q': {
        const PickleNode* id = pop();
        push(Kind::persistent)->items = {id};
        return true;
      }
      case 'b': {  // BUILD: attributes of a dict, such as _metadata, are ignored
        const PickleNode* state = pop();
        PickleNode* to = top();
        const bool told =
            to->kind == Kind::call && find(to->text)->use == PickleGlobal::Use::object;
        if (told)
          to->state = state;
        else if (to->kind != Kind::dict)
          fail("attributes are set on a {}", to_string(to->kind));
        return true;
      }
      default:
        return false;
    }
  }
  void remember(uint32_t i) {
    Budget::take(64);  // of a map's entry
    memo_[i] = top();
  }
  void recall(uint32_t i) {
    const auto it = memo_.find(i);
    if (it == memo_.end()) fail("it refers to value {}, which was never stored", i);
    Budget::take(2 * sizeof(PickleNode*));
    stack_.push_back(it->second);
  }
  const PickleGlobal* find(std::string_view name) const {
    for (const PickleGlobal& g : globals_)
      if (g.name == name) return &g;
    return nullptr;
  }
  void push_global(std::string_view module, std::string_view name) {
    const std::string full = std::string(module) + " " + std::string(name);
    if (!find(full))
      fail("it names {}, which such a file does not need and which is not run{}{}",
           quote_json(std::string(module) + "." + std::string(name)),
           limits_.advice.empty() ? "" : "\n", limits_.advice);
    push(Kind::global)->text = full;
  }
  void call(const PickleNode* function, const PickleNode* arguments) {
    if (function->kind != Kind::global) fail("a {} is called", to_string(function->kind));
    if (arguments->kind != Kind::tuple)
      fail("the arguments of a call are a {}", to_string(arguments->kind));
    const PickleGlobal* g = find(function->text);
    switch (g->use) {
      case PickleGlobal::Use::value:
        fail("'{}' is called", g->name);
      case PickleGlobal::Use::function:
      case PickleGlobal::Use::object: {
        PickleNode* n = push(Kind::call);
        n->text = g->name;
        n->arguments = arguments;
        return;
      }
      case PickleGlobal::Use::mapping:
        push_mapping(*arguments);
        return;
      case PickleGlobal::Use::defaults:
        for (const PickleNode* a : arguments->items)
          if (a->kind != Kind::global)
            fail("'{}' is called with a {}", g->name, to_string(a->kind));
        push(Kind::dict);
        return;
    }
  }
  void push_mapping(const PickleNode& arguments) {
    PickleNode* n = push(Kind::dict);
    if (arguments.items.empty()) return;
    const PickleNode& pairs = *arguments.items[0];
    if (arguments.items.size() > 1 || (pairs.kind != Kind::list && pairs.kind != Kind::tuple))
      fail("a dict is built from items that are not pairs");
    // A dict of its own, as it may grow.
    Budget::take(4 * sizeof(PickleNode*) * pairs.items.size());
    Budget::count(pairs.items.size());
    for (const PickleNode* pair : pairs.items) {
      if ((pair->kind != Kind::list && pair->kind != Kind::tuple) || pair->items.size() != 2)
        fail("a dict is built from items that are not pairs");
      n->items.insert(n->items.end(), pair->items.begin(), pair->items.end());
    }
  }

  std::string_view data_, what_;
  std::span<const PickleGlobal> globals_;
  PickleLimits limits_;
  size_t at_ = 0, op_at_ = 0;
  Pickle out_;
  std::vector<PickleNode*> stack_;
  std::vector<size_t> marks_;
  std::unordered_map<uint32_t, PickleNode*> memo_;
};

Pickle read_pickle(std::string_view data, std::string_view what,
                   std::span<const PickleGlobal> globals, PickleLimits limits) {
  const Budget budget(what, data.size());
  return PickleReader(data, what, globals, limits).run();
}

void PickleWriter::integer(int64_t v) {
  if (v >= 0 && v < 256) {
    out_ += 'K';
    append_number(out_, static_cast<uint8_t>(v));
  } else if (v >= INT32_MIN && v <= INT32_MAX) {
    out_ += 'J';
    append_number(out_, static_cast<int32_t>(v));
  } else {
    out_ += "\x8a\x08";
    append_number(out_, v);
  }
}
void PickleWriter::number(double v) {
  uint64_t bits;
  std::memcpy(&bits, &v, sizeof bits);
  out_ += 'G';
  for (int shift = 56; shift >= 0; shift -= 8) out_ += static_cast<char>(bits >> shift);
}
void PickleWriter::text(std::string_view v) {
  TD_CHECK(is_utf8(v), Value, "the string {} is not UTF-8", quote_json(v));
  TD_CHECK(v.size() <= UINT32_MAX, Value, "a string of {} bytes is too long for a pickle",
           v.size());
  out_ += 'X';
  append_number(out_, static_cast<uint32_t>(v.size()));
  out_ += v;
}
void PickleWriter::global(std::string_view module, std::string_view name) {
  out_ += 'c';
  out_.append(module) += '\n';
  out_.append(name) += '\n';
}

}  // namespace tandem::io
