"""Where the loss goes: how many tokens of a batch count, by source, by kind of token and, for conversations, by role."""

from collections import Counter
from typing import Any

import numpy as np

from penstock.view.model.tokens.batch import BatchView
from penstock.view.model.tokens.documents import NO_SOURCE
from penstock.view.model.tokens.samples import Samples
from penstock.view.model.tokens.vocabulary import KIND_NAMES
from penstock.view.wire.batch_answers import RoleBudget, RoleShare

#: Samples whose roles are looked at, at most; rendering a conversation takes a millisecond or so.
SAMPLES_MAX = 256


def budget(view: BatchView) -> dict[str, Any]:
    """Tokens, and those of them that count in the loss, of the whole batch, of each source and of each kind."""
    window = view.window()
    mask = np.asarray(view.arrays["loss_mask"]) != 0
    sources, kinds = window.columns["sources"], window.columns["kinds"]
    by_source = [
        {"source": source.alias, "tokens": int((sources == n).sum()), "loss": int(mask[sources == n].sum())}
        for n, source in enumerate(view.sources)
    ]
    by_kind = [
        {"kind": name, "tokens": int((kinds == n).sum()), "loss": int(mask[kinds == n].sum())}
        for n, name in enumerate(KIND_NAMES)
        if (kinds == n).any()
    ]
    return {
        "tokens": int(mask.size),
        "loss": int(mask.sum()),
        "padding": int((sources == NO_SOURCE).sum()),
        "by_source": by_source,
        "by_kind": by_kind,
    }


def budget_by_role(view: BatchView, samples: Samples, *, samples_max: int = SAMPLES_MAX) -> RoleBudget:
    """Tokens and loss by the role that says them, for conversations; says how many documents were looked at."""
    tokens: Counter[str] = Counter()
    loss: Counter[str] = Counter()
    looked = left = 0
    mask = np.asarray(view.arrays["loss_mask"])
    for row in range(view.rows):
        for document in view.documents.of_row(row):
            if not samples.has_roles(document.source):
                continue
            if looked == samples_max:
                left += 1
                continue
            looked += 1
            roles = samples.roles(document)[document.start : document.start + document.stop - document.at]
            for role, counts in zip(roles, mask[row, document.at : document.stop].tolist(), strict=False):
                tokens[role] += 1
                loss[role] += int(bool(counts))
    shares: list[RoleShare] = [
        {"role": role, "tokens": count, "loss": loss[role]} for role, count in tokens.most_common()
    ]
    cut = f"{left:,} documents of {looked + left:,} were not looked at" if left else ""
    return {"by_role": shares, "documents": looked, "cut": cut}
