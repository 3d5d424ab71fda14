// Where the reader is: the part of the URL after `#`. `#/a/web@3/row/17` shows an address, the same text that
// `penstock view` takes; `#/events/rank-0.pev?kind=data.wait` a page of its own.
//
// The server never sees that part, so the same link works under every proxy prefix and survives a
// reload. A page keeps how it shows things (selection, zoom, filter) in the query, so that a copied link shows it too.

import { useEffect, useState } from "preact/hooks";

export interface Route {
  /** Decoded segments; the first names the section, "" is home. */
  readonly path: readonly string[];
  readonly query: ReadonlyMap<string, string>;
  /** The address that is shown, for routes that begin with `a/`. */
  readonly address: string | null;
}

type Query = ReadonlyMap<string, string>;
/** What routes of addresses begin with. */
const ADDRESS = "a/";

export function parseRoute(hash: string): Route {
  const [pathText = "", queryText = ""] = split(hash.replace(/^#?\/?/, ""));
  const path = pathText.split("/").map(decode);
  const address = pathText.startsWith(ADDRESS) ? decode(pathText.slice(ADDRESS.length)) : null;
  return { path, query: new Map(new URLSearchParams(queryText)), address };
}

export function formatRoute(path: readonly string[], query: Query = new Map()): string {
  return withQuery(`#/${path.map(encodeURIComponent).join("/")}`, query);
}

/** The route of an address; written as Python writes it, so that the URL is an address for `penstock view` too. */
export function addressRoute(address: string, query: Query = new Map()): string {
  const quoted = encodeURIComponent(address).replace(/%(2F|40|3A|2B|2C|3D)/g, (code) => decodeURIComponent(code));
  return withQuery(`#/${ADDRESS}${quoted}`, query);
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
  replaceHash(route.address === null ? formatRoute(route.path, query) : addressRoute(route.address, query));
}

/** Shows another address in place of this one, without a new entry in the history; the query stays. */
export function replaceAddress(address: string): void {
  replaceHash(addressRoute(address, parseRoute(location.hash).query));
}

export function go(path: readonly string[]): void {
  location.hash = formatRoute(path);
}

export function goTo(address: string, query: Query = new Map()): void {
  location.hash = addressRoute(address, query);
}

function replaceHash(hash: string): void {
  if (hash === location.hash) return;
  history.replaceState(null, "", hash);
  dispatchEvent(new HashChangeEvent("hashchange"));
}

function withQuery(hash: string, query: Query): string {
  const tail = new URLSearchParams([...query]).toString();
  return tail === "" ? hash : `${hash}?${tail}`;
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
