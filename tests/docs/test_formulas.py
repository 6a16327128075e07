"""Formulas become MathML; what is not understood stops the build."""

import re
from pathlib import Path
from xml.etree.ElementTree import tostring

import markdown
import pytest
import torch_holdout
from mkdocs.exceptions import PluginError

PACKAGE = Path(torch_holdout.__file__).parent


@pytest.mark.parametrize(
    ("latex", "shown"),
    [
        (r"G^b", "<msup><mi>G</mi><mi>b</mi></msup>"),
        (r"\sum_{i=1}^{m} i", "<msubsup><mo>∑</mo>"),
        (r"\frac{1}{n}", "<mfrac><mrow><mn>1</mn></mrow><mrow><mi>n</mi></mrow></mfrac>"),
        (r"\sqrt{2}", "<msqrt><mrow><mn>2</mn></mrow></msqrt>"),
        (r"e^{-t}", "<msup><mi>e</mi><mrow><mo>\N{MINUS SIGN}</mo><mi>t</mi></mrow></msup>"),
        (r"\varepsilon \le 1", "<mi>ε</mi><mo>≤</mo><mn>1</mn>"),
        (r"\mathrm{Lap}", "<mtext>Lap</mtext>"),
        (r"\binom{G}{b}", '<mfrac linethickness="0">'),
        (r"1{,}000 < 2.5", "<mn>2.5</mn>"),
    ],
)
def test_a_formula(formulas, latex, shown):
    assert shown in tostring(formulas.mathml(latex), encoding="unicode")


def test_every_formula_of_the_package_is_understood(formulas):
    found = [
        latex
        for path in PACKAGE.rglob("*.py")
        for latex in re.findall(formulas.FORMULA, path.read_text())
    ]
    assert len(found) > 200
    for latex in found:
        formulas.mathml(latex)


def test_what_is_not_understood_stops_the_build(formulas):
    with pytest.raises(PluginError, match="nothinglikethis"):
        formulas.mathml(r"\nothinglikethis{x}")


def test_in_a_text(formulas):
    html = markdown.markdown("At most :math:`x^2`, not `:math:`.", extensions=[formulas.Formulas()])
    assert '<span class="formula"><math><msup>' in html
    assert "<code>:math:</code>" in html
