// Addresses of runs: `run:DIR` is the run itself, `run:DIR#step=7` a batch of it, `runs:DIR` all runs below a folder.

/** Whether an address is that of a whole run, and not of a place in its stream. */
export function isWholeRun(address: string): boolean {
  return address.startsWith("run:") && !address.includes("#");
}

/** The address of a run by its name; signs that mean something in addresses are written as Python writes them. */
export function runAddress(name: string): string {
  return `run:${name.replace(/[^\w\-./@:+,=\u{80}-\u{10ffff}]/gu, (sign) => `%${sign.charCodeAt(0).toString(16).toUpperCase().padStart(2, "0")}`)}`;
}

/** Whether an address is that of a folder of runs. */
export function isFolderOfRuns(address: string): boolean {
  return address.startsWith("runs:");
}

/** The address of a folder of runs by its name. */
export function runsAddress(folder: string): string {
  return runAddress(folder).replace(/^run:/, "runs:");
}

/** The folder that a run lies in. */
export function folderOf(name: string): string {
  return name.includes("/") ? name.slice(0, name.lastIndexOf("/")) || "/" : ".";
}

/** Folders in which runs lie, with how many are directly in each. */
export function foldersOf(names: readonly string[]): [string, number][] {
  const folders = new Map<string, number>();
  for (const name of names) {
    const folder = folderOf(name);
    folders.set(folder, (folders.get(folder) ?? 0) + 1);
  }
  return [...folders].sort(([one], [other]) => one.localeCompare(other));
}

/** The name in such an address. */
export function runName(address: string): string {
  const name = address.replace(/^run:/, "");
  try {
    return decodeURIComponent(name);
  } catch {
    return name;
  }
}

export function stepAddress(run: string, step: number): string {
  return `${run}#step=${step}`;
}
