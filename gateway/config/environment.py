"""Environment variables that libraries read at import; the only place that sets any."""

from __future__ import annotations

import os


def keep_litellm_offline() -> None:
    """litellm fetches its price table at import unless it is told to use the packaged one."""
    os.environ["LITELLM_LOCAL_MODEL_COST_MAP"] = "True"
    os.environ.setdefault("LITELLM_LOG", "ERROR")
