import torch

BELIEVED = {"float": True, "complex": True, "long": False, "bool": False}


def may_require_grad(dtype):
    try:
        torch.ones(3, dtype=dtype).requires_grad_()
    except RuntimeError:
        return False
    return True


def observe():
    names = {"float": torch.float32, "complex": torch.complex64, "long": torch.int64, "bool": torch.bool}
    return {name: may_require_grad(dtype) for name, dtype in names.items()}
