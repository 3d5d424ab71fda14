// Keyboard: one listener for the whole page, and a list of what is bound right now.
//
// Components bind keys while they are shown, and the key sheet (`?`) lists exactly these, so it can
// not say anything untrue. A binding is one key (`t`) or two pressed in turn (`g e`).

import { useLayoutEffect } from "preact/hooks";

export interface Binding {
  readonly keys: string;
  /** What it does, as the key sheet says it. */
  readonly says: string;
  readonly run: () => void;
}

/** Where a key works, from the general to the special: the special one has it. The key sheet says them in this order. */
export const SCOPES = ["Everywhere", "This page", "Rows", "Row", "Batch", "Timeline"] as const;
export type Scope = (typeof SCOPES)[number];

/** How long `g` waits for the key of a section. */
const SECOND_KEY_WITHIN_MS = 1200;

const bound: { readonly scope: Scope; readonly bindings: readonly Binding[] }[] = [];
let firstKey: { readonly key: string; readonly at_ms: number } | null = null;

/**
 * Binds keys while the component is shown. Bound again right after every drawing, not when the browser
 * finds the time: a key pressed twice quickly must not act twice on the same old state.
 */
export function useKeys(scope: Scope, bindings: readonly Binding[]): void {
  useLayoutEffect(() => {
    const entry = { scope, bindings };
    bound.push(entry);
    return () => {
      bound.splice(bound.indexOf(entry), 1);
    };
  });
}

/** What is bound now, everywhere or in one scope. */
export function boundKeys(scope?: Scope): readonly Binding[] {
  return bound.filter((entry) => scope === undefined || entry.scope === scope).flatMap((entry) => entry.bindings);
}

/** Moves the focus through the rows of the page (elements with `data-row`), `by` rows on. */
export function moveFocus(by: 1 | -1): void {
  const rows = [...document.querySelectorAll<HTMLElement>("main [data-row]")];
  const at = rows.indexOf(document.activeElement as HTMLElement);
  const next = at < 0 ? (by > 0 ? 0 : rows.length - 1) : at + by;
  rows[Math.max(0, Math.min(rows.length - 1, next))]?.focus();
}

export function listenForKeys(): () => void {
  addEventListener("keydown", onKey);
  return () => removeEventListener("keydown", onKey);
}

function onKey(event: KeyboardEvent): void {
  if (event.ctrlKey || event.metaKey || event.altKey || isTyping(event.target)) return;
  if (document.querySelector("dialog[open]") !== null) return;
  const prefix = firstKey !== null && event.timeStamp - firstKey.at_ms < SECOND_KEY_WITHIN_MS ? firstKey.key : null;
  firstKey = null;
  const binding = (prefix !== null && find(`${prefix} ${event.key}`)) || find(event.key);
  if (binding) {
    event.preventDefault();
    binding.run();
  } else if (boundKeys().some((one) => one.keys.startsWith(`${event.key} `))) {
    firstKey = { key: event.key, at_ms: event.timeStamp };
  }
}

/** The binding of some keys; where several parts of the page bind them, that of the most special one. */
function find(keys: string): Binding | undefined {
  for (const scope of [...SCOPES].reverse()) {
    const found = boundKeys(scope).find((binding) => binding.keys === keys);
    if (found !== undefined) return found;
  }
  return undefined;
}

/** What is bound in a scope and not bound again in a more special one. */
export function workingKeys(scope: Scope): readonly Binding[] {
  return boundKeys(scope).filter((binding) => find(binding.keys) === binding);
}

function isTyping(target: EventTarget | null): boolean {
  return target instanceof HTMLElement && target.matches("input:not([type=checkbox]), textarea, select, [contenteditable]");
}
