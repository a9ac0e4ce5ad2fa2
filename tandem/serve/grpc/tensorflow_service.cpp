// SPDX-License-Identifier: Apache-2.0
// tensorflow.serving.PredictionService and ModelService.
// https://github.com/tensorflow/serving/tree/master/tensorflow_serving/apis
#include <fmt/format.h>

#include "tandem/serve/grpc/tensor_proto_internal.h"
#include "tandem/serve/grpc/tensorflow_internal.h"

namespace tandem::serve {
namespace {

/// A PredictRequest. The tensors are read when the model is known.
struct PredictRequest {
  ModelSpec spec;
  std::vector<std::pair<std::string, std::string_view>> inputs;
  std::vector<std::string> outputs;
};

PredictRequest read_predict(std::string_view message) {
  PredictRequest out;
  for_fields(message, "PredictRequest", [&](io::ProtoReader& r) {
    if (r.field() == 1) {
      out.spec = read_spec(r);
    } else if (r.field() == 2) {
      auto& [name, tensor] = out.inputs.emplace_back();
      for_fields_of(r, [&, &to = name, &bytes = tensor](io::ProtoReader& entry) {
        if (entry.field() == 1) to = entry.text();
        if (entry.field() == 2) bytes = entry.bytes();
      });
      if (out.inputs.size() > kMostTensors) refuse(400, "there are too many inputs");
    } else if (r.field() == 3) {
      out.outputs.push_back(r.text());
      if (out.outputs.size() > kMostTensors) refuse(400, "there are too many outputs");
    }
  });
  return out;
}

void predict(const GrpcCall& call, std::string_view message) {
  const PredictRequest request = read_predict(message);
  const ModelVersionPtr v = picked_version(call.server, request.spec.name, request.spec.version);
  Asked asked;
  size_t left = call.server.options.http.limits.body_bytes;  // for all of them
  for (const auto& [name, bytes] : request.inputs)
    asked.inputs.push_back(read_tensor_proto(name, bytes, left));
  if (!call.exchange->hold(call.server.options.http.limits.body_bytes - left)) refuse_held();
  for (const std::string& name : request.outputs) asked.outputs.push_back({.name = name});
  auto wanted = wanted_outputs(asked, *v, call.server.shared_memory);
  run_asked(call.exchange, call.server, v, asked, {.timeout = call.timeout},
            [call, v = v.get(), wanted = std::move(wanted)](const JobResult& r) {
              if (r.status != 200) return call.fail(r.status, r.error);
              try {
                io::ProtoWriter out = new_message();
                for (const WantedOutput& w : wanted) {
                  io::ProtoWriter entry;
                  entry.add_bytes(1, v->model->outputs()[w.at].name);
                  entry.add_message(2, write_tensor_proto(r.outputs.at(w.at)));
                  out.add_message(1, entry);
                }
                out.add_message(2, spec_of(*v));
                call.answer(std::move(out), {{kTimingHeader, timing_text(r)}});
              } catch (...) {
                call.fail(std::current_exception());
              }
            });
}

io::ProtoWriter map_entry(const std::string& key, const io::ProtoWriter& value) {
  io::ProtoWriter out;
  out.add_bytes(1, key);
  out.add_message(2, value);
  return out;
}

void model_metadata_of(const GrpcCall& call, std::string_view message) {
  ModelSpec spec;
  for_fields(message, "GetModelMetadataRequest", [&](io::ProtoReader& r) {
    if (r.field() == 1) spec = read_spec(r);
    if (r.field() == 2 && r.text() != "signature_def")
      refuse(400, "there is one metadata field: signature_def");
  });
  const ModelVersionPtr v = version_of(call.server, spec.name, spec.version);
  io::ProtoWriter signature;
  const auto put = [&signature](uint32_t field, const std::vector<ModelPort>& ports) {
    for (const ModelPort& p : ports) {
      io::ProtoWriter info;
      info.add_bytes(1, p.name);
      info.add_int(2, io::tf_type_of(p.dtype).number);
      info.add_message(3, write_shape_proto(p.shape));
      signature.add_message(field, map_entry(p.name, info));
    }
  };
  put(1, v->model->inputs());
  put(2, v->model->outputs());
  signature.add_bytes(3, "tensorflow/serving/predict");
  io::ProtoWriter signatures, any;
  signatures.add_message(1, map_entry("serving_default", signature));
  any.add_bytes(1, "type.googleapis.com/tensorflow.serving.SignatureDefMap");
  any.add_message(2, signatures);
  io::ProtoWriter out = new_message();
  out.add_message(1, spec_of(*v));
  out.add_message(2, map_entry("signature_def", any));
  call.answer(std::move(out));
}

void model_status(const GrpcCall& call, std::string_view message) {
  ModelSpec spec;
  for_fields(message, "GetModelStatusRequest", [&](io::ProtoReader& r) {
    if (r.field() == 1) spec = read_spec(r);
  });
  if (!spec.version.empty())
    spec.version = std::to_string(version_of(call.server, spec.name, spec.version)->version);
  constexpr uint64_t kAvailable = 30;
  io::ProtoWriter out = new_message();
  bool any = false;
  for (const ModelVersionPtr& v : call.server.repository.versions(spec.name)) {
    if (!spec.version.empty() && std::to_string(v->version) != spec.version) continue;
    io::ProtoWriter status;
    status.add_int(1, v->version);
    status.add_varint(2, kAvailable);
    status.add_message(3, io::ProtoWriter());
    out.add_message(1, status);
    any = true;
  }
  if (!any) refuse(404, "there is no model '{}'", one_line(spec.name, 128));
  call.answer(std::move(out));
}

void only_repository(const GrpcCall&, std::string_view) {
  refuse(501, "the configuration is not changed by request; see RepositoryModelLoad of V2");
}

}  // namespace

ModelSpec read_spec(io::ProtoReader& request) {
  ModelSpec out;
  for_fields_of(request, [&](io::ProtoReader& r) {
    if (r.field() == 1) out.name = r.text();
    if (r.field() == 2)
      for_fields_of(r, [&](io::ProtoReader& wrapped) {
        if (wrapped.field() == 1) out.version = std::to_string(wrapped.int_value());
      });
    if (r.field() == 3) out.signature = r.text();
    if (r.field() == 4) out.version = r.text();  // a label
  });
  check_signature(out.signature);
  return out;
}

io::ProtoWriter spec_of(const ModelVersion& v) {
  io::ProtoWriter out, version;
  out.add_bytes(1, v.name);
  version.add_int(1, v.version);
  out.add_message(2, version);
  out.add_bytes(3, "serving_default");
  return out;
}

std::span<const GrpcMethod> tensorflow_methods() {
  static constexpr GrpcMethod kMethods[] = {
      {"/tensorflow.serving.PredictionService/Predict", predict},
      {"/tensorflow.serving.PredictionService/GetModelMetadata", model_metadata_of},
      {"/tensorflow.serving.PredictionService/Classify", classify_examples},
      {"/tensorflow.serving.PredictionService/Regress", regress_examples},
      {"/tensorflow.serving.PredictionService/MultiInference", multi_inference},
      {"/tensorflow.serving.ModelService/GetModelStatus", model_status},
      {"/tensorflow.serving.ModelService/HandleReloadConfigRequest", only_repository},
  };
  return kMethods;
}

}  // namespace tandem::serve
