"""The counts of one process, for Prometheus."""

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest


class Metrics:
    """What is counted: no values of rows, no names of callers."""

    def __init__(self) -> None:
        self._registry = registry = CollectorRegistry()
        self._requests = Counter(
            "counterveil_requests", "Requests.", ["path", "status"], registry=registry
        )
        self._seconds = Histogram(
            "counterveil_request_seconds", "Seconds of requests.", ["path"], registry=registry
        )
        self.rows = Counter("counterveil_rows", "Rows that were explained.", registry=registry)
        self.waiting = Gauge("counterveil_rows_waiting", "Rows in the queue.", registry=registry)
        self.rows_at_once = Histogram(
            "counterveil_rows_at_once",
            "Rows of one search.",
            buckets=[1, 2, 4, 8, 16, 32, 64, 128, 256],
            registry=registry,
        )

    def count(self, path: str, status: int, seconds: float) -> None:
        """One request more."""
        self._requests.labels(path, status).inc()
        self._seconds.labels(path).observe(seconds)

    def shown(self) -> bytes:
        """The text that Prometheus reads."""
        return generate_latest(self._registry)
