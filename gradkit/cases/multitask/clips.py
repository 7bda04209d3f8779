"""Clips of dancing cranes, made up: a marsh camera, a pose detector, and a biologist who labels what she can."""

import math

import torch
from torch.utils.data import DataLoader, Dataset

FRAMES, SIZE, KEYPOINTS = 4, 8, 3  # a clip: FRAMES pictures of SIZE x SIZE pixels, KEYPOINTS points on the bird
ACTIONS = ["stand", "bow", "leap", "toss"]
HOW_OFTEN = [0.55, 0.2, 0.15, 0.1]  # most of the time a crane just stands there
MOVES = torch.tensor([[0.0, 0.0], [0.0, 0.7], [0.0, -0.7], [0.7, 0.0]])  # pixels a frame, x and y
BODY = torch.tensor([[0.0, -1.5], [0.0, 0.0], [0.5, 1.5]])  # head, wing, foot


class CraneClips(Dataset):
    """``unlabelled`` of the ``count`` clips carry no action: ``action_mask`` is 0 there."""

    def __init__(self, count, unlabelled, seed):
        random = torch.Generator().manual_seed(seed)
        labels = torch.multinomial(torch.tensor(HOW_OFTEN), count, replacement=True, generator=random)
        without = torch.randperm(count, generator=random)[:unlabelled].tolist()
        self.clips = [make_clip(int(label), index not in without, random) for index, label in enumerate(labels)]

    def __len__(self):
        return len(self.clips)

    def __getitem__(self, index):
        return self.clips[index]


def make_clip(action, labelled, random):
    start = torch.tensor([3.5, 3.5]) + torch.randn(2, generator=random) * 0.5
    path = start + torch.arange(FRAMES)[:, None] * MOVES[action]
    points = path[:, None] + BODY  # [FRAMES, KEYPOINTS, 2]
    seen = points + torch.randn(points.shape, generator=random) * 0.3
    hour = float(torch.rand(1, generator=random)) * 24
    return {
        "video": draw(points) + torch.rand(1, FRAMES, SIZE, SIZE, generator=random) * 0.2,
        "pose": normalize(seen),
        "time": torch.tensor([math.sin(hour / 24 * math.tau), math.cos(hour / 24 * math.tau)]),
        "action": torch.tensor(action),
        "action_mask": torch.tensor(float(labelled)),
        "keypoints": points[-1] / SIZE,
        "keypoint_mask": (torch.rand(KEYPOINTS, generator=random) > 0.3).float(),
    }


def draw(points):
    """Points as soft spots of light. [FRAMES, KEYPOINTS, 2] -> [1, FRAMES, SIZE, SIZE]"""
    axis = torch.arange(SIZE).float()
    x = (axis - points[..., :1]).square()[..., None, :]
    y = (axis - points[..., 1:]).square()[..., :, None]
    return torch.exp(-(x + y)).amax(1)[None]


def normalize(points):
    """What the detector saw, with the bird's height in the first frame as the unit. -> [FRAMES * KEYPOINTS * 2]"""
    height = points[0, -1, 1] - points[0, 0, 1]
    return ((points - points[0, 1]) / height).flatten()


def make_loaders(batch_size, seed):
    order = torch.Generator().manual_seed(seed)
    train = DataLoader(CraneClips(32, 5, seed=0), batch_size, shuffle=True, generator=order)
    val = DataLoader(CraneClips(16, 7, seed=2), batch_size)
    return train, val
