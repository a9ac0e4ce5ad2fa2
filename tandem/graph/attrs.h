// SPDX-License-Identifier: Apache-2.0
// Attributes of an op: a plain struct with defaults and one `fields` function that names its
// members. Copy, compare, hash, print and save derive from it; a default per field lets old files
// load. Erased as `const void*` together with an AttrsType.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "tandem/base/intrusive.h"
#include "tandem/tensor/scalar.h"
#include "tandem/tensor/shape.h"

namespace tandem {

/// Visits every field of an attrs struct in order. Readers use the value, loaders write it.
class AttrVisitor {
 public:
  virtual ~AttrVisitor() = default;
  virtual void operator()(const char* name, int64_t& v) = 0;
  virtual void operator()(const char* name, double& v) = 0;
  virtual void operator()(const char* name, bool& v) = 0;
  virtual void operator()(const char* name, DType& v) = 0;
  virtual void operator()(const char* name, std::string& v) = 0;
  virtual void operator()(const char* name, IntList& v) = 0;
  virtual void operator()(const char* name, Scalar& v) = 0;
  virtual void operator()(const char* name, std::vector<int64_t>& v) = 0;
  /// A graph or a closure: compared by identity, never saved.
  virtual void operator()(const char* name, Ref<RefCounted>& v) = 0;
};

/// What the table knows about an attrs struct.
struct AttrsType {
  const char* name;
  size_t size;
  void* (*make)();
  void* (*clone)(const void*);
  void (*destroy)(void*);
  void (*visit)(void*, AttrVisitor&);
};

/// The AttrsType of struct A, whose `template <class V> void fields(V& v)` names its members.
/// Compare rows, not its address: GCC 12 keeps one of its own in each file.
template <class A>
inline constexpr AttrsType kAttrsOf = {
    nullptr,
    sizeof(A),
    []() -> void* { return new A(); },
    [](const void* p) -> void* { return new A(*static_cast<const A*>(p)); },
    [](void* p) { delete static_cast<A*>(p); },
    [](void* p, AttrVisitor& v) { static_cast<A*>(p)->fields(v); },
};
template <class A>
constexpr const AttrsType* fields() {
  return &kAttrsOf<A>;
}

/// The bytes that equal attrs share; used for comparison, hashing and cache keys. Graphs and
/// closures go to `objects`, if given, and not into the bytes.
TD_API void append_attr_bytes(const AttrsType* type, const void* attrs, std::string& out,
                              std::vector<RefCounted*>* objects = nullptr);
TD_API uint64_t hash_attrs(const AttrsType* type, const void* attrs);
TD_API bool equal_attrs(const AttrsType* type, const void* a, const void* b);
/// "stride=[1, 1], groups=1"
TD_API std::string print_attrs(const AttrsType* type, const void* attrs);

/// An owned copy of attrs of any struct.
class TD_API AttrsHolder {
 public:
  AttrsHolder() = default;
  AttrsHolder(const AttrsType* type, const void* attrs)
      : type_(attrs ? type : nullptr), p_(attrs && type ? type->clone(attrs) : nullptr) {}
  AttrsHolder(const AttrsHolder& o) : AttrsHolder(o.type_, o.p_) {}
  AttrsHolder(AttrsHolder&& o) noexcept
      : type_(std::exchange(o.type_, nullptr)), p_(std::exchange(o.p_, nullptr)) {}
  AttrsHolder& operator=(AttrsHolder o) noexcept {
    std::swap(type_, o.type_);
    std::swap(p_, o.p_);
    return *this;
  }
  ~AttrsHolder() {
    if (p_) type_->destroy(p_);
  }
  const void* get() const { return p_; }
  const AttrsType* type() const { return type_; }

 private:
  const AttrsType* type_ = nullptr;
  void* p_ = nullptr;
};

}  // namespace tandem
