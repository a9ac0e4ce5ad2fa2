// SPDX-License-Identifier: Apache-2.0
// Options of the stages of a pipeline.
#pragma once

#include <cstdint>
#include <optional>

namespace tandem::data {

struct PipelineOptions {
  /// For shuffling and random maps; if unset, one is drawn from the default generator.
  std::optional<uint64_t> seed = {};
};
struct BatchOptions {
  bool drop_last = false;  ///< drop an incomplete last batch
  /// Pad shorter samples with this number at the end of each dimension.
  std::optional<double> pad = {};
};
struct ShardOptions {
  /// Make all shards equally long by repeating the first elements; otherwise drop the remainder.
  bool fill = true;
};
struct PrefetchOptions {
  int64_t depth = 2;     ///< elements kept ready per thread
  int64_t workers = -1;  ///< 0: none; -1: one, and more while the consumer waits
};
struct InterleaveOptions {
  int64_t block_length = 1;  ///< elements taken from one before the next
};

struct BucketOptions {
  bool drop_last = false;        ///< drop incomplete batches
  double pad = 0;                ///< the value that pads shorter samples
  bool pad_to_boundary = false;  ///< pad to the bucket's longest length, not to the batch's
};

}  // namespace tandem::data
