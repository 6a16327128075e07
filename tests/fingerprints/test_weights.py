import copy
import pickle
import subprocess
import sys
import warnings

import pytest
import torch
from torch import nn
from torch_holdout._fingerprints.weights import weights_fingerprint
from torch_holdout.errors import InvalidArgumentError

from support.builders.tensors import quantised


def identity(model, version=""):
    found = weights_fingerprint(model, version)
    return found.query(found.lanes.tolist())


def network():
    generator = torch.Generator().manual_seed(0)
    model = nn.Sequential(nn.Linear(7, 50), nn.BatchNorm1d(50), nn.ReLU(), nn.Linear(50, 50))
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.copy_(torch.randn(parameter.shape, generator=generator))
    return model


def change(edit):
    model = network()
    with torch.no_grad():
        edit(model)
    return identity(model)


def permute_rows(model):
    model[3].weight.copy_(model[3].weight.flip(0))


def swap_two(model):
    weight = model[0].weight
    weight[0, 0], weight[0, 1] = weight[0, 1].clone(), weight[0, 0].clone()


def transpose(model):
    model[3].weight.copy_(model[3].weight.t().clone())


def negate(model):
    model[0].weight.neg_()


def negate_pair(model):
    model[0].weight[0, 0:2].neg_()


def one_ulp(model):
    weight = model[3].weight
    weight[17, 3] = torch.nextafter(weight[17, 3], torch.tensor(10.0))


def minus_zero(model):
    model[1].running_mean[3] = -0.0


def running_mean(model):
    model[1].running_mean[0] += 1e-6


def batches_tracked(model):
    model[1].num_batches_tracked += 1


def swap_tensors(model):
    one, other = model[1].weight.clone(), model[1].bias.clone()
    model[1].weight.copy_(other), model[1].bias.copy_(one)


def move_value(model):
    model[1].weight[0] += 1
    model[1].weight[1] -= 1


EDITS = [
    permute_rows,
    swap_two,
    transpose,
    negate,
    negate_pair,
    one_ulp,
    minus_zero,
    running_mean,
    batches_tracked,
    swap_tensors,
    move_value,
]


@pytest.mark.parametrize("edit", EDITS, ids=lambda edit: edit.__name__)
def test_every_change_is_another_query(edit):
    assert change(edit) != identity(network())


def test_all_changes_differ_from_each_other():
    assert len({change(edit) for edit in EDITS}) == len(EDITS)


def test_constant_tensors_of_different_value_or_length_differ():
    found = set()
    for size in (1, 2, 1023, 1024, 1025, 2048, 300_000):
        for value in (0.0, 1.0, -1.0):
            model = nn.Module()
            model.register_buffer("b", torch.full((size,), value), persistent=False)
            found.add(identity(model))
    assert len(found) == 21


def test_a_single_bit_anywhere_matters():
    """Every bit position of words in the first, a middle and the last row."""
    base = torch.zeros(3000, dtype=torch.int32)
    found = {identity(buffered(base))}
    for position in (0, 1500, 2999):
        for bit in range(31):
            changed = base.clone()
            changed[position] = 1 << bit
            found.add(identity(buffered(changed)))
    assert len(found) == 1 + 3 * 31


def buffered(tensor):
    model = nn.Module()
    model.register_buffer("b", tensor)
    return model


@pytest.mark.parametrize(
    "dtype",
    [
        torch.float64,
        torch.float16,
        torch.bfloat16,
        torch.bool,
        torch.uint8,
        torch.int64,
        torch.complex64,
        torch.float8_e4m3fn,
    ],
)
def test_every_dtype_is_read_bit_by_bit(dtype):
    values = torch.tensor([0, 1, 0, 1, 1, 0, 1]).to(dtype)
    other = torch.tensor([1, 0, 0, 1, 1, 0, 1]).to(dtype)
    assert identity(buffered(values)) == identity(buffered(values.clone()))
    assert identity(buffered(values)) != identity(buffered(other))


def test_dtype_shape_and_name_matter():
    flat = torch.zeros(6)
    variants = [
        buffered(flat),
        buffered(flat.view(2, 3)),
        buffered(torch.zeros(6, dtype=torch.int32)),
    ]
    renamed = nn.Module()
    renamed.register_buffer("c", flat)
    parameter = nn.Module()
    parameter.b = nn.Parameter(flat)
    assert len({identity(m) for m in [*variants, renamed, parameter]}) == 5


def test_views_offsets_and_memory_formats_read_the_same_values():
    values = torch.arange(24, dtype=torch.float16)
    whole = torch.cat([torch.zeros(1, dtype=torch.float16), values])
    assert identity(buffered(whole[1:])) == identity(buffered(values))
    image = torch.randn(2, 3, 4, 5)
    channels_last = image.to(memory_format=torch.channels_last)
    assert identity(buffered(image)) == identity(buffered(channels_last))


def test_the_same_weights_are_the_same_query_everywhere():
    model = network()
    reference = identity(model)
    reloaded = network()
    reloaded.load_state_dict(copy.deepcopy(model.state_dict()))
    same = [
        copy.deepcopy(model),
        pickle.loads(pickle.dumps(model)),
        reloaded,
        torch.compile(model),
        model.eval(),
    ]
    assert {identity(m) for m in same} == {reference}
    code = (
        "import sys; sys.path[:0] = {path!r}\n"
        "from test_weights import network, identity; print(identity(network()))"
    ).format(path=[p for p in sys.path if p] + [__file__.rsplit("/", 1)[0]])
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout.strip() == reference


def test_what_is_not_in_the_weights_matters_too():
    assert identity(nn.Sequential(nn.Dropout(0.1))) != identity(nn.Sequential(nn.Dropout(0.2)))
    assert identity(network(), "a") != identity(network(), "b")
    strided = [nn.Conv1d(1, 1, 3, stride=s) for s in (1, 2)]
    strided[1].load_state_dict(strided[0].state_dict())
    assert identity(strided[0]) != identity(strided[1])


def test_hyperparameters_matter():
    from lightning.pytorch import LightningModule

    class Net(LightningModule):
        def __init__(self, temperature):
            super().__init__()
            self.save_hyperparameters()

    assert identity(Net(1.0)) == identity(Net(1.0))
    assert identity(Net(1.0)) != identity(Net(2.0))


def test_random_pairs_do_not_collide():
    generator = torch.Generator().manual_seed(3)
    found = {identity(buffered(torch.randn(33, generator=generator))) for _ in range(2000)}
    assert len(found) == 2000


def test_weights_without_data_are_refused():
    with pytest.raises(InvalidArgumentError, match="lazy"):
        identity(nn.Sequential(nn.LazyLinear(3)))
    with pytest.raises(InvalidArgumentError, match="weight"):
        identity(nn.Linear(2, 2, device="meta"))


@pytest.mark.parametrize(
    "buffer",
    [torch.eye(3).to_sparse(), quantised()],
    ids=["sparse", "quantised"],
)
def test_weights_that_are_not_dense_are_refused(buffer):
    with pytest.raises(InvalidArgumentError, match="dense"):
        identity(buffered(buffer))


def test_lazily_conjugated_weights_are_read_as_they_are():
    values = torch.tensor([1 + 2j, 3 - 4j])
    assert identity(buffered(values.conj())) == identity(buffered(values.conj().resolve_conj()))
    assert identity(buffered(values.conj())) != identity(buffered(values))


def test_compiled_parts_and_data_parallel_wrappers_do_not_matter():
    model = network()
    reference = identity(model)
    assert identity(nn.DataParallel(model)) == reference
    model[0] = torch.compile(model[0])
    assert identity(model) == reference


def test_fabrics_wrapper_does_not_matter_also_inside_a_model():
    fabric = pytest.importorskip("lightning.fabric").Fabric(accelerator="cpu", devices=1)
    model, whole = network(), nn.ModuleDict({"part": network()})
    reference, of_whole = identity(model), identity(whole)
    for wrapped in (model, torch.compile(model)):
        assert identity(fabric.setup(wrapped)) == reference
    assert identity(torch.compile(fabric.setup(model))) == reference
    whole["part"] = nn.DataParallel(fabric.setup(whole["part"]))
    assert identity(whole) == of_whole


@pytest.mark.parametrize("precision", ["no", "bf16"])
def test_accelerates_forward_does_not_matter(precision):
    accelerate = pytest.importorskip("accelerate")
    model = network()
    reference = identity(model)
    accelerator = accelerate.Accelerator(cpu=True, mixed_precision=precision)
    prepared = accelerator.prepare(model)
    assert ("forward" in vars(prepared)) == (precision == "bf16")
    assert identity(prepared) == reference
    assert identity(accelerator.unwrap_model(prepared, keep_fp32_wrapper=False)) == reference
    accelerate.state.AcceleratorState._reset_state(reset_partial_state=True)


def test_twin_with_a_forward_of_ones_own_is_another_model():
    model = network()
    reference = identity(model)
    model.forward = lambda x: x
    assert identity(model) != reference


def test_a_script_module_has_an_identity():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        scripted = torch.jit.script(nn.Linear(2, 2))
    assert identity(scripted) == identity(scripted)


def test_hyperparameters_are_told_apart_by_content():
    model = nn.Linear(2, 2)
    found = set()
    long = torch.arange(5000)
    for hparams in (
        {"w": long},
        {"w": long + (long == 2500)},
        {"t": torch.tensor(0.1)},
        {"t": torch.tensor(0.10001)},
        {"s": {"a", "b"}},
        {"s": {"a", "c"}},
    ):
        model.hparams = hparams
        found.add(identity(model))
    assert len(found) == 6


def test_settings_that_torch_layers_do_not_print_matter():
    def built(make):
        with torch.random.fork_rng():
            torch.manual_seed(0)
            return identity(make())

    found = [
        built(lambda: nn.MultiheadAttention(16, 2)),
        built(lambda: nn.MultiheadAttention(16, 4)),
        built(lambda: nn.TransformerEncoderLayer(16, 2, 8, norm_first=True)),
        built(lambda: nn.TransformerEncoderLayer(16, 2, 8)),
        built(lambda: nn.TransformerEncoderLayer(16, 2, 8, activation="gelu")),
    ]
    assert len(set(found)) == 5
    assert built(lambda: nn.MultiheadAttention(16, 2)) == found[0]


def test_a_model_without_weights_has_an_identity():
    assert identity(nn.ReLU()) != identity(nn.GELU())
