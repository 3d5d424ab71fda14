// Values of a run as people read them, by unit. What was not measured arrives as text and is shown as such.

import { formatBytes, formatCount, formatDuration } from "../format";
import type { RunCurve } from "../wire/types";

export type Unit = RunCurve["unit"];

/** What a report has where nothing was measured. */
export type Measured = number | string;

export function formatValue(value: number, unit: string): string {
  if (!Number.isFinite(value)) return String(value);
  if (unit === "ns") return formatDuration(value);
  if (unit === "bytes") return formatBytes(Math.round(value));
  if (unit === "share") return formatShare(value);
  return formatNumber(value);
}

/** "68.9 %", as the report's text has it. */
export function formatShare(share: number): string {
  return `${(100 * share).toFixed(1)} %`;
}

/** Whole numbers with commas from a thousand on, else four digits. */
export function formatNumber(value: number): string {
  const size = Math.abs(value);
  if (value === 0) return "0";
  if (size >= 1e9) return value.toExponential(2);
  if (size >= 1000) return formatCount(Math.round(value));
  if (size < 1e-3) return value.toExponential(2);
  return String(Number(value.toPrecision(4)));
}

/** A number of the report, or the word that stands for it. */
export function formatMeasured(value: Measured, unit: string): string {
  return typeof value === "number" ? formatValue(value, unit) : value;
}

/** Short ones for an axis: "25k", "1.5M", "0.3". */
export function formatTick(value: number, unit: string): string {
  if (unit === "ns") return value === 0 ? "0" : trimmed(formatDuration(value));
  if (unit === "bytes") return value === 0 ? "0" : trimmed(formatBytes(value));
  if (unit === "share") return `${Math.round(1000 * value) / 10} %`;
  const size = Math.abs(value);
  if (size >= 1e9 || (size > 0 && size < 1e-3)) return value.toExponential(1).replace(".0e", "e");
  if (size >= 1e6) return `${Number((value / 1e6).toPrecision(4))}M`;
  if (size >= 1e3) return `${Number((value / 1e3).toPrecision(4))}k`;
  return String(Number(value.toPrecision(6)));
}

/** "100 ms" for "100.0 ms", "1.5 s" for "1.50 s". */
function trimmed(text: string): string {
  return text.replace(/(\.\d*?)0+(?= )/, "$1").replace(/\.(?= )/, "");
}
