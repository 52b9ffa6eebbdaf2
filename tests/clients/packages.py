"""Debian packages, and what `make install` puts where systemd looks.

Packages are installed on a view of this machine that takes the changes itself: an overlay, in a mount namespace of its own.
"""

import os
import pathlib
import shutil
import subprocess

from lab import NESTED, Failure, Lab, Skipped
from programs import RPING_PORT

ROOT = pathlib.Path(__file__).resolve().parents[2]
NAMES = ("libucm-rdmacm1", "ucm", "ucm-doc")
# dpkg reads all that it has on the machine, and man-db writes a new index.
PATIENCE_S = 180.0

# The folders of the machine with the view above them, and $2 in its /tmp.
VIEW = """
mount -t tmpfs -o mode=755 none "$1"
mkdir "$1/changes" "$1/work" "$1/root"
mount -t overlay -o "lowerdir=/,upperdir=$1/changes,workdir=$1/work" none "$1/root"
for folder in dev proc sys; do mount --rbind /$folder "$1/root/$folder"; done
for folder in run tmp; do mount -t tmpfs none "$1/root/$folder"; done
cp "$2"/*.deb "$1/root/tmp"
echo ready
exec sleep infinity
"""


def packages(lab: Lab) -> pathlib.Path:
    """The folder with the packages of the lab's build."""
    if lab.sanitizer:
        raise Skipped("packages are made of a build without sanitizers")
    for tool in ("dh", "dpkg-parsechangelog"):
        if shutil.which(tool) is None:
            raise Skipped(f"{tool} is missing: scripts/setup.sh deb")
    folder = lab.directory / "packages"
    made = subprocess.run([ROOT / "scripts/deb.sh", lab.build, folder], env={**os.environ, "DEB_BUILD_OPTIONS": "noautodbgsym"},
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=300)
    if made.returncode != 0 or len(list(folder.glob("*.deb"))) != len(NAMES):
        raise Failure(f"scripts/deb.sh: exit code {made.returncode}\n{made.stdout}")
    return folder


class View:
    """A view of the machine in which packages can be installed."""

    def __init__(self, lab: Lab, space, folder: pathlib.Path):
        if os.environ.get(NESTED):
            raise Skipped("dpkg changes files of root: sudo make test")
        top = lab.directory / "view"
        top.mkdir()
        self.lab, self.space = lab, space
        anchor = lab.start(space, "unshare", "--mount", "sh", "-ec", VIEW, "sh", str(top), str(folder))
        try:
            anchor.expect("^ready$")
        except Failure:
            raise Skipped(f"no overlay over / can be had here: {anchor.output().strip()}") from None
        self.enter = ["nsenter", f"--mount=/proc/{anchor.pid}/ns/mnt", "chroot", str(top / "root")]
        if self.start("dpkg-query", "--show", "dpkg").wait() != 0:
            raise Skipped("/usr or /var is a file system of its own here")

    def start(self, *argv: str):
        return self.lab.start(self.space, *self.enter, *argv)

    def run(self, *argv: str) -> str:
        return self.start(*argv).succeed(PATIENCE_S)

    def has(self, path: str) -> bool:
        return self.start("test", "-e", path, "-o", "-L", path).wait() == 0

    def files(self) -> set[str]:
        """What packages may bring; not dpkg's own records, logs and caches."""
        found = self.run("find", "/etc", "/usr", "/lib/", "/var", "-xdev", "(", "-path", "/var/lib/dpkg", "-o", "-path", "/var/cache", "-o",
                         "-path", "/var/log", ")", "-prune", "-o", "-print")
        self.lab.programs.pop()  # not worth showing
        return set(found.splitlines())


def rping_over(view: View) -> None:
    run = ("ucm", "run", "--", "rping", "-a", "127.0.0.1", "-C", "10", "-v")
    server = view.start(*run, "-s")
    view.lab.wait_listening(view.space, RPING_PORT)
    view.run(*run, "-c")
    server.succeed()


def install(lab: Lab):
    """Installed packages work, disturb nothing, and go without a trace."""
    view = View(lab, lab.namespace("a"), packages(lab))
    before = view.files()
    view.run("sh", "-c", "dpkg --force-unsafe-io --install /tmp/*.deb")
    if not view.has("/etc/systemd/system/sockets.target.wants/ucmd.socket"):
        raise Failure("systemd would not hold the socket")
    if view.has("/etc/systemd/system/multi-user.target.wants/ucmd.service"):
        raise Failure("systemd would start ucmd before anybody wants it")
    if view.run("ucmd", "--check-config") != "/etc/ucm/ucmd.toml: good\n":
        raise Failure("the settings are not where ucmd looks, or not good")
    changed = view.run("dpkg", "--verify", "librdmacm1", "libibverbs1", *NAMES)
    if changed:
        raise Failure(f"files are not what their packages have brought:\n{changed}")
    for listed in (view.run("ldconfig", "-p"), view.run("dpkg-divert", "--list"), view.run("ldd", "/usr/bin/rping")):
        if "/lib/ucm" in listed:
            raise Failure("other programs are disturbed")
    rping_over(view)
    view.start("ucm", "doctor").expect("^good +libraries: /usr/lib/ucm$")
    view.run("ucm", "stop")

    view.run("sh", "-c", "echo '# mine' >>/etc/ucm/ucmd.toml")
    view.run("dpkg", "--force-unsafe-io", "--remove", *NAMES)
    if view.has("/usr/bin/ucm") or view.has("/usr/lib/ucm"):
        raise Failure("programs or libraries are left of removed packages")
    if not view.run("cat", "/etc/ucm/ucmd.toml").endswith("# mine\n"):
        raise Failure("removed packages take settings with them")
    view.run("dpkg", "--force-unsafe-io", "--purge", *NAMES)
    after = view.files()
    if before != after:
        raise Failure(f"left: {sorted(after - before)}; missing: {sorted(before - after)}")


def lintian(lab: Lab):
    """Debian's own judge of packages finds no error."""
    if shutil.which("lintian") is None:
        raise Skipped("lintian is missing: scripts/setup.sh test")
    folder = packages(lab)
    # UCM has no address that mail reaches.
    suppressed = "bogus-mail-host,bogus-mail-host-in-debian-changelog"
    lab.start(lab.namespace("a"), "lintian", "--allow-root", "--fail-on", "error,warning", "--suppress-tags", suppressed,
              *map(str, folder.glob("*.deb"))).succeed(PATIENCE_S)


def recordings(lab: Lab):
    """`ucm replay` plays the recordings that ucm-doc brings."""
    folder = packages(lab)
    target = lab.directory / "doc"
    subprocess.run(["dpkg-deb", "--extract", next(folder.glob("ucm-doc_*.deb")), target], check=True)
    brought = sorted((target / "usr/share/doc/ucm/examples/recordings").glob("*.ucmrec"))
    if not brought:
        raise Failure("there is no recording")
    for recording in brought:
        lab.ucm(lab.namespace(recording.stem), "replay", str(recording)).succeed()


CASES = {case.__name__: case for case in (install, lintian, recordings)}
for case in CASES.values():
    case.short = case is install
