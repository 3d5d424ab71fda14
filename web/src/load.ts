// Asking the server for one thing: loading, failed, or ready. Leaving the page cancels the request.

import { useCallback, useEffect, useState } from "preact/hooks";

import { Failure, fetchJson } from "./api";

export type Loaded<T> =
  | { readonly phase: "loading" }
  | { readonly phase: "failed"; readonly message: string; readonly hint: string | null }
  | { readonly phase: "ready"; readonly value: T };

/** Asks `address` and reads the answer with `read` (a module function); the second value asks again. */
export function useLoaded<T>(address: string, read: (value: unknown) => T): [Loaded<T>, () => void] {
  const [loaded, setLoaded] = useState<Loaded<T>>({ phase: "loading" });
  const [round, setRound] = useState(0);
  useEffect(() => {
    const request = new AbortController();
    setLoaded({ phase: "loading" });
    fetchJson(address, request.signal)
      .then((body) => setLoaded({ phase: "ready", value: read(body) }))
      .catch((error: unknown) => {
        if (!request.signal.aborted) setLoaded(failed(error));
      });
    return () => request.abort();
  }, [address, round, read]);
  return [loaded, useCallback(() => setRound((count) => count + 1), [])];
}

function failed(error: unknown): Loaded<never> {
  const message = error instanceof Error ? error.message : String(error);
  return { phase: "failed", message, hint: error instanceof Failure ? error.hint : null };
}
