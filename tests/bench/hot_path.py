"""`make bench`: CPU of the gateway per request and per event, in slices paired with nginx before the same upstream.

The gateway runs on one core, upstream and load on the other. CPU is utime + stime of the process tree from /proc. The
machine's speed drifts, so the figure to quote is the median over slices of the ratio inside one slice.
"""

from __future__ import annotations

import json
import os
import shutil
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import httpx
import yaml

HERE = Path(__file__).resolve().parent
TICK = os.sysconf("SC_CLK_TCK")
KEY = "sk-bench-0123456789abcdef"
SLICES = int(os.environ.get("BENCH_SLICES", "7"))
SECONDS = float(os.environ.get("BENCH_SECONDS", "1.0"))


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def pinned(core: int, command: list[str]) -> list[str]:
    return ["taskset", "-c", str(core), *command] if os.cpu_count() and shutil.which("taskset") else command


def tree(pid: int) -> list[int]:
    found, stack = [], [pid]
    while stack:
        current = stack.pop()
        found.append(current)
        try:
            children = Path(f"/proc/{current}/task/{current}/children").read_text()
        except OSError:
            continue
        stack += [int(child) for child in children.split()]
    return found


def cpu_s(pid: int) -> float:
    total = 0
    for member in tree(pid):
        try:
            fields = Path(f"/proc/{member}/stat").read_text().rpartition(")")[2].split()
        except OSError:
            continue
        total += int(fields[11]) + int(fields[12])
    return total / TICK


def rss_mb(pid: int) -> float:
    total = 0
    for member in tree(pid):
        for line in Path(f"/proc/{member}/smaps_rollup").read_text().splitlines():
            if line.startswith("Pss:"):
                total += int(line.split()[1])
    return total / 1024


def wait_for(port: int, path: str = "/") -> None:
    deadline = time.monotonic() + 30
    while time.monotonic() < deadline:
        try:
            httpx.get(f"http://127.0.0.1:{port}{path}", trust_env=False, timeout=1)
            return
        except httpx.RemoteProtocolError:
            return
        except httpx.HTTPError:
            time.sleep(0.05)
    raise SystemExit(f"nothing listens on port {port}")


def nginx(folder: Path, upstream: int) -> tuple[subprocess.Popen[bytes], int]:
    binary = shutil.which("nginx")
    if binary is None and os.geteuid() == 0:
        print("installing nginx for the comparison")
        subprocess.run(
            ["apt-get", "install", "-yq", "--no-install-recommends", "nginx-light"], check=False, capture_output=True
        )
        binary = shutil.which("nginx")
    if binary is None:
        raise SystemExit("the bench compares with nginx: install it, or run as root")
    port = free_port()
    file = folder / "nginx.conf"
    file.write_text(
        f"""daemon off; master_process off; worker_processes 1; pid {folder}/nginx.pid; error_log {folder}/nginx.log;
events {{ worker_connections 8192; }}
http {{ access_log off; client_body_temp_path {folder}; proxy_temp_path {folder};
 upstream mock {{ server 127.0.0.1:{upstream}; keepalive 256; }}
 server {{ listen 127.0.0.1:{port} backlog=4096; keepalive_requests 100000000;
  location / {{ proxy_pass http://mock; proxy_http_version 1.1;
   proxy_set_header Connection ""; proxy_buffering off; }} }} }}
"""
    )
    return subprocess.Popen(pinned(1, [binary, "-c", str(file), "-e", str(folder / "nginx.log")])), port


def gateway(folder: Path, upstream: int, scan: str) -> tuple[subprocess.Popen[bytes], int, float]:
    port = free_port()
    config = {
        "admin": {"token": "bench-admin-token-0123456789"},
        "providers": {
            "mock": {
                "kind": "openai-compatible",
                "base_url": f"http://127.0.0.1:{upstream}/v1",
                "api_key": "bench-credential-0123",
                "region": "eu",
            }
        },
        "deployments": [
            {
                "id": "mock",
                "provider": "mock",
                "model": "mock",
                "context_window": 8192,
                "price": {"input": 1, "output": 2},
            }
        ],
        "models": {"mock": {"deployments": ["mock"]}},
        "tenants": [
            {
                "id": "bench",
                "allow": {"providers": ["*"], "regions": ["*"], "models": ["*"]},
                "limits": {"parallel_requests": 100000},
                "keys": [{"id": "bench", "secret": KEY}],
            }
        ],
        "integrity": {"leak_scan": scan, "preflight": "disabled", "canaries": {"enabled": False}},
    }
    place = folder / scan
    place.mkdir()
    (place / "assay.yaml").write_text(yaml.safe_dump(config))
    began = time.monotonic()
    command = [sys.executable, "-m", "gateway", "serve", "--config", str(place / "assay.yaml"), "--port", str(port)]
    process = subprocess.Popen(pinned(1, command), stderr=(place / "log").open("wb"))
    wait_for(port, "/readyz")
    return process, port, time.monotonic() - began


def load(port: int, connections: int, seconds: float, stream: bool) -> dict[str, float]:
    command = [
        sys.executable,
        str(HERE / "load.py"),
        str(port),
        str(connections),
        str(seconds),
        "s" if stream else "n",
        KEY,
    ]
    result = subprocess.run(pinned(0, command), capture_output=True, text=True, check=True, timeout=120)
    return dict(json.loads(result.stdout))


def measure(targets: dict[str, tuple[subprocess.Popen[bytes], int]]) -> None:
    rows: dict[str, dict[str, list[float]]] = {name: {} for name in targets}
    for _ in range(SLICES):
        for name, (process, port) in targets.items():
            row = rows[name]
            before = cpu_s(process.pid)
            whole = load(port, 32, SECONDS, False)
            assert whole["errors"] == 0, f"{name}: {whole}"
            row.setdefault("us/request", []).append(1e6 * (cpu_s(process.pid) - before) / whole["requests"])
            row.setdefault("req/s", []).append(whole["requests"] / SECONDS)
            row.setdefault("c1 p50 ms", []).append(load(port, 1, SECONDS / 2, False)["p50_ms"])
            before = cpu_s(process.pid)
            streams = load(port, 40, 0.1, True)
            row.setdefault("us/event", []).append(1e6 * (cpu_s(process.pid) - before) / streams["events"])
    print(f"\n{SLICES} slices of {SECONDS} s; x is the median over slices of the ratio to nginx in the same slice\n")
    print("| target | us/request | x | us/event (paced) | x | req/s (32 conn.) | c1 p50 ms | added ms |")
    print("|---|---|---|---|---|---|---|---|")
    base = rows["nginx"]
    for name, row in rows.items():
        ratio = {
            key: statistics.median(a / b for a, b in zip(row[key], base[key], strict=True))
            for key in ("us/request", "us/event")
        }
        median = {key: statistics.median(values) for key, values in row.items()}
        added = statistics.median(a - b for a, b in zip(row["c1 p50 ms"], base["c1 p50 ms"], strict=True))
        print(
            f"| {name} | {median['us/request']:.0f} | {ratio['us/request']:.1f} | {median['us/event']:.0f} | "
            f"{ratio['us/event']:.1f} | {median['req/s']:.0f} | {median['c1 p50 ms']:.2f} | {added:.2f} |"
        )


def open_streams(port: int, pid: int, number: int = 1000) -> float:
    """KB a stream, with this many open at once (each is 60 events long, so that they overlap)."""
    before = rss_mb(pid)
    command = [sys.executable, str(HERE / "load.py"), str(port), str(number), "0.1", "s", KEY]
    with subprocess.Popen(pinned(0, command), stdout=subprocess.DEVNULL) as process:
        time.sleep(1.2)
        during = rss_mb(pid)
        process.wait(120)
    return (during - before) * 1024 / number


def main() -> None:
    started: list[subprocess.Popen[bytes]] = []
    with tempfile.TemporaryDirectory(prefix="assay-bench-") as name:
        folder = Path(name)
        upstream = free_port()
        try:
            started.append(subprocess.Popen(pinned(0, [sys.executable, str(HERE / "mock.py"), str(upstream)])))
            wait_for(upstream)
            proxy, proxy_port = nginx(folder, upstream)
            started.append(proxy)
            wait_for(proxy_port)
            targets = {"nginx": (proxy, proxy_port)}
            ready = {}
            for scan in ("disabled", "observe"):
                process, port, seconds = gateway(folder, upstream, scan)
                started.append(process)
                targets[f"assay, leak scan {scan}"] = (process, port)
                ready[scan] = seconds
            for _, port in targets.values():
                load(port, 8, 0.5, False)
            measure(targets)
            process, port = targets["assay, leak scan disabled"]
            print(f"\nstart to ready {ready['disabled']:.2f} s; memory {rss_mb(process.pid):.0f} MB after the load")
            print(f"1,000 open streams: {open_streams(port, process.pid):.0f} KB each")
        finally:
            for process in started:
                process.terminate()


main()
