"""PPO in one file in the manner of CleanRL, for any Gymnasium id.

    ppo_cleanrl.py ENV_ID [STEPS] [TARGET]

The same script trains "InvertedPendulum-v5" and "simstream/InvertedPendulum-v5"; only the id
differs. Next-step autoreset: the row after an end is a reset, its value is not bootstrapped and it
is left out of the loss. Fails if the mean return of the last 20 episodes is not over TARGET.
"""

import sys
import time

import gymnasium as gym
import numpy as np
import torch
from torch import nn
from torch.distributions import Normal

import simstream  # noqa: F401 - registers its ids

NUM_ENVS, NUM_STEPS, EPOCHS, MINIBATCHES = 8, 128, 10, 4
GAMMA, LAMBDA, CLIP, RATE = 0.99, 0.95, 0.2, 1e-3


def make_envs(env_id):
    envs = gym.make_vec(env_id, num_envs=NUM_ENVS)
    envs = gym.wrappers.vector.RecordEpisodeStatistics(envs)
    envs = gym.wrappers.vector.ClipAction(envs)
    envs = gym.wrappers.vector.NormalizeObservation(envs)
    envs = gym.wrappers.vector.TransformObservation(envs, lambda obs: np.clip(obs, -10, 10))
    envs = gym.wrappers.vector.NormalizeReward(envs, gamma=GAMMA)
    return gym.wrappers.vector.TransformReward(envs, lambda reward: np.clip(reward, -10, 10))


def network(sizes, last):
    layers = []
    for a, b in zip(sizes, sizes[1:]):
        layer = nn.Linear(a, b)
        nn.init.orthogonal_(layer.weight, last if b == sizes[-1] else np.sqrt(2))
        nn.init.zeros_(layer.bias)
        layers += [layer, nn.Tanh()]
    return nn.Sequential(*layers[:-1])


class Agent(nn.Module):
    def __init__(self, n_obs, n_act):
        super().__init__()
        self.critic = network([n_obs, 64, 64, 1], 1.0)
        self.actor = network([n_obs, 64, 64, n_act], 0.01)
        self.logstd = nn.Parameter(torch.zeros(1, n_act))

    def forward(self, obs, action=None):
        policy = Normal(self.actor(obs), self.logstd.exp())
        if action is None:
            action = policy.sample()
        return (action, policy.log_prob(action).sum(1), policy.entropy().sum(1),
                self.critic(obs).squeeze(1))


def advantages(reward, value, done, valid, last_value):
    """GAE over (NUM_STEPS, NUM_ENVS); done[t]: the episode ended in row t."""
    out, carry, after = torch.zeros_like(reward), 0, last_value
    for t in reversed(range(NUM_STEPS)):
        going = 1 - done[t]
        delta = reward[t] + GAMMA * after * going - value[t]
        carry = (delta + GAMMA * LAMBDA * going * carry) * valid[t]
        out[t], after = carry, value[t]
    return out


def update(agent, optimizer, obs, action, logprob, advantage, target):
    index = np.arange(len(obs))
    for _ in range(EPOCHS):
        np.random.shuffle(index)
        for part in np.array_split(index, MINIBATCHES):
            _, new, entropy, value = agent(obs[part], action[part])
            ratio = (new - logprob[part]).exp()
            a = advantage[part]
            a = (a - a.mean()) / (a.std() + 1e-8)
            loss = torch.max(-a * ratio, -a * ratio.clamp(1 - CLIP, 1 + CLIP)).mean()
            loss = loss + 0.5 * 0.5 * ((value - target[part]) ** 2).mean() - 0 * entropy.mean()
            optimizer.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(agent.parameters(), 0.5)
            optimizer.step()


def main():
    env_id = sys.argv[1]
    steps, goal = (int(v) for v in (sys.argv[2:] + ["60000", "300"][len(sys.argv) - 2:]))
    np.random.seed(1)
    torch.manual_seed(1)
    torch.set_num_threads(1)
    envs = make_envs(env_id)
    n_obs, n_act = envs.single_observation_space.shape[0], envs.single_action_space.shape[0]
    agent = Agent(n_obs, n_act)
    optimizer = torch.optim.Adam(agent.parameters(), lr=RATE, eps=1e-5)
    shape = (NUM_STEPS, NUM_ENVS)
    obs, action = torch.zeros(*shape, n_obs), torch.zeros(*shape, n_act)
    logprob, reward, done, value, valid = (torch.zeros(shape) for _ in range(5))
    start = time.monotonic()
    now, _ = envs.reset(seed=1)
    now, ended = torch.tensor(now, dtype=torch.float32), np.zeros(NUM_ENVS, bool)
    for _ in range(steps // (NUM_STEPS * NUM_ENVS)):
        for t in range(NUM_STEPS):
            obs[t], valid[t] = now, torch.tensor(~ended, dtype=torch.float32)
            with torch.no_grad():
                action[t], logprob[t], _, value[t] = agent(now)
            now, r, term, trunc, _ = envs.step(action[t].numpy())
            ended = term | trunc
            reward[t], done[t] = torch.tensor(r), torch.tensor(ended, dtype=torch.float32)
            now = torch.tensor(now, dtype=torch.float32)
        with torch.no_grad():
            last_value = agent(now)[3]
        advantage = advantages(reward, value, done, valid, last_value)
        keep = valid.flatten().bool()
        update(agent, optimizer, *(x.flatten(0, 1)[keep] for x in
                                   (obs, action, logprob, advantage, advantage + value)))
    queue = list(envs.env.env.env.env.env.return_queue)[-20:]
    returned = float(np.mean(queue))
    print(f"cleanrl-style ppo, {env_id}: mean return {returned:.0f}, {steps} steps in "
          f"{time.monotonic() - start:.0f} s")
    envs.close()
    sys.exit(not returned > goal)


if __name__ == "__main__":
    main()
