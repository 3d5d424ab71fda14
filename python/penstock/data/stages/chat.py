"""Chat: conversations to tokens with a template, and which of the tokens count in the loss."""

from collections.abc import Mapping
from dataclasses import dataclass
from dataclasses import field as dataclass_field
from datetime import date
from pathlib import Path
from typing import Any, ClassVar

from penstock._rust import digest
from penstock.data.recipe.names import check_name
from penstock.data.stages.tokenize import check_special_in_text, check_tokenizer
from penstock.errors import RecipeInvalid, UsageError
from penstock.registry.tokenize.special_tokens import InText, SpecialUse, TokenizerFile
from penstock.registry.tokenize.template import find_template


@dataclass(frozen=True)
class Chat:
    """Turns a field of messages into tokens; what the named roles say counts in the loss, the rest does not."""

    kind: ClassVar[str] = "chat"
    #: Path of a ``tokenizer.json``.
    tokenizer: str
    #: A Jinja template, or the path of one; without it the one beside the tokenizer.
    template: str = ""
    #: A list of ``{role, content, …}``, or JSON text of one.
    field: str = "messages"
    #: Roles whose turns count in the loss. A template that marks them itself (``{% generation %}``) overrides them.
    train_on: tuple[str, ...] = ("assistant",)
    #: The field with the tools of the conversation, if there is one.
    tools: str = ""
    #: What day it is for a template that asks, as 2024-07-26.
    date: str = ""
    #: Further values that the template uses, such as ``enable_thinking``.
    variables: Mapping[str, Any] = dataclass_field(default_factory=dict)
    #: What becomes of a special token that anybody but the model spells: characters like any others, the token, or an error.
    special_in_text: InText = "plain"

    def __post_init__(self) -> None:
        check_tokenizer(self.tokenizer)
        check_special_in_text(self.special_in_text)
        check_name("field", self.field)
        check_name("tools", self.tools, may_be_empty=True)
        if not isinstance(self.variables, Mapping):
            reason, hint = (
                f"must be a table, got {self.variables!r:.100}",
                "variables = { enable_thinking = false }",
            )
            raise RecipeInvalid(field="variables", reason=reason, hint=hint)
        if isinstance(self.train_on, str | Mapping) or not all(
            isinstance(role, str) for role in self.train_on
        ):
            hint = 'train_on = ["assistant"]'
            raise RecipeInvalid(
                field="train_on", reason=f"must be names of roles, got {self.train_on!r:.100}", hint=hint
            )
        object.__setattr__(self, "train_on", tuple(sorted(set(self.train_on))))
        object.__setattr__(self, "variables", dict(self.variables))
        if self.date not in ("", None):
            try:
                date.fromisoformat(self.date)
            except (TypeError, ValueError) as reason:
                raise RecipeInvalid(
                    field="date", reason=f"must be a date, got {self.date!r:.50}", hint='"2024-07-26"'
                ) from reason
        try:
            find_template(Path(self.tokenizer), self.template)
        except UsageError as reason:
            raise RecipeInvalid(field="template", reason=str(reason), hint=reason.hint) from reason

    def document(self) -> dict[str, Any]:
        """By the content of tokenizer and template, not their names."""
        template = find_template(Path(self.tokenizer), self.template)
        file = TokenizerFile(self.tokenizer)
        specials = SpecialUse(in_text=self.special_in_text).identity(spellable=bool(file.special_tokens))
        document: dict[str, Any] = {
            "kind": self.kind,
            "tokenizer": file.digest,
            "template": digest(template.text.encode()),
            "field": self.field,
            "train_on": self.train_on,
        }
        extra = {"tools": self.tools, "date": self.date, "variables": {**template.words, **self.variables}}
        return document | specials | {name: value for name, value in extra.items() if value}
