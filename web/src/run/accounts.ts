// The ledger as stacked bars: accounts in the order of a life, `train` taken apart into the parts of its steps.

import type { LifeSum } from "../wire/types";

export interface Segment {
  /** `lost`, or `train.forward`. */
  readonly name: string;
  readonly ns: number;
  /** Of the longest bar. */
  readonly width: number;
}

/** The account that has parts. */
const TRAIN = "train";

/** The segments of a bar that is `widest` at full width; what took no time has none. */
export function segmentsOf(sums: Pick<LifeSum, "accounts" | "parts">, widest: number): Segment[] {
  const spent = Object.entries(sums.accounts).flatMap(([name, ns]): [string, number][] =>
    name === TRAIN ? Object.entries(sums.parts).map(([part, of_part]) => [`${TRAIN}.${part}`, of_part]) : [[name, ns]],
  );
  return spent.filter(([, ns]) => ns > 0).map(([name, ns]) => ({ name, ns, width: widest > 0 ? ns / widest : 0 }));
}

/** The class that colours a segment: parts and accounts of the same name are different things. */
export function colourOf(name: string): string {
  return `acc-${name.replace(/[^a-z]/g, "-")}`;
}
