// SPDX-License-Identifier: Apache-2.0
// The messages are those of tensorflow/core/util/event.proto and framework/summary.proto.
#include "tandem/runs/event_file.h"

#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstring>
#include <vector>

#include "tandem/base/clock.h"
#include "tandem/base/files/folder.h"
#include "tandem/graph/context.h"
#include "tandem/io/image.h"
#include "tandem/io/protobuf.h"
#include "tandem/io/tensorflow/tfrecord.h"
#include "tandem/ops/ops.h"
#include "tandem/runs/event_plugins_internal.h"

namespace tandem::runs {
namespace {

using Message = io::ProtoWriter;

// Doubles packed, as TensorBoard's histograms hold them.
std::string_view packed(const std::vector<double>& v) {
  return {reinterpret_cast<const char*>(v.data()), v.size() * sizeof(double)};
}

std::string new_path(const std::string& folder) {
  make_folders(folder);
  char host[256] = "localhost";
  ::gethostname(host, sizeof host - 1);
  static std::atomic<unsigned> counter{0};
  return fmt::format("{}/events.out.tfevents.{:010}.{}.{}.{}", folder,
                     static_cast<int64_t>(unix_time()), host, ::getpid(), counter++);
}

// TensorBoard's buckets: 1e-12 times powers of 1.1, both signs.
const std::vector<double>& bucket_limits() {
  static const std::vector<double> limits = [] {
    std::vector<double> up;
    for (double v = 1e-12; v < 1e20; v *= 1.1) up.push_back(v);
    std::vector<double> all;
    for (auto it = up.rbegin(); it != up.rend(); ++it) all.push_back(-*it);
    all.push_back(0);
    all.insert(all.end(), up.begin(), up.end());
    all.push_back(1.7976931348623157e308);
    return all;
  }();
  return limits;
}

}  // namespace

Message tensorboard_metadata(const char* plugin, std::string_view content) {
  Message data, metadata;
  data.add_bytes(1, plugin);
  if (!content.empty()) data.add_bytes(2, content);
  metadata.add_message(1, data);
  return metadata;
}

EventFile::EventFile(const FilePath& folder, int64_t resumed_at) : file_(new_path(folder.str())) {
  Message version;
  version.add_bytes(3, "brain.Event:2");
  event(version.str(), std::max<int64_t>(resumed_at, 0));
  if (resumed_at < 0) return;
  Message start, fields;
  start.add_varint(1, 1);  // SessionLog.START: readers drop what was at this step and later
  fields.add_message(7, start);
  event(fields.str(), resumed_at);
}

void EventFile::event(std::string_view fields, int64_t step) {
  Message e;
  e.add_double(1, unix_time());
  e.add_varint(2, static_cast<uint64_t>(step));
  std::string data = e.str();
  data += fields;
  file_.append(io::tfrecord(data));
}

void EventFile::value(std::string_view v, int64_t step) {
  Message summary, event_fields;
  summary.add_bytes(1, v);
  event_fields.add_bytes(5, summary.str());
  event(event_fields.str(), step);
}

void EventFile::scalar(const std::string& tag, double v, int64_t step) {
  Message m;
  m.add_bytes(1, tag);
  m.add_float(2, static_cast<float>(v));
  value(m.str(), step);
}

void EventFile::histogram(const std::string& tag, const Tensor& values, int64_t step) {
  NoGradGuard no_grad;
  const std::vector<double>& limits = bucket_limits();
  std::vector<double> counts(limits.size());
  double low = 0, high = 0, n = 0, sum = 0, squares = 0;
  for (double v : values.to(DType::f64).to_vector<double>()) {
    if (!std::isfinite(v)) continue;
    low = n == 0 ? v : std::min(low, v);
    high = n == 0 ? v : std::max(high, v);
    ++n;
    sum += v;
    squares += v * v;
    ++counts[static_cast<size_t>(std::upper_bound(limits.begin(), limits.end() - 1, v) -
                                 limits.begin())];
  }
  std::vector<double> used_limits, used;
  for (size_t i = 0; i < counts.size(); ++i) {
    // Neighbours that are empty too add nothing.
    if (counts[i] == 0 && (i == 0 || counts[i - 1] == 0) &&
        (i + 1 == counts.size() || counts[i + 1] == 0))
      continue;
    used_limits.push_back(limits[i]);
    used.push_back(counts[i]);
  }
  if (used.empty()) {
    used_limits = {limits.back()};
    used = {0};
  }
  Message h, m;
  h.add_double(1, low);
  h.add_double(2, high);
  h.add_double(3, n);
  h.add_double(4, sum);
  h.add_double(5, squares);
  h.add_bytes(6, packed(used_limits));
  h.add_bytes(7, packed(used));
  m.add_bytes(1, tag);
  m.add_bytes(5, h.str());
  value(m.str(), step);
}

void EventFile::image(const std::string& tag, const Tensor& image, int64_t step) {
  NoGradGuard no_grad;
  TD_CHECK(image.defined() && (image.dim() == 2 || image.dim() == 3), Shape,
           "an image expects [h, w] or [c, h, w], got {}",
           image.defined() ? image.shape().to_string() : "nothing");
  Tensor pixels = image.dtype() == DType::u8
                      ? image
                      : round(clamp(image.to(DType::f32), 0.0, 1.0) * 255.0).to(DType::u8);
  Message i, m;
  i.add_varint(1, static_cast<uint64_t>(image.size(-2)));
  i.add_varint(2, static_cast<uint64_t>(image.size(-1)));
  i.add_varint(3, static_cast<uint64_t>(image.dim() == 3 ? image.size(0) : 1));
  i.add_bytes(4, io::encode_png(pixels));
  m.add_bytes(1, tag);
  m.add_bytes(4, i.str());
  value(m.str(), step);
}

void EventFile::text(const std::string& tag, std::string_view text, int64_t step) {
  Message size, shape, tensor, m;
  size.add_varint(1, 1);
  shape.add_bytes(2, size.str());
  tensor.add_varint(1, 7);  // DT_STRING
  tensor.add_bytes(2, shape.str());
  tensor.add_bytes(8, text);
  m.add_bytes(1, tag + "/text_summary");
  m.add_bytes(8, tensor.str());
  m.add_bytes(9, tensorboard_metadata("text", "").str());
  value(m.str(), step);
}

}  // namespace tandem::runs
