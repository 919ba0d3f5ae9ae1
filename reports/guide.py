"""Sentences that explain: what each check says of a number, and how the report is read."""

# What each check says of a number, gravest first. Names not in here are shown without an explanation.
CHECKS = {
    "accounting": "Requests, tokens or moments do not add up: the harness or the server contradicts itself.",
    "config_mismatch": "The server does not run with the settings asked for: the numbers belong to another config.",
    "queue_measured": "The server runs fewer requests at once than were in flight: its queue was measured.",
    "cache_contaminated": "Prompt tokens came from the prefix cache: time to first token and rates look too good.",
    "shared_cores": "The load workers shared their cores: times may be late, and rates low.",
    "client_limited": "The load generator itself was late, busy or near its ceiling: the numbers may show its limit.",
    "shared_reads": "Many events were read together with later ones: gaps between chunks are less sure than they look.",
    "stamps_user_space": "The kernel stamped no arrivals: times are when the client read, not when the bytes came.",
    "simulated_server_late": "The simulated server could not keep its own clock: the numbers show this machine's limit.",
    "errors": "Requests failed: the latency figures describe only those that did not.",
    "tokens_unknown": "The server did not count all tokens: rates are unknown or rest on a part of the requests.",
    "tokens_spread": "The server gives no running token count: totals are right, when each token came is estimated.",
    "below_target_concurrency": "Fewer streams were in flight than the cell says.",
    "behind_schedule": "Requests of an open loop went out late: the server met another arrival process than was planned.",
    "not_stationary": "The load had not settled before the window opened: part of its start is in the numbers.",
    "prompt_length_off": "By the server's count, the prompts were not as long as the cell says.",
    "output_length_off": "The answers were not as long as asked for: rates are not comparable with other cells.",
    "window_short": "The measurement window was short: one slow request weighs too much.",
    "few_samples": "Too few requests: the high percentiles say little.",
    "answers_truncated": "Answers hit max_tokens: their programs were not judged, and are not counted as wrong.",
    "restarted": "The server had to be started again: repeats may come from different lives of it.",
}

READING = {
    "output tok/s": "counts the tokens that arrived inside the measurement window, over its length, for all streams "
    "together. The server counts the tokens; reasoning tokens are among them.",
    "window": "is the part of a cell after warm-up and before drain; latencies are of the requests sent in it that "
    "ended well, and never stand without the error rate.",
    "per stream": "is what one user sees: a request's output tokens over its whole time, prefill included; the mean "
    "over requests.",
    "server's time": "is real time on a real server, and real time x clock on a simulated one. Latencies are taken "
    "at the client's network read.",
    "repeats": "are summed up by their median; the range is the smallest and largest of them. The error rate is "
    "that of the worst repeat, n the requests of all.",
    "marks": "! a stated doubt, named above; fail: no repeat gave a number; -: not there or not comparable; "
    "?: unknown, which is never 0.",
    "grades": "speak of programs: TRUNC (cut by max_tokens), NONE (no program), UNGRADED and ERROR are never counted "
    "as wrong.",
    "not measured": "by this report: the quality of a model beyond a handful of problems, power, "
    "and the network between a user and the server.",
}
