// SPDX-License-Identifier: Apache-2.0
#include "tandem/recipe/run_settings_internal.h"

#include <algorithm>
#include <cstdlib>

#include "tandem/io/json.h"
#include "tandem/recipe/setting_values_internal.h"
#include "tandem/runs/run_record.h"

namespace tandem::recipe {
namespace {

constexpr const char *kRecipe = "recipe.yaml", *kConfig = "config.yaml",
                     *kRecord = "settings.jsonl";
/// Named in one message.
constexpr size_t kMostNamed = 6;

const io::Yaml* at_path(const io::Yaml& root, const std::string& path) {
  const io::Yaml* at = &root;
  for (size_t from = 0; at && from <= path.size();) {
    const size_t dot = std::min(path.find('.', from), path.size());
    const std::string word = path.substr(from, dot - from);
    from = dot + 1;
    if (at->kind != io::Yaml::Kind::list) {
      at = at->find(word);
      continue;
    }
    const bool index =
        !word.empty() && word.size() < 9 && word.find_first_not_of("0123456789") == word.npos;
    const size_t i = index ? std::stoul(word) : at->items.size();
    at = i < at->items.size() ? &at->items[i] : nullptr;
  }
  return at;
}

const std::string* file_of(const train::Snapshot& s, const char* name) {
  for (const auto& [file, content] : s.files)
    if (file == name) return &content;
  return nullptr;
}

int64_t epoch_of(const train::Snapshot& s) {
  const io::Json* data = s.state.find("data");
  return data && data->find("epoch") ? io::whole_of(data->find("epoch")) : 0;
}

// A line of settings.jsonl: from which step on the settings differ, and how.
std::string record_line(int64_t step, int64_t epoch, const std::vector<SettingChange>& changes) {
  io::Json::Object changed;
  for (const SettingChange& c : changes)
    changed.emplace_back(c.key, io::Json::Array{c.before, c.now});
  return io::Json(
             io::Json::Object{{"step", step}, {"epoch", epoch}, {"changed", std::move(changed)}})
             .dump() +
         "\n";
}

}  // namespace

RunSettings::RunSettings(const Recipe& recipe, std::shared_ptr<io::Yaml> resolved,
                         std::shared_ptr<std::vector<std::string>> resumable)
    : file_(recipe.file),
      given_(recipe.root),
      resolved_(std::move(resolved)),
      resumable_(std::move(resumable)),
      record_(record_line(0, 0, {})) {}

std::vector<std::pair<std::string, std::string>> RunSettings::files() const {
  const std::string head = runs::settings_text(runs::parse_settings(record_), "# ");
  return {{kRecipe, head + given_.dump()}, {kConfig, head + resolved_->dump()}, {kRecord, record_}};
}

bool RunSettings::may_change(const std::string& key) const {
  return std::any_of(resumable_->begin(), resumable_->end(), [&](const std::string& free) {
    return key == free || key.starts_with(free + ".");
  });
}

bool RunSettings::changed(std::string_view key) const {
  const auto is_it = [&](const SettingChange& c) {
    return c.key == key || (c.key.starts_with(key) && c.key[key.size()] == '.');
  };
  return std::any_of(changes_.begin(), changes_.end(), is_it) ||
         std::any_of(following_.begin(), following_.end(), is_it);
}

// Parts of another type are named by that alone; a key that the run did not have yet counts where
// the recipe gives it.
void RunSettings::compare(const io::Yaml* before, const io::Yaml* now, const std::string& path) {
  const auto is = [](const io::Yaml* y, io::Yaml::Kind kind) { return y && y->kind == kind; };
  const auto below = [&](const std::string& key) { return path.empty() ? key : path + "." + key; };
  if (is(before, io::Yaml::Kind::map) && is(now, io::Yaml::Kind::map)) {
    if (before->find("type") && now->find("type") &&
        !same_setting(before->find("type"), now->find("type")))
      return compare(before->find("type"), now->find("type"), below("type"));
    for (const std::string& key : now->keys) compare(before->find(key), now->find(key), below(key));
    for (const std::string& key : before->keys)
      if (!now->find(key)) compare(before->find(key), nullptr, below(key));
    return;
  }
  const auto of_maps = [](const io::Yaml* y) {
    return !y->items.empty() && y->items[0].kind == io::Yaml::Kind::map;
  };
  if (is(before, io::Yaml::Kind::list) && is(now, io::Yaml::Kind::list) && of_maps(before) &&
      before->items.size() == now->items.size()) {
    for (size_t i = 0; i < now->items.size(); ++i)
      compare(&before->items[i], &now->items[i], below(std::to_string(i)));
    return;
  }
  if (same_setting(before, now)) return;
  const bool given = at_path(given_, path);
  if (!before && !given) return;  // a default that came with a later version
  const bool free = may_change(path), follows = !given && !at_path(given_before_, path);
  (!free     ? refused_
   : follows ? following_
             : changes_)
      .push_back({path, setting_text(before), setting_text(now)});
}

// What a run has done already cannot be asked to end earlier: its record would say what is not so.
void RunSettings::check_ends(const train::Snapshot& s, const std::string& folder) const {
  const std::pair<const char*, int64_t> ends[] = {{"trainer.epochs", epoch_of(s)},
                                                  {"trainer.max_steps", s.step}};
  for (const SettingChange& c : changes_)
    for (const auto& [key, done] : ends) {
      const double wanted = c.key == key ? std::strtod(c.now.c_str(), nullptr) : -1;
      TD_CHECK(wanted < 0 || wanted >= static_cast<double>(done), Value,
               "{}: {} is {}, but the run in '{}' has trained {} already\nAsk for more, or start "
               "another run in a new folder (--run).",
               file_, key, c.now, folder, done);
    }
}

void RunSettings::resume(const train::Snapshot& s, const std::string& folder) {
  const std::string* config = file_of(s, kConfig);
  if (!config) return;  // of a program without a recipe
  changes_.clear();
  following_.clear();
  refused_.clear();
  const std::string* given = file_of(s, kRecipe);
  given_before_ = given ? io::parse_yaml(*given, kRecipe) : io::Yaml();
  const io::Yaml before = io::parse_yaml(*config, kConfig);
  compare(&before, resolved_.get(), "");
  if (!refused_.empty()) {
    std::string named;
    for (size_t i = 0; i < refused_.size() && i < kMostNamed; ++i)
      named += fmt::format("{}{} is {}, was {}", i ? "; " : "", refused_[i].key, refused_[i].now,
                           refused_[i].before);
    if (refused_.size() > kMostNamed)
      named += fmt::format("; and {} more", refused_.size() - kMostNamed);
    TD_FAIL(Value,
            "{}: the run in '{}' cannot be resumed with other settings: {}\nResume it with the "
            "settings "
            "it has ('{}/{}'), or start another run in a new folder (--run).",
            file_, folder, named, folder, kRecipe);
  }
  check_ends(s, folder);
  const std::string* record = file_of(s, kRecord);
  record_ = record ? *record : record_line(0, 0, {});
  if (changes_.empty()) return;
  if (s.step == 0) return;  // nothing was trained with the others
  record_ += record_line(s.step, epoch_of(s), changes_);
}

std::string RunSettings::text() const {
  std::string out;
  for (const SettingChange& c : changes_)
    out += fmt::format("{}{} {} (was {})", out.empty() ? "" : ", ", c.key, c.now, c.before);
  return out;
}

// ---- rates

// The schedule that rates are computed by from the step alone; none where a measured value moves
// them.
optim::LRScheduler* ResumedRates::replayed() const {
  return plateau_ || schedule_.parts.empty() ? nullptr : schedule_.parts.back().get();
}

// The new rate as a multiple of the old one; 0 where there is none.
double ResumedRates::lr_factor() const {
  for (const SettingChange& c : settings_.changes())
    if (c.key == keys_.optim + ".lr") {
      const double before = std::strtod(c.before.c_str(), nullptr);
      return before > 0 ? std::strtod(c.now.c_str(), nullptr) / before : 0;
    }
  return 0;
}

void ResumedRates::before(const train::Snapshot& s) {
  wanted_.clear();
  first_rates_.clear();
  schedule_state_ = {};
  const bool rate = settings_.changed(keys_.optim + ".lr"),
             moved = rate || settings_.changed(keys_.sched);
  for (size_t g = 0; g < optimizer_.num_groups(); ++g) {
    for (const auto& [field, name] : keys_.numbers)
      wanted_.push_back({field, name, g, optimizer_.option(name, g), false});
    first_rates_.push_back(optimizer_.has_option("lr") ? optimizer_.initial_lr(g) : 0);
  }
  const Tensor* steps = s.optimizer.find(name_.empty() ? "schedule.last_epoch"
                                                       : "schedules." + name_ + ".last_epoch");
  if (!replayed() || !moved || !steps) return;
  // All steps so far as the schedule now has them: whatever it keeps is then as it should be.
  const auto count = static_cast<int64_t>(steps->to_vector<double>()[0]);
  try {
    for (int64_t k = 0; k < count; ++k) replayed()->step();
  } catch (const Error& e) {
    throw Error(e.kind(),
                fmt::format("{}: {} steps are done, and the schedule does not go so far: {}",
                            keys_.sched, count, e.message()),
                "Give it more steps, or leave it as it was.", e.op(), e.loc(), e.layer());
  }
  schedule_state_ = replayed()->state_dict();
  for (Number& n : wanted_) {
    const double now = optimizer_.option(n.name, n.group);
    n.moved = n.name == "lr" || now != n.value;
    n.value = now;
  }
}

void ResumedRates::after() {
  const bool replay = !schedule_state_.empty();
  if (replay) replayed()->load_state_dict(schedule_state_);
  for (const Number& n : wanted_) {
    const bool changed = settings_.changed(keys_.optim + "." + n.field);
    if (!changed && !(replay && n.moved)) continue;
    // What a measured value has made of the rate so far counts for the new one too.
    const bool scaled = n.name == "lr" && !replay && plateau_ && lr_factor() > 0;
    const double value = scaled ? optimizer_.lr(n.group) * lr_factor() : n.value;
    optimizer_.set_option(n.name, value, n.group);
  }
  if (settings_.changed(keys_.optim + ".lr") && optimizer_.has_option("lr"))
    for (size_t g = 0; g < first_rates_.size(); ++g) optimizer_.set_initial_lr(first_rates_[g], g);
}

}  // namespace tandem::recipe
