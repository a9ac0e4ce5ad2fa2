// SPDX-License-Identifier: Apache-2.0
// Tensors of BYTES: texts and files that a model's run or folder knows to prepare, in the place of
// its tensors. Elements come as texts of JSON, or as bytes with their length before each.
#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <mutex>

#include "tandem/io/json.h"
#include "tandem/ops/ops.h"
#include "tandem/recipe/recipe.h"
#include "tandem/serve/model/ensemble.h"
#include "tandem/serve/part_feeder.h"
#include "tandem/serve/protocol/v2_internal.h"

namespace tandem::serve {
namespace {

constexpr int64_t kMostRowsOfBytes = 1024;  ///< texts or files of a request
constexpr size_t kLengthBytes = 4;
// Tensors of shared memory beyond this are copied beside the loop, as larger bodies are handled.
constexpr int64_t kMostOnLoop = int64_t{64} << 10;

std::string binary_of_json(std::string_view data, const std::string& name) {
  const std::string what = "input '" + name + "': data";
  JsonCursor json(data, what);
  std::string out;
  int depth = 1;
  for (json.open('['); depth > 0;) {
    if (!json.next_item()) {
      --depth;
    } else if (json.peek() == '[') {
      json.open('[');
      ++depth;
    } else if (json.peek() == '"') {
      add_element(out, json.read_string());
    } else {
      refuse(400, "{} of BYTES holds something that is no text", what);
    }
  }
  return out;
}

// Views of `binary`, of which there are as many as the shape says.
std::vector<std::string_view> elements_of(std::string_view binary, int64_t count,
                                          const std::string& name) {
  std::vector<std::string_view> out;
  for (int64_t i = 0; i < count; ++i) {
    if (binary.empty())
      refuse(400, "input '{}' has {} elements by its shape, got {}", name, count, i);
    if (binary.size() < kLengthBytes)
      refuse(400, "input '{}': {} bytes are left, and element {} begins with its length in {}",
             name, binary.size(), i, kLengthBytes);
    uint32_t length = 0;
    for (size_t k = kLengthBytes; k-- > 0;)
      length = length << 8 | static_cast<unsigned char>(binary[k]);
    binary.remove_prefix(kLengthBytes);
    if (length > binary.size())
      refuse(400, "input '{}': element {} is to have {} bytes, and {} are left", name, i, length,
             binary.size());
    out.push_back(binary.substr(0, length));
    binary.remove_prefix(length);
  }
  if (!binary.empty())
    refuse(400, "input '{}' has {} elements by its shape, and {} bytes follow them", name, count,
           binary.size());
  return out;
}

// The inputs of one text or file, as a batch of one row. Of an ensemble its first model prepares
// them.
std::vector<Tensor> prepared_row(const ModelVersion& v, std::string_view element,
                                 const std::string& what) {
  if (const Ensemble* e = v.model->ensemble())
    return e->inputs_of_front(prepared_row(*e->front()->version, element, what));
  if (!v.encoder) {
    const recipe::PreparedBatch made = v.model->predictor().prepare(element, what);
    std::vector<Tensor> out(made.fields.begin(), made.fields.end());
    for (const Tensor& x : out)
      if (x.dim() > 0 && x.size(0) != 1)
        refuse(400, "{} holds {} samples; send each as an element of its own", what, x.size(0));
    return out;
  }
  if (!io::is_utf8(element)) refuse(400, "{} is not a text in UTF-8", what);
  const std::vector<int64_t> tokens = v.encoder->tokens_of(std::string(element));
  if (tokens.empty()) refuse(400, "{} has no tokens", what);
  if (v.encoder->length() > 0 && static_cast<int64_t>(tokens.size()) > v.encoder->length())
    refuse(400, "{} has {} tokens, the model reads {} at most", what, tokens.size(),
           v.encoder->length());
  return v.encoder->inputs(tokens);
}

/// Rows of a request that run together because they have the same sizes.
struct RowGroup {
  std::vector<size_t> rows;  ///< their places in the request
  std::vector<std::vector<Tensor>> inputs;
};

std::vector<RowGroup> grouped_rows(const ModelVersion& v,
                                   const std::vector<std::string_view>& elements,
                                   const std::string& name) {
  const std::vector<ModelPort>& ports = v.model->inputs();
  const bool open = std::all_of(ports.begin(), ports.end(), [](const ModelPort& p) {
    return !p.shape.empty() && p.shape[0] < 0;
  });
  std::map<std::string, size_t> places;
  std::vector<RowGroup> out;
  for (size_t i = 0; i < elements.size(); ++i) {
    std::vector<Tensor> row =
        prepared_row(v, elements[i], fmt::format("element {} of input '{}'", i, name));
    std::string key = open ? "" : std::to_string(i);
    for (const Tensor& x : row) key += ";" + recipe::shape_text(x.shape());
    const auto [at, fresh] = places.emplace(std::move(key), out.size());
    if (fresh) out.emplace_back();
    out[at->second].rows.push_back(i);
    out[at->second].inputs.push_back(std::move(row));
  }
  return out;
}

std::vector<Tensor> inputs_of(const RowGroup& group) {
  if (group.inputs.size() == 1) return group.inputs[0];
  std::vector<Tensor> out;
  for (size_t k = 0; k < group.inputs[0].size(); ++k) {
    std::vector<Tensor> parts;
    for (const std::vector<Tensor>& row : group.inputs) parts.push_back(row[k]);
    out.push_back(cat(parts, 0));
  }
  return out;
}

/// Several groups, each run by itself; the last result puts the rows in their order again.
class GroupedRun : public std::enable_shared_from_this<GroupedRun> {
 public:
  using Run =
      std::function<void(const std::vector<Tensor>& inputs, std::function<void(JobResult)>)>;
  GroupedRun(ModelVersionPtr v, std::vector<RowGroup> groups, Run run,
             std::function<void(JobResult)> done)
      : version_(std::move(v)),
        groups_(std::move(groups)),
        run_(std::move(run)),
        results_(groups_.size()),
        left_(groups_.size()),
        done_(std::move(done)),
        feeder_(groups_.size(), parts_at_once(static_cast<size_t>(version_->settings.queue)),
                [this](size_t g) { start_group(g); }) {}

  void start() { feeder_.begin(); }

 private:
  void start_group(size_t g) {
    const auto ended = [self = shared_from_this(), g](JobResult r) {
      self->take(g, std::move(r));
      self->feeder_.ended();
    };
    try {
      run_(inputs_of(groups_[g]), ended);
    } catch (...) {
      // Others may run already: each has to be counted.
      const Refusal refusal = refusal_of(std::current_exception());
      ended({.status = refusal.status, .error = refusal.text});
    }
  }

  void take(size_t group, JobResult r) {
    {
      const std::lock_guard hold(lock_);
      results_[group] = std::move(r);
      if (--left_ > 0) return;
    }
    for (JobResult& each : results_)
      if (each.status != 200) return done_(std::move(each));
    JobResult all;
    try {
      all = whole();
    } catch (...) {
      const Refusal refusal = refusal_of(std::current_exception());
      all = {.status = refusal.status, .error = refusal.text};
    }
    done_(std::move(all));
  }

  JobResult whole() const {
    JobResult out;
    for (const JobResult& r : results_) {
      out.queue_seconds = std::max(out.queue_seconds, r.queue_seconds);
      out.compute_seconds += r.compute_seconds;
      out.batch = std::max(out.batch, r.batch);
    }
    const std::vector<ModelPort>& ports = version_->model->outputs();
    for (size_t k = 0; k < ports.size(); ++k) out.outputs.push_back(rows_together(k));
    return out;
  }

  Tensor rows_together(size_t output) const {
    const std::string& name = version_->model->outputs()[output].name;
    std::vector<Tensor> rows;
    for (size_t g = 0; g < groups_.size(); ++g) {
      const std::vector<size_t>& places = groups_[g].rows;
      const Tensor& y = results_[g].outputs.at(output);
      if (y.dim() == 0 || y.size(0) != static_cast<int64_t>(places.size()))
        refuse(400, "output '{}' has no row for each element; send them one by one", name);
      for (size_t i = 0; i < places.size(); ++i) {
        rows.resize(std::max(rows.size(), places[i] + 1));
        rows[places[i]] = y.narrow(0, static_cast<int64_t>(i), 1);
      }
    }
    for (const Tensor& row : rows)
      if (row.shape() != rows[0].shape())
        refuse(400, "output '{}' has rows of {} and of {}; send elements of one length together",
               name, recipe::shape_text(rows[0].shape()), recipe::shape_text(row.shape()));
    return cat(rows, 0);
  }

  ModelVersionPtr version_;
  std::vector<RowGroup> groups_;
  Run run_;
  std::vector<JobResult> results_;
  size_t left_;
  std::function<void(JobResult)> done_;
  std::mutex lock_;
  PartFeeder feeder_;
};

// The BYTES of a request, as binary data in `room` unless they came so.
std::string_view binary_of(const AskedInput& in, const std::string& name,
                           const SharedMemory& shared, std::string& room) {
  if (in.shared) {
    const SharedRange range = range_of(in, shared);
    room.resize(range.bytes);
    range.region->read(range.at, room.data(), room.size());
    return room;
  }
  if (in.binary) return in.bytes;
  if (in.data.empty()) refuse(400, "input '{}' has no data", name);
  room = binary_of_json(in.data, name);
  return room;
}

void run_bytes(const HttpExchangePtr& exchange, const SharedMemory& shared,
               const ModelVersionPtr& v, const AskedInput& in, const RunTerms& terms,
               std::function<void(JobResult)> done) {
  const std::string name = one_line(in.name, 64);
  std::string room;
  std::vector<RowGroup> groups = grouped_rows(*v, bytes_elements(in, shared, room), name);
  if (groups.size() == 1)
    return run_inputs(exchange, v, inputs_of(groups[0]), terms, std::move(done));
  const auto run_group = [exchange, v, terms](const std::vector<Tensor>& inputs,
                                              std::function<void(JobResult)> ended) {
    run_inputs(exchange, v, inputs, terms, std::move(ended));
  };
  std::make_shared<GroupedRun>(v, std::move(groups), run_group, std::move(done))->start();
}

const AskedInput* bytes_of_request(const Asked& asked) {
  for (const AskedInput& in : asked.inputs)
    if (in.datatype == kBytes) return &in;
  return nullptr;
}

void run_now(const HttpExchangePtr& exchange, const SharedMemory& shared, const ModelVersionPtr& v,
             const Asked& asked, const RunTerms& terms, std::function<void(JobResult)> done) {
  const AskedInput* bytes = bytes_of_request(asked);
  const std::string takes = bytes ? bytes_input_of(*v) : "";
  if (takes.empty())
    return run_inputs(exchange, v, tensors_of(asked, v->model->inputs(), shared), terms,
                      std::move(done));
  const std::string tensors = known_names(v->model->inputs());
  if (bytes->name != takes)
    refuse(400, "input '{}' is BYTES; the model takes {}, or BYTES as '{}'",
           one_line(bytes->name, 64), tensors, takes);
  if (asked.inputs.size() > 1)
    refuse(400, "input '{}' stands in the place of {}: send one or the other", takes, tensors);
  run_bytes(exchange, shared, v, *bytes, terms, std::move(done));
}

bool takes_long(const Asked& asked) {
  return std::any_of(asked.inputs.begin(), asked.inputs.end(), [](const AskedInput& in) {
    return in.datatype == kBytes || (in.shared && in.shared->bytes.value_or(0) > kMostOnLoop);
  });
}

// A request whose bytes do not end with the call.
std::shared_ptr<Asked> lasting(const Asked& asked) {
  auto out = std::make_shared<Asked>(asked);
  for (AskedInput& in : out->inputs) {
    std::string_view& view = in.binary ? in.bytes : in.data;
    in.own = std::make_shared<const std::string>(view);
    view = *in.own;
  }
  return out;
}

V2Port port_of_tensor(const ModelPort& p) {
  const V2Type& type = v2_type(p.dtype);
  return {.name = p.name, .datatype = type.name, .config = type.config, .shape = p.shape};
}

}  // namespace

void add_element(std::string& to, std::string_view element) {
  const auto length = static_cast<uint32_t>(element.size());
  for (size_t k = 0; k < kLengthBytes; ++k) to += static_cast<char>(length >> 8 * k);
  to.append(element);
}

std::vector<std::string_view> bytes_elements(const AskedInput& in, const SharedMemory& shared,
                                             std::string& room) {
  const std::string name = one_line(in.name, 64);
  const int64_t count = count_of(in);
  const std::vector<int64_t>& shape = *in.shape;
  if (shape.empty() || shape.size() > 2 || shape[0] != count)
    refuse(400, "input '{}' expects the shape -1 or -1x1, got {}", name,
           recipe::shape_text(Shape(shape)));
  if (count < 1 || count > kMostRowsOfBytes)
    refuse(400, "input '{}' has {} elements, expected 1 to {}", name, count, kMostRowsOfBytes);
  return elements_of(binary_of(in, name, shared, room), count, name);
}

namespace {

// "text", "image" ...: what it prepares; "" for tensors alone.
std::string prepared_kind(const ModelVersion& v) {
  if (const Ensemble* e = v.model->ensemble())
    return e->front() ? prepared_kind(*e->front()->version) : "";
  if (v.encoder) return "text";
  // Without a run, how an image is prepared is a guess.
  return v.model->predictor().model().opened ? std::string(v.model->file_kind()) : "";
}

}  // namespace

std::string bytes_input_of(const ModelVersion& v) {
  const std::string out = prepared_kind(v);
  if (out.empty()) return "";
  for (const ModelPort& p : v.model->inputs())
    if (p.name == out) return out + "_bytes";
  return out;
}

const char* V2Port::config_name() const {
  return std::string_view(datatype) == kBytes ? "STRING" : datatype;
}

std::vector<V2Port> v2_inputs(const ModelVersion& v) {
  std::vector<V2Port> out;
  for (const ModelPort& p : v.model->inputs()) out.push_back(port_of_tensor(p));
  constexpr int kTypeString = 13;
  if (const std::string name = bytes_input_of(v); !name.empty())
    out.push_back({.name = name,
                   .datatype = kBytes,
                   .config = kTypeString,
                   .shape = {-1, 1},
                   .optional = true});
  return out;
}

std::vector<V2Port> v2_outputs(const ModelVersion& v) {
  std::vector<V2Port> out;
  for (const ModelPort& p : v.model->outputs()) out.push_back(port_of_tensor(p));
  return out;
}

void run_asked(const HttpExchangePtr& exchange, const ServerContext& server,
               const ModelVersionPtr& v, const Asked& asked, const RunTerms& terms,
               std::function<void(JobResult)> done) {
  const SharedMemory& shared = server.shared_memory;
  if (!takes_long(asked) || !exchange->on_loop())
    return run_now(exchange, shared, v, asked, terms, std::move(done));
  exchange->beside([exchange, &shared, v, asked = lasting(asked), terms, done = std::move(done)] {
    if (exchange->gone()) return done({.status = 499, .error = "the client went away"});
    try {
      run_now(exchange, shared, v, *asked, terms, done);
    } catch (...) {
      const Refusal refusal = refusal_of(std::current_exception());
      done({.status = refusal.status, .error = refusal.text});
    }
  });
}

}  // namespace tandem::serve
