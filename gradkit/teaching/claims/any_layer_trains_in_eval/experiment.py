import torch
from torch import nn

BELIEVED = {"cudnn_lstm_in_eval": True}


def backward_works(layer, mode, cudnn=True):
    layer = layer.cuda().train(mode == "train")
    batch = torch.ones(2, 3, 4, device="cuda", requires_grad=True)
    with torch.backends.cudnn.flags(enabled=cudnn):
        output = layer(batch)
        try:
            (output[0] if isinstance(output, tuple) else output).sum().backward()
        except RuntimeError as error:
            assert "cudnn RNN backward can only be called in training mode" in str(error)
            return False
    return batch.grad is not None


def observe():
    return {
        "cudnn_lstm_in_eval": backward_works(nn.LSTM(4, 4), "eval"),
        "cudnn_lstm_in_train": backward_works(nn.LSTM(4, 4), "train"),
        "lstm_without_cudnn_in_eval": backward_works(nn.LSTM(4, 4), "eval", cudnn=False),
        "linear_in_eval": backward_works(nn.Linear(4, 4), "eval"),
    }
