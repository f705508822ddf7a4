"""How much main memory is free: as the machine says, and as a container does."""

import subprocess
import sys

import pytest

from ogspr import memory
from ogspr.commands import doctor

GB = 10**9


@pytest.fixture
def machine(tmp_path, monkeypatch):
    """A machine with 64 GB that are free, in a container without a limit."""
    proc, cgroup = tmp_path / "proc", tmp_path / "cgroup"
    for name, folder in (("_PROC", proc), ("_CGROUP", cgroup)):
        folder.mkdir()
        monkeypatch.setattr(memory, name, folder)
    (proc / "meminfo").write_text(f"MemTotal: 99 kB\nMemAvailable:   {64 * GB // 1024} kB\n")
    (cgroup / "memory.max").write_text("max\n")
    (cgroup / "memory.current").write_text(f"{3 * GB}\n")
    (cgroup / "memory.stat").write_text(f"anon 5\ninactive_file {GB}\n")
    return tmp_path


def test_free_memory_is_the_smaller_of_machine_and_container(machine):
    assert memory.free_host_bytes() == 64 * GB
    limit = machine / "cgroup" / "memory.max"
    limit.write_text(f"{8 * GB}\n")
    assert memory.free_host_bytes() == 6 * GB  # 3 are used, of which one is given up when needed
    limit.write_text(f"{GB}\n")
    assert memory.free_host_bytes() == 0
    limit.write_text(f"{99 * GB}\n")
    assert memory.free_host_bytes() == 64 * GB


def test_what_is_not_known_limits_nothing(machine):
    (machine / "cgroup" / "memory.stat").unlink()
    assert memory.free_host_bytes() == 64 * GB
    (machine / "proc" / "meminfo").unlink()
    assert 0 < memory.free_host_bytes() < 2**62  # all that is built in


def test_the_doctor_knows_the_limit_of_a_container(machine, monkeypatch):
    monkeypatch.setattr(doctor, "_free_device_bytes", lambda: 0)
    assert doctor._memory_here().status == "ok"
    (machine / "cgroup" / "memory.max").write_text(f"{8 * GB}\n")
    finding = doctor._memory_here()
    assert (finding.status, finding.detail[:12]) == ("warn", "free: 6.0 GB")


def test_it_needs_no_torch():
    program = "import ogspr.memory, sys; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", program]).returncode == 0
