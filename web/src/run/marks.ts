// What happened at which step, as charts draw it: lines for lives and incidents, ticks for checkpoints, bands for skips.

import type { RunMarks } from "../wire/types";

export interface Mark {
  readonly kind: "life" | "incident" | "checkpoint" | "skip";
  readonly step: number;
  /** Of a band, the step before which it ends. */
  readonly end: number;
  readonly says: string;
}

/** Marks of all kinds by step; the first life is no news. */
export function marksOf(marks: RunMarks): Mark[] {
  const all: Mark[] = [];
  for (const { life, step } of marks.lives.slice(1)) if (step !== null) all.push({ kind: "life", step, end: step, says: `life ${life} begins` });
  for (const { kind, life, step } of marks.incidents) if (step !== null) all.push({ kind: "incident", step, end: step, says: `${kind} of life ${life}` });
  for (const { step } of marks.checkpoints) all.push({ kind: "checkpoint", step, end: step, says: `checkpoint at step ${step}` });
  for (const { first, end, reason } of marks.skips) all.push({ kind: "skip", step: first, end, says: `left out: ${reason}` });
  return all.sort((one, other) => one.step - other.step);
}

/** Those near a step, within `reach` steps. */
export function marksNear(marks: readonly Mark[], step: number, reach: number): Mark[] {
  return marks.filter((mark) => step >= mark.step - reach && step <= Math.max(mark.end - 1, mark.step) + reach);
}
