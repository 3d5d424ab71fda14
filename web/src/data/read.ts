// What the server answers about datasets, as types.

import { asFields, asList, asNumber, asText, orNull, type Fields } from "../decode";

export interface Summary {
  readonly address: string;
  readonly number: number;
  readonly digest: string;
  readonly format: string;
  readonly rows: number;
  readonly bytes: number;
  readonly shards: number;
  readonly fields: number;
  readonly created: string;
  readonly note: string;
  readonly derived: boolean;
}

export interface Dataset {
  readonly name: string;
  /** Null when it cannot be read; then `problem` says why. */
  readonly newest: Summary | null;
  readonly problem: string;
  readonly tags: ReadonlyMap<string, number>;
}

export interface DatasetList {
  readonly registry: string;
  readonly datasets: readonly Dataset[];
  readonly left_out: number;
}

export interface VersionList {
  readonly name: string;
  readonly versions: readonly Summary[];
  readonly tags: ReadonlyMap<string, number>;
  readonly left_out: number;
  readonly command: string;
}

export interface Field {
  readonly name: string;
  readonly kind: string;
  readonly optional: boolean;
}

export interface Version extends Summary {
  readonly name: string;
  readonly tags: readonly string[];
  readonly owner: string;
  readonly licence: string;
  readonly roots: readonly string[];
  readonly skipped: number;
  readonly schema: readonly Field[];
  readonly fields_left_out: number;
  readonly command: string;
  readonly rows_command: string;
}

export interface Shard {
  readonly name: string;
  readonly rows: number;
  readonly bytes: number;
  readonly first: number;
  readonly copied: boolean;
}

export interface ShardList {
  readonly shards: readonly Shard[];
  readonly start: number;
  readonly of: number;
}

export interface Place {
  readonly address: string;
  readonly digest: string;
  readonly level: number;
  readonly known: boolean;
}

export interface Lineage {
  readonly at: string;
  readonly places: readonly Place[];
  readonly arrows: readonly (readonly [string, string])[];
  readonly left_out: number;
  readonly command: string;
}

export interface Cell {
  readonly kind: string;
  readonly text: string;
  /** The whole length, where less is shown. */
  readonly of: number | null;
  readonly size: number | null;
  /** Where in the value its bytes are, for media inside of an object. */
  readonly path: string;
  readonly dtype: string;
  readonly shape: readonly number[];
}

export interface RowLine {
  readonly row: number;
  readonly cells: readonly Cell[];
}

export interface RowPage {
  readonly rows: readonly RowLine[];
  readonly of: number;
}

export interface Filtered extends RowPage {
  readonly looked_at: number;
  readonly next: number | null;
  readonly failed: number;
  readonly reason: string;
}

export interface RowField extends Cell {
  readonly name: string;
  readonly field: number;
}

export interface WholeRow {
  readonly row: number;
  readonly of: number;
  readonly fields: readonly RowField[];
  readonly shard: string;
  readonly place: number;
  readonly bytes: readonly number[] | null;
}

export interface Bar {
  readonly label: string;
  readonly count: number;
  readonly where: string | null;
}

export interface ColumnSpread {
  readonly name: string;
  readonly of: string;
  readonly missing: number;
  readonly low: number | null;
  readonly high: number | null;
  readonly median: number | null;
  readonly bars: readonly Bar[];
}

export interface Spread {
  readonly columns: readonly ColumnSpread[];
  readonly looked_at: number;
  readonly rows: number;
}

export function readDatasets(value: unknown): DatasetList {
  const list = asFields(value);
  return {
    registry: asText(list["registry"]),
    left_out: asNumber(list["left_out"]),
    datasets: asList(list["datasets"]).map((one) => {
      const dataset = asFields(one);
      const problem = orNull(dataset["problem"], asText);
      return {
        name: asText(dataset["name"]),
        newest: problem === null ? readSummary(dataset) : null,
        problem: problem ?? "",
        tags: problem === null ? readTags(dataset["tags"]) : new Map<string, number>(),
      };
    }),
  };
}

export function readVersions(value: unknown): VersionList {
  const list = asFields(value);
  return {
    name: asText(list["name"]),
    versions: asList(list["versions"]).map((one) => readSummary(asFields(one))),
    tags: readTags(list["tags"]),
    left_out: asNumber(list["left_out"]),
    command: asText(list["command"]),
  };
}

export function readVersion(value: unknown): Version {
  const one = asFields(value);
  return {
    ...readSummary(one),
    name: asText(one["name"]),
    tags: asList(one["tags"]).map(asText),
    owner: asText(one["owner"]),
    licence: asText(one["licence"]),
    roots: asList(one["roots"]).map(asText),
    skipped: asNumber(one["skipped"]),
    schema: asList(one["schema"]).map((each) => {
      const field = asFields(each);
      return { name: asText(field["name"]), kind: asText(field["kind"]), optional: field["optional"] === true };
    }),
    fields_left_out: asNumber(one["fields_left_out"]),
    command: asText(one["command"]),
    rows_command: asText(one["rows_command"]),
  };
}

export function readShards(value: unknown): ShardList {
  const list = asFields(value);
  const shards = asList(list["shards"]).map((one) => {
    const shard = asFields(one);
    return {
      name: asText(shard["name"]),
      rows: asNumber(shard["rows"]),
      bytes: asNumber(shard["bytes"]),
      first: asNumber(shard["first"]),
      copied: shard["copied"] === true,
    };
  });
  return { shards, start: asNumber(list["start"]), of: asNumber(list["of"]) };
}

export function readLineage(value: unknown): Lineage {
  const graph = asFields(value);
  return {
    at: asText(graph["at"]),
    command: asText(graph["command"]),
    left_out: asNumber(graph["left_out"]),
    places: asList(graph["places"]).map((one) => {
      const place = asFields(one);
      return {
        address: asText(place["address"]),
        digest: asText(place["digest"]),
        level: asNumber(place["level"]),
        known: place["known"] === true,
      };
    }),
    arrows: asList(graph["arrows"]).map((one) => {
      const [from, to] = asList(one);
      return [asText(from), asText(to)] as const;
    }),
  };
}

export function readRows(value: unknown): RowPage {
  const page = asFields(value);
  return { rows: asList(page["rows"]).map(readLine), of: asNumber(page["of"]) };
}

export function readFiltered(value: unknown): Filtered {
  const page = asFields(value);
  return {
    ...readRows(value),
    looked_at: asNumber(page["looked_at"]),
    next: orNull(page["next"], asNumber),
    failed: asNumber(page["failed"]),
    reason: asText(page["reason"]),
  };
}

export function readRow(value: unknown): WholeRow {
  const row = asFields(value);
  return {
    row: asNumber(row["row"]),
    of: asNumber(row["of"]),
    shard: asText(row["shard"]),
    place: asNumber(row["place"]),
    bytes: orNull(row["bytes"], (span) => asList(span).map(asNumber)),
    fields: asList(row["fields"]).map((one) => {
      const field = asFields(one);
      return { ...readCell(field), name: asText(field["name"]), field: asNumber(field["field"]) };
    }),
  };
}

export function readSpread(value: unknown): Spread {
  const spread = asFields(value);
  return {
    looked_at: asNumber(spread["looked_at"]),
    rows: asNumber(spread["rows"]),
    columns: asList(spread["columns"]).map((one) => {
      const column = asFields(one);
      return {
        name: asText(column["name"]),
        of: asText(column["of"]),
        missing: asNumber(column["missing"]),
        low: orNull(column["low"], asNumber),
        high: orNull(column["high"], asNumber),
        median: orNull(column["median"], asNumber),
        bars: asList(column["bars"]).map((each) => {
          const bar = asFields(each);
          return { label: asText(bar["label"]), count: asNumber(bar["count"]), where: orNull(bar["where"], asText) };
        }),
      };
    }),
  };
}

function readLine(value: unknown): RowLine {
  const line = asFields(value);
  return { row: asNumber(line["row"]), cells: asList(line["cells"]).map((one) => readCell(asFields(one))) };
}

function readCell(cell: Fields): Cell {
  return {
    kind: asText(cell["kind"]),
    text: asText(cell["text"]),
    of: orNull(cell["of"], asNumber),
    size: orNull(cell["size"], asNumber),
    path: orNull(cell["path"], asText) ?? "",
    dtype: orNull(cell["dtype"], asText) ?? "",
    shape: orNull(cell["shape"], (shape) => asList(shape).map(asNumber)) ?? [],
  };
}

function readSummary(one: Fields): Summary {
  return {
    address: asText(one["address"]),
    number: asNumber(one["number"]),
    digest: asText(one["digest"]),
    format: asText(one["format"]),
    rows: asNumber(one["rows"]),
    bytes: asNumber(one["bytes"]),
    shards: asNumber(one["shards"]),
    fields: asNumber(one["fields"]),
    created: asText(one["created"]),
    note: asText(one["note"]),
    derived: one["derived"] === true,
  };
}

function readTags(value: unknown): ReadonlyMap<string, number> {
  return new Map(Object.entries(asFields(value)).map(([tag, number]) => [tag, asNumber(number)]));
}
