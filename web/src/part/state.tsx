// What a page shows when it has nothing to show: still loading, failed, or empty.

import type { ComponentChildren } from "preact";

import { visible } from "../format";
import type { Loaded } from "../load";

/** The loaded value drawn by `show`, or the state it is in, with a way to ask again. */
export function Outcome<T>(props: { of: Loaded<T>; again: () => void; show: (value: T) => ComponentChildren }) {
  const { of: loaded, again } = props;
  if (loaded.phase === "ready") return <>{props.show(loaded.value)}</>;
  if (loaded.phase === "loading") {
    return (
      <p class="loading" role="status">
        Loading…
      </p>
    );
  }
  return (
    <div class="state failed" role="alert">
      <h2>This could not be loaded</h2>
      <p>{visible(loaded.message)}</p>
      {loaded.hint !== null && <p class="soft">{visible(loaded.hint)}</p>}
      <button type="button" onClick={again}>
        Try again
      </button>
    </div>
  );
}

export function EmptyState(props: { title: string; children: ComponentChildren }) {
  return (
    <div class="state">
      <h2>{props.title}</h2>
      <div class="soft">{props.children}</div>
    </div>
  );
}
