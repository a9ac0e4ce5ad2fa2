// SPDX-License-Identifier: Apache-2.0
#include "tandem/serve/server_settings.h"

#include <algorithm>
#include <cstdlib>

#include "tandem/base/error.h"
#include "tandem/base/files/file.h"
#include "tandem/recipe/fields.h"
#include "tandem/serve/model/foreign_internal.h"

namespace tandem::serve {
namespace {

void change_settings(io::Yaml& root, const std::vector<std::string>& changes) {
  for (const std::string& change : changes) {
    const size_t is = change.find('=');
    TD_CHECK(is != std::string::npos && is > 0, Value, "'{}' is not a KEY=VALUE", change);
    io::set_yaml(root, change.substr(0, is), change.substr(is + 1));
  }
}

// The keys of `top` in the place of those of `base`, inside maps, too.
void lay_over(io::Yaml& base, const io::Yaml& top) {
  for (size_t i = 0; i < top.keys.size(); ++i) {
    const auto at = std::find(base.keys.begin(), base.keys.end(), top.keys[i]);
    if (at == base.keys.end()) {
      base.keys.push_back(top.keys[i]);
      base.items.push_back(top.items[i]);
      continue;
    }
    io::Yaml& item = base.items[static_cast<size_t>(at - base.keys.begin())];
    if (item.kind == io::Yaml::Kind::map && top.items[i].kind == io::Yaml::Kind::map)
      lay_over(item, top.items[i]);
    else
      item = top.items[i];
  }
}

}  // namespace

ServerSettings read_server_settings(const std::string& file,
                                    const std::vector<std::string>& changes) {
  io::Yaml root;
  root.kind = io::Yaml::Kind::map;
  if (!file.empty()) root = io::parse_yaml(read_file(file, size_t{1} << 20), file);
  change_settings(root, changes);
  // What the other server's configuration says comes before what people write for this one.
  const io::Yaml *from = root.find("from"), *models = root.find("models");
  if (from && models && !from->text.empty()) {
    io::Yaml base;
    base.kind = io::Yaml::Kind::map;
    change_settings(base, open_foreign(from->text, models->text)->settings());
    lay_over(base, root);
    root = std::move(base);
  }
  recipe::Options o(&root, "", file.empty() ? "settings" : file);
  ServerSettings settings;
  recipe::read_fields(o, settings);
  o.finish();
  TD_CHECK(settings.in_flight_mb >= settings.body_mb, Value,
           "in_flight_mb is {}, less than body_mb, {}: such a body could never come\nRaise "
           "in_flight_mb, or lower body_mb.",
           settings.in_flight_mb, settings.body_mb);
  return settings;
}

ServerOptions server_options(const ServerSettings& s) {
  ServerOptions o{.models = s.models,
                  .from = s.from,
                  .defaults = s.defaults,
                  .insecure = s.insecure,
                  .allow_load = s.allow_load,
                  .shared_memory = s.shared_memory,
                  .record = s.record,
                  .record_bytes = s.record_mb * 1048576,
                  .traces = s.traces,
                  .traces_bytes = s.traces_mb * 1048576,
                  .access_log = {.path = s.access_log,
                                 .format = s.access_log_format,
                                 .most_bytes = s.access_log_mb * 1048576},
                  .watch = s.watch,
                  .page = s.page,
                  .links = s.links,
                  .default_model = s.default_model};
  if (!s.keys.empty()) o.keys = ApiKeys(s.keys);
  o.keys_file = s.keys;
  TD_CHECK(!s.certificate.empty() || (s.key.empty() && s.client_ca.empty()), Value,
           "a {} was given, and no certificate\nGive --certificate FILE.",
           s.key.empty() ? "file of clients' signers" : "private key");
  o.http.tls = {.certificate = s.certificate, .key = s.key, .client_ca = s.client_ca};
  o.http.host = s.host;
  o.http.port = static_cast<int>(s.port);
  o.http.limits.body_bytes = static_cast<size_t>(s.body_mb * 1048576);
  o.http.bytes_in_flight = static_cast<size_t>(s.in_flight_mb * 1048576);
  o.http.connections = static_cast<size_t>(s.connections);
  o.http.workers = static_cast<int>(s.workers);
  o.http.header_seconds = s.header_seconds;
  o.http.idle_seconds = s.idle_seconds;
  o.http.answer_seconds = s.answer_seconds;
  o.http.rate_bytes = s.rate_bytes;
  const auto variable = [](const char* name) {
    const char* text = std::getenv(name);
    return std::string(text ? text : "");
  };
  o.health_route = variable("AIP_HEALTH_ROUTE");
  o.predict_route = variable("AIP_PREDICT_ROUTE");
  if (const auto port = parse_digits(variable("AIP_HTTP_PORT"), 65535))
    o.http.port = static_cast<int>(*port);
  return o;
}

}  // namespace tandem::serve
