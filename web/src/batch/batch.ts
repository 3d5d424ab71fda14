// A batch as pages use it: facts, and columns over its tokens in the order of rows.

import { asFields, asList, asNumber, asText, Malformed, orNull, type Fields } from "../decode";
import { unpack, type Numbers } from "./packed";

export const NO_SOURCE = 0xffff;
/** What a token is; the numbers of the column `kinds`, named by the server. */
export const KINDS = ["text", "special", "partial", "invisible", "padding", "unknown", "number"] as const;
export const SPECIAL = 1;
/** A token whose bytes are no whole characters. */
export const PARTIAL = 2;
/** Shown for a token that continues the character of one before it. */
export const CONTINUED = "◂";
export const PADDING = 4;
const COLUMNS = new Set(["tokens", "segments", "positions", "loss_mask", "sources", "kinds", "text", "text_ends"]);

export interface SourceFacts {
  readonly alias: string;
  readonly version: string;
  readonly tokenizer: string;
}

export interface BatchFacts {
  readonly kind: string;
  readonly address: string;
  readonly command: string;
  readonly dataCommand: string;
  readonly step: number;
  readonly lane: string;
  readonly digest: string;
  readonly rows: number;
  readonly padding: number;
  readonly lossTokens: number | null;
}

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
  readonly facts: BatchFacts;
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

export interface RecordFacts {
  readonly facts: BatchFacts;
  readonly fields: readonly string[];
  readonly undecodable: readonly Fields[];
}

export type Batch = { readonly kind: "tokens"; readonly batch: TokenBatch } | { readonly kind: "records"; readonly batch: RecordFacts };

export function readBatch(data: ArrayBuffer): Batch {
  const { facts, columns } = unpack(data);
  const common = readFacts(facts);
  if (common.kind === "records") {
    const fields = asList(facts["fields"]).map(asText);
    return { kind: "records", batch: { facts: common, fields, undecodable: asList(facts["undecodable"] ?? []).map(asFields) } };
  }
  const window = asFields(facts["window"]);
  const [first, stop] = asList(window["rows"]).map(asNumber);
  const rows = (stop ?? 0) - (first ?? 0);
  const need = (name: string): Numbers => {
    const found = columns.get(name);
    if (found === undefined) throw new Malformed(`the batch lacks the column ${name}`);
    return found;
  };
  const ids = need("tokens");
  const blank = new Uint8Array(ids.length);
  const documents = (["row", "at", "stop", "source", "sample", "start", "epoch"] as const).map((name) => [name, need(`document_${name}`)] as const);
  return {
    kind: "tokens",
    batch: {
      facts: common,
      sources: asList(facts["sources"]).map(readSource),
      firstRow: first ?? 0,
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
      cuts: asList(window["cuts"]).map(asText),
    },
  };
}

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

function readFacts(facts: Fields): BatchFacts {
  return {
    kind: asText(facts["kind"]),
    address: asText(facts["address"]),
    command: asText(facts["command"]),
    dataCommand: asText(facts["data_command"]),
    step: asNumber(facts["step"]),
    lane: asText(facts["lane"]),
    digest: asText(facts["digest"]),
    rows: asNumber(facts["rows"]),
    padding: asNumber(facts["padding"]),
    lossTokens: orNull(facts["loss_tokens"], asNumber),
  };
}

function readSource(value: unknown): SourceFacts {
  const source = asFields(value);
  const tokenizer = orNull(source["tokenizer"], (one) => asText(asFields(one)["path"]));
  return { alias: asText(source["alias"]), version: asText(source["version"]), tokenizer: tokenizer ?? "" };
}
