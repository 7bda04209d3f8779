import torch
import torch.nn as nn
from peft import LoraConfig, get_peft_model

TITLE = "DPO: reference log-probabilities with the adapter disabled under no_grad, same model as the policy"
SOURCE = "huggingface/trl#2486"
ERROR = ""
CAUSE = "healthy"
SHOULD_TRAIN = None


class Lm(nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.emb, self.up, self.head = nn.Embedding(20, 8), nn.Linear(8, 8), nn.Linear(8, 20)

    def forward(self, ids):
        logp = torch.log_softmax(self.head(torch.tanh(self.up(self.emb(ids)))), -1)
        return logp[:, :-1].gather(-1, ids[:, 1:, None])[..., 0].sum(-1)


def make():
    model = get_peft_model(Lm(), LoraConfig(r=2, target_modules=["up"], init_lora_weights=False))
    good, bad = torch.randint(0, 20, (4, 6)), torch.randint(0, 20, (4, 6))

    def step():
        with torch.no_grad(), model.disable_adapter():
            ref = model(good) - model(bad)
        return -nn.functional.logsigmoid(0.1 * (model(good) - model(bad) - ref)).mean()
    return model, step
