// SPDX-License-Identifier: Apache-2.0
// How to_string(Tensor) and print() show tensors: torch.set_printoptions. The options hold for the
// whole process and may be changed from any thread.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "tandem/tensor/tensor.h"

namespace tandem {

struct PrintOptions {
  int64_t precision = 4;              ///< digits after the point
  int64_t threshold = 1000;           ///< tensors of more elements are shown in part
  int64_t edgeitems = 3;              ///< how much of each end of a dimension is shown then
  int64_t linewidth = 80;             ///< columns
  std::optional<bool> sci_mode = {};  ///< none: where the range of the numbers asks for it
  friend bool operator==(const PrintOptions&, const PrintOptions&) = default;
};

/// What to change; as in PyTorch, what is not given stays, but for sci_mode, which goes back to
/// automatic. A profile ("default", "short", "full") comes first.
struct PrintOptionsChange {
  std::optional<int64_t> precision = {}, threshold = {}, edgeitems = {}, linewidth = {};
  std::string profile = "";
  std::optional<bool> sci_mode = {};
};

/// Throws Value for a negative number, a precision above 100, a line of no columns or an unknown
/// profile; then nothing is changed.
TD_API void set_printoptions(const PrintOptionsChange& change);
TD_API PrintOptions get_printoptions();

/// The text of `t` under options of its own.
TD_API std::string to_string(const Tensor& t, const PrintOptions& options);

namespace detail {
/// Gives the name of what made a tensor ("AddBackward0"), "" for a leaf. The rooms above set it,
/// which know what a node is.
using NodeNameFn = std::string (*)(const NodeBase& node);
TD_API void set_node_name(NodeNameFn f);
}  // namespace detail

}  // namespace tandem
