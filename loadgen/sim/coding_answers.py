"""What the simulated model says to the coding problems it knows: text only, written as a thinking model writes.

Each has drafts in the reasoning (one of them wrong or broken off, with its own code fence) and, after them, an
answer with one complete program. The choice between openings and closings belongs to `answers`.
"""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class CodingAnswer:
    """`reasoning` comes before the end of thinking; `answer` holds the program; `closings` may follow it."""

    reasoning: str
    answer: str
    closings: tuple[str, ...]


IS_PALINDROME = CodingAnswer(
    reasoning="""The user wants a function is_palindrome(s). Let me think about what counts as a palindrome here. \
The usual reading is that upper and lower case are the same and that spaces and punctuation do not count, as in \
"A man, a plan, a canal: Panama". So the plain comparison is not enough.

A first draft:

```python
def is_palindrome(s):
    return s == s[::-1]
```

That fails for "Aba" because of the capital letter, and for anything with a comma. So I need to normalise first. \
Something like:

```python
def is_palindrome(s):
    cleaned = [c for c in s if c.isalnum()
    return cleaned == cleaned[::-1]
```

Wait, there is a bracket missing in that one, and it still does not lower the case. Let me write it properly in \
the answer: keep the characters for which isalnum() is true, lower them, compare with the reverse.

Check the edge cases: the empty string gives an empty list, and an empty list equals its own reverse, so True. A \
single character is True. Only punctuation, such as ".,": nothing is left, so True as well. "race a car" becomes \
"raceacar", whose reverse is "racaecar", so False. Digits: "0P" becomes "0p" against "p0", so False. Good.

Two pointers would save the copy, but the input is a short string and the slice is clearer.
""",
    answer="""Here is a version that ignores case and everything that is not a letter or a digit:

```python
def is_palindrome(s):
    cleaned = [c.lower() for c in s if c.isalnum()]
    return cleaned == cleaned[::-1]
```
""",
    closings=(
        "\nIt runs in linear time, and the empty string counts as a palindrome.\n",
        '\nFor example:\n\n```python\nprint(is_palindrome("A man, a plan, a canal: Panama"))  # True\n```\n',
    ),
)

FIB = CodingAnswer(
    reasoning="""I need fib(n). First the convention: fib(0) = 0 and fib(1) = 1, so the sequence is \
0, 1, 1, 2, 3, 5, 8, 13, and fib(10) = 55.

The textbook version is recursive:

```python
def fib(n):
    if n <= 1:
        return 1
    return fib(n - 1) + fib(n - 2)
```

Two things are wrong with it. It returns 1 for n = 0, which breaks the convention, and it takes exponential time: \
fib(35) would already need some thirty million calls. If a test asks for fib(90) it never comes back.

Memoising would repair the time, but deep recursion hits the limit near n = 1000. An iterative pair is simpler: \
start with a, b = 0, 1 and n times replace them by b, a + b; then a is the answer.

```python
def fib(n):
    a, b = 0, 1
    while n > 0
        a, b = b, a + b
```

I forgot the colon and never count down; a for loop over range(n) is cleaner. Trace it for n = 5: (0,1) (1,1) (1,2) \
(2,3) (3,5) (5,8), so a = 5 after five rounds. Correct. For n = 0 the loop does not run and a = 0. For n = 1 one \
round gives a = 1. Python's integers do not overflow, so fib(200) works too.

The closed formula with the golden ratio loses precision after about n = 70, so no.
""",
    answer="""An iterative solution, linear in `n` and exact for large values:

```python
def fib(n):
    a, b = 0, 1
    for _ in range(n):
        a, b = b, a + b
    return a
```
""",
    closings=(
        "\nIt uses constant memory, and `fib(0)` is 0 and `fib(1)` is 1 by definition.\n",
        "\nUsage:\n\n```python\nprint([fib(n) for n in range(10)])  # [0, 1, 1, 2, 3, 5, 8, 13, 21, 34]\n```\n",
    ),
)

MERGE_SORTED = CodingAnswer(
    reasoning="""The task is merge_sorted(a, b): both lists are already sorted, and the result must be one sorted list. \
The lazy answer is sorted(a + b), which is correct but does not use that they are sorted. The expected answer is \
the merge step of merge sort with two indices.

Draft:

```python
def merge_sorted(a, b):
    result = []
    i = j = 0
    while i < len(a) and j < len(b):
        if a[i] < b[j]:
            result.append(a[i])
            i += 1
        else:
            result.append(b[j])
            j += 1
    return result
```

This loses the tail. With a = [1, 2, 9] and b = [3] the loop ends when b is used up, and the 9 never gets in. I \
have to add what is left of both; at most one of them is not empty, so extending by both slices is fine.

Also stability: for equal elements the one from a should come first, so the comparison should be <= and not <. \
For numbers nobody will see the difference, but it costs nothing.

Edge cases: either list empty gives the other one, as a copy. Both empty gives []. Duplicates are kept: [1, 1] and \
[1] give [1, 1, 1]. Negative numbers need no care. The inputs must not be changed, so no pop(0), which would be \
quadratic as well.
""",
    answer="""The standard two-index merge does it in a single pass:

```python
def merge_sorted(a, b):
    result = []
    i = j = 0
    while i < len(a) and j < len(b):
        if a[i] <= b[j]:
            result.append(a[i])
            i += 1
        else:
            result.append(b[j])
            j += 1
    result.extend(a[i:])
    result.extend(b[j:])
    return result
```
""",
    closings=(
        "\nIt takes O(len(a) + len(b)) time, is stable, and leaves both inputs as they were.\n",
        "\nExample:\n\n```python\nprint(merge_sorted([1, 3, 5], [2, 4]))  # [1, 2, 3, 4, 5]\n```\n",
    ),
)

WORD_COUNT = CodingAnswer(
    reasoning="""We need word_count(text), which returns how often each word occurs. What is a word? The statement says \
lower-cased and split on whitespace, so punctuation stays attached: "end." and "end" are different words. I should \
not be clever and strip it.

A first try:

```python
def word_count(text):
    counts = {}
    for word in text.split(" "):
        counts[word] += 1
    return counts
```

Two bugs. counts[word] += 1 raises KeyError for a word that is new, and split(" ") makes empty strings when there \
are two blanks in a row, and it does not split on newlines or tabs at all. With split() and no argument all runs of \
whitespace are one separator, and the empty text gives no words.

Next: lower the case once for the whole text, before the split. "The the THE" must give {"the": 3}.

collections.Counter would do it in one line, and a Counter is a dict, so equality with a plain dict holds:

```python
from collections import Counter

def word_count(text):
    return Counter(text.lower().split()
```

There is a bracket missing here, and I would rather return a plain dict, so that printing it looks as expected. \
The get method with a default of 0 is simple enough.

Edge cases: "" gives {}; only blanks gives {}; tabs and newlines separate words.
""",
    answer="""This counts lower-cased words, separated by any whitespace:

```python
def word_count(text):
    counts = {}
    for word in text.lower().split():
        counts[word] = counts.get(word, 0) + 1
    return counts
```
""",
    closings=(
        "\nPunctuation is left attached to its word, as the task only speaks of whitespace.\n",
        '\nExample:\n\n```python\nprint(word_count("To be or not to be")["be"])  # 2\n```\n',
    ),
)

GCD = CodingAnswer(
    reasoning="""gcd(a, b) for non-negative integers, with gcd(0, 0) defined as 0. Euclid's algorithm is the way. The \
subtraction version first:

```python
def gcd(a, b):
    while a != b:
        if a > b:
            a -= b
        else:
            b -= a
    return a
```

With b = 0 and a = 5 this never ends: a > b, a becomes 5 - 0 = 5 again. It is slow as well: gcd(1, 10**9) would take \
a billion rounds. So use the remainder instead.

The recursive form is short:

```python
def gcd(a, b):
    return gcd(b, a % b)
```

but without a base case it divides by zero at the end. The base case is b == 0, then the answer is a. As a loop: while \
b is not zero, replace (a, b) by (b, a % b), and return a.

Check: gcd(12, 18): (12,18) (18,12) (12,6) (6,0), so 6. The order of the arguments does not matter, since the first \
round swaps them if a < b. gcd(7, 0) = 7 with no round at all. gcd(0, 7): (0,7) (7,0), so 7. gcd(0, 0) = 0, as \
wanted. gcd(17, 13): (17,13) (13,4) (4,1) (1,0), so 1.

The number of rounds is logarithmic, since the remainder at least halves every two rounds. math.gcd exists, but the \
user asks for the function itself, so I write it out.
""",
    answer="""Euclid's algorithm with remainders:

```python
def gcd(a, b):
    while b:
        a, b = b, a % b
    return a
```
""",
    closings=(
        "\nIt needs a logarithmic number of steps, and `gcd(0, 0)` is 0.\n",
        "\nFor instance:\n\n```python\nprint(gcd(48, 36))  # 12\n```\n",
    ),
)

BY_FUNCTION = {
    "is_palindrome": IS_PALINDROME,
    "fib": FIB,
    "merge_sorted": MERGE_SORTED,
    "word_count": WORD_COUNT,
    "gcd": GCD,
}
