"""The kernels that NGRAM speculation calls on a CPU, in plain torch: slow, and right for chains of drafts.

Names and arguments are those of SGLang's call sites (`sglang/kernels/ops`, 0.5.23). Results are written into tensors
that the caller passes, as its kernels do.
"""

from collections.abc import Iterator

from torch import Tensor, equal


def _ranges(start: Tensor, end: Tensor) -> Iterator[tuple[int, int, int]]:
    """(row, start, end) of each request."""
    for row, bounds in enumerate(zip(start.tolist(), end.tolist(), strict=True)):
        yield row, *bounds


def assign_extend_cache_locs_cpu(
    req_pool_indices: Tensor,
    req_to_token: Tensor,
    start: Tensor,
    end: Tensor,
    out_cache_loc: Tensor,
    pool_len: int,
) -> None:
    """Packs the cache slots [start, end) of each request one after the other into `out_cache_loc`."""
    at = 0
    for row, first, last in _ranges(start, end):
        slots = req_to_token[req_pool_indices[row], first:last]
        out_cache_loc[at : at + len(slots)] = slots.to(out_cache_loc.dtype)
        at += len(slots)


def assign_req_to_token_pool_cpu(
    req_pool_indices: Tensor,
    req_to_token: Tensor,
    start: Tensor,
    end: Tensor,
    out_cache_loc: Tensor,
    pool_len: int,
) -> None:
    """The reverse: gives each request the next of the packed slots for its positions [start, end)."""
    at = 0
    for row, first, last in _ranges(start, end):
        slots = out_cache_loc[at : at + last - first]
        req_to_token[req_pool_indices[row], first:last] = slots.to(req_to_token.dtype)
        at += last - first


def copy_all_layer_kv_cache_cpu(data_ptrs: Tensor, strides: Tensor, target: Tensor, source: Tensor) -> None:
    """Moves the cache of accepted drafts to where the next step expects it. In a chain it is already there."""
    if not equal(target, source):
        raise NotImplementedError("drafts that form a tree (breadth above 1) need a real kernel")


def fill_accept_out_cache_loc_cpu(
    accept_index: Tensor, out_cache_loc: Tensor, accept_out_cache_loc: Tensor
) -> None:
    """Packs the slots of accepted drafts; an index of -1 is a draft that was not accepted."""
    accepted = accept_index.reshape(-1)
    accepted = accepted[accepted > -1].long()
    accept_out_cache_loc[: len(accepted)] = out_cache_loc[accepted].to(accept_out_cache_loc.dtype)


def fill_bonus_tokens_cpu(
    accept_tokens: Tensor, accept_lens: Tensor, bonus_tokens: Tensor, stride: int
) -> None:
    """The last accepted token of each request: the one that the model itself added."""
    flat = accept_tokens.reshape(-1)
    for row, length in enumerate(accept_lens.tolist()):
        bonus_tokens[row] = flat[row * stride + length - 1]


def verify_tree_greedy_cpu(
    *,
    predicts: Tensor,
    accept_index: Tensor,
    accept_token_num: Tensor,
    candidates: Tensor,
    retrive_index: Tensor,
    retrive_next_token: Tensor,
    retrive_next_sibling: Tensor,
    target_predict: Tensor,
) -> None:
    """Walks each request's drafts as long as they are what the model says, and adds the model's next token."""
    target = target_predict.reshape(-1).tolist()
    for row, drafts in enumerate(candidates.tolist()):
        positions = retrive_index[row].tolist()
        child = retrive_next_token[row].tolist()
        sibling = retrive_next_sibling[row].tolist()
        accepted = [positions[0]]
        node = 0
        while len(accepted) < accept_index.shape[1]:
            node = child[node]
            while node != -1 and drafts[node] != target[accepted[-1]]:
                node = sibling[node]
            if node == -1:
                break
            accepted.append(positions[node])
        for step, position in enumerate(accepted):
            accept_index[row, step] = position
            predicts[position] = target[position]
        accept_token_num[row] = len(accepted) - 1
