// The border: an answer is held to the schema that the pages were compiled with, so that one of another version, or one
// that somebody else gave, ends in a clear message and never reaches a page as `undefined`. Fields that the schema lacks
// are let through: a newer server may say more.

import schema from "./schema.json";
import type { Answers } from "./types";

export type Route = keyof Answers;

/** An answer that is not what its route declares. */
export class Malformed extends Error {
  override readonly name = "Malformed";
  readonly hint = "this page and the server may be of different versions: reload the page";
}

/** The part of JSON schema that the declarations need. */
interface Shape {
  readonly $ref?: string;
  readonly anyOf?: readonly Shape[];
  readonly enum?: readonly unknown[];
  readonly type?: string;
  readonly properties?: Readonly<Record<string, Shape>>;
  readonly required?: readonly string[];
  readonly additionalProperties?: boolean | Shape;
  readonly items?: Shape | readonly Shape[];
}

/** Parts of the schema by name, and the part of each route. */
const DEFINITIONS = schema.definitions as unknown as Readonly<Record<string, Shape>>;
const ROUTES: Readonly<Record<Route, Shape>> = schema.definitions.Answers.properties as unknown as Readonly<Record<Route, Shape>>;

/** The answer of a route, or `Malformed`, which names the first place that does not fit. */
export function checked<R extends Route>(route: R, answer: unknown): Answers[R] {
  const misfit = misfitOf(ROUTES[route], answer, "");
  if (misfit !== null) throw new Malformed(`the answer of api/${route} does not fit: ${misfit}`);
  return answer as Answers[R];
}

/** What does not fit, in words; null when all of it does. */
function misfitOf(shape: Shape, value: unknown, at: string): string | null {
  if (shape.$ref !== undefined) {
    const definition = DEFINITIONS[shape.$ref.slice("#/definitions/".length)];
    return definition === undefined ? null : misfitOf(definition, value, at);
  }
  if (shape.anyOf !== undefined) {
    const misfits = shape.anyOf.map((form) => misfitOf(form, value, at));
    return misfits.includes(null) ? null : (misfits[0] ?? null);
  }
  if (shape.enum !== undefined) return shape.enum.includes(value) ? null : unlike(shape.enum.map((one) => JSON.stringify(one)).join(" or "), value, at);
  switch (shape.type) {
    case "object":
      return isFields(value) ? misfitOfFields(shape, value, at) : unlike("an object", value, at);
    case "array":
      return Array.isArray(value) ? misfitOfItems(shape.items ?? {}, value, at) : unlike("a list", value, at);
    case "integer":
    case "number":
      return typeof value === "number" ? null : unlike("a number", value, at);
    case "string":
      return typeof value === "string" ? null : unlike("text", value, at);
    case "boolean":
      return typeof value === "boolean" ? null : unlike("true or false", value, at);
    case "null":
      return value === null ? null : unlike("null", value, at);
    default:
      return null;
  }
}

function misfitOfFields(shape: Shape, fields: Readonly<Record<string, unknown>>, at: string): string | null {
  for (const name of shape.required ?? []) {
    if (!Object.hasOwn(fields, name)) return `${place(at)} lacks ${JSON.stringify(name)}`;
  }
  const others = typeof shape.additionalProperties === "object" ? shape.additionalProperties : null;
  for (const [name, value] of Object.entries(fields)) {
    const own = shape.properties?.[name] ?? others;
    const misfit = own === null ? null : misfitOf(own, value, `${at}.${name}`);
    if (misfit !== null) return misfit;
  }
  return null;
}

function misfitOfItems(items: Shape | readonly Shape[], values: readonly unknown[], at: string): string | null {
  const each = isTuple(items) ? null : items;
  if (isTuple(items) && values.length !== items.length) return `${place(at)} should be a list of ${items.length} and has ${values.length}`;
  for (let index = 0; index < values.length; index++) {
    const own = each ?? (items as readonly Shape[])[index] ?? {};
    const misfit = misfitOf(own, values[index], `${at}[${index}]`);
    if (misfit !== null) return misfit;
  }
  return null;
}

function isTuple(items: Shape | readonly Shape[]): items is readonly Shape[] {
  return Array.isArray(items);
}

function isFields(value: unknown): value is Readonly<Record<string, unknown>> {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}

function unlike(wanted: string, value: unknown, at: string): string {
  const kind = value === null ? "null" : Array.isArray(value) ? "a list" : isFields(value) ? "an object" : JSON.stringify(value).slice(0, 60);
  return `${place(at)} should be ${wanted} and is ${kind}`;
}

function place(at: string): string {
  return at === "" ? "it" : at.replace(/^\./, "");
}
