import math

import numpy as np
import pytest
import torch

import overt
from overt.errors import InputError
from overt.lens import compare
from overt.lens.analysis.comparison import jensen_shannon
from readable import alike, all_weights_by_hand, recorded, sequence, stack


def divergence_by_hand(p, q):
    """½ KL(p ‖ m) + ½ KL(q ‖ m), written as the sums they are."""
    middle = (p + q) / 2
    return 0.5 * (p * np.log(p / middle)).sum(-1) + 0.5 * (q * np.log(q / middle)).sum(-1)


def test_equal_recordings_are_no_distance_apart():
    model, x = stack(), sequence()
    result = compare(recorded(model, x), recorded(model, x))
    assert [each.distance for each in result.heads] == [0.0] * 12


def test_a_heads_distance_is_the_mean_divergence_of_its_rows():
    one, other = stack(), stack()
    for weight in other.parameters():
        weight.data *= 1.5
    x = sequence()
    result = compare(recorded(one, x), recorded(other, x))
    pairs = zip(all_weights_by_hand(one, x), all_weights_by_hand(other, x), strict=True)
    expected = np.concatenate([divergence_by_hand(p, q).mean((0, 2)) for p, q in pairs])
    alike(torch.tensor([each.distance for each in result.heads]), expected)
    assert [(each.number, each.head) for each in result.heads] == [(layer, head) for layer in range(3) for head in range(4)]


def test_the_distance_is_the_same_both_ways():
    one, other = recorded(stack(), sequence()), recorded(stack(), sequence(seed=9))
    there, back = compare(one, other), compare(other, one)
    alike(torch.tensor([each.distance for each in there.heads]), [each.distance for each in back.heads])


def test_weights_with_no_key_in_common_are_log_2_apart():
    assert float(jensen_shannon(torch.tensor([1.0, 0, 0]), torch.tensor([0, 0.5, 0.5]))) == pytest.approx(math.log(2), rel=1e-6)


def test_the_furthest_heads_come_first_and_are_printed():
    one, other = stack(), stack()
    other[2].project.weight.data *= 3
    result = compare(recorded(one, sequence()), recorded(other, sequence()))
    assert {each.number for each in result.largest(4)} == {2}
    assert "12 heads, on average" in str(result)
    assert "the recordings have no tokens, so only lengths were compared" in str(result)


def test_a_query_that_may_attend_to_nothing_does_not_count():
    class Barred(torch.nn.Module):
        def forward(self, x):
            return overt.attend(x, x, x, mask=overt.masks.Dense(torch.tensor([[False, False], [True, True]])))

    one, other = (recorded(Barred(), torch.randn(1, 1, 2, 4, generator=torch.Generator().manual_seed(s))) for s in (0, 1))
    expected = divergence_by_hand(one[0, 0].weights()[0, 1].double().numpy(), other[0, 0].weights()[0, 1].double().numpy())
    assert compare(one, other).heads[0].distance == pytest.approx(float(expected), rel=1e-5)


def test_other_tokens_are_refused():
    one = recorded(stack(), sequence(1), key_tokens=list("abcdefg"))
    other = recorded(stack(), sequence(1), key_tokens=list("abcxefg"))
    with pytest.raises(InputError, match="for the keys of 0, got 'd' and 'x' at token 3 of sequence 0"):
        compare(one, other)


def test_other_lengths_are_refused():
    with pytest.raises(InputError, match="call 0: 2 × 4 heads of 7 queries and 7 keys and 2 × 4 heads of 6 queries and 6 keys"):
        compare(recorded(stack(), sequence()), recorded(stack(), sequence(length=6)))


def test_other_numbers_of_layers_are_refused():
    with pytest.raises(InputError, match="got call 2: 2 × 4 heads of 7 queries and 7 keys and none"):
        compare(recorded(stack(), sequence()), recorded(stack(layers=2), sequence()))


def test_a_negative_weight_is_as_far_from_a_positive_one_as_from_one_on_another_key():
    class Single(torch.nn.Module):
        def forward(self, x, sign):
            return overt.attend(
                x, x, x, mask=overt.masks.Window(0, 0), normalizer=lambda scores, allowed: sign * allowed.float()
            )

    x = torch.randn(1, 1, 5, 4, generator=torch.Generator().manual_seed(0))
    one, other = (recorded(Single(), x, sign) for sign in (1.0, -1.0))
    assert compare(one, one).heads[0].distance == 0
    assert compare(one, other).heads[0].distance == pytest.approx(math.log(2))
