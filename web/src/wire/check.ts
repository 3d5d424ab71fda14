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

/** A place that does not fit. Words and path are made only when they are needed: answers have a million places that do. */
interface Misfit {
  /** Names and indexes that lead to it, from the inside out. */
  readonly path: (string | number)[];
  readonly words: () => string;
}

/** The answer of a route, or `Malformed`, which names the first place that does not fit. */
export function checked<R extends Route>(route: R, answer: unknown): Answers[R] {
  const misfit = misfitOf(ROUTES[route], answer);
  if (misfit !== null) throw new Malformed(`the answer of api/${route} does not fit: ${placeOf(misfit)} ${misfit.words()}`);
  return answer as Answers[R];
}

function misfitOf(shape: Shape, value: unknown): Misfit | null {
  if (shape.$ref !== undefined) {
    const definition = DEFINITIONS[shape.$ref.slice("#/definitions/".length)];
    return definition === undefined ? null : misfitOf(definition, value);
  }
  if (shape.anyOf !== undefined) return misfitOfAll(shape.anyOf, value);
  if (shape.enum !== undefined) return shape.enum.includes(value) ? null : unlike(shape.enum.map((one) => JSON.stringify(one)).join(" or "), value);
  switch (shape.type) {
    case "object":
      return isFields(value) ? misfitOfFields(shape, value) : unlike("an object", value);
    case "array":
      return Array.isArray(value) ? misfitOfItems(shape.items ?? {}, value) : unlike("a list", value);
    case "integer":
    case "number":
      return typeof value === "number" ? null : unlike("a number", value);
    case "string":
      return typeof value === "string" ? null : unlike("text", value);
    case "boolean":
      return typeof value === "boolean" ? null : unlike("true or false", value);
    case "null":
      return value === null ? null : unlike("null", value);
    default:
      return null;
  }
}

/** Of a value that fits none of several forms, what is wrong with it as the first. */
function misfitOfAll(forms: readonly Shape[], value: unknown): Misfit | null {
  let first: Misfit | null = null;
  for (const form of forms) {
    const misfit = misfitOf(form, value);
    if (misfit === null) return null;
    first ??= misfit;
  }
  return first;
}

function misfitOfFields(shape: Shape, fields: Readonly<Record<string, unknown>>): Misfit | null {
  for (const name of shape.required ?? []) {
    if (!Object.hasOwn(fields, name)) return { path: [], words: () => `lacks ${JSON.stringify(name)}` };
  }
  const others = typeof shape.additionalProperties === "object" ? shape.additionalProperties : null;
  for (const name of Object.keys(fields)) {
    const own = shape.properties?.[name] ?? others;
    const misfit = own === null ? null : misfitOf(own, fields[name]);
    if (misfit !== null) return within(name, misfit);
  }
  return null;
}

function misfitOfItems(items: Shape | readonly Shape[], values: readonly unknown[]): Misfit | null {
  const tuple = isTuple(items) ? items : null;
  if (tuple !== null && values.length !== tuple.length) return { path: [], words: () => `should be a list of ${tuple.length} and has ${values.length}` };
  for (let index = 0; index < values.length; index++) {
    const own = tuple === null ? (items as Shape) : (tuple[index] ?? {});
    const misfit = misfitOf(own, values[index]);
    if (misfit !== null) return within(index, misfit);
  }
  return null;
}

function within(step: string | number, misfit: Misfit): Misfit {
  misfit.path.push(step);
  return misfit;
}

function isTuple(items: Shape | readonly Shape[]): items is readonly Shape[] {
  return Array.isArray(items);
}

function isFields(value: unknown): value is Readonly<Record<string, unknown>> {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}

function unlike(wanted: string, value: unknown): Misfit {
  return { path: [], words: () => `should be ${wanted} and is ${kindOf(value)}` };
}

function kindOf(value: unknown): string {
  return Array.isArray(value) ? "a list" : isFields(value) ? "an object" : String(JSON.stringify(value)).slice(0, 60);
}

/** Where it is, as a program would write it: `versions[3].rows`. */
function placeOf(misfit: Misfit): string {
  const steps = [...misfit.path].reverse().map((step) => (typeof step === "number" ? `[${step}]` : `.${step}`));
  return steps.length === 0 ? "it" : steps.join("").replace(/^\./, "");
}
