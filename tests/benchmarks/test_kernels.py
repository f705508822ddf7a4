import csv

import pytest

from benchmarks.commands import Kernels
from benchmarks.kernels import Kernel, covered
from ogspr.errors import UserError
from tests.benchmarks.reports import measured


def traced(out=None, **options):
    return measured(Kernels(**({"batch_size": 2, "updates": 1} | options)), out)


def test_without_a_gpu_the_operations_of_an_update_are_listed(tmp_path):
    path = tmp_path / "kernels.csv"
    trace, text = traced(path)
    rows = list(csv.DictReader(path.open()))
    assert [row["kernel"] for row in rows] == [kernel.kernel for kernel in trace.kernels]
    assert {"aten::mm", "aten::addmm", "aten::convolution_backward"} <= {row["kernel"] for row in rows}
    times = [float(row["microseconds"]) for row in rows]
    assert times == sorted(times, reverse=True)
    sums = trace.by_kind()
    assert sum(kernel.microseconds for kernel in sums.values()) == pytest.approx(sum(times), rel=1e-3)
    assert {"product", "convolution"} <= set(sums)
    assert "ms per update of every learner" in text and "busy" not in text


def test_twice_the_learners_make_twice_the_calls():
    one, two = (traced(learners=count)[0].by_kind()["product"].calls for count in (1, 2))
    assert two == 2 * one


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("_forward_kernel", "first layer"),
        ("_backward_kernel_0d1d", "first layer"),
        ("sm90_xmma_fprop_implicit_gemm_bf16bf16_bf16f32_f32_nhwckrsc_nhwc", "convolution"),
        ("nvjet_tst_64x64_64x16_4x1_v_bz_TNT", "product"),
        ("triton_poi_fused_elu_native_layer_norm_3", "compiled"),
        ("triton_poi_fused_convolution_elu_3", "compiled"),
        ("triton_red_fused_native_layer_norm_linear_7", "compiled"),
        ("Memcpy HtoD (Pinned -> Device)", "copy"),
        ("void at::native::reduce_kernel<512, 1>", "other"),
    ],
)
def test_kinds_of_kernels(name, kind):
    assert Kernel(name, 1.0, 1.0).kind == kind


def test_what_overlaps_is_covered_once():
    assert covered([(5.0, 7.0), (0.0, 2.0), (1.0, 3.0), (1.5, 1.6)]) == 5.0
    assert covered([]) == 0.0


def test_mistakes_are_found_before_anything_runs(tmp_path):
    with pytest.raises(UserError, match="batch size must be at least 1"):
        traced(batch_size=0)
    with pytest.raises(UserError, match=r"\.csv"):
        traced(tmp_path / "kernels.txt")


@pytest.mark.gpu
def test_on_a_gpu_the_kernels_inside_a_graph_are_seen():
    trace, text = traced(batch_size=32, updates=5)
    assert {"first layer", "convolution", "product", "compiled"} <= set(trace.by_kind())
    assert 0.0 < trace.busy <= 1.05 * trace.milliseconds
    assert "the GPU busy for" in text
