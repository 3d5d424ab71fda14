// Following a run that still writes: now and then the server is asked whether anything has changed, which costs it almost nothing.

import { useEffect } from "preact/hooks";

import { question } from "../ask";
import type { RunOverview } from "../wire/types";

/** How often a run is asked about while it runs. */
const SOON_MS = 3_000;
/** The same when it does not. */
const LATE_MS = 30_000;
/** What loading again may cost the server: so many times as long it is left alone. */
const REST_TIMES = 20;

/** How long to wait before asking again: longer where nothing runs, where an answer is dear, and after each failure. */
export function pauseOf(isRunning: boolean, tookMs: number, failures: number): number {
  const pause = Math.max(isRunning ? SOON_MS : LATE_MS, REST_TIMES * tookMs);
  return Math.min(pause * 2 ** Math.min(failures, 6), 10 * 60_000);
}

/** Calls `changed` when the run has written something. A page that nobody sees asks nothing. */
export function useFollowing(run: RunOverview, changed: () => void): void {
  useEffect(() => {
    const request = new AbortController();
    let failures = 0;
    let timer = 0;
    const look = async () => {
      if (document.visibilityState === "visible") {
        try {
          const state = await question("run/state", { address: run.address }).ask(request.signal);
          if (request.signal.aborted) return;
          failures = 0;
          if (state.signature !== run.signature || state.is_running !== run.is_running) {
            changed();
            return;
          }
        } catch {
          failures += 1;
        }
      }
      if (!request.signal.aborted) timer = setTimeout(look, pauseOf(run.is_running, run.took_ms, failures));
    };
    timer = setTimeout(look, pauseOf(run.is_running, run.took_ms, 0));
    return () => {
      request.abort();
      clearTimeout(timer);
    };
  }, [run]);
}
