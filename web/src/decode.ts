// Reading JSON of which nothing is known yet. A value of the wrong type ends in one clear error and
// never reaches a page as `undefined`.

export class Malformed extends Error {
  override readonly name = "Malformed";
}

export type Fields = Readonly<Record<string, unknown>>;

export function asFields(value: unknown): Fields {
  if (typeof value !== "object" || value === null || Array.isArray(value)) throw unexpected("an object", value);
  return value as Fields;
}

export function asText(value: unknown): string {
  if (typeof value !== "string") throw unexpected("text", value);
  return value;
}

export function asNumber(value: unknown): number {
  if (typeof value !== "number") throw unexpected("a number", value);
  return value;
}

export function asList(value: unknown): readonly unknown[] {
  if (!Array.isArray(value)) throw unexpected("a list", value);
  return value;
}

export function orNull<T>(value: unknown, read: (value: unknown) => T): T | null {
  return value === null || value === undefined ? null : read(value);
}

function unexpected(wanted: string, value: unknown): Malformed {
  const found = value === null ? "null" : Array.isArray(value) ? "a list" : typeof value;
  return new Malformed(`the server's answer should hold ${wanted} where it holds ${found}`);
}
