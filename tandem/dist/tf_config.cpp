// SPDX-License-Identifier: Apache-2.0
#include "tandem/dist/tf_config_internal.h"

#include <charconv>
#include <vector>

#include "tandem/base/error.h"
#include "tandem/io/json.h"

namespace tandem::distributed {
namespace {

struct ClusterTask {
  std::string host;
  int port = 0;
};

ClusterTask task_at(const std::string& address) {
  const size_t colon = address.rfind(':');
  ClusterTask t{address.substr(0, colon)};
  if (colon != address.npos) {
    const char* end = address.data() + address.size();
    const auto [at, error] = std::from_chars(address.data() + colon + 1, end, t.port);
    if (error != std::errc() || at != end || t.port > 65535) t.port = 0;
  }
  TD_CHECK(!t.host.empty() && t.port > 0, Value,
           "TF_CONFIG has a task at '{}', expected \"host:port\"", address);
  return t;
}

io::Json parsed(const char* text) {
  try {
    return io::parse_json(text, "TF_CONFIG");
  } catch (const Error& e) {
    TD_FAIL(Value, "{}", e.message());
  }
}

}  // namespace

Place place_in_cluster(const char* text) {
  const io::Json config = parsed(text);
  TD_CHECK(config.as_object(), Value,
           "TF_CONFIG is {}, expected an object with a cluster and a task", config.kind());
  const io::Json* cluster = config.find("cluster");
  if (!cluster) return {};  // TensorFlow's default: one process
  const io::Json* task = config.find("task");
  const io::Json* type = task ? task->find("type") : nullptr;
  const io::Json* index = task ? task->find("index") : nullptr;
  TD_CHECK(cluster->as_object() && type && type->as_string() && index && index->as_int(), Value,
           "TF_CONFIG expects a cluster and the task of this process, such as "
           "{{\"cluster\": {{\"worker\": [\"a:2222\", \"b:2222\"]}}, "
           "\"task\": {{\"type\": \"worker\", \"index\": 0}}}}");
  const int64_t number = *index->as_int();
  std::vector<ClusterTask> all;
  Place p{.rank = -1, .local_size = 0, .source = kClusterVariable};
  for (const char* kind : {"chief", "master", "worker"}) {
    const io::Json* tasks = cluster->find(kind);
    if (!tasks) continue;
    TD_CHECK(tasks->as_array(), Value, "TF_CONFIG expects a list of addresses of '{}'", kind);
    const auto n = static_cast<int64_t>(tasks->as_array()->size());
    if (*type->as_string() == kind && number >= 0 && number < n)
      p.rank = static_cast<int>(static_cast<int64_t>(all.size()) + number);
    for (const io::Json& address : *tasks->as_array())
      all.push_back(task_at(io::text_of(&address)));
  }
  TD_CHECK(p.rank >= 0, Value,
           "TF_CONFIG says that this process is '{}' {}, which is no chief or worker of its "
           "cluster\nOnly those train; a parameter server here is rank 0 of trainer.strategy=ps.",
           *type->as_string(), number);
  p.size = static_cast<int>(all.size());
  p.master_addr = all[0].host;
  p.master_port = all[0].port;
  for (int i = 0; i < p.size; ++i) {
    if (all[static_cast<size_t>(i)].host != all[static_cast<size_t>(p.rank)].host) continue;
    if (i < p.rank) ++p.local_rank;
    ++p.local_size;
  }
  return p;
}

}  // namespace tandem::distributed
