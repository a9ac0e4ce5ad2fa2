// SPDX-License-Identifier: Apache-2.0
// load_planetoid(): a reader of just the pickles that Planetoid's files are. It builds a tree of
// values; globals are names, a call or a state is a node that says so. Any other opcode is refused.
#include <algorithm>
#include <cstring>
#include <deque>
#include <set>

#include "tandem/base/error.h"
#include "tandem/data/vision_datasets.h"
#include "tandem/ops/ops.h"

namespace tandem::data {
namespace {

struct Value {
  enum Kind : uint8_t { none, number, bytes, items, dict, global, object, mark } kind = none;
  int64_t n = 0;
  std::string_view text;      // of bytes; "module name" of a global
  std::vector<Value*> parts;  // of items (tuple, list); key, value ... of a dict
  Value* function = nullptr;  // of an object: what was called, with which arguments ...
  Value* arguments = nullptr;
  Value* state = nullptr;  // ... and what it was told afterwards
};

class Unpickler {
 public:
  Unpickler(std::string_view data, std::string name) : data_(data), name_(std::move(name)) {}

  Value& read() {
    while (true) {
      const char op = take(1)[0];
      if (op == '.') return *pop();
      step(op);
    }
  }
  const std::string& name() const { return name_; }

 private:
  [[noreturn]] void damaged(const char* why) const {
    TD_FAIL(Format, "'{}' is no pickle of Planetoid: {} near byte {}", name_, why, at_);
  }
  std::string_view take(size_t n) {
    if (n > data_.size() - at_) damaged("it is cut");
    at_ += n;
    return data_.substr(at_ - n, n);
  }
  int64_t little(size_t n) {
    const std::string_view p = take(n);
    uint64_t v = 0;
    for (size_t i = n; i-- > 0;) v = v << 8 | static_cast<unsigned char>(p[i]);
    return n == 4 ? static_cast<int32_t>(v) : static_cast<int64_t>(v);
  }
  std::string_view line() {
    const size_t end = data_.find('\n', at_);
    if (end == std::string_view::npos) damaged("it is cut");
    const std::string_view out = data_.substr(at_, end - at_);
    at_ = end + 1;
    return out;
  }
  Value* make(Value::Kind kind) {
    if (values_.size() > size_t{1} << 24) damaged("it has too many values");
    values_.emplace_back();
    values_.back().kind = kind;
    return &values_.back();
  }
  void push(Value* v) { stack_.push_back(v); }
  Value* pop() {
    if (stack_.empty()) damaged("its stack is empty");
    Value* v = stack_.back();
    stack_.pop_back();
    return v;
  }
  std::vector<Value*> to_mark() {
    std::vector<Value*> out;
    while (true) {
      Value* v = pop();
      if (v->kind == Value::mark) break;
      out.push_back(v);
    }
    std::reverse(out.begin(), out.end());
    return out;
  }
  void put_number(int64_t n) {
    Value* v = make(Value::number);
    v->n = n;
    push(v);
  }
  void put_bytes(int64_t n) {
    if (n < 0) damaged("a text has a negative length");
    Value* v = make(Value::bytes);
    v->text = take(static_cast<size_t>(n));
    push(v);
  }
  void put_tuple(size_t n) {
    Value* v = make(Value::items);
    v->parts.resize(n);
    for (size_t i = n; i-- > 0;) v->parts[i] = pop();
    push(v);
  }
  void call() {
    Value* v = make(Value::object);
    v->arguments = pop();
    v->function = pop();
    push(v);
  }
  void remember(int64_t key) {
    if (key < 0 || key > 1 << 24 || stack_.empty()) damaged("its memory is damaged");
    if (memory_.size() <= static_cast<size_t>(key)) memory_.resize(static_cast<size_t>(key) + 1);
    memory_[static_cast<size_t>(key)] = stack_.back();
  }
  void recall(int64_t key) {
    if (key < 0 || static_cast<size_t>(key) >= memory_.size() || !memory_[static_cast<size_t>(key)])
      damaged("its memory is damaged");
    push(memory_[static_cast<size_t>(key)]);
  }
  Value* top() {
    if (stack_.empty()) damaged("its stack is empty");
    return stack_.back();
  }
  void append(const std::vector<Value*>& all) {
    Value* to = top();
    to->parts.insert(to->parts.end(), all.begin(), all.end());
  }

  void step(char op) {
    switch (op) {
      case '\x80':
        take(1);
        return;    // PROTO
      case 'c': {  // GLOBAL
        const size_t from = at_;
        line();
        line();
        Value* v = make(Value::global);
        v->text = data_.substr(from, at_ - 1 - from);
        return push(v);
      }
      case 'q':
        return remember(little(1));  // BINPUT
      case 'r':
        return remember(little(4));  // LONG_BINPUT
      case 'h':
        return recall(little(1));  // BINGET
      case 'j':
        return recall(little(4));  // LONG_BINGET
      case '(':
        return push(make(Value::mark));  // MARK
      case ')':
        return push(make(Value::items));  // EMPTY_TUPLE
      case ']':
        return push(make(Value::items));  // EMPTY_LIST
      case '}':
        return push(make(Value::dict));  // EMPTY_DICT
      case 'N':
        return push(make(Value::none));  // NONE
      case '\x88':
        return put_number(1);  // NEWTRUE
      case '\x89':
        return put_number(0);  // NEWFALSE
      case 'K':
        return put_number(little(1));  // BININT1
      case 'M':
        return put_number(little(2));  // BININT2
      case 'J':
        return put_number(little(4));  // BININT
      case 'U':
        return put_bytes(little(1));  // SHORT_BINSTRING
      case 'T':                       // BINSTRING
      case 'X':
        return put_bytes(little(4));  // BINUNICODE
      case '\x85':
        return put_tuple(1);  // TUPLE1
      case '\x86':
        return put_tuple(2);  // TUPLE2
      case '\x87':
        return put_tuple(3);  // TUPLE3
      case 't': {             // TUPLE
        Value* v = make(Value::items);
        v->parts = to_mark();
        return push(v);
      }
      case 'a': {  // APPEND
        Value* v = pop();
        return append({v});
      }
      case 'e':  // APPENDS
      case 'u':
        return append(to_mark());  // SETITEMS
      case 's': {                  // SETITEM
        Value* v = pop();
        Value* key = pop();
        return append({key, v});
      }
      case 'R':  // REDUCE
      case '\x81':
        return call();  // NEWOBJ
      case 'b': {       // BUILD
        Value* v = pop();
        top()->state = v;
        return;
      }
      default:
        damaged("an opcode that these files do not have");
    }
  }

  std::string_view data_;
  std::string name_;
  size_t at_ = 0;
  std::deque<Value> values_;
  std::vector<Value*> stack_, memory_;
};

// One file, mapped, and its values.
struct Source {
  Source(const std::string& folder, const std::string& name, const char* part)
      : file(make_ref<MappedFile>(folder + "/ind." + name + "." + part)),
        reader(file->view(), file->path()),
        root(&reader.read()) {}
  Ref<MappedFile> file;
  Unpickler reader;
  Value* root;
};

void want(bool ok, const Source& s, const char* what) {
  TD_CHECK(ok, Format, "'{}': {}", s.file->path(), what);
}

// A numpy array: its numbers and sizes.
struct Array {
  std::vector<double> v;
  std::vector<int64_t> sizes;
};
Array array_of(const Value* a, const Source& s) {
  want(a->kind == Value::object && a->function->text == "numpy.core.multiarray\n_reconstruct" &&
           a->state && a->state->parts.size() == 5,
       s, "an array was expected");
  const std::vector<Value*>& p = a->state->parts;  // version, shape, dtype, fortran, bytes
  Array out;
  int64_t n = 1;
  for (const Value* d : p[1]->parts) {
    want(d->kind == Value::number && d->n >= 0 && d->n <= 1 << 28, s, "a size is out of range");
    out.sizes.push_back(d->n);
    want(d->n == 0 || n <= (int64_t{1} << 28) / d->n, s, "an array is too large");
    n *= d->n;
  }
  const Value* type = p[2];
  want(type->kind == Value::object && type->function->text == "numpy\ndtype" &&
           !type->arguments->parts.empty() && p[3]->n == 0 && p[4]->kind == Value::bytes,
       s, "an array of numbers in C's order was expected");
  const std::string_view code = type->arguments->parts[0]->text, bytes = p[4]->text;
  const auto copy = [&](auto one) {
    want(bytes.size() == static_cast<size_t>(n) * sizeof one, s, "an array is cut");
    for (int64_t i = 0; i < n; ++i) {
      std::memcpy(&one, bytes.data() + static_cast<size_t>(i) * sizeof one, sizeof one);
      out.v.push_back(static_cast<double>(one));
    }
  };
  if (code == "i4")
    copy(int32_t());
  else if (code == "i8")
    copy(int64_t());
  else if (code == "f4")
    copy(float());
  else if (code == "f8")
    copy(double());
  else
    want(false, s, "an array has elements of another type than i4, i8, f4, f8");
  return out;
}

// A csr_matrix as dense rows.
struct Rows {
  int64_t n = 0, columns = 0;
  std::vector<float> v;
};
Rows rows_of(const Source& s) {
  want(s.root->kind == Value::object && s.root->function->text == "scipy.sparse.csr\ncsr_matrix" &&
           s.root->state && s.root->state->kind == Value::dict,
       s, "a csr_matrix was expected");
  const auto member = [&](std::string_view key) -> const Value* {
    const std::vector<Value*>& p = s.root->state->parts;
    for (size_t i = 0; i + 1 < p.size(); i += 2)
      if (p[i]->text == key) return p[i + 1];
    TD_FAIL(Format, "'{}': the matrix has no '{}'", s.file->path(), key);
  };
  const Value* shape = member("_shape");
  want(shape->parts.size() == 2, s, "a matrix has two sizes");
  Rows out;
  out.n = shape->parts[0]->n;
  out.columns = shape->parts[1]->n;
  want(out.n >= 0 && out.columns > 0 && out.n <= (int64_t{1} << 28) / out.columns, s,
       "the matrix is too large");
  const Array ptr = array_of(member("indptr"), s), index = array_of(member("indices"), s);
  const Array data = array_of(member("data"), s);
  want(ptr.v.size() == static_cast<size_t>(out.n) + 1 && index.v.size() == data.v.size(), s,
       "the matrix does not fit together");
  out.v.resize(static_cast<size_t>(out.n * out.columns));
  for (size_t r = 0; r < static_cast<size_t>(out.n); ++r) {
    want(ptr.v[r] >= 0 && ptr.v[r] <= ptr.v[r + 1] &&
             ptr.v[r + 1] <= static_cast<double>(data.v.size()),
         s, "rows of the matrix overlap");
    for (auto i = static_cast<size_t>(ptr.v[r]); i < static_cast<size_t>(ptr.v[r + 1]); ++i) {
      want(index.v[i] >= 0 && index.v[i] < static_cast<double>(out.columns), s,
           "a column is out of range");
      out.v[r * static_cast<size_t>(out.columns) + static_cast<size_t>(index.v[i])] =
          static_cast<float>(data.v[i]);
    }
  }
  return out;
}

// The class of each row of one-hot labels.
std::vector<int64_t> classes_of(const Source& s, int64_t& count) {
  const Array a = array_of(s.root, s);
  want(a.sizes.size() == 2 && a.sizes[1] > 0, s, "labels [n, classes] were expected");
  count = a.sizes[1];
  std::vector<int64_t> out;
  for (size_t r = 0; r < static_cast<size_t>(a.sizes[0]); ++r) {
    const auto row = a.v.begin() + static_cast<int64_t>(r) * count;
    out.push_back(std::max_element(row, row + count) - row);
  }
  return out;
}

std::vector<int64_t> test_rows(const std::string& path) {
  std::vector<int64_t> out;
  const std::string text = read_file(path, size_t{1} << 26);
  int64_t n = -1;
  for (const char c : text + "\n") {
    TD_CHECK((c >= '0' && c <= '9') || c == '\n' || c == '\r', Format, "'{}': line {} is no number",
             path, out.size() + 1);
    if (c >= '0' && c <= '9') {
      n = std::max<int64_t>(n, 0) * 10 + (c - '0');
      TD_CHECK(n < 1 << 28, Format, "'{}': line {} is too large", path, out.size() + 1);
    } else if (n >= 0) {
      out.push_back(n);
      n = -1;
    }
  }
  TD_CHECK(!out.empty(), Format, "'{}' is empty", path);
  return out;
}

Tensor mask(int64_t n, int64_t from, int64_t to) {
  const Tensor i = arange(n);
  return (i >= from) & (i < to);
}

}  // namespace

Planetoid load_planetoid(const FilePath& folder, const std::string& name) {
  const Source allx(folder.str(), name, "allx"), tx(folder.str(), name, "tx");
  const Source ally(folder.str(), name, "ally"), ty(folder.str(), name, "ty");
  const Source y(folder.str(), name, "y"), graph(folder.str(), name, "graph");
  const std::vector<int64_t> order = test_rows(folder.str() + "/ind." + name + ".test.index");
  const Rows known = rows_of(allx), tests = rows_of(tx);
  Planetoid out;
  int64_t count = 0;
  std::vector<int64_t> labels = classes_of(ally, out.num_classes);
  const std::vector<int64_t> test_labels = classes_of(ty, count);
  want(count == out.num_classes && tests.columns == known.columns &&
           tests.n == static_cast<int64_t>(order.size()) && test_labels.size() == order.size() &&
           labels.size() == static_cast<size_t>(known.n),
       tx, "the parts of the set do not fit together");
  // Test rows lie behind the others in an order of their own; rows that no file has stay empty.
  const int64_t last = *std::max_element(order.begin(), order.end());
  want(*std::min_element(order.begin(), order.end()) >= known.n && last < 1 << 24, tx,
       "a test row lies among the others");
  const int64_t nodes = last + 1;
  const auto columns = static_cast<size_t>(known.columns);
  std::vector<float> x = known.v;
  x.resize(static_cast<size_t>(nodes) * columns);
  labels.resize(static_cast<size_t>(nodes));
  for (size_t i = 0; i < order.size(); ++i) {
    const auto at = static_cast<size_t>(order[i]);
    std::copy_n(tests.v.begin() + static_cast<int64_t>(i * columns), columns,
                x.begin() + static_cast<int64_t>(at * columns));
    labels[at] = test_labels[i];
  }
  std::set<std::pair<int64_t, int64_t>> edges;
  want(graph.root->parts.size() % 2 == 0 && !graph.root->parts.empty(), graph,
       "lists of neighbours were expected");
  for (size_t i = 0; i < graph.root->parts.size(); i += 2)
    for (const Value* other : graph.root->parts[i + 1]->parts) {
      const int64_t a = graph.root->parts[i]->n, b = other->n;
      want(a >= 0 && a < nodes && b >= 0 && b < nodes, graph, "a node is out of range");
      if (a == b) continue;
      edges.emplace(a, b);
      edges.emplace(b, a);
    }
  std::vector<int64_t> ends;
  for (const auto& e : edges) ends.push_back(e.first);
  for (const auto& e : edges) ends.push_back(e.second);
  const auto trained = static_cast<int64_t>(classes_of(y, count).size());
  std::vector<uint8_t> tested(static_cast<size_t>(nodes));
  for (const int64_t i : order) tested[static_cast<size_t>(i)] = 1;
  out.x = tensor(x, Shape(nodes, known.columns));
  out.y = tensor(labels);
  out.edge_index = tensor(ends, Shape(int64_t{2}, static_cast<int64_t>(edges.size())));
  out.train_mask = mask(nodes, 0, trained);
  out.val_mask = mask(nodes, trained, trained + 500);
  out.test_mask = tensor(tested).to(DType::b8);
  return out;
}

}  // namespace tandem::data
