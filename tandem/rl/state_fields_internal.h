// SPDX-License-Identifier: Apache-2.0
// StateFields: the walk over what a training state holds. Agents, environments and memory name
// their parts once, in fields(); the same walk gives them out and takes them in. Taking in checks
// everything before it changes anything.
#pragma once

#include <functional>
#include <limits>
#include <string>
#include <vector>

#include "tandem/base/error.h"
#include "tandem/base/philox.h"
#include "tandem/graph/update.h"
#include "tandem/ops/create.h"
#include "tandem/tensor/state_dict.h"

namespace tandem::rl::detail {

class StateFields {
 public:
  /// Give out.
  StateFields() = default;
  /// Take in; `from` must outlive the walk.
  explicit StateFields(const StateDict& from) : from_(&from) {}

  /// Of something with fields(), under `name`.
  template <class T>
  void part(const std::string& name, T& value) {
    const std::string before = prefix_;
    prefix_ += name + ".";
    value.fields(*this);
    prefix_ = before;
  }
  /// Of something with a state_dict(): its names, shapes and dtypes stay.
  template <class T>
  void dict(const std::string& name, T& value) {
    StateDict got;
    for (const auto& [key, now] : value.state_dict())
      got[key] = entry(name + "." + key, now, sizes(now));
    then([&value, got] { value.load_state_dict(got); });
  }
  void param(const std::string& name, Param& value);
  /// What must be the same on both sides.
  void same(const std::string& name, const std::string& value);
  void same(const std::string& name, int64_t value);

  void number(const std::string& name, int64_t& value, int64_t low = 0);
  void number(const std::string& name, uint64_t& value);
  void number(const std::string& name, double& value);
  void flag(const std::string& name, bool& value);
  /// The number that counts: `now`, or the one that is taken in, which lies in low .. high.
  int64_t count(const std::string& name, int64_t now, int64_t low, int64_t high);
  void draws(const std::string& name, PhiloxStream& value);
  /// f32 [rows, dims]; no rows while `value` is undefined.
  void observations(const std::string& name, Tensor& value, int64_t rows, int64_t dims);
  /// The first `rows` rows of a storage with more of them; with `choices` all are 0 .. choices - 1.
  void rows(const std::string& name, std::vector<float>& storage, int64_t rows, int64_t dims,
            int64_t choices = 0);
  /// Numbers of T (int64_t, double) as a tensor of `shape` (-1: any): `now` is what there is, `ok`
  /// tells whether a number may come in, and `set` is told those that came.
  template <class T>
  void numbers(const std::string& name, const std::vector<T>& now,
               const std::vector<int64_t>& shape, const std::function<bool(T)>& ok,
               std::function<void(const std::vector<T>&)> set) {
    std::vector<int64_t> dims = shape;
    if (from_ || dims[0] < 0) dims[0] = static_cast<int64_t>(from_ ? 0 : now.size());
    const Tensor here = from_ ? zeros(Shape(dims), dtype_of<T>) : tensor(now, Shape(dims));
    const std::vector<T> got = entry(name, here, shape).template to_vector<T>();
    if (!from_) return;
    for (const T v : got) require(ok(v), name, static_cast<double>(v));
    then([set = std::move(set), got] { set(got); });
  }

  /// Throws Value unless `ok`: the field holds what it cannot hold.
  void require(bool ok, const std::string& name, double value) const;
  /// Do this once all is checked; nothing when giving out.
  void then(std::function<void()> f);
  /// What was given out.
  StateDict given() { return std::move(given_); }
  /// Take in. Throws Value for names that nobody asked for.
  void take();

 private:
  static std::vector<int64_t> sizes(const Tensor& t);
  Tensor entry(const std::string& name, const Tensor& now, const std::vector<int64_t>& shape);

  const StateDict* from_ = nullptr;
  StateDict given_;
  std::string prefix_;
  std::vector<std::string> known_;
  std::vector<std::function<void()>> plan_;
};

}  // namespace tandem::rl::detail
