"""Which methods there are: those of users and of installed packages beside those of this one."""

import sys
from dataclasses import dataclass, make_dataclass, replace

import pytest

from ogspr.agents import methods
from ogspr.agents.methods import METHODS, MethodEntry, method_named, method_with_preset, register
from ogspr.errors import UserError
from tests.helpers.trajectories import ROOT


@dataclass(frozen=True)
class MineConfig:
    batch_size: int = 4
    random_steps: int = 1
    tolerated_failures: int = 1
    longest_horizon = 1


@dataclass(frozen=True)
class OtherConfig(MineConfig):
    pass


MINE = MethodEntry("mine", MineConfig, ("mine", "mine-small"), lambda *_: MineConfig(), lambda: None)
OTHER = MethodEntry("other", OtherConfig, ("other",), lambda *_: OtherConfig(), lambda: None)


@pytest.fixture(autouse=True)
def forgotten(monkeypatch):
    """What this file registers and installs."""
    monkeypatch.setattr(methods, "_registered", {})
    methods._installed.cache_clear()
    yield
    monkeypatch.undo()
    methods._installed.cache_clear()


@pytest.fixture
def install(tmp_path, monkeypatch):
    """Puts a package that offers a method on Python's path."""

    def install(package, name, code, value="METHOD"):
        module = package.replace("-", "_")
        monkeypatch.delitem(sys.modules, module, raising=False)  # of another test
        (tmp_path / f"{module}.py").write_text(code)
        about = tmp_path / f"{module}-1.dist-info"
        about.mkdir()
        (about / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {package}\nVersion: 1\n")
        (about / "entry_points.txt").write_text(f"[ogspr.methods]\n{name} = {module}:{value}\n")
        monkeypatch.syspath_prepend(tmp_path)
        monkeypatch.syspath_prepend(ROOT)

    return install


GOOD = "from tests.agents.test_methods import MINE as METHOD"
BROKEN = "import no_such_library"


# --- installed packages -------------------------------------------------------------------------


def test_a_method_of_an_installed_package_is_there(install):
    install("mine-package", "mine", GOOD)
    assert method_with_preset("mine-small").name == method_named("mine", "a run").name == "mine"
    assert not methods.unusable_methods()


def test_a_package_that_cannot_be_imported_breaks_only_its_own_method(install, ogspr_here):
    install("good-package", "mine", GOOD)
    install("broken-package", "broken", BROKEN)
    assert set(methods.methods()) == {*METHODS, "mine"}
    done = ogspr_here("train", "--help")
    assert (done.returncode, done.stderr) == (0, "")
    complaint = r"a run needs a method that fails: .* the package broken-package .*no_such_library.*uninstall"
    with pytest.raises(UserError, match=complaint) as error:
        method_named("broken", "a run")
    assert len(str(error.value).splitlines()) == 1
    done = ogspr_here("train", "dmc:walker-walk", "--preset", "broken")
    assert done.returncode == 2
    first, second = done.stderr.splitlines()
    assert "unknown preset 'broken'" in first
    assert "the package broken-package cannot be used: ModuleNotFoundError" in second


def test_doctor_warns_of_a_method_that_cannot_be_used(install):
    from ogspr.commands.doctor import examine

    install("broken-package", "broken", BROKEN)
    found = next(finding for finding in examine() if finding.subject == "methods")
    assert found.status == "warn"
    assert "broken-package" in found.detail


def test_an_installed_method_does_not_take_the_place_of_one_of_this_package(install):
    code = f"{GOOD}\nfrom dataclasses import replace\nMETHOD = replace(METHOD, name='mrq')"
    install("greedy-package", "mrq", code)
    assert methods.methods() == METHODS
    assert "greedy-package" in methods.unusable_methods()["mrq"]
    assert "called mrq already" in methods.unusable_methods()["mrq"]


def test_a_preset_of_an_installed_method_does_not_take_the_place_of_another(install):
    code = f"{GOOD}\nfrom dataclasses import replace\nMETHOD = replace(METHOD, presets=('drqv2',))"
    install("greedy-package", "mine", code)
    assert methods.methods() == METHODS
    assert "called drqv2 already" in methods.unusable_methods()["mine"]


def test_an_entry_point_that_is_no_method_is_told(install):
    install("odd-package", "odd", "METHOD = 3")
    with pytest.raises(
        UserError, match=r"odd-package cannot be used: expected an ogspr\.MethodEntry, got 3;"
    ):
        method_named("odd", "a run")


def test_an_own_method_does_not_take_the_place_of_an_installed_one(install):
    install("mine-package", "mine", GOOD)
    with pytest.raises(UserError, match="called mine already"):
        register(replace(OTHER, name="mine"))
    register(MINE)  # what the package offers, named with --method


# --- methods of one's own -----------------------------------------------------------------------


def test_a_method_may_be_registered_again():
    register(MINE)
    again = make_dataclass("MineConfig", [], bases=(MineConfig,), frozen=True)  # as a cell that is run again
    register(replace(MINE, config=again))
    assert method_named("mine", "a run").config is again
    register(OTHER)


@pytest.mark.parametrize("missing", ["random_steps", "batch_size", "longest_horizon", "tolerated_failures"])
def test_a_configuration_without_what_everybody_asks_for_is_refused(missing):
    names = {"random_steps", "batch_size", "longest_horizon", "tolerated_failures"} - {missing}
    kind = make_dataclass("Bare", [(name, int, 1) for name in sorted(names)], frozen=True)
    refused(replace(MINE, config=kind), f"Bare must also have {missing};")


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        ({"presets": ()}, r"mine needs one or more presets, got \(\)"),
        ({"presets": "mine"}, "mine needs one or more presets, got 'mine'"),
        ({"presets": ("mine", "small")}, "small is a preset of this package"),
        ({"name": "small"}, "small is a preset of this package"),
        ({"name": "mrq"}, "called mrq already"),
        ({"name": "ogspr-sp"}, "called ogspr-sp already"),
        ({"presets": ("mrq",)}, "called mrq already"),
        ({"config": METHODS["mrq"].config}, "has the configuration of mrq, MRQConfig"),
        ({"config": MINE}, "must be a frozen dataclass"),
        ({"config": make_dataclass("Loose", [])}, "Loose, must be a frozen dataclass"),
        ({"config": make_dataclass("Full", ["x"], frozen=True)}, "whose fields all have defaults"),
    ],
)
def test_what_cannot_be_a_method_is_refused(change, complaint):
    refused(replace(MINE, **change), complaint)


def refused(entry, complaint):
    with pytest.raises(UserError, match=complaint) as error:
        register(entry)
    assert len(str(error.value).splitlines()) == 1
    assert not methods._registered


def test_of_several_names_that_are_taken_the_first_is_told():
    for _ in range(10):
        refused(replace(MINE, presets=("ogspr-sp", "as-written", "ogspr")), "called ogspr-sp already")


def test_an_unknown_preset_is_answered_with_all_there_are():
    many = tuple(f"mine-{number}" for number in range(30))
    register(replace(MINE, presets=many))
    with pytest.raises(UserError) as error:
        method_with_preset("xyzxyz")
    assert all(name in str(error.value) for name in (*many, "ogspr", "drqv2", "small"))


def test_the_help_of_train_names_the_presets_of_a_method_of_ones_own(ogspr_here):
    done = ogspr_here("train", "--method", "tests.agents.test_methods:MINE", "--help", COLUMNS="200")
    about = done.stdout.partition("--preset")[2].partition("--seeds")[0]
    assert "mine-small" in about
