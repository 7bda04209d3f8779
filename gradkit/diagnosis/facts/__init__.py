"""What the first run and the model tell, without another run.

Takes: a ``Step`` and the ``Tracer`` of its first run; the model; its optimizers.
Gives: ``FirstRun``, ``ModelFacts`` (parameters, modules, adapters), ``Verdict`` (the cuts), ``Gap`` (what no optimizer
holds), ``HooksSeen``.
"""
