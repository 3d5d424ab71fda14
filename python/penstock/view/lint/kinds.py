"""Every kind of mistake that lint finds: what is wrong, and what to do about it. The guide's table is this one."""

from typing import NamedTuple


class Kind(NamedTuple):
    """A kind of mistake."""

    meaning: str
    hint: str


KINDS = {
    "loss-on-padding": Kind(
        "padding counts in the loss, declared or not",
        "mask labels where attention_mask is 0, or pack instead of padding",
    ),
    "loss-on-placeholder": Kind(
        "the place of an image, a sound or a film counts in the loss",
        "mask the placeholders in the labels",
    ),
    "loss-on-prompt": Kind(
        "what somebody else than the model says counts in the loss",
        "only what the model is to say may count: check the mask, or {% generation %}",
    ),
    "row-without-loss": Kind(
        "no token of a row counts; an error where that is half of the rows",
        "prompts longer than a row, or a mask that covers everything; filter such rows out",
    ),
    "end-not-learned": Kind(
        "the token that ends texts or turns is there, but never counts",
        "a collator that masks pad tokens masks the end too where both are one token; in a template, put the end of the turn inside {% generation %}",
    ),
    "labels-shifted": Kind(
        "labels stand two places ahead of their token, or one behind it",
        "shift once: in the collator or in the model, not in both",
    ),
    "labels-differ": Kind(
        "labels are not the tokens of the batch at any place",
        "labels are made of something else than the tokens: of another batch, or before padding",
    ),
    "attention-leak": Kind(
        "a document begins inside the segment of another one",
        "give attention the boundaries of documents: segments, or cu_seqlens",
    ),
    "positions-not-reset": Kind(
        "a document does not begin at position 0",
        "positions begin at 0 with each document",
    ),
    "positions-jump": Kind(
        "positions do not go up one by one inside of a document",
        "positions follow the tokens of a document",
    ),
    "positions-constant": Kind(
        "all tokens stand at the same position",
        "positions were never filled in",
    ),
    "boundaries-disagree": Kind(
        "`cu_seqlens` are not where positions or segments begin",
        "make cu_seqlens of the same lengths as segments and positions",
    ),
    "doubled-special": Kind(
        "the token that begins or ends documents stands twice in a row",
        "the tokenizer adds it and so does the template, or the text has it already",
    ),
    "missing-special": Kind(
        "a document lacks the token that all documents should begin or end with",
        "every document begins and ends alike: check what adds the special tokens",
    ),
    "no-end-of-text": Kind(
        "no document of a source ends with the token that ends texts; an error where rows join documents",
        'add the token that ends texts: Tokenize(…, eos="auto"); without it a model never learns to stop',
    ),
    "special-inside": Kind(
        "a token that begins, ends or fills up texts stands in the middle of a document",
        'the text spells control tokens: special_in_text="plain", or filter such documents out',
    ),
    "mixed-specials": Kind(
        "documents of one source begin with a special token, those of another do not",
        "make all sources begin their documents alike: Tokenize(…, bos=…)",
    ),
    "outside-vocabulary": Kind(
        "a number that the tokenizer does not have",
        "the tokens are another tokenizer's, or were stored in a type that is too small",
    ),
    "unknown-tokens": Kind(
        "the tokenizer has no word for much of the text",
        "this tokenizer does not fit the text: another language, another alphabet, or casing",
    ),
    "byte-fallback": Kind(
        "most of the text is one token for each byte",
        "this tokenizer has no words for the text, which costs three to four times the tokens",
    ),
    "wrong-tokenizer": Kind(
        "stored tokens are not what the tokenizer makes of their text",
        "find the tokenizer that made these tokens, or tokenise again",
    ),
    "repeated-sample": Kind(
        "the same tokens of the same sample come twice in one epoch",
        "workers or ranks that read the same data, or one batch again and again",
    ),
    "duplicate-documents": Kind(
        "documents are copies of others, or one document is there many times",
        "deduplicate before registering; a source that should count more gets a weight or epochs",
    ),
    "near-duplicates": Kind(
        "documents share most of their text with another one",
        "deduplicate by shingles (MinHash) before registering",
    ),
    "boilerplate": Kind(
        "much of the text stands in a fifth of all documents",
        "cut headers, footers, licences and menus off before registering",
    ),
    "repetitive-text": Kind(
        "documents say the same over and over",
        "filter out documents whose n-grams repeat (Gopher's rules), or runs of one token",
    ),
    "contamination": Kind(
        "texts of the version that `--against` names are learned",
        "remove these documents from training, or do not report results on that test set",
    ),
    "truncated": Kind(
        "more documents were cut short than `--max-truncated` allows",
        "raise the limit, split long documents, or allow more with --max-truncated",
    ),
    "tiny-documents": Kind(
        "many documents have hardly a token, among others that are long",
        'filter them out, such as Filter("len(text) > 20"), or mend what made them',
    ),
    "empty-documents": Kind(
        "samples have no token at all",
        'filter them out: Filter("len(text) > 0"), or mend what made them',
    ),
    "mostly-padding": Kind(
        "three quarters of the work is padding",
        'pack documents together: Pack(…, policy="fit"), or choose a shorter row',
    ),
    "dominating-source": Kind(
        "a source's share of the loss passes its weight by more than `--max-dominance`",
        "change its weight, or pack the others: rows that are short count less",
    ),
    "same-source": Kind(
        "two sources read the same files in the same way",
        "drop one of them and give the other its weight: as it is, it is read twice",
    ),
    "mojibake": Kind(
        "UTF-8 was read as Latin-1 or Windows-1252",
        "the text was decoded with the wrong encoding; decode it again as UTF-8",
    ),
    "replacement-characters": Kind(
        "characters were lost (U+FFFD)",
        "bytes were thrown away when the text was decoded; go back to the bytes",
    ),
    "control-characters": Kind(
        "text has control characters",
        "binary files among the text, or escapes of a terminal; filter them out",
    ),
    "whitespace-runs": Kind(
        "text is full of spaces or empty lines",
        "collapse runs of spaces and empty lines before registering",
    ),
    "binary-text": Kind(
        "base64 or hexadecimal data takes up documents",
        "cut out embedded images and archives (data: URLs, keys, weights)",
    ),
    "markup": Kind(
        "HTML that should have been text",
        "extract the text of pages (trafilatura, resiliparse) before registering",
    ),
    "lost-case": Kind(
        "not one capital, or nothing but capitals, although the tokenizer knows both",
        "something made all letters small (or large); undo it unless the model is to see no case",
    ),
    "chat-as-text": Kind(
        "conversations are plain text to the recipe, so prompts count like answers",
        "keep messages and use a Chat stage: then only what the assistant says counts",
    ),
    "no-end-of-turn": Kind(
        "no special token ends what the assistant says",
        "end each turn of the template with a special token (eos_token, <|im_end|>)",
    ),
    "empty-answers": Kind(
        "the assistant says nothing",
        "filter out conversations whose answers are empty",
    ),
    "answers-cut": Kind(
        "the end of a row cuts answers off",
        'use Pack(…, policy="fit") or longer rows: what is cut off is learned without its prompt',
    ),
    "roles-swapped": Kind(
        "conversations begin with the assistant and end with the user, or the assistant asks the questions",
        "user and assistant are the wrong way round; map the roles before the Chat stage",
    ),
    "double-template": Kind(
        "contents hold the headers of a template already",
        "contents hold a rendered conversation already: give raw messages, or Tokenize the text",
    ),
    "special-in-answer": Kind(
        "what the assistant says spells a special token",
        "an answer that spells a control token ends early; remove it from the content",
    ),
}
