// Which runs of a folder are shown, in which order and groups, and which are drawn over each other. Only computes.

import type { ListedRun, RunSummary } from "../wire/types";

/** Runs in one plot: more cannot be told apart. */
export const OVERLAID_MAX = 10;
/** Runs that are drawn where nobody has chosen. */
const DRAWN_AT_FIRST = 5;
/** Fields of a configuration that are offered for grouping. */
const FIELDS_MAX = 200;

export type Column = "name" | "state" | "step" | "loss" | "tokens_per_s" | "p50_ns" | "p99_ns" | "mfu" | "goodput" | "memory";

/** A number of a summary, as the report has it. */
export function numberOf(summary: RunSummary, column: Column): number | string | null {
  const { speed, mfu, goodput, memory } = summary;
  switch (column) {
    case "name":
    case "state":
      return summary[column];
    case "step":
    case "loss":
      return summary[column];
    case "mfu":
      return mfu.value;
    case "goodput":
      return goodput.runtime;
    case "memory":
      return typeof memory.memory_peak === "number" ? memory.memory_peak : memory.rss;
    default:
      return speed[column];
  }
}

/** What is searched: the name, the state, the diagnosis, and the configuration as `name=value`. */
export function textsOf(run: ListedRun): string[] {
  const words = Object.entries(run.fields).map(([name, value]) => `${name}=${value}`);
  return [run.name, run.problem, run.summary?.state ?? "", run.summary?.line ?? "", ...words];
}

/** Runs by a column; what is not known comes last, and equals stay in the order of names. */
export function sorted(runs: readonly ListedRun[], column: Column, falling: boolean): ListedRun[] {
  const keyOf = (run: ListedRun) => (column === "name" ? run.name : run.summary === null ? null : numberOf(run.summary, column));
  const isWord = column === "name" || column === "state";
  const known = (value: number | string | null): value is number | string => value !== null && (isWord || typeof value === "number");
  return [...runs].sort((one, other) => {
    const [a, b] = [keyOf(one), keyOf(other)];
    if (!known(a) || !known(b)) return Number(known(b)) - Number(known(a));
    const order = a < b ? -1 : a > b ? 1 : 0;
    return falling ? -order : order;
  });
}

export interface Group {
  /** The value that its runs share; null where there is no grouping. */
  readonly value: string | null;
  readonly runs: readonly ListedRun[];
}

/** Runs by a field of their configuration, in the order of its values; numbers by size. */
export function grouped(runs: readonly ListedRun[], field: string | null): Group[] {
  if (field === null) return [{ value: null, runs }];
  const groups = new Map<string, ListedRun[]>();
  for (const run of runs) {
    const value = run.fields[field] ?? "";
    groups.set(value, [...(groups.get(value) ?? []), run]);
  }
  return [...groups].map(([value, members]) => ({ value, runs: members })).sort((one, other) => inOrder(one.value, other.value));
}

/** Numbers by size, before words; "1e-4" is one. */
function inOrder(one: string, other: string): number {
  const [a, b] = [Number(one), Number(other)];
  const numbers = [one, other].map((text) => text.trim() !== "" && !Number.isNaN(Number(text)));
  if (numbers[0] && numbers[1]) return a - b;
  return one.localeCompare(other, "en", { numeric: true });
}

/** Fields in which runs differ, then the others; each by name. */
export function fieldsOf(runs: readonly ListedRun[]): { readonly differing: string[]; readonly equal: string[] } {
  const read = runs.filter((run) => run.summary !== null);
  const names = [...new Set(read.flatMap((run) => Object.keys(run.fields)))].sort().slice(0, FIELDS_MAX);
  const differs = (name: string) => new Set(read.map((run) => run.fields[name])).size > 1;
  return { differing: names.filter(differs), equal: names.filter((name) => !differs(name)) };
}

/** Names of runs as the URL has them. */
export function parseNames(text: string | undefined): string[] | null {
  if (text === undefined) return null;
  return text.split(",").filter((name) => name !== "").map(decoded).slice(0, OVERLAID_MAX);
}

export function formatNames(names: readonly string[]): string {
  return names.map(encodeURIComponent).join(",");
}

/** The runs to draw: those that were chosen, else the first few that have the curve. */
export function drawnOf(runs: readonly ListedRun[], chosen: readonly string[] | null, curve: string): ListedRun[] {
  if (chosen === null) return runs.filter((run) => run.curves.includes(curve)).slice(0, DRAWN_AT_FIRST);
  return chosen.flatMap((name) => runs.filter((run) => run.name === name)).slice(0, OVERLAID_MAX);
}

/** Curves that any run has: those of every run first. */
export function curvesOf(runs: readonly ListedRun[]): string[] {
  const counts = new Map<string, number>();
  for (const name of runs.flatMap((run) => run.curves)) counts.set(name, (counts.get(name) ?? 0) + 1);
  const order = [...counts.keys()];
  return order.sort((one, other) => (counts.get(other) ?? 0) - (counts.get(one) ?? 0) || order.indexOf(one) - order.indexOf(other));
}

export interface Line {
  readonly steps: readonly number[];
  readonly values: readonly (number | null)[];
}

/** Lines over the steps of all of them; where a line has no value of its own there is none. */
export function joined(lines: readonly Line[]): { readonly steps: number[]; readonly values: (number | null)[][] } {
  const steps = [...new Set(lines.flatMap((line) => line.steps))].sort((one, other) => one - other);
  const places = new Map(steps.map((step, place) => [step, place]));
  const values = lines.map((line) => {
    const column: (number | null)[] = steps.map(() => null);
    line.steps.forEach((step, place) => (column[places.get(step) ?? 0] = line.values[place] ?? null));
    return column;
  });
  return { steps, values };
}

/** How long to wait before asking again: at once while runs are still to be read, else longer where nothing runs or an answer is dear. */
export function pauseOf(list: { readonly pending: number; readonly running: number; readonly took_ms: number }, failures: number): number {
  if (list.pending > 0 && failures === 0) return 50;
  const pause = Math.max(list.running > 0 ? 3_000 : 30_000, 20 * list.took_ms);
  return Math.min(pause * 2 ** Math.min(failures, 6), 10 * 60_000);
}

function decoded(text: string): string {
  try {
    return decodeURIComponent(text);
  } catch {
    return text;
  }
}
