"""MR.Q: model-based representations for model-free Q-learning.

Fujimoto et al., "Towards General-Purpose Model-Free Reinforcement Learning", ICLR 2025. Written from the
paper; the authors' code is under another licence, and none of it is here.

What the paper leaves open, and what is done here:

- Every image has its own random shift, also those of one sequence.
- The loss of terminals counts from the first drawn batch on that holds one: the paper's "once one was seen".
- Steps after a terminal count as no error, and the mean is over all windows of the batch.
- The encoder's gradient is not clipped: the paper has a limit for the values only.
- Atari has the settings of every other suite, in the spirit of the paper: 10k random steps, then one update
  a step. Rewards are not clipped to their signs there, as OG-SPR's are: units and bins take their place.
- The loss of the values is the mean over both, and the limit of 20 is on its gradient.
- The encoder's batches are drawn by priority, as those of the values are.

What is known of the authors' code and is not done here:

- There, a builtin function stands where a flag says whether an environment is for evaluation, so that
  training on Atari takes random actions as evaluation does, and would fail where rewards are to be clipped.
  Here, actions are random at the start of training only, later ones have the noise of exploration, and
  evaluation has none at all; `--env.sign-rewards` clips rewards.
- There, Atari has sticky actions and no no-ops at the start. Here, it has the protocol of the run, by default
  that of Atari100k, like all methods.
- There, the two-hot code of a reward beyond its bins reads past their end. Here, such a reward counts as the
  outermost bin.
- There, values take their step first and the policy is judged by the new ones. Here, both step from what they
  were before, so that an update with a non-finite number can be skipped as a whole.
- There, the unit of values is 1e-8 as long as all rewards are zero. Here, it is 1 until there is a reward.
- There, values are learned only from steps that are followed by five more, as the encoder needs. Here, from
  all that are followed by the three of their return.
"""

from ogspr.agents.mrq.config import MRQConfig, Sizes

__all__ = ["MRQConfig", "Sizes"]
