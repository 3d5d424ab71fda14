// The frame around every page: one bar with the address, and below it nothing but the page.

import { useEffect, useReducer, useRef, useState } from "preact/hooks";

import { listenForKeys, moveFocus, useKeys, type Binding } from "./keys";
import { AddressPage } from "./page/address";
import { KeySheet } from "./part/keysheet";
import { EmptyState } from "./part/state";
import { formatRoute, go, goTo, parseRoute, useRoute, type Route } from "./route";
import { sectionOf, SECTIONS, type Section } from "./section";
import { currentTheme, onThemeChange, toggleTheme } from "./theme";

export function Shell() {
  const route = useRoute();
  const [keysShown, setKeysShown] = useState(false);
  const input = useRef<HTMLInputElement>(null);
  const section = sectionOf(route);
  useEffect(listenForKeys, []);
  useKeys("Everywhere", [
    { keys: "?", says: "Show these keys", run: () => setKeysShown(true) },
    { keys: "a", says: "Type an address", run: () => input.current?.select() },
    ...SECTIONS.map((one): Binding => ({ keys: `g ${one.key}`, says: `Go to ${one.title}`, run: () => go([one.name]) })),
    { keys: "j", says: "Next row", run: () => moveFocus(1) },
    { keys: "k", says: "Previous row", run: () => moveFocus(-1) },
    { keys: "t", says: "Switch between light and dark", run: toggleTheme },
  ]);
  useEffect(() => {
    document.title = `${route.address ?? section?.title ?? "No such page"} · Penstock`;
  }, [section, route.address]);
  return (
    <div class="shell">
      <Bar current={section} route={route} input={input} showKeys={() => setKeysShown(true)} />
      <main>
        <Page route={route} section={section} />
      </main>
      {keysShown && <KeySheet close={() => setKeysShown(false)} />}
    </div>
  );
}

function Page(props: { route: Route; section: Section | undefined }) {
  const { route, section } = props;
  if (route.address !== null) return <AddressPage address={route.address} query={route.query} />;
  return section === undefined ? <NoSuchPage /> : <section.page route={route} />;
}

interface BarProps {
  readonly current: Section | undefined;
  readonly route: Route;
  readonly input: { current: HTMLInputElement | null };
  readonly showKeys: () => void;
}

function Bar(props: BarProps) {
  const { route, input } = props;
  const open = (event: Event) => {
    event.preventDefault();
    const typed = input.current?.value.trim() ?? "";
    // A whole URL of ours is an address too.
    const address = typed.includes("#/a/") ? (parseRoute(typed.slice(typed.indexOf("#/a/"))).address ?? "") : typed;
    input.current?.blur();
    if (address !== "") goTo(address);
  };
  const leave = (event: KeyboardEvent) => event.key === "Escape" && input.current?.blur();
  return (
    <header class="topbar">
      <a class="brand" href={formatRoute([""])}>
        <img src="./icon.svg" alt="" width="20" height="20" />
        <span>Penstock</span>
      </a>
      <form class="address" onSubmit={open} role="search">
        <input
          key={route.address ?? ""}
          ref={input}
          defaultValue={route.address ?? ""}
          placeholder="web@3   web@3/row/17   recipe.toml#step=41207   run:runs/exp1   runs:runs"
          aria-label="Address"
          title="An address, as penstock view takes it (a)"
          spellcheck={false}
          autocomplete="off"
          autocapitalize="off"
          onKeyDown={leave}
        />
      </form>
      <nav aria-label="Sections">
        {SECTIONS.map((one) => (
          <a key={one.name} href={formatRoute([one.name])} aria-current={one === props.current ? "page" : undefined}>
            {one.title}
          </a>
        ))}
      </nav>
      <div class="bar-end">
        <ThemeButton />
        <button type="button" class="quiet" onClick={props.showKeys} aria-label="Show keys" title="Keys (?)">
          ?
        </button>
      </div>
    </header>
  );
}

function ThemeButton() {
  const [, redraw] = useReducer((count: number) => count + 1, 0);
  useEffect(() => onThemeChange(() => redraw(null)), []);
  const other = currentTheme() === "dark" ? "light" : "dark";
  return (
    <button type="button" class="quiet" onClick={toggleTheme} aria-label={`Use ${other} colours`} title={`Use ${other} colours (t)`}>
      <svg viewBox="0 0 16 16" width="16" height="16" aria-hidden="true">
        <circle cx="8" cy="8" r="6.25" fill="none" stroke="currentColor" stroke-width="1.5" />
        <path d="M8 1.75a6.25 6.25 0 0 1 0 12.500z" fill="currentColor" />
      </svg>
    </button>
  );
}

function NoSuchPage() {
  return (
    <EmptyState title="There is no such page">
      <p>
        The link may come from another version. <a href={formatRoute([""])}>Start at the beginning.</a>
      </p>
    </EmptyState>
  );
}
