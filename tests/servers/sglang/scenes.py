"""What the scripted model says: for each scene a thought and an answer, chosen by a word in the last user message.

Each coding problem is thought about like a reasoning model does it, with a wrong draft in a code fence, so that a
grader that takes the thought for the answer fails the problem. Words beyond ASCII are there to be split across tokens.
"""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Scene:
    """`word` in the last user message selects the scene; the empty word is the scene for all other messages.

    An endless answer starts again at its end and never stops by itself.
    """

    name: str
    word: str
    thought: str
    answer: str
    endless: bool = False


PALINDROME = Scene(
    "is_palindrome",
    "is_palindrome",
    """The user wants a palindrome test. A first draft:

```python
def is_palindrome(s):
    return s == s[::-1]
```

That fails for "A man, a plan": case and punctuation must not count. The naïve version is wrong, so filter first.
""",
    """Here is the function:

```python
def is_palindrome(s):
    kept = [c.lower() for c in s if c.isalnum()]
    return kept == kept[::-1]
```

It keeps letters and digits only, so “été” works as well ☕.
""",
)

FIB = Scene(
    "fib",
    "fib(",
    """Fibonacci with fib(0) = 0. A first draft:

```python
def fib(n):
    if n <= 1:
        return 1
    return fib(n - 1) + fib(n - 2)
```

No: that gives fib(0) = 1, and it is exponential. Keep two numbers and step n times — simple.
""",
    """```python
def fib(n):
    a, b = 0, 1
    for _ in range(n):
        a, b = b, a + b
    return a
```

Linear time, constant memory 🚀.
""",
)

MERGE_SORTED = Scene(
    "merge_sorted",
    "merge_sorted",
    """Two sorted lists into one. A first draft:

```python
def merge_sorted(a, b):
    return a + b
```

That is not sorted when the lists interleave. Walk both with two indices, then append the rest → done.
""",
    """The classic merge step:

```python
def merge_sorted(a, b):
    merged = []
    i = j = 0
    while i < len(a) and j < len(b):
        if a[i] <= b[j]:
            merged.append(a[i])
            i += 1
        else:
            merged.append(b[j])
            j += 1
    return merged + a[i:] + b[j:]
```

It is stable: at equal values those of `a` come first.
""",
)

WORD_COUNT = Scene(
    "word_count",
    "word_count",
    """Count words, lower-cased, split at white space. A first draft:

```python
def word_count(text):
    return {word: 1 for word in text.split(" ")}
```

That counts nothing, and split(" ") leaves empty words. Use split() and add up; 中文 needs no special care.
""",
    """```python
def word_count(text):
    counts = {}
    for word in text.lower().split():
        counts[word] = counts.get(word, 0) + 1
    return counts
```

An empty text gives an empty dictionary 😀.
""",
)

GCD = Scene(
    "gcd",
    "gcd(",
    """Euclid's algorithm. A first draft:

```python
def gcd(a, b):
    return gcd(b, a % b)
```

It never stops: at b = 0 the modulus raises ZeroDivisionError. Loop while b is not zero; gcd(0, 0) is 0 then.
""",
    """Euclid’s algorithm, as a loop:

```python
def gcd(a, b):
    while b:
        a, b = b, a % b
    return abs(a)
```

`gcd(0, 0)` is 0.
""",
)

PROSE = Scene(
    "prose",
    "",
    """The user did not ask for one of the programs I know, so a long text about rivers will do. I start at the spring,
follow the water down to the sea, and begin again when I get there. Cafés and bridges may appear on the way ☕.
""",
    """A river begins as a spring between stones, cold and so narrow that a child can step over it. Other springs join it,
and where the valley opens it is already a brook that turns the wheel of an old mill. Below the mill there is a town:
three bridges, a market on Saturdays, a café “Zur Brücke” whose tables stand almost in the water. The people there say
that the river never sounds the same on two evenings. After the town it grows slow. It carries sand, leaves, now and
then a boat; herons stand in the reeds and wait. In the plain it meanders, forgets whole loops of its old bed, and fills
them again in spring when the snow melts far away. Farmers curse it in March and praise it in July. Then come harbours,
cranes, the smell of salt — and the tide, which twice a day makes it run backwards for an hour, as if it had thought of
something it left behind in the mountains. At last there is no other bank any more. The sea takes the water, the sun
takes it from the sea, the wind carries it inland, and on the first cold slope it falls as rain between the stones.

""",
    endless=True,
)

SCENES = (PALINDROME, FIB, MERGE_SORTED, WORD_COUNT, GCD, PROSE)
