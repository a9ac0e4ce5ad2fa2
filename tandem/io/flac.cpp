// SPDX-License-Identifier: Apache-2.0
// FLAC through the system's libFLAC, which is opened when the first FLAC file is read: programs
// that never read one do not need the library. Types and names are those of its headers.
#include <FLAC/stream_decoder.h>
#include <dlfcn.h>

#include <algorithm>
#include <cstring>
#include <exception>
#include <vector>

#include "tandem/base/budget.h"
#include "tandem/base/error.h"
#include "tandem/base/opens_library.h"
#include "tandem/io/audio.h"
#include "tandem/tensor/strided.h"

namespace tandem::io {
namespace {

#define TD_FLAC_TEXT_(x) #x
#define TD_FLAC_TEXT(x) TD_FLAC_TEXT_(x)
// Its symlinks are named after the interface number minus its age.
static_assert(FLAC_API_VERSION_AGE == 0, "libFLAC's file has another name");
#define TD_FLAC_FILE "libFLAC.so." TD_FLAC_TEXT(FLAC_API_VERSION_CURRENT)

struct Library {
#define TD_FLAC_FUNCTIONS(X)     \
  X(new)                         \
  X(delete)                      \
  X(set_md5_checking)            \
  X(init_stream)                 \
  X(process_until_end_of_stream) \
  X(finish)
#define X(name) decltype(&::FLAC__stream_decoder_##name) name##_ = nullptr;
  TD_FLAC_FUNCTIONS(X)
#undef X
  bool whole = false;
  Library() {
    void* handle = ::dlopen(TD_OPENS_LIBRARY(TD_FLAC_FILE), RTLD_NOW | RTLD_LOCAL);
    if (!handle) return;
    whole = true;
#define X(name)                                                                                  \
  name##_ = reinterpret_cast<decltype(name##_)>(::dlsym(handle, "FLAC__stream_decoder_" #name)); \
  whole = whole && name##_;
    TD_FLAC_FUNCTIONS(X)
#undef X
  }
};

const Library& library() {
  static const Library found;
  return found;
}

/// State shared by the decoder's callbacks. They are called from C: nothing may be thrown there.
struct Job {
  std::string_view bytes;
  size_t at = 0;
  int64_t limit = 0;
  FLAC__StreamMetadata_StreamInfo info{};
  bool described = false, too_long = false, other_kind = false;
  const char* error = nullptr;
  std::exception_ptr thrown;  ///< out of memory, over a limit
  std::vector<std::vector<float>> samples;
};
Job& job(void* p) { return *static_cast<Job*>(p); }

FLAC__StreamDecoderReadStatus read_bytes(const FLAC__StreamDecoder*, FLAC__byte* to, size_t* n,
                                         void* p) {
  Job& j = job(p);
  *n = std::min(*n, j.bytes.size() - j.at);
  if (*n == 0) return FLAC__STREAM_DECODER_READ_STATUS_END_OF_STREAM;
  std::memcpy(to, j.bytes.data() + j.at, *n);
  j.at += *n;
  return FLAC__STREAM_DECODER_READ_STATUS_CONTINUE;
}

void see_metadata(const FLAC__StreamDecoder*, const FLAC__StreamMetadata* m, void* p) {
  if (m->type != FLAC__METADATA_TYPE_STREAMINFO) return;
  job(p).info = m->data.stream_info;
  job(p).described = true;
}

void see_error(const FLAC__StreamDecoder*, FLAC__StreamDecoderErrorStatus status, void* p) {
  if (job(p).error) return;
  switch (status) {
    case FLAC__STREAM_DECODER_ERROR_STATUS_BAD_HEADER:
      job(p).error = "a frame header is wrong";
      break;
    case FLAC__STREAM_DECODER_ERROR_STATUS_FRAME_CRC_MISMATCH:
      job(p).error = "a frame's checksum is wrong";
      break;
    case FLAC__STREAM_DECODER_ERROR_STATUS_UNPARSEABLE_STREAM:
      job(p).error = "it uses a feature that libFLAC does not know";
      break;
    default:
      job(p).error = "a frame does not start where it should";
  }
}

FLAC__StreamDecoderWriteStatus take_frame(const FLAC__StreamDecoder*, const FLAC__Frame* frame,
                                          const FLAC__int32* const data[], void* p) {
  Job& j = job(p);
  const FLAC__FrameHeader& head = frame->header;
  j.other_kind = !j.described || head.channels != j.info.channels ||
                 head.bits_per_sample != j.info.bits_per_sample;
  if (j.other_kind || j.error) return FLAC__STREAM_DECODER_WRITE_STATUS_ABORT;
  const size_t there = j.samples.empty() ? 0 : j.samples[0].size();
  j.too_long = there + head.blocksize > static_cast<size_t>(j.limit / head.channels);
  if (j.too_long) return FLAC__STREAM_DECODER_WRITE_STATUS_ABORT;
  const double scale = 1.0 / static_cast<double>(uint64_t{1} << (head.bits_per_sample - 1));
  try {
    Budget::take(2 * sizeof(float) * head.blocksize * head.channels);  // lists double as they grow
    Budget::check_time();
    j.samples.resize(head.channels);
    for (size_t c = 0; c < head.channels; ++c)
      for (size_t i = 0; i < head.blocksize; ++i)
        j.samples[c].push_back(static_cast<float>(static_cast<double>(data[c][i]) * scale));
  } catch (...) {
    j.thrown = std::current_exception();
    return FLAC__STREAM_DECODER_WRITE_STATUS_ABORT;
  }
  return FLAC__STREAM_DECODER_WRITE_STATUS_CONTINUE;
}

}  // namespace

Audio decode_flac(std::string_view bytes, const ReadAudioOptions& o, std::string_view name) {
  TD_CHECK(bytes.starts_with("fLaC"), Format, "'{}' is not a FLAC file", name);
  const Budget budget(name, bytes.size(), o.limits);
  const Library& flac = library();
  TD_CHECK(
      flac.whole, Unsupported,
      "'{}' is a FLAC file, and {} is not installed\nInstall it (Debian: libflac{}) or convert "
      "the file to WAV.",
      name, TD_FLAC_FILE, FLAC_API_VERSION_CURRENT);
  Job j{.bytes = bytes, .limit = o.limit};
  struct Decoder {
    const Library& flac;
    FLAC__StreamDecoder* d;
    ~Decoder() {
      if (d) flac.delete_(d);
    }
  } decoder{flac, flac.new_()};
  TD_CHECK(decoder.d, Memory, "out of memory decoding '{}'", name);
  flac.set_md5_checking_(decoder.d, true);
  TD_CHECK(flac.init_stream_(decoder.d, read_bytes, nullptr, nullptr, nullptr, nullptr, take_frame,
                             see_metadata, see_error, &j) == FLAC__STREAM_DECODER_INIT_STATUS_OK,
           Internal, "libFLAC cannot start on '{}'", name);
  const bool went = flac.process_until_end_of_stream_(decoder.d);
  const bool same = flac.finish_(decoder.d);  // the MD5 sum of all samples, if the file has one
  try {
    if (j.thrown) std::rethrow_exception(j.thrown);
  } catch (const std::bad_alloc&) {
    TD_FAIL(Memory, "out of memory for the samples of '{}'", name);
  }
  TD_CHECK(!j.too_long, Format, "'{}' has more than the {} samples that are allowed", name,
           o.limit);
  TD_CHECK(!j.error, Format, "'{}' is damaged near byte {}: {}", name, j.at, j.error);
  TD_CHECK(!j.other_kind, Format, "'{}' is damaged: a frame has a different format than its stream",
           name);
  TD_CHECK(j.described, Format, "'{}' is truncated: its stream description is missing", name);
  const size_t frames = j.samples.empty() ? 0 : j.samples[0].size();
  const uint64_t wanted = j.info.total_samples;
  TD_CHECK(wanted == 0 || frames == wanted, Format, "'{}' is truncated: {} of {} samples are there",
           name, frames, wanted);
  TD_CHECK(went && same, Format, "'{}' is damaged: the checksum of all samples is wrong", name);
  Audio out;
  out.sample_rate = j.info.sample_rate;
  const auto channels = static_cast<int64_t>(j.info.channels);
  out.waveform = Tensor(Ref<detail::TensorImpl>::adopt(
      detail::new_tensor({channels, static_cast<int64_t>(frames)}, DType::f32, cpu)));
  auto* to = static_cast<float*>(out.waveform.impl()->data);
  for (const auto& c : j.samples) to = std::copy(c.begin(), c.end(), to);
  return out;
}

}  // namespace tandem::io
