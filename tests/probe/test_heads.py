import numpy as np
import pytest
import torch

from ogspr.probe.probing import Examples, HeadTraining, LinearHeads, train_heads, update_heads

RATE, CLIP = 3e-4, 20.0
BETAS, EPSILON = (0.9, 0.999), 1e-8


def examples(count, inputs=5, outputs=3, seed=0):
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(count, inputs, generator=generator)
    return Examples(x, x @ torch.randn(inputs, outputs, generator=generator))


class AdamByHand:
    """One linear predictor in numpy: squared norm, clipping, Adam, as the papers write them."""

    def __init__(self, inputs, outputs, clip):
        self.clip = clip
        self.parameters = [np.zeros((inputs, outputs)), np.zeros((1, outputs))]
        self.first = [np.zeros_like(p) for p in self.parameters]
        self.second = [np.zeros_like(p) for p in self.parameters]
        self.updates = 0
        self.norms = []

    def update(self, x, y):
        weight, bias = self.parameters
        error = x @ weight + bias - y
        gradients = [2 / len(x) * x.T @ error, 2 / len(x) * error.sum(0, keepdims=True)]
        norm = np.sqrt(sum((g**2).sum() for g in gradients))
        self.norms.append(norm)
        self.updates += 1
        for place, gradient in enumerate(gradients):
            g = gradient * min(1.0, self.clip / norm)
            self.first[place] = BETAS[0] * self.first[place] + (1 - BETAS[0]) * g
            self.second[place] = BETAS[1] * self.second[place] + (1 - BETAS[1]) * g**2
            first = self.first[place] / (1 - BETAS[0] ** self.updates)
            second = self.second[place] / (1 - BETAS[1] ** self.updates)
            self.parameters[place] = self.parameters[place] - RATE * first / (np.sqrt(second) + EPSILON)


def batches(scales):
    """Batches for two predictors; those of the first are small, those of the second as large as `scales`."""
    generator = torch.Generator().manual_seed(3)
    for scale in scales:
        x = torch.randn(2, 8, 5, generator=generator)
        y = torch.randn(2, 8, 3, generator=generator)
        y[1] *= scale
        yield Examples(x, y)


@pytest.mark.parametrize("clip", [CLIP, 1e9])
def test_updates_are_those_worked_out_by_hand_each_predictor_clipped_by_itself(clip):
    scales = (1.0, 1000.0, 1.0, 50.0, 1.0)
    heads = LinearHeads(2, 5, 3, torch.device("cpu"))
    optimiser = torch.optim.Adam((heads.weight, heads.bias), lr=RATE)
    by_hand = [AdamByHand(5, 3, clip) for _ in range(2)]
    unclipped = AdamByHand(5, 3, 1e9)
    for batch in batches(scales):
        update_heads(heads, optimiser, batch, clip)
        for place, hand in enumerate(by_hand):
            hand.update(*(part[place].double().numpy() for part in batch))
        unclipped.update(*(part[1].double().numpy() for part in batch))
    assert max(by_hand[0].norms) < CLIP < max(by_hand[1].norms)
    for place, hand in enumerate(by_hand):
        np.testing.assert_allclose(heads.weight[place].detach(), hand.parameters[0], atol=2e-8)
        np.testing.assert_allclose(heads.bias[place].detach(), hand.parameters[1], atol=2e-8)
    difference = np.abs(heads.weight[1].detach().numpy() - unclipped.parameters[0]).max()
    assert (difference > 1e-5) == (clip == CLIP)  # the batches tell clipped from unclipped


def test_training_uses_the_papers_rate_and_clipping():
    training = HeadTraining()
    assert (training.learning_rate, training.clip_norm, training.updates) == (RATE, CLIP, 100_000)


@pytest.mark.parametrize("changed", [{"learning_rate": 1e-3}, {"clip_norm": 0.1}])
def test_rate_and_clipping_reach_the_updates(changed):
    data = [examples(40)]
    usual = train_heads(data, HeadTraining(20, 4), 0)
    other = train_heads(data, HeadTraining(20, 4, **changed), 0)
    assert not torch.allclose(usual.weight, other.weight, rtol=1e-3)


def test_errors_are_mean_squared_norms():
    heads = LinearHeads(2, 2, 2, torch.device("cpu"))
    with torch.no_grad():
        heads.weight[1] = torch.tensor([[1.0, 0.0], [0.0, 2.0]])
        heads.bias[1] = torch.tensor([1.0, 0.0])
    data = Examples(torch.tensor([[1.0, 1.0], [0.0, 3.0]]), torch.tensor([[2.0, 0.0], [1.0, 3.0]]))
    # The second predicts (2, 2) and (1, 6): errors (0, 2) and (0, 3). The first predicts zero.
    assert heads.errors([data, data]) == [(4 + 10) / 2, (4 + 9) / 2]


def test_errors_of_many_examples_are_those_of_all():
    data = examples(20_000)
    heads = train_heads([data], HeadTraining(50, 16), 0)
    with torch.no_grad():
        error = data.targets - (data.inputs @ heads.weight[0] + heads.bias[0])
    assert heads.errors([data])[0] == pytest.approx(float(error.square().sum(1).mean()), rel=1e-5)


def test_a_predictor_learns_as_if_it_were_alone():
    first, second = examples(30, seed=0), examples(77, seed=1)
    training = HeadTraining(200, 8)
    together = train_heads([first, second], training, 5)
    for place, own in enumerate((first, second)):
        alone = train_heads([own], training, 5)
        torch.testing.assert_close(together.weight[place], alone.weight[0], atol=1e-6, rtol=0)


def test_the_seed_decides_everything():
    data = [examples(50)]
    once, again, other = (train_heads(data, HeadTraining(30, 8), seed).weight for seed in (1, 1, 2))
    assert torch.equal(once, again)
    assert not torch.equal(once, other)


def test_every_example_is_drawn_and_none_of_somebody_else():
    """The input names the predictor; where it saw the other's, it would have to learn both targets."""
    mine = Examples(torch.ones(3, 1), torch.tensor([[1.0], [2.0], [3.0]]))
    theirs = Examples(torch.ones(2, 1), torch.full((2, 1), -100.0))
    heads = train_heads([mine, theirs], HeadTraining(4000, 64, learning_rate=3e-2), 0)
    predicted = heads.predict(torch.ones(2, 1, 1)).detach().flatten()
    assert predicted[0] == pytest.approx(2.0, abs=0.1)
    assert predicted[1] == pytest.approx(-100.0, abs=0.1)


def test_progress_is_reported():
    told = []
    train_heads([examples(10)], HeadTraining(1200, 2), 0, told.append)
    assert told == [500, 1000, 1200]
