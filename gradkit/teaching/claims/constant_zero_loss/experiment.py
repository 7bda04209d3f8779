import torch

BELIEVED = {
    "constant_requires_grad": False,
    "backward_of_the_constant_raises": True,
    "product_requires_grad": True,
    "backward_of_the_product_raises": False,
}


def raises(loss):
    try:
        loss.backward()
    except RuntimeError:
        return True
    return False


def observe():
    logits = torch.ones(2, 3, requires_grad=True) * 2
    constant, product = torch.tensor(0.0), 0.0 * logits.sum()
    return {
        "constant_requires_grad": constant.requires_grad,
        "backward_of_the_constant_raises": raises(constant),
        "product_requires_grad": product.requires_grad,
        "backward_of_the_product_raises": raises(product),
    }
