"""Can the pinned packages be installed on every supported platform, from PyPI alone? uv resolves them there."""

from __future__ import annotations

import re
import tomllib

import pytest
from packaging.specifiers import SpecifierSet

from autograder.authoring import resolve


@pytest.fixture(scope="module")
def online():
    """Skip the test where PyPI cannot be reached."""
    try:
        resolve.resolve("Linux x86-64", resolve.PYTHONS[0])
    except resolve.NoNetworkError as error:
        pytest.skip(f"Whether the pins can be installed elsewhere was not checked. {error}")


@pytest.fixture
def offline(monkeypatch, tmp_path):
    """Leave uv without a network and without what it remembers."""
    monkeypatch.setenv("HTTPS_PROXY", "http://127.0.0.1:9")
    monkeypatch.setenv("UV_CACHE_DIR", str(tmp_path / "cache"))


def with_triton(tmp_path, pin):
    """Return a copy of pyproject.toml with another pin of Triton."""
    pins = resolve.PROJECT.read_text()
    current = next(line for line in pins.split("\n") if '"triton==' in line)
    project = tmp_path / "pyproject.toml"
    project.write_text(pins.replace(current, f"    {pin!r},"))
    return project


def test_the_pins_can_be_installed_on_every_platform(online):
    for each in resolve.resolve_all():
        assert not each.conflict, f"{each.platform}, Python {each.python}: {each.conflict}"
        assert "torch" in each.packages and each.download > 5e8


def test_setup_says_how_much_is_downloaded(online):
    text = (resolve.PROJECT.parent / "lib/setup.sh").read_text()
    message = {name: float(size) * 1e9 for name, size in re.findall(r'(\w+)_download="([0-9.]+) GB"', text)}
    linux, mac = (resolve.resolve(platform, "3.12") for platform in ("Linux x86-64", "macOS arm64"))
    sizes = {"cuda": linux.download, "cpu": linux.cpu_download, "mac": mac.download}
    assert message == pytest.approx(sizes, rel=0.1)


def test_the_supported_pythons_are_those_that_pip_accepts():
    pythons = SpecifierSet(tomllib.loads(resolve.PROJECT.read_text())["project"]["requires-python"])
    assert [f"3.{minor}" for minor in range(20) if f"3.{minor}" in pythons] == list(resolve.PYTHONS)


def test_a_conflict_is_named(online, tmp_path, monkeypatch, capsys):
    project = with_triton(tmp_path, "triton==3.5.0; sys_platform == 'linux'")
    resolution = resolve.resolve("Linux x86-64", "3.11", project)
    assert "torch==2.13.0 depends on triton" in resolution.conflict
    monkeypatch.setattr(resolve, "resolve_all", lambda: [resolution])
    with pytest.raises(SystemExit) as stop:
        resolve.main()
    assert (
        "change a pin" in stop.value.code and "Linux x86-64, Python 3.11: error: No solution" in capsys.readouterr().out
    )


def test_a_package_without_a_wheel_for_a_platform_is_named(online, tmp_path):
    conflict = resolve.resolve("macOS arm64", "3.11", with_triton(tmp_path, "triton==3.7.1")).conflict
    assert "triton==3.7.1 has no wheels with a matching platform tag" in conflict


def test_pip_and_uv_as_configured_here_do_not_count(online, monkeypatch):
    monkeypatch.setenv("UV_NO_INDEX", "1")
    assert resolve.resolve("Linux x86-64", "3.11").packages


def test_without_a_network_nothing_is_said_to_be_well(offline, monkeypatch, capsys):
    monkeypatch.setattr(resolve, "PLATFORMS", {"macOS arm64": resolve.PLATFORMS["macOS arm64"]})
    monkeypatch.setattr(resolve, "PYTHONS", ("3.11",))
    with pytest.raises(SystemExit) as stop:
        resolve.main()
    assert stop.value.code == resolve.UNCHECKED and "was not checked" in capsys.readouterr().out
