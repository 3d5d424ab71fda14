// A box that narrows a list: what is typed is in the URL at rest, so that a copied link shows the same.

import { useEffect, useRef, useState } from "preact/hooks";

import { useKeys } from "../keys";
import { replaceQuery } from "../route";

/** How long typing rests before the URL says it. */
const REST_MS = 150;

/** What is typed now, and at rest. */
export interface Search {
  readonly typed: string;
  readonly rested: string;
  readonly type: (text: string) => void;
}

/** `name` is the word of the URL's query that holds it. */
export function useSearch(query: ReadonlyMap<string, string>, name: string): Search {
  const rested = query.get(name) ?? "";
  const [typed, setTyped] = useState(rested);
  const timer = useRef(0);
  // What this box has sent itself comes back while its reader may be typing on.
  const sent = useRef(rested);
  useEffect(() => {
    if (rested === sent.current) return;
    sent.current = rested;
    setTyped(rested);
  }, [rested]);
  useEffect(() => () => clearTimeout(timer.current), []);
  const type = (text: string) => {
    setTyped(text);
    clearTimeout(timer.current);
    timer.current = setTimeout(() => {
      sent.current = text;
      replaceQuery(new Map([[name, text === "" ? null : text]]));
    }, REST_MS);
  };
  return { typed, rested, type };
}

/** Whether every typed word occurs in one of the texts. */
export function matches(typed: string, texts: readonly string[]): boolean {
  const words = typed.toLowerCase().split(/\s+/).filter((word) => word !== "");
  const whole = texts.join("\n").toLowerCase();
  return words.every((word) => whole.includes(word));
}

export function SearchBox(props: { search: Search; label: string }) {
  const { search, label } = props;
  const input = useRef<HTMLInputElement>(null);
  useKeys("This page", [{ keys: "/", says: label, run: () => input.current?.focus() }]);
  return (
    <input
      ref={input}
      type="search"
      class="search"
      value={search.typed}
      placeholder={`${label} (/)`}
      aria-label={label}
      spellcheck={false}
      autocomplete="off"
      onInput={(event) => search.type(event.currentTarget.value)}
      onKeyDown={(event) => {
        if (event.key !== "Escape") return;
        search.type("");
        input.current?.blur();
      }}
    />
  );
}
