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
        (r"(b+1)^2", '<msup><mo stretchy="false">)</mo><mn>2</mn></msup>'),
        (r"\left(b\right)^2", "<msup><mrow><mo>(</mo><mi>b</mi><mo>)</mo></mrow><mn>2</mn></msup>"),
        (r"2 \ln i", '<mspace width="0.17em" /><mi>ln</mi><mspace width="0.17em" /><mi>i</mi>'),
        (r"+ \ln(i)", '<mo>+</mo><mi>ln</mi><mo stretchy="false">(</mo>'),
        (r"\delta'", "<mi>δ</mi><mo>\N{PRIME}</mo>"),
    ],
)
def test_a_formula(formulas, latex, shown):
    assert shown in tostring(formulas.mathml(latex), encoding="unicode")


def test_every_formula_of_the_package_is_understood(formulas):
    found = [
        latex
        for path in PACKAGE.rglob("*.py")
        for latex in re.findall(formulas.FORMULA, path.read_text())
        + re.findall(r"\.\. math::(.+?)\n\n", path.read_text(), re.DOTALL)
    ]
    assert len(found) > 215
    for latex in found:
        formulas.mathml(latex)


def test_what_is_not_understood_stops_the_build(formulas):
    with pytest.raises(PluginError, match="nothinglikethis"):
        formulas.mathml(r"\nothinglikethis{x}")


def test_in_a_text(formulas):
    html = markdown.markdown("At most :math:`x^2`, not `:math:`.", extensions=[formulas.Formulas()])
    assert '<span class="formula"><math><msup>' in html
    assert "<code>:math:</code>" in html


def test_on_lines_of_its_own(formulas):
    text = "Hence\n\n.. math:: x =\n    \\frac{1}{n}\n\nfor all n."
    html = markdown.markdown(text, extensions=[formulas.Formulas()])
    assert '<math display="block"><mi>x</mi><mo>=</mo><mfrac>' in html
    assert html.startswith("<p>Hence</p>")
    assert html.endswith("<p>for all n.</p>")


def test_no_formula_of_the_site_is_left_as_it_was_typed(site):
    for page in site.rglob("*.html"):
        assert not re.search(r"\.\. math::|\\frac|\\ln", page.read_text()), page
