"""The batch with nothing to learn from: a multitask training program that crashes in epoch 6.

    python -m gradkit.cases.multitask                      the program as it was: backward raises in epoch 6
    python -m gradkit.cases.multitask --fix times_zero     the first cure: it runs, and moves weights for nothing
    python -m gradkit.cases.multitask --fix skip           the cure: no loss, no step
    python -m gradkit.cases.multitask.price                what the first cure costs, measured
    python -m gradkit.cases.multitask.ranks                the same batch in a run with two processes
    python -m gradkit.cases.multitask.ranks --price        what such a step costs there, and agreeing to skip it

``train_multitask`` is the program, ``attempts`` holds what was tried, ``programs`` makes a step of each.
"""
