"""Every kind of mistake that lint looks for, one file for what is looked at together."""

from penstock.view.lint.checks.attention import (
    AttentionLeak,
    BoundariesDisagree,
    PositionsConstant,
    PositionsJump,
    PositionsNotReset,
)
from penstock.view.lint.checks.boundary import (
    DoubledSpecial,
    EndOfText,
    MissingSpecial,
    MixedBoundaries,
    SpecialInside,
)
from penstock.view.lint.checks.contamination import Contamination
from penstock.view.lint.checks.conversation import RenderedChats, Roles, TurnEnds
from penstock.view.lint.checks.copies import Copies, RepeatedSample, RepetitiveText
from penstock.view.lint.checks.document_text import (
    BinaryText,
    ControlCharacters,
    LostCase,
    MarkupLeft,
    Mojibake,
    ReplacedCharacters,
    WhitespaceRuns,
)
from penstock.view.lint.checks.loss import (
    EndUnlearned,
    LabelsMoved,
    LossOnPadding,
    LossOnPlaceholder,
    LossOnPrompt,
    RowWithoutLoss,
)
from penstock.view.lint.checks.mixture import DominatingSource, SameSource
from penstock.view.lint.checks.size import EmptyDocuments, MostlyPadding, TinyDocuments, TruncatedShare
from penstock.view.lint.checks.token_numbers import OutsideVocabulary, UnknownTokens, WrongTokenizer
from penstock.view.lint.finding import Check

CHECKS: tuple[type[Check], ...] = (
    LossOnPadding,
    LossOnPlaceholder,
    LossOnPrompt,
    RowWithoutLoss,
    EndUnlearned,
    LabelsMoved,
    AttentionLeak,
    PositionsNotReset,
    PositionsJump,
    PositionsConstant,
    BoundariesDisagree,
    DoubledSpecial,
    MissingSpecial,
    EndOfText,
    SpecialInside,
    MixedBoundaries,
    OutsideVocabulary,
    UnknownTokens,
    WrongTokenizer,
    RepeatedSample,
    Copies,
    RepetitiveText,
    Contamination,
    TruncatedShare,
    TinyDocuments,
    EmptyDocuments,
    MostlyPadding,
    DominatingSource,
    SameSource,
    Mojibake,
    ReplacedCharacters,
    ControlCharacters,
    WhitespaceRuns,
    BinaryText,
    MarkupLeft,
    LostCase,
    RenderedChats,
    TurnEnds,
    Roles,
)
