// SPDX-License-Identifier: Apache-2.0
// Open Inference Protocol V2 by REST, with Triton's repository, statistics and config extensions:
// all but inference itself. https://github.com/kserve/open-inference-protocol
#include <fmt/format.h>

#include "tandem/base/error.h"
#include "tandem/base/failures.h"
#include "tandem/io/json.h"
#include "tandem/serve/model/priority_internal.h"
#include "tandem/serve/model/setting_pair_internal.h"
#include "tandem/serve/protocol/v2_internal.h"

namespace tandem::serve {
namespace {

constexpr V2Type kV2Types[] = {
    {DType::f64, "FP64", 12, 7},  {DType::f32, "FP32", 11, 6}, {DType::f16, "FP16", 10, 0},
    {DType::bf16, "BF16", 14, 0}, {DType::i64, "INT64", 9, 3}, {DType::i32, "INT32", 8, 2},
    {DType::i16, "INT16", 7, 2},  {DType::i8, "INT8", 6, 2},   {DType::u8, "UINT8", 2, 4},
    {DType::b8, "BOOL", 1, 1},
};

std::string ports_json(const std::vector<V2Port>& ports) {
  std::string out = "[";
  for (const V2Port& p : ports)
    out += fmt::format("{}{{\"name\":{},\"datatype\":\"{}\",\"shape\":[{}]}}",
                       out.size() > 1 ? "," : "", io::quote_json(p.name), p.datatype,
                       fmt::join(p.shape, ","));
  return out + "]";
}

void metadata(Call& call, const ModelVersion& v) {
  std::string versions;
  for (const ModelVersionPtr& other : call.server.repository.versions(v.name))
    versions += fmt::format("{}\"{}\"", versions.empty() ? "" : ",", other->version);
  call.json(
      fmt::format("{{\"name\":{},\"versions\":[{}],\"platform\":\"{}\",\"inputs\":{},"
                  "\"outputs\":{}}}",
                  io::quote_json(v.name), versions, platform_of(v), ports_json(v2_inputs(v)),
                  ports_json(v2_outputs(v))));
}

std::string map_json(const std::vector<std::string>& entries) {
  std::string out;
  for (const std::string& e : entries) {
    const auto [port, tensor] = setting_pair(e, "map", "[x=image]");
    out += fmt::format("{}{}:{}", out.empty() ? "" : ",", io::quote_json(port),
                       io::quote_json(tensor));
  }
  return "{" + out + "}";
}

std::string ensemble_scheduling(const ModelSettings& s) {
  std::string out;
  for (const EnsembleStep& step : s.ensemble)
    out += fmt::format(
        "{}{{\"model_name\":{},\"model_version\":{},\"input_map\":{},\"output_map\":{}}}",
        out.empty() ? "" : ",", io::quote_json(step.model), step.version == 0 ? -1 : step.version,
        map_json(step.input_map), map_json(step.output_map));
  return ",\"ensemble_scheduling\":{\"step\":[" + out + "]}";
}

std::string dynamic_batching(const ModelSettings& s) {
  std::string levels;
  if (s.priority_levels > 0)
    levels = fmt::format(",\"priority_levels\":{},\"default_priority_level\":{}", s.priority_levels,
                         priority_of(s, 0));
  return fmt::format(",\"dynamic_batching\":{{\"max_queue_delay_microseconds\":{:.0f}{}}}",
                     s.delay_us, levels);
}

// What perf_analyzer and tritonclient read of Triton's ModelConfig.
void config(Call& call, const ModelVersion& v) {
  const bool batched = v.model->batched();
  const auto list = [&](const std::vector<V2Port>& ports) {
    std::string out;
    for (const V2Port& p : ports) {
      std::string dims;
      for (size_t d = batched ? 1 : 0; d < p.shape.size(); ++d)
        dims += (dims.empty() ? "" : ",") + std::to_string(p.shape[d]);
      out += fmt::format("{}{{\"name\":{},\"data_type\":\"TYPE_{}\",\"dims\":[{}]{}}}",
                         out.empty() ? "" : ",", io::quote_json(p.name), p.config_name(), dims,
                         p.optional ? ",\"optional\":true" : "");
    }
    return out;
  };
  const std::string batching = v.model->ensemble() ? ensemble_scheduling(v.settings)
                               : v.sequences       ? fmt::format(
                                                         ",\"sequence_batching\":{{\"max_sequence_idle_"
                                                               "microseconds\":{:.0f},\"direct\":{{}}}}",
                                                         v.settings.sequence_idle_seconds * 1e6)
                               : batched ? dynamic_batching(v.settings)
                                         : "";
  std::string groups;
  for (const auto& [device, count] : v.model->instances_by_device()) {
    if (!groups.empty()) groups += ",";
    groups += is_host(device) ? fmt::format("{{\"count\":{},\"kind\":\"KIND_CPU\"}}", count)
                              : fmt::format("{{\"count\":{},\"kind\":\"KIND_GPU\",\"gpus\":[{}]}}",
                                            count, device.index);
  }
  call.json(
      fmt::format("{{\"name\":{},\"platform\":\"{}\",\"max_batch_size\":{},\"input\":[{}],"
                  "\"output\":[{}],\"instance_group\":[{}]{}}}",
                  io::quote_json(v.name), platform_of(v), most_rows_of(v), list(v2_inputs(v)),
                  list(v2_outputs(v)), groups, batching));
}

std::string statistics_of(const ModelVersion& v) {
  const JobCounts& c = v.scheduler->counts();
  const auto entry = [](uint64_t count, double seconds) {
    return fmt::format("{{\"count\":{},\"ns\":{:.0f}}}", count, seconds * 1e9);
  };
  return fmt::format(
      "{{\"name\":{},\"version\":\"{}\",\"inference_count\":{},\"execution_count\":{},"
      "\"inference_stats\":{{\"success\":{},\"fail\":{},\"queue\":{},\"compute_input\":{},"
      "\"compute_infer\":{},\"compute_output\":{},\"cache_hit\":{},\"cache_miss\":{}}},"
      "\"batch_stats\":[]}}",
      io::quote_json(v.name), v.version, c.rows.load(), c.runs.load(), entry(c.ok, c.total.sum()),
      entry(c.failed + c.expired + c.cancelled + c.rejected + c.displaced, 0),
      entry(c.queue.count(), c.queue.sum()), entry(0, 0), entry(c.compute.count(), c.compute.sum()),
      entry(0, 0), v.cache ? entry(v.cache->hits().count(), v.cache->hits().sum()) : entry(0, 0),
      v.cache ? entry(v.cache->misses().count(), v.cache->misses().sum()) : entry(0, 0));
}

void statistics(Call& call, const std::vector<ModelVersionPtr>& versions) {
  std::string out;
  for (const ModelVersionPtr& v : versions) out += (out.empty() ? "" : ",") + statistics_of(*v);
  call.json("{\"model_stats\":[" + out + "]}");
}

void health(Call& call) {
  call.only("GET");
  if (call.path.size() != 3) refuse(404, "there is nothing at this path");
  const bool draining = call.server.draining();
  if (call.path[2] == "live") return call.json("{\"live\":true}");
  if (call.path[2] != "ready") refuse(404, "there is nothing at this path");
  const bool ready = !draining && call.server.repository.ready();
  call.answer(
      {.status = ready ? 200 : 503, .body = ready ? "{\"ready\":true}" : "{\"ready\":false}"});
}

void index(Call& call) {
  call.only("POST");
  bool ready_only = false;
  if (!call.request().body.empty()) {
    JsonCursor json(call.request().body, "the body");
    json.open('{');
    while (const auto key = json.next_key())
      if (*key == "ready")
        ready_only = json.read_bool();
      else
        json.skip();
    json.finish();
  }
  std::string out;
  for (const IndexEntry& e : call.server.repository.index()) {
    if (ready_only && !e.ready) continue;
    out += fmt::format("{}{{\"name\":{},\"version\":\"{}\",\"state\":\"{}\",\"reason\":{}}}",
                       out.empty() ? "" : ",", io::quote_json(e.name),
                       e.version > 0 ? std::to_string(e.version) : "",
                       e.ready ? "READY" : "UNAVAILABLE", io::quote_json(e.reason));
  }
  call.json("[" + out + "]");
}

// Parameters that would bring files or settings with the request are refused.
void check_parameters(std::string_view body) {
  if (body.empty()) return;
  JsonCursor json(body, "the body");
  json.open('{');
  while (const auto key = json.next_key()) {
    if (*key != "parameters") {
      json.skip();
      continue;
    }
    json.open('{');
    while (const auto name = json.next_key()) {
      check_load_parameter(std::string(*name));
      json.skip();
    }
  }
  json.finish();
}

void change(Call& call, const std::string& name, bool load) {
  call.only("POST");
  check_may_load(call.server);
  check_parameters(call.request().body);
  change_model(call.server, name, load, [call](int status, const std::string& text) {
    if (status == 200)
      call.json("{}");
    else
      call.error(status, text);
  });
}

void repository(Call& call) {
  const std::vector<std::string>& p = call.path;
  if (p.size() == 3 && p[2] == "index") return index(call);
  if (p.size() == 5 && p[2] == "models" && (p[4] == "load" || p[4] == "unload"))
    return change(call, p[3], p[4] == "load");
  refuse(404, "there is nothing at this path");
}

void model(Call& call) {
  const std::vector<std::string>& p = call.path;
  if (p.size() == 3 && p[2] == "stats") {
    call.only("GET");
    return statistics(call, call.server.repository.all());
  }
  if (p.size() < 3) refuse(404, "there is nothing at this path");
  const bool versioned = p.size() >= 5 && p[3] == "versions";
  const size_t rest = versioned ? 5 : 3;
  const std::string verb = p.size() > rest ? p[rest] : "";
  if (p.size() > rest + 1) refuse(404, "there is nothing at this path");
  const std::string version = versioned ? p[4] : "";
  if (verb == "infer") {
    call.only("POST");
    return infer_v2(call, picked_version(call, p[2], version));
  }
  call.only("GET");
  if (verb == "ready") {
    const bool ready = !call.server.draining() && call.server.repository.find(p[2], version);
    return call.answer(
        {.status = ready ? 200 : 404,
         .body = fmt::format("{{\"name\":{},\"ready\":{}}}", io::quote_json(p[2]), ready)});
  }
  const ModelVersionPtr v = version_of(call, p[2], version);
  if (verb.empty()) return metadata(call, *v);
  if (verb == "config") return config(call, *v);
  if (verb == "stats") return statistics(call, {v});
  refuse(404, "there is nothing at this path");
}

}  // namespace

std::vector<std::string> v2_extensions(const ServerContext& server) {
  std::vector<std::string> out = {"binary_tensor_data", "model_repository", "model_configuration",
                                  "statistics",         "sequence",         "classification"};
  if (server.shared_memory.allowed()) out.emplace_back("system_shared_memory");
  return out;
}
std::string platform_of(const ModelVersion& v) { return "tandem_" + v.model->platform(); }
int64_t most_rows_of(const ModelVersion& v) {
  return v.model->batched() ? v.model->sizes().back().rows : 0;
}

void check_may_load(const ServerContext& server) {
  if (!server.options.allow_load)
    refuse(403, "models are not loaded by request; start with --allow-load");
}

void check_load_parameter(const std::string& name) {
  if (name == "config" || name.starts_with("file:"))
    refuse(400, "models come from the folder alone; the parameter '{}' is not taken",
           one_line(name, 64));
}

void change_model(ServerContext& server, const std::string& name, bool load,
                  std::function<void(int, const std::string&)> done) {
  server.aside([&repository = server.repository, name, load, done = std::move(done)] {
    try {
      if (load)
        repository.load(name);
      else
        repository.unload(name);
      done(200, "");
    } catch (const Error& e) {
      // Files that cannot be loaded are the caller's matter here.
      done(e.kind() == ErrorKind::Internal ? 500 : 400, repository.without_paths(e.message()));
    } catch (...) {
      const Refusal refusal = refusal_of(std::current_exception());
      done(refusal.status, refusal.text);
    }
  });
}

const V2Type* v2_type(std::string_view name) {
  for (const V2Type& t : kV2Types)
    if (t.name == name) return &t;
  return nullptr;
}
const V2Type& v2_type(DType dtype) {
  for (const V2Type& t : kV2Types)
    if (t.dtype == dtype) return t;
  TD_FAIL(Internal, "V2 has no name for {}", to_string(dtype));
}
const char* v2_name(DType dtype) { return v2_type(dtype).name; }
std::optional<DType> v2_dtype(std::string_view name) {
  const V2Type* t = v2_type(name);
  return t ? std::optional(t->dtype) : std::nullopt;
}

bool handle_v2(Call& call) {
  if (call.path[0] != "v2") return false;
  if (call.path.size() == 1) {
    call.only("GET");
    std::string extensions;
    for (const std::string& e : v2_extensions(call.server))
      extensions += fmt::format("{}\"{}\"", extensions.empty() ? "" : ",", e);
    call.json(fmt::format("{{\"name\":\"tandem\",\"version\":\"{}\",\"extensions\":[{}]}}",
                          TANDEM_VERSION, extensions));
  } else if (call.path[1] == "health") {
    health(call);
  } else if (call.path[1] == "repository") {
    repository(call);
  } else if (call.path[1] == "models") {
    model(call);
  } else if (call.path[1].ends_with("sharedmemory")) {
    shared_memory_v2(call);
  } else {
    refuse(404, "there is nothing at this path");
  }
  return true;
}

}  // namespace tandem::serve
