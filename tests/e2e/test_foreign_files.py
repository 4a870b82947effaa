"""Files that a stranger wrote: no key of the user's goes to their hosts, and no path leads out of them."""

from __future__ import annotations

import json
import os
import shutil
import socket
import struct
import subprocess
import threading
import time
from collections.abc import Iterator
from contextlib import closing, suppress
from pathlib import Path

import pytest
from tests.commands import SUFFICE, refused, run
from tests.server import Server

import suffice
from suffice.errors import SufficeError
from suffice.evaluation.promise_check import read_promises
from suffice.foreign import check_host, is_here
from suffice.policies.policy_file import save_policy
from suffice.policies.rules.policy import Rule

SECRET = "not-for-strangers-77"
NOTHING_ASKED = "Skien is a town."


class Listener:
    """Plays a PostgreSQL server that asks for the password in clear, and keeps what it is told."""

    def __init__(self) -> None:
        self.heard: list[bytes] = []
        self._socket = socket.create_server(("127.0.0.1", 0))
        self.port = self._socket.getsockname()[1]
        self._thread = threading.Thread(target=self._serve)
        self._thread.start()

    def _serve(self) -> None:
        with suppress(OSError):
            while True:
                client, _ = self._socket.accept()
                with client, suppress(OSError, struct.error):
                    client.settimeout(5)
                    self._talk(client)

    def _talk(self, client: socket.socket) -> None:
        while True:
            size, kind = struct.unpack("!ii", client.recv(8))
            self.heard.append(client.recv(size - 8) if size > 8 else b"")
            if kind not in (80877103, 80877104):  # it asked for encryption
                break
            client.sendall(b"N")
        client.sendall(b"R" + struct.pack("!ii", 8, 3))
        self.heard.append(client.recv(1000))

    def close(self) -> None:
        with suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)
        self._socket.close()
        self._thread.join()

    @property
    def was_told(self) -> bool:
        return any(SECRET.encode() in said for said in self.heard)


@pytest.fixture
def listener(monkeypatch: pytest.MonkeyPatch) -> Iterator[Listener]:
    pytest.importorskip("psycopg", reason="psycopg is not installed")
    monkeypatch.setenv("PGPASSWORD", SECRET)
    monkeypatch.delenv("SUFFICE_ALLOW_HOSTS", raising=False)
    with closing(Listener()) as one:
        yield one


@pytest.fixture
def repository(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A repository with a folder of promises, and files beside it that are none of its own."""
    home = tmp_path / "home" / "repository"
    (home / ".git").mkdir(parents=True)
    (home / "promises").mkdir()
    for place in (home, home.parent, home / "promises"):
        save_policy(Rule(rule="round >= 5"), place / "policy.json", max_rounds=5)
    monkeypatch.chdir(home / "promises")
    return home


def promise(record: str = "example", policy: str = "policy.json", **more: object) -> None:
    stated = {"record": record, "policy": policy, "max_loss": 0.5, **more}
    lines = [f"{name} = {json.dumps(value)}" for name, value in stated.items()]
    Path("suffice.toml").write_text("\n".join(["[[promise]]", *lines]), encoding="utf-8")


# --- hosts --------------------------------------------------------------------------------------------
# all of them lead to this machine, and none is spelled as it
ELSEWHERE = (
    *("postgresql://127.1:{port}/x", "postgresql://2130706433:{port}/x", "postgres:/127.1:{port}/x"),
    *("postgresql://0x7f000001:{port}/x", "postgresql://0.0.0.0:{port}/x"),
    *("postgresql://localhost:{port}/x?host=127.1", "postgresql://localhost/x?port={port}&host=127.1"),
    *("postgresql://localhost:{port}/x?hostaddr=127.1", "postgresql:///x?host=127.1&port={port}"),
    *("postgresql://localhost:1,127.1:{port}/x", "postgresql://u@127.1:{port},y@localhost/x"),
    *("postgresql://localhost/x?service=stranger", "postgresql://localhost./x?port={port}"),
    *("postgresql:/\\127.1:{port}\\x", "postgresql://localhost\\@127.1:{port}/x"),
    *("postgresql://ann:own@127.1:{port}/x", "postgresql:///x?ho%73t=127.1&port={port}"),
)  # fmt: skip


@pytest.mark.usefixtures("repository")
@pytest.mark.parametrize("address", ELSEWHERE)
def test_no_password_of_the_user_goes_to_a_host_that_a_check_file_names(
    address: str, listener: Listener, monkeypatch: pytest.MonkeyPatch
) -> None:
    services = f"[stranger]\nhost=127.1\nport={listener.port}\ndbname=x\n"
    Path("services.conf").write_text(services, encoding="utf-8")
    monkeypatch.setenv("PGSERVICEFILE", "services.conf")
    promise(address.format(port=listener.port))
    refused(run("check"), "suffice.toml", "promise 1")
    assert listener.heard == []


@pytest.mark.usefixtures("repository")
def test_no_path_of_a_check_file_becomes_an_address(listener: Listener) -> None:
    for named in (
        "./postgresql:/127.1:{}/x",
        "x/../postgres:/127.1:{}/x",
        "./postgresql://127.1:{}/x",
    ):
        promise(named.format(listener.port))
        assert run("check").returncode == 2
        assert listener.heard == []
        Path(f"postgresql:/127.1:{listener.port}/x").mkdir(parents=True, exist_ok=True)
        assert run("check").returncode == 2
        assert listener.heard == []
        shutil.rmtree("postgresql:")


@pytest.mark.usefixtures("repository")
def test_the_password_goes_where_the_user_says(
    listener: Listener, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On the command line, by the environment, in a call of Python, and to this machine."""
    address = f"postgresql://127.1:{listener.port}/x"

    def told() -> bool:
        found, listener.heard = listener.was_told, []
        return found

    run("replay", address, "--policy", "fixed-1")
    assert told()
    with suppress(SufficeError):
        suffice.read(address)
    assert told()
    for here in ("127.0.0.1", "localhost"):
        promise(address.replace("127.1", here))
        run("check")
        assert told()
    promise(address)
    monkeypatch.setenv("suffice_allow_hosts", "127.1")
    monkeypatch.setenv("SUFFICE_ALLOW_HOSTS", "x127.1 *.1,127.1.evil")
    refused(run("check"))
    assert not told()
    monkeypatch.setenv("SUFFICE_ALLOW_HOSTS", "db.example, 127.1")
    run("check")
    assert told()


@pytest.mark.parametrize(
    ("host", "here"),
    [
        *[(host, True) for host in ("localhost", "LocalHost", "127.0.0.1", "127.9.9.9", "::1", "[::1]")],
        *[(host, True) for host in ("0:0:0:0:0:0:0:1", "::ffff:127.0.0.1")],
        *[(host, False) for host in ("localhost.evil.com", "127.0.0.1.evil.com", "127.1", "2130706433")],
        *[(host, False) for host in ("0x7f.1", "0.0.0.0", "::", "127.0.0.01", "localhost.")],
        *[(host, False) for host in ("loca\u017fhost", "::ffff:7.0.0.1", "127.0.0.1@evil")],
        *[(host, False) for host in ("１２７.0.0.1", "ip6-localhost", "")],
    ],
)  # fmt: skip
def test_which_spellings_are_this_machine(
    host: str, here: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SUFFICE_ALLOW_HOSTS", "")
    assert is_here(host) is here
    if host and not here:
        with pytest.raises(SufficeError, match="SUFFICE_ALLOW_HOSTS"):
            check_host(host, Path("x.toml"))


# --- settings of the service ---------------------------------------------------------------------------
@pytest.fixture
def server() -> Iterator[Server]:
    with closing(Server(lambda _: (200, {}, {}))) as one:
        yield one


def settings(text: str) -> tuple[str, ...]:
    Path("notes").mkdir(exist_ok=True)
    Path("notes/a.txt").write_text(NOTHING_ASKED, encoding="utf-8")
    Path("serve.toml").write_text(f"{text}\n[retrieval]\ncorpus = 'notes'\n", encoding="utf-8")
    return ("serve", "--config", "serve.toml", "--check")


@pytest.fixture
def _elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("SUFFICE_ALLOW_HOSTS", raising=False)
    monkeypatch.setenv("OPENAI_API_KEY", SECRET)


@pytest.mark.usefixtures("_elsewhere")
@pytest.mark.parametrize(
    "url",
    [
        *("http://127.1:{}/v1", "http://2130706433:{}/v1", "http://localhost@127.1:{}/v1"),
        *("http://localhost:1@127.1:{}/v1", "http://localhost\\\\@127.1:{}/v1", "http://127%2e1:{}/v1"),
        *("http://[::ffff:7f00:1%25lo]:{}/v1", "http://u:p@@127.1:{}/v1", "http://127.1:{}#@localhost/v1"),
    ],
)  # fmt: skip
def test_no_key_of_the_user_goes_to_a_host_that_settings_name(url: str, server: Server) -> None:
    port = server.http.server_port
    words = settings(f'[model]\nllm = "{url.format(port)}"')
    refused(run(*words), "serve.toml")
    encoder = f'encoder = "{url.format(port)}"\nencoder_model = "m"\nretriever = "dense"'
    text = f'[model]\nllm = "scripted"\n[retrieval]\ncorpus = "notes"\n{encoder}\n'
    Path("serve.toml").write_text(text, encoding="utf-8")
    refused(run(*words), "serve.toml")
    assert not server.asked


@pytest.mark.usefixtures("_elsewhere")
def test_the_key_goes_where_the_user_says(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    url = f"http://127.1:{server.http.server_port}/v1"
    words = settings(f'[model]\nllm = "{url}"')  # without a name the server is asked for it

    def told() -> bool:
        found = any(SECRET in str(one) for one in server.seen)
        server.seen.clear()
        return found

    run(*words, "--llm", url, "--max-wait", "0")
    assert told()
    monkeypatch.setenv("SUFFICE_ALLOW_HOSTS", "127.1")
    run(*words, "--max-wait", "0")
    assert told()
    for name in [name for name in os.environ if name.startswith("OPENAI_")]:
        monkeypatch.delenv(name)
    monkeypatch.delenv("SUFFICE_ALLOW_HOSTS")
    run(*words, "--max-wait", "0")  # nothing of the user's would go there
    assert server.seen
    assert not told()


@pytest.mark.usefixtures("_elsewhere")
def test_settings_name_no_database_elsewhere(listener: Listener) -> None:
    words = settings(
        f'[record]\nfolder = "postgresql://127.1:{listener.port}/x"\n[model]\nllm = "scripted"'
    )
    refused(run(*words), "serve.toml", "127.1")
    assert listener.heard == []
    run(*words, "--record", f"postgresql://127.1:{listener.port}/x")
    assert listener.was_told


@pytest.mark.usefixtures("_elsewhere")
def test_settings_import_no_module() -> None:
    Path("theirs.py").write_text(
        "open('imported', 'w').close()\ndef search(query, k): return []\n", encoding="utf-8"
    )
    text = '[model]\nllm = "scripted"\n[retrieval]\nretriever = "python:theirs:search"\n'
    Path("serve.toml").write_text(text, encoding="utf-8")
    words = ("serve", "--config", "serve.toml", "--check")
    done = subprocess.run([*SUFFICE, *words], capture_output=True, text=True, check=False)
    refused(done, "--retriever python:theirs:search")
    assert not Path("imported").exists()
    typed = [*SUFFICE, *words, "--retriever", "python:theirs:search"]
    assert subprocess.run(typed, capture_output=True, check=False).returncode == 0
    assert Path("imported").exists()


# --- places -------------------------------------------------------------------------------------------
def in_the_home(home: Path) -> list[Path]:
    return sorted(one for one in home.rglob("*") if home / "repository" not in (one, *one.parents))


def test_update_writes_below_the_repository_only(repository: Path) -> None:
    home = repository.parent
    before = in_the_home(home)
    Path("link.json").symlink_to(home / "policy.json")
    Path("out").symlink_to(home)
    Path("through").mkdir()
    shutil.copy("policy.json", "through/policy.json")
    Path("through/policy.promises.json").symlink_to(home / "new.json")
    outside = ("../../policy.json", "link.json", "out/policy.json", "../../../home/policy.json")
    for policy in (*outside, str(home / "policy.json"), "through/policy.json", "through"):
        promise(policy=policy)
        refused(run("check", "--update"), "suffice.toml", "promise 1")
        assert in_the_home(home) == before
    for policy in ("../policy.json", "policy.json", "../promises/policy.json"):
        promise(policy=policy)
        done = run("check", "--update")
        assert done.returncode == 0, done.stderr
    assert (repository / "policy.promises.json").exists()
    assert in_the_home(home) == before


def test_init_writes_below_the_repository_only(repository: Path) -> None:
    home = repository.parent
    (repository / "new").mkdir()
    (repository / "new/tests").symlink_to(home)
    before = in_the_home(home)
    refused(run("init", repository / "new"), "tests/test_promises.py")
    assert in_the_home(home) == before


def test_a_record_lies_below_the_repository(repository: Path) -> None:
    home = repository.parent
    suffice.write(list(suffice.example_record().records())[:60], home / "own.parquet")
    (home / "traces").mkdir()
    shutil.copy(home / "own.parquet", home / "traces/a.parquet")
    shutil.copy(home / "own.parquet", repository / "ours.parquet")
    Path("linked").mkdir()
    Path("linked/a.parquet").symlink_to(home / "own.parquet")
    Path("traces").symlink_to(home / "traces")
    for record in (
        "../../own.parquet",
        "../../traces",
        "traces",
        "linked",
        str(home / "own.parquet"),
    ):
        promise(record)
        refused(run("check"), "suffice.toml", "promise 1")
    promise("../ours.parquet")
    assert run("check", "--update").returncode == 0
    assert run("check", repository / "promises/suffice.toml").returncode == 0


def test_without_a_repository_the_files_own_folder_is_the_root(
    repository: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (repository / ".git").rmdir()
    promise(policy="../policy.json")
    refused(run("check"), "promise 1")
    promise()
    assert run("check", "--update").returncode == 0
    monkeypatch.chdir(tmp_path)
    assert run("check", "home/repository/promises/suffice.toml").returncode == 0


@pytest.mark.parametrize(
    "named", ["\0", "a\0b", "x" * 5000, "~/policy.json", "//server/x", 3, [], {}]
)
def test_what_names_no_place_is_refused(named: object, repository: Path) -> None:
    Path("suffice.toml").write_text("", encoding="utf-8")
    for name in ("record", "policy"):
        stated = {"record": "example", "policy": "policy.json", name: named}
        lines = [f"{key} = {json.dumps(value)}" for key, value in stated.items()]
        Path("suffice.toml").write_text(
            "\n".join(["[[promise]]", *lines]).replace("{}", "{a = 1}"), "utf-8"
        )
        refused(run("check"))
    assert not (repository / "promises/~").exists()


@pytest.mark.usefixtures("repository")
def test_an_address_is_refused_in_time() -> None:
    promise(f"postgresql://{'a' * 60_000}%/x")
    begun = time.monotonic()
    refused(run("check"), "postgresql://USER@HOST:PORT/DATABASE")
    assert time.monotonic() - begun < 20.0


def test_promises_without_a_file(tmp_path: Path) -> None:
    with pytest.raises(SufficeError, match="suffice init"):
        next(read_promises(tmp_path / "none.toml"))
