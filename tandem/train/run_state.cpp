// SPDX-License-Identifier: Apache-2.0
#include "tandem/train/run_state.h"

#include <signal.h>
#include <unistd.h>

#include <atomic>

#include "tandem/base/log.h"
#include "tandem/graph/rng.h"
#include "tandem/optim/averaged.h"
#include "tandem/train/machine_kind_internal.h"

namespace tandem::train {
namespace {

void add(StateDict& to, const std::string& prefix, const StateDict& from) {
  for (const auto& [name, value] : from) to[prefix + "." + name] = value;
}

StateDict part_of(const StateDict& from, const std::string& prefix) {
  StateDict out;
  for (const auto& [name, value] : from)
    if (name.starts_with(prefix + ".")) out[name.substr(prefix.size() + 1)] = value;
  return out;
}

// What a run holds besides its model, as text: a snapshot of other parts is refused.
std::string list_parts(const RunParts& p) {
  std::string text;
  const auto add = [&](const std::string& name) { text += (text.empty() ? "" : ", ") + name; };
  for (const auto& [name, o] : p.optimizers) add(fmt::format("{} for {}", o->type(), name));
  if (p.optimizers.empty() && (p.optimizer || p.model))
    add(p.optimizer ? p.optimizer->type() : "no optimizer");
  if (p.schedule) add("schedule");
  for (const auto& [name, s] : p.schedules) add("schedule for " + name);
  if (p.scaler) add("scaler");
  if (p.data) add("data");
  for (const auto& e : p.extra) add(e.name);
  return text;
}

uint64_t unsigned_of(const io::Json& state, const char* part, const char* key) {
  const io::Json* group = state.find(part);
  const io::Json* v = group ? group->find(key) : nullptr;
  TD_CHECK(v && v->as_string() && !v->as_string()->empty() && v->as_string()->size() <= 20 &&
               v->as_string()->find_first_not_of("0123456789") == std::string::npos,
           Format, "state.json: {}.{} must be a text of digits", part, key);
  return std::strtoull(v->as_string()->c_str(), nullptr, 10);
}

}  // namespace

Snapshot snapshot(const RunParts& p, int64_t step, io::Json more) {
  TD_CHECK(p.model || !p.extra.empty(), Value, "snapshot() expects a model");
  Snapshot s;
  s.step = step;
  if (p.model) s.model = p.model_state ? *p.model_state : p.model->state_dict();
  if (p.optimizer)
    add(s.optimizer, "optimizer",
        p.optimizer_state ? *p.optimizer_state : p.optimizer->state_dict());
  if (p.schedule) add(s.optimizer, "schedule", p.schedule->state_dict());
  for (const auto& [name, o] : p.optimizers)
    add(s.optimizer, "optimizers." + name, o->state_dict());
  for (const auto& [name, o] : p.schedules) add(s.optimizer, "schedules." + name, o->state_dict());
  if (p.scaler) add(s.optimizer, "scaler", p.scaler->state_dict());
  for (const auto& e : p.extra) add(s.optimizer, e.name, e.get());
  const GeneratorState rng = generator_state();
  // Numbers of 64 bits as text: other readers of JSON hold them as doubles.
  io::Json::Object state{{"step", step},
                         {"parts", list_parts(p)},
                         {"machine", machine_kind()},
                         {"rng", io::Json::Object{{"seed", std::to_string(rng.seed)},
                                                  {"offset", std::to_string(rng.offset)}}}};
  if (p.data) state.emplace_back("data", p.data->state().to_json());
  if (!more.is_null()) state.emplace_back("more", std::move(more));
  s.state = std::move(state);
  return s;
}

namespace {

// A run that is resumed needs the weights of all its model.
void load_all(nn::Module& model, const StateDict& weights) try {
  model.load_state_dict(weights);
} catch (const Error& e) {
  throw Error(e.kind(), e.message(), "A run is resumed with the model that it had.", e.op(),
              e.loc(), e.layer());
}

}  // namespace

io::Json restore(const RunParts& p, const Snapshot& s) {
  TD_CHECK(p.model || !p.extra.empty(), Value, "restore() expects a model");
  const io::Json* parts = s.state.find("parts");
  TD_CHECK(parts && parts->as_string() && *parts->as_string() == list_parts(p), Value,
           "the checkpoint of step {} was saved by a run of ({}), this one has ({})", s.step,
           parts && parts->as_string() ? *parts->as_string() : "", list_parts(p));
  GeneratorState rng;
  rng.seed = unsigned_of(s.state, "rng", "seed");
  rng.offset = unsigned_of(s.state, "rng", "offset");
  if (p.data) {
    const io::Json* data = s.state.find("data");
    TD_CHECK(data, Format, "state.json has no 'data'");
    p.data->load_state(data::PipelineState::from_json(*data));
  }
  if (p.model) load_all(*p.model, s.model);
  if (p.optimizer) p.optimizer->load_state_dict(part_of(s.optimizer, "optimizer"));
  if (p.schedule) p.schedule->load_state_dict(part_of(s.optimizer, "schedule"));
  for (const auto& [name, o] : p.optimizers)
    o->load_state_dict(part_of(s.optimizer, "optimizers." + name));
  for (const auto& [name, o] : p.schedules)
    o->load_state_dict(part_of(s.optimizer, "schedules." + name));
  if (p.scaler) p.scaler->load_state_dict(part_of(s.optimizer, "scaler"));
  for (const auto& e : p.extra) e.set(part_of(s.optimizer, e.name));
  set_generator_state(rng);
  if (const io::Json* machine = s.state.find("machine"))
    if (const std::string other = machine_difference(*machine, machine_kind()); !other.empty())
      log_warning("the run is resumed on another kind of machine, its bits may differ: {}", other);
  const io::Json* more = s.state.find("more");
  return more ? *more : io::Json();
}

StateDict weights_of(const Snapshot& s) {
  StateDict average = optim::WeightAverage::weights_of(part_of(s.optimizer, kAveragePart));
  return average.empty() ? s.model : average;
}

namespace {
std::atomic<int> g_guards{0}, g_signal{0};
std::atomic<bool> g_stop{false};
struct sigaction g_old_int, g_old_term;

void stop_on_signal(int signal) {
  g_signal = signal;
  if (g_stop.exchange(true) && signal == SIGINT) ::_exit(130);
}
}  // namespace

StopGuard::StopGuard() {
  if (g_guards++ > 0) return;
  struct sigaction action {};
  action.sa_handler = stop_on_signal;
  sigemptyset(&action.sa_mask);
  action.sa_flags = SA_RESTART;
  ::sigaction(SIGINT, &action, &g_old_int);
  ::sigaction(SIGTERM, &action, &g_old_term);
}

StopGuard::~StopGuard() {
  if (--g_guards > 0) return;
  ::sigaction(SIGINT, &g_old_int, nullptr);
  ::sigaction(SIGTERM, &g_old_term, nullptr);
  g_stop = false;
  g_signal = 0;
}

bool stop_requested() { return g_stop.load(); }
void request_stop() { g_stop = true; }
int stop_signal() { return g_signal.load(); }

}  // namespace tandem::train
