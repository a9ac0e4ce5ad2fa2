// SPDX-License-Identifier: Apache-2.0
// How to_string(Tensor) and print() show tensors: torch.set_printoptions. The options apply to the
// whole process and may be changed from any thread.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "tandem/tensor/tensor.h"

namespace tandem {

struct PrintOptions {
  int64_t precision = 4;              ///< digits after the point
  int64_t threshold = 1000;           ///< tensors with more elements are abbreviated
  int64_t edgeitems = 3;              ///< elements then shown at each end of a dimension
  int64_t linewidth = 80;             ///< columns
  std::optional<bool> sci_mode = {};  ///< unset: chosen by the range of the numbers
  friend bool operator==(const PrintOptions&, const PrintOptions&) = default;
};

/// What to change; as in PyTorch, unset options stay, except sci_mode, which returns to automatic.
/// A profile ("default", "short", "full") is applied first.
struct PrintOptionsChange {
  std::optional<int64_t> precision = {}, threshold = {}, edgeitems = {}, linewidth = {};
  std::string profile = "";
  std::optional<bool> sci_mode = {};
};

/// Throws Value for a negative number, a precision above 100, a line of no columns or an unknown
/// profile; then nothing is changed.
TD_API void set_printoptions(const PrintOptionsChange& change);
TD_API PrintOptions get_printoptions();

/// The text of `t` with custom options.
TD_API std::string to_string(const Tensor& t, const PrintOptions& options);

namespace detail {
/// Returns the name of what created a tensor ("AddBackward0"), "" for a leaf. Set by the upper
/// rooms, which know what a node is.
using NodeNameFn = std::string (*)(const NodeBase& node);
TD_API void set_node_name(NodeNameFn f);
}  // namespace detail

}  // namespace tandem
