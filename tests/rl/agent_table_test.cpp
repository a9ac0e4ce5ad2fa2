// SPDX-License-Identifier: Apache-2.0
// Agents by name: fields are the options' members, a row makes what the class makes, and a run of
// an agent by its row has the bits of the same agent made by its class.
#include <gtest/gtest.h>

#include "tandem/io/fields.h"
#include "tandem/recipe/fields.h"
#include "tandem/tandem.h"
#include "tests/support/init.h"

namespace tandem::rl {
namespace {

std::unique_ptr<Agent> made(const AgentRow& row, const char* env, const std::string& options,
                            uint64_t seed) {
  const io::Yaml yaml = io::parse_yaml(options, "agent");
  recipe::Options o(&yaml, "", "agent");
  const std::shared_ptr<void> read = row.options->make();
  recipe::read_fields(o, {read.get(), row.options});
  o.finish();
  return row.make(env, read.get(), seed);
}

TEST(AgentTable, ARowMakesTheAgentOfItsOptions) {
  const auto same = [](Agent& a, Agent& b) {
    a.learn(128);
    b.learn(128);
    const StateDict x = a.training_state(), y = b.training_state();
    EXPECT_STREQ(a.name(), b.name());
    ASSERT_EQ(x.size(), y.size());
    for (const auto& [name, value] : x) EXPECT_TRUE(equal(value, y.at(name))) << name;
  };
  PPO ppo("CartPole-v1", {.learning_rate = 1e-3,
                          .n_envs = 2,
                          .n_steps = 32,
                          .batch_size = 32,
                          .n_epochs = 2,
                          .target_kl = 0.5,
                          .net_arch = {8},
                          .seed = 5});
  same(ppo, *made(agents().at("ppo"), "CartPole-v1",
                  "{learning_rate: 1e-3, n_envs: 2, n_steps: 32, batch_size: 32, n_epochs: 2, "
                  "target_kl: 0.5, net_arch: [8]}",
                  5));
  DQN dqn("CartPole-v1", {.buffer_size = 500,
                          .learning_starts = 20,
                          .batch_size = 8,
                          .dueling = true,
                          .prioritized = true,
                          .net_arch = {8},
                          .seed = 6});
  same(dqn, *made(agents().at("dqn"), "CartPole-v1",
                  "{buffer_size: 500, learning_starts: 20, batch_size: 8, dueling: true, "
                  "prioritized: true, net_arch: [8]}",
                  6));
  A2C a2c("CartPole-v1", {.n_steps = 8, .net_arch = {8}, .seed = 7});
  same(a2c, *made(agents().at("a2c"), "CartPole-v1", "{n_steps: 8, net_arch: [8]}", 7));
  SAC sac("Pendulum-v1",
          {.buffer_size = 500, .learning_starts = 20, .batch_size = 8, .net_arch = {8}, .seed = 8});
  same(sac, *made(agents().at("sac"), "Pendulum-v1",
                  "{buffer_size: 500, learning_starts: 20, batch_size: 8, net_arch: [8]}", 8));
}

TEST(AgentTable, DefaultsAndDocs) {
  ASSERT_EQ(agents().rows().size(), 4u);
  for (const AgentRow* row : agents().rows()) {
    for (const FieldInfo& i : describe_fields(*row->options))
      EXPECT_GT(std::string(i.field.doc).size(), 4u) << row->name << " " << i.name;
    const std::shared_ptr<void> options = row->options->make();
    EXPECT_EQ(io::fields_yaml({options.get(), row->options}).find("net_arch")->items.empty(),
              false);
  }
  EXPECT_EQ(agents().names(), (std::vector<std::string>{"dqn", "a2c", "ppo", "sac"}));
}

}  // namespace
}  // namespace tandem::rl
