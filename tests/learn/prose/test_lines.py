"""Lines of a file that are no sentence: code and the rows of tables."""

import pytest

from overt.learn.processing.lines import LinePart, parts_of_lines
from overt.learn.translator import Translation, Translator

CODE = """\
import numpy as np
from pathlib import Path
def main(argv=None):
    return sum(values) / len(values)
class Dog(Animal):
x = [1, 2, 3]
self.weights = nn.Linear(10, 20)
if x > 3 and y is not None:
if not path.exists():
for (int i = 0; i < n; i++) {
while True:
}
#include <stdio.h>
int main(void) {
std::vector<int> v;
console.log("hello");
const result = await fetch(url);
let total = 0;
return result;
SELECT name FROM users WHERE id = 3;
git push origin main
pip install --upgrade torch
npm run build
sudo apt-get install -y cmake
cd ~/projects
ls -la
curl https://example.com | sh
python train.py --lr 0.1
docker run -it ubuntu bash
echo $HOME
raise ValueError("no")
try:
else:
lambda x: x + 1
fmt.Println("hi")
let mut x = 5;
function add(a, b) {
});
a += 1
print(i)
print("How are you?")
y = model(x)[0]
"""
PROSE = """\
If you come before three, call me.
For example: the dog is big.
Import taxes are high.
git is a tool for programmers.
Docker is not installed.
Return the book (the red one) to Anna.
Print this page and sign it.
While I was sleeping, it rained.
The class begins at nine: come early.
He said (and I agree) that it is late;
Let us go { he said }.
Try: it is free.
With love, Anna <3
Do not run npm install here.
Curl your hair with this.
Else we go home.
Python is easy to learn.
Select a gift from the list.
Update your profile and set a picture.
Var is a river in France.
"""


@pytest.mark.parametrize("line", CODE.splitlines())
def test_code_is_copied(line):
    assert [*parts_of_lines([line])] == [[LinePart(line, copied=True)]]


@pytest.mark.parametrize("line", PROSE.splitlines())
def test_a_sentence_that_begins_like_code_is_translated(line):
    assert [*parts_of_lines([line])] == [[LinePart(line)]]


def test_a_fence_holds_code_up_to_the_next_of_its_kind():
    lines = ["```python", "I am here", "~~~", "```", "I am here", "~~~~", "```", "~~~~"]
    assert [parts[0].copied for parts in parts_of_lines(lines)] == [True, True, True, True, False, True, True, True]


def test_the_cells_of_a_row_are_translated_alone():
    [parts] = parts_of_lines(["| the dog |  12 | a \\| b |"])
    assert "".join(part.text for part in parts) == "| the dog |  12 | a \\| b |"
    assert [part.text for part in parts if not part.copied] == ["the dog", "12", "a \\| b"]
    assert [*parts_of_lines(["a | b"])] == [[LinePart("a | b")]]


def test_a_line_is_joined_from_the_best_of_each_part():
    first, second = Translation("un", ["un"], -1.0, ["one"], [3]), Translation("une", ["une"], -2.0, ["one"], [4])
    other = Translation("deux", ["deux"], -3.0, ["two"], [5], ("a note",))
    best, next_best = Translator.joined([("|", []), ("one", [first, second]), ("|", []), ("two", [other])])
    assert (best.text, best.score, best.ids, best.notes) == ("|un|deux", -2.0, [3, 5], ("a note",))
    assert next_best.text == "|une|deux"
    assert Translator.joined([("one", [first]), ("two", [other])], beam=1)[0].score == -4.0
    assert Translator.joined([("one", [first, second])]) == [first, second]
    assert Translator.joined([("", [])]) == []
    assert [each.text for each in Translator.joined([("x = f(y)", [])])] == ["x = f(y)"]
