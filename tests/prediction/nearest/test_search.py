"""The order of two records depends on the query and these two alone, bit for bit."""

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode
from torch_holdout.prediction.nearest import search
from torch_holdout.prediction.nearest.placed import placed
from torch_holdout.prediction.nearest.search import (
    MOST_DIMENSIONS,
    Searchable,
    exact_products,
    nearest_labels,
    record_weights,
    whole_numbers,
)

from support.machines.soak import soak
from support.oracles.host_reads import HostReads

CASES = range(soak(300, 24))


def case(seed):
    """Return embeddings with duplicates, multiples, near ties, zeros and what is not a number."""
    generator = torch.Generator().manual_seed(seed)
    size, d = 40 + seed % 50, (3, 16, 64, 200)[seed % 4]
    rows = torch.randn(size, d, generator=generator)
    if seed % 2:  # like histograms: all near each other
        rows = 1 + 0.05 * rows.abs()
    rows[5:10] = rows[:5]
    rows[10:15] = 3 * rows[:5]
    rows[15] = 0
    rows[16, 0] = float("nan")
    rows[20:30] = rows[20] + 1e-7 * rows[20:30]
    rows[-5:] = rows[:5]
    queries = torch.cat([rows[:4], torch.randn(9, d, generator=generator)])
    return rows, queries


def order_of(rows, queries, names=None):
    """Return the records of each query, nearest first; their labels are their names."""
    names = torch.arange(len(rows)) if names is None else names
    unnamed = [None] * len(rows)
    store = placed(whole_numbers(rows), names, unnamed, unnamed, secret=b"k", by_user=False)
    return nearest_labels(whole_numbers(queries), store.found, len(rows))


def float_order_of(rows, queries, names):
    """The twin: a plain product in single precision, and ties in the order of the names."""
    products = queries @ rows.nan_to_num().T
    return names[products.argsort(dim=1, descending=True, stable=True)]


def changed_orders(ordered, at_once):
    """Count the queries in which one removed record changed the order of the others."""
    changed = 0
    for seed in CASES:
        rows, queries = case(seed)
        names, gone = torch.arange(len(rows)), seed % len(rows)
        kept = names[names != gone]
        for some in queries.split(at_once):
            whole, part = ordered(rows, some, names), ordered(rows[kept], some, kept)
            for before, after in zip(whole, part, strict=True):
                changed += not torch.equal(before[before != gone], after)
    return changed


@pytest.mark.parametrize("at_once", [1, 13])
def test_removing_a_record_leaves_the_order_of_all_others(at_once):
    assert changed_orders(order_of, at_once) == 0


def test_twin_in_floating_point_is_caught():
    """Records that change their place in a matrix are summed in another way: last bits change."""
    assert changed_orders(float_order_of, at_once=1) > 0


def test_batches_blocks_and_threads_do_not_matter(monkeypatch):
    for seed in list(CASES)[:8]:
        rows, queries = case(seed)
        whole = order_of(rows, queries)
        assert torch.equal(torch.cat([order_of(rows, query[None]) for query in queries]), whole)
        torch.set_num_threads(2)
        assert torch.equal(order_of(rows, queries), whole)
        torch.set_num_threads(1)
        with monkeypatch.context() as small:
            small.setattr(search, "_PRODUCTS_ON_CPU", 3 * len(rows))
            small.setattr(search, "_KEYS_ON_CPU", 2 * len(rows))
            assert torch.equal(order_of(rows, queries), whole)


def test_the_order_of_adding_does_not_matter():
    """Labels, not names: records of equal content and label may change places."""
    rows, queries = case(1)
    labels = torch.arange(len(rows)) % 3
    shuffled = torch.randperm(len(rows), generator=torch.Generator().manual_seed(1))

    def listed(order):
        names = [None] * len(rows)
        codes = whole_numbers(rows[order])
        store = placed(codes, labels[order], names, names, secret=b"k", by_user=False)
        return nearest_labels(whole_numbers(queries), store.found, 30)

    assert torch.equal(listed(torch.arange(len(rows))), listed(shuffled))


def test_products_are_exact_at_any_setting_of_precision():
    generator = torch.Generator().manual_seed(3)
    shape = (50, MOST_DIMENSIONS)
    one, other = (torch.randint(-127, 128, shape, generator=generator) for _ in range(2))
    other[:5], one[:5] = 127, -127
    expected = one @ other.T
    before = torch.get_float32_matmul_precision()
    try:
        for precision in ("highest", "high", "medium"):
            torch.set_float32_matmul_precision(precision)
            with torch.autocast("cpu", dtype=torch.bfloat16):
                assert torch.equal(exact_products(one.float(), other.float()).long(), expected)
                rounded = one.float() @ other.float().T
    finally:
        torch.set_float32_matmul_precision(before)
    assert not torch.equal(rounded.long(), expected)  # the twin that autocast reaches


def test_keys_are_exact_at_the_largest_scores():
    codes = torch.full((3, MOST_DIMENSIONS), 127.0)
    codes[1], codes[2, 0] = -127.0, 126.0
    records = Searchable(codes, record_weights(codes), torch.tensor([0, 1, 2]))
    listed = nearest_labels(torch.stack([codes[0], codes[1]]), records, 4)
    assert listed.tolist() == [[0, 2, 1, -1], [1, 2, 0, -1]]


def test_nearness_is_the_angle_to_the_query():
    """To within the rounding of embeddings: a plain sort of cosines has nearly the same order."""
    generator = torch.Generator().manual_seed(5)
    rows, queries = (torch.randn(n, 32, generator=generator) for n in (500, 20))
    cosines = torch.nn.functional.normalize(queries) @ torch.nn.functional.normalize(rows).T
    nearest = cosines.topk(50, dim=1).indices
    listed = order_of(rows, queries)[:, :50].long()
    common = [len(set(a.tolist()) & set(b.tolist())) for a, b in zip(nearest, listed, strict=True)]
    assert min(common) >= 45


def test_a_user_enters_once_with_the_nearest_record():
    """Compared with a list of all records, nearest first, of which each user keeps the first."""
    generator = torch.Generator().manual_seed(7)
    for _ in range(20):
        rows, queries = (torch.randn(n, 5, generator=generator).round() for n in (40, 6))
        labels = torch.randint(3, (40,), generator=generator)
        users = torch.randint(9, (40,), generator=generator).tolist()
        codes, names = whole_numbers(rows), list(range(40))
        store = placed(codes, labels, names, users, secret=b"k", by_user=True)
        listed = nearest_labels(whole_numbers(queries), store.found, 12)
        each = Searchable(store.found.codes, store.found.weights, torch.tensor(store.ids))
        orders = nearest_labels(whole_numbers(queries), each, 40)
        for order, row in zip(orders.tolist(), listed.tolist(), strict=True):
            first = {}
            for name in order:
                first.setdefault(users[name], int(labels[name]))
            assert row == [*first.values()] + [-1] * (12 - len(first))


def test_what_is_not_finite_or_zero_is_zero():
    rows = torch.tensor(
        [[1.0, torch.inf], [torch.nan, 2.0], [0.0, 0.0], [1e-300, -2e-300]]
    ).double()
    assert whole_numbers(rows)[:3].tolist() == [[0, 0]] * 3
    tiny = torch.tensor([[1e-300, -2e-300]], dtype=torch.float64)
    assert whole_numbers(tiny).tolist() == [[64, -127]]
    assert whole_numbers(torch.tensor([[2, -4]])).tolist() == [[64, -127]]


@pytest.mark.parametrize("size", [0, 1, 5])
def test_few_records_are_padded(size):
    codes = torch.zeros(size, 3)
    records = Searchable(codes, record_weights(codes), torch.zeros(size, dtype=torch.int64))
    listed = nearest_labels(torch.zeros(2, 3), records, 5)
    assert listed.tolist() == [[0] * size + [-1] * (5 - size)] * 2


def test_nothing_is_read_back():
    rows, queries = case(2)
    codes = whole_numbers(rows)
    labels, owners = torch.arange(len(rows)), torch.arange(len(rows)) // 2
    for whose, users in ((None, 0), (owners, int(owners.max()) + 1)):
        records = Searchable(codes, record_weights(codes), labels, whose, users)
        with HostReads() as reads:
            nearest_labels(whole_numbers(queries), records, 20)
            assert reads.count == 0


def test_the_search_stays_on_the_device():
    """Fake CUDA tensors: shapes and devices are real, values are not."""
    with FakeTensorMode():
        codes = torch.empty(100, 8, device="cuda")
        labels = torch.empty(100, dtype=torch.int64, device="cuda")
        records = Searchable(codes, record_weights(codes), labels)
        listed = nearest_labels(whole_numbers(torch.empty(7, 8, device="cuda")), records, 20)
        assert (listed.device.type, listed.shape) == ("cuda", (7, 20))
