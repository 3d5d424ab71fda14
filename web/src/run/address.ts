// Addresses of runs: `run:DIR` is the run itself, `run:DIR#step=7` a batch of it.

/** Whether an address is that of a whole run, and not of a place in its stream. */
export function isWholeRun(address: string): boolean {
  return address.startsWith("run:") && !address.includes("#");
}

/** The address of a run by its name; signs that mean something in addresses are written as Python writes them. */
export function runAddress(name: string): string {
  return `run:${name.replace(/[^\w\-./@:+,=\u{80}-\u{10ffff}]/gu, (sign) => `%${sign.charCodeAt(0).toString(16).toUpperCase().padStart(2, "0")}`)}`;
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
