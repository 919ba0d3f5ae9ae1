"""Multi-turn conversations: what is asked after an answer. Pure data; whoever drives the load supplies the answers.

Conversation c of N turns has the request indexes c * N to c * N + N - 1. Its first turn is an ordinary prompt with the
conversation's salt; each later one sends everything said before, with the model's real answers, and a new text.
"""

from collections.abc import Callable, Sequence

from loadgen.prompts.bodies import LoadPrompts, Parts
from loadgen.prompts.datasets import Message


class Conversations:
    """`later(conversation, turn)` is what the user says in a turn from 1 on; None when the conversation is over."""

    def __init__(
        self, prompts: LoadPrompts, turns: int, later: Callable[[int, int], str | None], think_time_s: float
    ) -> None:
        self._prompts = prompts
        self._later = later
        self.turns = turns
        self.think_time_s = think_time_s

    def index(self, conversation: int, turn: int) -> int:
        """The request's index."""
        return conversation * self.turns + turn

    def has_turn(self, conversation: int, turn: int) -> bool:
        """Whether the conversation goes on to this turn. One of a dataset may end before the others."""
        return turn == 0 or (turn < self.turns and self._later(conversation, turn) is not None)

    def user_text(self, conversation: int, turn: int) -> str:
        """What the user says in this turn, salt included."""
        if turn == 0:
            return self._prompts.messages(conversation)[-1].content
        text = self._later(conversation, turn)
        assert text is not None, "has_turn says whether there is one"
        return text

    def first_body(self, conversation: int) -> Parts:
        """The pieces of the first turn's request."""
        return self._prompts.parts(conversation)

    def next_body(self, conversation: int, turn: int, earlier: Sequence[tuple[str, str]]) -> Parts:
        """The pieces of the request of a turn from 1 on; `earlier` holds (user, answer) of each turn before it.

        The first turn's bytes are those that were sent before, so that the server finds its own prefix again.
        """
        assert len(earlier) == turn
        said = [Message("assistant", earlier[0][1])]
        for user, answer in earlier[1:]:
            said += [Message("user", user), Message("assistant", answer)]
        said.append(Message("user", self.user_text(conversation, turn)))
        return (*self._prompts.open_parts(conversation), self._prompts.close(said))
