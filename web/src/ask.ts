// How the server is asked. Addresses are relative to the page, so that they stay under whatever prefix a proxy shows it at.

import { checked, Malformed, type Route } from "./wire/check";
import type { Answers } from "./wire/types";

/** What a page wants to know, and how its answer is read. */
export interface Question<T> {
  /** Tells questions apart: the same address asks for the same. */
  readonly address: string;
  readonly ask: (signal: AbortSignal) => Promise<T>;
}

/** Values of a question by name; those that are null are left out. */
export type Values = Readonly<Record<string, string | number | null>>;

/** A request that failed, in words for the reader. */
export class Failure extends Error {
  override readonly name = "Failure";
  readonly hint: string | null;

  constructor(message: string, hint: string | null) {
    super(message);
    this.hint = hint;
  }
}

/** A question that is answered in JSON, of the form that its route declares. */
export function question<R extends Route>(route: R, values: Values = {}): Question<Answers[R]> {
  const address = addressOf(route, values);
  return { address, ask: async (signal) => checked(route, await fetchJson(address, signal)) };
}

/** The same question, its answer read as something else. */
export function mapped<T, U>(asked: Question<T>, read: (answer: T) => U): Question<U> {
  return { address: asked.address, ask: async (signal) => read(await asked.ask(signal)) };
}

/** The address of a route: values that it names in braces stand in the path, the others in the query. */
export function addressOf(route: string, values: Values): string {
  const query = new URLSearchParams();
  let path = `api/${route}`;
  for (const [name, value] of Object.entries(values)) {
    if (value === null) continue;
    if (path.includes(`{${name}}`)) path = path.replace(`{${name}}`, () => encodeURIComponent(value));
    else query.set(name, String(value));
  }
  return query.size === 0 ? path : `${path}?${query}`;
}

/** The bytes of an answer that is no JSON; a refusal is JSON all the same. */
export async function fetchBytes(address: string, signal: AbortSignal): Promise<ArrayBuffer> {
  return (await fetchAnswer(address, signal, "*/*")).arrayBuffer();
}

/** What to show of an error: its words, and what to do about it where that is known. */
export function wordsOf(error: unknown): { readonly message: string; readonly hint: string | null } {
  const hint = error instanceof Failure || error instanceof Malformed ? error.hint : null;
  return { message: error instanceof Error ? error.message : String(error), hint };
}

async function fetchJson(address: string, signal: AbortSignal): Promise<unknown> {
  const answer = await fetchAnswer(address, signal, "application/json");
  const text = await answer.text();
  try {
    return JSON.parse(text);
  } catch {
    throw foreign(answer);
  }
}

async function fetchAnswer(address: string, signal: AbortSignal, accept: string): Promise<Response> {
  let answer: Response;
  try {
    answer = await fetch(address, { signal, headers: { accept } });
  } catch (error) {
    if (signal.aborted) throw error;
    throw new Failure("the server does not answer", "is `penstock web` still running?");
  }
  if (answer.ok) return answer;
  throw await refusal(answer);
}

/** Why a question was refused: in the server's words, or who else may have answered. */
async function refusal(answer: Response): Promise<Failure> {
  try {
    const { error } = checked("error", await answer.clone().json());
    return new Failure(error.message, error.hint);
  } catch {
    return foreign(answer);
  }
}

/** An answer that is not our server's: the login of a proxy, or its page about an error. */
function foreign(answer: Response): Failure {
  const kind = answer.headers.get("content-type")?.split(";")[0] ?? "nothing that has a type";
  const hint = "something between this page and the server answered, such as a proxy: reload the page to see what it says";
  return new Failure(`the answer (status ${answer.status}) is ${kind} and not Penstock's`, hint);
}
