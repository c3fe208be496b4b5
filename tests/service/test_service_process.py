"""The service as a process: it starts, ends cleanly, and stands slow and rude clients."""

from __future__ import annotations

import asyncio
import contextlib
import http.client
import json
import signal
import socket
import threading
import time
import urllib.request

import pytest

pytest.importorskip("uvicorn", reason="counterveil[serve] is not installed")

from counterveil.cli import main
from counterveil.service.access import AccessKeys
from counterveil.service.watchdog import keep_telling


def post(address, body, timeout=60):
    request = urllib.request.Request(
        f"{address}/v1/explain", json.dumps(body).encode(), {"Content-Type": "application/json"}
    )
    with urllib.request.urlopen(request, timeout=timeout) as answer:
        return answer.status, json.load(answer)


@pytest.mark.long
def test_it_starts_answers_and_ends(served, people, tmp_path, monkeypatch):
    """It tells systemd that it works, not that it hangs; what is under way is answered."""
    found = []

    def ask():
        found.append(post(service.address, {"rows": people, "k": 3})[0])

    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as systemd:
        systemd.bind(str(tmp_path / "notify"))
        systemd.settimeout(60)
        monkeypatch.setenv("NOTIFY_SOCKET", str(tmp_path / "notify"))
        monkeypatch.setenv("WATCHDOG_USEC", "200000")
        service = served()
        assert [systemd.recv(100) for _ in range(3)] == [b"READY=1", b"WATCHDOG=1", b"WATCHDOG=1"]
        service.process.send_signal(signal.SIGSTOP)  # it hangs
        systemd.settimeout(1)
        with pytest.raises(TimeoutError):
            [systemd.recv(100) for _ in range(1000)]
        service.process.send_signal(signal.SIGCONT)
    status, body = post(service.address, {"rows": people[:3]})
    assert (status, len(body["answers"])) == (200, 3)
    assert "end-to-end" in body["promise"]
    threads = [threading.Thread(target=ask) for _ in range(4)]
    for thread in threads:
        thread.start()
    time.sleep(0.05)
    assert service.stop() in (0, -signal.SIGTERM)  # ended by it, once all was answered
    for thread in threads:
        thread.join()
    assert found == [200] * len(found)
    assert found


def test_systemd_is_told_nothing_while_searches_hang(tmp_path, monkeypatch):
    async def told(fails):
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(keep_telling(lambda: fails), 0.1)

    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as systemd:
        systemd.bind(str(tmp_path / "notify"))
        systemd.settimeout(0.2)
        monkeypatch.setenv("NOTIFY_SOCKET", str(tmp_path / "notify"))
        monkeypatch.setenv("WATCHDOG_USEC", "20000")
        asyncio.run(told(True))
        assert systemd.recv(100) == b"READY=1"
        with pytest.raises(TimeoutError):
            systemd.recv(100)
        asyncio.run(told(False))
        assert [systemd.recv(100) for _ in range(2)] == [b"READY=1", b"WATCHDOG=1"]


@pytest.mark.slow
def test_killed_under_load_and_started_again(served, people):
    """Clients get a whole answer or a broken connection, never half an answer."""
    service, whole, broken, stop = served(), [], [], threading.Event()

    def ask():
        while not stop.is_set():
            try:
                status, body = post(service.address, {"rows": people[:4]})
                assert status == 200
                assert len(body["answers"]) == 4
                whole.append(1)
            except (OSError, http.client.HTTPException):
                broken.append(1)
                time.sleep(0.01)

    threads = [threading.Thread(target=ask) for _ in range(6)]
    for thread in threads:
        thread.start()
    while len(whole) < 10:
        time.sleep(0.05)
    service.stop(signal.SIGKILL)
    time.sleep(0.2)
    stop.set()
    for thread in threads:
        thread.join()
    assert broken
    assert post(served().address, {"rows": people[:1]})[0] == 200


def test_a_client_that_stops_reading_does_not_stall_others(served_once, people):
    lines = [json.dumps({"k": 1}), *[json.dumps(people[0])] * 3000]
    body = ("\n".join(lines)).encode()
    with socket.create_connection(("127.0.0.1", served_once.port)) as rude:
        rude.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        head = (
            "POST /v1/explain HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/x-ndjson\r\n"
            f"Content-Length: {len(body)}\r\n\r\n"
        )
        rude.settimeout(10)
        with contextlib.suppress(TimeoutError):  # the service reads no more than it can answer
            rude.sendall(head.encode() + body)
        for _ in range(5):
            assert post(served_once.address, {"rows": people[:1]})[0] == 200


HELD = (
    b"",
    b"GET /v1/health HTTP/1.1\r\nHost: 127.0.0.1\r\n",
    b"POST /v1/explain HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 100\r\n\r\n{",
)


@pytest.mark.parametrize("said", HELD)
def test_connections_of_one_client_shut_nobody_out(said, served_once, people):
    """Idle ones, slow heads and slow bodies; a question that is under way loses nothing."""
    with contextlib.ExitStack() as held:
        for _ in range(600):
            place = ("127.0.0.1", served_once.port)
            rude = held.enter_context(socket.create_connection(place, timeout=30))
            with contextlib.suppress(OSError):  # it may be closed by now
                rude.sendall(said)
        for address in ("127.0.0.1", "127.0.0.2"):
            other = http.client.HTTPConnection(*place, timeout=30, source_address=(address, 0))
            other.request("GET", "/v1/health")
            assert other.getresponse().status == 200
            other.close()
        assert post(served_once.address, {"rows": people[:1]})[0] == 200


def test_heads_that_are_wrong(served_once):
    for head in (
        b"GET / HTTP/1.1\r\nHost: 127.0.0.1\r\nX: a\x00b\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: 127.0.0.1\r\nHost: evil.example\r\n\r\n",
        b"GET / HTTP/1.1\r\n\r\n",
        b"GET /" + b"a" * 100_000 + b" HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n",
        b"POST /v1/explain HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: x\r\n\r\n",
        b"\x16\x03\x01\x02\x00\x01\x00",
    ):
        with socket.create_connection(("127.0.0.1", served_once.port)) as client:
            client.settimeout(15)
            client.sendall(head)
            if head.startswith(b"\x16"):
                client.shutdown(socket.SHUT_WR)
            answer = client.recv(4096)
        assert not answer or answer.split()[1][:1] == b"4"
        with urllib.request.urlopen(f"{served_once.address}/v1/health", timeout=30) as fine:
            assert fine.status == 200


def test_refused_before_it_starts(veil, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    veil.save("loans.veil")
    AccessKeys("KEYS", create=True)
    for arguments, words in (
        (["--host", "0.0.0.0"], "without keys only this machine may ask"),
        (["--keys", "none.db"], "no file of keys"),
        (["--veil", "none.veil"], "none.veil"),
        (["--host", "256.1.1.1", "--keys", "KEYS"], "cannot listen"),
    ):
        with pytest.raises(SystemExit) as ended:
            main(["serve", "--veil", "loans.veil", *arguments])
        assert (ended.value.code, words in capsys.readouterr().err) == (2, True)


def test_api_keys_on_the_command_line(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)

    def said(*arguments):
        with contextlib.suppress(SystemExit):
            main(["keys", *arguments])
        return capsys.readouterr()

    key = said("new", "--name", "Branch", "--api", "keys.db", "--answers-a-day", "7").out.strip()
    assert key.startswith("cvk_")
    assert key.encode() not in (tmp_path / "keys.db").read_bytes()
    assert (tmp_path / "keys.db").stat().st_mode & 0o077 == 0
    assert "already" in said("new", "--name", "Branch", "--api", "keys.db").err
    listed = said("list", "keys.db", "--json").out
    assert json.loads(listed)[0]["answers_a_day"] == 7
    assert key not in listed
    assert "revoked" in said("revoke", "keys.db", "Branch").out
    assert "no key named" in said("revoke", "keys.db", "Branch").err
    assert "give --out" in said("new", "--name", "Nobody").err
    (tmp_path / "other.db").write_text("something else, and long enough to be no database")
    assert "no file of API keys" in said("list", "other.db").err
