// What the server answers, as types, and how it is asked. Addresses are relative to the page, so
// that they stay under whatever prefix a proxy shows it at.

import { asFields, asList, asNumber, asText, orNull, type Fields } from "./decode";

export type Verdict = "ok" | "warn" | "fail" | "info";

export interface Check {
  readonly name: string;
  readonly verdict: Verdict;
  readonly value: string;
  /** What to do about it; empty when nothing needs doing. */
  readonly hint: string;
}

export interface Doctor {
  readonly version: string;
  readonly examined_ms: number;
  readonly checks: readonly Check[];
}

export interface RecordingFile {
  readonly name: string;
  readonly bytes: number;
  readonly modified_ms: number;
}

export interface RecordingList {
  readonly directory: string;
  readonly recordings: readonly RecordingFile[];
  readonly left_out: number;
}

/** One row of the table by kind; durations are null for a kind without a finished span. */
export interface KindRow {
  readonly kind: string;
  readonly count: number;
  readonly open_count: number;
  readonly total_ns: number | null;
  readonly p50_ns: number | null;
  readonly p99_ns: number | null;
  readonly max_ns: number | null;
}

/** Events as columns in file order; the position in a column is the event's index. */
export interface TimelineColumns {
  readonly names: readonly string[];
  readonly kind: Uint32Array;
  readonly thread: Float64Array;
  readonly time_ns: Float64Array;
  /** -1 for a point, and for a span that never ended (those are in `open`). */
  readonly duration_ns: Float64Array;
  readonly open: ReadonlySet<number>;
}

export interface Recording {
  readonly name: string;
  readonly path: string;
  readonly process: Fields;
  readonly lost: number;
  readonly torn_bytes: number;
  /** Whether the recorder stopped in order; false while it records and after a kill. */
  readonly closed: boolean;
  readonly event_count: number;
  readonly length_ns: number;
  readonly kinds: readonly KindRow[];
  readonly kinds_left_out: number;
  readonly timeline: TimelineColumns;
}

export interface EventDetail {
  readonly kind: string;
  readonly time_ns: number;
  readonly fields: Fields;
  /** Whether the recorder shortened something to keep the record small. */
  readonly cut: boolean;
}

/** A request that failed, in words for the reader. */
export class Failure extends Error {
  override readonly name = "Failure";
  readonly hint: string | null;

  constructor(message: string, hint: string | null) {
    super(message);
    this.hint = hint;
  }
}

export async function fetchJson(address: string, signal: AbortSignal): Promise<unknown> {
  const answer = await ask(address, signal, "application/json");
  return answer.json().catch(() => null);
}

/** The bytes of an answer that is no JSON; a refusal is JSON all the same. */
export async function fetchBytes(address: string, signal: AbortSignal): Promise<ArrayBuffer> {
  return (await ask(address, signal, "*/*")).arrayBuffer();
}

async function ask(address: string, signal: AbortSignal, accept: string): Promise<Response> {
  let answer: Response;
  try {
    answer = await fetch(address, { signal, headers: { accept } });
  } catch (error) {
    if (signal.aborted) throw error;
    throw new Failure("the server does not answer", "is `penstock web` still running?");
  }
  if (answer.ok) return answer;
  const body: unknown = await answer.json().catch(() => null);
  const error = asFields((body as Fields | null)?.["error"] ?? {});
  const message = orNull(error["message"], asText) ?? `the server answered ${answer.status}`;
  throw new Failure(message, orNull(error["hint"], asText));
}

export function readDoctor(value: unknown): Doctor {
  const doctor = asFields(value);
  return {
    version: asText(doctor["version"]),
    examined_ms: asNumber(doctor["examined_ms"]),
    checks: asList(doctor["checks"]).map(readCheck),
  };
}

export function readRecordingList(value: unknown): RecordingList {
  const list = asFields(value);
  return {
    directory: asText(list["directory"]),
    left_out: asNumber(list["left_out"]),
    recordings: asList(list["recordings"]).map((one) => {
      const file = asFields(one);
      return { name: asText(file["name"]), bytes: asNumber(file["bytes"]), modified_ms: asNumber(file["modified_ms"]) };
    }),
  };
}

export function readRecording(value: unknown): Recording {
  const recording = asFields(value);
  return {
    name: asText(recording["name"]),
    path: asText(recording["path"]),
    process: asFields(recording["process"]),
    lost: asNumber(recording["lost"]),
    torn_bytes: asNumber(recording["torn_bytes"]),
    closed: recording["closed"] === true,
    event_count: asNumber(recording["event_count"]),
    length_ns: asNumber(recording["length_ns"]),
    kinds: asList(recording["kinds"]).map(readKindRow),
    kinds_left_out: asNumber(recording["kinds_left_out"]),
    timeline: readTimeline(asFields(recording["timeline"])),
  };
}

export function readEventDetail(value: unknown): EventDetail {
  const event = asFields(value);
  return {
    kind: asText(event["kind"]),
    time_ns: asNumber(event["time_ns"]),
    fields: asFields(event["fields"]),
    cut: event["cut"] === true,
  };
}

function readCheck(value: unknown): Check {
  const check = asFields(value);
  const verdict = asText(check["verdict"]);
  return {
    name: asText(check["name"]),
    verdict: verdict === "ok" || verdict === "warn" || verdict === "fail" ? verdict : "info",
    value: asText(check["value"]),
    hint: asText(check["hint"]),
  };
}

function readKindRow(value: unknown): KindRow {
  const row = asFields(value);
  return {
    kind: asText(row["kind"]),
    count: asNumber(row["count"]),
    open_count: asNumber(row["open_count"]),
    total_ns: orNull(row["total_ns"], asNumber),
    p50_ns: orNull(row["p50_ns"], asNumber),
    p99_ns: orNull(row["p99_ns"], asNumber),
    max_ns: orNull(row["max_ns"], asNumber),
  };
}

function readTimeline(timeline: Fields): TimelineColumns {
  const durations = asList(timeline["duration_ns"]);
  return {
    names: asList(timeline["names"]).map(asText),
    kind: Uint32Array.from(asList(timeline["kind"]), asNumber),
    thread: Float64Array.from(asList(timeline["thread"]), asNumber),
    time_ns: Float64Array.from(asList(timeline["time_ns"]), asNumber),
    duration_ns: Float64Array.from(durations, (one) => orNull(one, asNumber) ?? -1),
    open: new Set(asList(timeline["open"]).map(asNumber)),
  };
}
