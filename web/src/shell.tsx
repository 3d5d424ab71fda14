// The frame around every page: navigation on the left (on top when narrow), keys, theme.

import { useEffect, useReducer, useState } from "preact/hooks";

import { listenForKeys, moveFocus, useKeys, type Binding } from "./keys";
import { KeySheet } from "./part/keysheet";
import { EmptyState } from "./part/state";
import { formatRoute, go, useRoute } from "./route";
import { SECTIONS, type Section } from "./section";
import { currentTheme, onThemeChange, toggleTheme } from "./theme";

export function Shell() {
  const route = useRoute();
  const [keysShown, setKeysShown] = useState(false);
  const section = SECTIONS.find((one) => one.name === route.path[0]);
  useEffect(listenForKeys, []);
  useKeys("Everywhere", [
    { keys: "?", says: "Show these keys", run: () => setKeysShown(true) },
    ...SECTIONS.map((one): Binding => ({ keys: `g ${one.key}`, says: `Go to ${one.title}`, run: () => go([one.name]) })),
    { keys: "j", says: "Next row", run: () => moveFocus(1) },
    { keys: "k", says: "Previous row", run: () => moveFocus(-1) },
    { keys: "t", says: "Switch between light and dark", run: toggleTheme },
  ]);
  useEffect(() => {
    document.title = section === undefined ? "Penstock" : `${section.title} · Penstock`;
  }, [section]);
  return (
    <div class="shell">
      <Navigation current={section} showKeys={() => setKeysShown(true)} />
      <main>{section === undefined ? <NoSuchPage /> : <section.page route={route} />}</main>
      {keysShown && <KeySheet close={() => setKeysShown(false)} />}
    </div>
  );
}

function Navigation(props: { current: Section | undefined; showKeys: () => void }) {
  return (
    <header class="side">
      <a class="brand" href={formatRoute([""])}>
        <img src="./icon.svg" alt="" width="24" height="24" />
        Penstock
      </a>
      <nav aria-label="Sections">
        {SECTIONS.map((one) => (
          <a key={one.name} href={formatRoute([one.name])} aria-current={one === props.current ? "page" : undefined}>
            {one.title}
          </a>
        ))}
      </nav>
      <div class="side-foot">
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
