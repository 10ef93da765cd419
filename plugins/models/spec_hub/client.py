"""The hub through ``huggingface_hub``: its address, token and session; errors in the user's words."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import quote

import attrs

from spec_core.errors import SpecError, UsageError, message
from spec_hub.deadline import in_time
from spec_hub.hub_name import COMMIT, HubName
from spec_hub.listing import read_listing
from spec_hub.remote_file import HubError, RemoteFile, check_files

LISTING_SECONDS = 60.0
"""Seconds in which a listing must be there as a whole."""
OPENING_SECONDS = 60.0
"""Seconds in which the bytes of a file must begin, redirects included."""
READ_SECONDS = 15.0
"""Seconds between two parts of a listing."""
BROKEN = frozenset({"NetworkError", "TimeoutException", "RemoteProtocolError"})
"""Classes of the HTTP library, by name, whose errors another try may not have; the library differs by version."""
NEEDS = "spec-core[hub]"


@attrs.frozen
class Listing:
    """The commit that a revision is, and its files."""

    commit: str
    files: list[RemoteFile]


@attrs.frozen
class Hub:
    """A hub. endpoint: its address, which ``HF_ENDPOINT`` sets. offline: whether ``HF_HUB_OFFLINE`` is set."""

    endpoint: str
    offline: bool
    cache: Path

    def list_files(self, name: HubName) -> Listing:
        """List the files of a revision, in one request. Raises HubError, UsageError."""
        with plain_errors(self, name):
            what = f"the listing of {name} on {self.endpoint}"
            info = in_time(lambda: self._read_listing(name), LISTING_SECONDS, what)
            commit = str(info.get("sha"))
            files = [_remote_file(sibling) for sibling in info.get("siblings") or ()]
        if not COMMIT.fullmatch(commit):
            raise _strange(self, name, f"a commit {commit[:80]!r}")
        return Listing(commit, check_files(files, f"{name} on {self.endpoint}"))

    def _read_listing(self, name: HubName) -> Any:
        from huggingface_hub import get_session

        url = f"{self.endpoint}/api/models/{name.repository}/revision/{quote(name.revision, safe='')}"
        with get_session().stream(
            "GET", url, params={"blobs": True}, headers=_headers(), timeout=READ_SECONDS, follow_redirects=True
        ) as response:
            if response.status_code >= 400:
                raise explain_status(response.status_code, response.headers, self, name)
            return read_listing(response, str(name))

    @contextmanager
    def stream(self, name: HubName, file: RemoteFile, commit: str, start: int) -> Iterator[Any]:
        """The response with the bytes of a file from ``start`` on. A token is sent to the hub, not where it redirects.

        Raises HubError for a status that is an error; errors of the connection pass through.
        """
        from huggingface_hub import constants, get_session

        url = f"{self.endpoint}/{name.repository}/resolve/{commit}/{quote(file.path)}"
        headers = {**_headers(), **({"range": f"bytes={start}-"} if start else {})}
        seconds = constants.HF_HUB_DOWNLOAD_TIMEOUT
        opening = get_session().stream("GET", url, headers=headers, timeout=seconds, follow_redirects=True)
        response = in_time(opening.__enter__, OPENING_SECONDS, f"the answer of {self.endpoint} for {name}: {file.path}")
        try:
            if response.status_code >= 400:
                raise explain_status(response.status_code, response.headers, self, name, file.path)
            yield response
        finally:
            opening.__exit__(None, None, None)


def connect_hub() -> Hub:
    """The hub of the environment. Raises UsageError without ``huggingface_hub``."""
    try:
        from huggingface_hub import constants
    except ImportError as error:
        raise UsageError(
            f"hub: needs the package huggingface_hub: {message(error)}", hint=f"pip install '{NEEDS}'"
        ) from error
    return Hub(constants.ENDPOINT, bool(constants.HF_HUB_OFFLINE), Path(constants.HF_HUB_CACHE))


def _headers() -> dict[str, str]:
    """Headers of every request. The token is for the hub: the HTTP library drops it where it is redirected."""
    from huggingface_hub import get_token

    headers = {"accept-encoding": "identity", "user-agent": "spec-core"}
    return headers | ({"authorization": f"Bearer {token}"} if (token := get_token()) else {})


def _remote_file(sibling: Any) -> RemoteFile:
    path, lfs = str(sibling["rfilename"]), sibling.get("lfs")
    if not lfs:
        return RemoteFile(path, int(sibling["size"]), str(sibling.get("blobId")))
    return RemoteFile(path, int(lfs["size"]), str(lfs["sha256"]))


def is_broken(error: Exception) -> bool:
    """Whether a connection broke, and another try may succeed."""
    return not BROKEN.isdisjoint(base.__name__ for base in type(error).__mro__)


@contextmanager
def plain_errors(hub: Hub, name: HubName) -> Iterator[None]:
    """Raise every error of the hub's library as a HubError or UsageError."""
    from huggingface_hub.errors import HfHubHTTPError

    try:
        yield
    except SpecError:
        raise
    except HfHubHTTPError as error:
        raise explain_status(error.response.status_code, error.response.headers, hub, name) from error
    except OSError as error:
        raise HubError(
            f"{name} cannot be stored in {hub.cache}: {error.strerror or error}",
            hint="free some space, or set HF_HUB_CACHE to a folder on another disk; what is there stays",
        ) from error
    except Exception as error:  # the library raises errors of several others
        raise _explain(error, hub, name) from error


def _explain(error: Exception, hub: Hub, name: HubName) -> SpecError:
    if type(error).__name__ == "TooManyRedirects":
        return HubError(
            f"{hub.endpoint} redirects without end for {name}", hint="check HF_ENDPOINT, or try again later"
        )
    if is_broken(error):
        return HubError(
            f"the connection to {hub.endpoint} broke: {type(error).__name__}: {message(error)[:200]}",
            hint="check the network, the proxy and HF_ENDPOINT, and run the command again: it goes on where it was",
        )
    return _strange(hub, name, f"{type(error).__name__}: {message(error)[:200]}")


def _strange(hub: Hub, name: HubName, what: str) -> HubError:
    return HubError(
        f"{hub.endpoint} answered for {name} with {what}; the API of a hub is needed", hint="check HF_ENDPOINT"
    )


def explain_status(status: int, headers: Any, hub: Hub, name: HubName, path: str = "") -> SpecError:
    """The error for a status of the hub. path: of the file that was requested."""
    what = f"{name}: {path}" if path else str(name)
    if status in (401, 403):
        return UsageError(
            f"{hub.endpoint} does not show {what} ({status}): it is private, gated, or does not exist",
            hint="check the name; else log in with `hf auth login` or HF_TOKEN, and accept its terms on its page",
        )
    if status == 404:
        return UsageError(
            f"{hub.endpoint} has no {what} (404)", hint="check the name, the revision after @, and HF_ENDPOINT"
        )
    if status == 429:
        pause = str(headers.get("retry-after") or "")
        when = f"in {pause} s" if pause.isdigit() else "in some minutes"
        return HubError(
            f"{hub.endpoint} has had too many requests (429) for {what}",
            hint=f"run the command again {when}, it goes on where it was; a login (`hf auth login`) has higher limits",
        )
    return HubError(f"{hub.endpoint} answered {what} with status {status}", hint="try again later")
