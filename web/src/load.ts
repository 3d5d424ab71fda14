// Asking the server for one thing: loading, failed, or ready. Leaving the page cancels the request.

import { useCallback, useEffect, useState } from "preact/hooks";

import { wordsOf, type Question } from "./ask";

export type Loaded<T> =
  | { readonly phase: "loading" }
  | { readonly phase: "failed"; readonly message: string; readonly hint: string | null }
  | { readonly phase: "ready"; readonly value: T };

export interface Asked<T> {
  readonly loaded: Loaded<T>;
  /** Whether what is shown is the answer before, while the next is on its way. */
  readonly stale: boolean;
  readonly again: () => void;
}

/** Asks a question, and anew when its address changes. With `keepStale` the last answer stays until the next is there. */
export function useLoaded<T>(question: Question<T>, options: { readonly keepStale?: boolean } = {}): Asked<T> {
  const { keepStale = false } = options;
  const [state, setState] = useState<{ loaded: Loaded<T>; stale: boolean }>({ loaded: { phase: "loading" }, stale: false });
  const [round, setRound] = useState(0);
  useEffect(() => {
    const request = new AbortController();
    setState(({ loaded }) => ({ loaded: keepStale && loaded.phase === "ready" ? loaded : { phase: "loading" }, stale: true }));
    question
      .ask(request.signal)
      .then((value) => setState({ loaded: { phase: "ready", value }, stale: false }))
      .catch((error: unknown) => {
        if (!request.signal.aborted) setState({ loaded: { phase: "failed", ...wordsOf(error) }, stale: false });
      });
    return () => request.abort();
  }, [question.address, round]);
  return { ...state, again: useCallback(() => setRound((count) => count + 1), []) };
}
