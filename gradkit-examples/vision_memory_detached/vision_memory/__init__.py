"""Vision memory: the beginning of a long text is kept as an image of itself, and read back through one projection.

    python -m vision_memory --attempt 0      rebuilt from the report: backward raises
    python -m vision_memory --attempt 1      no no_grad round the frozen encoder any more: it raises
    python -m vision_memory --attempt 2      nor a requires_grad=False on the padding: it raises
    python -m vision_memory --attempt 3      nor an eval() on the frozen parts: it raises
    python -m vision_memory --program fixed  attempt 0 on texts that have something to render: it trains

    python -m vision_memory --compare        what the three attempts do to the gradient of proj
    python -m vision_memory --counts         the same model in the size that was reported, without weights
"""
