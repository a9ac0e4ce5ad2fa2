# SPDX-License-Identifier: Apache-2.0
# Makes tests/rl/trajectories.safetensors with Gymnasium: for each environment a start state, actions,
# observations, rewards and ends of 200 steps. Use: PYTHON make_trajectories.py OUT
import math, sys
import gymnasium as gym, numpy as np
from safetensors.numpy import save_file
out = {}
rng = np.random.default_rng(7)
for name in ["CartPole-v1", "MountainCar-v0", "MountainCarContinuous-v0", "Pendulum-v1", "Acrobot-v1"]:
    env = gym.make(name)
    discrete = hasattr(env.action_space, "n")
    for run in range(3):
        env.reset(seed=run)
        raw = env.unwrapped
        start = np.array(raw.state, dtype=np.float64)
        acts, obs, rew, term, trunc = [], [], [], [], []
        for t in range(200):
            if discrete:
                # a policy that reaches far into the state space, and random moves
                s = raw.state
                a = int(rng.integers(env.action_space.n))
                if name.startswith("CartPole") and run > 0 and rng.random() < 0.9: a = int(s[2] + s[3] > 0)
                if name.startswith("MountainCar") and run > 0: a = 2 if s[1] >= 0 else 0
                if name.startswith("Acrobot") and run > 0: a = 2 if s[2] < 0 else 0
                o, r, d, c, _ = env.step(a)
                acts.append([a])
            else:
                a = rng.uniform(-2.5, 2.5, size=1).astype(np.float32)
                if name.startswith("MountainCar") and run > 0: a = np.array([1.0 if raw.state[1] >= 0 else -1.0], np.float32)
                o, r, d, c, _ = env.step(a)
                acts.append(a)
            obs.append(o); rew.append(r); term.append(d); trunc.append(c)
            if d or c: break
        key = f"{name}.{run}."
        out[key + "start"] = start
        out[key + "actions"] = np.array(acts, np.float32)
        out[key + "obs"] = np.array(obs, np.float32)
        out[key + "rewards"] = np.array(rew, np.float32)
        out[key + "terminated"] = np.array(term, np.uint8)
        out[key + "truncated"] = np.array(trunc, np.uint8)
        print(key, len(obs), term[-1], trunc[-1])
save_file(out, sys.argv[1])
