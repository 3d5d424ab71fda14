"""What is read of nvidia-smi and of the kernel's log: forms of several drivers, and programs that do not do as they should."""

import os
import stat
import time
from pathlib import Path

import pytest

from penstock.process.health.facts import kernel_log
from penstock.process.health.facts.gpu_facts import look_at_gpus, parsed
from penstock.process.health.facts.host_facts import HostFacts
from penstock.process.health.verdict import check_alone

#: Forms that drivers have used, shortened: 418 (double_bit), 515 and 535 (sram, dram), 550 and later (parity and secded, clocks_event).
OLD = """<?xml version="1.0" ?><!DOCTYPE nvidia_smi_log SYSTEM "nvsmi_device_v10.dtd">
<nvidia_smi_log><driver_version>418.43</driver_version><attached_gpus>1</attached_gpus><gpu id="00000000:43:00.0">
<product_name>Tesla P40</product_name><uuid>GPU-1</uuid><pci><pci_bus_id>00000000:43:00.0</pci_bus_id><pci_gpu_link_info>
<link_widths><max_link_width>16x</max_link_width><current_link_width>8x</current_link_width></link_widths></pci_gpu_link_info></pci>
<fb_memory_usage><total>22919 MiB</total></fb_memory_usage><clocks_throttle_reasons>
<clocks_throttle_reason_hw_thermal_slowdown>Active</clocks_throttle_reason_hw_thermal_slowdown></clocks_throttle_reasons>
<ecc_errors><volatile><single_bit><total>5</total></single_bit><double_bit><device_memory>2</device_memory><total>2</total></double_bit>
</volatile><aggregate><double_bit><total>9</total></double_bit></aggregate></ecc_errors>
<retired_pages><pending_retirement>Yes</pending_retirement></retired_pages></gpu></nvidia_smi_log>"""
MIDDLE = """<nvidia_smi_log><driver_version>535.54.03</driver_version><attached_gpus>1</attached_gpus><gpu id="00000000:01:00.0">
<product_name>NVIDIA A100-SXM4-80GB</product_name><mig_mode><current_mig>Enabled</current_mig></mig_mode><mig_devices><mig_device>
<ecc_error_count><volatile_count><sram_uncorrectable>7</sram_uncorrectable></volatile_count></ecc_error_count></mig_device></mig_devices>
<uuid>GPU-2</uuid><ecc_errors><volatile><sram_correctable>4</sram_correctable><sram_uncorrectable>1</sram_uncorrectable>
<dram_uncorrectable>2</dram_uncorrectable></volatile></ecc_errors><remapped_rows>N/A</remapped_rows></gpu></nvidia_smi_log>"""
NEW = """<nvidia_smi_log><driver_version>570.124.04</driver_version><attached_gpus>1</attached_gpus><gpu id="00000000:1B:00.0">
<product_name>NVIDIA H200</product_name><uuid>GPU-3</uuid><clocks_event_reasons>
<clocks_event_reason_sw_power_cap>Active</clocks_event_reason_sw_power_cap></clocks_event_reasons><ecc_errors><volatile>
<sram_uncorrectable_parity>0</sram_uncorrectable_parity><sram_uncorrectable_secded>1</sram_uncorrectable_secded>
<dram_uncorrectable>0</dram_uncorrectable></volatile></ecc_errors><remapped_rows><remapped_row_pending>Yes</remapped_row_pending>
<remapped_row_failure>Yes</remapped_row_failure></remapped_rows></gpu></nvidia_smi_log>"""


def test_forms_of_several_drivers_say_the_same() -> None:
    (old,), (middle,), (new,) = (parsed(text.encode()).gpus for text in (OLD, MIDDLE, NEW))
    assert (old.ecc_uncorrected, old.remap_pending, old.slowed_by) == (2, True, ("hw_thermal_slowdown",))
    assert (old.link_width, old.link_width_max, old.memory_bytes) == (8, 16, 22919 << 20)
    assert (middle.ecc_uncorrected, middle.mig, middle.remap_pending) == (3, True, False)
    assert (new.ecc_uncorrected, new.remap_pending, new.remap_failed, new.slowed_by) == (1, True, True, ())
    assert parsed(NEW.encode()).driver == "570.124.04"


def test_a_gpu_without_counters_is_not_one_without_errors() -> None:
    plain = MIDDLE.replace(">1<", ">N/A<").replace(">2<", ">N/A<")
    assert parsed(plain.encode()).gpus[0].ecc_uncorrected is None


@pytest.mark.parametrize(
    ("said", "problem"),
    [
        ("Unable to determine the device handle for GPU 0000:01:00.0: GPU is lost.", "GPU is lost"),
        (
            "NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver.",
            "couldn't communicate",
        ),
        ("", "ended with 9"),
    ],
)
def test_a_driver_that_fails_is_told_in_its_own_words(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, said: str, problem: str
) -> None:
    _program(tmp_path, f'printf %s "{said}"; exit 9', monkeypatch)
    look = look_at_gpus(root=tmp_path)
    assert problem in look.problem
    (finding,) = [
        one for one in check_alone(HostFacts(gpus=look, shm_free_bytes=1 << 40)) if one.check == "gpu"
    ]
    assert (finding.state, finding.failure) == ("bad", "gpu")


def test_a_program_that_hangs_is_given_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _program(tmp_path, "exec sleep 600", monkeypatch)
    begun = time.monotonic()
    assert "does not answer within 0.3 s" in look_at_gpus(patience_s=0.3, root=tmp_path).problem
    assert time.monotonic() - begun < 60


def test_gpus_that_the_kernel_lists_and_the_driver_does_not_are_missing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Method: of three cards one answers, and one belongs to somebody else: its device may not be opened."""
    for number, bus in enumerate(("0000:1b:00.0", "0000:1c:00.0", "0000:1d:00.0")):
        folder = tmp_path / "proc/driver/nvidia/gpus" / bus
        folder.mkdir(parents=True)
        (folder / "information").write_text(f"GPU UUID: \t GPU-{number + 3}\nDevice Minor: \t {number}\n")
        if number < 2:
            (tmp_path / "dev").mkdir(exist_ok=True)
            (tmp_path / f"dev/nvidia{number}").touch()
    (tmp_path / "said").write_text(NEW)
    _program(tmp_path, f"cat {tmp_path}/said", monkeypatch)
    assert look_at_gpus(root=tmp_path).problem == "1 of 2 GPUs answer: not GPU-4"


def test_errors_of_the_hardware_are_told_from_those_of_programs() -> None:
    lines = [
        "6,1,5000000,-;NVRM: Xid (PCI:0000:1b:00): 79, pid='<unknown>', name=<unknown>, GPU has fallen off the bus.",
        "4,2,6000000,-;NVRM: Xid (PCI:0000:1C:00): 31, pid=4711, name=python, Ch 00000010, MMU Fault",
        "4,3,7000000,-;NVRM: Xid (PCI:0000:1c:00): 13, Graphics SM Warp Exception",
        "6,4,8000000,-;usb 1-1: new device",
        "torn",
    ]
    xids = kernel_log.parsed(lines)
    assert [(xid.code, xid.bus, xid.at_s, xid.is_of_hardware) for xid in xids] == [
        (79, "0000:1b:00", 5.0, True),
        (31, "0000:1c:00", 6.0, False),
        (13, "0000:1c:00", 7.0, False),
    ]
    facts = HostFacts(xids=tuple(xids), up_s=100.0, shm_free_bytes=1 << 40, boot="b")
    (finding,) = check_alone(facts)
    assert (finding.check, finding.state, finding.failure) == ("ecc", "bad", "xid")
    old = HostFacts(xids=tuple(xids), up_s=1e6, shm_free_bytes=1 << 40)
    assert [one.state for one in check_alone(old)] == ["odd"]


def test_a_log_that_may_not_be_read_is_unknown_and_not_empty(tmp_path: Path) -> None:
    assert kernel_log.read_xids(tmp_path / "missing") is None
    (tmp_path / "log").write_text("6,1,5000000,-;NVRM: Xid (PCI:0000:1b:00): 48, pid=1\n")
    assert kernel_log.read_xids(tmp_path / "log") is not None


def _program(folder: Path, text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    program = folder / "bin/nvidia-smi"
    program.parent.mkdir()
    program.write_text(f"#!/bin/sh\n{text}\n")
    program.chmod(program.stat().st_mode | stat.S_IXUSR)
    monkeypatch.setenv("PATH", f"{program.parent}:{os.environ['PATH']}")
