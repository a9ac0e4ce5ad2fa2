// SPDX-License-Identifier: Apache-2.0
// Sequences of different lengths: padded to one length, or packed without padding, as in
// torch.nn.utils.rnn. The lengths are read, so packing cannot be traced.
#pragma once

#include <vector>

#include "tandem/tensor/tensor.h"

namespace tandem::nn {

/// The steps of all sequences, longest sequence first, without padding.
struct PackedSequence {
  Tensor data;                       ///< [sum of batch_sizes, ...]: all of step 0, of step 1, ...
  std::vector<int64_t> batch_sizes;  ///< number of sequences that have step t; never increases
  Tensor sorted_indices = {};        ///< where each sorted sequence came from; undefined: unsorted
  Tensor unsorted_indices = {};      ///< the inverse
};

/// x [t, n, ...] (or [n, t, ...]) with the length of each sequence. Without enforce_sorted they may
/// come in any order. Throws Value for a length of 0, above t, or out of order.
TD_API PackedSequence pack_padded_sequence(Tensor x, const std::vector<int64_t>& lengths,
                                           bool batch_first = false, bool enforce_sorted = true,
                                           SourceLocation loc = SourceLocation::here());
/// The inverse: the sequences padded to the longest (or total_length), and their lengths.
TD_API std::pair<Tensor, std::vector<int64_t>> pad_packed_sequence(
    const PackedSequence& sequence, bool batch_first = false, double padding_value = 0,
    int64_t total_length = -1, SourceLocation loc = SourceLocation::here());
/// Pads [t_i, ...] each to [longest, n, ...] or [n, longest, ...]; padding_side "right" or "left".
TD_API Tensor pad_sequence(const std::vector<Tensor>& sequences, bool batch_first = false,
                           double padding_value = 0, const std::string& padding_side = "right",
                           SourceLocation loc = SourceLocation::here());
TD_API PackedSequence pack_sequence(const std::vector<Tensor>& sequences,
                                    bool enforce_sorted = true,
                                    SourceLocation loc = SourceLocation::here());
/// The sequences of a padded x, trimmed to their lengths.
TD_API std::vector<Tensor> unpad_sequence(Tensor x, const std::vector<int64_t>& lengths,
                                          bool batch_first = false,
                                          SourceLocation loc = SourceLocation::here());

}  // namespace tandem::nn
