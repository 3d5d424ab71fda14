// Where the reader is: the part of the address after `#`, such as `#/events/rank-0.pev?kind=data.wait`.
//
// The server never sees that part, so the same link works under every proxy prefix and survives a
// reload. A page keeps what it shows (selection, zoom) in the query, so that a copied link shows it too.

import { useEffect, useState } from "preact/hooks";

export interface Route {
  /** Decoded segments; the first names the section, "" is home. */
  readonly path: readonly string[];
  readonly query: ReadonlyMap<string, string>;
}

export function parseRoute(hash: string): Route {
  const [pathText = "", queryText = ""] = split(hash.replace(/^#?\/?/, ""));
  const path = pathText.split("/").map(decode);
  return { path, query: new Map(new URLSearchParams(queryText)) };
}

export function formatRoute(path: readonly string[], query: ReadonlyMap<string, string> = new Map()): string {
  const tail = new URLSearchParams([...query]).toString();
  return `#/${path.map(encodeURIComponent).join("/")}${tail === "" ? "" : `?${tail}`}`;
}

/** The route now; the component is drawn again when it changes. */
export function useRoute(): Route {
  const [route, setRoute] = useState(() => parseRoute(location.hash));
  useEffect(() => {
    const follow = () => setRoute(parseRoute(location.hash));
    addEventListener("hashchange", follow);
    return () => removeEventListener("hashchange", follow);
  }, []);
  return route;
}

/** Changes the query of the page without a new entry in the browser's history. */
export function replaceQuery(changes: ReadonlyMap<string, string | null>): void {
  const route = parseRoute(location.hash);
  const query = new Map(route.query);
  for (const [name, value] of changes) {
    if (value === null) query.delete(name);
    else query.set(name, value);
  }
  const hash = formatRoute(route.path, query);
  if (hash === location.hash) return;
  history.replaceState(null, "", hash);
  dispatchEvent(new HashChangeEvent("hashchange"));
}

export function go(path: readonly string[]): void {
  location.hash = formatRoute(path);
}

function split(text: string): [string, string] {
  const at = text.indexOf("?");
  return at < 0 ? [text, ""] : [text.slice(0, at), text.slice(at + 1)];
}

/** A link typed by hand may hold a lone `%`; it is then taken as it stands. */
function decode(segment: string): string {
  try {
    return decodeURIComponent(segment);
  } catch {
    return segment;
  }
}
