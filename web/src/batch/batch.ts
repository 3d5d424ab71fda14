// A batch as pages use it: facts, and columns over its tokens in the order of rows.

import { addressOf, fetchBytes, type Question } from "../ask";
import { Malformed } from "../wire/check";
import type { RecordBatchFacts, SourceFacts, TokenBatchHead } from "../wire/types";
import { unpack, type Numbers } from "./packed";

/** In the column `source`, for tokens that come from nowhere. */
export const NO_SOURCE = 0xffff;
/** What a token is; the numbers of the column `kinds`, named by the server. */
export const KINDS = ["text", "special", "partial", "invisible", "padding", "unknown", "number"] as const;
/** A token with a meaning of its own, such as an end of text. */
export const SPECIAL = 1;
/** A token whose bytes are no whole characters. */
export const PARTIAL = 2;
/** Shown for a token that continues the character of one before it. */
export const CONTINUED = "◂";
/** A token that fills a row up. */
export const PADDING = 4;
/** Columns that have a place of their own in `TokenBatch`; the others are numeric ones of the recipe. */
const COLUMNS = new Set(["tokens", "segments", "positions", "loss_mask", "sources", "kinds", "text", "text_ends"]);

export interface Documents {
  readonly row: Numbers;
  readonly at: Numbers;
  readonly stop: Numbers;
  readonly source: Numbers;
  readonly sample: Numbers;
  readonly start: Numbers;
  readonly epoch: Numbers;
}

export interface TokenBatch {
  readonly facts: TokenBatchHead;
  readonly sources: readonly SourceFacts[];
  /** First row of the window, and how many it has. */
  readonly firstRow: number;
  readonly rows: number;
  readonly length: number;
  readonly ids: Numbers;
  readonly kinds: Numbers;
  readonly segments: Numbers;
  readonly positions: Numbers;
  readonly mask: Numbers;
  readonly source: Numbers;
  readonly numeric: ReadonlyMap<string, Numbers>;
  readonly text: Uint8Array;
  readonly ends: Numbers;
  readonly documents: Documents;
  /** What is not here, in words. */
  readonly cuts: readonly string[];
}

/** Records have no columns: they are asked for by page. */
export interface RecordBatch {
  readonly facts: RecordBatchFacts;
}

export type Batch = { readonly kind: "tokens"; readonly batch: TokenBatch } | { readonly kind: "records"; readonly batch: RecordBatch };

/** What of a batch is asked for, beside its address. */
export interface Part {
  /** Some rows. */
  readonly rows?: string | null;
  /** What the loop of a run shows of its own arrays. */
  readonly tap?: string | null;
  /** The exact bytes of characters that several tokens share, instead of the characters. */
  readonly bytes?: boolean;
}

/** A batch is asked for as packed columns instead of JSON. */
export function batchQuestion(address: string, part: Part = {}): Question<Batch> {
  const where = addressOf("batch", { address, rows: part.rows ?? null, tap: part.tap ?? null, bytes: part.bytes === true ? 1 : null });
  const ask = async (signal: AbortSignal) => {
    performance.mark("batch-asked");
    const data = await fetchBytes(where, signal);
    performance.mark("batch-data");
    return readBatch(data);
  };
  return { address: where, ask };
}

export function readBatch(data: ArrayBuffer): Batch {
  const { facts, columns } = unpack(data);
  if (facts.kind === "records") return { kind: "records", batch: { facts } };
  const [first = 0, stop = 0] = facts.window.rows;
  const rows = stop - first;
  const need = (name: string): Numbers => {
    const column = columns.get(name);
    if (column === undefined) throw new Malformed(`the batch lacks the column ${name}`);
    return column;
  };
  const ids = need("tokens");
  const blank = new Uint8Array(ids.length);
  const documents = (["row", "at", "stop", "source", "sample", "start", "epoch"] as const).map((name) => [name, need(`document_${name}`)] as const);
  return {
    kind: "tokens",
    batch: {
      facts,
      sources: facts.sources,
      firstRow: first,
      rows,
      length: rows === 0 ? 0 : ids.length / rows,
      ids,
      kinds: need("kinds"),
      segments: columns.get("segments") ?? blank,
      positions: columns.get("positions") ?? blank,
      mask: columns.get("loss_mask") ?? blank,
      source: need("sources"),
      numeric: new Map([...columns].filter(([name]) => !COLUMNS.has(name) && !name.startsWith("document_"))),
      text: need("text") as Uint8Array,
      ends: need("text_ends"),
      documents: Object.fromEntries(documents) as unknown as Documents,
      cuts: facts.window.cuts,
    },
  };
}

/** Kept: making one for every token takes longer than decoding it. */
const DECODER = new TextDecoder();

/** The display text of the token at an index. */
export function textOf(batch: TokenBatch, index: number): string {
  const begin = index === 0 ? 0 : (batch.ends[index - 1] ?? 0);
  return DECODER.decode(batch.text.subarray(begin, batch.ends[index]));
}

/** The number of the document that a token is of, or -1. */
export function documentAt(batch: TokenBatch, row: number, token: number): number {
  const { documents } = batch;
  for (let at = 0; at < documents.row.length; at++) {
    if (documents.row[at] === row && (documents.at[at] ?? 0) <= token && token < (documents.stop[at] ?? 0)) return at;
  }
  return -1;
}
