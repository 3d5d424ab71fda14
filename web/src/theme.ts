// Light or dark: what the system prefers, unless the reader chose the other one here.

/** Where the browser keeps the choice. */
const STORED_AS = "penstock.theme";

type Theme = "light" | "dark";

export function applyStoredTheme(): void {
  const stored = readStored();
  if (stored !== null) document.documentElement.dataset["theme"] = stored;
}

export function currentTheme(): Theme {
  const chosen = document.documentElement.dataset["theme"];
  return chosen === "light" || chosen === "dark" ? chosen : systemTheme();
}

/** Switches to the other theme. Choosing what the system prefers means following the system again. */
export function toggleTheme(): void {
  const next: Theme = currentTheme() === "dark" ? "light" : "dark";
  const follow = next === systemTheme();
  if (follow) delete document.documentElement.dataset["theme"];
  else document.documentElement.dataset["theme"] = next;
  try {
    if (follow) localStorage.removeItem(STORED_AS);
    else localStorage.setItem(STORED_AS, next);
  } catch {
    // Storage can be forbidden by the browser; the choice then lasts until the reload.
  }
  dispatchEvent(new Event("penstock-theme"));
}

/** Calls `draw` whenever colours change; returns what ends that. For things CSS does not reach. */
export function onThemeChange(draw: () => void): () => void {
  const system = matchMedia("(prefers-color-scheme: dark)");
  system.addEventListener("change", draw);
  addEventListener("penstock-theme", draw);
  return () => {
    system.removeEventListener("change", draw);
    removeEventListener("penstock-theme", draw);
  };
}

function systemTheme(): Theme {
  return matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light";
}

function readStored(): Theme | null {
  try {
    const stored = localStorage.getItem(STORED_AS);
    return stored === "light" || stored === "dark" ? stored : null;
  } catch {
    return null;
  }
}
