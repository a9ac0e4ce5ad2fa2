// SPDX-License-Identifier: Apache-2.0
// Models of TensorFlow.js without files of weights, for the table of readers.
#include "tests/readers/readers.h"

namespace tandem::readers {

std::vector<std::string> tfjs_seeds() {
  const std::string manifest = R"("weightsManifest":[{"paths":[],"weights":[]}])";
  return {
      R"({"modelTopology":{"node":[{"name":"x","op":"Placeholder","attr":{"dtype":{"type":1},)"
      R"("shape":{"shape":{"dim":[{"size":"2"},{"size":"2"}]}}}},{"name":"w","op":"Const","attr":{)"
      R"("dtype":{"type":"DT_FLOAT"},"value":{"tensor":{"dtype":"DT_FLOAT","tensorShape":{"dim":[)"
      R"({"size":"2"},{"size":"2"}]},"floatVal":[1,2,3,4]}}}},{"name":"y","op":"_FusedMatMul",)"
      R"("input":["x","w","w","w"],"attr":{"T":{"type":1},"fused_ops":{"list":{"s":["Qmlhc0FkZA==",)"
      R"("UHJlbHU="]}}}}]},)" +
          manifest + "}",
      R"({"modelTopology":{"model_config":{"class_name":"Sequential","config":{"name":"s","layers":[)"
      R"({"class_name":"Flatten","config":{"name":"f","batch_input_shape":[null,2,3]}},)"
      R"({"class_name":"Activation","config":{"name":"a","activation":"relu"}}]}}},)" +
          manifest + "}"};
}

}  // namespace tandem::readers
