// SPDX-License-Identifier: Apache-2.0
// What the links of a pipeline may be told.
#pragma once

#include <cstdint>
#include <optional>

namespace tandem::data {

struct PipelineOptions {
  /// Of shuffling and random maps; without it one is drawn from the default generator.
  std::optional<uint64_t> seed = {};
};
struct BatchOptions {
  bool drop_last = false;  ///< leave out a last batch that is not full
  /// Fill shorter samples up with this number at the end of each dimension.
  std::optional<double> pad = {};
};
struct ShardOptions {
  /// All shards are equally long: filled up from the front, or else the rest is left out.
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
  bool drop_last = false;        ///< leave out batches that are not full
  double pad = 0;                ///< what fills shorter samples up
  bool pad_to_boundary = false;  ///< to the bucket's longest length, not to the batch's longest
};

}  // namespace tandem::data
