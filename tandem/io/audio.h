// SPDX-License-Identifier: Apache-2.0
// WAV files, read and written: PCM of 8, 16, 24 and 32 bits, floats of 32 and 64, plain or
// extensible headers; FLAC files, read. Bad files give a Format error naming the file.
#pragma once

#include <string_view>

#include "tandem/base/budget.h"
#include "tandem/base/files/file.h"
#include "tandem/tensor/tensor.h"

namespace tandem::io {

struct Audio {
  Tensor waveform;  ///< f32 [channels, frames]; integers in -1 .. 1
  int64_t sample_rate = 0;
};

struct ReadAudioOptions {
  int64_t limit = int64_t{1} << 30;  ///< most samples, all channels together
  BudgetLimits limits = {};          ///< what reading it may cost: silence compresses well
};

/// Throws Io; Format when it is not a WAV file, is truncated, or uses an unsupported encoding.
TD_API Audio read_wav(const FilePath& path, const ReadAudioOptions& options = {});
TD_API Audio decode_wav(std::string_view bytes, const ReadAudioOptions& options = {},
                        std::string_view name = "audio");
/// A FLAC file (RFC 9639): up to 8 channels of 4 to 32 bits; all frame checksums are verified.
TD_API Audio decode_flac(std::string_view bytes, const ReadAudioOptions& options = {},
                         std::string_view name = "audio");
/// A WAV or FLAC file, recognised by its first bytes.
TD_API Audio read_audio(const FilePath& path, const ReadAudioOptions& options = {});
TD_API Audio decode_audio(std::string_view bytes, const ReadAudioOptions& options = {},
                          std::string_view name = "audio");
/// Write f32 [channels, frames] as 16-bit PCM, all or nothing. Throws Shape, DType, Value, Io.
TD_API void save_wav(const Tensor& waveform, int64_t sample_rate, const FilePath& path);

}  // namespace tandem::io
