// Addresses of batches, taken apart and put together: `recipe.toml#step=41207,lane=3/8,row=5,token=120`.

export interface Place {
  /** What stands before the `#`: a recipe or `run:…`. */
  readonly stream: string;
  readonly step: number | null;
  readonly lane: string | null;
  readonly row: number | null;
  readonly token: number | null;
}

export function parsePlace(address: string): Place {
  const [stream = "", rest = ""] = cut(address, "#");
  const words = new Map(rest.split(",").map((part) => cut(part, "=")));
  return { stream, step: whole(words.get("step")), lane: words.get("lane") ?? null, row: whole(words.get("row")), token: whole(words.get("token")) };
}

export function formatPlace(place: Place): string {
  const words = (["step", "lane", "row", "token"] as const).flatMap((name) => (place[name] === null ? [] : [`${name}=${place[name]}`]));
  return words.length === 0 ? place.stream : `${place.stream}#${words.join(",")}`;
}

/** Whether an address is of a stream of batches, and not of a version. */
export function isStream(address: string): boolean {
  const [stream = ""] = cut(address, "#");
  return address.startsWith("run:") || address.includes("#") || (/\.(toml|json)$/i.test(stream) && !/^[\w./-]+@[\w.:-]+$/.test(stream));
}

function cut(text: string, sign: string): [string, string] {
  const at = text.indexOf(sign);
  return at < 0 ? [text, ""] : [text.slice(0, at), text.slice(at + 1)];
}

function whole(text: string | undefined): number | null {
  return text !== undefined && /^\d{1,16}$/.test(text) ? Number(text) : null;
}
