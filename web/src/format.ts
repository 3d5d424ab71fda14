// Numbers and foreign text as people read them.

/** How counts and moments are written. */
const COUNT = new Intl.NumberFormat("en");
const WHEN = new Intl.DateTimeFormat(undefined, { dateStyle: "medium", timeStyle: "medium" });
/** Characters of foreign text on one line. */
const TEXT_MAX = 400;

export function formatCount(count: number): string {
  return COUNT.format(count);
}

/** "1 event", "2 events", and "2 stretches" where that is given. */
export function formatPlural(count: number, noun: string, nouns = `${noun}s`): string {
  return `${formatCount(count)} ${count === 1 ? noun : nouns}`;
}

/** Three digits and a unit: "512 ns", "12.3 µs", "4.56 ms", "1.23 s", "2 min 03 s", "1 h 04 min". */
export function formatDuration(ns: number): string {
  if (ns < 1e3) return `${Math.round(ns)} ns`;
  if (ns < 999_500) return `${digits(ns / 1e3)} µs`;
  if (ns < 999_500_000) return `${digits(ns / 1e6)} ms`;
  const seconds = ns / 1e9;
  if (seconds < 60) return `${digits(seconds)} s`;
  const minutes = Math.floor(seconds / 60);
  if (minutes < 60) return `${minutes} min ${twoDigits(seconds % 60)} s`;
  return `${formatCount(Math.floor(minutes / 60))} h ${twoDigits(minutes % 60)} min`;
}

export function formatBytes(bytes: number): string {
  if (bytes < 1000) return `${bytes} B`;
  const power = Math.min(5, Math.floor(Math.log10(bytes) / 3));
  return `${digits(bytes / 1000 ** power)} ${["B", "kB", "MB", "GB", "TB", "PB"][power]}`;
}

export function formatWhen(ms: number): string {
  const date = new Date(ms);
  return Number.isNaN(date.getTime()) ? "at an unknown time" : WHEN.format(date);
}

/**
 * Foreign text made visible: characters that would reorder, hide or break the line are spelled as
 * `\u{202e}`, and very long text is cut. Preact escapes markup; this is for what escaping leaves.
 */
export function visible(text: string): string {
  const cut = text.length > TEXT_MAX ? `${text.slice(0, TEXT_MAX)}…` : text;
  return cut.replace(/[\p{Cc}\p{Cf}\p{Zl}\p{Zp}\p{Cs}]/gu, (one) => `\\u{${one.codePointAt(0)?.toString(16)}}`);
}

/** `text` as one word of a POSIX shell, whatever it holds: these commands are meant to be pasted. */
export function shellWord(text: string): string {
  return /^[\w@%+=:,./-]+$/.test(text) && !text.startsWith("-") ? text : `'${text.replaceAll("'", `'\\''`)}'`;
}

function digits(value: number): string {
  return value.toFixed(value < 9.995 ? 2 : value < 99.95 ? 1 : 0);
}

function twoDigits(value: number): string {
  return String(Math.floor(value)).padStart(2, "0");
}
