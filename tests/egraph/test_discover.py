"""Laws that are found: true ones, none that follows from the others, and those that everybody knows among them."""

from __future__ import annotations

import pytest

from passlab.egraph.discover import (
    PROPERTIES,
    candidates,
    discover,
    enumerate_terms,
    follows,
    law_of,
    same_form,
    size,
    text,
)


@pytest.fixture(scope="module")
def findings():
    return discover(("transpose", "add", "matmul"), ("?x", "?y", "?z"), 2)


def known(findings, left, right):
    return follows(left, right, [finding.law for finding in findings])


def test_every_term_is_enumerated_once():
    terms = enumerate_terms(("transpose", "add"), ("?x", "?y"), 2).terms
    # 2 variables; 2 transposed and 4 sums; 6 transposed and, for each variable and term of one function, 2 sums
    assert [sum(size(term) == count for term in terms) for count in range(3)] == [2, 6, 6 + 2 * 2 * 6]
    assert len(set(terms)) == len(terms)


def test_what_everybody_knows_follows_from_what_is_found(findings):
    x, y, z = "?x", "?y", "?z"
    assert known(findings, ("add", x, y), ("add", y, x))
    assert known(findings, ("transpose", ("transpose", x)), x)
    assert known(findings, ("matmul", ("matmul", x, y), z), ("matmul", x, ("matmul", y, z)))
    assert not known(findings, ("matmul", x, y), ("matmul", y, x))


def test_all_are_true_and_none_follows_from_the_others(findings):
    laws = [finding.law for finding in findings]
    assert all(finding.proof.verdict in ("proved", "reals") for finding in findings)
    for law in laws:
        assert not follows(law.left, law.right, [other for other in laws if other is not law]), law.name


def test_everything_that_agrees_follows(findings):
    laws = [finding.law for finding in findings]
    pairs = candidates(enumerate_terms(("transpose", "add", "matmul"), ("?x", "?y", "?z"), 2))
    assert len(pairs) > len(laws)
    assert all(follows(left, right, laws) for left, right in pairs)


def test_what_taso_states_follows_from_what_is_found():
    laws = [finding.law for finding in discover()]
    assert all(follows(law.left, law.right, laws) for law in PROPERTIES)
    apart = [law for law in laws if not follows(law.left, law.right, PROPERTIES)]
    # transposed twice, and the transposed sum of two products in between: an e-graph never transposes a lone variable
    assert [law.name for law in apart] == ["(x @ y) + (z @ y) = (x + z) @ y"]
    (law,) = apart
    twice = law_of(("twice", "?x"), ("transpose", ("transpose", "?x")))
    assert follows(("twice", law.left), law.right, [*PROPERTIES, twice], rounds=8)


def test_laws_of_one_form_differ_by_names_and_sides():
    left, right = ("matmul", "?x", ("add", "?y", "?z")), ("add", ("matmul", "?x", "?y"), ("matmul", "?x", "?z"))
    law = law_of(left, right)
    assert same_form(law, law_of(right, left))
    assert same_form(
        law, law_of(("matmul", "?b", ("add", "?c", "?a")), ("add", ("matmul", "?b", "?c"), ("matmul", "?b", "?a")))
    )
    assert not same_form(law, law_of(left, ("add", ("matmul", "?x", "?z"), ("matmul", "?x", "?y"))))


def test_terms_as_one_writes_them():
    assert text(("matmul", ("add", "?x", "?y"), ("transpose", "?z"))) == "(x + y) @ zᵀ"
    assert text(("transpose", ("matmul", "?x", "?y"))) == "(x @ y)ᵀ"
    with pytest.raises(KeyError, match="twice"):
        enumerate_terms(("twice",), ("?x",), 1)
