"""`sgl_kernel.speculative`, in plain torch."""

from torch import Tensor


def reconstruct_indices_from_tree_mask(
    tree_mask: Tensor,
    verified_seq_len: Tensor,
    positions: Tensor,
    retrieve_index: Tensor,
    retrieve_next_token: Tensor,
    retrieve_next_sibling: Tensor,
    batch_size: int,
    draft_token_num: int,
) -> None:
    """Finds position, first child and next sibling of every draft, from who may look at whom (-1: there is none)."""
    masks = tree_mask.view(batch_size, draft_token_num, draft_token_num).bool().tolist()
    for row, mask in enumerate(masks):
        base = row * draft_token_num
        ancestors = [[j for j in range(i) if mask[i][j]] for i in range(draft_token_num)]
        parent = [above[-1] if above else -1 for above in ancestors]
        for i in range(draft_token_num):
            later = range(i + 1, draft_token_num)
            positions[base + i] = len(ancestors[i]) + int(verified_seq_len[row])
            retrieve_index[row, i] = base + i
            retrieve_next_token[row, i] = next((k for k in later if parent[k] == i), -1)
            retrieve_next_sibling[row, i] = next((k for k in later if parent[k] == parent[i] != -1), -1)
