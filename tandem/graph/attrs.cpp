// SPDX-License-Identifier: Apache-2.0
// Compare, hash and print attrs of any struct by visiting its fields. Cache keys, graph dumps and
// CSE call these.
#include "tandem/graph/attrs.h"

#include <fmt/format.h>

#include "tandem/base/hash/hash.h"

namespace tandem {
namespace {

// Values in sequence, lists with their length: equal bytes exactly for equal attrs.
class Bytes final : public AttrVisitor {
 public:
  Bytes(std::string& out, std::vector<RefCounted*>* objects) : out_(out), objects_(objects) {}
  void operator()(const char*, int64_t& v) override { put(v); }
  void operator()(const char*, double& v) override { put(v); }
  void operator()(const char*, bool& v) override { out_.push_back(v ? 1 : 0); }
  void operator()(const char*, DType& v) override { out_.push_back(static_cast<char>(v)); }
  void operator()(const char*, std::string& v) override {
    put(static_cast<int64_t>(v.size()));
    out_ += v;
  }
  void operator()(const char*, IntList& v) override {
    out_.push_back(static_cast<char>(v.rank()));
    for (Dim d : v) put(d.raw());
  }
  void operator()(const char*, Scalar& v) override {
    out_.push_back(static_cast<char>(v.kind));
    put(v.i);
  }
  void operator()(const char*, std::vector<int64_t>& v) override {
    put(static_cast<int64_t>(v.size()));
    for (int64_t x : v) put(x);
  }
  void operator()(const char*, Ref<RefCounted>& v) override {
    if (objects_)
      objects_->push_back(v.get());
    else
      put(v.get());
  }

 private:
  template <class T>
  void put(const T& v) {
    out_.append(reinterpret_cast<const char*>(&v), sizeof v);
  }
  std::string& out_;
  std::vector<RefCounted*>* objects_;
};

class Printer final : public AttrVisitor {
 public:
  std::string text;
  void operator()(const char* name, int64_t& v) override { put(name, fmt::to_string(v)); }
  void operator()(const char* name, double& v) override { put(name, fmt::to_string(v)); }
  void operator()(const char* name, bool& v) override { put(name, v ? "true" : "false"); }
  void operator()(const char* name, DType& v) override { put(name, to_string(v)); }
  void operator()(const char* name, std::string& v) override { put(name, '"' + v + '"'); }
  void operator()(const char* name, IntList& v) override { put(name, v.to_string()); }
  void operator()(const char* name, Scalar& v) override {
    put(name, v.kind == 2   ? fmt::to_string(v.f)
              : v.kind == 1 ? fmt::to_string(v.i)
                            : std::string(v.i ? "true" : "false"));
  }
  void operator()(const char* name, std::vector<int64_t>& v) override {
    std::string list = "[";
    for (size_t i = 0; i < v.size(); ++i) list += (i ? ", " : "") + fmt::to_string(v[i]);
    put(name, list + "]");
  }
  void operator()(const char* name, Ref<RefCounted>& v) override {
    put(name, v ? "<object>" : "<none>");
  }

 private:
  void put(const char* name, const std::string& value) {
    if (!text.empty()) text += ", ";
    text += name;
    text += '=';
    text += value;
  }
};

// Reading visitors take a pointer to const; a struct's `fields` is one function for both uses.
void visit(const AttrsType* type, const void* attrs, AttrVisitor& v) {
  if (type && attrs) type->visit(const_cast<void*>(attrs), v);
}

}  // namespace

void append_attr_bytes(const AttrsType* type, const void* attrs, std::string& out,
                       std::vector<RefCounted*>* objects) {
  Bytes bytes(out, objects);
  visit(type, attrs, bytes);
}

uint64_t hash_attrs(const AttrsType* type, const void* attrs) {
  std::string bytes;
  append_attr_bytes(type, attrs, bytes);
  return hash_string(bytes);
}

bool equal_attrs(const AttrsType* type, const void* a, const void* b) {
  if (a == b) return true;
  if (!a || !b) return false;
  std::string x, y;
  append_attr_bytes(type, a, x);
  append_attr_bytes(type, b, y);
  return x == y;
}

std::string print_attrs(const AttrsType* type, const void* attrs) {
  Printer p;
  visit(type, attrs, p);
  return p.text;
}

}  // namespace tandem
