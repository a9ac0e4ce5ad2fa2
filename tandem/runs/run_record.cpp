// SPDX-License-Identifier: Apache-2.0
#include "tandem/runs/run_record.h"

#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <functional>

#include "tandem/base/error.h"
#include "tandem/base/files/folder.h"
#include "tandem/io/yaml.h"
#include "tandem/runs/resources.h"
#include "tandem/runs/run_folder.h"

namespace tandem::runs {
namespace {

// The lines of a file that are whole; a last one without its end was cut off.
void each_line(const std::string& path, const std::function<void(const io::Json&)>& see) {
  if (!file_exists(path)) return;
  const std::string all = read_file(path);
  for (size_t at = 0, end; (end = all.find('\n', at)) != all.npos; at = end + 1) {
    try {
      see(io::parse_json(std::string_view(all).substr(at, end - at), path));
    } catch (const Error&) {  // damaged: the others stand
    }
  }
}

io::Json read_json(const std::string& path) {
  if (!file_exists(path)) return {};
  try {
    return io::parse_json(read_file(path), path);
  } catch (const Error&) {
    return {};
  }
}

void flatten(const io::Yaml& y, const std::string& path, std::map<std::string, std::string>& out) {
  switch (y.kind) {
    case io::Yaml::Kind::map:
      for (size_t i = 0; i < y.keys.size(); ++i)
        flatten(y.items[i], path.empty() ? y.keys[i] : path + "." + y.keys[i], out);
      break;
    case io::Yaml::Kind::list: {
      std::string all;
      for (const io::Yaml& item : y.items)
        all +=
            (all.empty() ? "" : ", ") + (item.kind == io::Yaml::Kind::scalar ? item.text : "...");
      out[path] = "[" + all + "]";
      break;
    }
    default:
      out[path] = y.text;
  }
}

// The value of a key in part `at`: the last change up to it, else what the first one found.
std::string value_in(const std::vector<SettingsPart>& parts, size_t at, const std::string& key) {
  std::string value;
  bool known = false;
  for (size_t i = 0; i < parts.size(); ++i)
    for (const SettingChange& c : parts[i].changed) {
      if (c.key != key || (i > at && known)) continue;
      value = i <= at ? c.now : c.before;
      known = true;
    }
  return value;
}

}  // namespace

std::vector<SettingsPart> parse_settings(const std::string& lines) {
  std::vector<SettingsPart> parts;
  for (size_t at = 0, end; (end = lines.find('\n', at)) != lines.npos; at = end + 1) try {
      const io::Json j = io::parse_json(std::string_view(lines).substr(at, end - at), "settings");
      SettingsPart part{io::whole_of(j.find("step")), io::whole_of(j.find("epoch")), {}};
      if (const io::Json* changed = j.find("changed"); changed && changed->as_object())
        for (const auto& [key, values] : *changed->as_object())
          if (const io::Json::Array* v = values.as_array(); v && v->size() == 2)
            part.changed.push_back({key, io::text_of(&(*v)[0]), io::text_of(&(*v)[1])});
      parts.push_back(std::move(part));
    } catch (const Error&) {  // damaged: the others stand
    }
  return parts;
}

std::string settings_text(const std::vector<SettingsPart>& parts, const std::string& prefix) {
  if (parts.size() < 2) return "";
  std::vector<std::string> keys;
  for (const SettingsPart& part : parts)
    for (const SettingChange& c : part.changed)
      if (std::find(keys.begin(), keys.end(), c.key) == keys.end()) keys.push_back(c.key);
  std::string out = fmt::format("{}Trained in {} parts:\n", prefix, parts.size());
  const bool epochs = parts.back().epoch > 0;
  for (size_t i = 0; i < parts.size(); ++i) {
    const SettingsPart& part = parts[i];
    const bool last = i + 1 == parts.size();
    const std::string steps = last ? fmt::format("from step {} on", part.step)
                                   : fmt::format("steps {} to {}", part.step, parts[i + 1].step);
    std::string passes;
    if (epochs)
      passes = last ? fmt::format(" (from epoch {} on)", part.epoch)
                    : fmt::format(" (epochs {} to {})", part.epoch, parts[i + 1].epoch);
    std::string values;
    for (const std::string& key : keys)
      values += fmt::format("{}{} {}", values.empty() ? "" : ", ", key, value_in(parts, i, key));
    out += fmt::format("{}  {}{}: {}\n", prefix, steps, passes, values);
  }
  return out;
}

bool lower_is_better(const std::string& metric) {
  for (const char* end : {"loss", "mae", "mse", "rmse", "seconds", "memory_mb", "frechet"})
    if (metric.ends_with(end)) return true;
  return false;
}

const Series* RunRecord::find(const std::string& name) const {
  for (const auto& [n, s] : values)
    if (n == name) return &s;
  return nullptr;
}
double RunRecord::last(const std::string& name) const {
  const Series* s = find(name);
  for (size_t i = s ? s->y.size() : 0; i-- > 0;)
    if (std::isfinite(s->y[i])) return s->y[i];
  return std::nan("");
}
double RunRecord::best(const std::string& name) const {
  double best = std::nan("");
  const Series* s = find(name);
  for (size_t i = 0; s && i < s->y.size(); ++i)
    if (std::isfinite(s->y[i]) &&
        (std::isnan(best) || (lower_is_better(name) ? s->y[i] < best : s->y[i] > best)))
      best = s->y[i];
  return best;
}
double RunRecord::value(const std::string& name) const {
  if (const io::Json* v = evaluation.find("values"))
    if (const io::Json* one = v->find(name)) return io::number_of(one);
  return last(name);
}
std::string RunRecord::headline() const {
  std::vector<std::string> names;
  if (const io::Json* v = evaluation.find("values"); v && v->as_object())
    for (const auto& [name, value] : *v->as_object()) names.push_back(name);
  for (const auto& [name, s] : values)
    if (name.rfind("val/", 0) == 0) names.push_back(name);
  names.emplace_back("train/loss");
  // A metric of the first split before its loss.
  const std::string split = names[0].substr(0, names[0].find('/') + 1);
  for (const std::string& n : names)
    if (n.rfind(split, 0) == 0 && !n.ends_with("loss")) return n;
  return names[0];
}

bool is_local(const RunRecord& run) {
  const io::Json* host = run.environment.find("host");
  char name[256] = "";
  ::gethostname(name, sizeof name - 1);
  return host && host->as_string() && *host->as_string() == name;
}

bool at_work(const RunRecord& run) {
  if (run_writer(run.folder)) return true;
  const io::Json* pid = run.environment.find("pid");
  if (!pid || !pid->as_int() || !is_local(run)) return false;
  const std::string then = io::text_of(run.environment.find("process")),
                    now = process_identity(*pid->as_int());
  if (!then.empty() && !now.empty()) return now == then;
  // By its number alone, which may be another's by now.
  return *pid->as_int() != ::getpid() &&
         (::kill(static_cast<pid_t>(*pid->as_int()), 0) == 0 || errno == EPERM);
}

RunRecord read_run(const FilePath& loc) {
  RunRecord r;
  r.folder = loc.str();
  while (r.folder.size() > 1 && r.folder.back() == '/') r.folder.pop_back();
  TD_CHECK(file_exists(r.folder + "/metrics.jsonl"), Io,
           "'{}' is not a run folder: it has no metrics.jsonl\n`tandem runs list` shows those "
           "there are.",
           r.folder);
  r.name = r.folder.substr(r.folder.rfind('/') + 1);
  double last_time = 0;
  each_line(r.folder + "/metrics.jsonl", [&](const io::Json& j) {
    if (!j.as_object()) return;
    last_time = std::fmax(last_time, io::number_of(j.find("time")));
    const double step = io::number_of(j.find("step")), epoch = io::number_of(j.find("epoch"));
    if (!std::isfinite(step)) return;
    r.steps = std::max(r.steps, static_cast<int64_t>(step));
    bool whole = false;
    for (const auto& [name, value] : *j.as_object()) {
      if (name == "step" || name == "epoch" || name == "time") continue;
      whole = whole || name == "train/loss";
      auto it = std::find_if(r.values.begin(), r.values.end(),
                             [&n = name](const auto& v) { return v.first == n; });
      if (it == r.values.end()) it = r.values.insert(it, {name, Series{name, {}, {}}});
      it->second.x.push_back(step);
      it->second.y.push_back(io::number_of(&value));
    }
    if (whole && std::isfinite(epoch))
      r.epochs = std::max(r.epochs, static_cast<int64_t>(epoch) + 1);
  });
  each_line(r.folder + "/parts.jsonl", [&](const io::Json& j) {
    auto add = [&](double& sum, const char* key) {
      if (const double v = io::number_of(j.find(key)); std::isfinite(v)) sum += v;
    };
    add(r.seconds, "seconds");
    add(r.joules, "joules");
    add(r.cpu_seconds, "cpu_seconds");
    add(r.samples, "samples");
    r.peak_memory_mb = std::fmax(r.peak_memory_mb, io::number_of(j.find("peak_memory_mb")));
    r.energy_source = io::text_of(j.find("energy"));
    const io::Json* calls = j.find("communication");
    r.communication = calls ? *calls : io::Json();
    const io::Json* late = j.find("late_ranks");
    r.late_ranks = late ? *late : io::Json();
  });
  each_line(r.folder + "/layers.jsonl", [&](const io::Json& j) { r.layers.push_back(j); });
  if (file_exists(r.folder + "/settings.jsonl"))
    r.parts = parse_settings(read_file(r.folder + "/settings.jsonl"));
  r.environment = read_json(r.folder + "/env.json");
  r.evaluation = read_json(r.folder + "/evaluation.json");
  r.started = io::number_of(r.environment.find("started"));
  if (file_exists(r.folder + "/STATUS")) {
    r.status = read_file(r.folder + "/STATUS");
    r.status = r.status.substr(0, r.status.find('\n'));
    // A part that has not ended, or never will, is not in parts.jsonl.
    if (r.status == "running" && last_time > r.started) r.seconds += last_time - r.started;
    if (r.status == "running" && is_local(r) && !at_work(r)) r.status = "crashed";
  }
  if (file_exists(r.folder + "/recipe.yaml")) r.recipe = read_file(r.folder + "/recipe.yaml");
  const std::string config = r.folder + "/config.yaml";
  try {
    const io::Yaml y = io::parse_yaml(file_exists(config) ? read_file(config) : r.recipe, config);
    flatten(y, "", r.settings);
    if (auto it = r.settings.find("recipe"); it != r.settings.end() && !it->second.empty())
      r.name = it->second;
  } catch (const Error&) {  // no recipe, or one of another kind
  }
  return r;
}

std::vector<RunRecord> list_runs(const FilePath& folder) {
  std::vector<RunRecord> runs;
  for (const std::string& name : list_folder(folder)) {
    const std::string path = folder.str() + "/" + name;
    if (!file_exists(path + "/metrics.jsonl")) continue;
    try {
      runs.push_back(read_run(path));
    } catch (const Error&) {}
  }
  std::stable_sort(runs.begin(), runs.end(), [](const RunRecord& a, const RunRecord& b) {
    return (std::isnan(a.started) ? 0 : a.started) < (std::isnan(b.started) ? 0 : b.started);
  });
  return runs;
}

}  // namespace tandem::runs
