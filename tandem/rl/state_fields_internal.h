// SPDX-License-Identifier: Apache-2.0
// StateFields: the walk over the parts of a training state. Agents, environments and memory name
// their parts once, in fields(); the same walk saves and loads them. Loading checks everything
// before it changes anything.
#pragma once

#include <functional>
#include <limits>
#include <string>
#include <vector>

#include "tandem/base/error.h"
#include "tandem/base/philox.h"
#include "tandem/graph/cells/update.h"
#include "tandem/ops/view/create.h"
#include "tandem/tensor/state_dict.h"

namespace tandem::rl::detail {

class StateFields {
 public:
  /// Saves.
  StateFields() = default;
  /// Loads; `from` must outlive the walk.
  explicit StateFields(const StateDict& from) : from_(&from) {}

  /// The fields of an object with fields(), under `name`.
  template <class T>
  void part(const std::string& name, T& value) {
    const std::string before = prefix_;
    prefix_ += name + ".";
    value.fields(*this);
    prefix_ = before;
  }
  /// The state of an object with a state_dict(); its names, shapes and dtypes must match.
  template <class T>
  void dict(const std::string& name, T& value) {
    StateDict got;
    for (const auto& [key, now] : value.state_dict())
      got[key] = entry(name + "." + key, now, sizes(now));
    then([&value, got] { value.load_state_dict(got); });
  }
  void param(const std::string& name, Param& value);
  /// A value that must be the same on both sides.
  void same(const std::string& name, const std::string& value);
  void same(const std::string& name, int64_t value);

  void number(const std::string& name, int64_t& value, int64_t low = 0);
  void number(const std::string& name, uint64_t& value);
  void number(const std::string& name, double& value);
  void flag(const std::string& name, bool& value);
  /// A count: `now`, or the loaded one, which must be in low .. high.
  int64_t count(const std::string& name, int64_t now, int64_t low, int64_t high);
  void draws(const std::string& name, PhiloxStream& value);
  /// f32 [rows, dims]; no rows while `value` is undefined.
  void observations(const std::string& name, Tensor& value, int64_t rows, int64_t dims);
  /// The first `rows` rows of a larger storage; with `choices` all must be 0 .. choices - 1.
  void rows(const std::string& name, std::vector<float>& storage, int64_t rows, int64_t dims,
            int64_t choices = 0);
  /// Numbers of T (int64_t, double) as a tensor of `shape` (-1: any): `now` is the current value,
  /// `ok` tells whether a loaded number is valid, and `set` receives them.
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

  /// Throws Value unless `ok`: the loaded value is invalid.
  void require(bool ok, const std::string& name, double value) const;
  /// Runs f once everything is checked; ignored when saving.
  void then(std::function<void()> f);
  /// What was saved.
  StateDict given() { return std::move(given_); }
  /// Applies the loaded state. Throws Value for unknown names.
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
