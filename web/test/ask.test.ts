// Asking over real HTTP: answers, refusals, and what others answer in the server's place.

import { afterAll, beforeAll, expect, inject, test } from "vitest";

import { addressOf, fetchBytes, mapped, question, wordsOf } from "../src/ask";

declare module "vitest" {
  interface ProvidedContext {
    /** Where `server.js` listens. */
    server: string;
  }
}

/** What the server says next: a status, a type and a body. */
let next: readonly [number, string, string] = [200, "application/json", "{}"];
let asked = "";
const plainFetch = globalThis.fetch;

beforeAll(() => {
  // A page resolves addresses against its own; outside of a browser nothing does.
  globalThis.fetch = async (address, options) => {
    const answer = btoa(JSON.stringify(next)).replaceAll("+", "-").replaceAll("/", "_");
    const base = new URL(`${answer}/proxy/8090/`, inject("server"));
    const found = await plainFetch(new URL(String(address), base), options);
    asked = found.url.split(answer)[1] ?? "";
    return found;
  };
});

afterAll(() => {
  globalThis.fetch = plainFetch;
});

const streams = () => question("streams").ask(new AbortController().signal);
const refused = async (status: number, type: string, body: string) => {
  next = [status, type, body];
  return wordsOf(await streams().catch((error: unknown) => error));
};

test("values stand in the path where the route names them, else in the query", () => {
  expect(addressOf("events/{name}/{index}", { name: "a b/$&.pev", index: 3 })).toBe("api/events/a%20b%2F%24%26.pev/3");
  expect(addressOf("row", { at: "web@1", row: 0, path: null })).toBe("api/row?at=web%401&row=0");
  expect(addressOf("doctor", {})).toBe("api/doctor");
});

test("an answer is asked for relative to the page, checked, and read", async () => {
  next = [200, "application/json", JSON.stringify({ recipes: ["a.toml"], runs: [], roots: [], left_out: 0, reasons: {} })];
  const recipes = mapped(question("streams", { x: 1 }), (list) => list.recipes);

  expect(await recipes.ask(new AbortController().signal)).toEqual(["a.toml"]);
  expect(asked).toBe("/proxy/8090/api/streams?x=1");
});

test("a refusal is told in the server's own words", async () => {
  const body = JSON.stringify({ error: { message: "there is no web@9", hint: "penstock data list" } });

  expect(await refused(422, "application/json", body)).toEqual({ message: "there is no web@9", hint: "penstock data list" });
});

test.each([
  [502, "text/html; charset=utf-8", "<h1>Bad gateway</h1>"],
  [200, "text/html", "<form>Please log in</form>"],
  [404, "application/json", '{"detail":"Not Found"}'],
  [200, "application/json", '{"recipes": ['],
])("what somebody else answers (%d %s) is said to be that", async (status, type, body) => {
  const { message, hint } = await refused(status, type, body);

  expect(message).toBe(`the answer (status ${status}) is ${type.split(";")[0]} and not Penstock's`);
  expect(hint).toContain("proxy");
});

test("an answer of another version is said to be that", async () => {
  const { message, hint } = await refused(200, "application/json", '{"recipes": []}');

  expect(message).toBe('the answer of api/streams does not fit: it lacks "runs"');
  expect(hint).toContain("different versions");
});

test("a server that is gone is said to be gone, and a question that was let go stays silent", async () => {
  // Nothing listens at port 9 of this machine.
  const gone = await fetchBytes("http://127.0.0.1:9/", new AbortController().signal).catch((error: unknown) => error);
  const dropped = new AbortController();
  dropped.abort();

  expect(wordsOf(gone)).toEqual({ message: "the server does not answer", hint: "is `penstock web` still running?" });
  await expect(question("streams").ask(dropped.signal)).rejects.toThrow("abort");
});
