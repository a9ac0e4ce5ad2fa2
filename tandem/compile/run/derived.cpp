// SPDX-License-Identifier: Apache-2.0
#include "tandem/compile/run/derived.h"

#include <algorithm>
#include <unordered_map>

#include "tandem/base/files/mapped_pages.h"
#include "tandem/compile/passes/emit.h"
#include "tandem/compile/run/executable.h"
#include "tandem/graph/apply.h"
#include "tandem/graph/context.h"
#include "tandem/graph/dry_run.h"
#include "tandem/tensor/block_internal.h"

namespace tandem::compiler {
namespace {

template <class T>
void put(std::string& key, const T& v) {
  key.append(reinterpret_cast<const char*>(&v), sizeof v);
}

// All that are alive, by what they compute.
std::mutex& table_lock() {
  static std::mutex* m = new std::mutex;
  return *m;
}
std::unordered_map<std::string, std::weak_ptr<Derived>>& table() {
  static auto* t = new std::unordered_map<std::string, std::weak_ptr<Derived>>;
  return *t;
}

}  // namespace

// Collects the instructions behind a value.
class Derived::Walk {
 public:
  Walk(const Program& p, const UseDef& uses, Derived& d) : p_(p), uses_(uses), d_(d) {}

  bool run(ValueId v) {
    if (!find(v)) return false;
    for (const ValueId source : sources_) {
      const Value& x = p_.values[source];
      Source s;
      if (x.origin == Origin::cell) {
        s.cell = p_.cells[x.index].cell;
        ++d_.cells_;
      } else {
        s.constant = p_.constants[x.index].to(p_.device);
      }
      number_[source] = ValueId(d_.sources_.size());
      d_.sources_.push_back(std::move(s));
    }
    for (const InstrId k : order_) {
      const Instr& i = p_.instrs[k];
      Step s{i.op, i.attrs, i.in, i.loc};
      for (Arg& a : s.in)
        if (a.value != kNone) a.value = number_.at(a.value);
      number_[i.out[0]] = ValueId(d_.sources_.size() + d_.steps_.size());
      d_.steps_.push_back(std::move(s));
    }
    d_.spec_ = p_.values[v].spec;
    return true;
  }

 private:
  bool find(ValueId v) {
    const InstrId k = uses_.maker(v);
    if (k == kNone) {
      if (std::find(sources_.begin(), sources_.end(), v) == sources_.end()) sources_.push_back(v);
      return true;
    }
    if (std::find(order_.begin(), order_.end(), k) != order_.end()) return true;
    const Instr& i = p_.instrs[k];
    if (!i.op || i.out.size() != 1) return false;
    for (const Arg& a : i.in)
      if (a.value != kNone && !find(a.value)) return false;
    order_.push_back(k);
    return true;
  }

  const Program& p_;
  const UseDef& uses_;
  Derived& d_;
  std::vector<ValueId> sources_;
  std::vector<InstrId> order_;
  std::unordered_map<ValueId, ValueId> number_;
};

std::shared_ptr<Derived> Derived::of(const Program& p, const UseDef& uses, ValueId v) {
  auto d = std::make_shared<Derived>();
  if (!Walk(p, uses, *d).run(v)) return nullptr;
  if (is_dry_run_of_any_device()) return d;  // without numbers there is nothing to share
  std::string key = d->key();
  std::lock_guard hold(table_lock());
  auto& all = table();
  std::weak_ptr<Derived>& at = all[std::move(key)];
  if (std::shared_ptr<Derived> there = at.lock()) return there;
  at = d;
  if (all.size() % 256 == 0)
    std::erase_if(all, [](const auto& each) { return each.second.expired(); });
  return d;
}

// Sources by identity: a cell by its address, a constant by its bytes' address and how it lies.
// Both are held, so an address means one thing as long as the entry lives.
std::string Derived::key() const {
  std::string key;
  put(key, sources_.size());
  for (const Source& s : sources_) {
    put(key, s.cell.get());
    if (s.cell) continue;
    const detail::TensorImpl& t = *s.constant.impl();
    put(key, t.data);
    put(key, t.dtype);
    put(key, t.shape.rank());
    for (int d = 0; d < t.shape.rank(); ++d) {
      put(key, t.shape[d].value());
      put(key, t.strides[d]);
    }
  }
  for (const Step& s : steps_) {
    put(key, s.op);
    put(key, s.in.size());
    for (const Arg& a : s.in) {
      put(key, a.value);
      put(key, a.is_number);
      if (!a.is_number) continue;
      put(key, a.number.kind);
      put(key, a.number.i);
    }
    std::string attrs;
    append_attr_bytes(s.attrs.type(), s.attrs.get(), attrs);
    put(key, attrs.size());
    key += attrs;
  }
  return key;
}

size_t Derived::source_bytes() const {
  size_t n = 0;
  for (const Source& s : sources_)
    n += bytes_behind(s.cell ? Executable::look(*s.cell).first : s.constant);
  return n;
}

bool Derived::up_to_date() const {
  if (!value_.defined()) return false;
  for (const Source& s : sources_)
    if (s.cell && Executable::look(*s.cell).second != s.generation) return false;
  return true;
}

void Derived::compute() {
  NoGradGuard no_grad;
  const AutocastGuard casts_are_traced(DType::bf16, false);
  value_ = Tensor();  // its bytes first
  std::vector<Tensor> all;
  std::vector<size_t> last(sources_.size() + steps_.size());
  for (size_t k = 0; k < steps_.size(); ++k)
    for (const Arg& a : steps_[k].in)
      if (a.value != kNone) last[a.value.index()] = k;
  for (Source& s : sources_) {
    if (!s.cell) {
      all.push_back(s.constant);
      continue;
    }
    auto [value, generation] = Executable::look(*s.cell);
    all.push_back(detached_alias(value));
    s.generation = generation;
  }
  for (size_t k = 0; k < steps_.size(); ++k) {
    const Step& s = steps_[k];
    std::vector<Operand> in;
    for (const Arg& a : s.in) {
      if (a.is_number)
        in.emplace_back(a.number, s.loc);
      else
        in.emplace_back(a.value == kNone ? Tensor() : all[a.value.index()], s.loc);
    }
    Tensor out[kMaxOpOuts];
    apply(*s.op, s.attrs.get(), in, out, s.loc);
    all.push_back(std::move(out[0]));
    for (size_t x = 0; x < all.size(); ++x)
      if (last[x] == k && x + 1 < all.size()) all[x] = Tensor();
  }
  value_ = all.back().is_contiguous() ? std::move(all.back())
                                      : call(op::copy, nullptr, SourceLocation{}, all.back());
  ++computed_;
  detail::trim_block(*value_.impl());
  // What was read of a mapped file is not needed again soon.
  for (const Source& s : sources_) {
    const Tensor x = s.cell ? Executable::look(*s.cell).first : s.constant;
    if (!x.impl()->storage->writable && x.is_contiguous())
      release_mapped(x.impl()->data, static_cast<size_t>(x.numel()) * size_of(x.dtype()));
  }
}

Tensor Derived::value() {
  std::lock_guard hold(lock_);
  if (!up_to_date()) compute();
  return value_;
}

}  // namespace tandem::compiler
