// SPDX-License-Identifier: Apache-2.0
// A whole server for the plan, part by part: what eager and compiled mode need, what the rule of
// thumb says, and why.
#include <fmt/format.h>

#include <cmath>

#include "tandem/plan/plan_internal.h"

namespace tandem::plan {
namespace {

Quantity thumb(const std::string& part, double value, const std::string& unit,
               std::optional<double> high = {}) {
  Quantity q = given("server." + part + ".thumb", "rule of thumb", value, unit,
                     "what is commonly said of servers for training");
  if (high) {
    q.low = value;
    q.high = high;
  }
  return q;
}
std::string shown_range(const Quantity& q) {
  return q.low && q.high ? show(*q.low, q.unit) + " to " + show(*q.high, q.unit) : show(q);
}

// The lines of one plan's server. Each line is one function.
class Server {
 public:
  Server(Plan& p, const PlanRequest& r)
      : p_(p), r_(r), other_(p.compiled ? "eager" : "compiled"), gpus_(gpus_of(r.n)) {}

  void add_all() {
    add_gpu();
    add_vram();
    add_cores();
    add_ram();
    add_nvme();
    add_cold_storage();
    add_link();
    add_supply();
    add_cooling();
  }

 private:
  // The figure of eager or compiled mode; the plan's own mode has the plain key.
  const Quantity& mode(bool compiled, const std::string& key) const {
    return p_.at(compiled == p_.compiled ? key : other_ + "." + key);
  }
  ServerLine& line(const std::string& part, const std::string& key) {
    p_.server.push_back({});
    p_.server.back().part = part;
    p_.server.back().key = "server." + key;
    return p_.server.back();
  }
  // Both modes need `q`.
  static void same(ServerLine& l, Quantity q, Quantity rule, const std::string& after = "") {
    l.eager = l.compiled = show(q);
    l.thumb = shown_range(rule) + after;
    l.figures = {std::move(q), std::move(rule)};
  }
  // Data that a host may keep in its page cache.
  bool cached() const {
    const Quantity data = data_bytes(r_);
    return data.value > 0 && data.value < 256e9;
  }
  Quantity checkpoint() const { return again(p_.at("checkpoint.size")); }

  void add_gpu();
  void add_vram();
  Quantity cores_of(bool compiled) const;
  void add_cores();
  Quantity loader_memory() const;
  void add_ram();
  void add_nvme();
  void add_cold_storage();
  void add_link();
  void add_supply();
  void add_cooling();

  Plan& p_;
  const PlanRequest& r_;
  const std::string other_;  // the mode that is not planned
  const Quantity gpus_;
};

void Server::add_gpu() {
  ServerLine& gpu = line("GPU", "gpu");
  gpu.eager = gpu.compiled = fmt::format("{} x {}", show(gpus_), p_.gpu.name);
  gpu.thumb = "as many as one can pay";
  gpu.cause = fmt::format("{} and {}", show(mode(false, "rate")), show(mode(true, "rate")));
  gpu.also = {"gpus", mode(false, "rate").key, mode(true, "rate").key};
}

void Server::add_vram() {
  ServerLine& vram = line("VRAM", "vram");
  vram.eager = show(mode(false, "memory")) + " each";
  vram.compiled = show(mode(true, "memory")) + " each";
  vram.figures = {thumb("vram", 24e9, "B", 48e9)};
  vram.thumb = shown_range(vram.figures[0]) + " each";
  vram.cause = "memory by category, above";
  vram.also = {mode(false, "memory").key, mode(true, "memory").key};
}

Quantity Server::cores_of(bool compiled) const {
  const std::string key = compiled ? "server.cores.compiled" : "server.cores.eager";
  Quantity decoding = decoding_cores(r_, mode(compiled, "rate"));
  if (compiled != p_.compiled) {
    // The rate in it is the other mode's figure already.
    decoding.key = other_ + "." + decoding.key;
    Quantity& samples = decoding.parts[0];
    samples.key = other_ + "." + samples.key;
  }
  return sum(key, compiled ? "CPU cores, compiled" : "CPU cores, eager", "", "",
             {whole(key + ".decoding", "decoding", "", "", std::move(decoding)),
              product(key + ".starting", "starting kernels", "", "",
                      {given(key + ".each", "for each GPU", compiled ? 1 : 2, "",
                             compiled ? "a replayed list keeps one busy"
                                      : "dispatch and the backward pass keep two busy"),
                       gpus_}),
              given("server.cores.rest", "the rest", 2, "", "system, logging, checkpoints")});
}

void Server::add_cores() {
  ServerLine& cores = line("CPU cores", "cores");
  cores.figures = {
      cores_of(false), cores_of(true),
      most("server.cores.thumb", "rule of thumb", "", "what is commonly said",
           {given("server.cores.least", "at least", 16, "", "rule of thumb"),
            product("server.cores.many", "eight for each GPU", "", "",
                    {given("server.cores.eight", "for each", 8, "", "rule of thumb"), gpus_})})};
  cores.eager = show(cores.figures[0]);
  cores.compiled = show(cores.figures[1]);
  cores.thumb = show(cores.figures[2]);
  cores.cause = "decoding, starting kernels, and the rest";
}

Quantity Server::loader_memory() const {
  const Workload& w = p_.compiled ? p_.compiled_work : p_.eager_work;
  Quantity held =
      most("server.sample", "one sample in RAM", "B", "",
           {given("server.sample.disk", "as it lies on disk", r_.job.sample_bytes, "B",
                  r_.job.sample_from.empty() ? "not known" : r_.job.sample_from),
            given("server.sample.decoded", "decoded", 600e3, "B", "224 x 224 x 3 numbers of f32")});
  return sum(
      "server.ram.loader", "loader", "B", "",
      {product(
           "server.ram.threads", "its threads", "B", "",
           {given("server.ram.thread", "for each GPU", 2e9, "B", "libraries and buffers"), gpus_}),
       product(
           "server.ram.batches", "batches ahead", "B", "",
           {given("server.ram.ahead", "of them", 8, "", "read ahead"),
            given("batch.gpu", "samples of one GPU and batch", static_cast<double>(w.options.batch),
                  "", "the batch over GPUs and accumulated batches"),
            gpus_, std::move(held)})});
}

void Server::add_ram() {
  const Quantity loader = loader_memory();
  ServerLine& ram = line("RAM", "ram");
  std::vector<Quantity> parts = {given("server.ram.system", "system", 4e9, "B", "and its services"),
                                 loader, checkpoint()};
  if (cached()) parts.push_back(stored_data(r_));
  ram.cause = fmt::format("system {}, loader {}, one checkpoint {}{}", show(parts[0]), show(loader),
                          show(checkpoint()), cached() ? ", the data in the page cache" : "");
  same(ram, sum("server.ram.need", "RAM", "B", "", std::move(parts)),
       product("server.ram.thumb", "rule of thumb", "B", "twice the VRAM",
               {given("server.ram.twice", "times", 2, "", "rule of thumb"), gpus_,
                again(p_.at("memory.capacity"))}),
       " (twice the VRAM)");
}

void Server::add_nvme() {
  ServerLine& nvme = line("NVMe", "nvme");
  same(nvme,
       sum("server.nvme.need", "NVMe", "B", "",
           {product("server.nvme.data", "data", "B", "",
                    {stored_data(r_), given("server.nvme.room", "with room", 1.2, "",
                                            "copies while it is changed")}),
            product("server.nvme.checkpoints", "checkpoints", "B", "",
                    {checkpoint(), given("server.nvme.count", "of them", 5, "", "kept at a time")}),
            given("server.nvme.system", "system", 50e9, "B", "and its packages")}),
       thumb("nvme", 1e12, "B", 2e12));
  nvme.cause = "data with room, checkpoints, the system";
  if (const Quantity* read = p_.find("data.rate")) {
    nvme.cause +=
        fmt::format("; reads {} {}", show(*read), cached() ? "in the first epoch" : "all the time");
    nvme.also = {"data.rate"};
  }
}

void Server::add_cold_storage() {
  ServerLine& cold = line("cold storage", "cold");
  Quantity kept = sum(
      "server.cold.need", "cold storage", "B", "",
      {stored_data(r_),
       product("server.cold.checkpoints", "checkpoints", "B", "",
               {checkpoint(), given("server.cold.count", "of them", 20, "", "of the whole run")})});
  cold.eager = cold.compiled = show(kept);
  cold.thumb = "none";
  cold.cause = "the original data and checkpoints to keep";
  cold.figures = {std::move(kept)};
}

void Server::add_link() {
  ServerLine& link = line("interconnect", "link");
  link.eager = link.compiled = r_.n > 1 ? p_.gpu.link : "any";
  link.thumb = "NVLink from two GPUs on";
  link.cause = "one GPU talks to nobody";
  for (const char* key : {"time.stages", "time.layers"})
    if (const Quantity* time = p_.find(key)) {
      link.cause = fmt::format("{} of {} for each microbatch", show(*time), time->label);
      link.also = {key};
    }
  if (const Quantity* time = p_.find("time.link")) {
    link.cause = fmt::format("{} of communication a step, {} of it not hidden", show(*time),
                             show(p_.at("time.exposed")));
    link.also = {"time.link", "time.exposed"};
  }
}

// The boards at their limit, not at what they draw on the average.
void Server::add_supply() {
  Quantity boards =
      product("server.supply.gpus", "GPUs", "W", "",
              {given("power.gpu", "one " + p_.gpu.name, p_.gpu.watts, "W", p_.gpu.source), gpus_});
  Quantity host = product("server.supply.host", "host", "W", "",
                          {again(boards), again(p_.at("power.host.share"))});
  Quantity reserve = product("server.supply.need", "with a reserve", "W", "",
                             {sum("server.supply.most", "at their limit", "W", "", {boards, host}),
                              given("server.supply.reserve", "a quarter more", 1.25, "",
                                    "supplies last longer and waste less below their limit")});
  ServerLine& supply = line("power supply", "supply");
  same(supply, rounded_up("server.supply.size", "power supply", "W", "", std::move(reserve), 50),
       rounded_up("server.supply.thumb", "rule of thumb", "W", "the boards and a host",
                  sum("server.supply.thumb.sum", "boards and host", "W", "",
                      {again(boards),
                       given("server.supply.thumb.host", "host", 300, "W", "rule of thumb")}),
                  50));
  supply.cause = "GPUs at their limit and the host, a quarter in reserve";
}

void Server::add_cooling() {
  ServerLine& cooling = line("cooling", "cooling");
  Quantity heat = whole("server.cooling.need", "cooling", "W", "what is drawn leaves as heat",
                        again(p_.at("power.server")));
  cooling.eager = cooling.compiled = show(heat);
  cooling.thumb = "as much as the supply";
  cooling.cause = "what is drawn leaves as heat";
  cooling.figures = {std::move(heat)};
}

}  // namespace

void add_server(Plan& p, const PlanRequest& r) { Server(p, r).add_all(); }

}  // namespace tandem::plan
