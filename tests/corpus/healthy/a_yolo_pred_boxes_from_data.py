import torch
import torch.nn as nn
import torch.nn.functional as F

TITLE = "YOLO layer: .data is used for the boxes that only build targets and metrics; the loss uses the live tensors"
SOURCE = "eriklindernoren/PyTorch-YOLOv3#211"
ERROR = ""
CAUSE = "healthy"


def build_targets(pred_boxes, wanted):
    best = (pred_boxes[:, None] - wanted[None]).abs().sum(-1).argmin(0)
    mask = torch.zeros(len(pred_boxes), dtype=torch.bool)
    mask[best] = True
    target = torch.zeros_like(pred_boxes)
    target[best] = wanted
    return mask, target


class YoloLayer(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv, self.grid = nn.Conv2d(3, 5, 3, padding=1), torch.stack(torch.meshgrid(torch.arange(4.0), torch.arange(4.0), indexing="ij"), -1)

    def forward(self, image, wanted):
        p = self.conv(image)[0].permute(1, 2, 0)
        xy, wh, conf = torch.sigmoid(p[..., :2]), p[..., 2:4], torch.sigmoid(p[..., 4])
        boxes = torch.cat([xy.data + self.grid, torch.exp(wh.data)], -1).view(-1, 4)
        mask, target = build_targets(boxes, wanted)
        self.metrics = {"conf_obj": conf.flatten()[mask].mean().item()}
        live = torch.cat([xy + self.grid, wh.exp()], -1).view(-1, 4)
        return F.mse_loss(live[mask], target[mask]) + F.binary_cross_entropy(conf.flatten(), mask.float())


def make():
    torch.manual_seed(0)
    layer, image, wanted = YoloLayer(), torch.rand(1, 3, 4, 4), torch.rand(2, 4) * 3
    return layer, lambda: layer(image, wanted)
