"""Debian packages of tools/packages.txt: which are missing, and installing them."""

import os
import shutil
import subprocess

from x.shell import ROOT, Failed, run

PURPOSES = ("build", "check")


def parse(text: str) -> dict[str, str]:
    """Package name to purpose."""
    packages = {}
    for number, line in enumerate(text.splitlines(), 1):
        fields = line.split("#")[0].split()
        if not fields:
            continue
        if len(fields) != 2 or fields[1] not in PURPOSES:
            raise Failed(
                f"tools/packages.txt:{number}: want a package and one of {', '.join(PURPOSES)}"
            )
        packages[fields[0]] = fields[1]
    return packages


def missing(purposes: tuple[str, ...] = PURPOSES) -> list[str]:
    """Packages that dpkg does not know as installed; none where there is no dpkg to ask."""
    if shutil.which("dpkg-query") is None:
        return []
    wanted = [
        name
        for name, purpose in parse((ROOT / "tools/packages.txt").read_text()).items()
        if purpose in purposes
    ]
    # Status is "installed" only after a complete installation. Names without the colon of an
    # architecture; unknown names are left out of the answer and so count as missing.
    answer = subprocess.run(
        ["dpkg-query", "-W", "-f", "${Package} ${db:Status-Status}\n", *wanted],
        capture_output=True,
        text=True,
    ).stdout
    installed = {line.split()[0] for line in answer.splitlines() if line.endswith(" installed")}
    return [name for name in wanted if name not in installed]


def as_root() -> list[str] | None:
    """The words before a command that needs root; None when this user cannot become root."""
    if os.geteuid() == 0:
        return []
    return ["sudo"] if shutil.which("sudo") else None


def setup(purposes: tuple[str, ...] = PURPOSES) -> None:
    """Installs what is missing; says nothing and runs nothing when nothing is."""
    names = missing(purposes)
    if not names:
        return
    if shutil.which("apt-get") is None:
        raise Failed(
            "this machine has no apt-get; install what these Debian packages hold: "
            + " ".join(names)
        )
    prefix = as_root()
    line = ["apt-get", "install", "-y", "--no-install-recommends", "--no-remove", *names]
    if prefix is None:
        raise Failed("packages are missing and there is no sudo; as root: " + " ".join(line))
    print(f"installing {len(names)} packages: {' '.join(names)}", flush=True)
    prefix = [*prefix, "env", "DEBIAN_FRONTEND=noninteractive"]
    run([*prefix, "apt-get", "update", "-qq"])
    try:
        run([*prefix, *line])
    except Failed as failure:
        raise Failed(
            f"{failure}\nIf apt says that packages would have to be removed (libboost1.81-dev "
            "excludes Debian's default libboost-dev), remove those by hand and run ./x setup again."
        ) from None
