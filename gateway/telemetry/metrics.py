"""Counters for Prometheus, cheap enough for the hot path; labels are ids from the configuration and fixed words."""

from __future__ import annotations

from gateway.exchange import Exchange

_BUCKETS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0)


class Metrics:
    """Process-wide counters, rendered in the text exposition format 0.0.4."""

    def __init__(self) -> None:
        self._requests: dict[tuple[str, str, str, str], int] = {}
        self._attempts: dict[tuple[str, str], int] = {}
        self._checks: dict[tuple[str, str], int] = {}
        self._tokens: dict[tuple[str, str], int] = {}
        self._cost: dict[str, float] = {}
        self._fallbacks = self._substitutions = 0
        self._duration: dict[str, list[float]] = {}

    def observe(self, exchange: Exchange, seconds: float) -> None:
        """Counts one finished exchange."""
        who = exchange.effective
        deployment = who.deployment if who else "none"
        key = (exchange.endpoint.dialect, deployment, exchange.outcome, exchange.integrity)
        self._requests[key] = self._requests.get(key, 0) + 1
        for attempt in exchange.attempts:
            pair = (attempt.deployment, attempt.error or "ok")
            self._attempts[pair] = self._attempts.get(pair, 0) + 1
        for check in exchange.checks:
            if check.verdict != "passed":
                name = (check.name, check.verdict)
                self._checks[name] = self._checks.get(name, 0) + 1
        if exchange.usage is not None:
            for kind, count in (("input", exchange.usage.prompt), ("output", exchange.usage.completion)):
                self._tokens[(deployment, kind)] = self._tokens.get((deployment, kind), 0) + count
        if exchange.cost_usd is not None:
            self._cost[deployment] = self._cost.get(deployment, 0.0) + float(exchange.cost_usd)
        self._substitutions += exchange.substituted
        first = exchange.plan.first if exchange.plan else None
        self._fallbacks += who is not None and first not in (None, who.deployment)
        row = self._duration.get(exchange.endpoint.dialect)
        if row is None:
            row = self._duration[exchange.endpoint.dialect] = [0.0] * (len(_BUCKETS) + 2)
        for index, bound in enumerate(_BUCKETS):
            if seconds <= bound:
                row[index] += 1
                break
        row[-2] += 1
        row[-1] += seconds

    def render(self, gauges: dict[str, float]) -> bytes:
        """The exposition; `gauges` are values read at this moment."""
        lines: list[str] = []
        for name, labels, values in (
            ("assay_requests_total", ("endpoint", "deployment", "outcome", "integrity"), self._requests),
            ("assay_attempts_total", ("deployment", "result"), self._attempts),
            ("assay_checks_total", ("check", "verdict"), self._checks),
            ("assay_tokens_total", ("deployment", "kind"), self._tokens),
        ):
            lines.append(f"# TYPE {name} counter")
            for key, value in values.items():
                pairs = ",".join(f'{label}="{_escape(text)}"' for label, text in zip(labels, key, strict=True))
                lines.append(f"{name}{{{pairs}}} {value}")
        lines.append("# TYPE assay_cost_usd_total counter")
        lines += [f'assay_cost_usd_total{{deployment="{_escape(d)}"}} {c:.9f}' for d, c in self._cost.items()]
        lines += ["# TYPE assay_fallbacks_total counter", f"assay_fallbacks_total {self._fallbacks}"]
        lines += ["# TYPE assay_substitutions_total counter", f"assay_substitutions_total {self._substitutions}"]
        lines.append("# TYPE assay_request_duration_seconds histogram")
        for endpoint, row in self._duration.items():
            total = 0.0
            for index, bound in enumerate(_BUCKETS):
                total += row[index]
                lines.append(f'assay_request_duration_seconds_bucket{{endpoint="{endpoint}",le="{bound}"}} {total:g}')
            lines.append(f'assay_request_duration_seconds_bucket{{endpoint="{endpoint}",le="+Inf"}} {row[-2]:g}')
            lines.append(f'assay_request_duration_seconds_sum{{endpoint="{endpoint}"}} {row[-1]:.6f}')
            lines.append(f'assay_request_duration_seconds_count{{endpoint="{endpoint}"}} {row[-2]:g}')
        for name, now in gauges.items():
            lines += [f"# TYPE {name} gauge", f"{name} {now:g}"]
        return ("\n".join(lines) + "\n").encode()


def _escape(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
