"""What a service counts, as Prometheus reads it. Nothing of a patient is counted but that there was one."""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from typing import Final

_BOUNDS: Final = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)
METRICS_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"


class ServiceCounts:
    """Requests by route and status, how long they took, patients predicted, models loaded."""

    def __init__(self) -> None:
        self._requests: Counter[tuple[str, str, int]] = Counter()
        self._durations: dict[str, list[int]] = {}
        self._seconds: dict[str, float] = {}
        self.patients: Counter[tuple[str, str]] = Counter()
        self.loads: Counter[str] = Counter({"loaded": 0, "refused": 0})
        self.in_progress = 0
        self.cut = 0  # requests that were given up because the service ended

    def answered(self, method: str, route: str, status: int, seconds: float) -> None:
        """Count an answer."""
        self._requests[method, route, status] += 1
        places = self._durations.setdefault(route, [0] * (len(_BOUNDS) + 1))
        places[bisect_left(_BOUNDS, seconds)] += 1
        self._seconds[route] = self._seconds.get(route, 0.0) + seconds

    def text(self) -> str:
        """Return all counts."""
        out = ["# HELP dcsurv_requests_total Answered requests.", "# TYPE dcsurv_requests_total counter"]
        for (method, route, status), count in sorted(self._requests.items()):
            labels = f'method="{method}",route="{_escaped(route)}",status="{status}"'
            out.append(f"dcsurv_requests_total{{{labels}}} {count}")
        out += ["# HELP dcsurv_request_seconds Time to answer.", "# TYPE dcsurv_request_seconds histogram"]
        for route, places in sorted(self._durations.items()):
            total = 0
            for bound, count in zip([*map(str, _BOUNDS), "+Inf"], places, strict=True):
                total += count
                out.append(f'dcsurv_request_seconds_bucket{{route="{_escaped(route)}",le="{bound}"}} {total}')
            out.append(f'dcsurv_request_seconds_sum{{route="{_escaped(route)}"}} {self._seconds[route]:.6f}')
            out.append(f'dcsurv_request_seconds_count{{route="{_escaped(route)}"}} {total}')
        out += ["# HELP dcsurv_patients_total Predicted patients.", "# TYPE dcsurv_patients_total counter"]
        for (name, version), count in sorted(self.patients.items()):
            labels = f'model="{_escaped(name)}",version="{_escaped(version)}"'
            out.append(f"dcsurv_patients_total{{{labels}}} {count}")
        out += ["# HELP dcsurv_model_loads_total Model files read.", "# TYPE dcsurv_model_loads_total counter"]
        out += [f'dcsurv_model_loads_total{{result="{result}"}} {n}' for result, n in sorted(self.loads.items())]
        out += ["# HELP dcsurv_requests_in_progress Requests under way.", "# TYPE dcsurv_requests_in_progress gauge"]
        out.append(f"dcsurv_requests_in_progress {self.in_progress}")
        return "\n".join(out) + "\n"


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
