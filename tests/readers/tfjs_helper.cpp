// SPDX-License-Identifier: Apache-2.0
// Models of TensorFlow.js without files of weights, for the table of readers; and those that are
// their own files of weights and name them again and again.
#include <unistd.h>

#include <algorithm>

#include "tests/readers/readers.h"

namespace tandem::readers {
namespace {

/// A model of `nodes` whose one weight, or `paths` of whose files, are the bytes of the model.
std::string own_weights(int nodes, int paths) {
  constexpr size_t kBytes = 300'000;
  const auto list = [](int n, const std::string& entry) {
    std::string all = entry;
    for (int k = 1; k < n; ++k) all += "," + entry;
    return all;
  };
  const std::string file = "\"tandem_readers_" + std::to_string(getpid()) + ".json\"";
  std::string json = R"({"modelTopology":{"node":[)" +
                     list(nodes, R"({"name":"w","op":"Const","attr":{"value":{"tensor":{}}}})") +
                     R"(]},"weightsManifest":[{"paths":[)" + list(paths, file) +
                     R"(],"weights":[{"name":"w","dtype":"uint8","shape":[250000]}]}]})";
  json.resize(std::max(kBytes, json.size()), ' ');
  return json;
}

}  // namespace

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

void add_crafted_tfjs(std::vector<Crafted>& all) {
  all.push_back({"copies_of_a_weight", "tfjs", [] { return own_weights(4000, 1); },
                 "over the limit 'bytes'"});
  all.push_back(
      {"copies_of_a_file", "tfjs", [] { return own_weights(1, 8000); }, "over the limit 'bytes'"});
}

}  // namespace tandem::readers
