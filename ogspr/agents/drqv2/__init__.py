"""DrQ-v2 (Yarats et al., 2021): actor and critic on shifted images, without any model.

Written from the paper, "Mastering Visual Continuous Control: Improved Data-Augmented Reinforcement
Learning", and from the configuration that its authors published. Decided here:

- A terminal ends the return and the bootstrap. The published code turns a terminal's discount of 0 into 1
  and bootstraps beyond it. Control tasks have no terminals, so nothing changes there.
- Policy and values are updated together, both from what they were before. In the published code the policy
  is judged by values that are one step of Adam newer. Together, an update with a non-finite number
  can be skipped as a whole.
- Replay has every step that was taken; the published code adds an episode when it is over.
- Images are shifted by whole pixels. The published code interpolates, at places where that gives the same.
- On quadruped-run replay keeps the newest 100 000 steps, as in the published configuration.
- On a GPU, convolutions compute in bf16 and dense layers in TF32 by default; the published code
  computes in float32.
- Schedules count agent steps, as in the published code, where an agent step is two frames.

The published sizes add up to 7 276 628 parameters at cheetah-run, not to the 4.4 M of the OG-SPR paper's
table: 30 368 in the encoder, 1 960 150 in each of the two trunks that reduce 39 200 features to 50,
1 107 974 in the rest of the policy and 2 217 986 in the rest of the two values. The target of trunk and
values has 4 178 136 more, which do not learn by themselves. `agents/drqv2/networks.py` builds them.
"""

from ogspr.agents.drqv2.config import DrQv2Config, Sizes, preset, preset_names, run_settings

__all__ = ["DrQv2Config", "Sizes", "preset", "preset_names", "run_settings"]
