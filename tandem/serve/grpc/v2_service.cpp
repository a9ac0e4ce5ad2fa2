// SPDX-License-Identifier: Apache-2.0
// inference.GRPCInferenceService: the Open Inference Protocol V2 with Triton's streaming,
// repository, statistics and config extensions.
#include <fmt/format.h>

#include "tandem/serve/grpc/v2_messages_internal.h"
#include "tandem/serve/model/priority_internal.h"
#include "tandem/serve/model/setting_pair_internal.h"

namespace tandem::serve {
namespace {

/// Requests that name a model (1) and perhaps a version (2); of the repository's: the model is 2.
struct NamedModel {
  std::string name, version;
};
NamedModel read_named(std::string_view message) {
  NamedModel out;
  for_fields(message, "the request", [&](io::ProtoReader& r) {
    if (r.field() == 1) out.name = r.text();
    if (r.field() == 2) out.version = r.text();
  });
  return out;
}

void answer_flag(const GrpcCall& call, bool yes) {
  io::ProtoWriter out = new_message();
  if (yes) out.add_varint(1, 1);
  call.answer(std::move(out));
}

void server_live(const GrpcCall& call, std::string_view) { answer_flag(call, true); }
void server_ready(const GrpcCall& call, std::string_view) {
  answer_flag(call, !call.server.draining() && call.server.repository.ready());
}
void model_ready(const GrpcCall& call, std::string_view message) {
  const NamedModel m = read_named(message);
  answer_flag(call,
              !call.server.draining() && call.server.repository.find(m.name, m.version) != nullptr);
}

void server_metadata(const GrpcCall& call, std::string_view) {
  io::ProtoWriter out = new_message();
  out.add_bytes(1, "tandem");
  out.add_bytes(2, TANDEM_VERSION);
  for (const std::string& e : v2_extensions(call.server)) out.add_bytes(3, e);
  call.answer(std::move(out));
}

void model_metadata(const GrpcCall& call, std::string_view message) {
  const NamedModel m = read_named(message);
  const ModelVersionPtr v = version_of(call.server, m.name, m.version);
  io::ProtoWriter out = new_message();
  out.add_bytes(1, v->name);
  for (const ModelVersionPtr& other : call.server.repository.versions(v->name))
    out.add_bytes(2, std::to_string(other->version));
  out.add_bytes(3, platform_of(*v));
  const auto put = [&out](uint32_t field, const std::vector<V2Port>& ports) {
    for (const V2Port& p : ports) {
      io::ProtoWriter port;
      port.add_bytes(1, p.name);
      port.add_bytes(2, p.datatype);
      port.add_packed(3, p.shape);
      out.add_message(field, port);
    }
  };
  put(4, v2_inputs(*v));
  put(5, v2_outputs(*v));
  call.answer(std::move(out));
}

// ---- inference

RunTerms terms_of(const V2Request& request, const GrpcCall& call) {
  RunTerms terms = request.asked.terms;
  if (terms.timeout <= 0) terms.timeout = call.timeout;
  return terms;
}

void model_infer(const GrpcCall& call, std::string_view message) {
  const V2Request request = read_v2_request(message);
  if (call.exchange->access) call.exchange->access->called(request.asked.id);
  const ModelVersionPtr v = version_of_step(
      picked_version(call.server, request.model, request.version), request.asked.terms.sequence);
  auto wanted = wanted_outputs(request.asked, *v, call.server.shared_memory);
  run_asked(
      call.exchange, call.server, v, request.asked, terms_of(request, call),
      [call, v = v.get(), id = request.asked.id, wanted = std::move(wanted)](const JobResult& r) {
        if (r.status != 200) return call.fail(r.status, r.error);
        try {
          io::ProtoWriter out = new_message();
          write_v2_response(out, *v, id, wanted, r);
          call.answer(std::move(out), {{kTimingHeader, timing_text(r)}});
        } catch (...) {
          call.fail(std::current_exception());
        }
      });
}

// An error of one message of a stream: the others go their way.
io::ProtoWriter stream_error(const std::string& text, const std::string& id) {
  io::ProtoWriter out = new_message();
  out.add_bytes(1, text);
  if (!id.empty()) {
    io::ProtoWriter response;
    response.add_bytes(3, id);
    out.add_message(2, response);
  }
  return out;
}

void model_stream_infer(const std::shared_ptr<MessageStream>& stream, uint64_t number,
                        std::string_view message) {
  const GrpcCall call = stream->call();
  std::string id;
  try {
    const V2Request request = read_v2_request(message);
    id = request.asked.id;
    const ModelVersionPtr v = version_of_step(
        picked_version(call.server, request.model, request.version), request.asked.terms.sequence);
    auto wanted = wanted_outputs(request.asked, *v, call.server.shared_memory);
    const auto done = [stream, number, v = v.get(), id,
                       wanted = std::move(wanted)](const JobResult& r) {
      if (r.status != 200) return stream->answer(number, stream_error(r.error, id));
      try {
        io::ProtoWriter response;
        write_v2_response(response, *v, id, wanted, r);
        io::ProtoWriter out = new_message();
        out.add_message(2, response);
        stream->answer(number, std::move(out));
      } catch (...) {
        stream->answer(number, stream_error(refusal_of(std::current_exception()).text, id));
      }
    };
    run_asked(call.exchange, call.server, v, request.asked, terms_of(request, call), done);
  } catch (...) {
    stream->answer(number, stream_error(refusal_of(std::current_exception()).text, id));
  }
}

// ---- config and statistics

io::ProtoWriter ensemble_config(const ModelSettings& s) {
  io::ProtoWriter out;
  for (const EnsembleStep& asked : s.ensemble) {
    io::ProtoWriter step;
    step.add_bytes(1, asked.model);
    step.add_int(2, asked.version == 0 ? -1 : asked.version);
    const auto put = [&step](uint32_t field, const std::vector<std::string>& entries) {
      for (const std::string& e : entries) {
        io::ProtoWriter entry;
        const auto [port, tensor] = setting_pair(e, "map", "[x=image]");
        entry.add_bytes(1, port);
        entry.add_bytes(2, tensor);
        step.add_message(field, entry);
      }
    };
    put(3, asked.input_map);
    put(4, asked.output_map);
    out.add_message(1, step);
  }
  return out;
}

void model_config(const GrpcCall& call, std::string_view message) {
  const NamedModel m = read_named(message);
  const ModelVersionPtr v = version_of(call.server, m.name, m.version);
  const bool batched = v->model->batched();
  io::ProtoWriter config;
  config.add_bytes(1, v->name);
  config.add_bytes(2, platform_of(*v));
  config.add_int(4, most_rows_of(*v));
  constexpr uint32_t kOptional = 8;
  const auto put = [&](uint32_t field, const std::vector<V2Port>& ports, uint32_t dims_field) {
    for (const V2Port& p : ports) {
      io::ProtoWriter port;
      port.add_bytes(1, p.name);
      port.add_varint(2, static_cast<uint64_t>(p.config));
      std::vector<int64_t> dims(p.shape.begin() + (batched && !p.shape.empty() ? 1 : 0),
                                p.shape.end());
      port.add_packed(dims_field, dims);
      if (p.optional) port.add_varint(kOptional, 1);
      config.add_message(field, port);
    }
  };
  put(5, v2_inputs(*v), 4);
  put(6, v2_outputs(*v), 3);
  constexpr uint64_t kKindGpu = 1, kKindCpu = 2;
  for (const auto& [device, count] : v->model->instances_by_device()) {
    io::ProtoWriter group;
    group.add_int(2, count);
    if (!is_host(device)) group.add_packed(3, std::vector<int64_t>{device.index});
    group.add_varint(4, is_host(device) ? kKindCpu : kKindGpu);
    config.add_message(7, group);
  }
  if (v->model->ensemble()) {
    config.add_message(15, ensemble_config(v->settings));
  } else if (v->sequences) {
    io::ProtoWriter sequences;
    sequences.add_varint(1, static_cast<uint64_t>(v->settings.sequence_idle_seconds * 1e6));
    sequences.add_message(3, io::ProtoWriter());
    config.add_message(13, sequences);
  } else if (batched) {
    io::ProtoWriter batching;
    batching.add_varint(2, static_cast<uint64_t>(v->settings.delay_us));
    if (v->settings.priority_levels > 0) {
      batching.add_varint(4, static_cast<uint64_t>(v->settings.priority_levels));
      batching.add_varint(5, static_cast<uint64_t>(priority_of(v->settings, 0)));
    }
    config.add_message(11, batching);
  }
  io::ProtoWriter out = new_message();
  out.add_message(1, config);
  call.answer(std::move(out));
}

io::ProtoWriter statistics_of(const ModelVersion& v) {
  const JobCounts& c = v.scheduler->counts();
  io::ProtoWriter stats, times;
  const auto entry = [&times](uint32_t field, uint64_t count, double seconds) {
    io::ProtoWriter w;
    w.add_varint(1, count);
    w.add_varint(2, static_cast<uint64_t>(seconds * 1e9));
    times.add_message(field, w);
  };
  entry(1, c.ok, c.total.sum());
  entry(2, c.failed + c.expired + c.cancelled + c.rejected + c.displaced, 0);
  entry(3, c.queue.count(), c.queue.sum());
  entry(5, c.compute.count(), c.compute.sum());
  if (v.cache) {
    entry(7, v.cache->hits().count(), v.cache->hits().sum());
    entry(8, v.cache->misses().count(), v.cache->misses().sum());
  }
  stats.add_bytes(1, v.name);
  stats.add_bytes(2, std::to_string(v.version));
  stats.add_varint(4, c.rows.load());
  stats.add_varint(5, c.runs.load());
  stats.add_message(6, times);
  return stats;
}

void model_statistics(const GrpcCall& call, std::string_view message) {
  const NamedModel m = read_named(message);
  io::ProtoWriter out = new_message();
  if (m.name.empty())
    for (const ModelVersionPtr& v : call.server.repository.all())
      out.add_message(1, statistics_of(*v));
  else
    out.add_message(1, statistics_of(*version_of(call.server, m.name, m.version)));
  call.answer(std::move(out));
}

// ---- the repository

void repository_index(const GrpcCall& call, std::string_view message) {
  bool ready_only = false;
  for_fields(message, "RepositoryIndexRequest", [&](io::ProtoReader& r) {
    if (r.field() == 2) ready_only = r.bool_value();
  });
  io::ProtoWriter out = new_message();
  for (const IndexEntry& e : call.server.repository.index()) {
    if (ready_only && !e.ready) continue;
    io::ProtoWriter entry;
    entry.add_bytes(1, e.name);
    if (e.version > 0) entry.add_bytes(2, std::to_string(e.version));
    entry.add_bytes(3, e.ready ? "READY" : "UNAVAILABLE");
    if (!e.reason.empty()) entry.add_bytes(4, e.reason);
    out.add_message(1, entry);
  }
  call.answer(std::move(out));
}

void change_repository(const GrpcCall& call, std::string_view message, bool load) {
  check_may_load(call.server);
  std::string name;
  for_fields(message, "the request", [&](io::ProtoReader& r) {
    if (r.field() == 2) name = r.text();
    if (r.field() != 3) return;
    for_fields_of(r, [](io::ProtoReader& parameter) {
      if (parameter.field() == 1) check_load_parameter(parameter.text());
    });
  });
  change_model(call.server, name, load, [call](int status, const std::string& text) {
    if (status == 200)
      call.answer(new_message());
    else
      call.fail(status, text);
  });
}
void model_load(const GrpcCall& call, std::string_view message) {
  change_repository(call, message, true);
}
void model_unload(const GrpcCall& call, std::string_view message) {
  change_repository(call, message, false);
}

}  // namespace

std::span<const GrpcMethod> v2_methods() {
  static constexpr GrpcMethod kMethods[] = {
      {"/inference.GRPCInferenceService/ModelInfer", model_infer},
      {"/inference.GRPCInferenceService/ModelStreamInfer", nullptr, model_stream_infer},
      {"/inference.GRPCInferenceService/ServerLive", server_live, nullptr, KeyScope::none},
      {"/inference.GRPCInferenceService/ServerReady", server_ready, nullptr, KeyScope::none},
      {"/inference.GRPCInferenceService/ModelReady", model_ready},
      {"/inference.GRPCInferenceService/ServerMetadata", server_metadata},
      {"/inference.GRPCInferenceService/ModelMetadata", model_metadata},
      {"/inference.GRPCInferenceService/ModelConfig", model_config},
      {"/inference.GRPCInferenceService/ModelStatistics", model_statistics},
      {"/inference.GRPCInferenceService/RepositoryIndex", repository_index},
      {"/inference.GRPCInferenceService/RepositoryModelLoad", model_load, nullptr, KeyScope::admin},
      {"/inference.GRPCInferenceService/RepositoryModelUnload", model_unload, nullptr,
       KeyScope::admin},
      {"/inference.GRPCInferenceService/SystemSharedMemoryStatus", shared_memory_status},
      {"/inference.GRPCInferenceService/SystemSharedMemoryRegister", shared_memory_register,
       nullptr, KeyScope::admin},
      {"/inference.GRPCInferenceService/SystemSharedMemoryUnregister", shared_memory_unregister,
       nullptr, KeyScope::admin},
      {"/inference.GRPCInferenceService/CudaSharedMemoryStatus", cuda_memory_status},
      {"/inference.GRPCInferenceService/CudaSharedMemoryRegister", cuda_memory_register, nullptr,
       KeyScope::admin},
      {"/inference.GRPCInferenceService/CudaSharedMemoryUnregister", cuda_memory_unregister,
       nullptr, KeyScope::admin},
  };
  return kMethods;
}

}  // namespace tandem::serve
