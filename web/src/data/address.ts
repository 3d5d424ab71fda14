// Addresses of versions and their rows: `web@3/row/17`.

/** The address of a row of a version, or of the version alone. */
export function splitRow(address: string): [string, number | null] {
  const match = /^(.*)\/row\/(\d{1,16})$/.exec(address);
  return match === null ? [address, null] : [match[1] ?? "", Number(match[2])];
}
