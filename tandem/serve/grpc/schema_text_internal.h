// SPDX-License-Identifier: Apache-2.0
// The messages and services of gRPC that are spoken, as reflection shows them: a line for each
// thing, with the names and numbers of the public protocols. schema.cpp reads it.
//   file PATH PACKAGE [USED FILE ...]
//   message NAME | enum NAME | service NAME        a dot puts one inside another
//     [repeated | map KEY | oneof NAME] TYPE NAME NUMBER      a field
//     NAME NUMBER                                             a value of an enum
//     rpc NAME [stream] INPUT [stream] OUTPUT
#pragma once

namespace tandem::serve {

constexpr const char* kSchemaText = R"(
file google/protobuf/any.proto google.protobuf
message Any
  string type_url 1
  bytes value 2
file google/protobuf/wrappers.proto google.protobuf
message Int64Value
  int64 value 1

file grpc/health/v1/health.proto grpc.health.v1
message HealthCheckRequest
  string service 1
message HealthCheckResponse
  HealthCheckResponse.ServingStatus status 1
enum HealthCheckResponse.ServingStatus
  UNKNOWN 0
  SERVING 1
  NOT_SERVING 2
  SERVICE_UNKNOWN 3
service Health
  rpc Check HealthCheckRequest HealthCheckResponse
  rpc Watch HealthCheckRequest stream HealthCheckResponse

file grpc_service.proto inference
message ServerLiveRequest
message ServerLiveResponse
  bool live 1
message ServerReadyRequest
message ServerReadyResponse
  bool ready 1
message ModelReadyRequest
  string name 1
  string version 2
message ModelReadyResponse
  bool ready 1
message ServerMetadataRequest
message ServerMetadataResponse
  string name 1
  string version 2
  repeated string extensions 3
message ModelMetadataRequest
  string name 1
  string version 2
message ModelMetadataResponse
  string name 1
  repeated string versions 2
  string platform 3
  repeated ModelMetadataResponse.TensorMetadata inputs 4
  repeated ModelMetadataResponse.TensorMetadata outputs 5
message ModelMetadataResponse.TensorMetadata
  string name 1
  string datatype 2
  repeated int64 shape 3
message InferParameter
  oneof parameter_choice bool bool_param 1
  oneof parameter_choice int64 int64_param 2
  oneof parameter_choice string string_param 3
  oneof parameter_choice double double_param 4
  oneof parameter_choice uint64 uint64_param 5
message InferTensorContents
  repeated bool bool_contents 1
  repeated int32 int_contents 2
  repeated int64 int64_contents 3
  repeated uint32 uint_contents 4
  repeated uint64 uint64_contents 5
  repeated float fp32_contents 6
  repeated double fp64_contents 7
  repeated bytes bytes_contents 8
message ModelInferRequest
  string model_name 1
  string model_version 2
  string id 3
  map string InferParameter parameters 4
  repeated ModelInferRequest.InferInputTensor inputs 5
  repeated ModelInferRequest.InferRequestedOutputTensor outputs 6
  repeated bytes raw_input_contents 7
message ModelInferRequest.InferInputTensor
  string name 1
  string datatype 2
  repeated int64 shape 3
  map string InferParameter parameters 4
  InferTensorContents contents 5
message ModelInferRequest.InferRequestedOutputTensor
  string name 1
  map string InferParameter parameters 2
message ModelInferResponse
  string model_name 1
  string model_version 2
  string id 3
  map string InferParameter parameters 4
  repeated ModelInferResponse.InferOutputTensor outputs 5
  repeated bytes raw_output_contents 6
message ModelInferResponse.InferOutputTensor
  string name 1
  string datatype 2
  repeated int64 shape 3
  map string InferParameter parameters 4
  InferTensorContents contents 5
message ModelStreamInferResponse
  string error_message 1
  ModelInferResponse infer_response 2
message ModelConfigRequest
  string name 1
  string version 2
message ModelInput
  string name 1
  int32 data_type 2
  repeated int64 dims 4
  bool optional 8
message ModelOutput
  string name 1
  int32 data_type 2
  repeated int64 dims 3
message ModelInstanceGroup
  int32 count 2
  repeated int32 gpus 3
  int32 kind 4
message ModelDynamicBatching
  uint64 max_queue_delay_microseconds 2
  uint64 priority_levels 4
  uint64 default_priority_level 5
message ModelSequenceBatching
  uint64 max_sequence_idle_microseconds 1
  ModelSequenceBatching.StrategyDirect direct 3
message ModelSequenceBatching.StrategyDirect
  uint64 max_queue_delay_microseconds 1
message ModelEnsembling
  repeated ModelEnsembling.Step step 1
message ModelEnsembling.Step
  string model_name 1
  int64 model_version 2
  map string string input_map 3
  map string string output_map 4
message ModelConfig
  string name 1
  string platform 2
  int32 max_batch_size 4
  repeated ModelInput input 5
  repeated ModelOutput output 6
  repeated ModelInstanceGroup instance_group 7
  ModelDynamicBatching dynamic_batching 11
  ModelSequenceBatching sequence_batching 13
  ModelEnsembling ensemble_scheduling 15
message ModelConfigResponse
  ModelConfig config 1
message ModelStatisticsRequest
  string name 1
  string version 2
message StatisticDuration
  uint64 count 1
  uint64 ns 2
message InferStatistics
  StatisticDuration success 1
  StatisticDuration fail 2
  StatisticDuration queue 3
  StatisticDuration compute_infer 5
  StatisticDuration cache_hit 7
  StatisticDuration cache_miss 8
message ModelStatistics
  string name 1
  string version 2
  uint64 inference_count 4
  uint64 execution_count 5
  InferStatistics inference_stats 6
message ModelStatisticsResponse
  repeated ModelStatistics model_stats 1
message RepositoryIndexRequest
  string repository_name 1
  bool ready 2
message RepositoryIndexResponse
  repeated RepositoryIndexResponse.ModelIndex models 1
message RepositoryIndexResponse.ModelIndex
  string name 1
  string version 2
  string state 3
  string reason 4
message RepositoryModelLoadRequest
  string repository_name 1
  string model_name 2
message RepositoryModelLoadResponse
message RepositoryModelUnloadRequest
  string repository_name 1
  string model_name 2
message RepositoryModelUnloadResponse
message SystemSharedMemoryStatusRequest
  string name 1
message SystemSharedMemoryStatusResponse
  map string SystemSharedMemoryStatusResponse.RegionStatus regions 1
message SystemSharedMemoryStatusResponse.RegionStatus
  string name 1
  string key 2
  uint64 offset 3
  uint64 byte_size 4
message SystemSharedMemoryRegisterRequest
  string name 1
  string key 2
  uint64 offset 3
  uint64 byte_size 4
message SystemSharedMemoryRegisterResponse
message SystemSharedMemoryUnregisterRequest
  string name 1
message SystemSharedMemoryUnregisterResponse
message CudaSharedMemoryStatusRequest
  string name 1
message CudaSharedMemoryStatusResponse
  map string CudaSharedMemoryStatusResponse.RegionStatus regions 1
message CudaSharedMemoryStatusResponse.RegionStatus
  string name 1
  uint64 device_id 2
  uint64 byte_size 3
message CudaSharedMemoryRegisterRequest
  string name 1
  bytes raw_handle 2
  int64 device_id 3
  uint64 byte_size 4
message CudaSharedMemoryRegisterResponse
message CudaSharedMemoryUnregisterRequest
  string name 1
message CudaSharedMemoryUnregisterResponse
service GRPCInferenceService
  rpc ServerLive ServerLiveRequest ServerLiveResponse
  rpc ServerReady ServerReadyRequest ServerReadyResponse
  rpc ModelReady ModelReadyRequest ModelReadyResponse
  rpc ServerMetadata ServerMetadataRequest ServerMetadataResponse
  rpc ModelMetadata ModelMetadataRequest ModelMetadataResponse
  rpc ModelInfer ModelInferRequest ModelInferResponse
  rpc ModelStreamInfer stream ModelInferRequest stream ModelStreamInferResponse
  rpc ModelConfig ModelConfigRequest ModelConfigResponse
  rpc ModelStatistics ModelStatisticsRequest ModelStatisticsResponse
  rpc RepositoryIndex RepositoryIndexRequest RepositoryIndexResponse
  rpc RepositoryModelLoad RepositoryModelLoadRequest RepositoryModelLoadResponse
  rpc RepositoryModelUnload RepositoryModelUnloadRequest RepositoryModelUnloadResponse
  rpc SystemSharedMemoryStatus SystemSharedMemoryStatusRequest SystemSharedMemoryStatusResponse
  rpc SystemSharedMemoryRegister SystemSharedMemoryRegisterRequest SystemSharedMemoryRegisterResponse
  rpc SystemSharedMemoryUnregister SystemSharedMemoryUnregisterRequest SystemSharedMemoryUnregisterResponse
  rpc CudaSharedMemoryStatus CudaSharedMemoryStatusRequest CudaSharedMemoryStatusResponse
  rpc CudaSharedMemoryRegister CudaSharedMemoryRegisterRequest CudaSharedMemoryRegisterResponse
  rpc CudaSharedMemoryUnregister CudaSharedMemoryUnregisterRequest CudaSharedMemoryUnregisterResponse

file tensorflow/core/framework/tensor.proto tensorflow
enum DataType
  DT_INVALID 0
  DT_FLOAT 1
  DT_DOUBLE 2
  DT_INT32 3
  DT_UINT8 4
  DT_INT16 5
  DT_INT8 6
  DT_STRING 7
  DT_INT64 9
  DT_BOOL 10
  DT_BFLOAT16 14
  DT_HALF 19
message TensorShapeProto
  repeated TensorShapeProto.Dim dim 2
  bool unknown_rank 3
message TensorShapeProto.Dim
  int64 size 1
  string name 2
message TensorProto
  DataType dtype 1
  TensorShapeProto tensor_shape 2
  int32 version_number 3
  bytes tensor_content 4
  repeated float float_val 5
  repeated double double_val 6
  repeated int32 int_val 7
  repeated int64 int64_val 10
  repeated bool bool_val 11
  repeated int32 half_val 13
message TensorInfo
  string name 1
  DataType dtype 2
  TensorShapeProto tensor_shape 3
message SignatureDef
  map string TensorInfo inputs 1
  map string TensorInfo outputs 2
  string method_name 3

file tensorflow/core/example/example.proto tensorflow
message BytesList
  repeated bytes value 1
message FloatList
  repeated float value 1
message Int64List
  repeated int64 value 1
message Feature
  oneof kind BytesList bytes_list 1
  oneof kind FloatList float_list 2
  oneof kind Int64List int64_list 3
message Features
  map string Feature feature 1
message Example
  Features features 1

file tensorflow_serving/apis/prediction_service.proto tensorflow.serving tensorflow/core/example/example.proto tensorflow/core/framework/tensor.proto google/protobuf/any.proto google/protobuf/wrappers.proto
message ModelSpec
  string name 1
  google.protobuf.Int64Value version 2
  string signature_name 3
  string version_label 4
message PredictRequest
  ModelSpec model_spec 1
  map string tensorflow.TensorProto inputs 2
  repeated string output_filter 3
message PredictResponse
  map string tensorflow.TensorProto outputs 1
  ModelSpec model_spec 2
message ExampleList
  repeated tensorflow.Example examples 1
message ExampleListWithContext
  repeated tensorflow.Example examples 1
  tensorflow.Example context 2
message Input
  oneof kind ExampleList example_list 1
  oneof kind ExampleListWithContext example_list_with_context 2
message Class
  string label 1
  float score 2
message Classifications
  repeated Class classes 1
message ClassificationResult
  repeated Classifications classifications 1
message ClassificationRequest
  ModelSpec model_spec 1
  Input input 2
message ClassificationResponse
  ClassificationResult result 1
  ModelSpec model_spec 2
message Regression
  float value 1
message RegressionResult
  repeated Regression regressions 1
message RegressionRequest
  ModelSpec model_spec 1
  Input input 2
message RegressionResponse
  RegressionResult result 1
  ModelSpec model_spec 2
message InferenceTask
  ModelSpec model_spec 1
  string method_name 2
message InferenceResult
  ModelSpec model_spec 1
  oneof result ClassificationResult classification_result 2
  oneof result RegressionResult regression_result 3
message MultiInferenceRequest
  repeated InferenceTask tasks 1
  Input input 2
message MultiInferenceResponse
  repeated InferenceResult results 1
message GetModelMetadataRequest
  ModelSpec model_spec 1
  repeated string metadata_field 2
message GetModelMetadataResponse
  ModelSpec model_spec 1
  map string google.protobuf.Any metadata 2
message SignatureDefMap
  map string tensorflow.SignatureDef signature_def 1
message StatusProto
  int32 error_code 1
  string error_message 2
message GetModelStatusRequest
  ModelSpec model_spec 1
message ModelVersionStatus
  int64 version 1
  ModelVersionStatus.State state 2
  StatusProto status 3
enum ModelVersionStatus.State
  UNKNOWN 0
  START 10
  LOADING 20
  AVAILABLE 30
  UNLOADING 40
  END 50
message GetModelStatusResponse
  repeated ModelVersionStatus model_version_status 1
service PredictionService
  rpc Classify ClassificationRequest ClassificationResponse
  rpc Regress RegressionRequest RegressionResponse
  rpc Predict PredictRequest PredictResponse
  rpc MultiInference MultiInferenceRequest MultiInferenceResponse
  rpc GetModelMetadata GetModelMetadataRequest GetModelMetadataResponse
service ModelService
  rpc GetModelStatus GetModelStatusRequest GetModelStatusResponse

)"
                                    // Both versions of reflection have the same messages.
                                    R"(
file grpc/reflection/v1/reflection.proto grpc.reflection.v1
message ServerReflectionRequest
  string host 1
  oneof message_request string file_by_filename 3
  oneof message_request string file_containing_symbol 4
  oneof message_request ExtensionRequest file_containing_extension 5
  oneof message_request string all_extension_numbers_of_type 6
  oneof message_request string list_services 7
message ExtensionRequest
  string containing_type 1
  int32 extension_number 2
message ServerReflectionResponse
  string valid_host 1
  ServerReflectionRequest original_request 2
  oneof message_response FileDescriptorResponse file_descriptor_response 4
  oneof message_response ExtensionNumberResponse all_extension_numbers_response 5
  oneof message_response ListServiceResponse list_services_response 6
  oneof message_response ErrorResponse error_response 7
message FileDescriptorResponse
  repeated bytes file_descriptor_proto 1
message ExtensionNumberResponse
  string base_type_name 1
  repeated int32 extension_number 2
message ListServiceResponse
  repeated ServiceResponse service 1
message ServiceResponse
  string name 1
message ErrorResponse
  int32 error_code 1
  string error_message 2
service ServerReflection
  rpc ServerReflectionInfo stream ServerReflectionRequest stream ServerReflectionResponse
)";

}  // namespace tandem::serve
