import torch

BELIEVED = {"of_a_tensor": True, "of_a_list_of_tensors": True}


def observe():
    weight = torch.ones(1, requires_grad=True)
    loss = (weight * 3).sum()
    return {
        "of_a_tensor": torch.as_tensor(loss).requires_grad,
        "of_a_list_of_tensors": torch.as_tensor([loss, loss]).requires_grad,
        "torch_tensor_of_a_list": torch.tensor([loss, loss]).requires_grad,
        "torch_stack": torch.stack([loss, loss]).requires_grad,
    }
