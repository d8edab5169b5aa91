"""Logs: JSON lines on standard error, with the request id and never with content."""

from __future__ import annotations

import logging
import sys
from datetime import UTC, datetime

import orjson


class JsonLines(logging.Formatter):
    """One line an event. Tracebacks name places, never values; arguments are formatted by the caller's own words."""

    def format(self, record: logging.LogRecord) -> str:
        line: dict[str, object] = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
        }
        for name in ("request_id", "deployment"):
            value = getattr(record, name, None)
            if value is not None:
                line[name] = value
        if record.exc_info and record.exc_info[0] is not None:
            line["exception"] = record.exc_info[0].__name__
            places: list[str] = []
            trace = record.exc_info[2]
            while trace is not None:
                code = trace.tb_frame.f_code
                places.append(f"{code.co_filename.rpartition('/')[2]}:{trace.tb_lineno}:{code.co_name}")
                trace = trace.tb_next
            line["at"] = places[-12:]
        return orjson.dumps(line, default=str).decode()


def configure(level: str) -> None:
    """Sends every logger's lines to standard error."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonLines())
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(logging.WARNING)
    logging.getLogger("assay").setLevel(level.upper())
    logging.getLogger("uvicorn").setLevel(logging.WARNING)
