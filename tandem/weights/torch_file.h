// SPDX-License-Identifier: Apache-2.0
// PyTorch's files (.pt, .pth, .bin), read and written without running pickle: zip files since
// PyTorch 1.6 and the older form. They may contain state_dicts, optimizer checkpoints, and anything
// built from dicts, lists, numbers, strings and tensors.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "tandem/base/budget.h"
#include "tandem/base/files/file.h"
#include "tandem/tensor/state_dict.h"

namespace tandem::weights {

/// A value of a PyTorch file. A dtype, device or layout is its name as a string ("torch.float32").
class TD_API TorchValue {
 public:
  using List = std::vector<TorchValue>;
  struct Tuple {
    List items;
  };
  /// Keys are strings or integers, in the file's order.
  using Dict = std::vector<std::pair<TorchValue, TorchValue>>;

  TorchValue() = default;
  TorchValue(bool v) : value_(v) {}
  TorchValue(int64_t v) : value_(v) {}
  TorchValue(int v) : value_(static_cast<int64_t>(v)) {}
  TorchValue(double v) : value_(v) {}
  TorchValue(const char* v) : value_(std::string(v)) {}
  TorchValue(std::string v) : value_(std::move(v)) {}
  TorchValue(Tensor v) : value_(std::move(v)) {}
  TorchValue(List v) : value_(std::move(v)) {}
  TorchValue(Tuple v) : value_(std::move(v)) {}
  TorchValue(Dict v) : value_(std::move(v)) {}
  TorchValue(const StateDict& v);

  bool is_none() const { return std::holds_alternative<std::monostate>(value_); }
  // The value if it has that kind, else nullptr.
  const bool* as_bool() const { return std::get_if<bool>(&value_); }
  const int64_t* as_int() const { return std::get_if<int64_t>(&value_); }
  const double* as_double() const { return std::get_if<double>(&value_); }
  const std::string* as_string() const { return std::get_if<std::string>(&value_); }
  const Tensor* as_tensor() const { return std::get_if<Tensor>(&value_); }
  /// For a list or a tuple.
  const List* as_list() const;
  bool is_tuple() const { return std::holds_alternative<Tuple>(value_); }
  const Dict* as_dict() const { return std::get_if<Dict>(&value_); }
  /// The member of a dict, or nullptr (also when this is not a dict).
  const TorchValue* find(std::string_view key) const;

 private:
  std::variant<std::monostate, bool, int64_t, double, std::string, Tensor, List, Tuple, Dict>
      value_;
};

/// Read a file written by torch.save. Tensors map the file (and never write to it); views of one
/// storage share it. What Tandem lacks is converted, with a warning: float8 to f32, uint16 to i32,
/// uint32 and uint64 to i64, quantised tensors to the f32 numbers that they stand for, sparse ones
/// to dense ones, complex ones to pairs in a last dimension of 2. Arrays and numbers of NumPy are
/// read as well. Throws Io, or Format: truncated, hostile, of another kind, with an object that
/// only Python code could create (which is named), or over a limit.
TD_API TorchValue load_torch(const FilePath& path, const BudgetLimits& limits = {});

/// The tensors of a PyTorch file by name: those of the dict itself, or of its member
/// "state_dict", "model_state_dict", "model_state", "model" or "module" if it has one. Nested
/// dicts give dotted names; other values are skipped. Throws as load_torch does, and Format when
/// there is no tensor.
TD_API StateDict load_torch_state(const FilePath& path, const BudgetLimits& limits = {});

/// Write a file that torch.load(path, weights_only=True) reads, all or nothing. Tensors that share
/// their bytes still do so there. Throws Value (undefined, a key that is neither string nor
/// integer), Unsupported (a value inside a trace), Io.
TD_API void save_torch(const TorchValue& value, const FilePath& path);

}  // namespace tandem::weights
