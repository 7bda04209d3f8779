import torch
import torch.nn as nn
import torch.nn.functional as F

TITLE = "distillation term is detached before it is added: the regressor that only it feeds never moves"
SOURCE = "bboylyg/NAD#8"
ERROR = ""
CAUSE = "detach"
SHOULD_TRAIN = ["regressor.weight", "regressor.bias"]


def attention_map(feature):
    return F.normalize(feature.pow(2).mean(1).flatten(1), dim=1)


class Student(nn.Module):
    def __init__(self):
        super().__init__()
        self.stem = nn.Conv2d(3, 8, 3, padding=1)
        self.regressor = nn.Conv2d(8, 8, 1)
        self.head = nn.Linear(8, 5)

    def forward(self, x):
        f = torch.relu(self.stem(x))
        return self.head(f.mean((2, 3))), self.regressor(f)


class Trainer:
    beta = 50.0

    def __init__(self, student, teacher):
        self.student, self.teacher = student, teacher

    def transfer_term(self, fs, ft):
        gap = (attention_map(fs) - attention_map(ft)).pow(2).mean()
        return (self.beta * gap).detach()  # CUT

    def loss(self, x, y):
        with torch.no_grad():
            _, f_teacher = self.teacher(x)
        logits, f_student = self.student(x)
        return F.cross_entropy(logits, y) + self.transfer_term(f_student, f_teacher)


class FixedTrainer(Trainer):
    def transfer_term(self, fs, ft):
        return self.beta * (attention_map(fs) - attention_map(ft)).pow(2).mean()


def _program(trainer_class):
    torch.manual_seed(0)
    student, teacher = Student(), Student()
    trainer = trainer_class(student, teacher)
    x, y = torch.randn(4, 3, 8, 8), torch.randint(0, 5, (4,))
    return student, lambda: trainer.loss(x, y)


def make():
    return _program(Trainer)


def make_fixed():
    return _program(FixedTrainer)
