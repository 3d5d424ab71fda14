// Asking for a batch: packed columns instead of JSON. The last batch stays on the page until the next is there, so that
// walking through steps does not flicker.

import { useCallback, useEffect, useRef, useState } from "preact/hooks";

import { Failure, fetchBytes } from "../api";
import type { Loaded } from "../load";
import { readBatch, type Batch } from "./batch";

export interface Asked {
  readonly loaded: Loaded<Batch>;
  /** Whether what is shown is the one before, while the next is on its way. */
  readonly stale: boolean;
  readonly again: () => void;
}

/** What of a batch is asked for, beside its address. */
export interface Part {
  /** Some rows. */
  readonly rows?: string | null;
  /** What the loop of a run shows of its own arrays. */
  readonly tap?: string | null;
  /** The exact bytes of characters that several tokens share, instead of the characters. */
  readonly bytes?: boolean;
}

export function useBatch(address: string, part: Part = {}): Asked {
  const { rows = null, tap = null, bytes = false } = part;
  const [state, setState] = useState<{ loaded: Loaded<Batch>; stale: boolean }>({ loaded: { phase: "loading" }, stale: false });
  const [round, setRound] = useState(0);
  const shown = useRef(state.loaded);
  shown.current = state.loaded;
  useEffect(() => {
    const request = new AbortController();
    setState({ loaded: shown.current.phase === "ready" ? shown.current : { phase: "loading" }, stale: true });
    const query = new URLSearchParams({ address, ...(rows === null ? {} : { rows }), ...(tap === null ? {} : { tap }), ...(bytes ? { bytes: "1" } : {}) });
    performance.mark("batch-asked");
    fetchBytes(`api/batch?${query}`, request.signal)
      .then((data) => {
        performance.mark("batch-data");
        setState({ loaded: { phase: "ready", value: readBatch(data) }, stale: false });
      })
      .catch((error: unknown) => {
        if (request.signal.aborted) return;
        const message = error instanceof Error ? error.message : String(error);
        setState({ loaded: { phase: "failed", message, hint: error instanceof Failure ? error.hint : null }, stale: false });
      });
    return () => request.abort();
  }, [address, rows, tap, bytes, round]);
  return { ...state, again: useCallback(() => setRound((count) => count + 1), []) };
}
